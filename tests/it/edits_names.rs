//! Names: tables, prefixes, what is expected, what optimizers and averages are called.

use crate::command::{path, weightlift};
use crate::edits_kit::{contents, convert, counted, f32s, floats, names, refused, write};
use std::path::Path;
use weightlift_testkit::fixture;

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
    std::fs::write(&table, r#"{"a/bias": "x", "a/biases_x": "y", "a/bias": "z"}"#).unwrap();
    let message = refused(&[&source], &dir.path().join("x.pt"), &["--map", path(&table)]);
    assert!(message.contains(r#""a/bias" stands twice"#), "{message}");
    std::fs::write(&table, "a/biaz\tx\n").unwrap();
    let message = refused(&[&source], &dir.path().join("x.pt"), &["--map", path(&table)]);
    assert!(message.contains(r#""a/biaz" among them"#) && message.contains("did you mean"), "{message}");
}

/// What went is counted by kind, and a training checkpoint keeps no hollow optimizer.
#[test]
fn a_dropped_optimizer_is_named_and_leaves_no_hollow() {
    let dir = tempfile::tempdir().unwrap();
    let source = fixture("torch/training.pt").path;
    let (out, flat) = (dir.path().join("out.pt"), dir.path().join("out.safetensors"));
    let said = convert(&[&source], &out, &["--drop-optimizer"]);
    assert!(said.contains("--drop-optimizer dropped 12 tensors: 4 step, 4 exp_avg, 4 exp_avg_sq"), "{said}");
    let objects = |file: &Path| String::from_utf8(weightlift(&["cat", path(file), "--objects"]).stdout).unwrap();
    assert!(objects(&source).contains("optimizer") && objects(&source).contains("epoch"));
    assert!(!objects(&out).contains("optimizer") && !objects(&out).contains("param_groups"), "{}", objects(&out));
    assert!(objects(&out).contains("epoch: 3") && objects(&out).contains("scheduler"));
    convert(&[&source], &flat, &["--drop-optimizer"]);
    assert_eq!(contents(&flat), contents(&out));
    // A part of it that stays keeps the container.
    convert(&[&source], &out, &["--exclude", "optimizer.state.{1,2,3}.*"]);
    assert!(objects(&out).contains("param_groups"), "{}", objects(&out));
    let tf = fixture("tf/adam_slots/model.ckpt-3").path;
    let said = convert(&[&tf], &dir.path().join("x.ckpt"), &["--drop-optimizer"]);
    assert!(said.contains("2 Adam, 2 Adam_1, 2 ExponentialMovingAverage, 1 global_step"), "{said}");
}

/// Averages take the place of their weights, or go; which of both is told, and a choice that is not there is an error.
#[test]
fn raw_or_averaged_weights_are_chosen_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.ckpt");
    let tf = fixture("tf/adam_slots/model.ckpt-3").path;
    let before = contents(&tf);
    for (choice, from) in [("raw", "dense/kernel"), ("ema", "dense/kernel/ExponentialMovingAverage")] {
        let said = convert(&[&tf], &out, &["--weights", choice, "--drop-optimizer"]);
        assert!(said.contains(&format!("--weights {choice}: ")), "{said}");
        assert_eq!(contents(&out)["dense/kernel"], before[from]);
        assert_eq!(names(&out), ["dense/bias", "dense/kernel"]);
    }
    let trees = fixture("torch/two_trees.pt").path;
    let made = dir.path().join("out.pt");
    let before = contents(&trees);
    for (choice, from) in [("raw", "params.first.weight"), ("ema", "params_ema.first.weight")] {
        convert(&[&trees], &made, &["--weights", choice]);
        assert_eq!(contents(&made)["params.first.weight"], before[from]);
        assert!(!names(&made).iter().any(|name| name.contains("ema")));
        let objects = String::from_utf8(weightlift(&["cat", path(&made), "--objects"]).stdout).unwrap();
        assert!(!objects.contains("params_ema") && objects.contains("dims"), "{objects}");
        convert(&[&trees], &made, &["--weights", choice, "--key", "auto"]);
        assert_eq!(contents(&made)["first.weight"], before[from]);
    }
    let message = refused(&[&trees], &dir.path().join("x.pt"), &["--key", "auto"]);
    assert!(message.contains("--weights raw or ema"), "{message}");
    let plain = fixture("torch/state_dict.pt").path;
    for choice in ["raw", "ema"] {
        let message = refused(&[&plain], &dir.path().join("x.pt"), &["--weights", choice]);
        assert!(message.contains("there are no averages beside the weights"), "{message}");
    }
    // Names without their dots, as some trainers keep them; a counter goes; what has no average is named.
    let tensors = [
        counted("state_dict.model.a.b.w", &[2]),
        counted("state_dict.model.free", &[2]),
        f32s("state_dict.model_ema.abw", &[2], [5.0, 6.0]),
        f32s("state_dict.model_ema.decay", &[], [0.5]),
    ];
    let source = write(dir.path().join("ldm.safetensors"), &tensors);
    let (made, planned) = (dir.path().join("ldm_ema.safetensors"), ["--weights", "ema"]);
    let said = convert(&[&source], &made, &planned);
    assert!(said.contains(r#"1 have none and stay: "state_dict.model.free""#), "{said}");
    assert_eq!(floats(&made, "state_dict.model.a.b.w"), [5.0, 6.0]);
    assert_eq!(names(&made).len(), 2);
    let shown = weightlift(&["plan", path(&source), "x.safetensors", "--weights", "ema"]);
    assert!(String::from_utf8(shown.stdout).unwrap().contains("averages take the place of 1 tensor"));
    // Only averages: there is nothing else to take.
    let source = write(dir.path().join("only.safetensors"), &[counted("w/ExponentialMovingAverage", &[2])]);
    convert(&[&source], &made, &planned);
    assert_eq!(names(&made), ["w"]);
    assert!(refused(&[&source], &dir.path().join("x.npz"), &["--weights", "raw"]).contains("only averages"));
}

/// Keras' optimizer holds the weights themselves, and may be what the object graph reaches them by.
#[test]
fn weights_that_the_optimizer_of_keras_holds_are_not_dropped_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (source, out) = (fixture("tf/keras_adam/ckpt-2").path, dir.path().join("out.ckpt"));
    let said = convert(&[&source], &out, &["--drop-optimizer"]);
    assert!(
        said.contains("dropped 15 tensors: 1 _iterations, 1 _learning_rate, 12 _variables, 1 save_counter"),
        "{said}"
    );
    let (before, after) = (contents(&source), contents(&out));
    for at in 0..6 {
        let name = format!("optimizer/_trainable_variables/{at}/.ATTRIBUTES/VARIABLE_VALUE");
        assert_eq!(after[&name], before[&name]);
    }
}

/// Averages in lists belong to the parameters in their order, or it is said why nobody knows.
#[test]
fn averages_in_lists_are_those_of_the_parameters_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (made, none) = (dir.path().join("out.safetensors"), dir.path().join("none.safetensors"));
    let list = |last: &'static str, dims: &[u64]| {
        vec![
            counted("model.emb.weight", &[3, 2]),
            counted("model.bn.running_mean", &[2]),
            counted("model.fc.weight", &[2]),
            f32s("ema.shadow_params.0", &[3, 2], [9.0; 6]),
            counted(last, dims),
            f32s("ema.decay", &[], [0.9]),
            counted("ema.collected_params.0", &[3, 2]),
        ]
    };
    let source = write(dir.path().join("in.safetensors"), &list("ema.shadow_params.1", &[2]));
    for (choice, first) in [("ema", 9.0), ("raw", 0.0)] {
        convert(&[&source], &made, &["--weights", choice]);
        assert_eq!(floats(&made, "model.emb.weight")[0], first);
        let kept: Vec<String> = contents(&made).into_keys().collect();
        assert_eq!(kept, ["model.bn.running_mean", "model.emb.weight", "model.fc.weight"]);
    }
    for (last, dims, wanted) in [
        (
            "ema.shadow_params.1",
            &[3][..],
            "\"ema.shadow_params.1\" has shape [3], and \"model.fc.weight\" has shape [2]",
        ),
        ("ema.other", &[1], "it has 1 averages, and there are 2 parameters"),
    ] {
        let source = write(dir.path().join(format!("{}.safetensors", dims[0])), &list(last, dims));
        let message = refused(&[&source], &none, &["--weights", "ema"]);
        assert!(message.contains(wanted) && message.contains("list \"ema.shadow_params\""), "{message}");
    }
    let alone = write(dir.path().join("alone.safetensors"), &[counted("shadow_params.0", &[2])]);
    let message = refused(&[&alone], &none, &["--weights", "ema"]);
    assert!(message.contains("there are no parameters that it could be of"), "{message}");
    let keras = [
        counted("optimizer/_trainable_variables/0", &[2]),
        f32s("optimizer/_model_variables_moving_average/0", &[2], [5.0; 2]),
    ];
    let source = write(dir.path().join("keras.safetensors"), &keras);
    convert(&[&source], &made, &["--weights", "ema"]);
    assert_eq!((names(&made).len(), floats(&made, "optimizer/_trainable_variables/0")), (1, vec![5.0; 2]));
}
