//! Tensors of several names: written once, the other names recorded in the metadata, of the file or of the index of a
//! set, as `{"second name": "name of the tensor"}`.

use crate::Metadata;
use crate::metadata::FORMAT;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use weightlift_core::{Entry, Error, KeyPath, Result};

impl Metadata {
    /// Finds the second names of the tensors in `entries`, and appends an entry for each.
    pub(crate) fn find_ties(&mut self, entries: &mut Vec<Entry>) {
        let names = entries.iter().enumerate().map(|(at, entry)| (entry.name.as_str(), at));
        let names: HashMap<&str, usize> = names.collect();
        let of_index = self.index.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
        let is_tie = |key: &str, kept: &str| key != FORMAT && !kept.is_empty() && !names.contains_key(key);
        let pairs = self.pairs().chain(of_index).filter(|(key, kept)| is_tie(key, kept));
        let mut seen = HashSet::new();
        let found: Vec<(String, usize)> = pairs
            .filter_map(|(key, kept)| Some((key, *names.get(kept)?)))
            .filter(|(key, _)| seen.insert(*key))
            .map(|(key, kept)| (key.to_owned(), kept))
            .collect();
        for (name, kept) in found {
            let Some(kept) = entries.get(kept) else { continue };
            let remarks = vec![format!("tied to {}", kept.name)];
            entries.push(Entry { path: KeyPath::flat(&name), name: name.clone(), remarks, ..kept.clone() });
            self.index.shift_remove(&name);
            self.ties.push(name);
        }
    }

    /// Records the second names of an output in one file, each with the name under which the tensor is written. Those
    /// of an input that did not last are forgotten.
    ///
    /// # Errors
    /// `Request` where a name is already the key of something else.
    pub(crate) fn record_ties(&mut self, ties: &[(&str, &str)]) -> Result<()> {
        let mut old: HashSet<String> = self.ties.drain(..).collect();
        for &(name, kept) in ties {
            if name == FORMAT || (!old.remove(name) && self.get(name).is_some()) {
                return Err(occupied(name, kept));
            }
            self.set(name, kept);
            self.ties.push(name.to_owned());
        }
        if let Some(pairs) = &mut self.pairs {
            pairs.retain(|(key, _)| !old.contains(key));
        }
        Ok(())
    }

    /// The metadata of the index of an output in several files, with its second names. The files have none of them.
    ///
    /// # Errors
    /// `Request` where a name is already the key of something else.
    pub(crate) fn record_ties_in_index(&mut self, ties: &[(&str, &str)]) -> Result<Map<String, Value>> {
        self.record_ties(&[])?;
        let mut index = self.index.clone();
        for &(name, kept) in ties {
            if name == FORMAT || index.insert(name.to_owned(), Value::from(kept)).is_some() {
                return Err(occupied(name, kept));
            }
        }
        Ok(index)
    }
}

fn occupied(name: &str, kept: &str) -> Error {
    Error::request(format!("it is tied to {kept:?}, but its name is the key of other metadata")).in_tensor(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(&str, &str)]) -> Metadata {
        Metadata::from_pairs(pairs.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    #[test]
    fn ties_are_recorded_in_place_and_forgotten_when_gone() {
        let mut metadata = pairs(&[("a", "x"), ("head", "emb"), ("b", "y"), ("tail", "emb")]);
        metadata.ties = vec!["head".into(), "tail".into()];
        metadata.record_ties(&[("new", "first"), ("head", "first")]).unwrap();
        assert_eq!(metadata.pairs, pairs(&[("a", "x"), ("head", "first"), ("b", "y"), ("new", "first")]).pairs);
        assert_eq!(metadata.ties, ["new", "head"]);
        assert_eq!(metadata.lines().len(), 2);
        assert!(metadata.record_ties(&[("a", "first")]).is_err());
        assert!(Metadata::absent().record_ties(&[("format", "first")]).is_err());
        let mut absent = Metadata::absent();
        absent.record_ties(&[]).unwrap();
        assert!(absent.is_absent());
    }

    #[test]
    fn ties_of_several_files_stand_in_the_index() {
        let mut metadata = pairs(&[("head", "emb"), ("format", "pt")]);
        metadata.ties = vec!["head".into()];
        metadata.index.insert("origin".into(), Value::from(7));
        let index = metadata.record_ties_in_index(&[("head", "emb")]).unwrap();
        assert_eq!(Value::from(index).to_string(), r#"{"origin":7,"head":"emb"}"#);
        assert_eq!(metadata.pairs, pairs(&[("format", "pt")]).pairs);
        assert!(metadata.record_ties_in_index(&[("origin", "emb")]).is_err());
    }
}
