//! Shapes: `--transpose`, `--reshape`, `--slice`, `--concat`, `--stack`.

use super::axis::Axis;
use super::split::Seams;
use crate::items::Items;
use crate::selection::Selection;
use crate::value::Value;
use crate::{Pattern, Rename};
use std::collections::BTreeMap;
use std::fmt;
use weightlift_core::{Error, Result};

/// `PATTERN[:AXES]`: axis `k` of the result is axis `AXES[k]`; without axes their order is reversed.
#[derive(Debug, Clone)]
pub struct Transpose {
    text: String,
    pattern: Pattern,
    axes: Option<Vec<usize>>,
}

impl Transpose {
    /// Parses `PATTERN[:1,0]`: only a colon and two or more numbers are axes.
    ///
    /// # Errors
    /// `Request` for a broken pattern.
    pub fn parse(text: &str) -> Result<Transpose> {
        let cut = text.rsplit_once(':').and_then(|(pattern, axes)| Some((pattern, numbers::<usize>(axes)?)));
        let (pattern, axes) = match cut.filter(|(_, axes)| axes.len() > 1) {
            Some((pattern, axes)) => (pattern, Some(axes)),
            None => (text, None),
        };
        Ok(Transpose { text: text.to_owned(), pattern: Pattern::new(pattern)?, axes })
    }

    /// What the pattern selects, with axes in this order.
    pub fn new(pattern: Pattern, axes: Option<Vec<usize>>) -> Transpose {
        Transpose { text: format!("{}:{axes:?}", pattern.text()), pattern, axes }
    }
}

/// `PATTERN=DIMS`: the same elements under another shape; one dimension may be -1.
#[derive(Debug, Clone)]
pub struct Reshape {
    text: String,
    pattern: Pattern,
    dims: Vec<i64>,
}

impl Reshape {
    /// Parses `PATTERN=2,3,-1`; nothing behind the `=` means a scalar.
    ///
    /// # Errors
    /// `Request` for any other form.
    pub fn parse(text: &str) -> Result<Reshape> {
        let cut = text.rsplit_once('=').and_then(|(pattern, dims)| {
            let dims = if dims.trim().is_empty() { Vec::new() } else { numbers(dims)? };
            Some((pattern, dims))
        });
        let (pattern, dims) =
            cut.ok_or_else(|| Error::request(format!("--reshape {text:?}")).help("write PATTERN=2,3,-1"))?;
        Ok(Reshape { text: text.to_owned(), pattern: Pattern::new(pattern)?, dims })
    }
}

/// `NAME[SLICE]`: keeps a part of a tensor; an index drops its axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice(pub String);

/// `REGEX=NAME[@AXIS]`: the tensors that an expression finds are joined in the order of their number under one name.
///
/// The name may use groups, as in [`Rename`]; tensors that get the same name are joined. The one group that it does not
/// use gives the order: numbers ascending, or alternatives such as `(q|k|v)` as they are written.
#[derive(Debug, Clone)]
pub struct Join {
    text: String,
    rename: Rename,
    axis: Axis,
    /// The group that gives the order.
    order: usize,
}

impl Join {
    /// Parses `REGEX=NAME[@AXIS]`; the axis is 0 where none is given. `@0x16` joins each of 16 equal blocks by itself.
    ///
    /// # Errors
    /// `Request` for a broken expression, or where not exactly one group is left for the order.
    pub fn parse(text: &str) -> Result<Join> {
        let (rest, axis) = Axis::cut(text)?;
        let rename = Rename::parse(rest)?;
        let unused = rename.unused_groups();
        let [order] = unused.as_slice() else {
            let message = format!("{text:?}: {} groups are left to give the order, where one is needed", unused.len());
            return Err(Error::request(message).help(r"write one group that the name does not use: 'part_(\d+)=whole'"));
        };
        Ok(Join { text: text.to_owned(), order: *order, rename, axis })
    }
}

macro_rules! written_as_given {
    ($($rule:ident $field:tt),*) => {$(
        impl fmt::Display for $rule {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.$field)
            }
        }
    )*};
}
written_as_given!(Transpose text, Reshape text, Slice 0, Join text);

fn numbers<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    text.split(',').map(|number| number.trim().parse().ok()).collect()
}

impl Items<'_> {
    pub(crate) fn transpose(&mut self, rule: &Transpose) -> Result<usize> {
        let chosen = self.select(std::slice::from_ref(&rule.pattern), "--transpose")?;
        self.change(&chosen, |value| value.permute(rule.axes.as_deref()))
    }

    pub(crate) fn reshape(&mut self, rule: &Reshape) -> Result<usize> {
        let chosen = self.select(std::slice::from_ref(&rule.pattern), "--reshape")?;
        self.change(&chosen, |value| value.reshape(&rule.dims))
    }

    pub(crate) fn slice(&mut self, rule: &Slice) -> Result<usize> {
        let (at, slice) = self.find(&rule.0, "--slice")?;
        let slice =
            slice.ok_or_else(|| Error::request(format!("--slice {rule} has no slice")).help("write NAME[0:3]"))?;
        let value = &self.edited()[at].value;
        let selection = Selection::parse(slice, value.shape()).map_err(|error| error.in_tensor(&rule.0))?;
        let value = value.select(&selection, slice)?;
        let item = &mut self.lists[0][at];
        item.seams = item.seams.take().filter(|_| value.shape().rank() == item.value.shape().rank());
        (item.value, item.in_place) = (value, false);
        Ok(1)
    }

    pub(crate) fn concat(&mut self, rule: &Join) -> Result<usize> {
        self.join(rule, "--concat", |parts| Value::concat_in(parts, rule.axis))
    }

    pub(crate) fn stack(&mut self, rule: &Join) -> Result<usize> {
        if rule.axis.blocks != 1 {
            return Err(Error::request(format!("--stack {rule}: a new axis has no blocks")));
        }
        self.join(rule, "--stack", |parts| Value::stack(parts, rule.axis.axis))
    }

    fn join(&mut self, rule: &Join, doing: &str, make: impl Fn(Vec<Value>) -> Result<Value>) -> Result<usize> {
        let mut groups: BTreeMap<String, Vec<(u64, usize)>> = BTreeMap::new();
        for (at, item) in self.edited().iter().enumerate() {
            let Some(name) = rule.rename.apply(&item.name)? else { continue };
            let Some(order) = rule.rename.order(&item.name, rule.order) else {
                let message = format!("{doing} {rule}: what gives the order is neither a number nor an alternative");
                return Err(Error::request(message).in_tensor(&item.name));
            };
            groups.entry(name).or_default().push((order, at));
        }
        if groups.is_empty() && !self.allows_unmatched() {
            return Err(Error::request(format!("{doing} {rule} matches no tensor")));
        }
        let mut gone = vec![false; self.edited().len()];
        let mut count = 0;
        for (name, mut parts) in groups {
            parts.sort_unstable();
            self.check_order(doing, &name, &parts)?;
            let (first, last) = (parts.first().map_or(0, |part| part.0), parts.last().map_or(0, |part| part.0));
            let wanted = rule.rename.alternatives(rule.order);
            let begins = if wanted.is_some() { first == 0 } else { first <= 1 };
            if !begins || wanted.is_some_and(|count| last + 1 != count as u64) {
                let message =
                    format!("{doing} {rule}: the {} is missing", if begins { "last part" } else { "first part" });
                return Err(Error::request(message).in_tensor(&name));
            }
            let values: Vec<Value> = parts.iter().map(|(_, at)| self.edited()[*at].value.clone()).collect();
            let lengths = values.iter().map(|value| value.shape().dims().get(rule.axis.axis).copied().unwrap_or(1));
            let seams = Seams { axis: rule.axis, lengths: lengths.collect() };
            let value = make(values).map_err(|error| error.in_tensor(&name))?;
            count += parts.len();
            let first = parts.iter().map(|(_, at)| *at).min().unwrap_or(0);
            let agrees: Vec<_> = parts.iter().flat_map(|(_, at)| self.edited()[*at].agrees.clone()).collect();
            parts.iter().for_each(|(_, at)| gone[*at] = *at != first);
            let item = &mut self.lists[0][first];
            item.rename(name);
            (item.value, item.in_place, item.seams, item.agrees) = (value, false, Some(seams), agrees);
        }
        self.keep(|at| !gone[at]);
        Ok(count)
    }

    /// Parts that follow each other, each number once.
    fn check_order(&self, doing: &str, name: &str, parts: &[(u64, usize)]) -> Result<()> {
        for two in parts.windows(2) {
            let (a, b) = (two[0], two[1]);
            let names = [&self.edited()[a.1].name, &self.edited()[b.1].name];
            if a.0 == b.0 {
                let message = format!("{doing}: {:?} and {:?} have the same place {}", names[0], names[1], a.0);
                return Err(Error::request(message).in_tensor(name));
            }
            if b.0 - a.0 > 1 {
                let message = format!("{doing}: part {} is missing between {:?} and {:?}", a.0 + 1, names[0], names[1]);
                return Err(Error::request(message).in_tensor(name));
            }
        }
        Ok(())
    }
}
