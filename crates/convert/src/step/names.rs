//! Tables of names: `--map`, `--expect`.

use crate::items::Items;
use crate::pattern::nearest;
use serde_json::Value as Json;
use std::collections::HashMap;
use weightlift_core::{DType, Error, Result, Shape};

/// Whether `name` can be that of a table of words, rather than of positions or kinds of tokens.
pub(crate) fn is_vocabulary(name: &str) -> bool {
    !["position", "token_type", "segment"].iter().any(|other| name.contains(other))
}

/// Whether `name` is that of an output layer over a vocabulary, or its bias.
pub(crate) fn is_output_layer(name: &str) -> bool {
    let ends = [
        "lm_head.weight",
        "lm_head.bias",
        "output_bias",
        "predictions.bias",
        "predictions.decoder.weight",
        "predictions.decoder.bias",
        "embed_out.weight",
        "output_projection.weight",
    ];
    ends.iter().any(|end| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with(['.', '/'])))
}

/// The keys and values of a JSON object, in order, those included that stand twice.
pub(super) fn json_pairs(content: &str) -> serde_json::Result<Vec<(String, Json)>> {
    struct Pairs;
    impl<'de> serde::de::Visitor<'de> for Pairs {
        type Value = Vec<(String, Json)>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<M: serde::de::MapAccess<'de>>(self, mut map: M) -> std::result::Result<Self::Value, M::Error> {
            let mut pairs = Vec::new();
            while let Some(pair) = map.next_entry()? {
                pairs.push(pair);
            }
            Ok(pairs)
        }
    }
    let mut reader = serde_json::Deserializer::from_str(content);
    let pairs = serde::Deserializer::deserialize_map(&mut reader, Pairs)?;
    reader.end().map(|()| pairs)
}

/// A table of old and new names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameMap {
    text: String,
    pairs: Vec<(String, String)>,
}

impl NameMap {
    /// Pairs of old and new name; `text` says where they are from.
    ///
    /// # Errors
    /// `Request` where an old name stands twice.
    pub fn new(text: &str, pairs: Vec<(String, String)>) -> Result<NameMap> {
        let mut seen = std::collections::HashSet::new();
        match pairs.iter().find(|(old, _)| !seen.insert(old.as_str())) {
            Some((old, _)) => Err(Error::request(format!("{old:?} stands twice")).in_file(text)),
            None => Ok(NameMap { text: text.to_owned(), pairs }),
        }
    }

    /// Reads a table: lines of old name, tab, new name (`#` begins a comment), or a JSON object of old and new names.
    /// `text` says where it is from.
    ///
    /// # Errors
    /// `Request` naming the line that is no pair.
    pub fn parse(text: &str, content: &str) -> Result<NameMap> {
        if content.trim_start().starts_with('{') {
            let error = |error| Error::request(format!("is no table of names: {error}")).in_file(text).caused_by(error);
            let table = json_pairs(content).map_err(error)?;
            let pair = |(old, new): (String, Json)| match new.as_str() {
                Some(new) => Ok((old, new.to_owned())),
                None => Err(Error::request(format!("{old:?} has no name but {new}")).in_file(text)),
            };
            return NameMap::new(text, table.into_iter().map(pair).collect::<Result<_>>()?);
        }
        let mut pairs = Vec::new();
        for (at, line) in content.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            match line.split('\t').collect::<Vec<_>>().as_slice() {
                [old, new] if !new.is_empty() => pairs.push(((*old).to_owned(), (*new).to_owned())),
                fields => {
                    let message = format!(
                        "line {} has {} fields, where old name, tab, new name are expected",
                        at + 1,
                        fields.len()
                    );
                    return Err(Error::request(message).in_file(text));
                }
            }
        }
        NameMap::new(text, pairs)
    }

    /// Where it is from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The pairs.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.pairs
    }
}

/// What the output must have, exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    text: String,
    tensors: Vec<(String, Option<DType>, Option<Shape>)>,
}

impl Expected {
    /// Reads a list: lines of name, and behind tabs dtype and shape (`[2, 3]` or `2,3`), either of which may be missing;
    /// or what `ls --json` prints. `text` says where it is from.
    ///
    /// # Errors
    /// `Request` naming the line or tensor that cannot be read.
    pub fn parse(text: &str, content: &str) -> Result<Expected> {
        let wrong = |what: String| Error::request(what).in_file(text);
        let mut tensors = Vec::new();
        if content.trim_start().starts_with('{') {
            let list: Json = serde_json::from_str(content).map_err(|error| wrong(format!("is no JSON: {error}")))?;
            let list = list.get("tensors").and_then(Json::as_array);
            for tensor in list.ok_or_else(|| wrong("has no list \"tensors\"".into()))? {
                let name =
                    tensor.get("name").and_then(Json::as_str).ok_or_else(|| wrong(format!("{tensor} has no name")))?;
                let dtype = tensor.get("dtype").and_then(Json::as_str).map(str::parse).transpose();
                let shape = tensor.get("shape").and_then(Json::as_array);
                let shape = shape
                    .map(|dims| dims.iter().map(Json::as_u64).collect::<Option<Vec<_>>>())
                    .map(|dims| Shape::new(dims.ok_or_else(|| wrong(format!("{name:?} has no shape of numbers")))?));
                tensors.push((
                    name.to_owned(),
                    dtype.map_err(|error| wrong(format!("{name:?}: {error}")))?,
                    shape.transpose()?,
                ));
            }
            return Ok(Expected { text: text.to_owned(), tensors });
        }
        for (at, line) in content.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let mut fields = line.split('\t');
            let (name, mut dtype, mut shape) = (fields.next().unwrap_or_default(), None, None);
            for field in fields.map(str::trim).filter(|field| !field.is_empty()) {
                let dims = field.trim_start_matches('[').trim_end_matches(']');
                let numbers: Option<Vec<u64>> = match dims.is_empty() {
                    true => Some(Vec::new()),
                    false => dims.split(',').map(|dim| dim.trim().parse().ok()).collect(),
                };
                match (numbers, field.parse::<DType>()) {
                    (Some(dims), _) => shape = Some(Shape::new(dims)?),
                    (None, Ok(known)) => dtype = Some(known),
                    (None, Err(error)) => return Err(wrong(format!("line {}: {error}", at + 1))),
                }
            }
            tensors.push((name.to_owned(), dtype, shape));
        }
        Ok(Expected { text: text.to_owned(), tensors })
    }

    /// Where it is from.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Items<'_> {
    /// Renames what a table names.
    pub(crate) fn map(&mut self, map: &NameMap) -> Result<usize> {
        if map.pairs.is_empty() && !self.allows_unmatched() {
            let error = Error::request("the table has no names").in_file(&map.text);
            return Err(error.help("write lines of old name, tab, new name; --allow-unmatched lets it pass"));
        }
        let table: HashMap<&str, &str> = map.pairs.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect();
        let known: std::collections::HashSet<&str> = self.names().collect();
        let unknown: Vec<&str> =
            map.pairs.iter().map(|(old, _)| old.as_str()).filter(|old| !known.contains(old)).collect();
        if let Some(first) = unknown.first().filter(|_| !self.allows_unmatched()) {
            let count = unknown.len();
            let message = format!("{count} names of the table are no tensors, {first:?} among them");
            let error = Error::request(message).in_file(&map.text);
            return Err(match nearest(first, self.names()).as_slice() {
                [] => error.help("--allow-unmatched passes them over"),
                near => error.help(format!("did you mean {}; --allow-unmatched passes them over", near.join(" or "))),
            });
        }
        const SHOWN: usize = 20;
        let rule = |old: &&str| (format!("map {} {old:?}", map.text), 0);
        let mut rules: Vec<_> = unknown.iter().take(SHOWN).map(rule).collect();
        if let more @ 1.. = unknown.len().saturating_sub(SHOWN) {
            rules.push((format!("map {} and {more} more names", map.text), 0));
        }
        drop(known);
        self.rules.append(&mut rules);
        self.rename(&format!("--map {}", map.text), true, |name| Ok(table.get(name).map(|new| (*new).to_owned())))
    }

    /// Compares names, and dtypes and shapes where they are given.
    pub(crate) fn expect(&mut self, expected: &Expected) -> Result<usize> {
        const SHOWN: usize = 20;
        let mut differences = Vec::new();
        let mut there: HashMap<&str, Vec<&crate::items::Item>> = HashMap::new();
        self.edited().iter().for_each(|item| there.entry(&item.name).or_default().push(item));
        for (name, dtype, shape) in &expected.tensors {
            let Some(item) = there.remove(name.as_str()).and_then(|items| items.first().copied()) else {
                let near = nearest(name, self.names());
                let hint = if near.is_empty() { String::new() } else { format!(" (there is {})", near.join(", ")) };
                differences.push(format!("{name:?} is missing{hint}"));
                continue;
            };
            let found = item.mark.unwrap_or(item.value.dtype());
            if let Some(wanted) = dtype.filter(|wanted| *wanted != found) {
                differences.push(format!("{name:?} is {found}, not {wanted}"));
            }
            if let Some(wanted) = shape.as_ref().filter(|wanted| *wanted != item.value.shape()) {
                differences.push(format!("{name:?} has shape {}, not {wanted}", item.value.shape()));
            }
        }
        let mut extra: Vec<&str> = there.into_keys().collect();
        extra.sort_unstable();
        differences.extend(extra.iter().map(|name| format!("{name:?} is not expected")));
        if differences.is_empty() {
            return Ok(expected.tensors.len());
        }
        let count = differences.len();
        differences.truncate(SHOWN);
        if count > SHOWN {
            differences.push(format!("and {} more", count - SHOWN));
        }
        let message = format!("{count} differences from what is expected: {}", differences.join("; "));
        Err(Error::request(message).in_file(&expected.text))
    }
}
