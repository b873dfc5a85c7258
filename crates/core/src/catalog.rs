//! What a checkpoint holds, without a tensor byte read.

use crate::{ByteRange, Entry, EntryId, Extent};
use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// The position of a source in its catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SourceId(pub u32);

/// A space of bytes that extents point into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A whole file, read at any position.
    File {
        /// Its path.
        path: PathBuf,
        /// Its length when the checkpoint was opened.
        len: u64,
    },
    /// Bytes that exist only decoded (a deflated member, values inside a pickle), read in order through
    /// [`crate::Checkpoint::decode`].
    Decoded {
        /// What it is, for messages.
        label: String,
        /// Its decoded length.
        len: u64,
    },
}

impl Source {
    /// The length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "an empty source is an ordinary one")]
    pub fn len(&self) -> u64 {
        match self {
            Source::File { len, .. } | Source::Decoded { len, .. } => *len,
        }
    }
}

/// What is not a tensor: the objects around the weights, metadata, an object graph. Owned and understood by the
/// format that read it; the converter carries it untouched and hands it back to the same format.
#[derive(Clone)]
pub struct Extras(Arc<dyn Any + Send + Sync>);

impl Extras {
    /// Wraps a format's own value.
    pub fn new<T: Any + Send + Sync>(value: T) -> Extras {
        Extras(Arc::new(value))
    }

    /// The value, if it is of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.downcast_ref()
    }
}

impl fmt::Debug for Extras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Extras")
    }
}

/// A tensor in its storage, in bytes from the start of it.
struct View<'a> {
    low: u64,
    high: u64,
    /// Of all its elements.
    bytes: u64,
    extent: &'a Extent,
    entry: &'a Entry,
}

/// How many bytes views of one storage reach.
fn reached(mut views: Vec<View<'_>>) -> u64 {
    views.sort_by_key(|view| (view.low, view.high));
    let (mut total, mut at) = (0, 0);
    while let Some(view) = views.get(at) {
        let (mut high, mut end) = (view.high, at + 1);
        while let Some(next) = views.get(end).filter(|next| next.low < high) {
            high = high.max(next.high);
            end += 1;
        }
        let same = |other: &View<'_>| other.extent == view.extent && other.entry.shape == view.entry.shape;
        let lone = views[at..end].iter().all(same);
        let span = high - view.low.min(high);
        total += if lone { view.bytes.min(span) } else { span };
        at = end;
    }
    total
}

/// What a checkpoint holds: its entries in their own order, the sources they point into and the rest.
#[derive(Debug, Clone)]
pub struct Catalog {
    /// The [`crate::Format::id`] of the format that read it.
    pub format: &'static str,
    /// What exactly it is, for people: `TensorFlow bundle, 2 shards`.
    pub description: String,
    /// The tensors, in file order (TensorFlow: by name; torch: as met in the object tree). Names need not be unique.
    pub entries: Vec<Entry>,
    /// The byte spaces.
    pub sources: Vec<Source>,
    /// What is not a tensor.
    pub extras: Option<Extras>,
    /// Byte ranges that something beside tensors has a share in as a whole: the storages of a PyTorch file that its
    /// objects name themselves.
    pub shared: Vec<(SourceId, ByteRange)>,
    /// What was found beside tensors, a line each, for a listing and for the report of what was left out.
    pub beside: Vec<String>,
    /// What was found beside tensors and goes into no output, not even one of the same format.
    pub left_behind: Vec<String>,
    /// As what it is written in its own format, where that is another form than its own.
    pub comes_out: Option<&'static str>,
    /// What a user should know about this file: a stale state file, an extension that lies.
    pub warnings: Vec<String>,
}

impl Catalog {
    /// An empty catalog.
    pub fn new(format: &'static str, description: impl Into<String>) -> Catalog {
        let description = description.into();
        Catalog {
            format,
            description,
            entries: Vec::new(),
            sources: Vec::new(),
            extras: None,
            shared: Vec::new(),
            beside: Vec::new(),
            left_behind: Vec::new(),
            comes_out: None,
            warnings: Vec::new(),
        }
    }

    /// Adds a byte space.
    pub fn add_source(&mut self, source: Source) -> SourceId {
        self.sources.push(source);
        SourceId(self.sources.len() as u32 - 1)
    }

    /// The byte space of an id from this catalog.
    pub fn source(&self, id: SourceId) -> &Source {
        &self.sources[id.0 as usize]
    }

    /// The entry of an id from this catalog.
    pub fn entry(&self, id: EntryId) -> &Entry {
        &self.entries[id.0 as usize]
    }

    /// Bytes of the storages that tensors are views of and that none of them reaches. Views that lie over each other
    /// count as if they filled what is between their ends.
    pub fn unused_bytes(&self) -> u64 {
        let mut storages: HashMap<(SourceId, ByteRange), Vec<View<'_>>> = HashMap::new();
        for entry in &self.entries {
            if let Ok([extent]) = entry.extents()
                && let Some(element) = entry.dtype.element_bytes(extent.packing)
                && let Ok(reach) = extent.layout.reach(&entry.shape)
                && !self.shared.contains(&(extent.source, extent.bytes))
            {
                let (low, high) = (extent.layout.offset * element, reach * element);
                let view = View { low, high, bytes: entry.bytes, extent, entry };
                storages.entry((extent.source, extent.bytes)).or_default().push(view);
            }
        }
        storages.into_iter().map(|((_, bytes), views)| bytes.len().saturating_sub(reached(views))).sum()
    }

    /// The entries with their ids, in order.
    pub fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        self.entries.iter().enumerate().map(|(index, entry)| (EntryId(index as u32), entry))
    }

    /// All entries that bear this name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (EntryId, &'a Entry)> {
        self.iter().filter(move |(_, entry)| entry.name == name)
    }
}
