//! Rates measured on compute devices, kept for later runs in the user's cache folder.
//!
//! A rate is true for one adapter with one driver, so it is kept by
//! [`Adapter::identity`](https://docs.rs/weightlift-gpu/latest/weightlift_gpu/struct.Adapter.html), and by the name of
//! what was measured, such as `f32 -> f16`. The cache is a convenience: one that is missing, broken or somebody else's
//! is an empty one and no error.
//!
//! ```no_run
//! use weightlift::rates::{Measured, Rates};
//! let mut rates = Rates::load();
//! if rates.get("discrete Vulkan 10de:2335 NVIDIA H200 NVIDIA 570.1", "f32 -> f16").is_none() {
//!     let measured = Measured { cpu: 2e10, gpu: 1e10, both: 2.5e10 };
//!     rates.put("discrete Vulkan 10de:2335 NVIDIA H200 NVIDIA 570.1", "f32 -> f16", measured);
//!     rates.store()?;
//! }
//! # Ok::<(), weightlift::Error>(())
//! ```

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{Error, FileKind, Files, Result};
use weightlift_io::{Commit, FileSource, folder_of};

const SCHEMA: &str = "weightlift.rates/1";
/// A file beyond this is nobody's cache of rates, and none is written.
const LARGEST: usize = 1 << 20;

/// Bytes of source a second, from memory to memory.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The processor's threads alone.
    pub cpu: f64,
    /// The device alone.
    pub gpu: f64,
    /// Both at once.
    pub both: f64,
}

impl Measured {
    fn is_sound(&self) -> bool {
        [self.cpu, self.gpu, self.both].iter().all(|rate| rate.is_finite() && *rate > 0.0)
    }
}

/// What is known of adapters.
#[derive(Debug)]
pub struct Rates {
    files: Arc<dyn Files>,
    /// None where the system tells of no folder.
    path: Option<PathBuf>,
    known: Vec<Adapter>,
    /// What this run has measured.
    fresh: Vec<Adapter>,
}

/// The rates of one adapter; the one measured last stands last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Adapter {
    adapter: String,
    pairs: BTreeMap<String, Measured>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    schema: String,
    adapters: Vec<Adapter>,
}

impl Rates {
    /// Reads the cache: `rates.json` in `$WEIGHTLIFT_CACHE`, else in the folder `weightlift` of `$XDG_CACHE_HOME`, of
    /// `~/.cache`, or of what macOS and Windows have for it.
    pub fn load() -> Rates {
        let path = folder(|name| std::env::var_os(name)).map(|folder| folder.join("rates.json"));
        Rates::load_from(weightlift_io::real(), path)
    }

    fn load_from(files: Arc<dyn Files>, path: Option<PathBuf>) -> Rates {
        let known = path.as_deref().map(|path| read(files.as_ref(), path)).unwrap_or_default();
        Rates { files, path, known, fresh: Vec::new() }
    }

    /// What was measured of an adapter and a pair.
    pub fn get(&self, identity: &str, pair: &str) -> Option<Measured> {
        self.of(identity).find_map(|(name, measured)| (name == pair).then_some(measured))
    }

    /// All that was measured of an adapter, by the names of the pairs.
    pub fn of(&self, identity: &str) -> impl Iterator<Item = (&str, Measured)> {
        let known = self.known.iter().filter(move |known| known.adapter == identity);
        known.flat_map(|known| known.pairs.iter().map(|(pair, measured)| (pair.as_str(), *measured)))
    }

    /// What the adapter with the best gain over the processor gives for a pair, among those whose identity will do.
    pub fn best(&self, pair: &str, will_do: impl Fn(&str) -> bool) -> Option<Measured> {
        let adapters = self.known.iter().filter(|known| will_do(&known.adapter));
        let of_pair = adapters.filter_map(|known| known.pairs.get(pair).copied());
        let gain = |measured: &Measured| measured.gpu.max(measured.both) / measured.cpu;
        of_pair.max_by(|a, b| gain(a).total_cmp(&gain(b)))
    }

    /// Takes down what was measured. Rates that are no finite numbers above zero are left out.
    pub fn put(&mut self, identity: &str, pair: &str, measured: Measured) {
        if measured.is_sound() {
            put(&mut self.known, identity, pair, measured);
            put(&mut self.fresh, identity, pair, measured);
        }
    }

    /// Writes down what this run has measured, beside what others have written since it began. Of two that write in the
    /// same moment one may be lost; the file is whole in any case. Adapters that were measured longest ago make room.
    ///
    /// # Errors
    /// `Request` where no folder is known, `Io`.
    pub fn store(&mut self) -> Result<()> {
        if self.fresh.is_empty() {
            return Ok(());
        }
        let path = self.path.as_deref().ok_or_else(|| {
            let error = Error::request("the system tells of no folder for what was measured");
            error.help("set WEIGHTLIFT_CACHE to one")
        })?;
        let mut adapters = read(self.files.as_ref(), path);
        for Adapter { adapter, pairs } in &self.fresh {
            pairs.iter().for_each(|(pair, measured)| put(&mut adapters, adapter, pair, *measured));
        }
        let mut text = to_text(&adapters);
        while text.len() > LARGEST && adapters.len() > 1 {
            adapters.remove(0);
            text = to_text(&adapters);
        }
        if text.len() > LARGEST {
            text = to_text(&self.fresh);
        }
        create_folders(self.files.as_ref(), folder_of(path))?;
        let mut commit = Commit::new(self.files.clone(), true);
        commit.create(path)?.write_all_at(text.as_bytes(), 0)?;
        commit.commit(None)?;
        self.known = adapters;
        self.fresh.clear();
        Ok(())
    }
}

/// Takes a rate down, and the adapter to the end.
fn put(adapters: &mut Vec<Adapter>, identity: &str, pair: &str, measured: Measured) {
    let at = adapters.iter().position(|known| known.adapter == identity);
    let mut adapter = match at {
        Some(at) => adapters.remove(at),
        None => Adapter { adapter: identity.to_owned(), pairs: BTreeMap::new() },
    };
    adapter.pairs.insert(pair.to_owned(), measured);
    adapters.push(adapter);
}

fn to_text(adapters: &[Adapter]) -> String {
    let stored = Stored { schema: SCHEMA.to_owned(), adapters: adapters.to_vec() };
    // Texts and finite numbers always have a form in JSON.
    serde_json::to_string_pretty(&stored).map(|text| text + "\n").unwrap_or_default()
}

/// What a file says, as far as it is a cache of ours.
fn read(files: &dyn Files, path: &Path) -> Vec<Adapter> {
    let Some(bytes) = content(files, path) else { return Vec::new() };
    let mut adapters = match serde_json::from_slice::<Stored>(&bytes) {
        Ok(stored) if stored.schema == SCHEMA => stored.adapters,
        _ => return Vec::new(),
    };
    adapters.iter_mut().for_each(|known| known.pairs.retain(|_, measured| measured.is_sound()));
    adapters
}

fn content(files: &dyn Files, path: &Path) -> Option<Vec<u8>> {
    // Opening a pipe would wait for its other end.
    let stat = files.stat(path).ok().filter(|stat| stat.kind == FileKind::File)?;
    if stat.len > LARGEST as u64 {
        return None;
    }
    FileSource::open(files, path).ok()?.head(LARGEST as u64).ok()
}

fn create_folders(files: &dyn Files, folder: &Path) -> Result<()> {
    let missing = |path: &&Path| !path.as_os_str().is_empty() && files.stat(path).is_err();
    let mut missing: Vec<&Path> = folder.ancestors().take_while(missing).collect();
    while let Some(path) = missing.pop() {
        match files.create_dir(path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(Error::io("cannot create the folder", path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The folder of the cache.
fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    // A relative path would be another folder in each run.
    let absolute = |name: &str| set(name).filter(|path| path.is_absolute());
    set("WEIGHTLIFT_CACHE").or_else(|| {
        let all = if cfg!(windows) {
            absolute("LOCALAPPDATA")
        } else if cfg!(target_os = "macos") {
            absolute("HOME").map(|home| home.join("Library/Caches"))
        } else {
            absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        };
        all.map(|all| all.join("weightlift"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Measured = Measured { cpu: 2.5e9, gpu: 1.25e10, both: 1.4e10 };

    fn load(path: &Path) -> Rates {
        Rates::load_from(weightlift_io::real(), Some(path.to_path_buf()))
    }

    fn names_in(folder: &Path) -> Vec<OsString> {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn what_was_stored_is_known_to_the_next_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/new/folder/rates.json");
        let mut rates = load(&path);
        assert_eq!(rates.get("A 1.0", "f32 -> f16"), None);
        rates.put("A 1.0", "f32 -> f16", RATE);
        assert_eq!(rates.get("A 1.0", "f32 -> f16"), Some(RATE));
        rates.store().unwrap();
        let rates = load(&path);
        assert_eq!(rates.get("A 1.0", "f32 -> f16"), Some(RATE));
        assert_eq!(rates.get("A 1.0", "f32 -> bf16"), None);
        assert_eq!(rates.get("A 1.1", "f32 -> f16"), None, "another driver");
        assert_eq!(rates.of("A 1.0").collect::<Vec<_>>(), [("f32 -> f16", RATE)]);
        assert_eq!(names_in(path.parent().unwrap()), ["rates.json"], "no temporary file is left");
    }

    #[test]
    fn the_best_is_the_one_with_the_largest_gain() {
        let mut rates = Rates::load_from(weightlift_io::real(), None);
        let any = |_: &str| true;
        assert_eq!(rates.best("f32 -> f16", any), None);
        let slow = Measured { cpu: 9e9, gpu: 1e9, both: 9e9 };
        rates.put("A", "f32 -> f16", RATE);
        rates.put("B", "f32 -> f16", slow);
        rates.put("B", "f16 -> f32", slow);
        assert_eq!((rates.best("f32 -> f16", any), rates.best("f16 -> f32", any)), (Some(RATE), Some(slow)));
        assert_eq!(rates.best("f32 -> f16", |_| false), None);
    }

    #[test]
    fn what_is_no_cache_is_empty_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rates.json");
        let mut rates = load(&path);
        rates.put("A", "f32 -> f16", RATE);
        rates.store().unwrap();
        let sound = std::fs::read(&path).unwrap();
        let mut broken: Vec<Vec<u8>> = (0..sound.len() - 2).map(|end| sound[..end].to_vec()).collect();
        let text = String::from_utf8(sound.clone()).unwrap();
        broken.push(text.replace("rates/1", "rates/2").into());
        broken.push(text.replace("2500000000.0", "-1.0").into());
        broken.push(text.replace("2500000000.0", "0.0").into());
        broken.push(text.replace("2500000000.0", "1e999").into());
        broken.push(text.replace("2500000000.0", "null").into());
        broken.push(text.replace("2500000000.0", "\"fast\"").into());
        broken.push(b"\xff\xfe\0".to_vec());
        broken.push(b"[[[[".repeat(100_000));
        for bytes in broken {
            std::fs::write(&path, &bytes).unwrap();
            let mut rates = load(&path);
            assert_eq!(rates.of("A").count(), 0, "{}", String::from_utf8_lossy(&bytes[..bytes.len().min(400)]));
            rates.put("B", "f32 -> f16", RATE);
            rates.store().unwrap();
            assert_eq!(load(&path).get("B", "f32 -> f16"), Some(RATE));
        }
        std::fs::write(&path, &sound).unwrap();
        assert_eq!(load(&path).get("A", "f32 -> f16"), Some(RATE));
    }

    #[test]
    fn a_file_of_more_than_a_mebibyte_is_not_read_and_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rates.json");
        let mut rates = load(&path);
        for at in 0..100 {
            rates.put(&format!("{at} {}", "x".repeat(20_000)), "f32 -> f16", RATE);
        }
        rates.store().unwrap();
        let rates = load(&path);
        assert!(std::fs::metadata(&path).unwrap().len() <= LARGEST as u64);
        assert!(rates.known.len() > 40 && rates.known[rates.known.len() - 1].adapter.starts_with("99 "), "newest stay");
        let mut text = to_text(&[Adapter { adapter: "A".into(), pairs: [("p".to_owned(), RATE)].into() }]);
        std::fs::write(&path, &text).unwrap();
        assert_eq!(load(&path).get("A", "p"), Some(RATE));
        text.push_str(&" ".repeat(LARGEST));
        std::fs::write(&path, &text).unwrap();
        assert_eq!(load(&path).get("A", "p"), None);
    }

    #[test]
    fn two_writers_keep_what_the_other_measured() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rates.json");
        let (mut one, mut two) = (load(&path), load(&path));
        one.put("A", "f32 -> f16", RATE);
        two.put("A", "f16 -> f32", RATE);
        two.put("B", "f16 -> f32", RATE);
        one.store().unwrap();
        two.store().unwrap();
        let rates = load(&path);
        assert_eq!((rates.of("A").count(), rates.of("B").count()), (2, 1));
    }

    #[test]
    fn writers_at_the_same_time_never_leave_a_broken_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rates.json");
        let write = |name: String| {
            for round in 0..20 {
                let mut rates = load(&path);
                assert!(round == 0 || !rates.known.is_empty(), "a broken file reads as an empty one");
                rates.put(&name, "f32 -> f16", RATE);
                rates.store().unwrap();
            }
        };
        std::thread::scope(|scope| {
            (0..4).for_each(|at| drop(scope.spawn(move || write(at.to_string()))));
        });
        assert!(!load(&path).known.is_empty());
        assert_eq!(names_in(dir.path()), ["rates.json"]);
    }

    #[test]
    fn rates_that_are_none_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rates.json");
        let mut rates = load(&path);
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            rates.put("A", "f32 -> f16", Measured { gpu: wrong, ..RATE });
        }
        rates.store().unwrap();
        assert_eq!(rates.of("A").count(), 0);
        assert!(!path.exists(), "nothing to write down, nothing written");
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_an_error_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let mut rates = load(&file.join("rates.json"));
        rates.put("A", "f32 -> f16", RATE);
        let error = rates.store().unwrap_err().to_string();
        assert!(error.contains("file"), "{error}");
        let mut rates = Rates::load_from(weightlift_io::real(), None);
        rates.put("A", "f32 -> f16", RATE);
        assert!(rates.store().unwrap_err().to_string().contains("WEIGHTLIFT_CACHE"));
        assert_eq!(rates.get("A", "f32 -> f16"), Some(RATE));
    }

    #[cfg(all(unix, not(target_os = "macos")))]
    #[test]
    fn the_folder_follows_the_environment() {
        let with = |given: &[(&str, &str)]| {
            let variable = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            folder(variable).map(|folder| folder.to_string_lossy().into_owned())
        };
        let (own, xdg, home) = (("WEIGHTLIFT_CACHE", "/own"), ("XDG_CACHE_HOME", "/xdg"), ("HOME", "/home/me"));
        assert_eq!(with(&[own, xdg, home]).unwrap(), "/own");
        assert_eq!(with(&[xdg, home]).unwrap(), "/xdg/weightlift");
        assert_eq!(with(&[home]).unwrap(), "/home/me/.cache/weightlift");
        assert_eq!(with(&[("XDG_CACHE_HOME", "relative"), home]).unwrap(), "/home/me/.cache/weightlift");
        assert_eq!(with(&[("WEIGHTLIFT_CACHE", ""), home]).unwrap(), "/home/me/.cache/weightlift");
        assert_eq!(with(&[]), None);
    }
}
