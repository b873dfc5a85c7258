//! Tensors cut along an axis: `--split`.

use super::axis::Axis;
use crate::Rename;
use crate::items::{Item, Items, renamed};
use std::fmt;
use weightlift_core::{Error, Result};

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

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Into how many or how large parts a tensor is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Parts {
    /// So many, longer ones first.
    Count(u64),
    /// Of these lengths.
    Lengths(Vec<u64>),
    /// As the tensor was joined by a step before, or as the tensors of the same names are in the input of a word.
    Like(String),
}

impl Parts {
    fn parse(text: &str) -> Option<Parts> {
        if let Some(word) = text.strip_prefix("like") {
            return (word.is_empty() || word.starts_with(' ')).then(|| Parts::Like(word.trim().to_owned()));
        }
        let numbers: Option<Vec<u64>> = text.split(',').map(|number| number.trim().parse().ok()).collect();
        numbers.map(|numbers| if let [count] = numbers[..] { Parts::Count(count) } else { Parts::Lengths(numbers) })
    }
}

/// Into how many parts a tensor may be cut: each becomes a tensor.
const MOST_PARTS: u64 = 1 << 20;

/// How a tensor was joined: along which axis, of parts of which lengths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seams {
    pub(crate) axis: Axis,
    pub(crate) lengths: Vec<u64>,
}

/// The same parts for another length: the last takes the difference.
///
/// # Errors
/// `Request` where the last parts would have nothing left.
fn fitted(lengths: &[u64], total: u64) -> Result<Vec<u64>> {
    let before = lengths.iter().take(lengths.len().saturating_sub(1)).sum::<u64>();
    match lengths.split_last() {
        Some((_, rest)) if before < total => Ok(rest.iter().copied().chain([total - before]).collect()),
        _ => Err(Error::request(format!("{total} are left, which do not reach the last of the parts {lengths:?}"))),
    }
}

impl Items<'_> {
    pub(crate) fn split(&mut self, rule: &Split) -> Result<usize> {
        let (left, right) = match rule.text.strip_prefix('/').and_then(|rest| rest.rsplit_once("/=")) {
            Some((regex, right)) => (Some(regex), right),
            None => (None, self.cut_at_name("--split", &rule.text)?.1),
        };
        let wrong = || {
            Error::request(format!("--split {rule}"))
                .help("write NAME=TEMPLATE:PARTS[@AXIS], PARTS a count, 3,4,3, like, or like WORD")
        };
        let (rest, axis) = Axis::cut(right)?;
        let (template, parts) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let parts = Parts::parse(parts).ok_or_else(wrong)?;
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
        // `@AXIS` says nothing against the axis along which a tensor was joined, but need not be repeated.
        let given = (rest.len() < right.len()).then_some(axis);
        for (at, template) in named.into_iter().rev() {
            self.split_one(at, &template, &parts, given)?;
        }
        Ok(count)
    }

    fn split_one(&mut self, at: usize, template: &str, parts: &Parts, given: Option<Axis>) -> Result<()> {
        let item = self.edited()[at].clone();
        let in_tensor = |error: Error| error.in_tensor(&item.name);
        let wrong = |message: String| Error::request(format!("--split: {message}")).in_tensor(&item.name);
        let mut axis = given.unwrap_or(Axis { axis: 0, blocks: 1 });
        let dim = |axis: Axis| item.value.shape().dims().get(axis.axis).copied();
        let no_axis = |axis: Axis| wrong(format!("shape {} has no axis {}", item.value.shape(), axis.axis));
        let lengths: Vec<u64> = match parts {
            Parts::Count(count) => {
                let block = axis.block(item.value.shape()).map_err(in_tensor)?;
                if !(1..=block).contains(count) {
                    return Err(wrong(format!("axis {} of {block} has no {count} parts", axis.axis)));
                }
                if *count > MOST_PARTS {
                    let error = Error::limit(format!("--split: {count} parts are more than {MOST_PARTS}"));
                    return Err(in_tensor(error));
                }
                (0..*count).map(|part| (block / count + u64::from(part < block % count)) * axis.blocks).collect()
            }
            Parts::Lengths(lengths) => lengths.clone(),
            Parts::Like(word) if word.is_empty() => {
                let Some(seams) = &item.seams else {
                    let error = wrong("no step before joined it, so that there are no parts to be like".to_owned());
                    return Err(error.help("write the lengths, or like WORD for those of an input"));
                };
                if given.is_some_and(|given| given != seams.axis) {
                    return Err(wrong(format!("it was joined along {}", seams.axis)));
                }
                axis = seams.axis;
                fitted(&seams.lengths, dim(axis).ok_or_else(|| no_axis(axis))?).map_err(in_tensor)?
            }
            Parts::Like(word) => {
                let lengths = self.lengths_like(word, template, axis).map_err(in_tensor)?;
                fitted(&lengths, dim(axis).ok_or_else(|| no_axis(axis))?).map_err(in_tensor)?
            }
        };
        let dim = dim(axis).ok_or_else(|| no_axis(axis))?;
        if lengths.iter().try_fold(0u64, |sum, len| sum.checked_add(*len)) != Some(dim) {
            return Err(wrong(format!("parts of {lengths:?} are not the {dim} of axis {}", axis.axis)));
        }
        let names = part_names(template, lengths.len()).map_err(wrong)?;
        let mut start = 0;
        let mut made = Vec::new();
        for (name, len) in names.into_iter().zip(lengths) {
            let path = renamed(&item.path, &name);
            let value = item.value.narrow_in(axis, start, len).map_err(in_tensor)?;
            // The parts stand where the whole stood; what a format knows of the whole goes with none of them.
            let agrees = item.agrees.clone();
            made.push(Item { path, mark: item.mark, agrees, ..Item::made(name, value) });
            start += len;
        }
        self.lists[0].splice(at..=at, made);
        Ok(())
    }

    /// How long the tensors are that a template names in another input.
    fn lengths_like(&mut self, word: &str, template: &str, axis: Axis) -> Result<Vec<u64>> {
        let Some(input) = self.inputs.position(word) else {
            return Err(Error::request(format!("--split: no input is called {word:?}")).help("write WORD=PATH"));
        };
        self.use_input(input);
        let length = |name: &str| -> Option<u64> {
            let item = self.lists[input].iter().find(|item| item.name == name)?;
            item.value.shape().dims().get(axis.axis).copied()
        };
        let names: Vec<String> = match list_of(template) {
            Some((before, words, after)) => words.iter().map(|word| format!("{before}{word}{after}")).collect(),
            None => {
                let name = |part: usize| template.replace("{i}", &part.to_string());
                (0..).map(name).take_while(|name| template.contains("{i}") && length(name).is_some()).collect()
            }
        };
        let lengths: Option<Vec<u64>> = names.iter().map(|name| length(name)).collect();
        lengths.filter(|lengths| !lengths.is_empty()).ok_or_else(|| {
            Error::request(format!("--split: input {word:?} has not the tensors that {template:?} names"))
        })
    }
}

/// What stands around `{a,b,c}`, and its words.
fn list_of(template: &str) -> Option<(&str, Vec<&str>, &str)> {
    let (before, rest) = template.split_once('{').filter(|_| !template.contains("{i}"))?;
    let (words, after) = rest.split_once('}')?;
    Some((before, words.split(',').collect(), after))
}

/// The names that `{i}` or `{a,b,c}` gives.
fn part_names(template: &str, count: usize) -> std::result::Result<Vec<String>, String> {
    if template.contains("{i}") {
        return Ok((0..count).map(|part| template.replace("{i}", &part.to_string())).collect());
    }
    let Some((before, words, after)) = list_of(template) else {
        return Err(format!("{template:?} has neither {{i}} nor {{a,b}}"));
    };
    if words.len() != count {
        return Err(format!("{template:?} names {} parts of {count}", words.len()));
    }
    Ok(words.iter().map(|word| format!("{before}{word}{after}")).collect())
}
