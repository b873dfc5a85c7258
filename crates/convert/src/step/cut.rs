//! Where an argument `NAME=VALUE` is cut: at the first `=` that has an existing tensor, with or without a slice, on its
//! left. Names are known only when the steps before have acted; what has to be known earlier takes every cut into account.

use crate::items::Items;
use weightlift_core::{Error, Result};

/// Every way to cut an argument, from the left.
pub(super) fn cuts(text: &str) -> impl Iterator<Item = (&str, &str)> + Clone {
    text.match_indices('=').map(|(at, _)| (&text[..at], &text[at + 1..]))
}

impl Items<'_> {
    /// Cuts an argument.
    ///
    /// # Errors
    /// `Request` without a `=`, or where no cut has a tensor on its left.
    pub(super) fn cut_at_name<'t>(&self, doing: &str, text: &'t str) -> Result<(&'t str, &'t str)> {
        let mut known = cuts(text).filter(|(name, _)| self.find(name, doing).is_ok());
        if let Some(cut) = known.next() {
            return Ok(cut);
        }
        let Some((name, _)) = cuts(text).next() else {
            return Err(Error::request(format!("{doing} {text:?} has no '='")));
        };
        // The first cut says best what is wrong with the name.
        self.find(name, doing).map(|_| (name, ""))
    }
}
