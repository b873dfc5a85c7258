//! The rules of the workspace, as tests: layers, unsafe code, licences, left-overs.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which crates of the workspace each crate may depend on. Tests may also use the testkit.
const LAYERS: &[(&str, &[&str])] = &[
    ("core", &[]),
    ("kernels", &["core"]),
    ("io", &["core", "kernels"]),
    ("shaders", &[]),
    ("gpu", &["core", "kernels", "shaders"]),
    ("archive", &["core", "io", "kernels"]),
    ("shards", &["core", "io", "kernels"]),
    ("tf", &["core", "io", "kernels"]),
    ("safetensors", &["core", "io", "kernels", "shards"]),
    ("torch", &["core", "io", "kernels", "archive", "shards"]),
    ("npy", &["core", "io", "kernels", "archive"]),
    ("convert", &["core", "io", "kernels"]),
    ("testkit", &["core"]),
];

/// Folders whose files may hold unsafe code, as `ARCHITECTURE.md` lists them.
const UNSAFE: &[&str] = &["crates/kernels/src/cast/avx2/"];
/// Programs outside the workspace that are measured against, not shipped.
const APART: &[&str] = &["benches/compare/floor/", "fuzz/"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn metadata() -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The crates of the workspace with their own dependencies in it, those of tests apart.
fn dependencies() -> BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)> {
    let mut all = BTreeMap::new();
    for package in metadata()["packages"].as_array().unwrap() {
        let name = package["name"].as_str().unwrap();
        let (mut normal, mut dev) = (BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array().unwrap() {
            if let Some(own) = dependency["name"].as_str().unwrap().strip_prefix("weightlift-") {
                let kind = if dependency["kind"] == "dev" { &mut dev } else { &mut normal };
                kind.insert(own.to_owned());
            }
        }
        all.insert(name.strip_prefix("weightlift-").unwrap_or("").to_owned(), (normal, dev));
    }
    all
}

/// Names of all packages in the tree of a crate, those of tests and builds left out.
fn tree(arguments: &[&str]) -> BTreeSet<String> {
    let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
    let output = Command::new(cargo)
        .args(["tree", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .args(arguments)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter_map(|line| line.split(' ').next().map(str::to_owned)).collect()
}

/// Whoever reads one format, or has no use for devices, does not build the large dependencies of others.
#[test]
fn no_one_builds_what_only_others_need() {
    let whole = tree(&["-p", "weightlift"]);
    assert!(["wgpu", "naga", "clap"].iter().all(|name| whole.contains(*name)), "the names are right: {whole:?}");
    let without = tree(&["-p", "weightlift", "--no-default-features"]);
    assert!(without.contains("clap"), "{without:?}");
    let of_devices =
        |name: &&String| ["wgpu", "naga", "weightlift-gpu", "pollster"].iter().any(|n| name.starts_with(n));
    assert_eq!(without.iter().find(of_devices), None);
    for codec in ["tf", "torch", "safetensors", "npy", "convert"] {
        let alone = tree(&["-p", &format!("weightlift-{codec}")]);
        assert!(alone.contains("weightlift-core"), "{alone:?}");
        assert_eq!(alone.iter().find(of_devices), None, "{codec}");
        assert!(!alone.contains("clap") && !alone.contains("indicatif"), "{codec}");
    }
}

#[test]
fn crates_depend_only_on_the_layers_below() {
    let all = dependencies();
    let names: BTreeSet<&str> = all.keys().map(String::as_str).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, LAYERS.iter().map(|(name, _)| *name).collect(), "every crate has its line in LAYERS");
    for (name, allowed) in LAYERS {
        let allowed: BTreeSet<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        let (normal, dev) = &all[*name];
        assert!(normal.is_subset(&allowed), "{name} depends on {:?}", normal.difference(&allowed));
        let mut tests = allowed.clone();
        tests.insert("testkit".into());
        assert!(dev.is_subset(&tests), "tests of {name} depend on {:?}", dev.difference(&tests));
    }
}

/// All source files of the project.
fn sources(folder: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && name != "target" && name != "data" {
                sources(&path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().replace('\\', "/")
}

#[test]
fn unsafe_code_stands_only_where_the_architecture_lists_it() {
    let mut files = Vec::new();
    sources(&root(), &[".rs"], &mut files);
    let architecture = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let marks = ["unsafe {", "unsafe fn", "unsafe impl", "allow(unsafe_code)"];
    for path in files {
        let (name, text) = (relative(&path), std::fs::read_to_string(&path).unwrap());
        let apart = APART.iter().any(|folder| name.starts_with(folder)) || name == "tests/it/workspace.rs";
        if apart || !marks.iter().any(|mark| text.contains(mark)) {
            continue;
        }
        let folder = UNSAFE.iter().find(|folder| name.starts_with(**folder));
        let folder = folder.unwrap_or_else(|| panic!("{name} has unsafe code"));
        assert!(architecture.contains(&format!("`{folder}`")), "ARCHITECTURE.md does not list {folder}");
        let blocks = text.matches("unsafe {").count() + text.matches("unsafe fn").count();
        let notes = text.matches("SAFETY").count() + text.matches("# Safety").count();
        assert!(notes > 0 && notes * 12 >= blocks, "{name}: {blocks} unsafe places, {notes} notes");
    }
}

#[test]
fn nothing_is_left_over() {
    let mut files = Vec::new();
    sources(&root(), &[".rs", ".py", ".sh", ".toml", ".md", ".wgsl"], &mut files);
    for path in files.iter().filter(|path| !path.ends_with("tests/it/workspace.rs")) {
        let text = std::fs::read_to_string(path).unwrap();
        for word in ["TODO", "FIXME", "todo!(", "unimplemented!(", "dbg!("] {
            assert!(!text.contains(word), "{}: {word}", relative(path));
        }
        if path.extension().is_some_and(|extension| extension == "rs") {
            assert!(!text.contains("#[ignore"), "{}: an ignored test", relative(path));
        }
    }
}

#[test]
fn every_crate_is_on_the_map() {
    let architecture = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for (name, _) in LAYERS {
        let folder = if *name == "shaders" { "shaders".to_owned() } else { format!("crates/{name}") };
        assert!(architecture.contains(&format!("`{folder}`")), "ARCHITECTURE.md does not show {folder}");
    }
}
