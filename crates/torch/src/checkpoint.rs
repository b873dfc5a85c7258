//! An opened checkpoint.

use crate::list::Listing;
use crate::pickle::{Graph, NodeId};
use crate::source::Spaces;
use std::io::Read;
use std::path::PathBuf;
use weightlift_core::{Catalog, Checkpoint, Extras, Limits, Result, SourceId};

/// What a pickle gave: the objects, and the tensors listed from them.
pub(crate) struct Objects {
    pub(crate) graph: Graph,
    pub(crate) root: NodeId,
    pub(crate) listing: Listing,
}

/// The objects around the tensors of a checkpoint: [`Catalog::extras`] of this format.
#[derive(Debug)]
pub struct Tree {
    graph: Graph,
    root: NodeId,
    tensors: Vec<NodeId>,
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
    pub fn tensors(&self) -> &[NodeId] {
        &self.tensors
    }
}

/// An opened PyTorch checkpoint.
#[derive(Debug)]
pub(crate) struct TorchCheckpoint {
    catalog: Catalog,
    spaces: Spaces,
    limits: Limits,
}

impl TorchCheckpoint {
    pub(crate) fn new(catalog: Catalog, spaces: Spaces, limits: &Limits, objects: Objects) -> TorchCheckpoint {
        let Objects { graph, root, listing } = objects;
        let extras = Extras::new(Tree { graph, root, tensors: listing.nodes });
        let catalog = Catalog {
            entries: listing.entries,
            beside: listing.beside,
            sources: spaces.sources(),
            extras: Some(extras),
            ..catalog
        };
        TorchCheckpoint { catalog, spaces, limits: limits.clone() }
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
