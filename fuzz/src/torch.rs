//! PyTorch's files.

use crate::memory::Folder;
use crate::seeds::{Seeds, ending};
use crate::walk::walk;
use crate::{Target, zip};
use std::path::Path;
use weightlift_archive::{Archive, read_member};
use weightlift_core::Limits;
use weightlift_io::FileSource;
use weightlift_torch::Torch;

/// How many storages the archive around a pickle has at most.
const STORAGES: usize = 8;
/// The data files of the fixtures' distributed checkpoint.
const PARTS: [&[u8]; 2] = [
    include_bytes!("../../tests/data/fixtures/torch/dcp_two_ranks/__0_0.distcp"),
    include_bytes!("../../tests/data/fixtures/torch/dcp_two_ranks/__1_0.distcp"),
];

/// A zip archive.
pub const ZIP: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| beginning(name, bytes, |bytes| bytes.starts_with(b"PK"))),
    run: |data| walk(&Torch, Folder::of("model.pt", data), "model.pt"),
};

/// A stream of pickles with the storages behind.
pub const LEGACY: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| beginning(name, bytes, |bytes| !bytes.starts_with(b"PK"))),
    run: |data| walk(&Torch, Folder::of("model.pt", data), "model.pt"),
};

/// A pickle in a sound archive. Before it stand the number of storages and the length of each, two bytes.
pub const PICKLE: Target = Target { seeds: Seeds::Fixtures(pickle_seeds), run: run_pickle };

/// The metadata of a distributed checkpoint, beside sound data files.
pub const DISTRIBUTED: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| ending(name, bytes, &["/.metadata"])),
    run: |data| {
        let folder = Folder::of(".metadata", data).with("__0_0.distcp", PARTS[0]).with("__1_0.distcp", PARTS[1]);
        walk(&Torch, folder, ".metadata");
    },
};

fn beginning(name: &str, bytes: &[u8], wanted: fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
    let torch = name.starts_with("torch/") && wanted(bytes);
    torch.then(|| bytes.to_vec()).into_iter().collect()
}

fn run_pickle(data: &[u8]) {
    let Some((&count, mut rest)) = data.split_first() else { return };
    let mut storages = Vec::new();
    for _ in 0..usize::from(count).min(STORAGES) {
        let Some((len, after)) = rest.split_first_chunk() else { return };
        storages.push(vec![0x3c; u16::from_le_bytes(*len).into()]);
        rest = after;
    }
    walk(&Torch, Folder::of("model.pt", &archive(rest, &storages)), "model.pt");
}

/// An archive like those of `torch.save`.
fn archive(pickle: &[u8], storages: &[Vec<u8>]) -> Vec<u8> {
    let mut members: Vec<(String, &[u8])> = vec![
        ("archive/data.pkl".to_owned(), pickle),
        ("archive/byteorder".to_owned(), b"little"),
        ("archive/version".to_owned(), b"3\n"),
    ];
    members.extend(storages.iter().enumerate().map(|(key, data)| (format!("archive/data/{key}"), data.as_slice())));
    zip::archive(&members)
}

/// The pickle of an archive with the lengths of its first storages.
fn pickle_seeds(name: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    if !name.starts_with("torch/") || !bytes.starts_with(b"PK") {
        return Vec::new();
    }
    let folder = Folder::of(name, bytes);
    let Ok(source) = FileSource::open(&folder, &crate::memory::path(name)) else { return Vec::new() };
    let Ok(archive) = Archive::read(&source, &Limits::default()) else { return Vec::new() };
    let pickles = archive.members().iter().filter(|member| member.name.ends_with("data.pkl"));
    let seed = |member| {
        let pickle = read_member(&source, member, &Limits::default(), 1 << 20).ok()?;
        let root = Path::new(&member.name).parent()?;
        let storage = |key: usize| archive.find(root.join(format!("data/{key}")).to_str()?).ok().flatten();
        let lengths: Vec<u64> = (0..STORAGES).map_while(storage).map(|storage| storage.len).collect();
        let mut seed = vec![lengths.len() as u8];
        seed.extend(lengths.iter().flat_map(|&len| (len as u16).to_le_bytes()));
        seed.extend(pickle);
        Some(seed)
    };
    pickles.filter_map(seed).collect()
}
