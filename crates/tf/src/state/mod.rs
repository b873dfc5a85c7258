//! The text file `checkpoint` that names the latest checkpoint of a folder.
//!
//! It is a protocol buffer in text form:
//!
//! ```text
//! model_checkpoint_path: "ckpt-4"
//! all_model_checkpoint_paths: "ckpt-3"
//! all_model_checkpoint_paths: "ckpt-4"
//! all_model_checkpoint_timestamps: 1700000000.5
//! all_model_checkpoint_timestamps: 1700000060.25
//! last_preserved_timestamp: 1699999999.0
//! ```
//!
//! Relative paths count from the folder of the file.

mod text;

use text::Value;
use weightlift_core::{Error, Result};

/// The name of the file.
pub const FILE_NAME: &str = "checkpoint";

/// What the file says.
///
/// ```
/// use weightlift_tf::state::StateFile;
/// let state = StateFile::parse(b"model_checkpoint_path: \"ckpt-4\"").unwrap();
/// assert_eq!(state.latest, "ckpt-4");
/// assert_eq!(StateFile::parse(state.to_text().as_bytes()).unwrap(), state);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StateFile {
    /// `model_checkpoint_path`: the prefix to load.
    pub latest: String,
    /// `all_model_checkpoint_paths`: those kept, oldest first.
    pub all: Vec<String>,
    /// `all_model_checkpoint_timestamps`: seconds since 1970 of each.
    pub timestamps: Vec<f64>,
    /// `last_preserved_timestamp`.
    pub last_preserved: Option<f64>,
}

impl StateFile {
    /// Reads the text. Fields that are not known are skipped; of a repeated single field the last one counts.
    ///
    /// # Errors
    /// `Malformed` with the offset for what is no text of that kind or names no checkpoint.
    pub fn parse(bytes: &[u8]) -> Result<StateFile> {
        let mut state = StateFile::default();
        let mut named = false;
        text::read(bytes, |field, value| {
            match field {
                "model_checkpoint_path" => {
                    state.latest = string(value)?;
                    named = true;
                }
                "all_model_checkpoint_paths" => state.all.push(string(value)?),
                "all_model_checkpoint_timestamps" => state.timestamps.push(number(value)?),
                "last_preserved_timestamp" => state.last_preserved = Some(number(value)?),
                _ => {}
            }
            Ok(())
        })?;
        if !named {
            return Err(Error::malformed("names no model_checkpoint_path"));
        }
        Ok(state)
    }

    /// Whether the first bytes of a file look like one.
    pub fn looks_like(head: &[u8]) -> bool {
        let fields = ["model_checkpoint_path", "all_model_checkpoint_paths"];
        fields.iter().any(|field| head.trim_ascii_start().starts_with(field.as_bytes()))
    }

    /// The text as TensorFlow writes it.
    pub fn to_text(&self) -> String {
        let mut out = format!("model_checkpoint_path: \"{}\"\n", text::escape(&self.latest));
        for path in &self.all {
            out += &format!("all_model_checkpoint_paths: \"{}\"\n", text::escape(path));
        }
        for time in &self.timestamps {
            out += &format!("all_model_checkpoint_timestamps: {time:?}\n");
        }
        if let Some(time) = self.last_preserved {
            out += &format!("last_preserved_timestamp: {time:?}\n");
        }
        out
    }

    /// Takes checkpoints out of the history.
    pub fn forget(&mut self, mut gone: impl FnMut(&str) -> bool) {
        let timed = self.timestamps.len() == self.all.len();
        let kept: Vec<bool> = self.all.iter().map(|path| !gone(path)).collect();
        let mut keep = kept.iter();
        self.all.retain(|_| keep.next().copied().unwrap_or(true));
        if timed {
            let mut keep = kept.iter();
            self.timestamps.retain(|_| keep.next().copied().unwrap_or(true));
        }
    }

    /// Names a checkpoint as the latest one and puts it last in the history; `time` is in seconds since 1970.
    /// Timestamps that do not match the history are dropped, as TensorFlow does.
    pub fn push(&mut self, path: &str, time: f64) {
        let timed = self.timestamps.len() == self.all.len();
        if let Some(at) = self.all.iter().position(|known| known == path) {
            self.all.remove(at);
            if timed {
                self.timestamps.remove(at);
            }
        }
        if timed {
            self.timestamps.push(time);
        } else {
            self.timestamps.clear();
        }
        self.all.push(path.to_owned());
        self.latest = path.to_owned();
    }
}

fn string(value: Value) -> Result<String> {
    match value {
        Value::Text(bytes) => String::from_utf8(bytes).map_err(|_| Error::malformed("a path is not UTF-8")),
        Value::Word(word) => Err(Error::malformed(format!("expected a path in quotes, found {word}"))),
        Value::Message => Err(Error::malformed("expected a path in quotes, found a message")),
    }
}

fn number(value: Value) -> Result<f64> {
    let Value::Word(word) = value else { return Err(Error::malformed("expected a number")) };
    let short = word.strip_suffix(['f', 'F']).unwrap_or(&word);
    word.parse().or_else(|_| short.parse()).map_err(|_| Error::malformed(format!("{word} is no number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# of a training run
        model_checkpoint_path: "/data/run \"1\"/ckpt-\303\244\n"
        all_model_checkpoint_paths: 'ck' "pt-3"
        all_model_checkpoint_paths: ["/data/run", "b"],
        all_model_checkpoint_timestamps: 1.5e9; all_model_checkpoint_timestamps: [2, -inf]
        new_field { inner: "x}" deeper < a: 1 > list: [ { b: 2 }, { } ] }
        last_preserved_timestamp: 12.25"#;

    #[test]
    fn text_of_every_kind() {
        let state = StateFile::parse(TEXT.as_bytes()).unwrap();
        assert_eq!(state.latest, "/data/run \"1\"/ckpt-ä\n");
        assert_eq!(state.all, ["ckpt-3", "/data/run", "b"]);
        assert_eq!(state.timestamps, [1.5e9, 2.0, f64::NEG_INFINITY]);
        assert_eq!(state.last_preserved, Some(12.25));
        assert_eq!(StateFile::parse(state.to_text().as_bytes()).unwrap(), state);
    }

    #[test]
    fn cuts_and_flips_never_panic() {
        for len in 0..TEXT.len() {
            let _ = StateFile::parse(&TEXT.as_bytes()[..len]);
        }
        for bit in 0..TEXT.len() * 8 {
            let mut flipped = TEXT.as_bytes().to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = StateFile::parse(&flipped);
        }
        let path = "model_checkpoint_path: \"model.ckpt\"";
        for len in 0..path.len() {
            assert!(StateFile::parse(&path.as_bytes()[..len]).is_err(), "cut to {len}");
        }
        let deep = "a {".repeat(100_000);
        assert!(StateFile::parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn the_text_is_tensorflows() {
        let mut state = StateFile { last_preserved: Some(1699999999.0), ..StateFile::default() };
        state.push("ckpt-3", 1700000000.5);
        state.push("dir/ü \"4\"", 1700000060.25);
        let text = "model_checkpoint_path: \"dir/\\303\\274 \\\"4\\\"\"\nall_model_checkpoint_paths: \"ckpt-3\"\n\
            all_model_checkpoint_paths: \"dir/\\303\\274 \\\"4\\\"\"\nall_model_checkpoint_timestamps: 1700000000.5\n\
            all_model_checkpoint_timestamps: 1700000060.25\nlast_preserved_timestamp: 1699999999.0\n";
        assert_eq!(state.to_text(), text);
        state.push("ckpt-3", 1.0);
        assert_eq!(state.all, ["dir/ü \"4\"", "ckpt-3"]);
        assert_eq!(state.timestamps, [1700000060.25, 1.0]);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "model_checkpoint_path: 3", "model_checkpoint_path \"x\"", "{}", "all_model_checkpoint_paths: \"a\""]
        {
            assert!(StateFile::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(StateFile::looks_like(b"\nmodel_checkpoint_path: "));
        assert!(!StateFile::looks_like(b"model"));
    }
}
