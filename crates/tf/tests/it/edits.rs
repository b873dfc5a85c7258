//! Tensors that were renamed, left out or added in a checkpoint with an object graph.

use crate::support::{graph_of, leave_out, open, open_named, read, replace, write_edited};
use std::path::Path;
use weightlift_core::{Checkpoint, DType, Format, Manifest, Names, Shape, WriteOptions};
use weightlift_io::real;
use weightlift_kernels::checksum::{crc32c, mask_crc32c};
use weightlift_testkit::fixture;
use weightlift_tf::TensorFlow;
use weightlift_tf::graph::{KEY, ObjectGraph, variable_key};
use weightlift_tf::state::StateFile;

const SLOT: &str = "model/kernel/.OPTIMIZER_SLOT/optimizer/m/.ATTRIBUTES/VARIABLE_VALUE";

/// The fixture with slots, opened with these names, changed, written and opened again with the stored names.
fn edited(names: Names, edit: impl FnOnce(&mut Manifest)) -> (tempfile::TempDir, Box<dyn Checkpoint>) {
    let dir = tempfile::tempdir().unwrap();
    let source = open_named(fixture("tf/object_slots/ckpt-1").path, names);
    let prefix = dir.path().join("out");
    write_edited(real(), source.as_ref(), &prefix, &replace(), edit).unwrap();
    (dir, open(&prefix).unwrap())
}

fn rename(manifest: &mut Manifest, from: &str, to: &str) {
    let mut count = 0;
    for output in &mut manifest.tensors {
        if let Some(rest) = output.name.strip_prefix(from) {
            output.name = format!("{to}{rest}");
            count += 1;
        }
    }
    assert!(count > 0, "nothing begins with {from}");
}

fn keys(checkpoint: &dyn Checkpoint) -> Vec<&str> {
    checkpoint.catalog().entries.iter().map(|entry| entry.name.as_str()).collect()
}

/// The key and the object name of every value in the graph.
fn names_of(checkpoint: &dyn Checkpoint) -> Vec<(String, String)> {
    graph_of(checkpoint).object_names().into_iter().map(|(key, name)| (key.to_owned(), name)).collect()
}

fn name_of(checkpoint: &dyn Checkpoint, key: &str) -> Option<String> {
    names_of(checkpoint).into_iter().find(|(known, _)| known == key).map(|(_, name)| name)
}

#[test]
fn an_unchanged_graph_keeps_its_bytes() {
    for names in [Names::Stored, Names::Object, Names::Full] {
        let (_dir, written) = edited(names, |_| {});
        let source = open(fixture("tf/object_slots/ckpt-1").path).unwrap();
        assert_eq!(keys(written.as_ref()), keys(source.as_ref()), "{names:?}");
        assert_eq!(read(written.as_ref(), KEY).unwrap(), read(source.as_ref(), KEY).unwrap(), "{names:?}");
    }
}

#[test]
fn a_new_key_is_the_key_of_the_same_object() {
    let (_dir, written) = edited(Names::Stored, |manifest| rename(manifest, "model/kernel/", "net/w/"));
    let key = variable_key("net/w");
    assert!(keys(written.as_ref()).contains(&key.as_str()));
    assert_eq!(name_of(written.as_ref(), &key).unwrap(), "model/kernel");
    let slot = SLOT.replace("model/kernel", "net/w");
    assert_eq!(name_of(written.as_ref(), &slot).unwrap(), "model/kernel/m");
    assert_eq!(names_of(written.as_ref()).len(), keys(written.as_ref()).len() - 1);
}

#[test]
fn a_new_object_name_moves_the_object() {
    let (_dir, written) = edited(Names::Object, |manifest| rename(manifest, "model/kernel", "net/deep/w"));
    assert_eq!(name_of(written.as_ref(), &variable_key("net/deep/w")).unwrap(), "net/deep/w");
    let slot = SLOT.replace("model/kernel", "net/deep/w");
    assert_eq!(name_of(written.as_ref(), &slot).unwrap(), "net/deep/w/m");
    assert_eq!(name_of(written.as_ref(), &variable_key("model/bias")).unwrap(), "model/bias");
    assert!(keys(written.as_ref()).iter().all(|key| !key.starts_with("model/kernel")));
}

#[test]
fn a_new_full_name_stays_beside_the_key() {
    let (_dir, written) = edited(Names::Full, |manifest| rename(manifest, "global_step", "training/step"));
    let graph = graph_of(written.as_ref());
    let full: Vec<_> = graph.full_names().into_iter().filter(|(key, _)| *key == variable_key("step")).collect();
    assert_eq!(full, [(variable_key("step").as_str(), "training/step".to_owned())]);
    assert_eq!(name_of(written.as_ref(), &variable_key("step")).unwrap(), "step", "the object is where it was");
}

#[test]
fn what_is_left_out_is_asked_for_no_more() {
    let (_dir, written) = edited(Names::Stored, |manifest| leave_out(manifest, |name| name == SLOT));
    assert_eq!(name_of(written.as_ref(), SLOT), None);
    let graph = graph_of(written.as_ref());
    let slots: Vec<_> = graph.nodes.iter().flat_map(|node| &node.slots).map(|slot| slot.slot_name.as_str()).collect();
    let before = graph_of(open(fixture("tf/object_slots/ckpt-1").path).unwrap().as_ref());
    assert_eq!(slots.len() + 1, before.nodes.iter().map(|node| node.slots.len()).sum::<usize>());
}

/// A tensor that the source does not have, of four zero bytes.
fn add(manifest: &mut Manifest, name: &str) {
    manifest.add_tensor(name, DType::F32, Shape::new([0]).unwrap());
}

#[test]
fn what_is_added_is_reached_by_its_name() {
    let (_dir, written) = edited(Names::Stored, |manifest| add(manifest, &variable_key("model/ex.tra")));
    assert_eq!(name_of(written.as_ref(), &variable_key("model/ex.tra")).unwrap(), "model/ex.tra");
    let (_dir, written) = edited(Names::Object, |manifest| add(manifest, "model/more/w"));
    assert_eq!(name_of(written.as_ref(), &variable_key("model/more/w")).unwrap(), "model/more/w");
    let dir = tempfile::tempdir().unwrap();
    let source = open(fixture("tf/object_slots/ckpt-1").path).unwrap();
    let prefix = dir.path().join("out");
    let written = write_edited(real(), source.as_ref(), &prefix, &replace(), |m| add(m, "plain")).unwrap();
    assert!(
        written.notes.iter().any(|note| note.contains("\"plain\" is not in the object graph")),
        "{:?}",
        written.notes
    );
}

#[test]
fn names_that_hide_a_value_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |names, from: &str, to: &str| {
        let source = open_named(fixture("tf/object_slots/ckpt-1").path, names);
        let edit = |manifest: &mut Manifest| rename(manifest, from, to);
        write_edited(real(), source.as_ref(), &dir.path().join("out"), &replace(), edit).unwrap_err().to_string()
    };
    let error = refused(Names::Stored, &variable_key("model/kernel"), "kernel");
    assert!(error.contains("\"kernel\"") && error.contains("/.ATTRIBUTES/VARIABLE_VALUE"), "{error}");
    let error = refused(Names::Object, "model/bias", "model");
    assert!(error.contains("another object at \"model\""), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A checkpoint with the two tensors of a table, and its path.
fn with_table(dir: &Path) -> std::path::PathBuf {
    let graph = ObjectGraph::of_names([("model/table", "T"), ("w", "w/.ATTRIBUTES/VARIABLE_VALUE")]).unwrap();
    let mut graph = graph;
    let attribute = graph.nodes.iter_mut().flat_map(|node| &mut node.attributes).next().unwrap();
    (attribute.name, attribute.full_name) = ("table".into(), String::new());
    attribute.checkpoint_key = TABLE.into();
    let message = graph.to_bytes();
    let mut record = vec![0x80 | (message.len() & 0x7f) as u8, (message.len() >> 7) as u8];
    let len = (message.len() as u32).to_le_bytes();
    record.extend(mask_crc32c(crc32c(&len)).to_le_bytes());
    record.extend(message);
    let mut manifest = Manifest::default();
    for name in [format!("{TABLE}-keys"), format!("{TABLE}-values"), "w/.ATTRIBUTES/VARIABLE_VALUE".into()] {
        add(&mut manifest, &name);
    }
    let blob = manifest.add_tensor(KEY, DType::Str, Shape::scalar());
    manifest.blobs[blob.0 as usize].bytes = record.len() as u64;
    let prefix = dir.join("table");
    let writer = TensorFlow.create(real(), &prefix, manifest, &replace()).unwrap();
    writer.write_at(blob, 0, &record).unwrap();
    writer.finish().unwrap();
    prefix
}

const TABLE: &str = "model/table/.ATTRIBUTES/table";

#[test]
fn tables_keep_their_two_halves_together() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(with_table(dir.path())).unwrap();
    let write = |edit: &dyn Fn(&mut Manifest)| {
        write_edited(real(), source.as_ref(), &dir.path().join("out"), &replace(), edit)?;
        open(dir.path().join("out"))
    };
    let new = TABLE.replace("model", "net");
    let written = write(&|manifest| rename(manifest, TABLE, &new)).unwrap();
    assert_eq!(name_of(written.as_ref(), &new).unwrap(), "model/table/table");
    assert!(keys(written.as_ref()).contains(&format!("{new}-values").as_str()));
    let half = |manifest: &mut Manifest| leave_out(manifest, |name| name == format!("{TABLE}-keys"));
    let error = write(&half).map(drop).unwrap_err();
    assert!(error.message().contains("-keys and -values"), "{error}");
    let written = write(&|manifest| leave_out(manifest, |name| name.starts_with(TABLE))).unwrap();
    assert_eq!(name_of(written.as_ref(), TABLE), None);
    let plain = open_named(dir.path().join("table"), Names::Object);
    assert!(keys(plain.as_ref()).contains(&"model/table/table-keys"), "{:?}", keys(plain.as_ref()));
    let edit = |manifest: &mut Manifest| rename(manifest, "model/table/", "other/");
    write_edited(real(), plain.as_ref(), &dir.path().join("moved"), &replace(), edit).unwrap();
    let moved = open(dir.path().join("moved")).unwrap();
    assert!(keys(moved.as_ref()).contains(&"other/.ATTRIBUTES/table-keys"), "{:?}", keys(moved.as_ref()));
}

#[test]
fn objects_are_made_for_tensors_that_had_none() {
    let dir = tempfile::tempdir().unwrap();
    let source = open(fixture("tf/foo_dense/model.ckpt").path).unwrap();
    let mut options = replace();
    options.object_graph = true;
    let prefix = dir.path().join("ckpt-7");
    write_edited(real(), source.as_ref(), &prefix, &options, |_| {}).unwrap();
    let written = open(&prefix).unwrap();
    let names: Vec<_> = names_of(written.as_ref()).into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["dense/bias", "dense/kernel", "foo", "save_counter"]);
    assert_eq!(read(written.as_ref(), &variable_key("save_counter")).unwrap(), 7i64.to_le_bytes());
    let old = read(source.as_ref(), "dense/kernel").unwrap();
    assert_eq!(read(written.as_ref(), &variable_key("dense/kernel")).unwrap(), old);
    let plain = open_named(&prefix, Names::Object);
    assert_eq!(plain.catalog().entries.iter().filter(|entry| entry.name == "dense/kernel").count(), 1);
}

fn write_with_state(prefix: &Path) -> weightlift_core::Result<StateFile> {
    let source = open(fixture("tf/foo_dense/model.ckpt").path)?;
    let mut options = replace();
    options.state_file = true;
    write_edited(real(), source.as_ref(), prefix, &options, |_| {})?;
    StateFile::parse(&std::fs::read(prefix.with_file_name("checkpoint")).unwrap())
}

#[test]
fn a_state_file_keeps_its_history() {
    let dir = tempfile::tempdir().unwrap();
    let state = write_with_state(&dir.path().join("ckpt-1")).unwrap();
    assert_eq!((state.latest.as_str(), state.all.len(), state.timestamps.len()), ("ckpt-1", 1, 1));
    let elsewhere = "model_checkpoint_path: \"/old/ckpt-0\"\nall_model_checkpoint_paths: \"/old/ckpt-0\"\n";
    let same = format!("all_model_checkpoint_paths: {:?}\n", dir.path().join("ckpt-2"));
    std::fs::write(dir.path().join("checkpoint"), format!("{elsewhere}{same}")).unwrap();
    let state = write_with_state(&dir.path().join("ckpt-2")).unwrap();
    assert_eq!(state.all, ["/old/ckpt-0", "ckpt-2"]);
    assert_eq!(state.latest, "ckpt-2");
    let options = WriteOptions::default();
    let source = open(dir.path()).unwrap();
    assert!(source.files()[0].ends_with("ckpt-2.index"));
    write_edited(real(), source.as_ref(), &dir.path().join("ckpt-3"), &options, |_| {}).unwrap();
    assert!(open(dir.path()).unwrap().files()[0].ends_with("ckpt-2.index"), "it is written only where it is asked for");
    std::fs::write(dir.path().join("checkpoint"), "garbage").unwrap();
    let error = write_with_state(&dir.path().join("ckpt-4")).unwrap_err();
    assert!(error.to_string().contains("--state-file"), "{error}");
    assert!(!dir.path().join("ckpt-4.index").exists());
}

#[test]
fn version_1_is_never_written() {
    let dir = tempfile::tempdir().unwrap();
    let v1 = dir.path().join("model.ckpt");
    std::fs::copy(fixture("tf/v1/model.ckpt").path, &v1).unwrap();
    let source = open(fixture("tf/foo_dense/model.ckpt").path).unwrap();
    let error = write_edited(real(), source.as_ref(), &v1, &replace(), |_| {}).unwrap_err();
    assert!(error.message().contains("version 1") && error.message().contains("never written"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}
