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
