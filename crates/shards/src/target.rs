//! The files of an output.

use crate::{base_of, index_name, shard_name};
use std::path::{Path, PathBuf};
use weightlift_core::{Error, Files, Result};

/// The files of an output: one, or a set with its index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    folder: PathBuf,
    /// What the names of a set begin with.
    base: Option<String>,
    extension: String,
    as_set: bool,
    /// The files, in order.
    pub files: Vec<PathBuf>,
    /// The index, where there are several files.
    pub index: Option<PathBuf>,
}

impl Target {
    /// For an output named `path` of `count` files with this extension, numbered where it is to be a set.
    ///
    /// # Errors
    /// `Request` for a set without that extension, and for a single file that is named as an index.
    pub fn new(path: &Path, extension: &str, as_set: bool, count: usize) -> Result<Target> {
        let folder = path.parent().unwrap_or(Path::new("")).to_path_buf();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let of_index = name.strip_suffix(".index.json").filter(|file| base_of(file, extension).is_some());
        let file = of_index.unwrap_or(name);
        let base = base_of(file, extension).map(str::to_owned);
        let extension = extension.to_owned();
        match &base {
            _ if !as_set && of_index.is_some() => {
                Err(Error::request("the name of an index for a single file").help(format!("write to {file:?}")))
            }
            _ if !as_set => {
                Ok(Target { folder, base, extension, as_set, files: vec![path.to_path_buf()], index: None })
            }
            None => Err(Error::request(format!("the files of a set are named after a name that ends in .{extension}"))),
            Some(stem) => {
                let names = (0..count).map(|number| folder.join(shard_name(stem, &extension, number, count)));
                let index = (count > 1).then(|| folder.join(index_name(stem, &extension)));
                Ok(Target { files: names.collect(), index, base, extension, as_set, folder })
            }
        }
    }

    /// The files of a set of that name that this one does not have: they go when it takes their place.
    pub fn stale(&self, files: &dyn Files) -> Vec<PathBuf> {
        let Some(base) = self.base.as_ref().filter(|_| self.as_set) else { return Vec::new() };
        let index = index_name(base, &self.extension);
        let folder = if self.folder.as_os_str().is_empty() { Path::new(".") } else { &self.folder };
        let names = files.list(folder).unwrap_or_default().into_iter().filter_map(|name| name.into_string().ok());
        let of_set = names.filter(|name| *name == index || base_of(name, &self.extension) == Some(base));
        let paths = of_set.map(|name| self.folder.join(name));
        paths.filter(|path| !self.files.contains(path) && self.index.as_ref() != Some(path)).collect()
    }

    /// What to say where the index of a set stands beside a single file of its name.
    pub fn index_beside(&self, files: &dyn Files) -> Option<String> {
        let index = index_name(self.base.as_ref().filter(|_| !self.as_set)?, &self.extension);
        let is_there = files.stat(&self.folder.join(&index)).is_ok();
        is_there.then(|| format!("{index} stands beside the file and names the files of a set"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_named_after_the_output() {
        let names = |path: &str, as_set, count| {
            let target = Target::new(Path::new(path), "safetensors", as_set, count)?;
            let names = target.files.into_iter().chain(target.index);
            Ok::<_, Error>(names.map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(names("d/w.bin", false, 1).unwrap(), ["d/w.bin"]);
        assert_eq!(names("d/m.safetensors", true, 1).unwrap(), ["d/m.safetensors"]);
        let set = ["d/m-00001-of-00002.safetensors", "d/m-00002-of-00002.safetensors", "d/m.safetensors.index.json"];
        assert_eq!(names("d/m.safetensors", true, 2).unwrap(), set);
        assert_eq!(names("d/m.safetensors.index.json", true, 2).unwrap(), set);
        assert_eq!(names("d/m-00003-of-00007.safetensors", true, 2).unwrap(), set);
        assert!(names("d/m.safetensors.index.json", false, 1).is_err());
        assert!(names("d/m.bin", true, 2).is_err());
    }
}
