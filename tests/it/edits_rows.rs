//! Rows: copied, added, taken away, with what belongs to them.

use crate::command::{path, stderr, weightlift};
use crate::edits_kit::{contents, convert, counted, f32s, floats, refused, write};
use crate::peers::{ask, judge};
use serde_json::json;

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

/// What belongs to the rows of another tensor, or of another checkpoint, comes from what belongs to the source there.
#[test]
fn slots_come_from_the_slots_of_the_source() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = |first: f32| {
        let from =
            |dims: &[u64]| (0..dims.iter().product::<u64>()).map(move |at| first + at as f32).collect::<Vec<_>>();
        [
            f32s("words", &[3, 2], from(&[3, 2])),
            f32s("words/adam_m", &[3, 2], from(&[3, 2])),
            f32s("new", &[3, 2], from(&[3, 2]).into_iter().map(|value| -value)),
            f32s("new/adam_m", &[3, 2], from(&[3, 2]).into_iter().map(|value| -value)),
            f32s("cls/output_bias", &[3], from(&[3])),
            f32s("cls/output_bias/adam_m", &[3], from(&[3])),
        ]
    };
    let source = write(dir.path().join("a.safetensors"), &tensors(0.0));
    let other = write(dir.path().join("b.safetensors"), &tensors(100.0));
    let out = dir.path().join("out.safetensors");
    let old = format!("old={}", path(&other));
    let inputs = [source.as_path(), std::path::Path::new(&old)];
    convert(&inputs, &out, &["--copy-rows", "old::words[2] -> words[0]", "--with-related"]);
    for name in ["words", "words/adam_m"] {
        assert_eq!(floats(&out, name), [104., 105., 2., 3., 4., 5.], "{name}");
    }
    for name in ["cls/output_bias", "cls/output_bias/adam_m"] {
        assert_eq!(floats(&out, name), [102., 1., 2.], "{name}");
    }
    // In one file the slots of the source are those of the tensor that bears its name.
    let pair = write(dir.path().join("pair.safetensors"), &tensors(0.0)[..4]);
    convert(&[&pair], &out, &["--copy-rows", "new[2] -> words[0]", "--with-related"]);
    for name in ["words", "words/adam_m"] {
        assert_eq!(floats(&out, name), [-4., -5., 2., 3., 4., 5.], "{name}");
    }
    let message =
        refused(&[&source], &dir.path().join("x.pt"), &["--copy-rows", "new[2] -> words[0]", "--with-related"]);
    assert!(message.contains("cls/output_bias") && message.contains("has nothing like it"), "{message}");
}

/// Rows of a PyTorch training checkpoint: the states of Adam, which have numbers for names, grow and move along, and
/// training goes on.
#[test]
fn adams_states_follow_the_rows_of_their_parameter() {
    let Some(judge) = judge("adams_states_follow_the_rows_of_their_parameter") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (source, made) = (dir.path().join("train.pt"), dir.path().join("edited.pt"));
    let words = "model.words.weight";
    for (groups, tied, head) in [("one", true, ""), ("decay", true, ""), ("one", false, "model.head.weight")] {
        ask(judge, json!({"ask": "training_save", "path": path(&source), "groups": groups, "tied": tied}));
        let mut copied = vec![[3, 0], [7, 11]];
        let resize = format!("{words}=12:zero");
        let mut steps = vec!["--with-related", "--resize-rows", &resize];
        let bias = "model.head.bias=12:zero";
        let (head_resize, copy) = (format!("{head}=12:zero"), format!("{words}[3,7] -> {words}[0,11]"));
        steps.extend(["--resize-rows", bias]);
        if head.is_empty() {
            steps.extend(["--copy-rows", &copy]);
        } else {
            // The head has weights of its own: it grows by its own rule, and nothing is copied in it.
            steps.extend(["--resize-rows", &head_resize]);
            copied.clear();
        }
        let bias_copy = "model.head.bias[3,7] -> model.head.bias[0,11]";
        if !copied.is_empty() {
            steps.extend(["--copy-rows", bias_copy]);
        }
        convert(&[&source], &made, &steps);
        let request = json!({
            "ask": "training_resumes", "source": path(&source), "path": path(&made), "groups": groups, "tied": tied,
            "words": 12, "rows": copied,
        });
        assert!(ask(judge, request)["states"].as_u64().unwrap() >= 8);
    }
    // Two parameters of one shape, in groups of their own: which state is whose nobody can say.
    ask(judge, json!({"ask": "training_save", "path": path(&source), "groups": "decay", "tied": false}));
    let message = refused(
        &[&source],
        &dir.path().join("x.pt"),
        &["--resize-rows", "model.words.weight=12:zero", "--with-related"],
    );
    assert!(message.contains("2 groups number the parameters in another order"), "{message}");
    convert(&[&source], &made, &["--drop-optimizer", "--resize-rows", "model.words.weight=12:zero", "--with-related"]);
}

/// What an optimizer keeps in another shape than its weight is said, not passed over.
#[test]
fn states_that_do_not_fit_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.safetensors");
    let tensors = [counted("emb", &[4, 2]), counted("emb/adam_m", &[3, 2]), counted("emb/adam_v", &[4, 2])];
    let source = write(dir.path().join("tf.safetensors"), &tensors);
    let steps = ["--resize-rows", "emb=6:zero", "--with-related"];
    let said = convert(&[&source], &out, &steps);
    assert!(
        said.contains("\"emb/adam_m\" of shape [3, 2] does not fit \"emb\" of [4, 2] and stays as it is"),
        "{said}"
    );
    assert_eq!(floats(&out, "emb/adam_v").len(), 12);
    let tensors = [counted("emb", &[4, 2]), counted("optimizer.state.0.exp_avg", &[3, 2])];
    let source = write(dir.path().join("torch.safetensors"), &tensors);
    let said = convert(&[&source], &out, &steps);
    assert!(said.contains("no state of \"optimizer\" has the shape of \"emb\", [4, 2]; none goes along"), "{said}");
}
