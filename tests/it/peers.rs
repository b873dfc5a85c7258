//! The frameworks as judges. Tests that need them call [`judge`]; without a venv of them they are skipped with a
//! printed reason, and under `WEIGHTLIFT_PEERS=require` that is an error.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

/// A tensor as a framework reads it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub name: String,
    pub dtype: String,
    pub shape: Vec<u64>,
    pub sha256: String,
}

/// The running frameworks: one process for all tests of this binary, since importing them takes seconds.
pub struct Judge {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
}

type Seat = OnceLock<Option<Mutex<Judge>>>;

/// A venv of judges.
struct Venv {
    /// The variable that names its folder.
    variable: &'static str,
    /// Its folder in the user's cache, where the variable is not set.
    folder: &'static str,
    setup: &'static str,
}

/// The judge for the test of this name, or `None` where there is no venv of the frameworks.
pub fn judge(test: &str) -> Option<&'static Mutex<Judge>> {
    static JUDGE: Seat = OnceLock::new();
    let venv = Venv { variable: "WEIGHTLIFT_PEERS_VENV", folder: "weightlift-peers", setup: "tests/peers/setup.sh" };
    seated(&JUDGE, &venv, test)
}

/// PyTorch 1.13.1 as the judge; it answers the requests that need no other framework.
pub fn old_torch(test: &str) -> Option<&'static Mutex<Judge>> {
    static JUDGE: Seat = OnceLock::new();
    let venv = Venv {
        variable: "WEIGHTLIFT_PEERS_OLD_TORCH_VENV",
        folder: "weightlift-peers-old-torch",
        setup: "tests/peers/setup_old_torch.sh",
    };
    seated(&JUDGE, &venv, test)
}

fn seated(seat: &'static Seat, venv: &Venv, test: &str) -> Option<&'static Mutex<Judge>> {
    let judge = seat.get_or_init(|| Some(Mutex::new(start(&python(venv)?)))).as_ref();
    match judge {
        Some(_) => count(test),
        None if std::env::var("WEIGHTLIFT_PEERS").is_ok_and(|value| value == "require") => {
            panic!("{test} needs the frameworks: run {}", venv.setup)
        }
        None => eprintln!("skipped {test}: no venv of the frameworks; {} makes one", venv.setup),
    }
    judge
}

/// Asks the frameworks; an answer with an error fails the test.
pub fn ask(judge: &Mutex<Judge>, request: Value) -> Value {
    let answer = try_ask(judge, &request);
    assert!(answer["ok"] == json!(true), "{request}: {}", answer["error"]);
    answer
}

/// Asks the frameworks, whatever the answer.
pub fn try_ask(judge: &Mutex<Judge>, request: &Value) -> Value {
    let mut judge = judge.lock().unwrap_or_else(PoisonError::into_inner);
    writeln!(judge.requests, "{request}").unwrap();
    let mut line = String::new();
    judge.answers.read_line(&mut line).unwrap();
    if line.is_empty() {
        panic!("the frameworks died on {request}: {:?}", judge.child.wait());
    }
    serde_json::from_str(&line).unwrap()
}

/// The tensors of an answer, in its order.
pub fn tensors(answer: &Value) -> Vec<Seen> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let one = |tensor: &Value| Seen {
        name: text(&tensor["name"]),
        dtype: text(&tensor["dtype"]),
        shape: tensor["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap()).collect(),
        sha256: text(&tensor["sha256"]),
    };
    answer["tensors"].as_array().unwrap().iter().map(one).collect()
}

fn python(venv: &Venv) -> Option<PathBuf> {
    let venv = std::env::var_os(venv.variable).map(PathBuf::from).or_else(|| {
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
        Some(cache.join(venv.folder))
    })?;
    Some(venv.join("bin/python")).filter(|python| python.exists())
}

fn start(python: &Path) -> Judge {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/judge.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (requests, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    Judge { child, requests, answers }
}

/// Notes in the file `WEIGHTLIFT_PEERS_LOG`, if there is one, that a test ran with the frameworks.
fn count(test: &str) {
    let Some(path) = std::env::var_os("WEIGHTLIFT_PEERS_LOG") else { return };
    let mut log = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(log, "{test}").unwrap();
}

#[test]
fn the_frameworks_answer() {
    let Some(judge) = judge("the_frameworks_answer") else { return };
    let answer = ask(judge, json!({"ask": "versions"}));
    println!("judged by {}", answer["versions"]);
    assert!(try_ask(judge, &json!({"ask": "tf_load", "path": "nowhere"}))["error"].is_string());
}
