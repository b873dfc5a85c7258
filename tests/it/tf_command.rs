//! TensorFlow checkpoints on the command line: names, parts, shared data, state files, what is left behind.

use crate::command::{names_in, path, stderr, weightlift};
use serde_json::Value;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weightlift::{DType, Format, Shape, WriteOptions};
use weightlift_core::{BlobId, Manifest};
use weightlift_testkit::{Fixture, fixture};

fn stdout(arguments: &[&str]) -> String {
    let result = weightlift(arguments);
    assert!(result.status.success(), "{arguments:?}: {}", stderr(&result));
    String::from_utf8(result.stdout).unwrap()
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).unwrap()
}

/// What the command says when it refuses.
fn refused(arguments: &[&str]) -> String {
    let result = weightlift(arguments);
    assert_eq!(result.status.code(), Some(2), "{arguments:?}: {}", stderr(&result));
    stderr(&result)
}

fn said(arguments: &[&str]) -> String {
    let result = weightlift(arguments);
    assert!(result.status.success(), "{arguments:?}: {}", stderr(&result));
    stderr(&result)
}

/// Copies the files of a fixture into a folder.
fn copied(fixture: &Fixture, dir: &Path) -> PathBuf {
    for file in &fixture.files {
        std::fs::copy(file, dir.join(file.file_name().unwrap())).unwrap();
    }
    dir.join(fixture.path.file_name().unwrap())
}

#[test]
fn object_names_come_from_the_graph() {
    let input = fixture("tf/object_slots/ckpt-1").path;
    let names = |which: &str| stdout(&["ls", path(&input), "--names", which, "--names-only"]);
    let object = names("object");
    for name in ["model/kernel", "model/kernel/m", "model/bias", "_CHECKPOINTABLE_OBJECT_GRAPH"] {
        assert!(object.lines().any(|line| line == name), "{name} in {object}");
    }
    assert!(names("full").lines().any(|line| line == "global_step"));
    assert!(names("stored").lines().any(|line| line == "model/kernel/.ATTRIBUTES/VARIABLE_VALUE"));
    let dir = tempfile::tempdir().unwrap();
    let output = dir.path().join("out.safetensors");
    let message = said(&["convert", path(&input), path(&output), "--names", "object", "--dtype", "f16"]);
    assert!(message.contains("_CHECKPOINTABLE_OBJECT_GRAPH"), "the graph is named as left out: {message}");
    assert!(stdout(&["ls", path(&output), "--names-only"]).lines().any(|line| line == "model/kernel/m"));
    let values = stdout(&["cat", path(&input), "model/bias", "--names", "object"]);
    assert_eq!(values, stdout(&["cat", path(&input), "model/bias/.ATTRIBUTES/VARIABLE_VALUE"]));
    let message = said(&["ls", path(&output), "--names", "object"]);
    assert!(message.contains("one name for each tensor"), "{message}");
    let plain = said(&["ls", path(&fixture("tf/foo_dense/model.ckpt").path), "--names", "object"]);
    assert!(plain.contains("no object graph"), "{plain}");
}

#[test]
fn without_the_graph_plain_names_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let input = fixture("tf/object_slots/ckpt-1").path;
    for (flags, name) in
        [(&["--weights-only"][..], "a.ckpt"), (&["--exclude", "_CHECKPOINTABLE_OBJECT_GRAPH"], "b.ckpt")]
    {
        let output = dir.path().join(name);
        said(&[&["convert", path(&input), path(&output), "--names", "object"], flags].concat());
        let names = stdout(&["ls", path(&output), "--names-only"]);
        assert!(names.lines().any(|line| line == "model/kernel") && !names.contains("GRAPH"), "{names}");
    }
}

#[test]
fn parts_are_listed_under_their_variable() {
    let input = fixture("tf/slices_raw/model.ckpt").path;
    let whole = stdout(&["ls", path(&input)]);
    let parts = stdout(&["ls", path(&input), "--partitions"]);
    assert!(!whole.contains("[0:3, :]") && parts.contains("  [0:3, :]"), "{parts}");
    let listed = json(&["ls", path(&input), "--partitions", "--json"]);
    let of = |tensor: &Value| tensor["partitions"].as_array().map_or(0, Vec::len);
    let most = listed["tensors"].as_array().unwrap().iter().max_by_key(|tensor| of(tensor)).unwrap();
    assert!(of(most) > 1);
    let rows: u64 = most["partitions"].as_array().unwrap().iter().map(|part| part["bytes"].as_u64().unwrap()).sum();
    assert_eq!(rows, most["bytes"].as_u64().unwrap());
    assert_eq!(json(&["ls", path(&input), "--json"])["tensors"].to_string().matches("partitions").count(), 0);
}

#[test]
fn slices_stay_unless_they_are_joined() {
    let dir = tempfile::tempdir().unwrap();
    let input = fixture("tf/partitioned/model.ckpt").path;
    let parts =
        |file: &Path| stdout(&["ls", path(file), "--partitions"]).lines().filter(|l| l.starts_with("  [")).count();
    assert!(parts(&input) > 1);
    let (kept, joined) = (dir.path().join("kept.ckpt"), dir.path().join("joined.ckpt"));
    said(&["convert", path(&input), path(&kept), "--dtype", "f16"]);
    assert_eq!(parts(&kept), parts(&input));
    said(&["convert", path(&input), path(&joined), "--join-partitions"]);
    assert_eq!(parts(&joined), 0);
    for name in stdout(&["ls", path(&input), "--names-only"]).lines() {
        let values = |file: &Path| stdout(&["cat", path(file), name, "--all"]);
        assert_eq!(values(&joined), values(&input), "{name}");
    }
    let many = json(&["convert", path(&input), path(&kept), "--dtype", "f64", "--force", "--json"]);
    let casts: Vec<_> = many["casts"].as_array().unwrap().iter().map(|cast| cast["name"].as_str().unwrap()).collect();
    let mut once = casts.clone();
    once.dedup();
    assert_eq!(casts, once, "a cast tensor is reported once, however many parts it has");
}

#[test]
fn what_was_shared_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let input = copied(&fixture("tf/foo_dense/model.ckpt"), dir.path());
    let data = |prefix: &Path| PathBuf::from(format!("{}.data-00000-of-00001", prefix.display()));
    let inode = |prefix: &Path| std::fs::metadata(data(prefix)).unwrap().ino();
    let output = dir.path().join("out.ckpt");
    let convert = |flags: &[&str]| said(&[&["convert", path(&input), path(&output), "--force"], flags].concat());
    let message = convert(&["--rename", "^=x/", "--share", "hardlink"]);
    assert!(message.contains("hard link 100 B carried unverified"), "{message}");
    assert_eq!(inode(&output), inode(&input));
    let message = convert(&["--rename", "^=x/", "--share", "copy"]);
    assert!(message.contains("system copy 100 B carried unverified"), "{message}");
    assert_ne!(inode(&output), inode(&input));
    let message = convert(&["--rename", "^=x/", "--share", "none"]);
    assert!(!message.contains("unverified"), "{message}");
    let message = convert(&["--exclude", "foo", "--share", "hardlink"]);
    assert!(message.contains("36 B of them belong to no tensor"), "{message}");
    assert_eq!(inode(&output), inode(&input));
    convert(&["--exclude", "foo"]);
    assert_eq!(std::fs::metadata(data(&output)).unwrap().len(), 64, "left out without --share, bytes go");
    let message = convert(&["--dtype", "f16", "--share", "hardlink"]);
    assert!(message.contains("written anew") && !message.contains("unverified"), "{message}");
    let report = json(&["convert", path(&input), path(&output), "--force", "--json", "--share", "hardlink"]);
    assert_eq!(report["carried"], serde_json::json!({"how": "hard link", "bytes": 100, "unused": 0}));
    let before = inode(&input);
    let message = said(&["convert", path(&input), path(&input), "--rename", "^=y/"]);
    assert!(message.contains("in place  100 B carried unverified"), "{message}");
    assert_eq!(inode(&input), before);
    assert_eq!(stdout(&["ls", path(&input), "--names-only"]).lines().next(), Some("y/dense/bias"));
}

#[test]
fn two_bundles_are_merged_by_their_index() {
    let dir = tempfile::tempdir().unwrap();
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    for folder in [&one, &two] {
        std::fs::create_dir(folder).unwrap();
    }
    let first = copied(&fixture("tf/foo_dense/model.ckpt"), &one);
    let second = copied(&fixture("tf/foo_dense/model.ckpt"), &two);
    let output = dir.path().join("both.ckpt");
    let other = format!("other={}", path(&second));
    let add = ["--add", "b/foo=other::foo", "--add", "b/dense/bias=other::dense/bias"];
    let message = said(&[&["convert", path(&first), &other, path(&output), "--share", "hardlink"], &add[..]].concat());
    assert!(message.contains("hard link 200 B carried unverified; 48 B of them"), "{message}");
    let data = |folder: &Path, name: &str| std::fs::metadata(folder.join(name)).unwrap().ino();
    let own = "model.ckpt.data-00000-of-00001";
    assert_eq!(data(dir.path(), "both.ckpt.data-00000-of-00002"), data(&one, own));
    assert_eq!(data(dir.path(), "both.ckpt.data-00001-of-00002"), data(&two, own));
    assert_eq!(stdout(&["cat", path(&output), "b/foo"]), stdout(&["cat", path(&second), "foo"]));
    assert_eq!(stdout(&["cat", path(&output), "foo"]), stdout(&["cat", path(&first), "foo"]));
}

#[test]
fn flags_of_one_format_are_refused_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let input = fixture("tf/foo_dense/model.ckpt").path;
    let output = dir.path().join("out.pt");
    for flags in [&["--share", "copy"][..], &["--state-file"], &["--object-graph"]] {
        let message = refused(&[&["convert", path(&input), path(&output)], flags].concat());
        assert!(message.contains(flags[0]) && message.contains("TensorFlow"), "{message}");
    }
    let bundle = dir.path().join("out.ckpt");
    let message = refused(&["convert", path(&input), path(&bundle), "--share", "copy", "--shard-size", "50"]);
    assert!(message.contains("--shard-size"), "{message}");
    for word in ["v1", "tf1"] {
        let message = refused(&["convert", path(&input), path(&bundle), "--to", word]);
        assert!(message.contains("version 1") && message.contains("never written"), "{message}");
    }
    assert!(names_in(dir.path()).is_empty());
}

#[test]
fn version_1_is_not_edited_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let input = copied(&fixture("tf/v1/model.ckpt"), dir.path());
    let before = names_in(dir.path());
    let message = refused(&["convert", path(&input), path(&input), "--dtype", "f16"]);
    assert!(message.contains("version 1") && message.contains("never written"), "{message}");
    assert_eq!(names_in(dir.path()), before);
    said(&["convert", path(&input), path(&dir.path().join("new.ckpt")), "--dtype", "f16"]);
}

#[test]
fn a_graph_of_tensorflow_1_is_left_behind_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let input = copied(&fixture("tf/adam_slots/model.ckpt-3"), dir.path());
    let output = dir.path().join("new.ckpt");
    let message = said(&["convert", path(&input), path(&output), "--rename", "^dense/=d/"]);
    assert!(message.contains("left out  1 object beside tensors: model.ckpt-3.meta"), "{message}");
    assert!(!dir.path().join("new.ckpt.meta").exists());
    let message = said(&["convert", path(&input), path(&input), "--rename", "^dense/=d/"]);
    assert!(message.contains("model.ckpt-3.meta is of an earlier save"), "{message}");
    let plan = stdout(&["plan", path(&input), path(&output)]);
    assert!(plan.contains("model.ckpt-3.meta"), "{plan}");
}

#[test]
fn a_colon_and_zero_are_forgiven_and_hinted_at() {
    let dir = tempfile::tempdir().unwrap();
    let input = fixture("tf/foo_dense/model.ckpt").path;
    let output = dir.path().join("out.ckpt");
    assert_eq!(stdout(&["ls", path(&input), "dense/kernel:0", "--names-only"]), "dense/kernel\n");
    let message = said(&["convert", path(&input), path(&output), "--dtype", "dense/kernel:0=f16", "--rename", "$=:0"]);
    assert!(message.contains("cast      1 f32 -> f16"), "{message}");
    assert!(message.contains("--rename ':0$='"), "{message}");
    assert!(stdout(&["ls", path(&output), "--names-only"]).lines().all(|name| name.ends_with(":0")));
    let plan = stdout(&["plan", path(&output), path(&dir.path().join("again.ckpt"))]);
    assert!(plan.contains("--rename ':0$='"), "{plan}");
    let plan = stdout(&["plan", path(&output), path(&dir.path().join("again.ckpt")), "--rename", ":0$="]);
    assert!(!plan.contains("note"), "{plan}");
}

/// The plan already knows what the object graph could not find.
#[test]
fn a_plan_refuses_keys_that_hide_their_values() {
    let dir = tempfile::tempdir().unwrap();
    let input = fixture("tf/object_slots/ckpt-1").path;
    let output = dir.path().join("out");
    for verb in ["plan", "convert"] {
        let message = refused(&[verb, path(&input), path(&output), "--rename", "/.ATTRIBUTES/VARIABLE_VALUE$="]);
        assert!(message.contains("--names object") && message.contains("/.ATTRIBUTES/VARIABLE_VALUE"), "{message}");
    }
    assert!(names_in(dir.path()).is_empty());
}

/// A sparse data file: markers at both ends, on the other side of what 31 bits can count.
#[test]
fn tensors_beyond_2_gib_are_renamed_and_read() {
    use prost::Message;
    use weightlift_tf::proto::{BundleEntry, BundleHeader, Dim, TensorShape};
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("m");
    let size = (1i64 << 31) + 8;
    let shape = Some(TensorShape { dim: vec![Dim { size }], unknown_rank: false });
    let entry = BundleEntry { dtype: 4, shape, size, ..BundleEntry::default() };
    let mut table = weightlift_tf::table::TableWriter::new();
    table.add(b"", &BundleHeader { num_shards: 1, ..BundleHeader::default() }.encode_to_vec());
    table.add(b"large", &entry.encode_to_vec());
    std::fs::write(dir.path().join("m.index"), table.finish()).unwrap();
    let data = std::fs::File::create(dir.path().join("m.data-00000-of-00001")).unwrap();
    data.set_len(size as u64).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&data, &[7], 0).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&data, &[9], size as u64 - 1).unwrap();
    assert!(stdout(&["ls", path(&prefix)]).contains("[2147483656]"));
    said(&["convert", path(&prefix), path(&prefix), "--rename", "^=x/"]);
    assert_eq!(stdout(&["cat", path(&prefix), "x/large[-1]"]).trim(), "9");
    assert_eq!(stdout(&["cat", path(&prefix), "x/large[0]"]).trim(), "7");
}

/// A bundle of one-dimensional tensors of one element.
fn bundle(dir: &Path, tensors: &[(&str, DType, &[u8])]) -> PathBuf {
    let prefix = dir.join("in.ckpt");
    let mut manifest = Manifest::default();
    for (name, dtype, _) in tensors {
        manifest.add_tensor(name, *dtype, Shape::new([1]).unwrap());
    }
    let writer =
        weightlift_tf::TensorFlow.create(weightlift_io::real(), &prefix, manifest, &WriteOptions::default()).unwrap();
    for (index, (.., bytes)) in tensors.iter().enumerate() {
        writer.write_at(BlobId(index as u32), 0, bytes).unwrap();
    }
    writer.finish().unwrap();
    prefix
}

/// The dtype is that of the file, and a cast is one of values, never of bits.
#[test]
fn an_integer_step_becomes_the_same_number() {
    let dir = tempfile::tempdir().unwrap();
    let input = bundle(dir.path(), &[("global_step", DType::I32, &5i32.to_le_bytes())]);
    let output = dir.path().join("out.ckpt");
    assert_eq!(stdout(&["cat", path(&input), "global_step"]).trim(), "[5]");
    said(&["convert", path(&input), path(&output), "--dtype", "i32:f32"]);
    assert_eq!(stdout(&["cat", path(&output), "global_step"]).trim(), "[5.]");
    said(&["convert", path(&input), path(&output), "--dtype", "f16", "--force"]);
    assert!(stdout(&["ls", path(&output)]).contains("i32"), "integers are no floating-point tensors");
}

#[test]
fn what_optimizers_keep_is_carried_or_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let one = 1f32.to_le_bytes();
    let names = [
        "beta1_power",
        "dense/kernel",
        "dense/kernel/BERTAdam",
        "dense/kernel/adam_m",
        "dense/kernel/adam_v",
        "dense/kernel_slot_vc",
        "dense/kernel_slot_vr",
    ];
    let mut tensors: Vec<(&str, DType, &[u8])> = names.iter().map(|name| (*name, DType::F32, &one[..])).collect();
    tensors.push(("global_step", DType::I64, &[3, 0, 0, 0, 0, 0, 0, 0]));
    let input = bundle(dir.path(), &tensors);
    for name in ["all.ckpt", "all.pt", "all.safetensors", "all.npz"] {
        let output = dir.path().join(name);
        said(&["convert", path(&input), path(&output)]);
        assert_eq!(stdout(&["ls", path(&output), "--names-only"]).lines().count(), tensors.len(), "{name}");
    }
    let output = dir.path().join("weights.ckpt");
    let drop = ["--exclude", "**/{adam_m,adam_v,BERTAdam}", "--exclude", "**_slot_v{r,c}", "--exclude", "beta1_power"];
    said(&[&["convert", path(&input), path(&output)], &drop[..]].concat());
    assert_eq!(stdout(&["ls", path(&output), "--names-only"]), "dense/kernel\nglobal_step\n");
}

#[test]
fn random_bytes_are_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bytes: Vec<u8> = Vec::new();
    while bytes.len() < 1024 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    for name in ["m.index", "m.ckpt", "m.data-00000-of-00001", "checkpoint", "m.pt", "m.safetensors", "m.npz", "m"] {
        for content in [&bytes[..], &bytes[..1], &[]] {
            let folder = dir.path().join(format!("{name}-{}", content.len()));
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join(name), content).unwrap();
            let message = refused(&["ls", path(&folder.join(name))]);
            assert_eq!(message.lines().count(), 1, "{name} of {} bytes: {message}", content.len());
            assert!(message.contains(name.trim_end_matches(".data-00000-of-00001")), "{message}");
            assert!(!message.contains("panicked") && !message.contains("backtrace"), "{message}");
        }
    }
}

/// A flipped byte of the data and a lost block of the index: what is healthy is kept, and the exit code tells.
#[test]
fn healthy_tensors_are_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let lost = |input: &Path, name: &str| {
        let output = dir.path().join(name);
        let arguments = ["convert", path(input), path(&output), "--salvage", "--share", "none"];
        let result = weightlift(&arguments);
        assert_eq!(result.status.code(), Some(1), "{}", stderr(&result));
        (stdout(&["ls", path(&output), "--names-only"]), stderr(&result))
    };
    let input = fixture("tf/bad_flip_data/model.ckpt").path;
    refused(&["convert", path(&input), path(&dir.path().join("no.ckpt"))]);
    let all = stdout(&["ls", path(&input), "--names-only"]).lines().count();
    let (names, message) = lost(&input, "data.ckpt");
    assert_eq!(names.lines().count(), all - 1, "{message}");
    let input = copied(&fixture("tf/many_blocks/model.ckpt"), dir.path());
    let index = dir.path().join("model.ckpt.index");
    let whole = stdout(&["ls", path(&input), "--names-only"]).lines().count();
    let mut bytes = std::fs::read(&index).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&index, bytes).unwrap();
    let (names, message) = lost(&input, "index.ckpt");
    assert!(names.lines().count() > whole / 2 && names.lines().count() < whole, "{names}");
    assert!(message.contains("index block at byte"), "{message}");
}
