//! Recipes: the same as flags, with the places of mistakes.

use crate::command::{path, stderr, weightlift};
use crate::edits_kit::{convert, counted, floats, names, refused, write};

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
        ("[[step]]\nrenam = \"a=b\"\n", r#"line 2, column 1: there is no step "renam" (did you mean "rename")"#),
        ("[[step]]\nrename = \"a=b\"\nexclude = \"x\"\n", "line 1, column 1: a step has one key, and this has 2"),
        ("\n[[step]]\nset = { target = \"b=c\" }\n", "needs \"value\""),
        ("[[stop]]\n", "line 1, column 3"),
        ("[[step]]\nrename = [[1]]\n", "line 2"),
        ("[[step]]\ndtype = [\"f16\",\n  \"f17\"]\n", "line 3, column 3: --dtype f17"),
        ("[[step]]\nrename = \"m$=n\"\n[[step]]\ninclude = [\"a/w\", \"zz\"]\n", "line 4, column 19: --include \"zz\""),
        (
            "\n[[step]]\n  copy-rows = \"a/w[7] -> a/w[0]\"\n",
            "line 3, column 15: tensor \"a/w\": index 7 is out of range",
        ),
        ("[[step]]\ncopy-rows = { rule = \"x\", with-related = 1 }\n", "with-related is true or false"),
        ("allow-unmatched = 1\n", "line 1, column 19: allow-unmatched is true or false"),
        ("allow_unmatched = true\n", "there is no key \"allow_unmatched\"; a recipe has [[step]] and allow-unmatched"),
        ("[[step]]\nweights = \"emma\"\n", "write raw or ema"),
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

    // What may match nothing is said for one step, or for all; and plan -o keeps it with the step it was said of.
    std::fs::write(&recipe, "[[step]]\nstrip-prefix = \"zz.\"\nallow-unmatched = true\n[[step]]\nexclude = \"a/m\"\n")
        .unwrap();
    convert(&[&source], &out, &["--recipe", path(&recipe)]);
    let again = dir.path().join("again.toml");
    let planned = weightlift(&["plan", path(&source), "x.pt", "--recipe", path(&recipe), "-o", path(&again)]);
    assert!(planned.status.success(), "{}", stderr(&planned));
    std::fs::write(&recipe, std::fs::read_to_string(&again).unwrap() + "[[step]]\nexclude = \"zz\"\n").unwrap();
    let message = refused(&[&source], &dir.path().join("x.pt"), &["--recipe", path(&recipe)]);
    assert!(message.contains("--exclude \"zz\"") && message.contains("recipe.toml"), "{message}");
    let all = String::from("allow-unmatched = true\n") + &std::fs::read_to_string(&recipe).unwrap();
    std::fs::write(&recipe, all).unwrap();
    convert(&[&source], &out, &["--recipe", path(&recipe)]);
    assert_eq!(names(&out), ["a/w", "b=c"]);
}

/// The published schema knows every word that a recipe may use, and no other.
#[test]
fn the_schema_of_recipes_knows_every_word() {
    let schema: serde_json::Value = serde_json::from_str(include_str!("../../docs/recipe.schema.json")).unwrap();
    let words = schema["properties"]["step"]["items"]["properties"].as_object().unwrap();
    let mut known: Vec<&str> = words.keys().map(String::as_str).filter(|word| *word != "allow-unmatched").collect();
    known.sort_unstable();
    assert_eq!(known, weightlift::Words::all().collect::<Vec<_>>());
}

/// A list of nothing is a slip, not a step: an empty include would keep everything.
#[test]
fn an_empty_list_is_no_step() {
    let dir = tempfile::tempdir().unwrap();
    let source = write(dir.path().join("in.safetensors"), &[counted("w", &[2])]);
    let recipe = dir.path().join("recipe.toml");
    for word in ["include", "rename", "average"] {
        std::fs::write(&recipe, format!("[[step]]\n{word} = []\n")).unwrap();
        let message = refused(&[&source], &dir.path().join("x.pt"), &["--recipe", path(&recipe)]);
        assert!(
            message.contains("line 2, column") && message.contains(&format!("{word} = [] says nothing")),
            "{message}"
        );
    }
}

/// The plan says what each rule of a preset matched, and which names of a table none bears.
#[test]
fn plan_counts_the_matches_of_single_rules() {
    let dir = tempfile::tempdir().unwrap();
    let source =
        write(dir.path().join("in.safetensors"), &[counted("a/kernel", &[2, 2]), counted("b/kernel", &[2, 2])]);
    let (rules, table) = (dir.path().join("own.toml"), dir.path().join("names.tsv"));
    let own = "about = \"x\"\n[[rule]]\nfrom = \"{n}/kernel\"\nto = \"{n}.weight\"\n[[rule]]\nfrom = \"{n}/bias\"\nto = \"{n}.bias\"\n";
    std::fs::write(&rules, own).unwrap();
    std::fs::write(&table, "a.weight\tc\nzz\td\n").unwrap();
    let steps = ["--preset", path(&rules), "--map", path(&table), "--allow-unmatched"];
    let planned = weightlift(&[&["plan", path(&source), "x.pt"], &steps[..]].concat());
    let planned = String::from_utf8(planned.stdout).unwrap();
    for wanted in ["{n}/kernel -> {n}.weight: 2 tensors", "{n}/bias -> {n}.bias: 0 tensors", "\"zz\": 0 tensors"] {
        assert!(planned.contains(wanted), "{wanted}: {planned}");
    }
    // Widths that no number has, and axes that became one and cannot be told apart again.
    let merged = own.replace("weight\"\n", "weight\"\nmerge = true\n");
    for (text, suffix, wanted) in [
        (own.replacen("{n}", "{#n:70000}", 1), "", "has a width that is no number up to 20"),
        (merged, ":reverse", "has no way back"),
    ] {
        std::fs::write(&rules, text).unwrap();
        let message =
            refused(&[&source], &dir.path().join("x.pt"), &["--preset", &format!("{}{suffix}", path(&rules))]);
        assert!(message.contains(wanted), "{message}");
    }
}
