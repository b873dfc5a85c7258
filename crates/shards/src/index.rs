//! The index of a set: which tensor is in which file.

use crate::name;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::collections::BTreeSet;
use std::fmt;
use weightlift_core::{Error, Limits, Result};

/// Longer indexes are refused by huggingface_hub.
const READABLE: usize = 10 << 20;

/// The key of an index's metadata that holds the size of all tensors.
pub const TOTAL_SIZE: &str = "total_size";

/// An index, with tensors and metadata in their own order.
///
/// ```
/// use weightlift_core::Limits;
/// use weightlift_shards::Index;
/// let text = br#"{"metadata": {"total_size": 4}, "weight_map": {"w": "model-00001-of-00001.safetensors"}}"#;
/// let index = Index::parse(text, "safetensors", &Limits::default()).unwrap();
/// assert_eq!(index.total_size(), Some(4.0));
/// assert_eq!(index.files(), ["model-00001-of-00001.safetensors"]);
/// assert!(Index::parse(br#"{"weight_map": {"w": "../w.safetensors"}}"#, "safetensors", &Limits::default()).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Index {
    /// What it says beside the tensors: `total_size` and whatever else.
    pub metadata: Map<String, Value>,
    /// Name and file of each tensor. Names differ.
    pub weight_map: Vec<(String, String)>,
}

impl Index {
    /// Reads an index. Its files must have the extension `extension`.
    ///
    /// # Errors
    /// `Malformed` for what is no index, for a tensor that stands twice, and for file names that lead out of the
    /// index's folder or have another extension; `Limit`. Both with the offset.
    pub fn parse(bytes: &[u8], extension: &str, limits: &Limits) -> Result<Index> {
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(Error::malformed("no index of a set: no JSON object").at(0));
        }
        let raw: Raw = serde_json::from_slice(bytes).map_err(|error| explain(&error, bytes))?;
        let weight_map =
            raw.weight_map.ok_or_else(|| Error::malformed("no index of a set: it has no \"weight_map\""))?;
        let index = Index { metadata: raw.metadata.unwrap_or_default(), weight_map: weight_map.0 };
        if index.weight_map.len() as u64 > limits.tensors {
            let (found, most) = (index.weight_map.len(), limits.tensors);
            return Err(Error::limit(format!("the index lists {found} tensors, where {most} are allowed")));
        }
        index.check_names()?;
        for (tensor, file) in &index.weight_map {
            name::check(file, extension).map_err(|error| error.in_tensor(tensor))?;
        }
        Ok(index)
    }

    fn check_names(&self) -> Result<()> {
        let mut names: Vec<&str> = self.weight_map.iter().map(|(tensor, _)| tensor.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first()) {
            Some(tensor) => Err(Error::malformed("the tensor stands twice in the index").in_tensor(*tensor)),
            None => Ok(()),
        }
    }

    /// The files of the set, by name, each once.
    pub fn files(&self) -> Vec<&str> {
        let files: BTreeSet<&str> = self.weight_map.iter().map(|(_, file)| file.as_str()).collect();
        files.into_iter().collect()
    }

    /// The size of all tensors that the index claims. Writers disagree about it: nothing should depend on it.
    pub fn total_size(&self) -> Option<f64> {
        self.metadata.get(TOTAL_SIZE)?.as_f64()
    }

    /// Whether the claimed size is absent or this.
    pub fn has_total_size(&self, bytes: u64) -> bool {
        self.total_size().is_none_or(|claimed| claimed == bytes as f64)
    }

    /// Sets the size of all tensors.
    pub fn set_total_size(&mut self, bytes: u64) {
        self.metadata.insert(TOTAL_SIZE.to_owned(), Value::Number(Number::from(bytes)));
    }

    /// The text of the index, as huggingface_hub indents it, and a remark where huggingface_hub does not read it.
    pub fn render(&self) -> (String, Option<String>) {
        let pairs = self.weight_map.iter().map(|(tensor, file)| (tensor.clone(), Value::from(file.as_str())));
        let members =
            [("metadata", Value::Object(self.metadata.clone())), ("weight_map", Value::Object(pairs.collect()))];
        let members = members.into_iter().map(|(key, value)| (key.to_owned(), value));
        let text = format!("{:#}", Value::Object(members.collect()));
        let length = text.len();
        let note = (length > READABLE)
            .then(|| format!("the index has {length} bytes, but huggingface_hub reads {READABLE} at the most"));
        (text, note)
    }
}

/// An index as the file has it.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    weight_map: Option<Pairs>,
}

/// A list of pairs from an object, in order.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Pairs, D::Error> {
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct PairsVisitor;

impl<'de> Visitor<'de> for PairsVisitor {
    type Value = Pairs;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of file names by tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Pairs, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }
}

fn explain(error: &serde_json::Error, bytes: &[u8]) -> Error {
    let line = error.line().saturating_sub(1);
    let start: usize = bytes.split_inclusive(|&byte| byte == b'\n').take(line).map(<[u8]>::len).sum();
    let whole = error.to_string();
    let message = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(message, _)| message);
    let offset = (start + error.column().saturating_sub(1)).min(bytes.len());
    Error::malformed(format!("no index of a set: {message}")).at(offset as u64)
}
