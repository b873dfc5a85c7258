//! A commit that is killed at any point leaves the old set, the new one, or one without an index that the next run
//! finishes; never a mixture.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests say what they expect by panicking")]

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{Files, Kind, Result};
use weightlift_io::{Commit, FileSource, real, recover};
use weightlift_testkit::FaultyFiles;

/// Writes a set of two data files and an index that names their content.
fn write_set(files: Arc<dyn Files>, dir: &Path, content: &str, stale: Option<&str>) -> Result<()> {
    let mut commit = Commit::new(files, true);
    for name in ["set.index", "set.data-0", "set.data-1"] {
        let sink = commit.create(&dir.join(name))?;
        sink.reserve(content.len() as u64)?;
        sink.write_all_at(content.as_bytes(), 0)?;
    }
    if let Some(stale) = stale {
        commit.remove_on_commit(dir.join(stale));
    }
    commit.commit(Some(&dir.join("set.index"))).map(drop)
}

/// The content of the set if it opens: its index exists.
fn read_set(dir: &Path) -> Option<[String; 3]> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_else(|_| "missing".into());
    dir.join("set.index").exists().then(|| [read("set.index"), read("set.data-0"), read("set.data-1")])
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_set_killed_at_any_operation_is_never_a_mixture() {
    let whole = |content: &str| Some([content, content, content].map(str::to_owned));
    let mut finished = 0;
    let mut restored = 0;
    for replaces in [false, true] {
        for k in 0.. {
            let dir = tempfile::tempdir().unwrap();
            let old = if replaces { whole("old!") } else { None };
            if replaces {
                write_set(real(), dir.path(), "old!", None).unwrap();
                fs::write(dir.path().join("set.data-2"), "stale").unwrap();
            }
            let faulty = FaultyFiles::failing_from(real(), k, ErrorKind::Other);
            let stale = replaces.then_some("set.data-2");
            let result = write_set(Arc::new(faulty.clone()), dir.path(), "new", stale);
            let seen = read_set(dir.path());
            assert!(seen.is_none() || seen == old || seen == whole("new"), "killed at {k}: {seen:?}");
            if result.is_ok() {
                assert_eq!(seen, whole("new"));
                assert_eq!(names(dir.path()), ["set.data-0", "set.data-1", "set.index"], "nothing else is left");
                break;
            }
            let recovered = recover(&real_files(), dir.path()).unwrap();
            let after = read_set(dir.path());
            assert!(after == old || after == whole("new"), "killed at {k}, recovered {recovered}: {after:?}");
            if after == whole("new") {
                finished += 1
            } else {
                restored += 1
            }
            // The next run succeeds and leaves nothing of the killed one behind.
            write_set(real(), dir.path(), "next", stale).unwrap();
            assert_eq!(read_set(dir.path()), whole("next"));
            assert_eq!(names(dir.path()), ["set.data-0", "set.data-1", "set.index"], "killed at {k}");
        }
    }
    assert!(finished > 5 && restored > 10, "both ways of recovery were seen: {finished}, {restored}");
}

fn real_files() -> weightlift_io::RealFiles {
    weightlift_io::RealFiles
}

#[test]
fn a_file_that_exists_is_kept_unless_replacing_was_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, "old").unwrap();
    let error = Commit::new(real(), false).create(&path).unwrap_err();
    assert_eq!(error.kind(), Kind::Request);
    assert!(error.to_string().contains("--force"), "{error}");
    let mut commit = Commit::new(real(), true);
    commit.create(&path).unwrap().write_all_at(b"new", 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"old", "nothing changes before the commit");
    assert_eq!(commit.commit(None).unwrap(), [(path.clone(), 3)]);
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[test]
fn a_dropped_commit_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut commit = Commit::new(real(), false);
    commit.create(&dir.path().join("a")).unwrap().write_all_at(b"new", 0).unwrap();
    assert_eq!(names(dir.path()).len(), 1);
    drop(commit);
    assert!(names(dir.path()).is_empty());
}

/// However a set is named, by a relative path or through a linked folder, its files are seen to lie in one folder.
#[cfg(unix)]
#[test]
fn a_set_is_replaced_through_a_linked_folder() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("real")).unwrap();
    let linked = dir.path().join("linked");
    std::os::unix::fs::symlink("real", &linked).unwrap();
    write_set(real(), &linked, "old!", None).unwrap();
    fs::remove_file(linked.join("set.data-1")).unwrap();
    fs::write(linked.join("set.data-2"), "stale").unwrap();
    write_set(real(), &linked, "new", Some("set.data-2")).unwrap();
    assert_eq!(read_set(&linked).unwrap(), ["new", "new", "new"]);
    assert_eq!(names(&linked), ["set.data-0", "set.data-1", "set.index"]);
}

/// A folder from a stranger may hold a journal: it moves and removes nothing but what a commit of its own would.
#[cfg(unix)]
#[test]
fn a_foreign_journal_is_not_obeyed() {
    let journals = [
        ("x", "rename precious b\nend\n"),
        ("b", "rename precious b\nend\n"),
        ("b", "rename .b.1-2.weightlift-tmp b\nremove precious\nend\n"),
        ("b.index", "rename .b.index.1-2.weightlift-tmp b.index\nremove precious\nend\n"),
    ];
    for (index, lines) in journals {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("precious"), "kept").unwrap();
        fs::write(dir.path().join(".b.1-2.weightlift-tmp"), "new").unwrap();
        fs::write(dir.path().join(".b.index.1-2.weightlift-tmp"), "new").unwrap();
        let name = format!(".{index}.weightlift-journal");
        fs::write(dir.path().join(name), format!("weightlift journal 1\n{lines}")).unwrap();
        assert!(recover(&real_files(), dir.path()).is_err(), "{lines}");
        assert_eq!(fs::read(dir.path().join("precious")).unwrap(), b"kept");
        assert!(!dir.path().join("b").exists() && !dir.path().join("b.index").exists());
    }
}

/// Two runs on one set: one goes through, the other says that it cannot; what is left is one of both, whole.
#[test]
fn two_runs_at_once_leave_one_whole_set() {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        write_set(real(), dir.path(), "old!", None).unwrap();
        let folder = dir.path();
        std::thread::scope(|scope| {
            let run = |content| scope.spawn(move || write_set(real(), folder, content, None));
            let runs = ["one", "two"].map(run);
            let done = runs.map(|run| run.join().unwrap());
            assert!(done.iter().any(Result::is_ok), "{done:?}");
        });
        let seen = read_set(dir.path()).unwrap();
        assert!(seen.iter().all(|content| *content == seen[0]), "{seen:?}");
    }
}

#[cfg(unix)]
#[test]
fn private_files_stay_private_and_pipes_are_left_alone() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let pipe = dir.path().join(".x.weightlift-journal");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut commit = Commit::new(real(), true);
    commit.create(&path).unwrap().write_all_at(b"new", 0).unwrap();
    commit.commit(None).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn long_names_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n".repeat(250));
    let mut commit = Commit::new(real(), false);
    commit.create(&path).unwrap();
    commit.commit(None).unwrap();
    assert!(path.exists());
}

#[cfg(unix)]
#[test]
fn an_output_that_is_a_link_stays_a_link() {
    let dir = tempfile::tempdir().unwrap();
    let (target, link) = (dir.path().join("target"), dir.path().join("link"));
    fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink("target", &link).unwrap();
    let mut commit = Commit::new(real(), true);
    commit.create(&link).unwrap().write_all_at(b"new", 0).unwrap();
    commit.commit(None).unwrap();
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(fs::read(&target).unwrap(), b"new");
}

#[test]
fn short_reads_and_writes_are_carried_on() {
    let dir = tempfile::tempdir().unwrap();
    let files: Arc<dyn Files> = Arc::new(FaultyFiles::short(real(), 7));
    let bytes: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
    let mut commit = Commit::new(files.clone(), false);
    commit.create(&dir.path().join("a")).unwrap().write_all_at(&bytes, 3).unwrap();
    commit.commit(None).unwrap();
    let source = FileSource::open(files.as_ref(), &dir.path().join("a")).unwrap();
    let mut back = vec![0; 1000];
    source.read_exact_at(&mut back, 3).unwrap();
    assert_eq!(back, bytes);
    let error = source.read_exact_at(&mut back, 4).unwrap_err().to_string();
    assert!(error.contains("needs 1000 bytes at offset 4, but the file ends at 1003"), "{error}");
}

#[test]
fn a_full_disk_is_said_so() {
    let dir = tempfile::tempdir().unwrap();
    let files: Arc<dyn Files> = Arc::new(FaultyFiles::failing_from(real(), 1, ErrorKind::StorageFull));
    let mut commit = Commit::new(files, false);
    let error = commit.create(&dir.path().join("a")).unwrap().write_all_at(b"x", 0).unwrap_err();
    assert!(error.to_string().contains("nothing was replaced"), "{error}");
    assert_eq!(error.kind(), Kind::Io);
}
