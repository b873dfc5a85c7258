//! Data files that become those of an output without being read.

use crate::support::{copy_into, graph_of, leave_out, open, read, replace, write_edited};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{Files, Manifest, ReadAt, Share, Stat, WriteAt, WriteOptions, Written};
use weightlift_io::real;
use weightlift_testkit::fixture;

fn sharing(share: Share) -> WriteOptions {
    let mut options = replace();
    options.share = share;
    options
}

fn rename_all(manifest: &mut Manifest) {
    manifest.tensors.iter_mut().for_each(|output| output.name.insert_str(0, "new/"));
}

/// Writes the fixture with every tensor renamed.
fn renamed(files: Arc<dyn Files>, source: &Path, prefix: &Path, share: Share) -> weightlift_core::Result<Written> {
    write_edited(files, open(source)?.as_ref(), prefix, &sharing(share), rename_all)
}

fn inode(path: impl AsRef<Path>) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn data(prefix: &Path, shard: u32, of: u32) -> PathBuf {
    PathBuf::from(format!("{}.data-{shard:05}-of-{of:05}", prefix.display()))
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn hard_links_are_the_same_files() {
    let dir = tempfile::tempdir().unwrap();
    let source = copy_into(&fixture("tf/sharded/model.ckpt"), dir.path());
    let prefix = dir.path().join("out");
    let written = renamed(real(), &source, &prefix, Share::HardLink).unwrap();
    let shards = fs::read_dir(dir.path())
        .unwrap()
        .filter(|e| e.as_ref().unwrap().file_name().to_string_lossy().starts_with("out.data"))
        .count() as u32;
    assert!(shards > 1);
    for shard in 0..shards {
        assert_eq!(inode(data(&source, shard, shards)), inode(data(&prefix, shard, shards)));
    }
    let carried = written.carried.unwrap();
    assert_eq!((carried.how, carried.unused), ("hard link", 0));
    let (old, new) = (open(&source).unwrap(), open(&prefix).unwrap());
    for entry in &old.catalog().entries {
        let name = format!("new/{}", entry.name);
        assert_eq!(read(new.as_ref(), &name).unwrap(), read(old.as_ref(), &entry.name).unwrap());
    }
}

#[test]
fn an_unchanged_index_is_the_same_bytes_however_its_data_come() {
    for name in ["tf/sharded/model.ckpt", "tf/max_shard/model.ckpt", "tf/strings/model.ckpt"] {
        let dir = tempfile::tempdir().unwrap();
        let source = copy_into(&fixture(name), dir.path());
        let prefix = dir.path().join("out");
        write_edited(real(), open(&source).unwrap().as_ref(), &prefix, &sharing(Share::HardLink), |_| {}).unwrap();
        let index = |prefix: &Path| fs::read(format!("{}.index", prefix.display())).unwrap();
        assert_eq!(index(&prefix), index(&source), "{name}");
    }
}

#[test]
fn edited_in_place_the_data_stay_where_they_are() {
    for share in [Share::Auto, Share::HardLink, Share::Reflink] {
        let dir = tempfile::tempdir().unwrap();
        let prefix = copy_into(&fixture("tf/foo_dense/model.ckpt"), dir.path());
        let before = inode(data(&prefix, 0, 1));
        let written = renamed(real(), &prefix, &prefix, share).unwrap();
        assert_eq!(written.carried.unwrap().how, "in place");
        assert_eq!(inode(data(&prefix, 0, 1)), before);
        assert_eq!(open(&prefix).unwrap().catalog().entries[0].name, "new/dense/bias");
    }
}

/// The object graph changes with the names: it goes into a data file of its own.
#[test]
fn a_new_graph_lies_beside_data_that_stay() {
    let dir = tempfile::tempdir().unwrap();
    let prefix = copy_into(&fixture("tf/object_slots/ckpt-1"), dir.path());
    let before = inode(data(&prefix, 0, 1));
    let rename = |from: &'static str, to: &'static str| {
        let edit = move |manifest: &mut Manifest| {
            manifest.tensors.iter_mut().for_each(|output| output.name = output.name.replace(from, to));
        };
        let source = open(&prefix).unwrap();
        write_edited(real(), source.as_ref(), &prefix, &sharing(Share::Auto), edit).unwrap();
        let written = open(&prefix).unwrap();
        let graph = graph_of(written.as_ref());
        let found = |key: &&str| key.starts_with(to);
        assert!(graph.object_names().iter().any(|(key, _)| found(key)), "{from} to {to}");
        assert_eq!(inode(data(&prefix, 0, 2)), before);
        let mut expected =
            vec!["checkpoint", "ckpt-1.data-00000-of-00002", "ckpt-1.data-00001-of-00002", "ckpt-1.index"];
        expected.retain(|name| *name != "checkpoint" || dir.path().join("checkpoint").exists());
        assert_eq!(names(dir.path()), expected);
    };
    rename("model/kernel", "net/kernel");
    rename("net/kernel", "third/kernel");
}

#[test]
fn what_is_left_out_may_stay_in_the_data() {
    let dir = tempfile::tempdir().unwrap();
    let source = copy_into(&fixture("tf/foo_dense/model.ckpt"), dir.path());
    let prefix = dir.path().join("out");
    let edit = |manifest: &mut Manifest| leave_out(manifest, |name| name == "foo");
    let written =
        write_edited(real(), open(&source).unwrap().as_ref(), &prefix, &sharing(Share::HardLink), edit).unwrap();
    // The blob of what is left out is still in this manifest; a planner leaves it out too.
    assert_eq!(written.carried.unwrap().bytes, 100);
    assert_eq!(open(&prefix).unwrap().catalog().entries.len(), 2);
}

#[test]
fn without_links_the_bytes_are_written_unless_links_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let source = copy_into(&fixture("tf/foo_dense/model.ckpt"), dir.path());
    let files: Arc<dyn Files> = Arc::new(Limited { reflinks: false });
    for share in [Share::Auto, Share::Reflink, Share::Never] {
        let prefix = dir.path().join("out");
        let written = renamed(files.clone(), &source, &prefix, share).unwrap();
        assert_eq!(written.carried, None);
        assert_ne!(inode(data(&prefix, 0, 1)), inode(data(&source, 0, 1)));
    }
    let error = renamed(files, &source, &dir.path().join("link"), Share::HardLink).unwrap_err();
    assert!(error.to_string().contains("hard link") && error.to_string().contains("--share copy"), "{error}");
    assert!(names(dir.path()).iter().all(|name| !name.contains("link")));
}

#[test]
fn reflinks_carry_whole_files() {
    let dir = tempfile::tempdir().unwrap();
    let source = copy_into(&fixture("tf/sharded/model.ckpt"), dir.path());
    let files: Arc<dyn Files> = Arc::new(Limited { reflinks: true });
    let written = renamed(files, &source, &dir.path().join("out"), Share::Auto).unwrap();
    assert_eq!(written.carried.unwrap().how, "reflink");
    let (old, new) = (open(&source).unwrap(), open(dir.path().join("out")).unwrap());
    for entry in &old.catalog().entries {
        let name = format!("new/{}", entry.name);
        assert_eq!(read(new.as_ref(), &name).unwrap(), read(old.as_ref(), &entry.name).unwrap());
    }
}

/// The real file system without hard links, and with reflinks that are copies or none.
#[derive(Debug)]
struct Limited {
    reflinks: bool,
}

#[derive(Debug)]
struct LimitedWrite {
    inner: Arc<dyn WriteAt>,
    reflinks: bool,
}

impl Files for Limited {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        real().stat(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<std::ffi::OsString>> {
        real().list(dir)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        real().resolve(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        real().open(path)
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn WriteAt>> {
        Ok(Arc::new(LimitedWrite { inner: real().create(path)?, reflinks: self.reflinks }))
    }

    fn is_abandoned(&self, path: &Path) -> io::Result<bool> {
        real().is_abandoned(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        real().rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        real().remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        real().sync_dir(dir)
    }

    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>> {
        real().free_space(dir)
    }
}

impl WriteAt for LimitedWrite {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.inner.write_at(bytes, offset)
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        self.inner.reserve(len)
    }

    fn copy_from(&self, offset: u64, source: &dyn ReadAt, from: u64, len: u64) -> io::Result<u64> {
        self.inner.copy_from(offset, source, from, len)
    }

    fn reflink(&self, source: &dyn ReadAt) -> io::Result<bool> {
        if !self.reflinks {
            return Ok(false);
        }
        let mut bytes = vec![0; source.len()? as usize];
        assert_eq!(source.read_at(&mut bytes, 0)?, bytes.len());
        assert_eq!(self.inner.write_at(&bytes, 0)?, bytes.len());
        Ok(true)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }
}
