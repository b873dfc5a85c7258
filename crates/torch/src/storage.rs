//! Storages: the runs of bytes that tensors are views of.

use crate::pickle::{Graph, Node, NodeId};
use crate::source::Spaces;
use crate::symbol::{self, StorageType};
use foldhash::{HashMap, HashMapExt};
use weightlift_core::{ByteRange, Checksum, Error, Result, SourceId};

/// What a pickle says of a storage: `('storage', class, key, location, length[, view])`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StorageId {
    /// Its class.
    pub(crate) class: StorageType,
    /// Which record holds it.
    pub(crate) key: String,
    /// Its length, in elements of its class.
    pub(crate) numel: u64,
    /// Legacy files only: this storage is a part of the record's, from `.0`, `.1` elements.
    pub(crate) view: Option<(u64, u64)>,
}

impl StorageId {
    /// Its length in bytes.
    pub(crate) fn bytes(&self) -> Result<u64> {
        let bytes = self.numel.checked_mul(self.itemsize()).filter(|&bytes| bytes <= i64::MAX as u64);
        bytes.ok_or_else(|| Error::malformed(format!("storage {:?} of {} elements is too long", self.key, self.numel)))
    }

    /// Bytes of an element of its class; packed classes count bytes.
    pub(crate) fn itemsize(&self) -> u64 {
        match self.class {
            StorageType::Typed(dtype) => u64::from(dtype.bits().unwrap_or(8).div_ceil(8)),
            StorageType::Untyped => 1,
        }
    }

    /// Reads the persistent id of a storage.
    pub(crate) fn read(graph: &Graph, node: NodeId) -> Result<StorageId> {
        let Node::Persistent(id) = graph.node(node) else {
            return Err(Error::malformed(format!("a tensor's storage is {}", graph.describe(node))));
        };
        let fields = graph.items(id).unwrap_or_default();
        let (&[tag, class, key, _location, numel], rest) = fields.split_first_chunk().ok_or_else(|| {
            Error::malformed(format!("a storage is named by {} instead of five fields", graph.describe(id)))
        })?;
        if graph.raw(tag) != Some(b"storage") {
            return Err(Error::malformed(format!("a persistent id begins with {}", graph.describe(tag))));
        }
        let known = graph.global(class).and_then(|(module, name)| symbol::storage_type(module, name));
        let class = known.ok_or_else(|| Error::unsupported(format!("storage class {}", graph.describe(class))))?;
        let numel = natural(graph, numel, "the length of a storage")?;
        let view = match rest.first() {
            Some(&view) if graph.node(view) != Node::None => Some(view_of(graph, view)?),
            _ => None,
        };
        Ok(StorageId { class, key: key_text(graph, key)?, numel, view })
    }
}

/// Keys are text, or bytes in files from Python 2, or numbers.
fn key_text(graph: &Graph, key: NodeId) -> Result<String> {
    match (graph.raw(key), graph.node(key)) {
        (Some(bytes), _) => Ok(match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => String::from_utf8_lossy(bytes).into_owned(),
        }),
        (None, Node::Int(int)) => Ok(int.to_string()),
        _ => Err(Error::malformed(format!("the key of a storage is {}", graph.describe(key)))),
    }
}

fn view_of(graph: &Graph, view: NodeId) -> Result<(u64, u64)> {
    match graph.items(view) {
        Some(&[_key, offset, numel]) => {
            let offset = natural(graph, offset, "the offset of a storage view")?;
            Ok((offset, natural(graph, numel, "the length of a storage view")?))
        }
        _ => Err(Error::malformed(format!("a storage view is {}", graph.describe(view)))),
    }
}

/// A number that cannot be negative.
pub(crate) fn natural(graph: &Graph, node: NodeId, what: &str) -> Result<u64> {
    match graph.int(node) {
        Some(int) => u64::try_from(int).map_err(|_| Error::malformed(format!("{what} is negative: {int}"))),
        None => Err(Error::malformed(format!("{what} is {} instead of a number", graph.describe(node)))),
    }
}

/// Where a storage's bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// The byte space.
    pub(crate) source: SourceId,
    /// The whole record.
    pub(crate) bytes: ByteRange,
    /// Its checksum.
    pub(crate) checksum: Option<Checksum>,
}

impl Stored {
    /// The part of a record that a storage is: all of it, unless the storage is a view.
    pub(crate) fn part(self, id: &StorageId) -> Result<Stored> {
        let Some((offset, numel)) = id.view else { return Ok(self) };
        let part = offset.checked_mul(id.itemsize()).zip(numel.checked_mul(id.itemsize()));
        let bytes = part.and_then(|(start, len)| self.bytes.slice(start, len)).ok_or_else(|| {
            let key = &id.key;
            Error::malformed(format!("a view of {numel} elements at {offset} leaves storage {key:?}"))
        })?;
        let checksum = self.checksum.filter(|_| bytes == self.bytes);
        Ok(Stored { bytes, checksum, ..self })
    }
}

/// The records of a file.
pub(crate) trait Records {
    /// Where the record of a key is.
    ///
    /// # Errors
    /// `Malformed` where there is none.
    fn record(&mut self, key: &str, spaces: &mut Spaces) -> Result<Stored>;
}

/// Storages by key, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Storages {
    known: HashMap<String, Stored>,
}

impl Storages {
    /// Room for this many.
    pub(crate) fn with_capacity(storages: usize) -> Storages {
        Storages { known: HashMap::with_capacity(storages) }
    }

    /// Where the records are, by key.
    pub(crate) fn into_places(self) -> HashMap<String, Stored> {
        self.known
    }

    /// The bytes of a storage.
    ///
    /// # Errors
    /// `Malformed` where the record is missing or has another length than the pickle says.
    pub(crate) fn find(&mut self, id: &StorageId, records: &mut dyn Records, spaces: &mut Spaces) -> Result<Stored> {
        if let Some(&stored) = self.known.get(&id.key) {
            check_length(id, &stored)?;
            return stored.part(id);
        }
        let stored = records.record(&id.key, spaces)?;
        check_length(id, &stored)?;
        self.known.insert(id.key.clone(), stored);
        stored.part(id)
    }
}

fn check_length(id: &StorageId, stored: &Stored) -> Result<()> {
    let (wanted, found) = (id.bytes()?, stored.bytes.len());
    if wanted == found {
        return Ok(());
    }
    let (key, numel, unit) = (&id.key, id.numel, id.itemsize());
    let message =
        format!("storage {key:?} has {found} bytes, but the pickle says {numel} elements of {unit} bytes: {wanted}");
    Err(Error::malformed(message).at(stored.bytes.start()))
}
