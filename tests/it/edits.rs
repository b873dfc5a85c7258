//! Edits: rows, values, layout, merges, tables of names, presets and recipes, through the command.

use crate::command::{path, stderr, weightlift};
use crate::peers::{ask, judge};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weightlift::{DType, Format, Shape};
use weightlift_core::{BlobId, Manifest, WriteOptions};
use weightlift_testkit::fixture;

/// A tensor of a test: name, dtype, dimensions, bytes.
type Tensor = (&'static str, DType, Vec<u64>, Vec<u8>);

fn f32s(name: &'static str, dims: &[u64], values: impl IntoIterator<Item = f32>) -> Tensor {
    (name, DType::F32, dims.to_vec(), values.into_iter().flat_map(f32::to_le_bytes).collect())
}

/// Numbers from 0 on.
fn counted(name: &'static str, dims: &[u64]) -> Tensor {
    f32s(name, dims, (0..dims.iter().product::<u64>()).map(|at| at as f32))
}

fn write(file: PathBuf, tensors: &[Tensor]) -> PathBuf {
    let mut manifest = Manifest::default();
    for (name, dtype, dims, _) in tensors {
        manifest.add_tensor(name, *dtype, Shape::new(dims.clone()).unwrap());
    }
    let format = &weightlift_safetensors::Safetensors;
    let writer = format.create(weightlift_io::real(), &file, manifest, &WriteOptions::default()).unwrap();
    for (index, (.., bytes)) in tensors.iter().enumerate() {
        writer.write_at(BlobId(index as u32), 0, bytes).unwrap();
    }
    writer.finish().unwrap();
    file
}

/// Runs `convert` with these arguments before the output; it must succeed.
fn convert(input: &[&Path], output: &Path, steps: &[&str]) -> String {
    let mut arguments = vec!["convert"];
    arguments.extend(input.iter().map(|input| path(input)));
    arguments.extend([path(output), "--force"]);
    arguments.extend(steps);
    let done = weightlift(&arguments);
    assert!(done.status.success(), "{steps:?}: {}", stderr(&done));
    stderr(&done)
}

/// The same where it must fail; answers the message.
fn refused(input: &[&Path], output: &Path, steps: &[&str]) -> String {
    let mut arguments = vec!["convert"];
    arguments.extend(input.iter().map(|input| path(input)));
    arguments.push(path(output));
    arguments.extend(steps);
    let done = weightlift(&arguments);
    assert_eq!(done.status.code(), Some(2), "{steps:?}");
    assert!(!output.exists(), "{steps:?} left an output");
    stderr(&done)
}

/// Name, shape and bytes of every tensor.
fn contents(file: &Path) -> BTreeMap<String, (Vec<u64>, Vec<u8>)> {
    let opened = weightlift::open(file).unwrap();
    let entry = |entry: &weightlift::Entry| {
        (entry.name.clone(), (entry.shape.dims().to_vec(), opened.read(&entry.name).unwrap()))
    };
    opened.catalog().entries.iter().map(entry).collect()
}

fn floats(file: &Path, name: &str) -> Vec<f32> {
    let bytes = weightlift::open(file).unwrap().read(name).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)).collect()
}

fn names(file: &Path) -> Vec<String> {
    weightlift::open(file).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect()
}

/// 200 rows of a BERT's words are copied over others, one value is set, the scope renamed; written by both frameworks'
/// formats with one recipe.
#[test]
fn rows_a_value_and_names_as_numpy_computes_them() {
    let Some(judge) = judge("rows_a_value_and_names_as_numpy_computes_them") else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("bert.ckpt");
    let variables = json!({
        "bert/embeddings/word_embeddings": [600, 24], "bert/encoder/layer_0/output/dense/kernel": [16, 24],
        "bert/pooler/dense/bias": [24],
    });
    ask(judge, json!({"ask": "tf_save", "path": path(&source), "seed": 5, "variables": variables}));
    let from: Vec<u64> = (0..200).map(|at| (at * 7 + 3) % 600).collect();
    let to: Vec<u64> = (0..200).map(|at| (at * 11 + 5) % 600).collect();
    let list = |rows: &[u64]| rows.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let words = "bert/embeddings/word_embeddings";
    let recipe = dir.path().join("recipe.toml");
    let steps = format!(
        "[[step]]\ncopy-rows = \"{words}[{}] -> {words}[{}]\"\n[[step]]\nset = \"{words}[17, 4]=0.375\"\n\
         [[step]]\nrename = \"^bert/=model/\"\n",
        list(&from),
        list(&to)
    );
    std::fs::write(&recipe, steps).unwrap();
    let (tf, torch) = (dir.path().join("out.ckpt"), dir.path().join("out.pt"));
    convert(&[&source], &tf, &["--recipe", path(&recipe)]);
    convert(&[&source], &torch, &["--recipe", path(&recipe), "--nest", "model"]);
    let answer = ask(
        judge,
        json!({
            "ask": "rows_job", "source": path(&source), "words": words, "from": from, "to": to, "set": [17, 4, 0.375],
            "tf": path(&tf), "torch": path(&torch),
        }),
    );
    assert_eq!(answer["tensors"], 3);
}

/// The TensorFlow BERT becomes the state dict that Hugging Face's names, shapes and bytes say, ties included, and back.
#[test]
fn the_bert_preset_gives_the_state_dict_and_the_way_back_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let (tf, torch) = (fixture("tf/bert_tiny/bert_model.ckpt").path, fixture("torch/bert_tiny/pytorch_model.bin").path);
    let made = dir.path().join("bert.pt");
    convert(&[&tf], &made, &["--drop-optimizer", "--preset", "bert"]);
    assert_eq!(contents(&made), contents(&torch));
    let tied = |file: &Path, a: &str, b: &str| {
        let opened = weightlift::open(file).unwrap();
        let extents = |name: &str| opened.catalog().named(name).next().unwrap().1.extents().unwrap().to_vec();
        extents(a) == extents(b)
    };
    assert!(tied(&made, "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"));
    assert!(tied(&made, "cls.predictions.decoder.bias", "cls.predictions.bias"));

    let plain = dir.path().join("plain.ckpt");
    convert(&[&tf], &plain, &["--drop-optimizer"]);
    for source in [&made, &torch] {
        let back = dir.path().join("back.ckpt");
        convert(&[source], &back, &["--preset", "bert:reverse"]);
        assert_eq!(contents(&back), contents(&plain));
    }
    let other = fixture("torch/state_dict.pt").path;
    let message = refused(&[&other], &dir.path().join("x.pt"), &["--preset", "bert"]);
    assert!(message.contains("no rule matches any tensor"), "{message}");
}

/// Every reversible preset brings names that fit its rules there and back again.
#[test]
fn presets_are_their_own_way_back() {
    type Sample = (&'static str, &'static [u64]);
    let samples: &[(&str, &[Sample])] = &[
        (
            "albert",
            &[
                ("bert/encoder/embedding_hidden_mapping_in/kernel", &[4, 6]),
                ("bert/encoder/transformer/group_0/inner_group_0/attention_1/self/query/kernel", &[6, 5]),
                ("bert/encoder/transformer/group_0/inner_group_0/LayerNorm_1/gamma", &[6]),
                ("bert/encoder/transformer/group_0/inner_group_0/LayerNorm/gamma", &[6]),
                ("bert/encoder/transformer/group_0/inner_group_0/ffn_1/intermediate/output/dense/kernel", &[7, 6]),
                ("bert/embeddings/word_embeddings", &[9, 4]),
                ("cls/predictions/output_bias", &[9]),
            ],
        ),
        (
            "electra",
            &[
                ("electra/embeddings/word_embeddings", &[9, 4]),
                ("electra/embeddings_project/kernel", &[4, 6]),
                ("generator/encoder/layer_11/attention/self/key/kernel", &[6, 5]),
                ("discriminator_predictions/dense_1/kernel", &[6, 1]),
                ("generator_predictions/output_bias", &[9]),
            ],
        ),
        (
            "gpt2",
            &[
                ("model/wte", &[9, 4]),
                ("model/h0/attn/c_attn/w", &[1, 4, 12]),
                ("model/h10/mlp/c_proj/b", &[4]),
                ("model/h10/ln_2/g", &[4]),
                ("model/ln_f/b", &[4]),
            ],
        ),
        (
            "t5",
            &[
                ("shared/embedding", &[11, 8]),
                ("encoder/block_000/layer_000/SelfAttention/q", &[8, 6]),
                ("decoder/block_012/layer_001/EncDecAttention/o", &[6, 8]),
                ("encoder/block_000/layer_000/SelfAttention/relative_attention_bias", &[2, 32]),
                ("decoder/block_012/layer_002/DenseReluDense/wi_0/kernel", &[8, 10]),
                ("decoder/block_012/layer_002/layer_norm/scale", &[8]),
                ("decoder/final_layer_norm/scale", &[8]),
                ("decoder/logits/kernel", &[8, 11]),
            ],
        ),
    ];
    let dir = tempfile::tempdir().unwrap();
    for (preset, tensors) in samples {
        let tensors: Vec<Tensor> = tensors.iter().map(|(name, dims)| counted(name, dims)).collect();
        let source = write(dir.path().join("source.safetensors"), &tensors);
        let (there, back) = (dir.path().join("there.pt"), dir.path().join("back.safetensors"));
        convert(&[&source], &there, &["--preset", preset]);
        let (before, after) = (contents(&source), contents(&there));
        let kept: Vec<&String> = before.keys().filter(|name| after.contains_key(*name)).collect();
        assert!(kept.is_empty(), "{preset} left {kept:?} as they were");
        convert(&[&there], &back, &["--preset", &format!("{preset}:reverse")]);
        assert_eq!(contents(&back), before, "{preset}");
        std::fs::remove_file(&source).unwrap();
    }
}

/// Slots with their own shapes go, whatever the optimizer; blocks with filled-up numbers become plain ones.
#[test]
fn adafactor_slots_go_and_block_numbers_become_plain() {
    let dir = tempfile::tempdir().unwrap();
    let (source, made) = (fixture("tf/t5_names/model.ckpt-999").path, dir.path().join("t5.safetensors"));
    convert(&[&source], &made, &["--drop-optimizer", "--rename", r"block_(\d+)/layer_(\d+)=block.${1+0}.layer.${2+0}"]);
    let wanted = [
        "encoder/block.0.layer.0/SelfAttention/q",
        "encoder/block.12.layer.1/DenseReluDense/wi/kernel",
        "shared/embedding",
    ];
    assert_eq!(names(&made), wanted);
    convert(&[&source], &made, &["--drop-optimizer", "--preset", "t5"]);
    assert!(names(&made).contains(&"encoder.block.12.layer.1.DenseReluDense.wi.weight".to_owned()));
}

/// A weight that is only called like a slot is no slot.
#[test]
fn dropping_the_optimizer_never_takes_a_weight() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [
        counted("w", &[2]),
        counted("w/Adam", &[2]),
        counted("w/Adam_1", &[2]),
        counted("head/Adam", &[2]),
        counted("global_step", &[1]),
        counted("scaler.mean", &[2]),
        counted("opt.embed", &[2]),
        counted("optimizer.state.0.exp_avg", &[2]),
        counted("optimizer.proj.weight", &[2]),
        counted("scheduler.weight", &[2]),
        counted("net/global_step_embedding", &[2]),
    ];
    let source = write(dir.path().join("in.safetensors"), &tensors);
    let made = dir.path().join("out.safetensors");
    convert(&[&source], &made, &["--drop-optimizer"]);
    let mut left = names(&made);
    left.sort();
    assert_eq!(
        left,
        [
            "head/Adam",
            "net/global_step_embedding",
            "opt.embed",
            "optimizer.proj.weight",
            "scaler.mean",
            "scheduler.weight",
            "w",
        ]
    );
}

/// `bias` in the file, `biases` expected: the nearest name is hinted, and one rule mends it.
#[test]
fn a_list_of_expected_names_is_met_exactly_or_the_difference_is_listed() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [counted("a/bias", &[3]), counted("a/kernel", &[2, 3])];
    let (source, out) = (write(dir.path().join("in.safetensors"), &tensors), dir.path().join("out.safetensors"));
    let list = dir.path().join("expected.tsv");
    std::fs::write(&list, "# name, dtype, shape\na/biases\na/kernel\tf32\t[2, 3]\nlm_head\tf32\n").unwrap();
    let message = refused(&[&source], &out, &["--expect", path(&list)]);
    assert!(message.contains("3 differences"), "{message}");
    assert!(message.contains(r#""a/biases" is missing (there is "a/bias")"#), "{message}");
    assert!(
        message.contains(r#""lm_head" is missing"#) && message.contains(r#""a/bias" is not expected"#),
        "{message}"
    );
    std::fs::write(&list, "a/biases\na/kernel\tf16\t2,3\n").unwrap();
    let message = refused(&[&source], &out, &["--expect", path(&list), "--rename", "bias$=biases"]);
    assert!(message.contains(r#""a/kernel" is f32, not f16"#), "{message}");
    convert(&[&source], &out, &["--rename", "bias$=biases", "--dtype", "a/kernel=f16", "--expect", path(&list)]);
    // What ls prints is such a list.
    let listed = weightlift(&["ls", path(&out), "--json"]);
    std::fs::write(&list, listed.stdout).unwrap();
    convert(&[&out], &dir.path().join("again.safetensors"), &["--expect", path(&list)]);
}

/// Wrappers are taken off the start again and again, never out of the middle, and names that meet are an error.
#[test]
fn prefixes_come_off_the_start_only() {
    let dir = tempfile::tempdir().unwrap();
    let tensors =
        [counted("_orig_mod.module.w", &[1]), counted("a._orig_mod.b", &[1]), counted("module_list.0.w", &[1])];
    let (source, out) = (write(dir.path().join("in.safetensors"), &tensors), dir.path().join("out.pt"));
    let strip = ["--strip-prefix", "module.", "--strip-prefix", "_orig_mod."];
    convert(&[&source], &out, &strip);
    assert_eq!(names(&out), ["w", "a._orig_mod.b", "module_list.0.w"]);
    let source = write(dir.path().join("two.safetensors"), &[counted("module.w", &[1]), counted("w", &[1])]);
    let message = refused(&[&source], &dir.path().join("x.pt"), &strip[..2]);
    assert!(message.contains(r#"two tensors would be called "w""#), "{message}");
}

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

/// Rows by two vocabularies, by a table, and with everything that belongs to the words.
#[test]
fn one_row_map_goes_through_all_that_belongs_together() {
    let dir = tempfile::tempdir().unwrap();
    let source = write(
        dir.path().join("in.safetensors"),
        &[
            counted("words", &[4, 2]),
            counted("words/adam_m", &[4, 2]),
            counted("cls/output_bias", &[4]),
            counted("other", &[4, 2]),
        ],
    );
    let out = dir.path().join("out.safetensors");
    let (old, new) = (dir.path().join("old.txt"), dir.path().join("new.json"));
    std::fs::write(&old, "[PAD]\nthe\ncat\ndog\n").unwrap();
    std::fs::write(&new, r#"{"[PAD]": 0, "dog": 1, "bird": 2, "the": 3}"#).unwrap();
    let by = format!("words -> words by {},{}", path(&old), path(&new));
    convert(&[&source], &out, &["--copy-rows", &by, "--with-related"]);
    assert_eq!(floats(&out, "words"), [0., 1., 6., 7., 4., 5., 2., 3.]);
    assert_eq!(floats(&out, "words/adam_m"), [0., 1., 6., 7., 4., 5., 2., 3.]);
    assert_eq!(floats(&out, "cls/output_bias"), [0., 3., 2., 1.]);
    assert_eq!(floats(&out, "other"), floats(&source, "other"));

    let table = dir.path().join("rows.csv");
    // A mark of the byte order, as some editors write it, is none of the first line.
    std::fs::write(&table, "\u{feff}3,0\n0,3\n").unwrap();
    convert(&[&source], &out, &["--copy-rows", &format!("words -> words by {}", path(&table))]);
    assert_eq!(floats(&out, "words"), [6., 7., 2., 3., 4., 5., 0., 1.], "all reads see the state before");
    assert_eq!(floats(&out, "words/adam_m"), floats(&source, "words/adam_m"));
    let recipe = dir.path().join("recipe.toml");
    let grow = ["--resize-rows", "words=6:row:1", "--with-related"];
    let planned = weightlift(&[&["plan", path(&source), "x.safetensors", "-o", path(&recipe)], &grow[..]].concat());
    assert!(planned.status.success(), "{}", stderr(&planned));
    convert(&[&source], &out, &["--recipe", path(&recipe)]);
    assert_eq!(floats(&out, "words")[8..], [2., 3., 2., 3.]);
    assert_eq!(floats(&out, "cls/output_bias"), [0., 1., 2., 3., 1., 1.]);
    // Random numbers are no moments, and a classifier's bias belongs to no words.
    let tensors = [
        counted("words", &[4, 2]),
        counted("words/adam_v", &[4, 2]),
        counted("pair/output_bias", &[4]),
        counted("pair/output_weights", &[4, 2]),
    ];
    let source = write(dir.path().join("pair.safetensors"), &tensors);
    convert(&[&source], &out, &["--resize-rows", "words=5:normal:0.5,1", "--with-related"]);
    assert_eq!(floats(&out, "words/adam_v")[8..], [0.0, 0.0]);
    assert!(floats(&out, "words")[8..].iter().all(|value| *value != 0.0));
    assert_eq!(contents(&out)["pair/output_bias"].0, [4]);
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

/// The layouts of kernels, checked element by element: `OIHW[o][i][y][x]` is `HWIO[y][x][i][o]`.
#[test]
fn kernels_change_their_layout_by_their_kind() {
    let dir = tempfile::tempdir().unwrap();
    let source = write(
        dir.path().join("in.safetensors"),
        &[
            counted("square/kernel", &[3, 3]),
            counted("dense/kernel", &[2, 3]),
            counted("conv/kernel", &[3, 2, 4, 5]),
            counted("depth/depthwise_kernel", &[3, 3, 4, 2]),
            counted("emb/embeddings", &[6, 3]),
            counted("norm/gamma", &[3]),
        ],
    );
    let out = dir.path().join("out.safetensors");
    convert(&[&source], &out, &["--preset", "keras"]);
    let made = contents(&out);
    let shape = |name: &str| made[name].0.clone();
    assert_eq!(floats(&out, "square.weight"), [0., 3., 6., 1., 4., 7., 2., 5., 8.]);
    assert_eq!(floats(&out, "dense.weight"), [0., 3., 1., 4., 2., 5.]);
    assert_eq!(shape("conv.weight"), [5, 4, 3, 2]);
    let (before, after) = (floats(&source, "conv/kernel"), floats(&out, "conv.weight"));
    for (y, x, i, o) in
        (0..3).flat_map(|y| (0..2).flat_map(move |x| (0..4).flat_map(move |i| (0..5).map(move |o| (y, x, i, o)))))
    {
        assert_eq!(after[((o * 4 + i) * 3 + y) * 2 + x], before[((y * 2 + x) * 4 + i) * 5 + o]);
    }
    // PyTorch's channel c of a depthwise convolution is input c / multiplier.
    assert_eq!(shape("depth.weight"), [8, 1, 3, 3]);
    let (before, after) = (floats(&source, "depth/depthwise_kernel"), floats(&out, "depth.weight"));
    for (y, x, i, m) in
        (0..3).flat_map(|y| (0..3).flat_map(move |x| (0..4).flat_map(move |i| (0..2).map(move |m| (y, x, i, m)))))
    {
        assert_eq!(after[((i * 2 + m) * 3 + y) * 3 + x], before[((y * 3 + x) * 4 + i) * 2 + m]);
    }
    assert_eq!(floats(&out, "emb.weight"), floats(&source, "emb/embeddings"));
    assert_eq!(floats(&out, "norm.weight"), floats(&source, "norm/gamma"));
}

/// A rename finds what the expression says and nothing else; a dry run writes nothing.
#[test]
fn anchored_renames_leave_other_names_alone() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [counted("a/bias", &[1]), counted("a/biases_x", &[1])];
    let (source, out) = (write(dir.path().join("in.safetensors"), &tensors), dir.path().join("out.safetensors"));
    let done = weightlift(&["convert", path(&source), path(&out), "--rename", "bias$=b", "--dry-run"]);
    assert!(done.status.success() && !out.exists());
    convert(&[&source], &out, &["--rename", "bias$=b"]);
    assert_eq!(names(&out), ["a/b", "a/biases_x"]);
    let table = dir.path().join("names.tsv");
    std::fs::write(&table, "a/bias\tx\na/biases_x\ty\n").unwrap();
    convert(&[&source], &out, &["--map", path(&table)]);
    assert_eq!(names(&out), ["x", "y"]);
    std::fs::write(&table, "a/biaz\tx\n").unwrap();
    let message = refused(&[&source], &dir.path().join("x.pt"), &["--map", path(&table)]);
    assert!(message.contains(r#""a/biaz" among them"#) && message.contains("did you mean"), "{message}");
}

/// `plan -o` writes what the flags meant, and that recipe gives the same bytes; mistakes are told with their place.
#[test]
fn a_recipe_says_the_same_as_the_flags() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [counted("a/w", &[3, 2]), counted("a/m", &[3, 2]), counted("b=c", &[4])];
    let source = write(dir.path().join("in.safetensors"), &tensors);
    let (flags, recipe) = (dir.path().join("flags.safetensors"), dir.path().join("recipe.toml"));
    let steps = [
        "--exclude",
        "a/m",
        "--copy-rows",
        "a/w[2] -> a/w[0]",
        "--set",
        "b=c[1]=2.5",
        "--transpose",
        "a/w",
        "--rename",
        "/=.",
        "--dtype",
        "f16",
        "--resize-rows",
        "a.w=4:zero",
    ];
    convert(&[&source], &flags, &steps);
    let planned = weightlift(&[&["plan", path(&source), "x.safetensors", "-o", path(&recipe)], &steps[..]].concat());
    assert!(planned.status.success(), "{}", stderr(&planned));
    let by_recipe = dir.path().join("by_recipe.safetensors");
    convert(&[&source], &by_recipe, &["--recipe", path(&recipe)]);
    assert_eq!(std::fs::read(&flags).unwrap(), std::fs::read(&by_recipe).unwrap());

    let out = dir.path().join("out.safetensors");
    for (text, wanted) in [
        ("[[step]]\nrenam = \"a=b\"\n", r#"line 2, column 9: there is no step "renam" (did you mean "rename")"#),
        ("[[step]]\nrename = \"a=b\"\nexclude = \"x\"\n", "line 1, column 1: a step has one key, and this has 2"),
        ("\n[[step]]\nset = { target = \"b=c\" }\n", "needs \"value\""),
        ("[[stop]]\n", "line 1, column 3"),
        ("[[step]]\nrename = [[1]]\n", "line 2"),
    ] {
        std::fs::write(&recipe, text).unwrap();
        let message = refused(&[&source], &out, &["--recipe", path(&recipe)]);
        assert!(message.contains(wanted) && message.contains("recipe.toml"), "{text}: {message}");
    }
    std::fs::write(
        &recipe,
        "[[step]]\nset = { target = \"b=c\", value = 1 }\n[[step]]\ninclude = [\"b=c\", \"a/w\"]\n",
    )
    .unwrap();
    convert(&[&source], &out, &["--recipe", path(&recipe)]);
    assert_eq!(floats(&out, "b=c"), [1.0; 4]);
    assert_eq!(names(&out).len(), 2);
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

/// The published schema knows every word that a recipe may use, and no other.
#[test]
fn the_schema_of_recipes_knows_every_word() {
    let schema: serde_json::Value = serde_json::from_str(include_str!("../../docs/recipe.schema.json")).unwrap();
    let words = schema["properties"]["step"]["items"]["properties"].as_object().unwrap();
    let mut known: Vec<&str> = words.keys().map(String::as_str).collect();
    known.sort_unstable();
    assert_eq!(known, weightlift::Words::all().collect::<Vec<_>>());
}

/// transformers loads what the preset made of a TensorFlow BERT, and computes what NumPy computes from the original.
#[test]
fn transformers_computes_the_same_from_a_converted_bert() {
    let Some(judge) = judge("transformers_computes_the_same_from_a_converted_bert") else { return };
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("bert.ckpt");
    ask(judge, json!({"ask": "bert_tf_save", "path": path(&source), "seed": 3}));
    for file in ["pytorch_model.bin", "model.safetensors"] {
        let folder = dir.path().join(file.split('.').next_back().unwrap());
        std::fs::create_dir(&folder).unwrap();
        let mut steps = vec!["--drop-optimizer", "--preset", "bert"];
        if file.ends_with("safetensors") {
            steps.extend(["--metadata", "format=pt"]);
        }
        convert(&[&source], &folder.join(file), &steps);
        let answer = ask(judge, json!({"ask": "bert_forward", "source": path(&source), "folder": path(&folder)}));
        assert_eq!(answer["missing"], json!([]), "{file}");
        let (difference, scale) = (answer["difference"].as_f64().unwrap(), answer["scale"].as_f64().unwrap());
        assert!(difference < 1e-5 && scale > 0.1, "{file}: {difference} of {scale}");
    }
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
