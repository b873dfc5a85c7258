//! An opened checkpoint.

use crate::list::{Found, Listing};
use crate::pickle::{Graph, NodeId};
use crate::source::Spaces;
use crate::storage::Stored;
use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;
use weightlift_core::{ByteOrder, Catalog, Checkpoint, Extras, Limits, Result, SourceId};

/// What a pickle gave: the objects, and the tensors listed from them.
pub(crate) struct Objects {
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
}

impl TorchCheckpoint {
    /// A checkpoint that is written back with its objects.
    pub(crate) fn new(mut catalog: Catalog, spaces: Spaces, limits: &Limits, objects: Objects) -> TorchCheckpoint {
        let Objects { graph, root, listing, storages, order } = objects;
        let spaces = Arc::new(spaces);
        let (found, limits) = (listing.found, limits.clone());
        let tree = Tree { graph, root, found, storages, order, spaces: spaces.clone(), limits: limits.clone() };
        catalog.extras = Some(Extras::new(tree));
        catalog.entries = listing.entries;
        catalog.beside = listing.beside;
        catalog.sources = spaces.sources();
        TorchCheckpoint { catalog, spaces, limits }
    }
}

impl Checkpoint for TorchCheckpoint {
    fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    fn files(&self) -> Vec<PathBuf> {
        self.spaces.files().iter().map(|file| file.path().to_path_buf()).collect()
    }

    fn decode(&self, source: SourceId) -> Result<Box<dyn Read + Send + '_>> {
        self.spaces.decode(source, &self.limits)
    }
}
