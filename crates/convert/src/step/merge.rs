//! Merges of several checkpoints: `--average`.

use crate::items::{Item, Items};
use crate::value::Value;
use std::collections::HashMap;
use std::fmt;
use weightlift_core::{Error, Result};

/// The weighted sum of all inputs; without weights their average. Tensors are paired by name. Multiplied, then added,
/// in f32 (f64 for f64), inputs in order; integers, booleans, texts and the like must be equal and are taken from the
/// first.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Average {
    weights: Option<Vec<f64>>,
}

impl Average {
    /// Every input with the same weight.
    pub fn even() -> Average {
        Average::default()
    }

    /// A weight for each input: `0.9,0.1` mixes, `1,-1` is a difference.
    pub fn weighted(weights: impl Into<Vec<f64>>) -> Average {
        Average { weights: Some(weights.into()) }
    }

    /// Parses `W1,W2,…`; nothing means even weights.
    ///
    /// # Errors
    /// `Request` for what is no finite number.
    pub fn parse(text: &str) -> Result<Average> {
        if text.trim().is_empty() {
            return Ok(Average::even());
        }
        let weight = |text: &str| text.trim().parse::<f64>().ok().filter(|weight| weight.is_finite());
        match text.split(',').map(weight).collect::<Option<Vec<f64>>>() {
            Some(weights) => Ok(Average::weighted(weights)),
            None => {
                Err(Error::request(format!("--average {text:?}: a weight for each input, as in --average=0.9,0.1")))
            }
        }
    }
}

impl fmt::Display for Average {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.weights {
            Some(weights) => f.write_str(&weights.iter().map(f64::to_string).collect::<Vec<_>>().join(",")),
            None => f.write_str("evenly"),
        }
    }
}

impl Items<'_> {
    /// Merges every tensor with those of the same name in the other inputs.
    pub(crate) fn average(&mut self, rule: &Average) -> Result<usize> {
        let count = self.checkpoints();
        if count < 2 {
            return Err(Error::request("--average needs more than one input"));
        }
        let weights = rule.weights.clone().unwrap_or_else(|| vec![1.0 / count as f64; count]);
        if weights.len() != count {
            return Err(Error::request(format!("--average has {} weights for {count} inputs", weights.len())));
        }
        let mut known: HashMap<_, Value> = HashMap::new();
        let groups = self.groups("--average")?;
        let count = groups.len();
        for (at, group) in groups.into_iter().enumerate() {
            let Some(group) = group else { continue };
            let identity: Vec<_> = group.iter().map(|value| self.identity(value)).collect();
            if let Some(value) = known.get(&identity) {
                self.lists[0][at].value = value.clone();
                continue;
            }
            let item = &mut self.lists[0][at];
            match Value::merged(group.clone(), &weights).map_err(|error| error.in_tensor(&item.name))? {
                Some(value) => {
                    item.value = value.clone();
                    known.insert(identity, value);
                }
                None => item.agrees.push(group),
            }
        }
        Ok(count)
    }

    /// For each tensor what bears its name in all inputs, its own first; `None` where not all of them have it, and for
    /// what belongs to a format, as an object graph: that of the first is taken.
    pub(super) fn groups(&mut self, doing: &str) -> Result<Vec<Option<Vec<Value>>>> {
        let count = self.checkpoints();
        if count < 2 {
            return Err(Error::request(format!("{doing} needs more than one input")));
        }
        (1..count).for_each(|input| self.use_input(input));
        let mut others = Vec::new();
        for input in 1..count {
            let named: HashMap<&str, &Value> =
                self.lists[input].iter().map(|item| (item.name.as_str(), &item.value)).collect();
            others.push(named);
        }
        self.check_pairs(doing, &others)?;
        if let Some(item) = self.edited().iter().find(|item| item.value.entry().is_none()) {
            // The others were not changed along, so that rows, axes or parts of different kinds would be added.
            let error = Error::request(format!("was changed before {doing} ({})", item.value));
            return Err(error
                .in_tensor(&item.name)
                .help(format!("write {doing} before the steps that change values or shapes")));
        }
        let group = |item: &Item| {
            let theirs: Option<Vec<Value>> =
                others.iter().map(|named| named.get(item.base.as_str()).map(|value| (*value).clone())).collect();
            let group = |theirs: Vec<Value>| std::iter::once(item.value.clone()).chain(theirs).collect();
            theirs.filter(|_| !item.of_format).map(group)
        };
        Ok(self.edited().iter().map(group).collect())
    }

    /// Every tensor must be in every input, and no input may have others.
    fn check_pairs(&self, doing: &str, others: &[HashMap<&str, &Value>]) -> Result<()> {
        if self.allows_unmatched() {
            return Ok(());
        }
        for (at, named) in others.iter().enumerate() {
            let own = self.edited().iter().map(|item| item.base.as_str());
            let missing: Vec<&str> = own.filter(|name| !named.contains_key(name)).collect();
            let extra: Vec<&str> = named.keys().copied().filter(|name| !self.had(name)).collect();
            let first = |names: &[&str]| names.iter().min().map(|name| (names.len(), (*name).to_owned()));
            let message = match (first(&missing), first(&extra)) {
                (Some((count, name)), _) => format!("lacks {count} tensors of the first, {name:?} among them"),
                (None, Some((count, name))) => format!("has {count} tensors more than the first, {name:?} among them"),
                (None, None) => continue,
            };
            let error = Error::request(format!("{doing}: input {} {message}", at + 2));
            return Err(error.help("--allow-unmatched takes those of the first as they are"));
        }
        Ok(())
    }
}
