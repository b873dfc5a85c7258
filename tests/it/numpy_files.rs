//! NumPy's files: what NumPy wrote is read, what is written NumPy reads, and what it has no type for comes back.

use crate::command::{names_in, path, stderr, weightlift};
use crate::peers::{ask, judge};
use crate::safetensors_files::{file, member};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift::{DType, Files, Format, Shape};
use weightlift_core::{Manifest, ReadAt, Stat, WriteAt, WriteOptions};
use weightlift_testkit::{fixture, sha256_hex};

fn run(arguments: &[&str]) {
    let result = weightlift(arguments);
    assert!(result.status.success(), "{arguments:?}: {}", stderr(&result));
}

/// bf16, both 8-bit floats and an f32: all codes that come easily.
fn nameless(dir: &Path) -> PathBuf {
    let tensors = [
        member("layer/w", "BF16", "2,3", 0, 12),
        member("e4m3", "F8_E4M3", "256", 12, 268),
        member("e5m2", "F8_E5M2", "256", 268, 524),
        member("plain", "F32", "2", 524, 532),
    ];
    let codes: Vec<u8> = (0..=255).collect();
    let bf16: Vec<u8> =
        [0x3f80u16, 0xbf00, 0x0001, 0x7f80, 0x4049, 0x8000].iter().flat_map(|v| v.to_le_bytes()).collect();
    let plain: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    file(dir, &format!("{{{}}}", tensors.join(",")), &[bf16, codes.clone(), codes, plain].concat())
}

/// The choice is explicit, recorded, and gives the same bits back, from archives and folders.
#[test]
fn what_numpy_has_no_type_for_goes_there_and_back_bit_for_bit() {
    let dir = tempfile::tempdir().unwrap();
    let input = nameless(dir.path());
    let source = weightlift::open(&input).unwrap();
    for (target, to) in [("out.npz", "npz"), ("out", "npy")] {
        let refused = weightlift(&["convert", path(&input), path(&dir.path().join(target)), "--to", to]);
        assert_eq!(refused.status.code(), Some(2));
        assert!(stderr(&refused).contains("--npy-raw bits, f32 or ml_dtypes"), "{}", stderr(&refused));
        for form in ["bits", "ml_dtypes", "f32"] {
            let out = dir.path().join(format!("{form}-{target}"));
            let back = dir.path().join(format!("{form}-{to}.safetensors"));
            run(&["convert", path(&input), path(&out), "--to", to, "--npy-raw", form]);
            let written = weightlift::open(&out).unwrap();
            let names: Vec<&str> = written.catalog().entries.iter().map(|entry| entry.name.as_str()).collect();
            assert_eq!(names, ["layer/w", "e4m3", "e5m2", "plain"], "{form} {to}");
            let wide = written.catalog().named("layer/w").next().unwrap().1;
            let dtypes = ["--dtype", "layer/w=bf16", "--dtype", "e4m3=f8e4m3fn", "--dtype", "e5m2=f8e5m2"];
            match form {
                "f32" => {
                    assert_eq!((wide.dtype, &wide.remarks[..]), (DType::F32, &["widened from bf16".to_owned()][..]));
                    run(&[&["convert", path(&out), path(&back)], &dtypes[..]].concat());
                }
                _ => {
                    assert_eq!(wide.dtype, DType::Bf16);
                    run(&["convert", path(&out), path(&back)]);
                }
            }
            let returned = weightlift::open(&back).unwrap();
            for entry in &source.catalog().entries {
                let (before, after) = (source.read(&entry.name).unwrap(), returned.read(&entry.name).unwrap());
                let nan = |code: u8| {
                    (entry.name == "e4m3" && code & 0x7f == 0x7f) || (entry.name == "e5m2" && code & 0x7f > 0x7c)
                };
                let same = before.iter().zip(&after).all(|(a, b)| a == b || (form == "f32" && nan(*a) && nan(*b)));
                assert!(same && before.len() == after.len(), "{form} {to}: {}", entry.name);
            }
        }
    }
    let elsewhere = weightlift(&["convert", path(&input), path(&dir.path().join("x.pt")), "--npy-raw", "bits"]);
    assert!(stderr(&elsewhere).contains("--npy-raw is for NumPy's files"), "{}", stderr(&elsewhere));
}

#[test]
fn numpy_and_ml_dtypes_read_every_form() {
    let Some(judge) = judge("numpy_and_ml_dtypes_read_every_form") else { return };
    let dir = tempfile::tempdir().unwrap();
    let input = nameless(dir.path());
    let source = weightlift::open(&input).unwrap();
    let digest = |name: &str| sha256_hex(&source.read(name).unwrap());
    for form in ["bits", "ml_dtypes", "f32"] {
        let (archive, folder) = (dir.path().join(format!("{form}.npz")), dir.path().join(form));
        run(&["convert", path(&input), path(&archive), "--npy-raw", form]);
        run(&["convert", path(&input), path(&folder), "--to", "npy", "--npy-raw", form]);
        for (out, weight) in [(&archive, "layer/w"), (&folder, "layer.w")] {
            let kinds = if form == "f32" {
                json!({})
            } else {
                json!({weight: "bfloat16", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"})
            };
            let answer = ask(judge, json!({"ask": "numpy_load", "path": out, "as": kinds}));
            let found = |name: &str| -> &Value {
                answer["tensors"].as_array().unwrap().iter().find(|tensor| tensor["name"] == name).unwrap()
            };
            assert_eq!(found("plain")["sha256"], digest("plain"));
            let stored = match form {
                "bits" => ("<u2", "|u1"),
                "ml_dtypes" => ("|V2", "|V1"),
                _ => ("<f4", "<f4"),
            };
            assert_eq!(
                (found(weight)["dtype"].as_str(), found("e4m3")["dtype"].as_str()),
                (Some(stored.0), Some(stored.1))
            );
            if form == "f32" {
                continue;
            }
            for (name, original) in [(weight, "layer/w"), ("e4m3", "e4m3"), ("e5m2", "e5m2")] {
                assert_eq!(found(name)["sha256"], digest(original), "{form} {name}");
            }
            let values = found(weight)["values"].as_array().unwrap();
            assert_eq!((values[0].as_f64(), values[1].as_f64()), (Some(1.0), Some(-0.5)));
        }
    }
}

/// Every byte order, both orders of axes, every width, as NumPy wrote them, singly, in archives and as a folder.
#[test]
fn arrays_of_every_order_are_read_as_numpy_reads_them() {
    let Some(judge) = judge("arrays_of_every_order_are_read_as_numpy_reads_them") else { return };
    let dir = tempfile::tempdir().unwrap();
    let answer = ask(judge, json!({"ask": "numpy_save", "path": dir.path(), "seed": 5}));
    let folder = weightlift::open(dir.path()).unwrap();
    let archives = ["stored.npz", "deflated.npz"].map(|name| weightlift::open(dir.path().join(name)).unwrap());
    let tensors = answer["tensors"].as_array().unwrap();
    assert!(tensors.len() > 40);
    for tensor in tensors {
        let name = tensor["name"].as_str().unwrap();
        let single = weightlift::open(dir.path().join(format!("{name}.npy"))).unwrap();
        for opened in [&single, &folder, &archives[0], &archives[1]] {
            let (_, entry) = opened.catalog().named(name).next().unwrap_or_else(|| panic!("{name} is missing"));
            assert_eq!(json!(entry.shape.dims()), tensor["shape"], "{name}");
            let bytes = opened.read(name).unwrap();
            match tensor["sha256"].as_str() {
                Some(digest) => assert_eq!(sha256_hex(&bytes), digest, "{name} of {}", opened.path().display()),
                None => assert!(matches!(entry.dtype, DType::F80 | DType::C160), "{name}"),
            }
        }
    }
    // And NumPy reads all of it back, rewritten.
    let (archive, out) = (dir.path().join("again.npz"), dir.path().join("again"));
    run(&["convert", path(&dir.path().join("deflated.npz")), path(&archive)]);
    run(&["convert", path(&archive), path(&out), "--to", "npy"]);
    for written in [&archive, &out] {
        let seen = ask(judge, json!({"ask": "numpy_load", "path": written}));
        let digests = |answer: &Value| -> std::collections::BTreeMap<String, Value> {
            let tensors = answer["tensors"].as_array().unwrap().iter();
            tensors.map(|t| (t["name"].as_str().unwrap().to_owned(), t["sha256"].clone())).collect()
        };
        for (name, digest) in digests(&answer).into_iter().filter(|(_, digest)| !digest.is_null()) {
            assert_eq!(digests(&seen)[&name], digest, "{name} of {}", written.display());
        }
    }
}

/// The fixtures of single arrays: values, byte orders, orders of axes, header versions.
#[test]
fn single_arrays_have_the_values_of_the_manifest() {
    let arrays: Vec<_> =
        weightlift_testkit::fixtures().into_iter().filter(|f| f.kind == "npy" && f.expect == "ok").collect();
    assert!(arrays.len() > 12);
    for fixture in arrays {
        let opened = weightlift::open(&fixture.path).unwrap();
        let entry = &opened.catalog().entries[0];
        let expected = &fixture.tensors[0];
        assert_eq!((Some(entry.dtype), entry.shape.dims()), (expected.dtype, &expected.shape[..]), "{}", fixture.name);
        assert_eq!(Some(sha256_hex(&opened.read(&entry.name).unwrap())), expected.sha256, "{}", fixture.name);
    }
    for (name, part) in
        [("object", "Python objects, stored as a pickle, which is never run"), ("structured", "records")]
    {
        let message = weightlift::open(fixture(&format!("numpy/{name}.npy")).path).err().unwrap().to_string();
        assert!(message.contains(part) && message.contains("numeric dtype"), "{message}");
    }
}

#[test]
fn folders_keep_order_and_names_and_are_replaced_by_force_alone() {
    let dir = tempfile::tempdir().unwrap();
    let input = fixture("tf/bert_tiny/bert_model.ckpt").path;
    let out = dir.path().join("arrays");
    run(&["convert", path(&input), path(&out), "--to", "npy", "--exclude", "global_step"]);
    let (source, written) = (weightlift::open(&input).unwrap(), weightlift::open(&out).unwrap());
    let names = |opened: &weightlift::Opened| -> Vec<String> {
        opened.catalog().entries.iter().map(|entry| entry.name.clone()).filter(|name| name != "global_step").collect()
    };
    assert_eq!(names(&written), names(&source));
    for name in names(&source) {
        assert_eq!(written.read(&name).unwrap(), source.read(&name).unwrap(), "{name}");
    }
    assert!(names_in(&out).contains(&"bert.embeddings.word_embeddings.npy".to_owned()), "{:?}", names_in(&out));
    let again = weightlift(&["convert", path(&input), path(&out), "--to", "npy"]);
    assert!(stderr(&again).contains("exists already (--force replaces it)"), "{}", stderr(&again));
    run(&["convert", path(&input), path(&out), "--to", "npy", "--include", "bert/pooler/**", "--force"]);
    assert_eq!(names_in(&out).len(), 3, "two arrays and their list");
    let one = dir.path().join("w.npy");
    run(&["convert", path(&out), path(&one), "--include", "**kernel", "--to", "npy"]);
    assert_eq!(weightlift::open(&one).unwrap().catalog().entries[0].name, "w");
}

/// A file system on which zeros take no room, so that files beyond 4 GiB cost nothing.
#[derive(Debug)]
struct Holes(Arc<dyn Files>);

#[derive(Debug)]
struct HoleFile(Arc<dyn WriteAt>);

impl WriteAt for HoleFile {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize> {
        match bytes.iter().all(|&byte| byte == 0) {
            true => Ok(bytes.len()),
            false => self.0.write_at(bytes, offset),
        }
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.0.write_at(&[0], len - 1).map(drop)
    }

    fn copy_from(&self, _: u64, _: &dyn ReadAt, _: u64, _: u64) -> Result<u64> {
        Ok(0)
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

impl Files for Holes {
    fn stat(&self, path: &Path) -> Result<Stat> {
        self.0.stat(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        self.0.list(dir)
    }

    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.0.resolve(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadAt>> {
        self.0.open(path)
    }

    fn create(&self, path: &Path) -> Result<Arc<dyn WriteAt>> {
        Ok(Arc::new(HoleFile(self.0.create(path)?)))
    }

    fn is_abandoned(&self, path: &Path) -> Result<bool> {
        self.0.is_abandoned(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        self.0.sync_dir(dir)
    }

    fn free_space(&self, dir: &Path) -> Result<Option<u64>> {
        self.0.free_space(dir)
    }
}

/// An array of more than 4 GiB in an archive, and one behind it: written with zip64 records, read by us and by NumPy.
#[test]
fn archives_beyond_four_gigabytes_are_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("big.npz");
    let big = (4u64 << 30) + 4096;
    let mut manifest = Manifest::default();
    let (first, second) = (
        manifest.add_tensor("big", DType::U8, Shape::new([big]).unwrap()),
        manifest.add_tensor("small", DType::F32, Shape::new([2]).unwrap()),
    );
    let holes = Arc::new(Holes(weightlift_io::real()));
    let writer = weightlift_npy::Npz.create(holes, &out, manifest, &WriteOptions::default()).unwrap();
    let zeros = vec![0u8; 64 << 20];
    let mut at = 0;
    while at < big - 4 {
        let len = (big - 4 - at).min(zeros.len() as u64);
        writer.write_at(first, at, &zeros[..len as usize]).unwrap();
        at += len;
    }
    writer.write_at(first, big - 4, &[1, 2, 3, 4]).unwrap();
    let values: Vec<u8> = [0.5f32, -8.0].iter().flat_map(|value| value.to_le_bytes()).collect();
    writer.write_at(second, 0, &values).unwrap();
    writer.finish().unwrap();
    assert!(std::fs::metadata(&out).unwrap().len() > big);
    let opened = weightlift::open(&out).unwrap();
    let place = opened.catalog().named("small").next().unwrap().1.extents().unwrap()[0].bytes;
    assert!(place.start() > 1 << 32, "it lies behind the large one");
    assert_eq!(opened.read("small").unwrap(), values);
    let end = weightlift(&["cat", path(&out), &format!("big[{}:]", big - 4)]);
    assert_eq!(String::from_utf8_lossy(&end.stdout).trim(), "[1 2 3 4]");
    let Some(judge) = judge("archives_beyond_four_gigabytes_are_written_and_read") else { return };
    let seen = ask(judge, json!({"ask": "numpy_load", "path": out, "only": ["small"]}));
    assert_eq!(seen["tensors"][0]["values"], json!([0.5, -8.0]));
}
