//! PyTorch checkpoints, read and written without PyTorch and without running a pickle.
#![forbid(unsafe_code)]

mod checkpoint;
mod legacy;
mod list;
mod numpy;
pub mod pickle;
mod recognise;
mod sign;
mod source;
mod storage;
mod symbol;
mod tensor;
mod tree;
mod write;
mod zip;

pub use checkpoint::Tree;

use recognise::Container;
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{
    Capabilities, Checkpoint, CheckpointWriter, DType, Error, Files, Format, Manifest, OpenOptions, Packing,
    Recognised, Result, WriteOptions,
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
        let Some(head) = head else { return Ok(None) };
        let ours = match recognise::container(head) {
            Some(Container::Zip) => recognise::is_torch_zip(files, path, head)?,
            Some(Container::Legacy | Container::Pickle) => true,
            None => false,
        };
        Ok(ours.then(|| Recognised { path: path.to_path_buf(), by_content: true }))
    }

    fn open(&self, files: Arc<dyn Files>, path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
        let source = FileSource::open(files.as_ref(), path)?;
        let head = source.head(4096)?;
        match recognise::container(&head) {
            Some(Container::Zip) => Ok(Box::new(zip::open(source, &options.limits)?)),
            Some(Container::Legacy) => Ok(Box::new(legacy::open(source, &options.limits)?)),
            Some(Container::Pickle) => {
                Err(Error::unsupported("a plain pickle, which torch.save did not write").in_file(path))
            }
            None => {
                let what = weightlift_core::sniff::describe(&head, source.len());
                let what = what.unwrap_or_else(|| "no PyTorch checkpoint".into());
                Err(Error::malformed(what).in_file(path))
            }
        }
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
