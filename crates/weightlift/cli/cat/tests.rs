//! Arrays as NumPy printed them, and `cat` from file to output.

use super::element::{Elements, Value, decode};
use super::slice::{Selection, Target};
use super::values::{Store, Values};
use super::{CatArgs, print_json, print_text, run};
use std::path::Path;
use tempfile::TempDir;
use weightlift_core::{DType, Entry, EntryId, KeyPath, Shape};

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
        Case { dtype, shape: Shape::new(dims).unwrap(), precision, bytes, text: text.to_owned() }
    };
    format!("\n{CASES}")
        .split("\n== ")
        .skip(1)
        .map(parse)
        .map(|mut case| {
            case.text = format!("{}\n", case.text.trim_end_matches('\n'));
            case
        })
        .collect()
}

fn args(checkpoint: &Path, names: &[&str]) -> CatArgs {
    let name = names.iter().map(|name| (*name).to_owned()).collect();
    let checkpoint = checkpoint.to_path_buf();
    CatArgs { checkpoint, name, output: None, json: false, all: false, precision: 8, force: false }
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
