//! Inputs to begin with, made from the fixtures.

use std::fs;
use std::path::{Path, PathBuf};

/// Names the folder that a target writes its seeds into, instead of running.
const FOLDER: &str = "WEIGHTLIFT_FUZZ_SEEDS";
/// Longer seeds make every run slow.
const LONGEST: usize = 32 << 10;

/// Where the seeds of a target come from.
pub enum Seeds {
    /// From every file of the fixtures, given by its path in them and its bytes.
    Fixtures(fn(&str, &[u8]) -> Vec<Vec<u8>>),
    /// Written by hand.
    Texts(&'static [&'static str]),
}

impl Seeds {
    fn make(&self) -> Vec<Vec<u8>> {
        match self {
            Seeds::Texts(texts) => texts.iter().map(|text| text.as_bytes().to_vec()).collect(),
            Seeds::Fixtures(of_file) => {
                let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/fixtures");
                let name = |path: &Path| path.strip_prefix(&root).unwrap_or(path).to_string_lossy().into_owned();
                let seeds = |path: PathBuf| of_file(&name(&path), &fs::read(&path).unwrap_or_default());
                files(&root).into_iter().flat_map(seeds).collect()
            }
        }
    }
}

/// Writes the seeds and ends the process, where the environment asks for them.
pub fn write_where_asked(seeds: &Seeds) {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    fs::create_dir_all(&folder).expect("the folder for the seeds can be made");
    let seeds = seeds.make().into_iter().filter(|seed| seed.len() <= LONGEST);
    for (number, seed) in seeds.enumerate() {
        fs::write(folder.join(format!("seed-{number:03}")), seed).expect("a seed can be written");
    }
    std::process::exit(0);
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the fixtures can be listed");
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.into_iter().flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// A file as its own seed, where its name ends so.
pub fn ending(name: &str, bytes: &[u8], ends: &[&str]) -> Vec<Vec<u8>> {
    let wanted = ends.iter().any(|end| name.ends_with(end));
    wanted.then(|| bytes.to_vec()).into_iter().collect()
}
