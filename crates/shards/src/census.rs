//! Which of the tensors of a set's files count, and what does not fit.

use crate::{Set, list};
use std::collections::{HashMap, HashSet};
use weightlift_core::{Error, Files, OpenOptions, Result};

/// Counts the tensors of the files of a set against its index. The index wins: a tensor counts in the file that the
/// index has it in.
#[derive(Debug)]
pub struct Census<'a> {
    set: &'a Set,
    extension: &'a str,
    /// For each tensor of the index that was not met yet its file.
    missing: HashMap<&'a str, &'a str>,
    /// Tensors met in a file that the index does not have them in, with that file.
    aside: Vec<(String, String)>,
    /// All tensors of the index.
    named: HashSet<&'a str>,
}

impl<'a> Census<'a> {
    /// Begins with no tensor met. The files of the set have this extension.
    pub fn new(set: &'a Set, extension: &'a str) -> Census<'a> {
        let missing: HashMap<&str, &str> = set.index.weight_map.iter().map(|(t, f)| (t.as_str(), f.as_str())).collect();
        let named = missing.keys().copied().collect();
        Census { set, extension, missing, aside: Vec::new(), named }
    }

    /// Meets a tensor in a file; answers whether it counts.
    pub fn counts(&mut self, tensor: &str, file: &str) -> bool {
        let counts = self.missing.get(tensor).is_some_and(|wanted| *wanted == file);
        if counts {
            self.missing.remove(tensor);
        } else {
            self.aside.push((tensor.to_owned(), file.to_owned()));
        }
        counts
    }

    /// What a user should know once all files were gone through: tensors and files that the index does not name, and a
    /// total size that is none of `totals`.
    ///
    /// # Errors
    /// `Malformed` with the list where tensors of the index are not in their files; under
    /// [`OpenOptions::strict`] also for what is otherwise a warning.
    pub fn finish(self, files: &dyn Files, totals: &[u64], options: &OpenOptions) -> Result<Vec<String>> {
        let path = &self.set.path;
        if !self.missing.is_empty() {
            return Err(self.absent().in_file(path));
        }
        let mut warnings: Vec<String> = self.aside.iter().map(|(tensor, file)| self.left_aside(tensor, file)).collect();
        let strays = self.set.strays(files, self.extension);
        if !strays.is_empty() {
            warnings.push(format!("{} left aside: the index does not name it", list(&strays)));
        }
        let index = &self.set.index;
        if let (Some(claimed), Some(bytes)) = (index.total_size(), totals.first())
            && !totals.iter().any(|&bytes| index.has_total_size(bytes))
        {
            warnings.push(format!("the index says total_size {claimed}, but its tensors have {bytes} bytes"));
        }
        match warnings.first() {
            Some(_) if options.strict => {
                let help = "reindex writes an index that fits the files; without --strict the index wins";
                Err(Error::malformed(list(&warnings)).in_file(path).help(help))
            }
            _ => Ok(warnings),
        }
    }

    fn left_aside(&self, tensor: &str, file: &str) -> String {
        let there = if self.named.contains(tensor) { " there" } else { "" };
        format!("tensor {tensor:?} of {file} left aside: the index does not name it{there}")
    }

    /// The error for tensors of the index that are not in their files, with the files that do have them.
    fn absent(&self) -> Error {
        let elsewhere: HashMap<&str, &str> = self.aside.iter().map(|(t, f)| (t.as_str(), f.as_str())).collect();
        let place = |(&tensor, &file): (&&str, &&str)| match elsewhere.get(tensor) {
            Some(other) => format!("{tensor} ({file}; it is in {other})"),
            None => format!("{tensor} ({file})"),
        };
        let mut places: Vec<String> = self.missing.iter().map(place).collect();
        places.sort();
        let (count, places) = (places.len(), list(&places));
        let message = format!("tensors that the index names are not in their files, {count}: {places}");
        Error::malformed(message).help("the index belongs to other files; reindex writes one that fits")
    }
}
