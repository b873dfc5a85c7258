//! First bytes rewritten in place: killed at any point, the next run finds the old ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use weightlift_core::{Files, Kind};
use weightlift_io::{Commit, real, recover, restore_head, rewrite_head};
use weightlift_testkit::FaultyFiles;

const OLD: &[u8] = b"OLD HEAD|data that nobody touches";
const NEW: &[u8] = b"new head|data that nobody touches";

fn file() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w");
    fs::write(&path, OLD).unwrap();
    (dir, path)
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().count()
}

/// Fails every operation in turn, writing three bytes a call so that heads are torn, and returns each folder.
fn killed_everywhere(mut look: impl FnMut(&Path, &Path, bool)) -> u64 {
    for k in 0.. {
        let (dir, path) = file();
        let faulty = FaultyFiles::failing_from(real(), k, ErrorKind::Other).in_pieces_of(3);
        let done = rewrite_head(&faulty, &path, b"new head").is_ok();
        look(dir.path(), &path, done);
        if done {
            return k;
        }
    }
    unreachable!()
}

#[test]
fn a_head_killed_at_any_operation_is_put_back_by_the_next_run() {
    let (mut restored, mut torn, mut done_but_for_the_last_sync) = (0, 0, 0);
    let operations = killed_everywhere(|dir, path, done| {
        let left = fs::read(path).unwrap();
        torn += usize::from(left != OLD && left != NEW);
        if restore_head(real().as_ref(), path).unwrap() {
            restored += 1;
            assert!(!done);
            assert_eq!(fs::read(path).unwrap(), OLD);
        }
        let now = fs::read(path).unwrap();
        done_but_for_the_last_sync += usize::from(!done && now == NEW);
        assert!(now == NEW || (now == OLD && !done), "the old head or the new one");
        assert!(!restore_head(real().as_ref(), path).unwrap());
        assert_eq!(count(dir), 1, "nothing is left beside the file");
    });
    assert!(operations > 15 && restored >= 4 && torn >= 2, "{operations} {restored} {torn}");
    assert_eq!(done_but_for_the_last_sync, 1, "only the sync of the folder comes after the saved head is gone");
}

#[test]
fn restoring_can_be_killed_too() {
    let (dir, path) = file();
    let crash = FaultyFiles::failing_from(real(), 26, ErrorKind::Other).in_pieces_of(3);
    let mut stopped = 0;
    rewrite_head(&crash, &path, b"new head").unwrap_err();
    for k in 0.. {
        let faulty = FaultyFiles::failing_from(real(), k, ErrorKind::Other).in_pieces_of(3);
        match restore_head(&faulty, &path) {
            Ok(_) => break,
            Err(_) => stopped += 1,
        }
    }
    assert!(stopped > 3, "{stopped}");
    restore_head(real().as_ref(), &path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), OLD);
    assert_eq!(count(dir.path()), 1);
}

/// A run that replaces the file first puts the old head back: what was saved must not outlive the file it is of.
#[test]
fn a_commit_into_the_folder_restores_first() {
    killed_everywhere(|dir, path, _| {
        let mut commit = Commit::new(real(), true);
        commit.create(path).unwrap().write_all_at(b"another file of thirty-three byte", 0).unwrap();
        commit.commit(None).unwrap();
        assert!(!restore_head(real().as_ref(), path).unwrap());
        assert_eq!(fs::read(path).unwrap(), b"another file of thirty-three byte");
        assert_eq!(count(dir), 1);
    });
}

#[test]
fn what_was_saved_of_another_file_is_left_alone() {
    let left = |change: &dyn Fn(&Path)| {
        let mut seen = 0;
        killed_everywhere(|_, path, _| {
            change(path);
            let before = fs::read(path).unwrap();
            seen += usize::from(restore_head(real().as_ref(), path).unwrap());
            assert_eq!(fs::read(path).unwrap(), before);
        });
        seen
    };
    assert_eq!(left(&|path| fs::write(path, b"one of other length").unwrap()), 0);
    assert_eq!(left(&|path| fs::write(path, b"one here|data that nobody touches").unwrap()), 0);
}

#[test]
fn files_of_several_names_and_busy_files_are_refused() {
    let (dir, path) = file();
    fs::hard_link(&path, dir.path().join("other")).unwrap();
    let error = rewrite_head(real().as_ref(), &path, b"new head").unwrap_err();
    assert_eq!(error.kind(), Kind::Request);
    assert!(error.to_string().contains("has 2 names (hard links)"), "{error}");
    fs::remove_file(dir.path().join("other")).unwrap();
    let busy = real().modify(&path).unwrap();
    let error = rewrite_head(real().as_ref(), &path, b"new head").unwrap_err();
    assert!(error.to_string().contains("another run is changing the file"), "{error}");
    drop(busy);
    let longer = vec![b'x'; OLD.len() + 1];
    assert!(rewrite_head(real().as_ref(), &path, &longer).is_err());
    assert_eq!(fs::read(&path).unwrap(), OLD);
    assert_eq!(count(dir.path()), 1);
}

#[test]
fn the_file_behind_a_link_is_changed_and_found_again() {
    let (dir, path) = file();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let crash = FaultyFiles::failing_from(real(), 26, ErrorKind::Other).in_pieces_of(3);
    rewrite_head(&crash, &link, b"new head").unwrap_err();
    assert!(fs::read(&path).unwrap() != OLD);
    assert_eq!(recover(real().as_ref(), dir.path()).unwrap(), 1);
    assert_eq!(fs::read(&link).unwrap(), OLD);
    rewrite_head(real().as_ref(), &link, b"new head").unwrap();
    assert_eq!(fs::read(&path).unwrap(), NEW);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_damaged_saved_file_is_named() {
    let (dir, path) = file();
    fs::write(dir.path().join(".w.weightlift-saved"), b"weightlift saved head 1\nrubbish").unwrap();
    let error = restore_head(real().as_ref(), &path).unwrap_err();
    assert!(error.to_string().contains(".w.weightlift-saved: is a damaged copy"), "{error}");
    let short = Arc::new(FaultyFiles::short(real(), 2));
    assert!(restore_head(short.as_ref() as &dyn Files, &path).is_err());
}
