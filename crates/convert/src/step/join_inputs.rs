//! Inputs that hold parts of one model, joined tensor by tensor: `--join-inputs`.

use super::axis::Axis;
use super::split::Seams;
use crate::Pattern;
use crate::items::Items;
use crate::value::Value;
use std::fmt;
use weightlift_core::{Error, Result};

/// What is done with the tensors of equal name: joined along an axis, or taken from the first since all are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Joined along this axis, inputs in order.
    Axis(Axis),
    /// Equal in all inputs.
    Same,
}

impl Part {
    fn parse(text: &str) -> Option<Part> {
        match text.trim() {
            "same" => Some(Part::Same),
            axis => Axis::parse(axis).map(Part::Axis),
        }
    }
}

/// Tensors of equal name are joined across all inputs, each along the axis that the last rule which selects it says;
/// what no rule selects must be equal in all.
#[derive(Debug, Clone)]
pub struct JoinInputs {
    text: String,
    rules: Vec<(Pattern, Part)>,
}

impl JoinInputs {
    /// Parses `PATTERN=AXIS` or `PATTERN=same`, several of them apart by `;`. An axis is `1`, or `0x16` where each of its
    /// 16 equal blocks is joined by itself.
    ///
    /// # Errors
    /// `Request` for any other form.
    pub fn parse(text: &str) -> Result<JoinInputs> {
        let rules = text.split(';').map(str::trim).filter(|rule| !rule.is_empty());
        let cut = |rule: &'_ str| rule.rsplit_once('=').map(|(a, b)| (a.to_owned(), b.to_owned()));
        let rules: Option<Vec<_>> = rules.map(cut).collect();
        let rules = rules.ok_or_else(|| {
            Error::request(format!("--join-inputs {text:?}")).help("write 'PATTERN=AXIS;PATTERN=same'")
        })?;
        JoinInputs::new(text, rules)
    }

    /// Rules of a pattern and an axis each, in order; `text` says where they are from.
    ///
    /// # Errors
    /// `Request` for a broken pattern or what is no axis.
    pub fn new(text: &str, rules: impl IntoIterator<Item = (String, String)>) -> Result<JoinInputs> {
        let rule = |(pattern, axis): (String, String)| {
            let part = Part::parse(&axis).ok_or_else(|| {
                Error::request(format!("--join-inputs: {axis:?} is no axis")).help("write 0, 1, 0x16 or same")
            })?;
            Ok((Pattern::new(pattern.trim())?, part))
        };
        Ok(JoinInputs { text: text.to_owned(), rules: rules.into_iter().map(rule).collect::<Result<_>>()? })
    }
}

impl fmt::Display for JoinInputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Items<'_> {
    /// Joins every tensor with those of the same name in the other inputs.
    pub(crate) fn join_inputs(&mut self, rule: &JoinInputs) -> Result<usize> {
        const DOING: &str = "--join-inputs";
        let mut parts = vec![Part::Same; self.edited().len()];
        for (pattern, part) in &rule.rules {
            let chosen = self.select(std::slice::from_ref(pattern), DOING)?;
            parts.iter_mut().zip(chosen).filter(|(_, chosen)| *chosen).for_each(|(own, _)| *own = *part);
        }
        let groups = self.groups(DOING)?;
        let mut count = 0;
        for (at, (part, group)) in parts.into_iter().zip(groups).enumerate() {
            let Some(group) = group else { continue };
            count += 1;
            let in_tensor = |error: Error| error.in_tensor(&self.edited()[at].name);
            match part {
                Part::Same => {
                    Value::alike(&group).map_err(in_tensor)?;
                    self.lists[0][at].agrees.push(group);
                }
                Part::Axis(axis) => {
                    let length = |value: &Value| value.shape().dims().get(axis.axis).copied().unwrap_or(1);
                    let seams = Seams { axis, lengths: group.iter().map(length).collect() };
                    let value = Value::concat_in(group, axis).map_err(in_tensor)?;
                    let item = &mut self.lists[0][at];
                    (item.value, item.in_place, item.seams) = (value, false, Some(seams));
                }
            }
        }
        Ok(count)
    }
}
