//! Shapes: `--transpose`, `--reshape`, `--slice`, `--concat`, `--stack`, `--split`.

use crate::items::{Item, Items, renamed};
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
    axis: usize,
    /// The group that gives the order.
    order: usize,
}

impl Join {
    /// Parses `REGEX=NAME[@AXIS]`; the axis is 0 where none is given.
    ///
    /// # Errors
    /// `Request` for a broken expression, or where not exactly one group is left for the order.
    pub fn parse(text: &str) -> Result<Join> {
        let (rest, axis) = cut_axis(text)?;
        let rename = Rename::parse(rest)?;
        let unused = rename.unused_groups();
        let [order] = unused.as_slice() else {
            let message = format!("{text:?}: {} groups are left to give the order, where one is needed", unused.len());
            return Err(Error::request(message).help(r"write one group that the name does not use: 'part_(\d+)=whole'"));
        };
        Ok(Join { text: text.to_owned(), order: *order, rename, axis })
    }
}

/// Into how many or how large parts a tensor is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Parts {
    /// So many, longer ones first.
    Count(u64),
    /// Of these lengths.
    Lengths(Vec<u64>),
}

/// `NAME=TEMPLATE:PARTS[@AXIS]`: cuts a tensor along an axis into tensors whose names the template gives: `{i}` is the
/// number of the part, from 0; or `{q,k,v}` lists what stands there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Split {
    text: String,
}

impl Split {
    /// A rule as it is written on the command line; it is cut at the first `=` that has an existing tensor on its left.
    /// `/REGEX/=TEMPLATE:PARTS[@AXIS]` cuts every tensor that the expression finds.
    pub fn parse(text: &str) -> Split {
        Split { text: text.to_owned() }
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
written_as_given!(Transpose text, Reshape text, Slice 0, Join text, Split text);

fn numbers<T: std::str::FromStr>(text: &str) -> Option<Vec<T>> {
    text.split(',').map(|number| number.trim().parse().ok()).collect()
}

/// Takes `@AXIS` off the end.
fn cut_axis(text: &str) -> Result<(&str, usize)> {
    let cut = text.rsplit_once('@').and_then(|(rest, axis)| Some((rest, axis.parse::<i64>().ok()?)));
    match cut {
        None => Ok((text, 0)),
        Some((rest, axis)) => match usize::try_from(axis) {
            Ok(axis) => Ok((rest, axis)),
            Err(_) => Err(Error::request(format!("{text:?}: axes are counted from 0"))),
        },
    }
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
        self.lists[0][at].value = value.select(&selection, slice)?;
        Ok(1)
    }

    pub(crate) fn concat(&mut self, rule: &Join) -> Result<usize> {
        self.join(rule, "--concat", |parts| Value::concat(parts, rule.axis))
    }

    pub(crate) fn stack(&mut self, rule: &Join) -> Result<usize> {
        self.join(rule, "--stack", |parts| Value::stack(parts, rule.axis))
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
            let values = parts.iter().map(|(_, at)| self.edited()[*at].value.clone()).collect();
            let value = make(values).map_err(|error| error.in_tensor(&name))?;
            count += parts.len();
            let first = parts.iter().map(|(_, at)| *at).min().unwrap_or(0);
            parts.iter().for_each(|(_, at)| gone[*at] = *at != first);
            let item = &mut self.lists[0][first];
            item.rename(name);
            item.value = value;
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

    pub(crate) fn split(&mut self, rule: &Split) -> Result<usize> {
        let (left, right) = match rule.text.strip_prefix('/').and_then(|rest| rest.rsplit_once("/=")) {
            Some((regex, right)) => (Some(regex), right),
            None => (None, self.cut_at_name("--split", &rule.text)?.1),
        };
        let wrong = || {
            Error::request(format!("--split {rule}")).help("write NAME=TEMPLATE:PARTS[@AXIS], PARTS a count or 3,4,3")
        };
        let (rest, axis) = cut_axis(right)?;
        let (template, parts) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let parts = match numbers::<u64>(parts).ok_or_else(wrong)?.as_slice() {
            [count] => Parts::Count(*count),
            lengths => Parts::Lengths(lengths.to_vec()),
        };
        let named: Vec<(usize, String)> = match left {
            None => {
                let (at, _) = self.find_whole(&rule.text[..rule.text.len() - right.len() - 1], "--split")?;
                vec![(at, template.to_owned())]
            }
            Some(regex) => {
                let rename = Rename::new(regex, template)?;
                let name = |(at, item): (usize, &Item)| Ok(rename.apply(&item.name)?.map(|template| (at, template)));
                self.edited().iter().enumerate().filter_map(|pair| name(pair).transpose()).collect::<Result<_>>()?
            }
        };
        if named.is_empty() && !self.allows_unmatched() {
            return Err(Error::request(format!("--split {rule} matches no tensor")));
        }
        let count = named.len();
        for (at, template) in named.into_iter().rev() {
            self.split_one(at, &template, &parts, axis)?;
        }
        Ok(count)
    }

    fn split_one(&mut self, at: usize, template: &str, parts: &Parts, axis: usize) -> Result<()> {
        let item = self.edited()[at].clone();
        let error = |message: String| Error::request(format!("--split: {message}")).in_tensor(&item.name);
        let Some(&dim) = item.value.shape().dims().get(axis) else {
            return Err(error(format!("shape {} has no axis {axis}", item.value.shape())));
        };
        let lengths = match parts {
            Parts::Count(count) if (1..=dim).contains(count) => {
                (0..*count).map(|part| dim / count + u64::from(part < dim % count)).collect()
            }
            Parts::Count(count) => return Err(error(format!("axis {axis} of {dim} has no {count} parts"))),
            Parts::Lengths(lengths) => lengths.clone(),
        };
        if lengths.iter().try_fold(0u64, |sum, len| sum.checked_add(*len)) != Some(dim) {
            return Err(error(format!("parts of {lengths:?} are not the {dim} of axis {axis}")));
        }
        let names = part_names(template, lengths.len()).map_err(error)?;
        let mut start = 0;
        let mut made = Vec::new();
        for (name, len) in names.into_iter().zip(lengths) {
            let path = renamed(&item.path, &name);
            let value = item.value.narrow(axis, start, len)?;
            // The parts stand where the whole stood; what a format knows of the whole goes with none of them.
            made.push(Item { value, origin: None, path, base: name.clone(), name, mark: item.mark, of_format: false });
            start += len;
        }
        self.lists[0].splice(at..=at, made);
        Ok(())
    }
}

/// The names that `{i}` or `{a,b,c}` gives.
fn part_names(template: &str, count: usize) -> std::result::Result<Vec<String>, String> {
    if template.contains("{i}") {
        return Ok((0..count).map(|part| template.replace("{i}", &part.to_string())).collect());
    }
    let list = template.find('{').and_then(|open| Some((open, open + template[open..].find('}')?)));
    let Some((open, close)) = list else { return Err(format!("{template:?} has neither {{i}} nor {{a,b}}")) };
    let words: Vec<&str> = template[open + 1..close].split(',').collect();
    if words.len() != count {
        return Err(format!("{template:?} names {} parts of {count}", words.len()));
    }
    Ok(words.iter().map(|word| format!("{}{word}{}", &template[..open], &template[close + 1..])).collect())
}
