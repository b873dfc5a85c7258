//! Axes of one taken out: `--squeeze`.

use super::axis::Axis;
use crate::Pattern;
use crate::items::Items;
use std::fmt;
use weightlift_core::{Error, Result};

/// `PATTERN[@AXIS]`: takes an axis of one out of the shape; without an axis all of them.
#[derive(Debug, Clone)]
pub struct Squeeze {
    text: String,
    pattern: Pattern,
    axis: Option<usize>,
}

impl Squeeze {
    /// Parses `PATTERN[@AXIS]`.
    ///
    /// # Errors
    /// `Request` for a broken pattern.
    pub fn parse(text: &str) -> Result<Squeeze> {
        let (pattern, axis) = Axis::cut(text)?;
        let axis = (pattern.len() < text.len()).then_some(axis.axis);
        Ok(Squeeze { text: text.to_owned(), pattern: Pattern::new(pattern)?, axis })
    }
}

impl fmt::Display for Squeeze {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Items<'_> {
    pub(crate) fn squeeze(&mut self, rule: &Squeeze) -> Result<usize> {
        let mut chosen = self.select(std::slice::from_ref(&rule.pattern), "--squeeze")?;
        if rule.axis.is_none() {
            // Of many that a pattern selects only those change that have such an axis.
            let has_one = |at: usize| self.edited()[at].value.shape().dims().contains(&1);
            (0..chosen.len()).for_each(|at| chosen[at] &= has_one(at));
            if !chosen.contains(&true) && !self.allows_unmatched() {
                let error = Error::request(format!("--squeeze {rule}: no tensor that it selects has an axis of 1"));
                return Err(error.help("--allow-unmatched lets it pass"));
            }
        }
        self.change(&chosen, |value| {
            let dims = value.shape().dims();
            if let Some(axis) = rule.axis
                && dims.get(axis) != Some(&1)
            {
                return Err(Error::request(format!("shape {} has no axis {axis} of 1", value.shape())));
            }
            let stays = |(axis, dim): &(usize, &u64)| rule.axis.map_or(**dim != 1, |gone| gone != *axis);
            let dims: Vec<i64> = dims.iter().enumerate().filter(stays).map(|(_, dim)| *dim as i64).collect();
            value.reshape(&dims)
        })
    }
}
