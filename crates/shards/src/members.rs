//! The files of a set as the folder has them, whatever an index says.

use crate::name::numbered;
use crate::{base_of, index_name, list, shard_name};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use weightlift_core::{Error, Files, Result};

/// The extensions that files of sets have.
const EXTENSIONS: [&str; 2] = ["safetensors", "bin"];
const INDEX: &str = ".index.json";

/// The files of one set: numbered names of one base, from 1 to their count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Members {
    base: String,
    extension: &'static str,
    names: Vec<String>,
}

impl Members {
    /// Finds the one set of a folder; where `name` is given, the one that an index or a file of that name belongs to.
    ///
    /// # Errors
    /// `Request` where there is none, or several; `Malformed` where numbers are missing, with the list of those files.
    pub fn find(files: &dyn Files, folder: &Path, name: Option<&str>) -> Result<Members> {
        let found = files.list(folder).map_err(|error| Error::io("cannot list", folder, error))?;
        let found = found.into_iter().filter_map(|name| name.into_string().ok());
        Members::among(found, name).map_err(|error| error.in_file(folder))
    }

    fn among(found: impl Iterator<Item = String>, name: Option<&str>) -> Result<Members> {
        let wanted = name.map(|name| name.strip_suffix(INDEX).unwrap_or(name));
        let wanted = wanted.and_then(|name| EXTENSIONS.iter().find_map(|&e| Some((base_of(name, e)?.to_owned(), e))));
        if let (Some(name), None) = (name, &wanted) {
            return Err(Error::request(format!("{name:?} is neither the index nor a file of a set")));
        }
        let mut sets: BTreeMap<(String, &'static str, usize), BTreeSet<usize>> = BTreeMap::new();
        for name in found {
            let of = |extension: &'static str| {
                let (base, number, count) = numbered(name.strip_suffix(extension)?.strip_suffix('.')?)?;
                Some(((base.to_owned(), extension, count), number))
            };
            if let Some((set, number)) = EXTENSIONS.iter().find_map(|&extension| of(extension)) {
                sets.entry(set).or_default().insert(number);
            }
        }
        sets.retain(|(base, extension, _), _| {
            wanted.as_ref().is_none_or(|(wanted, of)| wanted == base && of == extension)
        });
        let describe =
            |(base, extension, count): &(String, &str, usize)| format!("{base}.{extension} of {count} files");
        let mut one = sets.iter();
        match (one.next(), one.next()) {
            (Some((set, numbers)), None) => Members::whole(set.clone(), numbers),
            (None, _) => Err(Error::request(
                "no files that are numbered as those of a set, as in model-00001-of-00003.safetensors",
            )),
            _ => {
                let names: Vec<String> = sets.keys().map(describe).collect();
                Err(Error::request(format!("files of several sets: {}", list(&names))).help("name the index of one"))
            }
        }
    }

    /// All numbers of a set are there.
    fn whole((base, extension, count): (String, &'static str, usize), numbers: &BTreeSet<usize>) -> Result<Members> {
        let name = |number: usize| match count {
            1 => format!("{base}-00001-of-00001.{extension}"),
            _ => shard_name(&base, extension, number, count),
        };
        let missing: Vec<String> = (0..count).filter(|number| !numbers.contains(&(number + 1))).map(name).collect();
        if !missing.is_empty() {
            let (missing_count, names) = (missing.len(), list(&missing));
            let message = format!("{missing_count} of the {count} files of the set are missing: {names}");
            return Err(
                Error::malformed(message).help("fetch them; an index of the others would hide that they are gone")
            );
        }
        let names = (0..count).map(name).collect();
        Ok(Members { base, extension, names })
    }

    /// Their names, in order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Their extension.
    pub fn extension(&self) -> &'static str {
        self.extension
    }

    /// The name of their index.
    pub fn index(&self) -> String {
        index_name(&self.base, self.extension)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str], name: Option<&str>) -> std::result::Result<String, String> {
        let members = Members::among(names.iter().map(|&name| name.to_owned()), name);
        members.map(|members| format!("{} {}", members.index(), members.names().join(" "))).map_err(|e| e.to_string())
    }

    #[test]
    fn the_files_of_one_set_are_found() {
        let two = ["m-00002-of-00002.bin", "readme", "m.bin", "m-00001-of-00002.bin", "m-1-of-2.bin"];
        let set = "m.bin.index.json m-00001-of-00002.bin m-00002-of-00002.bin";
        assert_eq!(found(&two, None).unwrap(), set);
        assert_eq!(found(&two, Some("m.bin.index.json")).unwrap(), set);
        assert_eq!(found(&two, Some("m-00007-of-00009.bin")).unwrap(), set);
        assert_eq!(found(&["m-00001-of-00001.bin"], None).unwrap(), "m.bin.index.json m-00001-of-00001.bin");
        assert!(found(&two, Some("x.bin.index.json")).unwrap_err().contains("no files that are numbered"));
        assert!(found(&two, Some("x.txt")).unwrap_err().contains("neither the index nor a file"));
        assert!(found(&["m.bin"], None).is_err());
    }

    #[test]
    fn missing_numbers_and_several_sets_are_listed() {
        let missing = found(&["m-00002-of-00004.bin", "m-00003-of-00004.bin"], None).unwrap_err();
        assert!(
            missing.starts_with("2 of the 4 files of the set are missing: m-00001-of-00004.bin, m-00004"),
            "{missing}"
        );
        let two = ["m-00001-of-00001.bin", "a-00001-of-00001.safetensors"];
        let several = found(&two, None).unwrap_err();
        assert!(several.contains("a.safetensors of 1 files, m.bin of 1 files"), "{several}");
        assert!(found(&two, Some("a.safetensors.index.json")).is_ok());
        let left_over = ["m-00001-of-00001.bin", "m-00001-of-00002.bin"];
        assert!(found(&left_over, Some("m.bin.index.json")).unwrap_err().contains("several sets"));
    }
}
