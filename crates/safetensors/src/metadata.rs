//! `__metadata__`: texts beside the tensors.

use serde_json::{Map, Value};
use std::collections::HashSet;
use weightlift_core::{Error, Result};
use weightlift_shards::list;

/// The key of the header under which the metadata stands; no tensor may bear this name.
pub const METADATA_KEY: &str = "__metadata__";

/// The key that names the framework a file was made for.
pub(crate) const FORMAT: &str = "format";

/// Values longer than this many characters are cut in a listing.
const SHOWN: usize = 60;

/// The metadata of a file, in its own order: what [`weightlift_core::Catalog::extras`] of this format holds.
///
/// A file may also have no metadata at all, which is not the same as metadata without keys.
///
/// ```
/// use weightlift_safetensors::Metadata;
/// let mut metadata = Metadata::absent();
/// metadata.set("license", "mit");
/// assert_eq!(metadata.get("license"), Some("mit"));
/// assert_eq!(metadata.pairs().count(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    pub(crate) pairs: Option<Vec<(String, String)>>,
    /// Keys that are names of tensors: second names of others.
    pub(crate) ties: Vec<String>,
    /// What the index of a set says beside the tensors and their size.
    pub(crate) index: Map<String, Value>,
    /// For each tensor, in the order of their bytes, its position in the header; empty where that is the same order.
    pub(crate) order: Vec<u32>,
}

impl Metadata {
    /// The metadata of a file that has none.
    pub fn absent() -> Metadata {
        Metadata::default()
    }

    /// What a file gets whose source has no metadata of this format: `{"format": "pt"}`. Loaders take the word to
    /// mean an ordinary file, and some refuse a file that has metadata without it.
    pub fn conventional() -> Metadata {
        Metadata::from_pairs(vec![(FORMAT.to_owned(), "pt".to_owned())])
    }

    /// Metadata of these pairs, whose keys must differ.
    pub(crate) fn from_pairs(pairs: Vec<(String, String)>) -> Metadata {
        Metadata { pairs: Some(pairs), ..Metadata::default() }
    }

    /// Whether the file has no `__metadata__`.
    pub fn is_absent(&self) -> bool {
        self.pairs.is_none()
    }

    /// Keys and values, in order.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs().find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// Sets a key: in its place where it exists, at the end otherwise.
    pub fn set(&mut self, key: &str, value: &str) {
        let pairs = self.pairs.get_or_insert_default();
        match pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => value.clone_into(old),
            None => pairs.push((key.to_owned(), value.to_owned())),
        }
    }

    /// Removes a key and tells whether it was there.
    pub fn remove(&mut self, key: &str) -> bool {
        let Some(pairs) = &mut self.pairs else { return false };
        let place = pairs.iter().position(|(known, _)| known == key);
        place.map(|place| pairs.remove(place)).is_some()
    }

    /// Sets and removes keys, one after the other.
    ///
    /// # Errors
    /// `Request` for a key to remove that is not there.
    pub(crate) fn edit(&mut self, edits: &[(String, Option<String>)]) -> Result<()> {
        for (key, value) in edits {
            match value {
                Some(value) => self.set(key, value),
                None if self.remove(key) => {}
                None => {
                    let keys: Vec<&str> = self.pairs().map(|(key, _)| key).collect();
                    let error = Error::request(format!("there is no metadata {key:?} to remove"));
                    return Err(
                        error.help(format!("there is {}", if keys.is_empty() { "none".into() } else { list(&keys) }))
                    );
                }
            }
        }
        Ok(())
    }

    /// Adds the pairs of another input. Where both have a key with different values, the value here stays; such keys
    /// are returned.
    pub(crate) fn join(&mut self, other: &Metadata) -> Vec<String> {
        self.ties.extend_from_slice(&other.ties);
        for (key, value) in &other.index {
            self.index.entry(key).or_insert_with(|| value.clone());
        }
        let Some(theirs) = &other.pairs else { return Vec::new() };
        let ours = self.pairs.get_or_insert_default();
        let known: HashSet<String> = ours.iter().map(|(key, _)| key.clone()).collect();
        let (both, new): (Vec<_>, Vec<_>) = theirs.iter().cloned().partition(|(key, _)| known.contains(key));
        ours.extend(new);
        both.into_iter().filter(|(key, value)| self.get(key) != Some(value)).map(|(key, _)| key).collect()
    }

    /// Makes the metadata ready to be written: where there is any, it says the format.
    pub(crate) fn complete(&mut self) {
        if !self.is_absent() && self.get(FORMAT).is_none() {
            self.set(FORMAT, "pt");
        }
    }

    /// A line for each pair that is not a second name, for listings.
    pub(crate) fn lines(&self) -> Vec<String> {
        let ties: HashSet<&str> = self.ties.iter().map(String::as_str).collect();
        let pairs = self.pairs().filter(|(key, _)| !ties.contains(key));
        let pairs = pairs.map(|(key, value)| format!("metadata {} = {}", shown(key), shown(value)));
        let index = self.index.iter().map(|(key, value)| format!("index metadata {} = {value}", shown(key)));
        pairs.chain(index).collect()
    }
}

/// A text in quotes, cut where it is long.
fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{:?}… ({} bytes)", &text[..end], text.len()),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Metadata {
        Metadata::from_pairs(pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    #[test]
    fn format_is_completed_but_never_changed() {
        let completed = |mut metadata: Metadata| {
            metadata.complete();
            metadata
        };
        assert!(completed(Metadata::absent()).is_absent());
        assert_eq!(completed(pairs(&[])), pairs(&[("format", "pt")]));
        assert_eq!(completed(pairs(&[("a", "b")])), pairs(&[("a", "b"), ("format", "pt")]));
        assert_eq!(completed(pairs(&[("format", "mlx"), ("a", "b")])), pairs(&[("format", "mlx"), ("a", "b")]));
    }

    #[test]
    fn joining_keeps_the_first_value_and_names_the_conflict() {
        let mut first = pairs(&[("a", "1"), ("b", "2")]);
        assert_eq!(first.join(&pairs(&[("b", "3"), ("a", "1"), ("c", "4")])), ["b"]);
        assert_eq!(first, pairs(&[("a", "1"), ("b", "2"), ("c", "4")]));
        assert!(first.join(&Metadata::absent()).is_empty());
    }

    #[test]
    fn keys_are_set_in_place_and_removed() {
        let mut metadata = pairs(&[("a", "1"), ("b", "2")]);
        metadata.set("a", "3");
        assert_eq!(metadata, pairs(&[("a", "3"), ("b", "2")]));
        assert!(metadata.remove("a"));
        assert!(!metadata.remove("a"));
        assert!(!Metadata::absent().remove("a"));
        assert_eq!(metadata, pairs(&[("b", "2")]));
        let edit = |key: &str, value: Option<&str>| (key.to_owned(), value.map(str::to_owned));
        metadata.edit(&[edit("b", None), edit("c", Some("=")), edit("d", Some("")), edit("c", Some("4"))]).unwrap();
        assert_eq!(metadata, pairs(&[("c", "4"), ("d", "")]));
        let error = metadata.edit(&[edit("b", None)]).unwrap_err().to_string();
        assert_eq!(error, "there is no metadata \"b\" to remove (there is c, d)");
        assert!(Metadata::absent().edit(&[edit("b", None)]).is_err());
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let long = "é".repeat(100);
        let lines = pairs(&[("k\n", &long)]).lines();
        assert_eq!(lines, [format!("metadata \"k\\n\" = \"{}\"… (200 bytes)", "é".repeat(60))]);
    }
}
