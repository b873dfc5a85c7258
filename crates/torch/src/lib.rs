//! PyTorch checkpoints, read and written without PyTorch and without running a pickle.
#![forbid(unsafe_code)]

mod checkpoint;
mod dcp;
mod legacy;
mod list;
mod numpy;
pub mod pickle;
mod recognise;
mod set;
mod sign;
mod source;
mod storage;
mod symbol;
mod tensor;
mod tree;
mod write;
mod zip;

pub use checkpoint::Tree;

use checkpoint::TorchCheckpoint;
use recognise::Container;
use source::Spaces;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{
    Capabilities, Checkpoint, CheckpointWriter, DType, Files, Format, Manifest, OpenOptions, Packing, Recognised,
    Result, WriteOptions,
};
use weightlift_io::FileSource;

/// The word for this format.
pub(crate) const ID: &str = "pt";

/// PyTorch checkpoints.
#[derive(Debug, Clone, Copy, Default)]
pub struct Torch;

impl Format for Torch {
    fn id(&self) -> &'static str {
        ID
    }

    fn name(&self) -> &'static str {
        "PyTorch checkpoint"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["pt", "pth", "bin"]
    }

    fn recognise(&self, files: &dyn Files, path: &Path, head: Option<&[u8]>) -> Result<Option<Recognised>> {
        let found = |path: PathBuf, by_content| Ok(Some(Recognised { path, by_content }));
        let Some(head) = head else {
            return match dcp::in_folder(files, path).or_else(|| set::in_folder(files, path)) {
                Some(inner) => found(inner, false),
                None => Ok(None),
            };
        };
        match recognise::container(head) {
            Some(Container::Zip) if !recognise::is_torch_zip(files, path, head)? => Ok(None),
            Some(_) => found(path.to_path_buf(), true),
            None if set::is_index(path) => found(path.to_path_buf(), false),
            None => Ok(None),
        }
    }

    fn open(&self, files: Arc<dyn Files>, path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
        let limits = &options.limits;
        if set::is_index(path) {
            return Ok(Box::new(set::open(files.as_ref(), path, limits)?));
        }
        if dcp::is_metadata(path) {
            return Ok(Box::new(dcp::open(files.as_ref(), path, limits)?));
        }
        let mut spaces = Spaces::default();
        let file = spaces.add_file(FileSource::open(files.as_ref(), path)?);
        let objects = recognise::load(&mut spaces, file, limits)?;
        Ok(Box::new(TorchCheckpoint::new(spaces, limits, objects)))
    }

    fn capabilities(&self) -> Option<Capabilities> {
        Some(Capabilities {
            holds: |dtype: DType| symbol::holds(dtype).then_some(Packing::Dense),
            name_problem: |_| None,
            nests: true,
            shares_storage: true,
        })
    }

    fn create(
        &self,
        files: Arc<dyn Files>,
        path: &Path,
        manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<Box<dyn CheckpointWriter>> {
        Ok(Box::new(write::TorchWriter::create(files, path, &manifest, options)?))
    }
}
