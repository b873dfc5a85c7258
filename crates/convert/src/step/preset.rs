//! Presets: tables of rules from one model's names and layouts to another's.

use crate::items::{Item, Items};
use crate::pattern::compile;
use crate::value::Value;
use regex::Regex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use weightlift_core::{DType, Error, Result, Shape};

/// A name with holes.
///
/// `{#n}` is a number, `{#n:3}` one filled up with zeros to three digits, `{part=a|b}` one of several words, `{name}` a
/// component, `{*rest}` any number of components.
///
/// ```
/// use weightlift_convert::Template;
/// let (from, to) = (Template::parse("h{#n:2}/{*rest}").unwrap(), Template::parse("layer.{#n}.{*rest}").unwrap());
/// let holes = from.holes("h07/w/b").unwrap();
/// assert_eq!(to.fill(&holes).unwrap(), "layer.7.w/b");
/// ```
#[derive(Debug, Clone)]
pub struct Template {
    text: String,
    pieces: Vec<Piece>,
    regex: Regex,
}

#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    Number { hole: String, width: usize },
    Words { hole: String },
}

impl Template {
    /// Parses a template.
    ///
    /// # Errors
    /// `Request` for a brace without its other, or a hole that stands twice.
    pub fn parse(text: &str) -> Result<Template> {
        let wrong = |what: &str| Error::request(format!("template {text:?} {what}"));
        let (mut pieces, mut regex) = (Vec::new(), String::from(r"\A"));
        let mut rest = text;
        while !rest.is_empty() {
            let (before, after) = rest.split_once('{').unwrap_or((rest, ""));
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
                regex.push_str(&regex::escape(before));
            }
            if before.len() == rest.len() {
                break;
            }
            let (inner, tail) = after.split_once('}').ok_or_else(|| wrong("has a { without a }"))?;
            rest = tail;
            let (hole, pattern) = match (inner.strip_prefix('#'), inner.strip_prefix('*')) {
                (Some(number), _) => {
                    let (hole, width) = number.split_once(':').unwrap_or((number, "1"));
                    let width = width.parse().ok().filter(|width| *width <= 20);
                    let width: usize = width.ok_or_else(|| wrong("has a width that is no number up to 20"))?;
                    pieces.push(Piece::Number { hole: hole.to_owned(), width });
                    (hole, format!(r"\d{{{width},}}"))
                }
                (None, Some(hole)) => (hole, ".+".to_owned()),
                (None, None) => match inner.split_once('=') {
                    Some((hole, words)) => {
                        let words: Vec<String> = words.split('|').map(regex::escape).collect();
                        (hole, words.join("|"))
                    }
                    None => (inner, "[^/.]+".to_owned()),
                },
            };
            if !inner.starts_with('#') {
                pieces.push(Piece::Words { hole: hole.to_owned() });
            }
            regex.push_str(&format!("(?P<{hole}>{pattern})"));
        }
        let regex = compile(&(regex + r"\z"), text)?;
        Ok(Template { text: text.to_owned(), pieces, regex })
    }

    /// What stands in the holes of a name; `None` where it does not fit.
    pub fn holes(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let captures = self.regex.captures(name)?;
        let hole = |hole: &str| Some((hole.to_owned(), captures.name(hole)?.as_str().to_owned()));
        Some(self.regex.capture_names().flatten().filter_map(hole).collect())
    }

    /// The name with its holes filled; `None` where one is unknown or no number.
    pub fn fill(&self, holes: &BTreeMap<String, String>) -> Option<String> {
        let mut name = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => name.push_str(text),
                Piece::Words { hole } => name.push_str(holes.get(hole)?),
                Piece::Number { hole, width } => {
                    let number: u64 = holes.get(hole)?.parse().ok()?;
                    name.push_str(&format!("{number:0width$}"));
                }
            }
        }
        Some(name)
    }
}

/// One rule of a preset: names that fit `from` become `to`, and their layout changes.
#[derive(Debug, Clone)]
pub struct PresetRule {
    /// The names there are.
    pub from: Template,
    /// The names they get.
    pub to: Template,
    /// Axis `k` of the result is axis `axes[k]`.
    pub axes: Option<Vec<usize>>,
    /// An axis of one that is taken out before.
    pub squeeze: Option<usize>,
    /// Only tensors of so many axes.
    pub rank: Option<usize>,
    /// Only tensors beside which one of this name is, its holes filled as those of `from`.
    pub beside: Option<Template>,
    /// Whether the first two axes become one, and an axis of one comes behind them, afterwards.
    pub merge: bool,
}

/// A tensor that the other side has besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresetAdd {
    /// Its name.
    pub name: String,
    /// The tensor it is made from; without it there is nothing to add.
    pub of: String,
    /// Whether it holds the row numbers `[[0, 1, …]]` of that tensor, rather than being tied to it.
    pub positions: bool,
    /// Another tensor that must be there too.
    pub beside: Option<String>,
}

/// A table of rules, in one direction.
#[derive(Debug, Clone)]
pub struct Preset {
    /// Its name, with `:reverse` for the way back.
    pub text: String,
    /// The rules; the first that fits a tensor is taken.
    pub rules: Vec<PresetRule>,
    /// What the other side has besides.
    pub adds: Vec<PresetAdd>,
    /// What parts components on this side and on the other; converted in `{*rest}`.
    pub separators: Option<(char, char)>,
    /// Whether it is the way back.
    pub reverse: bool,
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Preset {
    /// The new name and value of a tensor that a rule fits, and which rule that is.
    fn change(&self, item: &Item, names: &HashSet<&str>) -> Result<Option<(usize, String, Value)>> {
        for (at, rule) in self.rules.iter().enumerate() {
            let (from, to) = if self.reverse { (&rule.to, &rule.from) } else { (&rule.from, &rule.to) };
            let Some(holes) = from.holes(&item.name) else { continue };
            let beside = rule.beside.as_ref().map(|beside| beside.fill(&holes));
            if beside.is_some_and(|beside| beside.is_none_or(|beside| !names.contains(beside.as_str()))) {
                continue;
            }
            let rank = rule
                .rank
                .map(|rank| if self.reverse { rank.saturating_sub(usize::from(rule.squeeze.is_some())) } else { rank });
            if rank.is_some_and(|rank| rank != item.value.shape().rank()) {
                continue;
            }
            let (there, back) = self.separators.unwrap_or((' ', ' '));
            let turned: BTreeMap<String, String> =
                holes.iter().map(|(hole, text)| (hole.clone(), text.replace(there, &back.to_string()))).collect();
            let name = to.fill(&turned).ok_or_else(|| {
                Error::request(format!("preset {self}: {:?} cannot be filled", to.text)).in_tensor(&item.name)
            })?;
            let value = if self.reverse { rule.back(&item.value) } else { rule.forth(&item.value) };
            let value = value.map_err(|error| error.in_tensor(&item.name))?;
            return Ok(Some((at, name, value)));
        }
        Ok(None)
    }
}

/// The dimensions with one put in.
fn with_one(value: &Value, axis: usize) -> Result<Value> {
    let mut dims: Vec<i64> = dims_of(value);
    dims.insert(axis.min(dims.len()), 1);
    value.reshape(&dims)
}

fn dims_of(value: &Value) -> Vec<i64> {
    value.shape().dims().iter().map(|&dim| dim as i64).collect()
}

impl PresetRule {
    fn forth(&self, value: &Value) -> Result<Value> {
        let mut value = value.clone();
        if let Some(axis) = self.squeeze {
            let mut dims = dims_of(&value);
            if dims.get(axis) != Some(&1) {
                return Err(Error::request(format!("shape {} has no axis {axis} of 1", value.shape())));
            }
            dims.remove(axis);
            value = value.reshape(&dims)?;
        }
        if let Some(axes) = &self.axes {
            value = value.permute(Some(axes))?;
        }
        if self.merge {
            let dims = dims_of(&value);
            let [first, second, rest @ ..] = dims.as_slice() else {
                return Err(Error::request(format!("shape {} has no two axes to merge", value.shape())));
            };
            let merged: Vec<i64> = [first * second, 1].into_iter().chain(rest.iter().copied()).collect();
            value = value.reshape(&merged)?;
        }
        Ok(value)
    }

    fn back(&self, value: &Value) -> Result<Value> {
        let mut value = value.clone();
        if let Some(axes) = &self.axes {
            let mut inverse = vec![0; axes.len()];
            for (to, &from) in axes.iter().enumerate() {
                if let Some(slot) = inverse.get_mut(from) {
                    *slot = to;
                }
            }
            value = value.permute(Some(&inverse))?;
        }
        match self.squeeze {
            Some(axis) => with_one(&value, axis),
            None => Ok(value),
        }
    }
}

impl Items<'_> {
    /// Applies the rules of a preset: some may match nothing, not all of them.
    pub(crate) fn preset(&mut self, preset: &Preset) -> Result<usize> {
        let mut count = 0;
        let mut made: Vec<Option<(String, Value)>> = Vec::new();
        let mut concerned = vec![0; preset.rules.len()];
        let mut known: HashMap<_, Value> = HashMap::new();
        let names: HashSet<&str> = self.names().collect();
        for item in self.edited() {
            let change = preset.change(item, &names)?;
            made.push(change.map(|(rule, name, value)| {
                count += 1;
                concerned[rule] += 1;
                // Tied tensors that change alike stay tied.
                let key = (self.identity(&item.value), value.shape().clone(), value.to_string());
                (name, known.entry(key).or_insert(value).clone())
            }));
        }
        drop(names);
        if preset.reverse {
            let added: Vec<bool> = self.names().map(|name| preset.adds.iter().any(|add| add.name == name)).collect();
            made = made.into_iter().zip(&added).filter(|(_, added)| !**added).map(|(made, _)| made).collect();
            let changed = |at: usize| added[at] && self.edited()[at].value.entry().is_none();
            if let Some(at) = (0..added.len()).find(|&at| changed(at)) {
                let error = Error::request(format!("preset {preset} drops it, but it was changed"));
                let error = error.in_tensor(&self.edited()[at].name);
                return Err(error.help("change the tensor that it is tied to, or drop it with --exclude"));
            }
            self.keep(|at| !added[at]);
        }
        if count == 0 && !self.allows_unmatched() {
            return Err(Error::request(format!("preset {preset}: no rule matches any tensor"))
                .help("weightlift presets NAME prints its rules; ls shows the names"));
        }
        for (item, change) in self.lists[0].iter_mut().zip(made) {
            if let Some((name, value)) = change {
                item.rename(name);
                item.in_place &= value.entry().is_some();
                item.seams = item.seams.take().filter(|_| value.address() == item.value.address());
                item.value = value;
            }
        }
        let rule = |rule: &PresetRule| match preset.reverse {
            true => format!("{} -> {}", rule.to.text, rule.from.text),
            false => format!("{} -> {}", rule.from.text, rule.to.text),
        };
        self.rules.extend(preset.rules.iter().map(rule).zip(concerned));
        if !preset.reverse {
            preset.adds.iter().try_for_each(|add| self.add_beside(add))?;
        }
        Ok(count)
    }

    fn add_beside(&mut self, add: &PresetAdd) -> Result<()> {
        let at = |name: &str| self.edited().iter().position(|item| item.name == name);
        let wanted = add.beside.as_deref().is_none_or(|beside| at(beside).is_some());
        let Some(of) = at(&add.of).filter(|_| wanted && at(&add.name).is_none()) else { return Ok(()) };
        let (value, mark) = (self.edited()[of].value.clone(), self.edited()[of].mark);
        let value = if add.positions { positions(&value)? } else { value };
        let mark = mark.filter(|_| !add.positions);
        self.lists[0].push(Item { mark, ..Item::made(add.name.clone(), value) });
        Ok(())
    }
}

/// The row numbers of a table, as one row of i64.
fn positions(table: &Value) -> Result<Value> {
    const MOST: u64 = 1 << 24;
    let rows = table.shape().dims().first().copied().unwrap_or(0);
    if rows > MOST {
        return Err(Error::limit(format!("{table}: {rows} positions are more than {MOST}")));
    }
    let bytes = (0..rows as i64).flat_map(i64::to_le_bytes).collect();
    Value::of_bytes(DType::I64, Shape::new([1, rows])?, bytes, format!("0..{rows}"))
}
