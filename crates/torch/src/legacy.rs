//! The legacy stream: five pickles, then the storages.
//!
//! ```text
//! magic number | 1001 | system | object | keys      a pickle each, nothing between
//! per key: length i64le (elements), bytes           no alignment, no checksum
//! ```

use crate::checkpoint::{Objects, ZIP};
use crate::list::Lister;
use crate::pickle::{Graph, Input, Machine, Node, NodeId};
use crate::source::Spaces;
use crate::storage::{Records, StorageId, Stored};
use crate::tensor::View;
use foldhash::{HashMap, HashMapExt};
use weightlift_core::{ByteOrder, ByteRange, Error, Kind, OpenOptions, Result, SourceId};
use weightlift_io::FileSource;

/// The number that opens the stream, low byte first.
const MAGIC: [u8; 10] = [0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];
/// The only version of the stream.
const VERSION: i64 = 1001;

/// Bytes of a file, a piece at a time. Pieces grow, so that a long pickle takes few reads.
pub(crate) struct FileInput<'a> {
    pub(crate) source: &'a FileSource,
    /// Where the pickles start and must have ended.
    pub(crate) range: ByteRange,
}

impl Input for FileInput<'_> {
    fn more(&mut self, bytes: &mut Vec<u8>) -> Result<bool> {
        let have = bytes.len() as u64;
        let piece = have.clamp(1 << 12, 1 << 20).min(self.range.len().saturating_sub(have));
        if piece == 0 {
            return Ok(false);
        }
        bytes.resize((have + piece) as usize, 0);
        self.source.read_exact_at(&mut bytes[have as usize..], self.range.start() + have)?;
        Ok(true)
    }
}

/// Records behind one another, found by the lengths that stand before them.
#[derive(Debug)]
pub(crate) struct StreamRecords {
    pub(crate) file: SourceId,
    pub(crate) places: HashMap<String, ByteRange>,
}

impl StreamRecords {
    /// The objects of a file that has its storages here, with the tensors in them; `outside`: those that stand beside
    /// the objects.
    pub(crate) fn list(
        mut self,
        description: &'static str,
        (graph, root): (Graph, NodeId),
        outside: &HashMap<NodeId, View>,
        spaces: &mut Spaces,
        options: &OpenOptions,
    ) -> Result<Objects> {
        let (warnings, order) = (Vec::new(), ByteOrder::Little);
        let mut lister = Lister { graph: &graph, records: &mut self, spaces, order, options, outside };
        let (listing, storages) = lister.list(root)?;
        let comes_out = Some(ZIP);
        Ok(Objects { description, warnings, returns: true, comes_out, graph, root, listing, storages, order })
    }
}

impl Records for StreamRecords {
    fn record(&mut self, key: &str, _: &mut Spaces) -> Result<Stored> {
        let place = self.places.get(key);
        let bytes = *place.ok_or_else(|| Error::malformed(format!("the file has no storage {key:?}")))?;
        Ok(Stored { source: self.file, bytes, checksum: None })
    }
}

/// The storages that a graph names, by key.
pub(crate) fn named_storages(graph: &Graph) -> Result<HashMap<String, StorageId>> {
    let mut named = HashMap::new();
    for node in graph.ids() {
        let Node::Persistent(id) = graph.node(node) else { continue };
        let tag = graph.items(id).and_then(|fields| fields.first()).and_then(|&tag| graph.raw(tag));
        if tag == Some(b"storage") {
            let storage = StorageId::read(graph, node)?;
            named.entry(storage.key.clone()).or_insert(storage);
        }
    }
    Ok(named)
}

/// Where the record of a storage is, whose length stands at `at`.
pub(crate) fn record_at(source: &FileSource, at: u64, storage: &StorageId) -> Result<ByteRange> {
    let mut numel = [0; 8];
    ByteRange::new(at, 8)?.within(source.len())?;
    source.read_exact_at(&mut numel, at)?;
    let (numel, key) = (i64::from_le_bytes(numel), &storage.key);
    if u64::try_from(numel) != Ok(storage.numel) {
        let wanted = storage.numel;
        let message = format!("storage {key:?} has {numel} elements, but the pickle says {wanted}");
        return Err(Error::malformed(message).at(at));
    }
    let bytes = ByteRange::new(at + 8, storage.bytes()?)?;
    bytes.within(source.len()).map_err(|error| {
        let message = format!("storage {key:?} {}", error.message());
        Error::malformed(message).at(at).help("the download or copy was cut short: fetch the file again")
    })
}

/// Reads a legacy stream that takes a whole file.
pub(crate) fn load(spaces: &mut Spaces, file: SourceId, options: &OpenOptions) -> Result<Objects> {
    let source = spaces.file(file)?.clone();
    load_unnamed(&source, spaces, file, options).map_err(|error| error.in_file(source.path()))
}

fn load_unnamed(source: &FileSource, spaces: &mut Spaces, file: SourceId, options: &OpenOptions) -> Result<Objects> {
    let range = ByteRange::new(0, source.len())?;
    let input = FileInput { source, range };
    let mut machine = Machine::new(Vec::new(), input, &options.limits, Some(0));
    check_opening(&mut machine)?;
    machine.load()?;
    let root = machine.load()?;
    let keys = machine.load()?;
    let mut at = machine.position();
    let graph = machine.finish();
    let named = named_storages(&graph)?;
    let mut places = HashMap::new();
    for &key in graph.items(keys).unwrap_or_default() {
        let key = graph.text(key).map_or_else(|| graph.describe(key), |text| text.into_owned());
        let storage = named.get(&key).ok_or_else(|| {
            Error::malformed(format!("storage {key:?} follows, but no tensor says what its elements are"))
        })?;
        let bytes = match record_at(source, at, storage) {
            // Where one record ends is not known, so those behind it are lost too.
            Err(error) if options.salvage && error.kind() == Kind::Malformed => break,
            found => found?,
        };
        at = bytes.end();
        places.insert(key, bytes);
    }
    let records = StreamRecords { file, places };
    records.list("PyTorch checkpoint (legacy stream)", (graph, root), &HashMap::new(), spaces, options)
}

fn check_opening(machine: &mut Machine<FileInput<'_>>) -> Result<()> {
    let magic = machine.load()?;
    if !is_magic(machine.graph(), magic) {
        return Err(Error::malformed("no legacy PyTorch stream: the first pickle is not its magic number").at(0));
    }
    let at = machine.position();
    let version = machine.load()?;
    match machine.graph().node(version) {
        Node::Int(VERSION) => Ok(()),
        _ => {
            let found = machine.graph().describe(version);
            Err(Error::unsupported(format!("legacy stream version {found}; {VERSION} is known")).at(at))
        }
    }
}

fn is_magic(graph: &Graph, node: NodeId) -> bool {
    matches!(graph.node(node), Node::Long(digits) if graph.span(digits) == MAGIC)
}
