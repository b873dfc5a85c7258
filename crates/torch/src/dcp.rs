//! Distributed checkpoints: a folder of `.metadata` and data files.
//!
//! `.metadata` is a pickle that says for every tensor its size and chunks, and for every chunk the slice of a data file
//! that holds it: a whole `torch.save` archive of one tensor. Other objects are archives too.

use crate::checkpoint::{STATE_DICT, TorchCheckpoint};
use crate::list::Listing;
use crate::pickle::{Graph, Machine, Node, NodeId, Nothing};
use crate::source::Spaces;
use crate::storage::natural;
use crate::tensor::naturals;
use crate::tree::{attribute, attributes, key, mapping};
use crate::{symbol, zip};
use foldhash::{HashMap, HashMapExt};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use weightlift_core::{
    ByteRange, DType, Data, Entry, Error, Extent, FileKind, Files, Key, KeyPath, OpenOptions, Region, Result, Shape,
    SourceId,
};
use weightlift_io::FileSource;

const METADATA: &str = ".metadata";

/// Whether a path is the metadata of a distributed checkpoint.
pub(crate) fn is_metadata(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == METADATA)
}

/// The metadata of a folder that is a distributed checkpoint.
pub(crate) fn in_folder(files: &dyn Files, folder: &Path) -> Option<PathBuf> {
    let path = folder.join(METADATA);
    files.stat(&path).is_ok_and(|stat| stat.kind == FileKind::File).then_some(path)
}

/// A slice of a data file.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Slice {
    path: String,
    offset: u64,
    length: u64,
    /// Whether the slice was transformed, say compressed, before it was written.
    transformed: bool,
}

/// Whose slice it is: a name, and the first index of the chunk along each axis (none for objects).
type Address = (String, Option<Vec<u64>>);

struct Reader<'a> {
    files: &'a dyn Files,
    folder: PathBuf,
    options: &'a OpenOptions,
    graph: &'a Graph,
    slices: HashMap<Address, Slice>,
    spaces: Spaces,
    opened: HashMap<String, SourceId>,
    listing: Listing,
    /// Bytes of the slices read so far.
    loaded: u64,
}

/// Bytes of slices that may be read in a checkpoint of any size.
const MOST_LOADED: u64 = 16 << 20;

/// Opens a distributed checkpoint by its metadata.
pub(crate) fn open(files: &dyn Files, path: &Path, options: &OpenOptions) -> Result<TorchCheckpoint> {
    let limits = &options.limits;
    let source = FileSource::open(files, path)?;
    let bytes = source.read_vec(ByteRange::new(0, source.len())?, limits.header_bytes)?;
    let mut machine = Machine::new(bytes, Nothing, limits, Some(0));
    let root = machine.load().map_err(|error| error.in_file(path))?;
    let graph = machine.finish();
    let mut reader = Reader {
        files,
        folder: path.parent().map(Path::to_path_buf).unwrap_or_default(),
        options,
        graph: &graph,
        slices: HashMap::new(),
        spaces: Spaces::default(),
        opened: HashMap::new(),
        listing: Listing::default(),
        loaded: 0,
    };
    reader.read(root).map_err(|error| error.in_file(path))?;
    let Reader { spaces, listing: Listing { entries, beside, .. }, opened, .. } = reader;
    let description = format!("PyTorch distributed checkpoint, {} data files", opened.len());
    let checkpoint = TorchCheckpoint::flat(description, spaces, limits, entries, beside);
    Ok(checkpoint.with_file(path.to_path_buf()).coming_out(STATE_DICT))
}

fn missing(what: &str) -> Error {
    Error::malformed(format!("the metadata of the distributed checkpoint has no {what}"))
}

/// The attribute of an object.
fn field(graph: &Graph, object: NodeId, name: &str) -> Option<NodeId> {
    attributes(graph, object).and_then(|attributes| attribute(graph, attributes, name))
}

impl Reader<'_> {
    fn read(&mut self, root: NodeId) -> Result<()> {
        let graph = self.graph;
        let part = |name: &str| field(graph, root, name).and_then(|node| mapping(graph, node));
        let tensors = part("state_dict_metadata").ok_or_else(|| missing("state_dict_metadata"))?;
        let paths = part("planner_data").unwrap_or_default();
        let paths: HashMap<Key, NodeId> = paths.into_iter().map(|child| (child.key, child.value)).collect();
        let storage = field(graph, root, "storage_data").ok_or_else(|| missing("storage_data"))?;
        for pair in graph.pairs(storage).unwrap_or_default().chunks_exact(2) {
            let (address, slice) = (self.address(pair[0])?, self.slice(pair[1])?);
            self.slices.insert(address, slice);
        }
        for child in tensors {
            let Key::Text(name) = &child.key else { continue };
            let path = paths.get(&child.key).and_then(|&path| key_path(graph, path));
            let path = path.unwrap_or_else(|| KeyPath::flat(name.clone()));
            match field(graph, child.value, "chunks") {
                Some(chunks) => {
                    let entry = self.tensor(name, path.clone(), child.value, chunks);
                    self.listing.push(entry.map_err(|error| error.in_tensor(name)), path, self.options.salvage)?;
                }
                None => self.object(name, &path),
            }
        }
        Ok(())
    }

    /// A `MetadataIndex`.
    fn address(&self, node: NodeId) -> Result<Address> {
        let name = field(self.graph, node, "fqn").and_then(|name| self.graph.text(name));
        let name = name.ok_or_else(|| missing("name for a slice"))?.into_owned();
        let offset = match field(self.graph, node, "offset").filter(|&node| self.graph.node(node) != Node::None) {
            Some(offset) => Some(naturals(self.graph, offset, "the offset of a chunk")?),
            None => None,
        };
        Ok((name, offset))
    }

    /// A `_StorageInfo`.
    fn slice(&self, node: NodeId) -> Result<Slice> {
        let graph = self.graph;
        let get = |name: &str| field(graph, node, name).ok_or_else(|| missing(name));
        let path = graph.text(get("relative_path")?).ok_or_else(|| missing("relative_path"))?.into_owned();
        let plain = Path::new(&path).components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || path.is_empty() || path.contains('\\') {
            return Err(Error::malformed(format!("the data file {path:?} does not lie in the folder")));
        }
        let transforms = field(graph, node, "transform_descriptors");
        let transformed = transforms.and_then(|node| graph.items(node)).is_some_and(|items| !items.is_empty());
        let offset = natural(graph, get("offset")?, "the offset of a slice")?;
        Ok(Slice { path, offset, length: natural(graph, get("length")?, "the length of a slice")?, transformed })
    }

    fn file(&mut self, path: &str) -> Result<SourceId> {
        if let Some(&known) = self.opened.get(path) {
            return Ok(known);
        }
        let file = self.spaces.add_file(FileSource::open(self.files, &self.folder.join(path))?);
        self.opened.insert(path.to_owned(), file);
        Ok(file)
    }

    /// The one tensor of a slice, as an entry without a name.
    fn load(&mut self, slice: &Slice) -> Result<Vec<Entry>> {
        if slice.transformed {
            return Err(Error::unsupported("its slices were compressed before they were written"));
        }
        let file = self.file(&slice.path)?;
        let range = ByteRange::new(slice.offset, slice.length)?;
        // A sound checkpoint names each slice once; naming a large one again and again would never end.
        self.loaded = self.loaded.saturating_add(slice.length);
        let total: u64 = self.spaces.files().iter().map(FileSource::len).sum();
        if self.loaded > MOST_LOADED.saturating_add(total.saturating_mul(8)) {
            return Err(Error::limit("its slices are named again and again"));
        }
        let objects = zip::load_part(&mut self.spaces, file, range, self.options)?;
        Ok(objects.listing.entries)
    }

    fn tensor(&mut self, name: &str, path: KeyPath, node: NodeId, chunks: NodeId) -> Result<Entry> {
        let graph = self.graph;
        let size = field(graph, node, "size").ok_or_else(|| missing("size"))?;
        let shape = Shape::new(naturals(graph, size, "the size of a tensor")?)?;
        let dtype = self.dtype(node)?;
        let mut extents = Vec::new();
        for &chunk in graph.items(chunks).unwrap_or_default() {
            extents.extend(self.chunk(name, chunk, dtype, &shape)?);
        }
        check_cover(&extents, &shape)?;
        Entry::new(path, dtype, shape, extents)
    }

    /// The dtype: the first field of the state of `TensorProperties`.
    fn dtype(&self, node: NodeId) -> Result<DType> {
        let graph = self.graph;
        let properties = field(graph, node, "properties").and_then(|node| graph.object(node));
        let state = properties.and_then(|object| match object.edits.as_slice() {
            [crate::pickle::Edit::State(state)] => Some(*state),
            _ => None,
        });
        let first = state.and_then(|state| match graph.items(state) {
            Some(fields) => fields.first().copied(),
            None => graph.pairs(state).and_then(|pairs| attribute(graph, pairs, "dtype")),
        });
        let known = first.and_then(|dtype| graph.global(dtype)).and_then(|(module, name)| symbol::dtype(module, name));
        known.ok_or_else(|| missing("dtype that is known"))
    }

    fn chunk(&mut self, name: &str, chunk: NodeId, dtype: DType, shape: &Shape) -> Result<Option<Extent>> {
        let graph = self.graph;
        let get = |field_name: &str| field(graph, chunk, field_name).ok_or_else(|| missing(field_name));
        let start = naturals(graph, get("offsets")?, "the offset of a chunk")?;
        let size = Shape::new(naturals(graph, get("sizes")?, "the size of a chunk")?)?;
        let region = Region { start: start.clone(), size };
        if !region.lies_within(shape) {
            let message = format!("a chunk of {} at {start:?} leaves the tensor of {shape}", region.size);
            return Err(Error::malformed(message));
        }
        let exact = self.slices.get(&(name.to_owned(), Some(start.clone())));
        let slice = exact.or_else(|| self.slices.get(&(name.to_owned(), None))).cloned();
        let slice = slice.ok_or_else(|| missing(&format!("slice for the chunk at {start:?}")))?;
        if region.size.elements() == 0 {
            return Ok(None);
        }
        let entries = self.load(&slice)?;
        let found = match entries.as_slice() {
            [entry] if entry.dtype == dtype && entry.shape == region.size => &entry.data,
            entries => {
                let found = entries.first().map(|entry| format!("{} {}", entry.dtype, entry.shape));
                let found = found.unwrap_or_else(|| "no tensor".into());
                let message = format!("the chunk at {start:?} has {found} instead of {dtype} {}", region.size);
                return Err(Error::malformed(message));
            }
        };
        match found {
            Data::Extents(extents) => Ok(extents.first().map(|extent| extent.clone().filling(region))),
            Data::Absent(why) | Data::Broken(why) => Err(Error::malformed(why.clone())),
        }
    }

    /// A line about an object that is no tensor. One that cannot be read is no reason to refuse the tensors.
    fn object(&mut self, name: &str, path: &KeyPath) {
        let slice = self.slices.get(&(name.to_owned(), None)).cloned();
        let value = slice.and_then(|slice| {
            let file = self.file(&slice.path).ok()?;
            let range = ByteRange::new(slice.offset, slice.length).ok()?;
            let objects = zip::load_part(&mut self.spaces, file, range, self.options).ok()?;
            Some(objects.graph.describe(objects.root))
        });
        self.listing.beside.push(format!("{} = {}", path.joined(), value.unwrap_or_else(|| "an object".into())));
    }
}

/// The keys of a path: a tuple of text and positions.
fn key_path(graph: &Graph, node: NodeId) -> Option<KeyPath> {
    let keys = graph.items(node)?.iter().map(|&item| match key(graph, item) {
        Key::Int(at) => u64::try_from(at).map_or(Key::Int(at), Key::Index),
        other => other,
    });
    Some(KeyPath(keys.collect()))
}

/// The boxes must fill the tensor exactly once.
fn check_cover(extents: &[Extent], shape: &Shape) -> Result<()> {
    let filled = extents.iter().map(|extent| u128::from(extent.region.size.elements())).sum::<u128>();
    if filled != u128::from(shape.elements()) {
        let message = format!("its chunks have {filled} elements, the tensor of {shape} {}", shape.elements());
        return Err(Error::malformed(message));
    }
    let regions: Vec<&Region> = extents.iter().map(|extent| &extent.region).collect();
    match overlap(&regions, shape.rank())? {
        Some((first, second)) => {
            let (first, second) = (&first.start, &second.start);
            Err(Error::malformed(format!("its chunks at {first:?} and {second:?} overlap")))
        }
        None => Ok(()),
    }
}

/// Comparisons of two chunks of a tensor; a tensor cut into a grid of 256 by 256 takes fewer.
const MOST_COMPARED: u64 = 1 << 25;

/// Two boxes that have an element in common. Boxes are compared only where they meet along the axis that is cut most.
fn overlap<'a>(regions: &[&'a Region], rank: usize) -> Result<Option<(&'a Region, &'a Region)>> {
    let cuts = |axis: &usize| regions.iter().map(|region| region.start[*axis]).collect::<BTreeSet<_>>().len();
    let Some(axis) = (0..rank).max_by_key(cuts) else { return Ok(None) };
    let mut sorted = regions.to_vec();
    sorted.sort_by_key(|region| region.start[axis]);
    let mut compared = 0u64;
    for (at, region) in sorted.iter().enumerate() {
        let end = region.start[axis] + region.size.dims()[axis];
        for other in sorted[at + 1..].iter().take_while(|other| other.start[axis] < end) {
            compared += 1;
            if compared > MOST_COMPARED {
                let count = regions.len();
                return Err(Error::limit(format!("its {count} chunks meet too often to be compared with each other")));
            }
            if meet(region, other) {
                return Ok(Some((region, other)));
            }
        }
    }
    Ok(None)
}

/// Whether two boxes of one tensor have an element in common.
fn meet(a: &Region, b: &Region) -> bool {
    (0..a.start.len()).all(|axis| {
        let (low, high) = (a.start[axis].max(b.start[axis]), a.start[axis] + a.size.dims()[axis]);
        low < high.min(b.start[axis] + b.size.dims()[axis])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightlift_core::Layout;

    fn extent(start: &[u64], size: &[u64]) -> Extent {
        let size = Shape::new(size).unwrap();
        let (bytes, layout) = (ByteRange::new(0, 4 * size.elements()).unwrap(), Layout::contiguous(&size));
        let whole = Extent::strided(SourceId(0), bytes, DType::F32, &size, layout).unwrap();
        whole.filling(Region { start: start.to_vec(), size })
    }

    #[test]
    fn chunks_must_fill_the_tensor_once() {
        let shape = Shape::new([4, 6]).unwrap();
        let message = |extents: &[Extent]| check_cover(extents, &shape).unwrap_err().to_string();
        let halves = [extent(&[0, 3], &[4, 3]), extent(&[0, 0], &[4, 3])];
        assert!(check_cover(&halves, &shape).is_ok());
        assert!(message(&halves[..1]).contains("12 elements"));
        assert!(message(&[halves[0].clone(), halves[0].clone()]).contains("overlap"));
        let crossed = [extent(&[0, 0], &[2, 6]), extent(&[1, 0], &[2, 6])];
        assert!(message(&crossed).contains("overlap"));
        assert!(check_cover(&[extent(&[], &[])], &Shape::scalar()).is_ok());
    }

    #[test]
    fn chunks_that_all_meet_along_an_axis_are_not_compared_without_end() {
        // Rows that start one further each: along the second axis all of them meet.
        let rows = |count: u64| (0..count).map(|at| extent(&[at, at], &[1, 10_000])).collect::<Vec<_>>();
        let found = |rows: &[Extent]| {
            let regions: Vec<&Region> = rows.iter().map(|row| &row.region).collect();
            overlap(&regions, 2).map(|found| found.is_some())
        };
        assert!(!found(&rows(1000)).unwrap());
        let error = found(&rows(10_000)).unwrap_err();
        assert_eq!(error.kind(), weightlift_core::Kind::Limit);
        assert!(error.to_string().contains("10000 chunks"), "{error}");
    }
}
