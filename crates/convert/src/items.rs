//! The tensors on their way through the steps.

use crate::inputs::{Input, Inputs, Place};
use crate::step::{CastRule, Seams};
use crate::value::Value;
use crate::{KeyChoice, Pattern};
use std::collections::{HashMap, HashSet};
use weightlift_core::{DType, Entry, Error, Key, KeyPath, Origin, Result};

/// A tensor on its way through the steps.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) value: Value,
    /// The tensor of an input whose place it takes.
    pub(crate) origin: Option<Origin>,
    pub(crate) path: KeyPath,
    pub(crate) name: String,
    /// The name before any rename, by which tensors of several inputs are paired.
    pub(crate) base: String,
    pub(crate) mark: Option<DType>,
    /// Whether it is the format's own: it follows the others, and only its whole name selects it.
    pub(crate) of_format: bool,
    /// Whether it still is the tensor whose place it takes, edited at most where it stands: its axes mean the same.
    pub(crate) in_place: bool,
    /// How a step joined it.
    pub(crate) seams: Option<Seams>,
    /// What must be equal: the tensor of the first input, or several that it was joined from, each with those of the
    /// other inputs.
    pub(crate) agrees: Vec<Vec<Value>>,
}

impl Item {
    /// One that steps made, under the root.
    pub(crate) fn made(name: String, value: Value) -> Item {
        Item {
            value,
            origin: None,
            path: KeyPath::flat(name.as_str()),
            base: name.clone(),
            name,
            mark: None,
            of_format: false,
            in_place: false,
            seams: None,
            agrees: Vec::new(),
        }
    }

    pub(crate) fn rename(&mut self, name: String) {
        if name != self.name && !self.of_format {
            self.path = renamed(&self.path, &name);
            self.name = name;
        }
    }
}

/// The path of a renamed tensor: it keeps its container while the new name still starts with the container's joined
/// path; otherwise it becomes a key of the root.
pub(crate) fn renamed(path: &KeyPath, name: &str) -> KeyPath {
    let container = &path.0[..path.0.len().saturating_sub(1)];
    let prefix = KeyPath(container.to_vec()).joined() + ".";
    match name.strip_prefix(&prefix) {
        Some(rest) if !container.is_empty() => {
            KeyPath(container.iter().cloned().chain([Key::Text(rest.to_owned())]).collect())
        }
        _ => KeyPath::flat(name),
    }
}

/// The tensors of all inputs, as the steps so far left them; those of the first are edited.
pub(crate) struct Items<'a> {
    pub(crate) inputs: Inputs<'a>,
    pub(crate) lists: Vec<Vec<Item>>,
    allow_unmatched: bool,
    /// The inputs that a step used.
    used: HashSet<usize>,
    /// The names that the edited checkpoint had before any rename.
    had: HashSet<String>,
    /// What a user should know of what the steps did, a line each.
    pub(crate) notes: Vec<String>,
    /// Rules of the step at work, with the number of tensors that each concerned.
    pub(crate) rules: Vec<(String, usize)>,
    /// Containers of the edited checkpoint that a step emptied and that go with their tensors.
    pub(crate) emptied: Vec<KeyPath>,
}

impl<'a> Items<'a> {
    pub(crate) fn of(inputs: Inputs<'a>) -> Items<'a> {
        let item = |input: &Input<'_>, origin: Origin, entry: &Entry| {
            let text = match (origin.input, input.word) {
                (0, _) => entry.name.clone(),
                (other, "") => format!("{} of input {}", entry.name, other + 1),
                (_, word) => format!("{word}::{}", entry.name),
            };
            let (path, name, base) = (entry.path.clone(), entry.name.clone(), entry.name.clone());
            let value = Value::of_entry(origin, entry, text);
            let (origin, of_format) = (Some(origin), entry.of_format);
            Item { origin, path, base, of_format, in_place: true, ..Item::made(name, value) }
        };
        let list = |(at, input): (usize, &Input<'_>)| -> Vec<Item> {
            let entries = input.catalog.iter();
            entries.map(|(id, entry)| item(input, Origin { input: at as u32, entry: id }, entry)).collect()
        };
        let lists: Vec<_> = inputs.0.iter().enumerate().map(list).collect();
        let had = inputs.edited().entries.iter().map(|entry| entry.name.clone()).collect();
        let (notes, rules, emptied) = (Vec::new(), Vec::new(), Vec::new());
        Items { inputs, lists, allow_unmatched: false, used: HashSet::new(), had, notes, rules, emptied }
    }

    /// The tensors that are written.
    ///
    /// # Errors
    /// `Request` for an input that no step used.
    pub(crate) fn finish(&mut self) -> Result<Vec<Item>> {
        if let Some(unused) = (1..self.lists.len()).find(|input| !self.used.contains(input) && !self.is_array(*input)) {
            let word = self.inputs.0[unused].word;
            let called = if word.is_empty() { String::new() } else { format!(", {word}") };
            let error = Error::request(format!("no step uses input {}{called}", unused + 1));
            return Err(
                error.help("--average and --join-inputs merge inputs, WORD::NAME in --set, --add or --copy-rows names a tensor of one")
            );
        }
        Ok(std::mem::take(&mut self.lists[0]))
    }

    pub(crate) fn edited(&self) -> &[Item] {
        &self.lists[0]
    }

    pub(crate) fn allows_unmatched(&self) -> bool {
        self.allow_unmatched
    }

    /// Whether steps may match nothing from now on.
    pub(crate) fn allow_unmatched(&mut self, allow: bool) {
        self.allow_unmatched = allow;
    }

    /// Whether the edited checkpoint had a tensor of this name before any rename.
    pub(crate) fn had(&self, name: &str) -> bool {
        self.had.contains(name)
    }

    /// How many inputs are checkpoints rather than arrays that a step names.
    pub(crate) fn checkpoints(&self) -> usize {
        (0..self.inputs.0.len()).filter(|input| !self.is_array(*input)).count()
    }

    /// Whether an input is an array that a step may name, as one of the ways to cut an argument.
    fn is_array(&self, input: usize) -> bool {
        self.inputs.0[input].word.ends_with(".npy")
    }

    /// Notes that a step used an input.
    pub(crate) fn use_input(&mut self, input: usize) {
        self.used.insert(input);
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.edited().iter().map(|item| item.name.as_str())
    }

    pub(crate) fn select(&self, patterns: &[Pattern], doing: &str) -> Result<Vec<bool>> {
        let mut chosen = vec![false; self.edited().len()];
        for pattern in patterns {
            let mut found = pattern.select(self.names());
            found
                .retain(|&at| self.edited().get(at).is_some_and(|item| !item.of_format || item.name == pattern.text()));
            if found.is_empty() && !self.allow_unmatched {
                return Err(pattern.unmatched(doing, self.names()));
            }
            found.into_iter().for_each(|at| chosen[at] = true);
        }
        Ok(chosen)
    }

    pub(crate) fn keep(&mut self, keep: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.lists[0].retain(|_| {
            at += 1;
            keep(at - 1)
        });
    }

    /// Takes a subtree of every input.
    pub(crate) fn take_key(&mut self, choice: &KeyChoice) -> Result<usize> {
        for (list, input) in self.lists.iter_mut().zip(self.inputs.0) {
            let paths: Vec<_> = list.iter().map(|item| &item.path).collect();
            let in_input = |error: Error| if input.word.is_empty() { error } else { error.in_file(input.word) };
            let root = choice.find(&paths).map_err(in_input)?;
            list.retain(|item| item.path.0.starts_with(&root.0));
            for item in list {
                item.path = KeyPath(item.path.0[root.0.len()..].to_vec());
                item.name = item.path.joined();
                item.base.clone_from(&item.name);
            }
        }
        self.had = self.edited().iter().map(|item| item.base.clone()).collect();
        Ok(self.edited().len())
    }

    pub(crate) fn rename(
        &mut self,
        doing: &str,
        allow_unmatched: bool,
        mut new_name: impl FnMut(&str) -> Result<Option<String>>,
    ) -> Result<usize> {
        let mut count = 0;
        for item in &mut self.lists[0] {
            if let Some(name) = new_name(&item.name)? {
                item.rename(name);
                count += 1;
            }
        }
        if count == 0 && !allow_unmatched {
            return Err(Error::request(format!("{doing} matches no tensor")).help("--allow-unmatched lets it pass"));
        }
        Ok(count)
    }

    pub(crate) fn mark(&mut self, rule: &CastRule) -> Result<usize> {
        let chosen = match &rule.pattern {
            Some(pattern) => self.select(std::slice::from_ref(pattern), "--dtype")?,
            None => vec![true; self.edited().len()],
        };
        let mut count = 0;
        for (item, chosen) in self.lists[0].iter_mut().zip(chosen) {
            if chosen && rule.applies_to(item.value.dtype()) {
                item.mark = Some(rule.to);
                count += 1;
            }
        }
        let specific = rule.pattern.is_some() || rule.from.is_some();
        if count == 0 && specific && !self.allow_unmatched {
            let wanted = rule.from.map_or("floating-point".to_owned(), |from| from.to_string());
            let error = Error::request(format!("--dtype {} matches no {wanted} tensor", rule.text()));
            return Err(error.help(format!("write SRC:{} for tensors of another dtype", rule.to)));
        }
        Ok(count)
    }
}

/// What makes two values the same: one place in an input, or one value that steps made.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    Stored(Place),
    Made(usize),
}

impl Items<'_> {
    pub(crate) fn identity(&self, value: &Value) -> Identity {
        let place = value.entry().and_then(|origin| Place::of(origin.input, self.inputs.entry(origin)));
        place.map_or_else(|| Identity::Made(value.address()), Identity::Stored)
    }

    /// Changes the chosen tensors; those that were tied stay tied.
    pub(crate) fn change(&mut self, chosen: &[bool], make: impl Fn(&Value) -> Result<Value>) -> Result<usize> {
        let mut known: HashMap<Identity, Value> = HashMap::new();
        let mut count = 0;
        for at in (0..chosen.len()).filter(|&at| chosen[at]) {
            let item = &self.edited()[at];
            let identity = self.identity(&item.value);
            let value = match known.get(&identity) {
                Some(value) => value.clone(),
                None => make(&item.value).map_err(|error| error.in_tensor(&item.name))?,
            };
            known.insert(identity, value.clone());
            let item = &mut self.lists[0][at];
            // Its axes are others now, so that it cannot be cut along the one it was joined along.
            (item.value, item.in_place, item.seams) = (value, false, None);
            count += 1;
        }
        Ok(count)
    }
}
