//! Presets: names and layouts between models, and what transformers makes of the result.

use crate::command::path;
use crate::edits_kit::{Tensor, contents, convert, counted, floats, names, refused, write};
use crate::peers::{ask, judge};
use serde_json::json;
use std::path::Path;
use weightlift_testkit::fixture;

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
            counted("sep/depthwise_kernel", &[3, 3, 4, 2]),
            counted("sep/pointwise_kernel", &[1, 1, 8, 5]),
            counted("sep/bias", &[5]),
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
    // A separable convolution is a depthwise one and a pointwise one, which has the bias.
    assert_eq!(floats(&out, "sep.depthwise.weight"), floats(&out, "depth.weight"));
    let (before, after) = (floats(&source, "sep/pointwise_kernel"), floats(&out, "sep.pointwise.weight"));
    assert_eq!(shape("sep.pointwise.weight"), [5, 8, 1, 1]);
    assert!((0..8).all(|i| (0..5).all(|o| after[o * 8 + i] == before[i * 5 + o])));
    assert_eq!(shape("sep.pointwise.bias"), [5]);
    assert_eq!(floats(&out, "emb.weight"), floats(&source, "emb/embeddings"));
    assert_eq!(floats(&out, "norm.weight"), floats(&source, "norm/gamma"));
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
