//! Which tensor an argument of a step means.

use crate::items::{Item, Items};
use crate::value::Value;
use crate::{Selection, named_part, nearest};
use weightlift_core::{Error, Result};

impl Items<'_> {
    /// The tensor that `NAME` or `NAME[SLICE]` means, and the slice.
    ///
    /// # Errors
    /// `Request` for a name that no tensor bears, with the nearest, or that several bear.
    pub(crate) fn find<'t>(&self, argument: &'t str, doing: &str) -> Result<(usize, Option<&'t str>)> {
        find_in(self.edited(), argument, doing)
    }

    /// The tensor of this whole name.
    ///
    /// # Errors
    /// As [`Items::find`]; `Request` for a slice.
    pub(crate) fn find_whole<'t>(&self, argument: &'t str, doing: &str) -> Result<(usize, Option<&'t str>)> {
        match self.find(argument, doing)? {
            (_, Some(slice)) => Err(Error::request(format!("{doing} takes a whole tensor, without [{slice}]"))),
            found => Ok(found),
        }
    }

    /// What `FILE.npy`, `WORD::NAME[SLICE]` or `NAME[SLICE]` means.
    ///
    /// # Errors
    /// `Request` for names that mean nothing.
    pub(crate) fn operand(&mut self, text: &str, doing: &str) -> Result<Value> {
        let array = self.inputs.position(text).filter(|_| text.ends_with(".npy"));
        if let Some(input) = array {
            self.use_input(input);
            let value = self.lists[input].first().map(|item| item.value.named(text.to_owned()));
            return value.ok_or_else(|| Error::request("holds no array").in_file(text));
        }
        if text.ends_with(".npy") {
            return Err(Error::request(format!("{doing}: there is no such file")).in_file(text));
        }
        let (input, at, slice) = self.look_up(text, doing)?;
        self.use_input(input);
        let value = self.lists[input][at].value.clone();
        match slice {
            None => Ok(value),
            Some(slice) => {
                let selection = Selection::parse(slice, value.shape()).map_err(|error| error.in_tensor(text))?;
                value.select(&selection, slice)
            }
        }
    }

    /// Whether a text means a tensor of another input, rather than itself.
    pub(crate) fn names_tensor(&self, text: &str) -> bool {
        text.match_indices("::").any(|(at, _)| self.inputs.position(&text[..at]).is_some())
    }

    /// The input and position of what `WORD::NAME` or `NAME` means.
    ///
    /// # Errors
    /// `Request` for names that mean nothing.
    pub(crate) fn locate(&self, text: &str, doing: &str) -> Result<(usize, usize)> {
        self.look_up(text, doing).map(|(input, at, _)| (input, at))
    }

    fn look_up<'t>(&self, text: &'t str, doing: &str) -> Result<(usize, usize, Option<&'t str>)> {
        let foreign = text.match_indices("::").find_map(|(at, _)| {
            let input = self.inputs.position(&text[..at])?;
            Some((input, &text[at + 2..]))
        });
        let (input, name) = foreign.unwrap_or((0, text));
        let found = find_in(&self.lists[input], name, doing);
        let (at, slice) = found.map_err(|error| match (input, text.split_once("::")) {
            (0, Some((word, _))) => {
                let words: Vec<&str> =
                    self.inputs.0.iter().map(|input| input.word).filter(|word| !word.is_empty()).collect();
                error.help(format!("no input is called {word:?}; there are {words:?}: write WORD=PATH to name one"))
            }
            (0, None) => error,
            _ => error.in_file(self.inputs.0[input].word),
        })?;
        Ok((input, at, slice))
    }
}

fn find_in<'t>(items: &[Item], argument: &'t str, doing: &str) -> Result<(usize, Option<&'t str>)> {
    let by_name = |name: &str| {
        let found: Vec<usize> = (0..items.len()).filter(|&at| items[at].name == name).collect();
        match found.as_slice() {
            [] => Ok(None),
            [only] => Ok(Some(*only)),
            several => {
                Err(Error::request(format!("{doing}: {} tensors bear this name", several.len())).in_tensor(name))
            }
        }
    };
    if let Some(found) = named_part(argument, by_name)? {
        return Ok(found);
    }
    let name = argument.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')).map_or(argument, |cut| cut.0);
    let error = Error::request(format!("{doing}: there is no such tensor")).in_tensor(name);
    Err(match nearest(name, items.iter().map(|item| item.name.as_str())).as_slice() {
        [] => error,
        near => error.help(format!("did you mean {}", near.join(" or "))),
    })
}
