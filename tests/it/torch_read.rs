//! PyTorch files that made other readers fail, and what is shown of them.

use crate::command::{floats, path, stderr, weightlift};
use serde_json::{Value, json};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use weightlift::{Data, Key, KeyPath, Opened};
use weightlift_core::{EntryId, Source};
use weightlift_testkit::{Fixture, fixture, sha256_hex};

fn torch(name: &str) -> PathBuf {
    fixture(&format!("torch/{name}")).path
}

fn open(name: &str) -> Opened {
    weightlift::open(torch(name)).unwrap()
}

fn names(opened: &Opened) -> Vec<&str> {
    opened.catalog().entries.iter().map(|entry| entry.name.as_str()).collect()
}

fn stdout(arguments: &[&str]) -> String {
    let done = weightlift(arguments);
    assert!(done.status.success(), "{arguments:?}: {}", stderr(&done));
    String::from_utf8(done.stdout).unwrap()
}

/// The message of a command that must fail with exit code 2.
fn failure(arguments: &[&str]) -> String {
    let done = weightlift(arguments);
    assert_eq!(done.status.code(), Some(2), "{arguments:?}");
    stderr(&done)
}

/// The names and values that the manifest has for a fixture.
fn check_values(name: &str) {
    let (opened, fixture): (Opened, Fixture) = (open(name), fixture(&format!("torch/{name}")));
    let wanted: Vec<&str> = fixture.tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    assert_eq!(names(&opened), wanted, "{name}");
    for (at, expected) in fixture.tensors.iter().enumerate() {
        let id = EntryId(at as u32);
        let bytes = weightlift_io::read_entry(opened.files().as_ref(), opened.checkpoint(), id).unwrap();
        assert_eq!(Some(sha256_hex(&bytes)), expected.sha256, "{name} {}", expected.name);
    }
}

#[test]
fn a_legacy_file_is_read_lazily() {
    check_values("tied_legacy.pt");
    let opened = open("tied_legacy.pt");
    let pickle_end = 200;
    for entry in &opened.catalog().entries {
        let Data::Extents(extents) = &entry.data else { panic!("{}", entry.name) };
        assert!(matches!(opened.catalog().source(extents[0].source), Source::File { .. }), "{}", entry.name);
        assert!(extents[0].bytes.start() > pickle_end, "{}", entry.name);
    }
    let storages = ["embedding.weight", "tied.weight", "half", "overlap"].map(|name| {
        let (_, entry) = opened.catalog().named(name).next().unwrap();
        entry.extents().unwrap()[0].bytes
    });
    assert!(storages.iter().all(|bytes| *bytes == storages[0]), "{storages:?}");
}

#[test]
fn integer_keys_are_no_obstacle() {
    let opened = open("training.pt");
    let (_, entry) = opened.catalog().named("optimizer.state.1.exp_avg").next().unwrap();
    let text = |word: &str| Key::Text(word.to_owned());
    assert_eq!(entry.path, KeyPath(vec![text("optimizer"), text("state"), Key::Int(1), text("exp_avg")]));
    let dir = tempfile::tempdir().unwrap();
    for (name, flags) in [("all.safetensors", &[][..]), ("model.safetensors", &["--key", "model"]), ("all.ckpt", &[])] {
        let output = dir.path().join(name);
        stdout(&[&["convert", path(&torch("training.pt")), path(&output)], flags].concat());
    }
    let model = weightlift::open(dir.path().join("model.safetensors")).unwrap();
    assert!(names(&model).contains(&"first.weight") && names(&model).len() == 7, "{:?}", names(&model));
}

#[test]
fn the_state_dict_is_found_or_the_candidates_are_listed() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.safetensors");
    stdout(&["convert", path(&torch("lightning.ckpt")), path(&output), "--key", "auto"]);
    let found = weightlift::open(&output).unwrap();
    assert!(names(&found).contains(&"model.first.weight"), "{:?}", names(&found));
    let two = craft_two_dicts(dir.path());
    let message = failure(&["convert", path(&two), path(&output), "--key", "auto", "--force"]);
    assert!(message.contains("\"params\" (2 tensors)") && message.contains("\"params_ema\" (1 tensors)"), "{message}");
    stdout(&["convert", path(&two), path(&output), "--key", "params_ema", "--force"]);
    assert_eq!(names(&weightlift::open(&output).unwrap()), ["w"]);
}

/// A checkpoint of two state dicts beside each other.
fn craft_two_dicts(dir: &Path) -> PathBuf {
    use weightlift::{DType, Format, Shape};
    let mut manifest = weightlift_core::Manifest::default();
    for (dict, name) in [("params", "w"), ("params", "b"), ("params_ema", "w")] {
        manifest.add_tensor(name, DType::F32, Shape::new([1]).unwrap());
        let tensor = manifest.tensors.last_mut().unwrap();
        tensor.path = KeyPath(vec![Key::Text(dict.into()), Key::Text(name.into())]);
        tensor.name = tensor.path.joined();
    }
    let file = dir.join("two.pt");
    let options = weightlift_core::WriteOptions::default();
    let writer = weightlift_torch::Torch.create(weightlift_io::real(), &file, manifest, &options).unwrap();
    (0..3).for_each(|blob| writer.write_at(weightlift_core::BlobId(blob), 0, &[0; 4]).unwrap());
    writer.finish().unwrap();
    file
}

#[test]
fn every_protocol_lists_the_same() {
    for form in ["zip", "legacy"] {
        let rows = |protocol: u32| -> Vec<_> {
            let opened = open(&format!("proto{protocol}_{form}.pt"));
            opened.catalog().entries.iter().map(|e| (e.name.clone(), e.dtype, e.shape.clone())).collect()
        };
        for protocol in [3, 4, 5] {
            assert_eq!(rows(protocol), rows(2), "{form} {protocol}");
            check_values(&format!("proto{protocol}_{form}.pt"));
        }
    }
}

#[test]
fn tensors_with_attributes_and_of_other_classes_are_unwrapped() {
    check_values("subclass.pt");
    let opened = open("subclass.pt");
    let (_, entry) = opened.catalog().named("sub").next().unwrap();
    assert_eq!(entry.remarks, ["class fixture_models.Marked"]);
}

#[test]
fn foreign_objects_beside_the_weights_are_named_and_skipped() {
    for (name, expected) in [
        ("training.pt", "args: argparse.Namespace"),
        ("numpy_inside.pt", "f64: numpy <f8 [2, 3]"),
        ("numpy_core_old.pt", "f64: numpy <f8 [2, 3]"),
        ("python_objects.pt", "dc: fixture_models.Config"),
    ] {
        let opened = open(name);
        assert!(!opened.catalog().entries.is_empty());
        assert!(opened.catalog().beside.iter().any(|line| line == expected), "{name}: {:?}", opened.catalog().beside);
    }
}

#[test]
fn whole_modules_list_the_names_of_their_state_dict() {
    for name in ["whole_module.pt", "whole_module_legacy.pt", "whole_sequential.pt", "whole_tied.pt"] {
        check_values(name);
    }
}

#[test]
fn archives_of_other_kinds_give_their_weights() {
    for (name, kind) in [
        ("torchscript.pt", "TorchScript archive"),
        ("torchscript_buffers.pt", "TorchScript archive"),
        ("t100_torchscript.pt", "TorchScript archive of PyTorch 1.0"),
        ("exported.pt2", "PyTorch program of torch.export (.pt2)"),
        ("tar_format.pth", "PyTorch checkpoint (tar)"),
    ] {
        check_values(name);
        assert_eq!(open(name).catalog().description, kind);
    }
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.pt");
    let done = weightlift(&["convert", path(&torch("exported.pt2")), path(&output)]);
    assert!(stderr(&done).contains("left out  2 objects beside tensors: the program of model"), "{}", stderr(&done));
    assert_eq!(names(&weightlift::open(&output).unwrap()), names(&open("exported.pt2")));
}

#[test]
fn plain_and_ordered_dicts_are_both_read() {
    check_values("flat_zip.pt");
    check_values("state_dict.pt");
    check_values("bare_list.pt");
}

#[test]
fn views_that_leave_their_storage_are_refused_by_name() {
    for (name, words) in [
        ("bad_stride_beyond.pt", "needs a storage of 32 bytes, but it has 24"),
        ("bad_stride_overflow.pt", "reach beyond 2^63"),
        ("bad_offset_beyond.pt", "offset 100 needs a storage of 424 bytes, but it has 24"),
        ("bad_numel_lie.pt", "has 24 bytes, but the pickle says 1000 elements of 4 bytes: 4000"),
        ("bad_shape_overflow.pt", "elements"),
        ("bad_negative_shape.pt", "negative"),
        ("bad_negative_stride.pt", "negative"),
        ("bad_rank_mismatch.pt", "2 strides for a tensor of rank 3"),
    ] {
        let message = failure(&["ls", path(&torch(name))]);
        assert!(message.contains("tensor \"w\"") && message.contains(words), "{name}: {message}");
    }
}

#[test]
fn what_was_downloaded_instead_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for extension in ["bin", "pt", "pth", "safetensors", "ckpt", "npz"] {
        let copy = dir.path().join(format!("model.{extension}"));
        std::fs::copy(torch("bad_lfs_pointer.bin"), &copy).unwrap();
        let message = failure(&["ls", path(&copy)]);
        assert!(message.contains("Git LFS pointer to a file of 440473133 bytes"), "{message}");
        std::fs::copy(torch("bad_html_page.pt"), &copy).unwrap();
        assert!(failure(&["ls", path(&copy)]).contains("a web page: the download gave an error"));
    }
}

#[test]
fn a_cut_zip_says_where_it_ends() {
    for (name, bytes) in [("bad_cut_90.pt", 2499), ("bad_cut_half.pt", 1388), ("bad_cut_tail.pt", 2767)] {
        let message = failure(&["ls", path(&torch(name))]);
        assert!(message.contains(&format!("the zip ends early at {bytes} bytes")), "{name}: {message}");
    }
}

#[test]
fn foreign_members_of_a_zip_do_not_matter() {
    for name in ["rezip_extra_member.pt", "rezip_extra_inside.pt", "rezip_stream.pt", "zip_with_comment.pt"] {
        check_values(name);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = large_with_stranger(dir.path());
    let opened = weightlift::open(&file).unwrap();
    let extent = &opened.catalog().entries[0].extents().unwrap()[0];
    assert_eq!(extent.bytes.len(), LARGE);
    assert_eq!(stdout(&["cat", path(&file), &format!("w[{}:]", LARGE - 2)]).trim(), "[0 7]");
}

/// Bytes of a tensor beyond 32 bits.
const LARGE: u64 = (1 << 32) + 64;

/// A sparse zip of one tensor beyond 4 GiB, to which another tool added a member outside of the folder.
fn large_with_stranger(dir: &Path) -> PathBuf {
    let file = dir.join("large.pt");
    let storage = [
        b"(X\x07\0\0\0storagectorch\nByteStorage\nX\x01\0\0\x000X\x03\0\0\0cpu\x8a\x05".as_slice(),
        &LARGE.to_le_bytes()[..5],
        b"tQ",
    ]
    .concat();
    let size = [b"\x8a\x05".as_slice(), &LARGE.to_le_bytes()[..5], b"\x85K\x01\x85"].concat();
    let call = [b"ctorch._utils\n_rebuild_tensor\n(".as_slice(), &storage, b"K\0", &size, b"tR"].concat();
    let pickle = [b"\x80\x02}X\x01\0\0\0w".as_slice(), &call, b"s."].concat();
    let members: [(&str, &[u8]); 4] =
        [("a/data.pkl", &pickle), ("a/version", b"3\n"), ("a/data/0", b""), ("metadata.json", b"{}")];
    let mut out = std::fs::File::create(&file).unwrap();
    let mut directory = Vec::new();
    for (name, bytes) in members {
        let at = out.stream_position().unwrap();
        let len = if name == "a/data/0" { LARGE } else { bytes.len() as u64 };
        let wide = |value: u64| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
        // Sizes stand in the central directory alone, as PyTorch writes it.
        out.write_all(
            &[b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0".as_slice(), &[0; 12], &[name.len() as u8, 0, 0, 0]].concat(),
        )
        .unwrap();
        out.write_all(name.as_bytes()).unwrap();
        out.write_all(bytes).unwrap();
        if len == LARGE {
            out.seek(SeekFrom::Current(LARGE as i64 - 1)).unwrap();
            out.write_all(&[7]).unwrap();
        }
        let extra = [
            (len > u64::from(u32::MAX)).then(|| [len, len].map(u64::to_le_bytes).concat()),
            (at > u64::from(u32::MAX)).then(|| at.to_le_bytes().to_vec()),
        ];
        let extra: Vec<u8> = extra.into_iter().flatten().flatten().collect();
        let field =
            if extra.is_empty() { Vec::new() } else { [&[1, 0, extra.len() as u8, 0], extra.as_slice()].concat() };
        directory.extend(b"PK\x01\x02\0\0\0\0\x08\x08\0\0\0\0\0\0");
        directory.extend([0; 4]);
        directory.extend([wide(len), wide(len)].concat());
        directory.extend([name.len() as u8, 0, field.len() as u8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        directory.extend(wide(at));
        directory.extend(name.as_bytes());
        directory.extend(field);
    }
    let start = out.stream_position().unwrap();
    out.write_all(&directory).unwrap();
    let end = out.stream_position().unwrap();
    let (count, size) = (members.len() as u64, directory.len() as u64);
    let wide = [b"PK\x06\x06".as_slice(), &44u64.to_le_bytes(), &[45, 0, 45, 0], &[0; 8]].concat();
    out.write_all(&[wide.as_slice(), &[count, count, size, start].map(u64::to_le_bytes).concat()].concat()).unwrap();
    out.write_all(&[b"PK\x06\x07\0\0\0\0".as_slice(), &end.to_le_bytes(), &1u32.to_le_bytes()].concat()).unwrap();
    out.write_all(&[b"PK\x05\x06\0\0\0\0".as_slice(), &[0xff; 12], &[0, 0]].concat()).unwrap();
    file
}

#[test]
fn storages_are_found_by_name_whatever_their_order() {
    check_values("many_storages.pt");
    check_values("rezip_reversed.pt");
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.pt");
    stdout(&["convert", path(&torch("many_storages.pt")), path(&output)]);
    let written = weightlift::open(&output).unwrap();
    assert_eq!(names(&written), names(&open("many_storages.pt")));
    let starts = |opened: &Opened| -> Vec<u64> {
        opened.catalog().entries.iter().map(|entry| entry.extents().unwrap()[0].bytes.start()).collect()
    };
    let order = |starts: Vec<u64>| -> Vec<usize> {
        let mut order: Vec<usize> = (0..starts.len()).collect();
        order.sort_by_key(|&at| starts[at]);
        order
    };
    assert_eq!(order(starts(&written)), order(starts(&open("many_storages.pt"))), "data keep their order");
}

#[test]
fn an_absurd_storage_length_is_refused_before_anything_is_reserved() {
    let message = failure(&["ls", path(&torch("bad_legacy_count.pt"))]);
    assert!(message.contains("has 2305843009213693952 elements, but the pickle says 3"), "{message}");
}

#[test]
fn an_extension_that_lies_is_said_and_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let input = floats(dir.path(), &[("w", &[1.0, 2.0])]);
    let named_bin = dir.path().join("pytorch_model.bin");
    std::fs::copy(&input, &named_bin).unwrap();
    let named_safetensors = dir.path().join("model.safetensors");
    std::fs::copy(torch("flat_zip.pt"), &named_safetensors).unwrap();
    for (file, is, says) in [
        (&named_bin, "is a safetensors, though", "says PyTorch checkpoint"),
        (&named_safetensors, "is a PyTorch checkpoint", "says safetensors"),
    ] {
        let done = weightlift(&["ls", path(file)]);
        assert!(done.status.success());
        assert!(stderr(&done).contains(is) && stderr(&done).contains(says), "{}", stderr(&done));
    }
}

/// A copy of a fixture with one byte of a tensor's values changed.
fn damaged(name: &str, tensor: &str, dir: &Path) -> PathBuf {
    let opened = open(name);
    let (_, entry) = opened.catalog().named(tensor).next().unwrap();
    let at = entry.extents().unwrap()[0].bytes.start() as usize;
    let mut bytes = std::fs::read(torch(name)).unwrap();
    bytes[at] ^= 1;
    let copy = dir.join("damaged.pt");
    std::fs::write(&copy, bytes).unwrap();
    copy
}

#[test]
fn what_is_sound_of_a_damaged_file_can_be_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.safetensors");
    let file = damaged("sequential.pt", "0.weight", dir.path());
    let message = failure(&["convert", path(&file), path(&output)]);
    assert!(message.contains("tensor \"0.weight\"") && message.contains("record \"data/0\""), "{message}");
    let done = weightlift(&["convert", path(&file), path(&output), "--salvage"]);
    assert_eq!(done.status.code(), Some(1), "{}", stderr(&done));
    assert!(stderr(&done).contains("lost      0.weight: checksum mismatch"), "{}", stderr(&done));
    let source = open("sequential.pt");
    let sound: Vec<_> = names(&source).into_iter().filter(|name| *name != "0.weight").collect();
    assert_eq!(names(&weightlift::open(&output).unwrap()), sound);
    for (name, lost) in [
        ("bad_missing_record.pt", "the zip has no record \"archive/data/7\""),
        ("bad_numel_lie.pt", "storage \"0\" has 24 bytes, but the pickle says"),
        ("bad_legacy_cut.pt", "the file has no storage"),
    ] {
        let input = torch(name);
        assert!(failure(&["convert", path(&input), path(&output), "--force"]).contains("weightlift:"));
        let done = weightlift(&["convert", path(&input), path(&output), "--salvage", "--force"]);
        assert_eq!(done.status.code(), Some(1), "{name}: {}", stderr(&done));
        assert!(stderr(&done).contains(lost), "{name}: {}", stderr(&done));
        let listed = weightlift(&["ls", path(&input), "--salvage", "--json"]);
        assert_eq!(listed.status.code(), Some(1));
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert!(listed["tensors"].as_array().unwrap().iter().any(|tensor| tensor["damaged"].is_string()), "{name}");
    }
    let whole = weightlift(&["convert", path(&torch("sequential.pt")), path(&output), "--salvage", "--force"]);
    assert_eq!(whole.status.code(), Some(0), "a sound file loses nothing");
}

#[test]
fn the_list_ends_with_what_stands_beside_and_what_is_unused() {
    let text = stdout(&["ls", path(&torch("training.pt"))]);
    assert!(text.contains("beside tensors:\n") && text.contains("  epoch = 3\n"), "{text}");
    let text = stdout(&["ls", path(&torch("view_of_big.pt"))]);
    assert!(text.contains("storage that no tensor uses: 79.9 kB"), "{text}");
    assert!(text.contains("view of 80000 bytes"), "{text}");
    let json: Value = serde_json::from_str(&stdout(&["ls", path(&torch("view_of_big.pt")), "--json"])).unwrap();
    assert_eq!(json["unused_bytes"], 79900);
    let tied = stdout(&["ls", path(&torch("tied.pt"))]);
    assert!(tied.contains("tied to embedding.weight"), "{tied}");
    let whole: Value = serde_json::from_str(&stdout(&["ls", path(&torch("tied.pt")), "--json"])).unwrap();
    assert_eq!(whole["unused_bytes"], 0);
}

#[test]
fn the_objects_of_a_training_checkpoint_are_readable() {
    let text = stdout(&["cat", path(&torch("training.pt")), "--objects"]);
    for line in [
        "dict of 8\n",
        "  model: collections.OrderedDict, 7 tensors\n",
        "    state: dict, 12 tensors\n",
        "        betas: tuple [0.9, 0.95]\n",
        "  epoch: 3\n",
        "  args: argparse.Namespace of 6\n",
        "    ratio: 0.25 (numpy <f8)\n",
        "  best: inf\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    let elsewhere = stdout(&["cat", path(&fixture("tf/foo_dense/model.ckpt").path), "--objects"]);
    assert!(!elsewhere.contains("dict"), "{elsewhere}");
}

/// Compares an object as PyTorch has it (the manifest's form) with ours.
fn same_object(expected: &Value, found: &Value, tensors: &[String], place: &str) {
    let children = |expected: &Value, found: &Value| {
        let (Value::Array(expected), Value::Array(found)) = (expected, found) else {
            panic!("{place}: {expected} is {found}");
        };
        assert_eq!(expected.len(), found.len(), "{place}");
        for (at, (expected, found)) in expected.iter().zip(found).enumerate() {
            same_object(expected, found, tensors, &format!("{place}.{at}"));
        }
    };
    match expected {
        Value::Array(_) => children(expected, found),
        Value::Object(map) => match map.iter().next() {
            Some((key, value)) if key.starts_with('$') => match key.as_str() {
                "$tensor" => assert_eq!(found["$tensor"], tensors[value.as_u64().unwrap() as usize], "{place}"),
                "$tuple" => children(value, &found[key]),
                "$int" | "$float" | "$bytes" => assert_eq!(found[key], *value, "{place}"),
                "$collections.OrderedDict" => {
                    assert_eq!(found["$class"], "collections.OrderedDict", "{place}");
                    same_object(value, &found["value"], tensors, place);
                }
                "$dict" => {
                    let keys = |pairs: &Value| pairs.as_array().map_or(0, Vec::len);
                    assert_eq!(keys(value), keys(&found["$dict"]), "{place}");
                }
                "$ref" => assert!(found["$same"].is_string() || found["$tensor"].is_string(), "{place}: {found}"),
                key if key.starts_with("$object:") && found["value"].is_object() => {
                    assert_eq!(found["$class"], key["$object:".len()..], "{place}");
                }
                _ => assert!(found.is_object() || found.is_array(), "{place}: {expected} is {found}"),
            },
            _ => {
                let (keys, there): (Vec<&String>, _) = (map.keys().collect(), found.as_object());
                assert_eq!(Some(keys), there.map(|map| map.keys().collect()), "{place}: {found}");
                map.iter().for_each(|(key, value)| same_object(value, &found[key], tensors, &format!("{place}.{key}")));
            }
        },
        plain => assert_eq!(found, plain, "{place}"),
    }
}

#[test]
fn the_objects_are_those_that_pytorch_reads() {
    let mut compared = 0;
    for fixture in weightlift_testkit::fixtures() {
        let reads =
            ["torch-zip", "torch-legacy", "torch-tar"].contains(&fixture.kind.as_str()) && fixture.expect == "ok";
        let Some(expected) = fixture.raw.get("objects").filter(|_| reads) else { continue };
        // What PyTorch makes of them is no longer what the file says.
        if fixture.name.contains("surrogate") || expected.to_string().contains("$nn.Module") {
            continue;
        }
        let found: Value = serde_json::from_str(&stdout(&["cat", path(&fixture.path), "--objects", "--json"])).unwrap();
        assert_eq!(found["schema"], json!("weightlift.objects/1"));
        let names: Vec<String> = fixture.tensors.iter().map(|tensor| tensor.name.clone()).collect();
        same_object(expected, &found["objects"], &names, &fixture.name);
        compared += 1;
    }
    assert!(compared > 50, "only {compared}");
}
