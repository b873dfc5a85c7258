//! Checkpoints made to do harm: each gives one clear error or what is readable, in bounded time and memory.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests say what they expect"
)]

mod craft;

use craft::{call, checkpoint, dict, global, int, ints, pickle, storage, tensor, text, tuple};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{Checkpoint, Format, Kind, OpenOptions, Result};
use weightlift_testkit::OneFile;
use weightlift_torch::Torch;

struct Crafted {
    dir: tempfile::TempDir,
}

impl Crafted {
    fn new() -> Crafted {
        Crafted { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("crafted.pt")
    }

    /// Opens a checkpoint of this value over a storage of 24 bytes.
    fn open(&self, value: Vec<u8>) -> Result<Box<dyn Checkpoint>> {
        checkpoint(&self.path(), &pickle(value), &[7; 24]);
        Torch.open(weightlift_io::real(), &self.path(), &OpenOptions::default())
    }

    fn error(&self, value: Vec<u8>) -> String {
        let error = self.open(value).err().expect("an error");
        assert!(matches!(error.kind(), Kind::Malformed | Kind::Limit), "{error}");
        assert!(error.place().file.is_some());
        error.to_string()
    }

    fn names(&self, value: Vec<u8>) -> Vec<String> {
        self.open(value).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect()
    }
}

/// Opens a file that lies in memory.
fn open(bytes: &[u8]) -> Result<Box<dyn Checkpoint>> {
    Torch.open(Arc::new(OneFile::new(bytes)), Path::new("m.pt"), &OpenOptions::default())
}

#[test]
fn views_never_leave_their_storage() {
    let crafted = Crafted::new();
    let view = |numel, offset, size: &[i64], stride: &[i64]| {
        crafted.error(dict(&[("good", tensor(6, 0, &[2, 3], &[3, 1])), ("w", tensor(numel, offset, size, stride))]))
    };
    let max = i64::MAX;
    for (offset, size, stride) in [
        (1, vec![2, 3], vec![3, 1]),
        (0, vec![2, 3], vec![4, 1]),
        (0, vec![7], vec![1]),
        (6, vec![1], vec![1]),
        (0, vec![2, 2], vec![max, max]),
        (max, vec![2], vec![max]),
        (max, vec![], vec![]),
        (0, vec![max, max], vec![0, 0]),
        (0, vec![1 << 31, 1 << 31, 4], vec![0, 0, 0]),
    ] {
        let error = view(6, offset, &size, &stride);
        assert!(error.contains("tensor \"w\""), "{error}");
    }
    assert!(view(6, -1, &[1], &[1]).contains("negative"));
    assert!(view(6, 0, &[-1], &[1]).contains("negative"));
    assert!(view(6, 0, &[1], &[-1]).contains("negative"));
    assert!(view(6, 0, &[1], &[1, 1]).contains("2 strides for a tensor of rank 1"));
    assert!(view(5, 0, &[1], &[1]).contains("storage \"0\" has 24 bytes"), "{}", view(5, 0, &[1], &[1]));
    assert!(view(max, 0, &[1], &[1]).contains("too long"), "{}", view(max, 0, &[1], &[1]));
}

#[test]
fn quantized_tensors_are_checked_alike() {
    let crafted = Crafted::new();
    let quantizer = tuple(&[global("torch", "per_tensor_affine"), b"G?\xf0\0\0\0\0\0\0".to_vec(), int(0)]);
    let tensor = |offset, size: &[i64], stride: &[i64]| {
        let hooks = call(global("collections", "OrderedDict"), &[]);
        let view = [storage("QInt8Storage", 24), int(offset), ints(size), ints(stride)];
        let args = [view.as_slice(), &[quantizer.clone(), b"\x89".to_vec(), hooks]].concat();
        dict(&[("q", call(global("torch._utils", "_rebuild_qtensor"), &args))])
    };
    let checkpoint = crafted.open(tensor(0, &[4, 6], &[6, 1])).unwrap();
    assert_eq!(checkpoint.catalog().entries[0].remarks, ["scale=1.0 zero_point=0"]);
    for (offset, stride) in [(1, [6, 1]), (0, [7, 1]), (0, [i64::MAX, 1])] {
        assert!(crafted.error(tensor(offset, &[4, 6], &stride)).contains("\"q\""));
    }
}

#[test]
fn arguments_of_the_wrong_kind_are_errors() {
    let crafted = Crafted::new();
    let rebuild =
        |args: &[Vec<u8>]| crafted.error(dict(&[("w", call(global("torch._utils", "_rebuild_tensor_v2"), args))]));
    assert!(rebuild(&[]).contains("0 arguments"));
    assert!(rebuild(&[int(1), int(0), ints(&[]), ints(&[])]).contains("storage is 1"));
    let ok = storage("FloatStorage", 6);
    assert!(rebuild(&[ok.clone(), text("x"), ints(&[]), ints(&[])]).contains("offset"));
    assert!(rebuild(&[ok.clone(), int(0), int(3), ints(&[])]).contains("instead of a tuple"));
    assert!(rebuild(&[ok, int(0), tuple(&[text("a")]), ints(&[1])]).contains("instead of a number"));
    let short = [tuple(&[text("storage")]), b"Q".to_vec()].concat();
    assert!(rebuild(&[short, int(0), ints(&[]), ints(&[])]).contains("instead of five fields"));
    let parameter = call(global("torch._utils", "_rebuild_parameter"), &[int(3)]);
    assert!(crafted.error(dict(&[("p", parameter)])).contains("instead of a tensor"));
}

#[test]
fn what_is_not_known_is_left_out_by_name() {
    let crafted = Crafted::new();
    let hooks = call(global("collections", "OrderedDict"), &[]);
    let args = [storage("StrangeStorage", 6), int(0), ints(&[6]), ints(&[1]), b"\x89".to_vec(), hooks];
    let strange = call(global("torch._utils", "_rebuild_tensor_v2"), &args);
    let checkpoint = crafted.open(dict(&[("s", strange), ("w", tensor(6, 0, &[6], &[1]))])).unwrap();
    assert_eq!(checkpoint.catalog().entries.len(), 1);
    assert_eq!(checkpoint.catalog().beside, ["s: storage class torch.StrangeStorage"]);
}

/// A list that holds the list before it twice, `levels` times, over `innermost`.
fn laughs(levels: usize, innermost: Vec<u8>) -> Vec<u8> {
    let double = b"q\x01](h\x01h\x01e".to_vec();
    [innermost, double.repeat(levels)].concat()
}

#[test]
fn shared_references_are_bounded() {
    let crafted = Crafted::new();
    assert!(crafted.names(laughs(10_000, b"]".to_vec())).is_empty(), "without tensors there is nothing to list");
    assert_eq!(crafted.names(laughs(3, tensor(6, 0, &[6], &[1]))).len(), 8);
    let error = crafted.error(laughs(500, tensor(6, 0, &[6], &[1])));
    assert!(error.contains("shared again and again"), "{error}");
    // Each of many dicts holds all others: paths without end, tensors or not.
    let dicts = (0..20u8).flat_map(|at| [b'}', b'q', at]).collect::<Vec<u8>>();
    let fill = (0..20u8).map(|at| {
        let pairs = (0..20u8).flat_map(|other| [b'K', other, b'h', other]).collect::<Vec<u8>>();
        [vec![b'h', at, b'('], pairs, vec![b'u', b'0']].concat()
    });
    let graph = [dicts, vec![b'0'; 19], fill.collect::<Vec<_>>().concat(), b"h\x05".to_vec()].concat();
    assert!(crafted.names(graph.clone()).is_empty());
    let with_tensor = [graph, text("w"), tensor(6, 0, &[6], &[1]), b"s".to_vec()].concat();
    assert!(crafted.error(with_tensor).contains("shared again and again"));
}

#[test]
fn deep_tensors_hit_a_limit_and_deep_lists_do_not_matter() {
    let crafted = Crafted::new();
    let nest = |depth: usize, inner: Vec<u8>| [vec![b'('; depth], inner, vec![b'l'; depth]].concat();
    assert!(crafted.names(nest(100_000, b"N".to_vec())).is_empty());
    assert_eq!(crafted.names(nest(900, tensor(6, 0, &[6], &[1]))).len(), 1);
    assert!(crafted.error(nest(100_000, tensor(6, 0, &[6], &[1]))).contains("deeper than 1024"));
}

#[test]
fn every_cut_and_flip_of_a_file_is_survived() {
    let crafted = Crafted::new();
    let value = dict(&[("a", tensor(6, 0, &[2, 3], &[3, 1])), ("b", tensor(6, 2, &[2], &[2])), ("n", int(5))]);
    crafted.open(value).unwrap();
    let whole = std::fs::read(crafted.path()).unwrap();
    for len in 0..whole.len() {
        let error = open(&whole[..len]).err().unwrap_or_else(|| panic!("opened when cut to {len}"));
        assert_eq!(error.kind(), Kind::Malformed);
    }
    let mut opened = 0;
    for bit in 0..whole.len() * 8 {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        // The pickle has a checksum: what opens lists the same tensors.
        if let Ok(checkpoint) = open(&flipped) {
            assert_eq!(checkpoint.catalog().entries.len(), 2, "bit {bit}");
            opened += 1;
        }
    }
    assert!(opened > 0 && opened < whole.len() * 8 / 2, "{opened}");
}

#[test]
fn cut_and_flipped_streams_end_early() {
    for name in ["torch/flat_legacy.pt", "torch/tar_format.pth"] {
        let whole = std::fs::read(weightlift_testkit::fixture(name).path).unwrap();
        assert!(open(&whole).is_ok());
        // A tar ends in blocks of zeros that nobody needs.
        let needed = whole.iter().rposition(|&byte| byte != 0).unwrap();
        for len in 0..needed {
            assert!(open(&whole[..len]).is_err(), "{name} opened when cut to {len}");
        }
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = open(&flipped);
        }
    }
}

/// Cuts and flips of archives that hold what `open` reads beside `data.pkl`: its error comes early, or the tensors do.
fn sweep_archive(path: &std::path::Path, cuts: usize, flips: usize) {
    let whole = std::fs::read(path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("damaged.pt2");
    let open = |bytes: &[u8], salvage: bool| {
        std::fs::write(&damaged, bytes).unwrap();
        let mut options = OpenOptions::default();
        options.salvage = salvage;
        Torch.open(weightlift_io::real(), &damaged, &options)
    };
    assert!(!open(&whole, false).unwrap().catalog().entries.is_empty());
    for len in (0..whole.len()).step_by(cuts) {
        assert!(open(&whole[..len], false).is_err(), "{} opened when cut to {len}", path.display());
        let _ = open(&whole[..len], true);
    }
    let mut opened = 0;
    for bit in (0..whole.len() * 8).step_by(flips) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        for salvage in [false, true] {
            let Ok(checkpoint) = open(&flipped, salvage) else { continue };
            opened += 1;
            let files = weightlift_io::real();
            for (id, entry) in checkpoint.catalog().iter().filter(|(_, entry)| entry.bytes < 1 << 20) {
                // Reading verifies nothing here: it has to end, whatever the extents say.
                let _ = entry.extents().map(|_| weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), id));
            }
        }
    }
    assert!(opened > 0, "no flip in {} left a file that opens", path.display());
}

#[test]
fn cut_and_flipped_exported_programs_end_early() {
    sweep_archive(&weightlift_testkit::fixture("torch/exported.pt2").path, 11, 97);
}

/// Were archives in archives followed, a file of some megabytes would nest deeper than any stack.
#[test]
fn programs_within_programs_are_not_entered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("nested.pt2");
    std::fs::copy(weightlift_testkit::fixture("torch/exported.pt2").path, &path).unwrap();
    let config = br#"{"config": {"w": {"path_name": "weight_0", "use_pickle": true, "tensor_meta": null}}}"#;
    let inner = std::fs::read(&path).unwrap();
    let kinds: [&[(&str, &[u8])]; 2] = [
        &[("p/serialized_state_dict.pt", &inner)],
        &[("p/data/weights/weight_0", &inner), ("p/data/weights/model_weights_config.json", config)],
    ];
    for members in kinds {
        craft::zip(&path, members);
        let opened = Torch.open(weightlift_io::real(), &path, &OpenOptions::default());
        let error = opened.err().expect("an error").to_string();
        assert!(error.contains("data.pkl"), "{error}");
    }
}

#[test]
fn cut_and_flipped_scripts_of_the_first_version_end_early() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script.pt");
    let model = br#"{"protoVersion": 2, "mainModule": {"parameters": [{"tensorId": 0, "name": "w"}], "submodules":
        [{"name": "inner", "parameters": [{"tensorId": "1", "name": "v"}]}]}, "tensors": [
        {"dataType": "FLOAT", "dims": ["2", "2"], "strides": ["2", "1"], "offset": "0", "data": {"key": "tensors/0"}},
        {"dataType": "INT64", "dims": [1], "strides": [1], "offset": 0, "data": {"key": "tensors/1"}}]}"#;
    let members: [(&str, &[u8]); 4] = [
        ("script/model.json", model),
        ("script/tensors/0", &[1; 16]),
        ("script/tensors/1", &[2; 8]),
        ("script/version", b"1\n"),
    ];
    craft::zip(&path, &members);
    sweep_archive(&path, 1, 3);
}

#[test]
fn cut_and_flipped_metadata_of_a_distributed_checkpoint_end_early() {
    let folder = weightlift_testkit::fixture("torch/dcp_two_ranks").path;
    let dir = tempfile::tempdir().unwrap();
    for name in ["__0_0.distcp", "__1_0.distcp"] {
        std::fs::copy(folder.join(name), dir.path().join(name)).unwrap();
    }
    let whole = std::fs::read(folder.join(".metadata")).unwrap();
    let path = dir.path().join(".metadata");
    let open = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        Torch.open(weightlift_io::real(), &path, &OpenOptions::default())
    };
    assert_eq!(open(&whole).unwrap().files().len(), 3);
    for len in (0..whole.len()).step_by(5) {
        assert!(open(&whole[..len]).is_err(), "opened when cut to {len}");
    }
    for bit in (0..whole.len() * 8).step_by(13) {
        let mut flipped = whole.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let _ = open(&flipped);
    }
    let at = whole.windows(12).position(|window| window == b"__0_0.distcp").unwrap();
    let mut outside = whole.clone();
    outside[at..at + 12].copy_from_slice(b"../../passwd");
    let error = open(&outside).err().expect("an error").to_string();
    assert!(error.contains("does not lie in the folder"), "{error}");
}
