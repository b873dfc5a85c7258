//! Arrays as NumPy printed them, and `cat` from file to output.

use super::element::{Elements, Value, decode};
use super::exact::FloatFormat;
use super::target::Target;
use super::values::{Store, Values};
use super::{CatArgs, print_text, run};
use serde_json::Value as Json;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weightlift::Opened;
use weightlift_convert::Selection;
use weightlift_core::{DType, Entry, EntryId, Files, KeyPath, Kind, OpenOptions, ReadAt, Shape, Stat, WriteAt};
use weightlift_testkit::{fixture, fixtures};

/// Arrays and what NumPy 2.4.6 and ml_dtypes 0.6.0 print for them; `make_cases.py` beside it wrote them.
const CASES: &str = include_str!("testdata/cases.txt");

struct Case {
    dtype: DType,
    shape: Shape,
    precision: u16,
    bytes: Vec<u8>,
    text: String,
}

fn cases() -> Vec<Case> {
    let parse = |case: &str| {
        let (head, text) = case.split_once('\n').unwrap();
        let [dtype, dims, precision, hex] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("{head}") };
        let dims: Vec<u64> = dims.split('x').filter(|dim| *dim != "-").map(|dim| dim.parse().unwrap()).collect();
        let bytes = hex.as_bytes().chunks(2).filter(|pair| *pair != b"-");
        let bytes = bytes.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect();
        let (dtype, precision) = (dtype.parse().unwrap(), precision.parse().unwrap());
        Case { dtype, shape: Shape::new(dims).unwrap(), precision, bytes, text: format!("{}\n", text.trim_end()) }
    };
    format!("\n{CASES}").split("\n== ").skip(1).map(parse).collect()
}

fn args(checkpoint: &Path, names: &[&str]) -> CatArgs {
    let name = names.iter().map(|name| (*name).to_owned()).collect();
    let checkpoint = checkpoint.to_path_buf();
    CatArgs {
        checkpoint,
        name,
        output: None,
        json: false,
        all: false,
        precision: 8,
        objects: false,
        force: false,
        opening: super::super::args::OpenArgs::default(),
    }
}

/// Prints an array whose elements are `values` over and over.
fn printed(dtype: DType, shape: &Shape, precision: u16, values: &[Value]) -> String {
    let elements = values.iter().cycle().take(shape.elements() as usize).cloned().collect();
    let entry = Entry::absent(KeyPath::flat("w"), dtype, shape.clone(), "in memory");
    let target = Target { id: EntryId(0), slice: None, selection: Selection::whole(shape) };
    let kind = Elements::of(dtype).unwrap_or(Elements::Text);
    let mut values = Values { target: &target, entry: &entry, elements: kind, store: Store::Memory(elements) };
    let mut out = Vec::new();
    print_text(&CatArgs { precision, ..args(Path::new(""), &["w"]) }, 0, &mut values, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn arrays_look_as_numpy_prints_them() {
    let cases = cases();
    assert!(cases.len() > 300);
    let mut wrong = Vec::new();
    for Case { dtype, shape, precision, bytes, text } in &cases {
        let shown = printed(*dtype, shape, *precision, &decode(*dtype, bytes).unwrap());
        if shown != *text {
            wrong.push(format!("{dtype} {shape} precision {precision}\nnumpy:\n{text}here:\n{shown}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {} differ, as\n{}",
        wrong.len(),
        cases.len(),
        wrong[..wrong.len().min(5)].join("\n")
    );
}

#[test]
fn strings_look_as_numpy_prints_them() {
    let values = |texts: &[&str]| texts.iter().map(|text| Value::Text(text.as_bytes().to_vec())).collect::<Vec<_>>();
    let show = |dims: &[u64], texts: &[&str]| printed(DType::Str, &Shape::new(dims).unwrap(), 8, &values(texts));
    assert_eq!(show(&[2], &["a", "bb"]), "[b'a' b'bb']\n");
    assert_eq!(show(&[], &["it's"]), "b\"it's\"\n");
    assert_eq!(show(&[0], &[]), "[]\n");
    assert_eq!(show(&[2, 1], &["a", ""]), "[[b'a']\n [b'']]\n");
    let long = "x".repeat(80);
    assert_eq!(show(&[2], &[&long, "y"]), format!("[b'{long}'\n b'y']\n"));
    let summary = show(&[1001], &["a"]);
    assert_eq!(summary, "[b'a' b'a' b'a' ... b'a' b'a' b'a']\n");
}

/// Runs `cat` on a checkpoint; answers what it prints and its notes.
fn cat(args: &CatArgs) -> anyhow::Result<(String, Vec<String>)> {
    let opened = weightlift::open(&args.checkpoint)?;
    let mut out = Vec::new();
    let notes = run(args, &opened, &mut out)?;
    Ok((String::from_utf8(out).unwrap(), notes))
}

fn printed_of(checkpoint: &Path, name: &str) -> String {
    cat(&args(checkpoint, &[name])).unwrap().0
}

fn json_of(checkpoint: &Path, name: &str) -> Json {
    json_in(&weightlift::open(checkpoint).unwrap(), name)
}

fn json_in(opened: &Opened, name: &str) -> Json {
    let mut out = Vec::new();
    run(&CatArgs { json: true, ..args(Path::new(""), &[name]) }, opened, &mut out).unwrap();
    serde_json::from_slice(&out).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn error_of(args: &CatArgs) -> String {
    format!("{:#}", cat(args).unwrap_err())
}

/// Writes a safetensors file of one tensor called `w`.
fn one_tensor(folder: &Path, dtype: &str, dims: &[u64], bytes: &[u8]) -> PathBuf {
    let end = bytes.len();
    let header = format!(r#"{{"w":{{"dtype":"{dtype}","shape":{dims:?},"data_offsets":[0,{end}]}}}}"#);
    let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), bytes].concat();
    let path = folder.join("one.safetensors");
    std::fs::write(&path, file).unwrap();
    path
}

/// `0, 1, 2, …` as i32.
fn counting(count: u64) -> Vec<u8> {
    (0..count).flat_map(|number| (number as i32).to_le_bytes()).collect()
}

/// The numbers and texts of nested lists, in order.
fn flat(json: &Json) -> Vec<Json> {
    match json {
        Json::Array(items) => items.iter().flat_map(flat).collect(),
        other => vec![other.clone()],
    }
}

/// Whether two values are the same one of a dtype. The manifest writes numbers as f64, odd strings as hexadecimal digits.
fn is_same(shown: &Json, wanted: &Json, dtype: DType) -> bool {
    if let Some(hex) = wanted.get("$bytes_hex").and_then(Json::as_str) {
        let text = shown.as_str().map(|text| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>());
        return shown.get("hex").and_then(Json::as_str).or(text.as_deref()) == Some(hex);
    }
    let (Some(format), Some(a), Some(b)) = (FloatFormat::of(dtype), shown.as_f64(), wanted.as_f64()) else {
        return shown == wanted;
    };
    let half_a_gap =
        (b.abs() * 2f64.powi(-(format.precision as i32))).max(2f64.powi(format.min_exponent.max(-1074)) / 2.0);
    // JSON is parsed here with an error of one gap of f64.
    (a - b).abs() <= half_a_gap.max(b.abs() * f64::EPSILON) && a.is_sign_negative() == b.is_sign_negative()
}

#[test]
fn values_are_those_the_frameworks_read() {
    let (mut tensors, mut dtypes) = (0, std::collections::HashSet::new());
    for fixture in fixtures().iter().filter(|fixture| fixture.expect == "ok") {
        let Ok(opened) = weightlift::open(&fixture.path) else { continue };
        for tensor in &fixture.tensors {
            let Some(Json::Array(values)) = tensor.raw.get("values") else { continue };
            let elements: u64 = tensor.shape.iter().product();
            let mut found = opened.catalog().named(&tensor.name);
            let (Some((_, entry)), None) = (found.next(), found.next()) else { continue };
            if elements > 16 || entry.extents().is_err() || (entry.dtype.is_opaque() && entry.dtype != DType::Str) {
                continue;
            }
            let json = json_in(&opened, &tensor.name);
            assert_eq!(json["shape"], serde_json::json!(tensor.shape), "{} {}", fixture.name, tensor.name);
            let (shown, wanted) = (flat(&json["values"]), values.iter().flat_map(flat).collect::<Vec<_>>());
            let same =
                shown.len() == wanted.len() && shown.iter().zip(&wanted).all(|(a, b)| is_same(a, b, entry.dtype));
            assert!(same, "{} {}: {shown:?} {wanted:?}", fixture.name, tensor.name);
            tensors += 1;
            dtypes.insert(entry.dtype);
        }
    }
    assert!(tensors > 300 && dtypes.len() > 25, "only {tensors} tensors of {} dtypes were compared", dtypes.len());
}

#[test]
fn slices_of_files_are_what_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = one_tensor(folder.path(), "I32", &[3, 4, 5], &counting(60));
    let expected: &[(&str, &str)] = &[
        ("w[1, 2, 3]", "33\n"),
        ("w[-1, -1]", "[55 56 57 58 59]\n"),
        ("w[0:2, ::-1, 4]", "[[19 14  9  4]\n [39 34 29 24]]\n"),
        (
            "w[..., 1:5:2]",
            "[[[ 1  3]\n  [ 6  8]\n  [11 13]\n  [16 18]]\n\n [[21 23]\n  [26 28]\n  [31 33]\n  [36 38]]\n\n \
                          [[41 43]\n  [46 48]\n  [51 53]\n  [56 58]]]\n",
        ),
        ("w[::-2, 0, ::-3]", "[[44 41]\n [ 4  1]]\n"),
        ("w[2:1]", "[]\n"),
        ("w[:, 9:]", "[]\n"),
    ];
    for (name, text) in expected {
        assert_eq!(printed_of(&path, name), *text, "{name}");
    }
    assert_eq!(json_of(&path, "w[2:1]")["values"], serde_json::json!([]));
    assert_eq!(json_of(&path, "w[0:2, 2:1]")["values"], serde_json::json!([[], []]));
    assert_eq!(json_of(&path, "w[0, 0, 1]")["values"], serde_json::json!(1));
    assert!(error_of(&args(&path, &["w[3]"])).contains("index 3 is out of range for axis 0 of size 3"));
    assert!(error_of(&args(&path, &["v"])).contains("did you mean \"w\""));
}

/// Cuts that make blocks of every kind: several last axes, a part of an axis, single elements far apart.
#[test]
fn large_parts_come_block_by_block() {
    let folder = tempfile::tempdir().unwrap();
    let dims = [40u64, 70, 90];
    let path = one_tensor(folder.path(), "I32", &dims, &counting(dims.iter().product()));
    let range = |start: i64, step: i64, count: i64| (0..count).map(move |at| start + at * step).collect::<Vec<_>>();
    let selections = [
        ("w", range(0, 1, 40), range(0, 1, 70), range(0, 1, 90)),
        ("w[::-1, ::-1, ::-1]", range(39, -1, 40), range(69, -1, 70), range(89, -1, 90)),
        ("w[1::13, 5:6, 3::40]", range(1, 13, 3), range(5, 1, 1), range(3, 40, 3)),
        ("w[:, 69::-23, 80:20:-7]", range(0, 1, 40), range(69, -23, 4), range(80, -7, 9)),
    ];
    for (name, first, second, third) in selections {
        let expected: Vec<Json> = first
            .iter()
            .flat_map(|i| second.iter().map(move |j| (i * 70 + j) * 90))
            .flat_map(|row| third.iter().map(move |k| Json::from(row + k)))
            .collect();
        assert!(flat(&json_of(&path, name)["values"]) == expected, "{name}");
    }
}

/// A file system that counts the bytes read.
#[derive(Debug, Clone)]
struct Counting {
    inner: Arc<dyn Files>,
    read: Arc<AtomicU64>,
}

impl ReadAt for CountingFile {
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let count = self.inner.read_at(buf, offset)?;
        self.read.fetch_add(count as u64, Ordering::SeqCst);
        Ok(count)
    }
}

/// A file of it.
#[derive(Debug)]
struct CountingFile {
    inner: Arc<dyn ReadAt>,
    read: Arc<AtomicU64>,
}

impl Files for Counting {
    fn stat(&self, path: &Path) -> io::Result<Stat> {
        self.inner.stat(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<OsString>> {
        self.inner.list(dir)
    }

    fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        self.inner.resolve(path)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(CountingFile { inner: self.inner.open(path)?, read: self.read.clone() }))
    }

    fn create(&self, path: &Path) -> io::Result<Arc<dyn WriteAt>> {
        self.inner.create(path)
    }

    fn is_abandoned(&self, path: &Path) -> io::Result<bool> {
        self.inner.is_abandoned(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.inner.remove(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.inner.sync_dir(dir)
    }

    fn free_space(&self, dir: &Path) -> io::Result<Option<u64>> {
        self.inner.free_space(dir)
    }
}

#[test]
fn only_what_is_shown_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = one_tensor(folder.path(), "I32", &[1000, 1000], &counting(1_000_000));
    let files = Counting { inner: weightlift_io::real(), read: Arc::default() };
    for (name, most, text) in [
        ("w", 64 << 10, "999997 999998 999999]]\n"),
        ("w[500, 10:12]", 16, "[500010 500011]\n"),
        ("w[:, 3:5]", 64 << 10, " [999003 999004]]\n"),
    ] {
        let opened = weightlift::open_in(Arc::new(files.clone()), &path, &OpenOptions::default()).unwrap();
        files.read.store(0, Ordering::SeqCst);
        let mut out = Vec::new();
        run(&args(&path, &[name]), &opened, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with(text), "{name}");
        let read = files.read.load(Ordering::SeqCst);
        assert!(read > 0 && read <= most, "{name}: {read} bytes");
    }
}

#[test]
fn all_prints_what_a_summary_leaves_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = one_tensor(folder.path(), "I32", &[1200], &counting(1200));
    assert_eq!(printed_of(&path, "w"), "[   0    1    2 ... 1197 1198 1199]\n");
    let all = cat(&CatArgs { all: true, ..args(&path, &["w"]) }).unwrap().0;
    assert_eq!(all.split_whitespace().count(), 1201);
    assert!(all.starts_with("[   0    1    2    3") && !all.contains("..."));
}

#[test]
fn packed_elements_are_cut_between_bytes() {
    let folder = tempfile::tempdir().unwrap();
    // 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
    let bytes: Vec<u8> = (0..8).map(|pair| (2 * pair) | (2 * pair + 1) << 4).collect();
    let path = one_tensor(folder.path(), "F4", &[4, 4], &bytes);
    assert_eq!(printed_of(&path, "w"), "[[0 0.5 1 1.5]\n [2 3 4 6]\n [-0 -0.5 -1 -1.5]\n [-2 -3 -4 -6]]\n");
    assert_eq!(printed_of(&path, "w[1:3, 1:4]"), "[[3 4 6]\n [-0.5 -1 -1.5]]\n");
    assert_eq!(printed_of(&path, "w[::-1, 3]"), "[-6 -1.5 6 1.5]\n");
    assert_eq!(printed_of(&path, "w[3, 3]"), "-6\n");
}

#[test]
fn strings_of_tensorflow_are_decoded() {
    let path = fixture("tf/strings/model.ckpt").path;
    assert_eq!(json_of(&path, "matrix[2]")["values"], json_of(&path, "matrix")["values"][2]);
    let text = printed_of(&path, "matrix");
    assert!(text.starts_with("[[b'") && text.ends_with("']]\n"), "{text}");
    assert_eq!(printed_of(&path, "empty_scalar"), "b''\n");
    let error = error_of(&args(&fixture("tf/variant/model.ckpt").path, &["list"]));
    assert!(error.contains("opaque, ") && error.contains("variant"), "{error}");
}

#[test]
fn whole_tensors_are_verified_and_parts_say_so() {
    let sound = fixture("tf/foo_dense/model.ckpt").path;
    assert!(cat(&args(&sound, &["foo"])).unwrap().1.is_empty());
    assert!(cat(&args(&sound, &["foo[::-1]"])).unwrap().1.is_empty());
    let notes = cat(&args(&sound, &["foo[0]"])).unwrap().1;
    assert_eq!(notes, ["foo: not verified, its checksum covers more than what was read"]);
    let broken = fixture("tf/bad_flip_data/model.ckpt").path;
    let error = cat(&args(&broken, &["layer_0/weight"])).unwrap_err();
    let error = error.downcast_ref::<weightlift_core::Error>().unwrap();
    assert_eq!(error.kind(), Kind::Checksum, "{error}");
    assert!(cat(&args(&broken, &["layer_0/weight[0]"])).is_ok());
    let json = CatArgs { json: true, ..args(&broken, &["layer_0/weight"]) };
    assert!(error_of(&json).contains("checksum"));
}

#[test]
fn several_tensors_bear_their_names() {
    let path = fixture("tf/foo_dense/model.ckpt").path;
    let (text, notes) = cat(&args(&path, &["dense/bias", "foo[0, 1:]"])).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines[0], lines[2], lines[3]), ("dense/bias f32 [4]", "", "foo[0, 1:] f32 [2]"));
    assert_eq!(notes.len(), 1);
    let (text, _) = cat(&CatArgs { json: true, ..args(&path, &["dense/bias", "foo"]) }).unwrap();
    let names = text.lines().map(|line| serde_json::from_str::<Json>(line).unwrap()["name"].clone());
    assert_eq!(names.collect::<Vec<_>>(), ["dense/bias", "foo"]);
}

#[test]
fn json_has_every_value() {
    let folder = tempfile::tempdir().unwrap();
    let floats = [0.1f32, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 16_777_216.0, 1e-45, 3.4e38];
    let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    let path = one_tensor(folder.path(), "F32", &[2, 4], &bytes);
    let (text, _) = cat(&CatArgs { json: true, ..args(&path, &["w[:, ::-1]"]) }).unwrap();
    assert_eq!(
        text,
        "{\"schema\": \"weightlift.cat/1\", \"name\": \"w\", \"dtype\": \"f32\", \"shape\": [2, 4], \
         \"slice\": \":, ::-1\", \"values\": [[\"-Infinity\", \"Infinity\", \"NaN\", 0.1], \
         [3.4e38, 1.0e-45, 16777216.0, -0.0]]}\n"
    );
    let path = one_tensor(folder.path(), "U64", &[1], &u64::MAX.to_le_bytes());
    assert_eq!(json_of(&path, "w")["values"], serde_json::json!([u64::MAX]));
    let path = one_tensor(folder.path(), "F32", &[2_000_000, 0], &[]);
    assert!(error_of(&CatArgs { json: true, ..args(&path, &["w"]) }).contains("no elements in 2000000 lists"));
    assert_eq!(printed_of(&path, "w"), "[]\n");
}

#[test]
fn arrays_are_written_for_numpy() {
    let folder = tempfile::tempdir().unwrap();
    let (out, text) = (folder.path().join("x.npy"), folder.path().join("x.txt"));
    let path = one_tensor(folder.path(), "I32", &[300, 400], &counting(120_000));
    let to = |output: &Path, name: &str| CatArgs { output: Some(output.to_path_buf()), ..args(&path, &[name]) };
    let (printed, notes) = cat(&to(&out, "w")).unwrap();
    assert!(printed.is_empty() && notes.len() == 1 && notes[0].contains("i32 [300, 400], 480128 bytes"), "{notes:?}");
    let file = std::fs::read(&out).unwrap();
    let header = weightlift_npy::header(DType::I32, &Shape::new([300, 400]).unwrap()).unwrap();
    assert!(file.strip_prefix(header.as_slice()) == Some(&counting(120_000)));

    assert!(error_of(&to(&out, "w")).contains("exists already"));
    cat(&CatArgs { force: true, ..to(&out, "w[-1, ::-399]") }).unwrap();
    let file = std::fs::read(&out).unwrap();
    let last: Vec<u8> = [119_999i32, 119_600].iter().flat_map(|number| number.to_le_bytes()).collect();
    assert_eq!(file[file.len() - 8..], last);
    assert_eq!(file.len(), 128 + 8);

    assert!(error_of(&to(&text, "w")).contains("ends in .npy"));
    assert!(error_of(&CatArgs { name: vec!["w".into(), "w[0]".into()], ..to(&out, "w") }).contains("2 tensors"));
    one_tensor(folder.path(), "BF16", &[1], &[0, 0]);
    let error = error_of(&to(&folder.path().join("y.npy"), "w"));
    assert!(error.contains("bf16") && error.contains("convert --dtype f32"), "{error}");
    assert!(!folder.path().join("y.npy").exists());
}

#[test]
fn narrow_integers_become_bytes_of_the_same_value() {
    let path = fixture("tf/dtypes_all/model.ckpt").path;
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.npy");
    for (name, values) in
        [("dt/int4", [0, 1, 0xf8, 7, 3]), ("dt/uint2", [0, 1, 0, 3, 1]), ("dt/qint8", [0, 1, 0x80, 127, 63])]
    {
        cat(&CatArgs { output: Some(out.clone()), force: true, ..args(&path, &[name]) }).unwrap();
        assert_eq!(std::fs::read(&out).unwrap()[128..], values, "{name}");
    }
}
