//! safetensors files and sets.

use crate::Target;
use crate::memory::Folder;
use crate::seeds::{Seeds, ending};
use crate::walk::{walk, walk_both};
use weightlift_safetensors::Safetensors;

const INDEX: &str = "model.safetensors.index.json";
/// The shards of the fixtures' set.
const SHARDS: [(&str, &[u8]); 2] = [
    (
        "model-00001-of-00002.safetensors",
        include_bytes!("../../tests/data/fixtures/safetensors/sharded/model-00001-of-00002.safetensors"),
    ),
    (
        "model-00002-of-00002.safetensors",
        include_bytes!("../../tests/data/fixtures/safetensors/sharded/model-00002-of-00002.safetensors"),
    ),
];

/// A file, read strictly and leniently.
pub const FILE: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| ending(name, bytes, &[".safetensors"])),
    run: |data| walk_both(&Safetensors, Folder::of("model.safetensors", data), "model.safetensors"),
};

/// The index of a set, beside sound shards.
pub const SET: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| ending(name, bytes, &[".index.json"])),
    run: |data| {
        let folder = SHARDS.iter().fold(Folder::of(INDEX, data), |folder, (name, bytes)| folder.with(name, bytes));
        walk(&Safetensors, folder, INDEX);
    },
};
