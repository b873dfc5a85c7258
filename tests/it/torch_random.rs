//! Random objects that PyTorch saves, rewritten here, compared by PyTorch.

use crate::peers::{ask, judge};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use weightlift::{CastRule, DType, Opened, Plan, Result, SaveOptions};

/// How many objects. A failure names the seed: it is the file's name.
const COUNT: u64 = 300;

/// Rewrites a file, unchanged and cast. What calls functions of its own is refused unless that is asked for.
fn rewrite(source: &Path, refused: &mut u32) -> Result<Vec<(PathBuf, Option<&'static str>)>> {
    let opened = weightlift::open(source)?;
    let halves = Plan::new().cast(CastRule::floats_to(DType::F16));
    let written = [(Plan::new(), None), (halves, Some("float16"))].into_iter().map(|(plan, cast)| {
        let output = source.with_extension(cast.unwrap_or("same"));
        save(&opened, &plan, &output, refused)?;
        Ok((output, cast))
    });
    written.collect()
}

fn save(opened: &Opened, plan: &Plan, output: &Path, refused: &mut u32) -> Result<()> {
    let mut save = SaveOptions { to: Some("pt".into()), ..SaveOptions::default() };
    match opened.save(plan, output, &save) {
        Err(error) if error.message().contains("call torch_objects.called, which") => {
            *refused += 1;
            save.options.output.keep_calls = true;
            opened.save(plan, output, &save).map(drop)
        }
        other => other.map(drop),
    }
}

#[test]
fn random_objects_come_back_as_pytorch_saved_them() {
    let Some(judge) = judge("random_objects_come_back_as_pytorch_saved_them") else { return };
    let dir = tempfile::tempdir().unwrap();
    let answer = ask(judge, json!({"ask": "torch_random", "dir": dir.path(), "first": 0, "count": COUNT}));
    let saved = answer["saved"].as_array().unwrap();
    assert!(saved.len() as u64 > COUNT * 9 / 10);
    let (mut files, mut wrong, mut refused) = (Vec::new(), Vec::new(), 0);
    for one in saved {
        let source = Path::new(one.as_str().unwrap());
        match rewrite(source, &mut refused) {
            Ok(written) => files.push(json!([source, written])),
            // There was nothing to write.
            Err(error) if error.to_string().contains("no tensor is left") => {}
            Err(error) => wrong.push(error.to_string()),
        }
    }
    assert!(refused > 5, "only {refused} objects were refused");
    let answer = ask(judge, json!({"ask": "torch_same", "files": files}));
    wrong.extend(answer["wrong"].as_array().unwrap().iter().map(Value::to_string));
    assert!(wrong.is_empty(), "{} differences: {:#?}", wrong.len(), &wrong[..wrong.len().min(40)]);
}
