//! An opened checkpoint.

use crate::list::{Found, Listing};
use crate::objects;
use crate::pickle::{Graph, NodeId};
use crate::source::Spaces;
use crate::storage::Stored;
use foldhash::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use weightlift_core::{ByteOrder, ByteRange, Catalog, Checkpoint, Entry, Extras, Limits, Object, Result, SourceId};

/// What is written of a legacy stream or a tar archive.
pub(crate) const ZIP: &str = "a torch.save zip";
/// What is written of files whose objects are not written back.
pub(crate) const STATE_DICT: &str = "a state dict in a torch.save zip";

/// What one file or part of a file gave: the objects, and the tensors listed from them.
pub(crate) struct Objects {
    /// What it is, for people.
    pub(crate) description: &'static str,
    pub(crate) warnings: Vec<String>,
    /// Whether the objects can be written back: those of TorchScript are bound to its code.
    pub(crate) returns: bool,
    /// As what it is written: [`Catalog::comes_out`].
    pub(crate) comes_out: Option<&'static str>,
    pub(crate) graph: Graph,
    pub(crate) root: NodeId,
    pub(crate) listing: Listing,
    pub(crate) storages: HashMap<String, Stored>,
    pub(crate) order: ByteOrder,
}

/// The objects around the tensors of a checkpoint: [`Catalog::extras`] of this format.
#[derive(Debug)]
pub struct Tree {
    pub(crate) graph: Graph,
    pub(crate) root: NodeId,
    /// Where each entry of the catalog was found, in order.
    pub(crate) found: Vec<Found>,
    /// Where the bytes of each storage that the objects name are.
    pub(crate) storages: HashMap<String, Stored>,
    pub(crate) order: ByteOrder,
    pub(crate) spaces: Arc<Spaces>,
    pub(crate) limits: Limits,
}

impl Tree {
    /// The objects.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The outermost object.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// The node of each entry of the catalog, in order.
    pub fn tensors(&self) -> impl Iterator<Item = NodeId> {
        self.found.iter().map(|found| found.node)
    }
}

/// An opened PyTorch checkpoint.
#[derive(Debug)]
pub(crate) struct TorchCheckpoint {
    catalog: Catalog,
    spaces: Arc<Spaces>,
    limits: Limits,
    /// Files that hold no tensors: indexes.
    others: Vec<PathBuf>,
    /// The objects of a file that is not written back with them.
    tree: Option<Tree>,
}

impl TorchCheckpoint {
    /// A checkpoint of one file, written back with its objects where that is possible.
    pub(crate) fn new(spaces: Spaces, limits: &Limits, objects: Objects) -> TorchCheckpoint {
        let Objects { graph, root, listing, storages, order, description, warnings, returns, comes_out } = objects;
        let Listing { entries, found, beside, shared, .. } = listing;
        let mut checkpoint = TorchCheckpoint::flat(description, spaces, limits, entries, beside);
        (checkpoint.catalog.warnings, checkpoint.catalog.shared) = (warnings, shared);
        checkpoint.catalog.comes_out = comes_out;
        let (spaces, limits) = (checkpoint.spaces.clone(), checkpoint.limits.clone());
        let tree = Tree { graph, root, found, storages, order, spaces, limits };
        match returns {
            true => checkpoint.catalog.extras = Some(Extras::new(tree)),
            false => checkpoint.tree = Some(tree),
        }
        checkpoint
    }

    /// A checkpoint of entries alone.
    pub(crate) fn flat(
        description: impl Into<String>,
        spaces: Spaces,
        limits: &Limits,
        entries: Vec<Entry>,
        beside: Vec<String>,
    ) -> TorchCheckpoint {
        let mut catalog = Catalog::new(crate::ID, description);
        (catalog.entries, catalog.beside, catalog.sources) = (entries, beside, spaces.sources());
        TorchCheckpoint { catalog, spaces: Arc::new(spaces), limits: limits.clone(), others: Vec::new(), tree: None }
    }

    /// The objects, whether they are written back or not.
    fn tree(&self) -> Option<&Tree> {
        let carried = self.catalog.extras.as_ref().and_then(|extras| extras.get::<Tree>());
        carried.or(self.tree.as_ref())
    }

    /// The same with a file that holds no tensors.
    pub(crate) fn with_file(mut self, path: PathBuf) -> TorchCheckpoint {
        self.others.push(path);
        self
    }

    /// The same, written in another form.
    pub(crate) fn coming_out(mut self, form: &'static str) -> TorchCheckpoint {
        self.catalog.comes_out = Some(form);
        self
    }

    /// The same with warnings.
    pub(crate) fn warning(mut self, warnings: Vec<String>) -> TorchCheckpoint {
        self.catalog.warnings.extend(warnings);
        self
    }
}

impl Checkpoint for TorchCheckpoint {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn objects(&self) -> Vec<Object> {
        self.tree().map(objects::list).unwrap_or_default()
    }

    fn record(&self, source: SourceId, range: ByteRange) -> Option<String> {
        let mut records = self.tree()?.storages.iter();
        records.find_map(|(key, at)| ((at.source, at.bytes) == (source, range)).then(|| format!("data/{key}")))
    }

    fn files(&self) -> Vec<PathBuf> {
        let files = self.spaces.files().iter().map(|file| file.path().to_path_buf());
        files.chain(self.others.iter().cloned()).collect()
    }

    fn decode(&self, source: SourceId) -> Result<Box<dyn Read + Send + '_>> {
        self.spaces.decode(source, &self.limits)
    }
}
