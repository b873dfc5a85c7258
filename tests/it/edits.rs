//! Edits: values, layout, merges, through the command.

use crate::command::{path, stderr, weightlift};
use crate::edits_kit::{Tensor, contents, convert, counted, f32s, floats, refused, write};
use std::path::{Path, PathBuf};
use weightlift::DType;

/// Integers are never averaged: equal ones are kept, different ones are an error.
#[test]
fn integers_are_kept_in_a_merge_and_must_agree() {
    let dir = tempfile::tempdir().unwrap();
    let ids = |last: i64| {
        let bytes = (0..76).chain([last]).flat_map(i64::to_le_bytes).collect();
        ("position_ids", DType::I64, vec![1, 77], bytes)
    };
    let input = |name: &str, last, value| write(dir.path().join(name), &[ids(last), f32s("w", &[2], [value, 1.0])]);
    let (a, b, c) = (input("a.safetensors", 76, 1.0), input("b.safetensors", 76, 3.0), input("c.safetensors", 77, 3.0));
    let out = dir.path().join("out.safetensors");
    convert(&[&a, &b], &out, &["--average=0.05,0.95"]);
    let ids_of = |file: &Path| weightlift::open(file).unwrap().read("position_ids").unwrap();
    assert_eq!(ids_of(&out), ids_of(&a));
    assert_eq!(floats(&out, "w"), [0.05f32 * 1.0 + 0.95f32 * 3.0, 0.05f32 + 0.95f32]);
    let message = refused(&[&a, &c], &dir.path().join("x.safetensors"), &["--average"]);
    assert!(
        message.contains("position_ids") && message.contains("differ") && message.contains("element 76"),
        "{message}"
    );
}

/// An average has the dtype of its inputs, though it is computed in f32; a difference is a sum with weights.
#[test]
fn an_average_keeps_the_dtype() {
    let dir = tempfile::tempdir().unwrap();
    let halves = |name: &str, bits: [u16; 3]| {
        write(dir.path().join(name), &[("w", DType::F16, vec![3], bits.iter().flat_map(|b| b.to_le_bytes()).collect())])
    };
    // 1, 2, 65504; 2, 2, 65504; 3, 2, 65504
    let inputs = [
        halves("a.safetensors", [0x3c00, 0x4000, 0x7bff]),
        halves("b.safetensors", [0x4000, 0x4000, 0x7bff]),
        halves("c.safetensors", [0x4200, 0x4000, 0x7bff]),
    ];
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    let out = dir.path().join("out.safetensors");
    convert(&inputs, &out, &["--average"]);
    let opened = weightlift::open(&out).unwrap();
    assert_eq!(opened.catalog().entries[0].dtype, DType::F16);
    assert_eq!(opened.read("w").unwrap(), [0x00, 0x40, 0x00, 0x40, 0xff, 0x7b]);
    convert(&inputs[..2], &out, &["--average=1,-1"]);
    assert_eq!(weightlift::open(&out).unwrap().read("w").unwrap(), [0x00, 0xbc, 0, 0, 0, 0]);
    // Three times the largest value is beyond f16, and that is told as with any cast.
    let message = refused(&inputs, &dir.path().join("x.safetensors"), &["--average=1,1,1"]);
    assert!(message.contains("out of range"), "{message}");
}

/// Rules that match too much or nothing, and inputs that nothing uses.
#[test]
fn steps_that_cannot_be_meant_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = write(
        dir.path().join("in.safetensors"),
        &[
            counted("w", &[4, 2]),
            counted("v", &[3, 2]),
            counted("p.0", &[1, 2]),
            counted("p.2", &[1, 2]),
            counted("=", &[2]),
            ("ids", DType::I32, vec![2], vec![0; 8]),
        ],
    );
    let other = write(dir.path().join("other.safetensors"), &[counted("w", &[4, 2])]);
    let out = dir.path().join("out.safetensors");
    let one = |steps: &[&str]| refused(&[&source], &out, steps);
    for (steps, wanted) in [
        (&["--copy-rows", "w[0] -> v[3]"][..], "axis 0 of size 3"),
        (&["--copy-rows", "w[0,1] -> v[0]"], "2 rows for 1 places"),
        (&["--copy-rows", "w[0,1] -> v[1,1]"], "row 1 is the target of two copies"),
        (&["--copy-rows", "w -> v"], "write 'A[3,5,7] -> B[0:3]'"),
        (&["--set", "w[0]=v"], "has shape [2]"),
        (&["--set", "ww=1"], r#"did you mean "w""#),
        (&["--set", "w=nothing.npy"], "nothing.npy"),
        (&["--set", "w=x::v"], "no input is called \"x\""),
        (&["--add", "w=v"], "there is such a tensor"),
        (&["--resize-rows", "w=9:blue"], "zero, mean, normal:STD,SEED or row:K"),
        (&["--concat", r"p\.(\d+)=p"], "part 1 is missing"),
        (&["--concat", r"(p)\.(\d+)=q"], "2 groups are left"),
        (&["--split", "w=w.{i}:3,3"], "are not the 4 of axis 0"),
        (&["--split", "w=w.{i}:9"], "has no 9 parts"),
        (&["--transpose", "w:0,0"], "no order of the 2"),
        (&["--reshape", "w=3,-1"], "cannot become"),
        (&["--slice", "w"], "has no slice"),
        (&["--concat", r"p\.(2)=p"], "the first part is missing"),
        (&["--concat", r"p\.(\d)=p@-1"], "axes are counted from 0"),
        (&["--resize-rows", "w=9"], "a fill is needed for more"),
        (&["--copy-rows", "w[] -> w[]"], "there is no row to copy"),
        (&["--set", "ids[0]=w[0,0]"], "integers are not made of it"),
        (&["--average"], "more than one input"),
        (&["--map", "missing.tsv"], "missing.tsv"),
        (&["--preset", "berd"], "albert, bert"),
    ] {
        let message = one(steps);
        assert!(message.contains(wanted), "{steps:?}: {message}");
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    let message = refused(&[&source, &other], &out, &[]);
    assert!(message.contains("no step uses input 2"), "{message}");
    let message = refused(&[&source, &other], &out, &["--average"]);
    assert!(message.contains("input 2 lacks 5 tensors of the first"), "{message}");
    // What was changed in the first alone is not averaged with what was not in the others.
    let message = refused(&[&other, &other], &out, &["--transpose", "w", "--average"]);
    assert!(message.contains("was changed before --average"), "{message}");
    let message = refused(&[&other, &other, &other], &out, &["--set", "w=1e-60"]);
    assert!(message.contains("so small that it would become 0"), "{message}");
    // The first `=` with a tensor on its left cuts, so a tensor called `=` can be set.
    convert(&[&source], &out, &["--set", "==7"]);
    assert_eq!(floats(&out, "="), [7.0, 7.0]);
}

/// Shards with uneven rows are joined in the order of numbers, not of text, and cut again as they were.
#[test]
fn uneven_shards_are_joined_by_number_and_cut_again() {
    let dir = tempfile::tempdir().unwrap();
    let lengths: Vec<u64> = (0..12).map(|at| 1 + at % 3).collect();
    let names_of: Vec<&'static str> = (0..12).map(|at| &*format!("w/part_{at}").leak()).collect();
    let tensors: Vec<Tensor> = names_of
        .iter()
        .zip(&lengths)
        .enumerate()
        .map(|(at, (name, rows))| f32s(name, &[*rows, 2], (0..rows * 2).map(|i| (at * 100) as f32 + i as f32)))
        .collect();
    let source = write(dir.path().join("in.safetensors"), &tensors);
    let (joined, cut) = (dir.path().join("joined.safetensors"), dir.path().join("cut.safetensors"));
    convert(&[&source], &joined, &["--concat", r"w/part_(\d+)=w"]);
    let expected: Vec<f32> = names_of.iter().flat_map(|name| floats(&source, name)).collect();
    assert_eq!(floats(&joined, "w"), expected);
    let parts = lengths.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    convert(&[&joined], &cut, &["--split", &format!("w=w/part_{{i}}:{parts}")]);
    assert_eq!(contents(&cut), contents(&source));
}

/// The outputs of every edit are the same whatever the number of threads.
#[test]
fn edits_do_not_depend_on_threads() {
    let dir = tempfile::tempdir().unwrap();
    let big = f32s("w", &[3000, 301], (0..3000 * 301).map(|at| (at % 977) as f32 * 0.01));
    let source = write(dir.path().join("in.safetensors"), &[big]);
    let other = write(dir.path().join("o.safetensors"), &[f32s("w", &[3000, 301], (0..903_000).map(|at| at as f32))]);
    let steps = [
        "--average=0.3,0.7",
        "--resize-rows",
        "w=3500:normal:0.02,7",
        "--copy-rows",
        "w[0:1000] -> w[2000:3000]",
        "--transpose",
        "w",
    ];
    let run = |threads: &str| {
        let out = dir.path().join(format!("{threads}.safetensors"));
        convert(&[&source, &other], &out, &[&steps[..], &["--threads", threads]].concat());
        std::fs::read(out).unwrap()
    };
    let one = run("1");
    assert!(["2", "3", "8"].iter().all(|threads| run(threads) == one));
}

/// A checkpoint may be its own output, also of edits that read and write the same tensor.
#[test]
fn an_edit_may_replace_its_input() {
    let dir = tempfile::tempdir().unwrap();
    let source = write(dir.path().join("in.safetensors"), &[counted("w", &[4, 2])]);
    let done = weightlift(&["convert", path(&source), path(&source), "--copy-rows", "w[0:4] -> w[3,2,1,0]"]);
    assert!(done.status.success(), "{}", stderr(&done));
    assert_eq!(floats(&source, "w"), [6., 7., 4., 5., 2., 3., 0., 1.]);
    let other = write(dir.path().join("other.safetensors"), &[counted("w", &[4, 2])]);
    let done = weightlift(&["convert", path(&other), path(&source), path(&source), "--average", "--force"]);
    assert_eq!(done.status.code(), Some(2), "another input is never replaced");
}

/// Equal tensors that the file holds apart become one, others stay two; what cannot tie says so.
#[test]
fn equal_tensors_are_found_and_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let nearly = f32s("nearly", &[600, 4], (0..2400).map(|at| if at == 2399 { 0.0 } else { at as f32 }));
    let tensors = [counted("embed", &[600, 4]), nearly, counted("lm_head", &[600, 4]), counted("flat", &[2400])];
    let source = write(dir.path().join("in.safetensors"), &tensors);
    let (plain, made) = (dir.path().join("plain.pt"), dir.path().join("out.pt"));
    convert(&[&source], &plain, &[]);
    let said = convert(&[&source], &made, &["--dedupe"]);
    assert!(said.contains("equal values are stored once: lm_head = embed\n"), "{said}");
    assert_eq!(contents(&made), contents(&plain));
    let bytes = |file: &Path| std::fs::metadata(file).unwrap().len();
    assert!(bytes(&plain) - bytes(&made) > 9000, "{} {}", bytes(&plain), bytes(&made));
    let message = refused(&[&source], &dir.path().join("x.npz"), &["--dedupe"]);
    assert!(message.contains("holds every tensor by itself"), "{message}");
}

/// Lists of rows and numbers of parts that would not fit into memory are refused, whatever a tensor without elements
/// claims; so are numbers that only infinity is near to.
#[test]
fn numbers_out_of_all_reason_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [("z", DType::F32, vec![1 << 60, 0], Vec::new()), counted("w", &[4, 3]), counted("a->b", &[2, 3])];
    let source = write(dir.path().join("in.safetensors"), &tensors);
    let out = dir.path().join("out.safetensors");
    for (steps, wanted) in [
        (["--split", "z=z.{i}:1000000000000"], "1000000000000 parts are more than"),
        (["--copy-rows", "z[0:1000000000000] -> z[0:1000000000000]"], "rows, each of which is kept in memory"),
        (["--set", "w=1e400"], "is no value of f32: it is out of range"),
        (["--set", "w[0]=-1e9999"], "is no value of f32: it is out of range"),
    ] {
        let message = refused(&[&source], &out, &steps);
        assert!(message.contains(wanted), "{steps:?}: {message}");
    }
    let message = refused(&[&source, &source], &out, &["--average=1e39,1"]);
    assert!(message.contains("weight 1e39 is out of range of f32"), "{message}");
    std::fs::write(dir.path().join("names.tsv"), "# nothing yet\n").unwrap();
    let table = dir.path().join("names.tsv");
    let message = refused(&[&source], &out, &["--map", path(&table)]);
    assert!(message.contains("the table has no names"), "{message}");
    convert(&[&source], &out, &["--set", "w[0]=-inf", "--copy-rows", "a->b[0] -> a->b[1]"]);
    assert_eq!(floats(&out, "a->b"), [0.0, 1.0, 2.0, 0.0, 1.0, 2.0]);
    assert_eq!(floats(&out, "w")[..3], [f32::NEG_INFINITY; 3]);
}
