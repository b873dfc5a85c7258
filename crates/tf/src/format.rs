//! The format as the rest sees it.

use crate::bundle::Bundle;
use crate::locate::{Version, locate};
use crate::v1::V1;
use crate::writer::BundleWriter;
use crate::{ID, capabilities};
use std::path::Path;
use std::sync::Arc;
use weightlift_core::{
    Capabilities, Checkpoint, CheckpointWriter, Error, Files, Format, Manifest, OpenOptions, Recognised, Result,
    WriteOptions,
};

/// TensorFlow checkpoints: bundles of every version of TensorFlow since 1.0, by any of their files, their folder or
/// the state file in it, and the variables of a SavedModel.
#[derive(Debug, Clone, Copy, Default)]
pub struct TensorFlow;

impl Format for TensorFlow {
    fn id(&self) -> &'static str {
        ID
    }

    fn name(&self) -> &'static str {
        "TensorFlow checkpoint"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["ckpt", "index"]
    }

    fn recognise(&self, files: &dyn Files, path: &Path, _head: Option<&[u8]>) -> Result<Option<Recognised>> {
        let found = locate(files, path)?;
        Ok(found.map(|found| Recognised { path: found.path, by_content: found.by_content }))
    }

    fn open(&self, files: Arc<dyn Files>, path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>> {
        let Some(found) = locate(files.as_ref(), path)? else {
            return Err(not_found(files.as_ref(), path));
        };
        match found.version {
            Version::Bundle => Ok(Box::new(Bundle::open(files, &found.path, options)?)),
            Version::V1 => Ok(Box::new(V1::open(files, &found.path, options)?)),
        }
    }

    fn capabilities(&self) -> Option<Capabilities> {
        Some(capabilities::CAPABILITIES)
    }

    fn check(&self, path: &Path, manifest: Manifest, options: &WriteOptions) -> Result<()> {
        BundleWriter::check(path, manifest, options)
    }

    fn create(
        &self,
        files: Arc<dyn Files>,
        path: &Path,
        manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<Box<dyn CheckpointWriter>> {
        Ok(Box::new(BundleWriter::create(files, path, manifest, options)?))
    }
}

/// The error for a path that leads to no checkpoint.
fn not_found(files: &dyn Files, path: &Path) -> Error {
    let error = match files.stat(path) {
        Err(error) => return Error::io("cannot open", path, error).help("no such file, nor an index of that prefix"),
        Ok(stat) if stat.kind == weightlift_core::FileKind::Dir => {
            "a folder without a TensorFlow checkpoint".to_owned()
        }
        Ok(stat) => {
            let head = weightlift_io::FileSource::open(files, path).and_then(|source| source.head(4096));
            let known = head.ok().and_then(|head| weightlift_core::sniff::describe(&head, stat.len));
            known.unwrap_or_else(|| "no TensorFlow checkpoint: it does not end like a table".to_owned())
        }
    };
    Error::malformed(format!("is {error}")).in_file(path)
}
