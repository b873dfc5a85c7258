//! Merges: averages, what must agree, and shards of one model joined, cut and fused.

use crate::command::{path, stderr, weightlift};
use crate::edits_kit::{contents, convert, counted, f32s, floats, names, refused, write};
use std::path::Path;
use weightlift::DType;
use weightlift_testkit::fixture;

/// What is not averaged is compared before a byte is written: numbers, texts, whatever.
#[test]
fn what_must_agree_is_compared_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let strings = fixture("tf/strings/model.ckpt").path;
    let (other, out) = (dir.path().join("other.ckpt"), dir.path().join("out.ckpt"));
    convert(&[&strings, &strings], &out, &["--average"]);
    assert_eq!(contents(&out), contents(&strings));
    convert(&[&strings], &other, &["--set", "vocab/alpha=other"]);
    let message = refused(&[&strings, &other], &dir.path().join("x.ckpt"), &["--average"]);
    assert!(message.contains("vocab/alpha") && message.contains("differ in their lengths"), "{message}");
    assert!(message.contains("nothing was written"), "{message}");
    // What is left out need not agree, whether before or after.
    for steps in [["--exclude", "vocab/alpha", "--average"], ["--average", "--exclude", "vocab/alpha"]] {
        let steps: Vec<&str> = steps.iter().copied().chain(["--allow-unmatched"]).collect();
        convert(&[&strings, &other], &out, &steps);
        assert!(!names(&out).contains(&"vocab/alpha".to_owned()));
    }
    let planned = weightlift(&["plan", path(&strings), path(&strings), "x.ckpt", "--average"]);
    let planned = String::from_utf8(planned.stdout).unwrap();
    assert!(planned.contains("compare   6 tensors that all inputs must have alike"), "{planned}");
    assert!(planned.contains("reads     46.5 kB"), "{planned}");
}

/// Every element of a tensor of texts becomes one text, as TensorFlow reads it.
#[test]
fn texts_are_set_as_they_stand() {
    let dir = tempfile::tempdir().unwrap();
    let strings = fixture("tf/strings/model.ckpt").path;
    let out = dir.path().join("out.ckpt");
    convert(&[&strings], &out, &["--set", "matrix=a=b", "--set", "long_scalar=12"]);
    let shown = |name: &str| String::from_utf8(weightlift(&["cat", path(&out), name]).stdout).unwrap();
    assert_eq!(shown("matrix").matches("a=b").count(), 6, "{}", shown("matrix"));
    assert!(shown("long_scalar").contains("12"), "{}", shown("long_scalar"));
    assert_eq!(contents(&out)["bin"], contents(&strings)["bin"]);
    let message = refused(&[&strings], &dir.path().join("x.ckpt"), &["--set", "matrix[0]=x"]);
    assert!(message.contains("set as a whole"), "{message}");
    let said = convert(&[&strings], &dir.path().join("x.safetensors"), &["--set", "matrix=x"]);
    assert!(said.contains("5 tensors: a safetensors cannot hold str tensors"), "{said}");
    if let Some(judge) = crate::peers::judge("texts_are_set_as_they_stand") {
        let seen = crate::peers::ask(judge, serde_json::json!({"ask": "tf_load", "path": path(&out)}));
        assert!(seen["tensors"].as_array().unwrap().len() == 6, "{seen}");
    }
}

/// Shards of a model that was trained tensor-parallel: each tensor along its own axis, what every rank has once.
#[test]
fn ranks_are_joined_each_tensor_along_its_axis() {
    let dir = tempfile::tempdir().unwrap();
    let rank = |name: &str, from: f32, norm: f32| {
        let count = move |len: usize| (0..len).map(move |at| from + at as f32);
        let tensors = [
            f32s("h.0.up.weight", &[2, 3], count(6)),
            f32s("h.0.down.weight", &[3, 2], count(6)),
            f32s("h.0.qkv.weight", &[6, 1], count(6)),
            f32s("h.0.norm.weight", &[3], [norm, 1.0, 1.0]),
        ];
        write(dir.path().join(name), &tensors)
    };
    let (a, b) = (rank("0.safetensors", 0.0, 1.0), rank("1.safetensors", 100.0, 1.0));
    let out = dir.path().join("out.safetensors");
    // Each rank has the q, k and v of its own heads, one after the other.
    let rules = "**.up.weight=0;**.down.weight=1;**.qkv.weight=0x3";
    convert(&[&a, &b], &out, &["--join-inputs", rules]);
    assert_eq!(floats(&out, "h.0.up.weight"), [0., 1., 2., 3., 4., 5., 100., 101., 102., 103., 104., 105.]);
    assert_eq!(floats(&out, "h.0.down.weight"), [0., 1., 100., 101., 2., 3., 102., 103., 4., 5., 104., 105.]);
    assert_eq!(floats(&out, "h.0.qkv.weight"), [0., 1., 100., 101., 2., 3., 102., 103., 4., 5., 104., 105.]);
    assert_eq!(contents(&out)["h.0.norm.weight"].0, [3]);
    let (table, recipe) = (dir.path().join("axes.toml"), dir.path().join("recipe.toml"));
    let by_table = dir.path().join("table.safetensors");
    let rules = "'**.weight' = 0\n'**.norm.weight' = 'same'\n'**.down.weight' = 1\n'**.qkv.weight' = '0x3'\n";
    std::fs::write(&table, rules).unwrap();
    convert(&[&a, &b], &by_table, &["--join-inputs", path(&table)]);
    assert_eq!(contents(&by_table), contents(&out), "the last rule that selects a tensor counts");
    let inline = rules.trim_end().replace('\n', ", ");
    std::fs::write(&recipe, format!("[[step]]\njoin-inputs = {{ {inline} }}\n")).unwrap();
    convert(&[&a, &b], &by_table, &["--recipe", path(&recipe)]);
    assert_eq!(contents(&by_table), contents(&out));

    let other = rank("2.safetensors", 0.0, 2.0);
    let x = dir.path().join("x.safetensors");
    let wrong = |input: &Path, rules: &str| refused(&[&a, input], &x, &["--join-inputs", rules]);
    let message = wrong(&other, "**.up.weight=0;**.down.weight=1;**.qkv.weight=0");
    assert!(message.contains("h.0.norm.weight") && message.contains("must be the same in all inputs"), "{message}");
    assert!(wrong(&b, "**.missing=0").contains("matches no tensor"));
    assert!(wrong(&b, "**.up.weight=2").contains("no axis 2"));
    assert!(wrong(&b, "**.up.weight=0x5").contains("does not fall into 5 equal blocks"));
    assert!(wrong(&b, "**.up.weight=up").contains("write 0, 1, 0x16 or same"));
}

/// Projections that are fused head by head: row `h * 3 * d + p * d + i` of the fused is row `h * d + i` of part `p`.
#[test]
fn projections_fused_head_by_head_are_cut_and_fused_again() {
    let dir = tempfile::tempdir().unwrap();
    let (heads, d, width) = (4usize, 2usize, 3usize);
    let fused = counted("h.7.query_key_value.weight", &[(heads * 3 * d) as u64, width as u64]);
    let bias = counted("h.7.query_key_value.bias", &[(heads * 3 * d) as u64]);
    let source = write(dir.path().join("in.safetensors"), &[fused, bias]);
    let (cut, back) = (dir.path().join("cut.safetensors"), dir.path().join("back.safetensors"));
    convert(&[&source], &cut, &["--split", r"/query_key_value\.(\w+)$/={q,k,v}_proj.$1:3@0x4"]);
    let all = floats(&source, "h.7.query_key_value.weight");
    for (p, part) in ["q", "k", "v"].iter().enumerate() {
        let found = floats(&cut, &format!("h.7.{part}_proj.weight"));
        assert_eq!(found.len(), heads * d * width);
        for (row, values) in found.chunks(width).enumerate() {
            let from = (row / d * 3 * d + p * d + row % d) * width;
            assert_eq!(values, &all[from..from + width], "{part} {row}");
        }
        assert_eq!(contents(&cut)[&format!("h.7.{part}_proj.bias")].0, [(heads * d) as u64]);
    }
    convert(&[&cut], &back, &["--concat", r"(q|k|v)_proj=query_key_value@0x4"]);
    assert_eq!(contents(&back), contents(&source));
    let x = dir.path().join("x.safetensors");
    let message = refused(&[&source], &x, &["--split", "h.7.query_key_value.bias=b.{i}:3@0x7"]);
    assert!(message.contains("does not fall into 7 equal blocks"), "{message}");
    let message = refused(&[&source], &x, &["--split", "h.7.query_key_value.bias=b.{i}:5,19@0x4"]);
    assert!(message.contains("does not fall into 4 equal blocks"), "{message}");
}

/// Uneven shards are cut again as they were, without their lengths: as a step joined them, or as an input has them.
#[test]
fn shards_are_cut_again_as_they_were() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [counted("w/part_0", &[3, 2]), counted("w/part_1", &[1, 2]), counted("w/part_2", &[4, 2])];
    let source = write(dir.path().join("in.safetensors"), &tensors);
    let (whole, again) = (dir.path().join("whole.safetensors"), dir.path().join("again.safetensors"));
    let join = ["--concat", r"w/part_(\d+)=w"];
    let (set, like) = (["--set", "w[3]=9"], ["--split", "w=w/part_{i}:like"]);
    convert(&[&source], &again, &[&join[..], &set, &like].concat());
    assert_eq!(floats(&again, "w/part_1"), [9.0, 9.0]);
    assert_eq!(floats(&again, "w/part_2"), floats(&source, "w/part_2"));
    convert(&[&source], &whole, &join);
    let old = format!("old={}", path(&source));
    convert(&[&whole, Path::new(&old)], &again, &["--split", "w=w/part_{i}:like old"]);
    assert_eq!(contents(&again), contents(&source));
    // Rows that came are the last part's, and rows that went were.
    let grow = ["--resize-rows", "w=10:zero"];
    convert(&[&source], &again, &[&join[..], &grow, &like].concat());
    assert_eq!(contents(&again)["w/part_2"].0, [6, 2]);
    let x = dir.path().join("x.safetensors");
    let shrink = ["--resize-rows", "w=4"];
    let message = refused(&[&source], &x, &[&join[..], &shrink, &like].concat());
    assert!(message.contains("do not reach the last of the parts [3, 1, 4]"), "{message}");
    assert!(refused(&[&whole], &x, &like).contains("no step before joined it"));
    let message = refused(&[&source, Path::new(&old)], &x, &[&join[..], &["--split", "w=v_{i}:like old"]].concat());
    assert!(message.contains("has not the tensors that \"v_{i}\" names"), "{message}");
}

/// What steps made is told apart from what came over as it was; the plan tells what is read.
#[test]
fn the_closing_line_tells_edited_tensors_apart() {
    let dir = tempfile::tempdir().unwrap();
    let ids = ("ids", DType::I64, vec![2], vec![0; 16]);
    let tensors = [counted("w", &[4, 2]), counted("one", &[1, 3, 1]), counted("x=y", &[2]), ids];
    let source = write(dir.path().join("in.safetensors"), &tensors);
    let out = dir.path().join("out.safetensors");
    let said = convert(&[&source], &out, &["--set", "w[0]=1", "--squeeze", "one"]);
    assert!(said.contains("  as it was 1 f32, 1 i64\n  edited    2 f32\n"), "{said}");
    assert_eq!(contents(&out)["one"].0, [3]);
    convert(&[&source], &out, &["--squeeze", "one@2"]);
    assert_eq!(contents(&out)["one"].0, [1, 3]);
    let x = dir.path().join("x.safetensors");
    assert!(refused(&[&source], &x, &["--squeeze", "one@1"]).contains("has no axis 1 of 1"));
    assert!(refused(&[&source], &x, &["--squeeze", "w"]).contains("has an axis of 1"));
    // One cut for all: at the first `=` with a tensor on its left, whatever is called so on the right.
    let npy = dir.path().join("a=b.npy");
    let made = weightlift(&["cat", path(&source), "x=y", "-o", path(&npy)]);
    assert!(made.status.success(), "{}", stderr(&made));
    std::fs::write(dir.path().join("b.npy"), "no array").unwrap();
    convert(&[&source], &out, &["--set", "x=y=7", "--set", &format!("x=y={}", path(&npy))]);
    assert_eq!(floats(&out, "x=y"), [0.0, 1.0]);
    let message = refused(&[&source], &x, &["--set", "x=y=nothing.npy"]);
    assert!(message.contains("nothing.npy: ") && message.contains("there is no such file"), "{message}");
    let planned = weightlift(&["plan", path(&source), "x.pt", "--include", "{w,ids}", "--include", "one", "--json"]);
    let planned: serde_json::Value = serde_json::from_slice(&planned.stdout).unwrap();
    assert_eq!(planned["steps"][0]["tensors"], 2);
    assert_eq!(planned["steps"][1]["step"], "include one");
    assert_eq!(planned["bytes_read"], 32 + 16 + 12);
}

/// What must agree is compared too where a later step cuts or joins it.
#[test]
fn what_must_agree_is_compared_also_in_parts() {
    let dir = tempfile::tempdir().unwrap();
    let ids = |last: u8| {
        let numbers = |name, values: [u8; 2]| (name, DType::U8, vec![2], values.to_vec());
        [
            numbers("ids/part_0", [1, 2]),
            numbers("ids/part_1", [3, last]),
            numbers("mask", [0, last]),
            counted("w", &[2]),
        ]
    };
    let source = write(dir.path().join("a.safetensors"), &ids(4));
    let other = write(dir.path().join("b.safetensors"), &ids(5));
    let (out, none) = (dir.path().join("out.safetensors"), dir.path().join("none.safetensors"));
    let concat = ["--average", "--exclude", "mask", "--concat", r"ids/part_(\d+)=ids"];
    let split = ["--average", "--exclude", "ids/*", "--split", "mask=mask.{i}:2"];
    for steps in [concat, split] {
        let message = refused(&[&source, &other], &none, &steps);
        assert!(message.contains("of input 2 differ at element 1; nothing was written"), "{message}");
        convert(&[&source, &source], &out, &steps);
    }
    convert(&[&source, &source], &out, &concat);
    assert_eq!(contents(&out)["ids"], (vec![4], vec![1, 2, 3, 4]));
    // A merge reads all inputs, and says so.
    let said = convert(&[&source, &source], &out, &["--average"]);
    assert!(said.contains("4 tensors, 28 B read"), "{said}");
}

/// Tensors are cut again along the axis that they were joined along, or not at all.
#[test]
fn a_tensor_that_was_turned_is_not_cut_as_it_was_joined() {
    let dir = tempfile::tempdir().unwrap();
    let parts = [counted("w/part_0", &[1, 3]), counted("w/part_1", &[2, 3])];
    let source = write(dir.path().join("a.safetensors"), &parts);
    let out = dir.path().join("out.safetensors");
    let (join, cut) = (r"w/part_(\d+)=w", "w=w/part_{i}:like");
    for steps in [
        ["--concat", join, "--transpose", "w", "--split", cut],
        ["--concat", join, "--reshape", "w=3,3,1", "--split", cut],
        ["--concat", join, "--slice", "w[:,0]", "--split", cut],
    ] {
        let message = refused(&[&source], &out, &steps);
        assert!(message.contains("no step before joined it"), "{steps:?}: {message}");
    }
    convert(&[&source, &source], &out, &["--join-inputs", "w/part_1=1", "--split", "w/part_1=p{i}:like"]);
    assert_eq!(contents(&out)["p1"], contents(&source)["w/part_1"]);
}
