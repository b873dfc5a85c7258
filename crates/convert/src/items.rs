//! The tensors on their way through the steps.

use crate::inputs::{Input, Inputs};
use crate::step::{CastRule, Step};
use crate::value::Value;
use crate::{KeyChoice, Pattern};
use weightlift_core::{DType, Entry, Error, Key, KeyPath, Origin, Result};

/// A tensor on its way through the steps.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) value: Value,
    /// The tensor of an input whose place it takes.
    pub(crate) origin: Option<Origin>,
    pub(crate) path: KeyPath,
    pub(crate) name: String,
    pub(crate) mark: Option<DType>,
}

impl Item {
    fn rename(&mut self, name: String) {
        if name != self.name {
            self.path = renamed(&self.path, &name);
            self.name = name;
        }
    }
}

/// The path of a renamed tensor: it keeps its container while the new name still starts with the container's joined
/// path; otherwise it becomes a key of the root.
fn renamed(path: &KeyPath, name: &str) -> KeyPath {
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
    inputs: Inputs<'a>,
    pub(crate) lists: Vec<Vec<Item>>,
    allow_unmatched: bool,
}

impl<'a> Items<'a> {
    pub(crate) fn of(inputs: Inputs<'a>, allow_unmatched: bool) -> Items<'a> {
        let item = |input: &Input<'_>, origin: Origin, entry: &Entry| {
            let text = if origin.input == 0 { entry.name.clone() } else { format!("{}::{}", input.word, entry.name) };
            let (path, name) = (entry.path.clone(), entry.name.clone());
            Item { value: Value::of_entry(origin, entry, text), origin: Some(origin), path, name, mark: None }
        };
        let list = |(at, input): (usize, &Input<'_>)| -> Vec<Item> {
            let entries = input.catalog.iter();
            entries.map(|(id, entry)| item(input, Origin { input: at as u32, entry: id }, entry)).collect()
        };
        let lists = inputs.0.iter().enumerate().map(list).collect();
        Items { inputs, lists, allow_unmatched }
    }

    /// The tensors that are written.
    pub(crate) fn finish(mut self) -> Result<Vec<Item>> {
        Ok(std::mem::take(&mut self.lists[0]))
    }

    fn edited(&self) -> &[Item] {
        &self.lists[0]
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.edited().iter().map(|item| item.name.as_str())
    }

    /// Carries out one step; answers how many tensors it concerned.
    pub(crate) fn apply(&mut self, step: &Step) -> Result<usize> {
        match step {
            Step::Include(patterns) => {
                let chosen = self.select(patterns, "--include")?;
                self.keep(|at| chosen[at]);
                Ok(self.edited().len())
            }
            Step::Exclude(patterns) => {
                let chosen = self.select(patterns, "--exclude")?;
                self.keep(|at| !chosen[at]);
                Ok(chosen.iter().filter(|&&chosen| chosen).count())
            }
            Step::Key(choice) => self.take_key(choice),
            Step::Rename(rename) => self.rename(&step.to_string(), self.allow_unmatched, |name| rename.apply(name)),
            Step::RenameWith(rename) => self.rename(&step.to_string(), true, |name| Ok(Some(rename(name)))),
            Step::StripPrefix(prefixes) => {
                self.rename(&step.to_string(), self.allow_unmatched, |name| Ok(strip(name, prefixes)))
            }
            Step::AddPrefix(prefix) => self.rename(&step.to_string(), true, |name| Ok(Some(format!("{prefix}{name}")))),
            Step::Cast(rule) => self.mark(rule),
        }
    }

    fn select(&self, patterns: &[Pattern], doing: &str) -> Result<Vec<bool>> {
        let mut chosen = vec![false; self.edited().len()];
        for pattern in patterns {
            let found = pattern.select(self.names());
            if found.is_empty() && !self.allow_unmatched {
                return Err(pattern.unmatched(doing, self.names()));
            }
            found.into_iter().for_each(|at| chosen[at] = true);
        }
        Ok(chosen)
    }

    fn keep(&mut self, keep: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.lists[0].retain(|_| {
            at += 1;
            keep(at - 1)
        });
    }

    /// Takes a subtree of every input.
    fn take_key(&mut self, choice: &KeyChoice) -> Result<usize> {
        for (list, input) in self.lists.iter_mut().zip(self.inputs.0) {
            let paths: Vec<_> = list.iter().map(|item| &item.path).collect();
            let in_input = |error: Error| if input.word.is_empty() { error } else { error.in_file(input.word) };
            let root = choice.find(&paths).map_err(in_input)?;
            list.retain(|item| item.path.0.starts_with(&root.0));
            for item in list {
                item.path = KeyPath(item.path.0[root.0.len()..].to_vec());
                item.name = item.path.joined();
            }
        }
        Ok(self.edited().len())
    }

    fn rename(
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

    fn mark(&mut self, rule: &CastRule) -> Result<usize> {
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

fn strip(name: &str, prefixes: &[String]) -> Option<String> {
    let mut rest = name;
    while let Some(shorter) = prefixes.iter().filter(|p| !p.is_empty()).find_map(|p| rest.strip_prefix(p.as_str())) {
        rest = shorter;
    }
    (rest.len() < name.len()).then(|| rest.to_owned())
}
