//! The weights themselves, or the averages kept of them in training: `--weights raw|ema`.

use super::numbered::is_list;
use super::optimizer::list;
use crate::items::Items;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use weightlift_core::{Error, KeyPath, Result};

/// Which weights of a checkpoint that keeps moving averages beside them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weights {
    /// Those that were trained; the averages go.
    Raw,
    /// The averages, in the place and under the names of those that were trained.
    Ema,
}

impl Weights {
    /// Reads `raw` or `ema`.
    ///
    /// # Errors
    /// `Request` for any other word.
    pub fn parse(text: &str) -> Result<Weights> {
        match text {
            "raw" => Ok(Weights::Raw),
            "ema" => Ok(Weights::Ema),
            _ => Err(Error::request(format!("--weights {text:?}")).help("write raw or ema")),
        }
    }
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Weights::Raw { "raw" } else { "ema" })
    }
}

/// Endings of averages that stand beside their weight, and what the weight ends in.
const ENDINGS: &[(&str, &str)] = &[
    ("/ExponentialMovingAverage", ""),
    ("/.OPTIMIZER_SLOT/optimizer/average/.ATTRIBUTES/VARIABLE_VALUE", "/.ATTRIBUTES/VARIABLE_VALUE"),
];

/// Subtrees of averages, and those of their weights beside them, likeliest first.
const SUBTREES: &[(&str, &[&str])] = &[
    ("model_ema", &["model", "state_dict", "model_state_dict", "module"]),
    ("ema_model", &["model", "state_dict", "model_state_dict", "module"]),
    ("model_ema_state_dict", &["model_state_dict", "state_dict", "model"]),
    ("ema_state_dict", &["state_dict", "model_state_dict", "model"]),
    ("state_dict_ema", &["state_dict", "model_state_dict", "model"]),
    ("params_ema", &["params"]),
    ("g_ema", &["g"]),
    ("net_ema", &["net", "network"]),
    ("network_ema", &["network", "net"]),
    ("ema", &["model", "state_dict", "model_state_dict", "module", "net", "network", "params", "weights"]),
];

/// Whether a subtree of this key holds averages.
pub(crate) fn is_average(key: &str) -> bool {
    SUBTREES.iter().any(|(known, _)| *known == key)
}

fn tensors(count: usize) -> String {
    format!("{count} tensor{}", if count == 1 { "" } else { "s" })
}

/// What wrappers put before the names of a state dict.
const WRAPPERS: &[&str] = &["module.", "state_dict.", "shadow.", "_orig_mod."];

/// The name in its subtree without wrappers.
fn bare(mut name: &str) -> &str {
    while let Some(rest) = WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)) {
        name = rest;
    }
    name
}

/// A subtree of averages: what stands before its key, the key, and its tensors with their names in it.
struct Subtree<'a> {
    before: &'a str,
    key: &'a str,
    separator: char,
    tensors: Vec<(usize, &'a str)>,
}

/// The averages that there are.
#[derive(Default)]
pub(super) struct Averages {
    /// Position of an average, and of its weight; `None` for one that stands alone.
    pub(super) pairs: Vec<(usize, Option<usize>)>,
    /// New names of averages that stand alone.
    names: Vec<(usize, String)>,
    /// What is kept beside averages: the decay, a counter.
    pub(super) beside: Vec<usize>,
    /// Weights that have no average, among those of a subtree with averages.
    without: Vec<usize>,
}

impl Items<'_> {
    /// Takes one of both. What the checkpoint keeps of the other goes.
    pub(crate) fn choose_weights(&mut self, choice: Weights) -> Result<usize> {
        let averages = self.averages()?;
        if averages.pairs.is_empty() {
            if self.allows_unmatched() {
                return Ok(0);
            }
            let error = Error::request(format!("--weights {choice}: there are no averages beside the weights"));
            let known: Vec<&str> = SUBTREES.iter().map(|(key, _)| *key).collect();
            return Err(error.help(format!(
                "averages are NAME/ExponentialMovingAverage, lists shadow_params, or the subtrees {}; --allow-unmatched lets it pass",
                known.join(", ")
            )));
        }
        let paired = averages.pairs.iter().filter(|(_, weight)| weight.is_some()).count();
        let mut gone = vec![false; self.edited().len()];
        averages.beside.iter().for_each(|&at| gone[at] = true);
        match choice {
            Weights::Raw if paired == 0 => {
                let error = Error::request("--weights raw: there are only averages, without the weights they are of");
                return Err(error.help("--weights ema takes them"));
            }
            Weights::Raw => averages.pairs.iter().for_each(|(average, _)| gone[*average] = true),
            Weights::Ema => self.take_averages(&averages, &mut gone)?,
        }
        let without = list(averages.without.iter().map(|&at| self.edited()[at].name.as_str()));
        self.notes.push(match (choice, paired, averages.without.len()) {
            (Weights::Raw, ..) => format!("--weights raw: the averages of {} are left out", tensors(paired)),
            (_, 0, _) => format!("--weights ema: {} averages, there are no other weights", averages.pairs.len()),
            (_, _, 0) => format!("--weights ema: averages take the place of {}", tensors(paired)),
            (_, _, rest) => {
                let paired = tensors(paired);
                format!("--weights ema: averages take the place of {paired}; {rest} have none and stay: {without}")
            }
        });
        self.empty(&gone, |key| is_average(key) || is_list(key));
        self.keep(|at| !gone[at]);
        Ok(averages.pairs.len())
    }

    /// Puts averages in the place of their weights.
    fn take_averages(&mut self, averages: &Averages, gone: &mut [bool]) -> Result<()> {
        for &(average, weight) in &averages.pairs {
            let Some(weight) = weight else { continue };
            let from = self.edited()[average].clone();
            let to = &mut self.lists[0][weight];
            if from.value.shape() != to.value.shape() {
                let (theirs, own) = (from.value.shape(), to.value.shape());
                let message = format!("--weights ema: its average {:?} has shape {theirs}, not {own}", from.name);
                return Err(Error::request(message).in_tensor(&to.name));
            }
            (to.value, to.mark) = (from.value, from.mark);
            gone[average] = true;
        }
        for (at, name) in &averages.names {
            self.lists[0][*at].rename(name.clone());
        }
        Ok(())
    }

    fn averages(&self) -> Result<Averages> {
        let mut found = Averages::default();
        let places: HashMap<&str, usize> = self.names().enumerate().map(|(at, name)| (name, at)).collect();
        self.beside_weights(&places, &mut found);
        let known: HashSet<usize> = self.numbered(&places, &mut found)?;
        for subtree in self.subtrees(&known) {
            self.subtree(&subtree, &mut found)?;
        }
        let mut of: HashMap<usize, usize> = HashMap::new();
        for &(average, weight) in &found.pairs {
            let Some(weight) = weight else { continue };
            if let Some(other) = of.insert(weight, average) {
                let names = [other, average].map(|at| format!("{:?}", self.edited()[at].name));
                let error = Error::request(format!("--weights: has two averages, {}", names.join(" and ")));
                return Err(error.in_tensor(&self.edited()[weight].name).help("--exclude drops one of them first"));
            }
        }
        Ok(found)
    }

    /// Averages whose names end in a word of their own.
    fn beside_weights(&self, places: &HashMap<&str, usize>, found: &mut Averages) {
        for (at, name) in self.names().enumerate() {
            let cut = ENDINGS.iter().find_map(|(ending, own)| Some((name.strip_suffix(ending)?, own)));
            let Some((stem, own)) = cut.filter(|(stem, _)| !stem.is_empty()) else { continue };
            let weight = format!("{stem}{own}");
            let place = places.get(weight.as_str()).copied();
            found.pairs.push((at, place));
            if place.is_none() {
                found.names.push((at, weight));
            }
        }
        if !found.pairs.is_empty() {
            let known: HashSet<usize> =
                found.pairs.iter().flat_map(|(average, weight)| [Some(*average), *weight]).flatten().collect();
            let of_optimizer = self.of_optimizer();
            let rest = (0..self.edited().len()).filter(|at| !known.contains(at));
            found.without = rest.filter(|&at| of_optimizer[at].is_none() && !self.edited()[at].of_format).collect();
        }
    }

    /// The subtrees whose key says that they hold averages, without what is known already.
    fn subtrees(&self, known: &HashSet<usize>) -> Vec<Subtree<'_>> {
        let mut found: BTreeMap<(&str, &str), Subtree<'_>> = BTreeMap::new();
        for (at, item) in self.edited().iter().enumerate().filter(|(at, _)| !known.contains(at)) {
            let name = item.name.as_str();
            let mut start = 0;
            for (end, separator) in name.match_indices(['.', '/']).map(|(end, text)| (end, text.chars().next())) {
                let key = &name[start..end];
                if let (true, Some(separator)) = (is_average(key), separator) {
                    let new = || Subtree { before: &name[..start], key, separator, tensors: Vec::new() };
                    let subtree = found.entry((&name[..start], key)).or_insert_with(new);
                    subtree.tensors.push((at, &name[end + 1..]));
                    break;
                }
                start = end + 1;
            }
        }
        found.into_values().collect()
    }

    /// Pairs the averages of a subtree with the weights of the one beside it.
    fn subtree(&self, subtree: &Subtree<'_>, found: &mut Averages) -> Result<()> {
        let beside = SUBTREES.iter().find(|(key, _)| *key == subtree.key).map_or(&[][..], |(_, beside)| beside);
        // Some trainers take the dots out of the names.
        for squeezed in [false, true] {
            let form = |name: &str| match squeezed {
                true => bare(name).replace(['.', '/'], ""),
                false => bare(name).to_owned(),
            };
            for key in beside {
                let prefix = format!("{}{key}{}", subtree.before, subtree.separator);
                let mut weights: HashMap<String, Vec<usize>> = HashMap::new();
                for (at, name) in self.names().enumerate() {
                    if let Some(inner) = name.strip_prefix(&prefix) {
                        weights.entry(form(inner)).or_default().push(at);
                    }
                }
                let partner = |inner: &str| weights.get(&form(inner));
                if !subtree.tensors.iter().any(|(_, inner)| partner(inner).is_some()) {
                    continue;
                }
                for &(at, inner) in &subtree.tensors {
                    match partner(inner).map(Vec::as_slice) {
                        Some(&[weight]) => found.pairs.push((at, Some(weight))),
                        None if self.edited()[at].value.shape().elements() <= 1 => found.beside.push(at),
                        several => {
                            let count = several.map_or(0, <[usize]>::len);
                            let message = format!("--weights: {count} tensors under {prefix:?} could be its weight");
                            return Err(Error::request(message).in_tensor(&self.edited()[at].name));
                        }
                    }
                }
                let known: Vec<usize> = found.pairs.iter().filter_map(|(_, weight)| *weight).collect();
                found.without.extend(weights.into_values().flatten().filter(|at| !known.contains(at)));
                found.without.sort_unstable();
                return Ok(());
            }
        }
        // A part of a model may be called so too; only an outermost subtree is surely one of averages.
        if subtree.before.is_empty() {
            found.pairs.extend(subtree.tensors.iter().map(|(at, _)| (*at, None)));
        }
        Ok(())
    }

    /// Notes the containers of the edited checkpoint that lose their last tensors, by the key that says what they are.
    pub(crate) fn empty(&mut self, gone: &[bool], is_container: impl Fn(&str) -> bool) {
        let entries = |wanted: bool| {
            let these = self.edited().iter().zip(gone).filter(move |(_, gone)| **gone == wanted);
            these.filter_map(|(item, _)| item.origin.filter(|origin| origin.input == 0))
        };
        let path = |origin| &self.inputs.entry(origin).path.0;
        let mut found: Vec<KeyPath> = Vec::new();
        for origin in entries(true) {
            let keys = path(origin);
            let at = keys.iter().position(|key| is_container(&key.to_string()));
            let Some(at) = at.filter(|at| at + 1 < keys.len()) else { continue };
            let container = KeyPath(keys[..=at].to_vec());
            if found.last() != Some(&container) && !found.contains(&container) {
                found.push(container);
            }
        }
        found.retain(|container| !entries(false).any(|origin| path(origin).starts_with(&container.0)));
        self.emptied.append(&mut found);
    }
}
