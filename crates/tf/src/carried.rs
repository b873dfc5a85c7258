//! What a bundle has beside values and hands on to the writer of another: how it spells the slices of its partitioned
//! tensors, and the object graph with the keys that it knows the values by.

use crate::bundle::Index;
use crate::graph::{self, ObjectGraph};
use crate::proto::TensorSlice;
use crate::record::{BigStrings, check_strings};
use crate::slices;
use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use weightlift_core::{
    ByteOrder, ByteRange, Catalog, Entry, EntryId, Error, Extras, Files, KeyPath, Limits, Names, Origin, Region,
    Result, Shape,
};
use weightlift_io::FileSource;
use weightlift_kernels::checksum::mask_crc32c;

/// The slices of each partitioned tensor, as they stand in the file, and the objects. One box has several spellings,
/// and its key depends on it; written back into a bundle, slices keep theirs.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    slices: BTreeMap<EntryId, Vec<TensorSlice>>,
    objects: Option<Objects>,
}

/// The object graph of a bundle and the tensors it speaks of.
#[derive(Debug)]
pub(crate) struct Objects {
    /// The tensor that holds the graph.
    pub(crate) entry: EntryId,
    /// Which names the catalog gives.
    pub(crate) naming: Names,
    /// For each entry the key under which it is stored.
    pub(crate) keys: Vec<String>,
    /// For each entry its name in the catalog; none where that is the key.
    pub(crate) names: Vec<String>,
    source: GraphSource,
}

/// Where a graph lies: it is read only where somebody needs it.
#[derive(Debug, Clone)]
pub(crate) struct GraphSource {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) path: PathBuf,
    pub(crate) bytes: ByteRange,
    /// Masked, as it is stored.
    pub(crate) crc: u32,
    pub(crate) order: ByteOrder,
    pub(crate) limits: Limits,
}

impl Carried {
    /// The slices of a bundle; the catalog has the names of the index.
    pub(crate) fn of(index: &Index, catalog: &Catalog) -> Carried {
        let slices = |(id, entry): (EntryId, &Entry)| {
            let found = &index.get(entry.name.as_bytes())?.slices;
            (!found.is_empty()).then(|| (id, found.clone()))
        };
        Carried { slices: catalog.iter().filter_map(slices).collect(), objects: None }
    }

    /// Adds the object graph, and gives the tensors of the catalog the names that are asked for.
    ///
    /// # Errors
    /// What reading the graph meets, where it must be read.
    pub(crate) fn add_objects(&mut self, source: GraphSource, naming: Names, catalog: &mut Catalog) -> Result<()> {
        let Some(at) = catalog.entries.iter().position(|entry| entry.name == graph::KEY) else { return Ok(()) };
        let keys: Vec<String> = catalog.entries.iter().map(|entry| entry.name.clone()).collect();
        let names = match naming {
            Names::Stored => Vec::new(),
            _ => plain_names(&source.read()?, naming, &keys),
        };
        for (entry, name) in catalog.entries.iter_mut().zip(&names) {
            (entry.name, entry.path) = (name.clone(), KeyPath::flat(name));
        }
        self.objects = Some(Objects { entry: EntryId(at as u32), naming, keys, names, source });
        Ok(())
    }

    /// For the catalog; `None` where there is nothing to hand on.
    pub(crate) fn into_extras(self) -> Option<Extras> {
        (!self.slices.is_empty() || self.objects.is_some()).then(|| Extras::new(self))
    }

    fn of_input(extras: &[(u32, Extras)], input: u32) -> Option<&Carried> {
        extras.iter().find(|(known, _)| *known == input)?.1.get::<Carried>()
    }

    /// How the source of a tensor spells its slices; none where it has none.
    pub(crate) fn slices_of(extras: &[(u32, Extras)], origin: Option<Origin>) -> &[TensorSlice] {
        let find = || Carried::of_input(extras, origin?.input)?.slices.get(&origin?.entry);
        find().map(Vec::as_slice).unwrap_or_default()
    }

    /// The objects of the input whose graph a tensor is.
    pub(crate) fn objects_of(extras: &[(u32, Extras)], origin: Option<Origin>) -> Option<&Objects> {
        let origin = origin?;
        Carried::of_input(extras, origin.input)?.objects.as_ref().filter(|objects| objects.entry == origin.entry)
    }
}

impl Objects {
    /// The graph.
    ///
    /// # Errors
    /// As [`GraphSource::read`].
    pub(crate) fn graph(&self) -> Result<ObjectGraph> {
        self.source.read()
    }

    /// The name that the catalog gives an entry.
    pub(crate) fn name(&self, at: usize) -> &str {
        self.names.get(at).or_else(|| self.keys.get(at)).map(String::as_str).unwrap_or_default()
    }
}

impl GraphSource {
    /// Reads the graph.
    ///
    /// # Errors
    /// `Checksum`, `Malformed`, `Limit` and `Io`, with the file.
    fn read(&self) -> Result<ObjectGraph> {
        let parse = || ObjectGraph::parse(&self.message()?, &self.limits);
        parse().map_err(|error| error.in_tensor(graph::KEY).in_file(&self.path))
    }

    /// The one string of the tensor.
    fn message(&self) -> Result<Vec<u8>> {
        let source = FileSource::open(self.files.as_ref(), &self.path)?;
        let mut record = source.read_vec(self.bytes, self.limits.header_bytes)?;
        let at = self.bytes.start();
        if self.order == ByteOrder::Big {
            let mut little = Vec::with_capacity(record.len());
            let mut reader = BigStrings::new(record.as_slice(), 1, record.len() as u64, self.crc);
            let broken = |error: std::io::Error| Error::malformed(error.to_string()).at(at);
            reader.read_to_end(&mut little).map_err(broken)?;
            record = little;
        } else {
            let crc = check_strings(record.as_slice(), 1, record.len() as u64).map_err(|error| error.at(at))?;
            if mask_crc32c(crc) != self.crc {
                let message = format!("checksum differs: stored {:08x}, computed {:08x}", self.crc, mask_crc32c(crc));
                return Err(Error::checksum(message).at(at).help("--names stored needs no object graph"));
            }
        }
        let mut cursor = crate::varint::Cursor::new(&record);
        cursor.varint()?;
        let start = (cursor.position() + 4).min(record.len());
        Ok(record.split_off(start))
    }
}

/// What the two tensors of a table have behind the key that the graph knows them by.
pub(crate) const OF_TABLE: [&str; 2] = ["-keys", "-values"];

/// A name for every key; where two would bear one, both keep their keys.
fn plain_names(graph: &ObjectGraph, naming: Names, keys: &[String]) -> Vec<String> {
    let named = if naming == Names::Full { graph.full_names() } else { graph.object_names() };
    let by_key: HashMap<&str, &String> = named.iter().map(|(key, name)| (*key, name)).collect();
    let plain = |key: &String| {
        let of_table = || OF_TABLE.iter().find_map(|end| Some(format!("{}{end}", by_key.get(key.strip_suffix(end)?)?)));
        by_key.get(key.as_str()).map(|name| (*name).clone()).or_else(of_table).unwrap_or_else(|| key.clone())
    };
    let mut names: Vec<String> = keys.iter().map(plain).collect();
    // A key that takes the place of a name may be the name of another tensor: such a one gives way too.
    loop {
        let mut bearers: HashMap<&str, usize> = HashMap::with_capacity(names.len());
        names.iter().for_each(|name| *bearers.entry(name).or_default() += 1);
        let equal: Vec<usize> = (0..names.len()).filter(|&at| bearers[names[at].as_str()] > 1).collect();
        if equal.iter().all(|&at| names[at] == keys[at]) {
            return names;
        }
        equal.into_iter().for_each(|at| names[at].clone_from(&keys[at]));
    }
}

/// The spelling of a box among some slices, where it is likely to stand at `likely`.
pub(crate) fn find<'a>(
    slices: &'a [TensorSlice],
    likely: usize,
    region: &Region,
    shape: &Shape,
) -> Option<&'a TensorSlice> {
    let (before, after) = slices.split_at_checked(likely).unwrap_or((slices, &[]));
    let fits = |slice: &&TensorSlice| slices::region(slice, shape).is_ok_and(|found| found == *region);
    after.iter().chain(before).find(fits)
}
