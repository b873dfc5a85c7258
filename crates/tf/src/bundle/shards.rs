//! The data files that an index refers to.

use super::index::Header;
use crate::locate::{self, list};
use crate::names::{folder, shard_path, shown};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weightlift_core::{ByteRange, Catalog, Error, Files, Result, Source, SourceId};

/// Finds data files as entries ask for them, each once.
pub(super) struct Shards<'a> {
    files: &'a dyn Files,
    prefix: &'a Path,
    num_shards: u32,
    found: BTreeMap<u32, Shard>,
}

enum Shard {
    Present { source: SourceId, path: PathBuf, len: u64, needed: u64 },
    Missing(String),
}

impl<'a> Shards<'a> {
    pub(super) fn new(files: &'a dyn Files, prefix: &'a Path, header: Header) -> Shards<'a> {
        Shards { files, prefix, num_shards: header.num_shards, found: BTreeMap::new() }
    }

    /// The bytes of an entry, known to be in the file.
    ///
    /// # Errors
    /// `Malformed` for numbers below zero, a shard that the bundle has not, a missing or a short file; `Io`.
    pub(super) fn range(
        &mut self,
        catalog: &mut Catalog,
        shard_id: i32,
        offset: i64,
        size: i64,
    ) -> Result<(SourceId, ByteRange)> {
        let number = |what: &str, value: i64| {
            u64::try_from(value).map_err(|_| Error::malformed(format!("the index gives {value} as {what}")))
        };
        let range = ByteRange::new(number("offset", offset)?, number("size", size)?)?;
        match self.shard(catalog, shard_id)? {
            Shard::Missing(why) => Err(Error::malformed(why.clone())),
            Shard::Present { source, path, len, needed } => {
                *needed = range.end().max(*needed);
                range.within(*len).map_err(|error| error.in_file(path))?;
                Ok((*source, range))
            }
        }
    }

    fn shard(&mut self, catalog: &mut Catalog, id: i32) -> Result<&mut Shard> {
        let shards = self.num_shards;
        let known = u32::try_from(id).ok().filter(|&id| id < shards.max(1));
        let Some(id) = known else {
            return Err(Error::malformed(format!("lies in data file {id} of a bundle that has {shards}")));
        };
        if !self.found.contains_key(&id) {
            let shard = self.find(catalog, id)?;
            self.found.insert(id, shard);
        }
        self.found.get_mut(&id).ok_or_else(|| Error::malformed(format!("data file {id} is not known")))
    }

    fn find(&self, catalog: &mut Catalog, id: u32) -> Result<Shard> {
        let path = shard_path(self.prefix, id, self.num_shards);
        let Some(stat) = locate::stat(self.files, &path)? else {
            return Ok(Shard::Missing(self.missing(&path)?));
        };
        let source = catalog.add_source(Source::File { path: path.clone(), len: stat.len });
        Ok(Shard::Present { source, path, len: stat.len, needed: 0 })
    }

    /// Says what is there in place of a missing file.
    fn missing(&self, path: &Path) -> Result<String> {
        let begin = format!("{}.data", shown(self.prefix));
        let mut others: Vec<String> = list(self.files, folder(path))?;
        others.retain(|name| name.starts_with(&begin));
        others.sort_unstable();
        let expected = shown(path);
        Ok(match others.as_slice() {
            [] => format!("the data file {expected} is missing: it belongs beside the index"),
            [only] if self.num_shards <= 1 => {
                format!("the data file {expected} is missing, but {only} is there: rename it if it is the same")
            }
            several => format!("the data file {expected} is missing; there are {}", several.join(", ")),
        })
    }

    /// The paths of the files that exist, and a warning for each that is shorter than the index needs.
    pub(super) fn finish(self, catalog: &mut Catalog) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for shard in self.found.into_values() {
            match shard {
                Shard::Present { path, len, needed, .. } => {
                    if needed > len {
                        let name = path.display();
                        let warning =
                            format!("{name} has {len} bytes where the index needs {needed}: it was cut short");
                        catalog.warnings.push(warning);
                    }
                    paths.push(path);
                }
                Shard::Missing(why) => catalog.warnings.push(why),
            }
        }
        paths
    }
}
