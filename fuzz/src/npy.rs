//! NumPy's files.

use crate::Target;
use crate::memory::Folder;
use crate::seeds::{Seeds, ending};
use crate::walk::walk;
use weightlift_npy::{Npy, Npz};

/// A `.npy` file.
pub const ARRAY: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| ending(name, bytes, &[".npy"])),
    run: |data| walk(&Npy, Folder::of("w.npy", data), "w.npy"),
};

/// A `.npz` file.
pub const ARCHIVE: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| ending(name, bytes, &[".npz"])),
    run: |data| walk(&Npz, Folder::of("w.npz", data), "w.npz"),
};

/// The list of a folder of arrays, beside two of them.
pub const LIST: Target = Target {
    seeds: Seeds::Texts(&[
        r#"{"arrays": [{"name": "layer/w", "file": "w.npy"}, {"name": "b", "file": "b.npy", "dtype": "bf16"}]}"#,
        r#"{"arrays": [{"name": "w", "file": "w.npy", "was": "f8e4m3fn"}]}"#,
        r#"{"arrays": [{"name": "", "file": "b.npy", "dtype": "bf17"}, {"name": "w", "file": "../w.npy"}]}"#,
        r#"{"arrays": []}"#,
    ]),
    run: |data| {
        let folder = Folder::of("arrays.json", data).with("w.npy", ARRAYS[0]).with("b.npy", ARRAYS[1]);
        walk(&Npy, folder, "");
    },
};

const ARRAYS: [&[u8]; 2] = [
    include_bytes!("../../tests/data/fixtures/numpy/f32_f.npy"),
    include_bytes!("../../tests/data/fixtures/numpy/bf16.npy"),
];
