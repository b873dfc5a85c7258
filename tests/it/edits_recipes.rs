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
