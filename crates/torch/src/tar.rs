//! The oldest form: a tar archive of `storages`, `tensors` and `pickle`.
//!
//! ```text
//! storages   count | (key, location, class), length i64le, bytes    per storage | views
//! tensors    count | (key, storage, class), rank i32le, 4 bytes, sizes, strides, offset i64le   per tensor
//! pickle     the object; its persistent ids are the keys of tensors
//! ```
//!
//! Counts, tuples and views are pickles; nothing stands between.

use crate::checkpoint::Objects;
use crate::legacy::{FileInput, StreamRecords};
use crate::pickle::{Graph, Machine, Node, NodeId};
use crate::source::Spaces;
use crate::storage::StorageId;
use crate::symbol::{self, StorageType};
use crate::tensor::View;
use foldhash::{HashMap, HashMapExt};
use weightlift_core::{ByteRange, Error, Layout, Limits, OpenOptions, Result, Shape, SourceId};
use weightlift_io::FileSource;

const BLOCK: u64 = 512;

/// Whether these first bytes are those of such an archive.
pub(crate) fn is_tar(head: &[u8]) -> bool {
    let names: [&[u8]; 4] = [b"sys_info\0", b"pickle\0", b"tensors\0", b"storages\0"];
    head.get(257..262) == Some(b"ustar") && names.iter().any(|name| head.starts_with(name))
}

/// The members by name.
fn members(source: &FileSource) -> Result<HashMap<String, ByteRange>> {
    let mut members = HashMap::new();
    let mut at = 0;
    while at + BLOCK <= source.len() {
        let mut header = [0; BLOCK as usize];
        source.read_exact_at(&mut header, at)?;
        if header.iter().all(|&byte| byte == 0) {
            break;
        }
        let name = header[..100].split(|&byte| byte == 0).next().unwrap_or_default();
        let size = std::str::from_utf8(&header[124..136]).ok();
        let size = size.and_then(|text| u64::from_str_radix(text.trim_matches(['\0', ' ']), 8).ok());
        let size = size.ok_or_else(|| Error::malformed("a tar header without a size").at(at))?;
        let data = ByteRange::new(at + BLOCK, size)?.within(source.len())?;
        members.insert(String::from_utf8_lossy(name).into_owned(), data);
        at = data.end().next_multiple_of(BLOCK);
    }
    Ok(members)
}

/// Pickles and numbers that follow one another in a member.
struct Stream<'a> {
    source: &'a FileSource,
    range: ByteRange,
    limits: &'a Limits,
    at: u64,
}

impl<'a> Stream<'a> {
    fn open(
        source: &'a FileSource,
        members: &HashMap<String, ByteRange>,
        name: &str,
        limits: &'a Limits,
    ) -> Result<Self> {
        let range = members.get(name).ok_or_else(|| Error::malformed(format!("the tar has no member {name:?}")))?;
        Ok(Stream { source, range: *range, limits, at: range.start() })
    }

    fn rest(&self) -> Result<ByteRange> {
        ByteRange::new(self.at, self.range.end().saturating_sub(self.at))
    }

    fn pickle(&mut self) -> Result<(Graph, NodeId)> {
        let range = self.rest()?;
        let input = FileInput { source: self.source, range };
        let mut machine = Machine::new(Vec::new(), input, self.limits, Some(self.at));
        let root = machine.load()?;
        self.at += machine.position();
        Ok((machine.finish(), root))
    }

    /// A pickled tuple of three texts.
    fn names(&mut self) -> Result<[(String, Option<StorageType>); 3]> {
        let at = self.at;
        let (graph, root) = self.pickle()?;
        let field = |node: NodeId| {
            let class = graph.global(node).and_then(|(module, name)| {
                symbol::storage_type(module, name).or(symbol::tensor_class(module, name).map(StorageType::Typed))
            });
            let text = match graph.node(node) {
                Node::Int(int) => int.to_string(),
                _ => graph.text(node).map_or_else(|| graph.describe(node), |text| text.into_owned()),
            };
            (text, class)
        };
        match graph.items(root) {
            Some(&[first, second, third]) => Ok([field(first), field(second), field(third)]),
            _ => Err(Error::malformed(format!("{} instead of three names", graph.describe(root))).at(at)),
        }
    }

    fn count(&mut self) -> Result<u64> {
        let at = self.at;
        let (graph, root) = self.pickle()?;
        let count = graph.int(root).and_then(|count| u64::try_from(count).ok());
        count.ok_or_else(|| Error::malformed(format!("a count is {}", graph.describe(root))).at(at))
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N]> {
        let range = ByteRange::new(self.at, N as u64)?.within(self.range.end())?;
        let mut bytes = [0; N];
        self.source.read_exact_at(&mut bytes, range.start())?;
        self.at = range.end();
        Ok(bytes)
    }

    fn natural(&mut self) -> Result<u64> {
        let at = self.at;
        let number = i64::from_le_bytes(self.bytes()?);
        u64::try_from(number).map_err(|_| Error::malformed(format!("a length of {number}")).at(at))
    }

    fn naturals(&mut self, count: u64) -> Result<Vec<u64>> {
        (0..count).map(|_| self.natural()).collect()
    }
}

/// The storages by key, and where their bytes are.
fn storages(mut stream: Stream<'_>) -> Result<(HashMap<String, StorageId>, HashMap<String, ByteRange>)> {
    let (mut ids, mut places) = (HashMap::new(), HashMap::new());
    for _ in 0..stream.count()? {
        let at = stream.at;
        let [(key, _), _, (class_name, class)] = stream.names()?;
        let class = class.ok_or_else(|| Error::unsupported(format!("storage class {class_name}")).at(at))?;
        let id = StorageId { class, key: key.clone(), numel: stream.natural()?, view: None };
        let bytes = ByteRange::new(stream.at, id.bytes()?)?.within(stream.range.end())?;
        stream.at = bytes.end();
        ids.insert(key.clone(), id);
        places.insert(key, bytes);
    }
    let (graph, views) = stream.pickle()?;
    for &view in graph.items(views).unwrap_or_default() {
        if let Some(&[target, root, offset, numel]) = graph.items(view) {
            let text = |node: NodeId| graph.text(node).map_or_else(|| graph.describe(node), |text| text.into_owned());
            let number = |node: NodeId| graph.int(node).and_then(|int| u64::try_from(int).ok());
            let whole = ids.get(&text(root)).cloned();
            let part = number(offset).zip(number(numel));
            let (Some(whole), Some(part)) = (whole, part) else {
                return Err(Error::malformed("a storage view of no storage"));
            };
            ids.insert(text(target), StorageId { view: Some(part), ..whole });
        }
    }
    Ok((ids, places))
}

/// The tensors by key.
fn tensors(
    mut stream: Stream<'_>,
    storages: &HashMap<String, StorageId>,
    limits: &Limits,
) -> Result<HashMap<String, View>> {
    let mut tensors = HashMap::new();
    for _ in 0..stream.count()? {
        let at = stream.at;
        let [(key, _), (storage, _), _] = stream.names()?;
        let [rank, _] = [i32::from_le_bytes(stream.bytes()?), i32::from_le_bytes(stream.bytes()?)];
        let rank = u64::try_from(rank).ok().filter(|&rank| rank <= limits.rank as u64);
        let rank = rank.ok_or_else(|| Error::malformed("a tensor of absurd rank").at(at))?;
        let shape = Shape::new(stream.naturals(rank)?)?;
        let strides = stream.naturals(rank)?;
        let layout = Layout { offset: stream.natural()?, strides };
        let found = storages.get(&storage).cloned();
        let storage = found.ok_or_else(|| Error::malformed(format!("a tensor of no storage: {storage:?}")).at(at))?;
        let StorageType::Typed(dtype) = storage.class else {
            return Err(Error::unsupported("a tensor over bytes without a dtype").at(at));
        };
        tensors.insert(
            key,
            View { storage, place: None, dtype, shape, layout, conj: false, neg: false, remarks: Vec::new() },
        );
    }
    Ok(tensors)
}

/// Reads such an archive.
pub(crate) fn load(spaces: &mut Spaces, file: SourceId, options: &OpenOptions) -> Result<Objects> {
    let source = spaces.file(file)?.clone();
    load_unnamed(&source, spaces, file, options).map_err(|error| error.in_file(source.path()))
}

fn load_unnamed(source: &FileSource, spaces: &mut Spaces, file: SourceId, options: &OpenOptions) -> Result<Objects> {
    let limits = &options.limits;
    let members = members(source)?;
    let (ids, places) = storages(Stream::open(source, &members, "storages", limits)?)?;
    let tensors = tensors(Stream::open(source, &members, "tensors", limits)?, &ids, limits)?;
    let (graph, root) = Stream::open(source, &members, "pickle", limits)?.pickle()?;
    let mut outside = HashMap::new();
    for node in graph.ids() {
        let Node::Persistent(id) = graph.node(node) else { continue };
        let key = match graph.node(id) {
            Node::Int(int) => int.to_string(),
            _ => graph.text(id).unwrap_or_default().into_owned(),
        };
        if let Some(view) = tensors.get(&key) {
            outside.insert(node, view.clone());
        }
    }
    let records = StreamRecords { file, places };
    records.list("PyTorch checkpoint (tar)", (graph, root), &outside, spaces, options)
}
