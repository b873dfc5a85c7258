//! PyTorch's files.

use crate::memory::Folder;
use crate::seeds::{Seeds, ending};
use crate::walk::{walk, walk_salvaging};
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
    run: |data| walk_salvaging(&Torch, Folder::of("model.pt", data), "model.pt"),
};

/// A stream of pickles with the storages behind.
pub const LEGACY: Target = Target {
    seeds: Seeds::Fixtures(|name, bytes| beginning(name, bytes, |bytes| !bytes.starts_with(b"PK"))),
    run: |data| walk(&Torch, Folder::of("model.pt", data), "model.pt"),
};

/// A pickle in a sound archive. Before it stand the number of storages and the length of each, two bytes.
pub const PICKLE: Target = Target { seeds: Seeds::Fixtures(pickle_seeds), run: run_pickle };

/// The JSON that describes the weights of a program, in a sound archive. Before it stands which kind of program it is.
pub const EXPORT: Target = Target { seeds: Seeds::Fixtures(export_seeds), run: run_export };

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

/// Names in programs: of the JSON and of records, by kind.
const PROGRAMS: [[&str; 3]; 2] = [
    ["p/data/weights/model_weights_config.json", "p/data/weights/weight_0", "p/data/weights/weight_1"],
    ["p/model.json", "p/tensors/0", "p/tensors/1"],
];

/// What PyTorch 1.0 wrote of a module with one inside.
const SCRIPT: &[u8] = br#"{"mainModule": {"parameters": [{"tensorId": 0, "name": "w"}], "submodules": [{"name": "m",
"parameters": [{"tensorId": "1", "name": "v"}]}]}, "tensors": [{"dataType": "FLOAT", "dims": ["2", "2"], "strides": ["2",
"1"], "offset": "0", "data": {"key": "tensors/0"}}, {"dataType": "INT64", "dims": [1], "strides": [1], "offset": 0, "data":
{"key": "tensors/1"}}]}"#;

fn run_export(data: &[u8]) {
    let Some((&kind, json)) = data.split_first() else { return };
    let [config, first, second] = PROGRAMS[usize::from(kind % 2)].map(str::to_owned);
    let archive = zip::archive(&[(config, json), (first, &[0x3c; 64]), (second, &[0x3c; 16])]);
    walk_salvaging(&Torch, Folder::of("model.pt2", &archive), "model.pt2");
}

fn export_seeds(name: &str, bytes: &[u8]) -> Vec<Vec<u8>> {
    if !name.ends_with(".pt2") {
        return Vec::new();
    }
    let folder = Folder::of(name, bytes);
    let Ok(source) = FileSource::open(&folder, &crate::memory::path(name)) else { return Vec::new() };
    let Ok(archive) = Archive::read(&source, &Limits::default()) else { return Vec::new() };
    let configs = archive.members().iter().filter(|member| member.name.ends_with("_weights_config.json"));
    let json = configs.filter_map(|member| read_member(&source, member, &Limits::default(), 1 << 20).ok());
    json.map(|json| [&[0], json.as_slice()].concat()).chain([[&[1], SCRIPT].concat()]).collect()
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
