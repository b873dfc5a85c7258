//! What the tests share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use weightlift_core::{Checkpoint, DType, EntryId, Error, Extras, Format, Limits, Manifest, OpenOptions, Shape};
use weightlift_core::{WriteOptions, Written};
use weightlift_safetensors::{Metadata, Safetensors};

/// Opens a file under the limits.
pub(crate) fn open_with(path: &Path, limits: Limits) -> Result<Box<dyn Checkpoint>, Error> {
    let mut options = OpenOptions::default();
    options.limits = limits;
    Safetensors.open(weightlift_io::real(), path, &options)
}

/// Opens a file.
pub(crate) fn open(path: &Path) -> Result<Box<dyn Checkpoint>, Error> {
    open_with(path, Limits::default())
}

/// Opens a file of these bytes, which lies in memory, and reads all its tensors.
pub(crate) fn open_bytes(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let files = Arc::new(weightlift_testkit::OneFile::new(bytes));
    let checkpoint = Safetensors.open(files.clone(), Path::new("model.safetensors"), &OpenOptions::default())?;
    let entries = checkpoint.catalog().iter();
    let read = |id| weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), id);
    entries.map(|(id, entry)| Ok((entry.name.clone(), read(id)?))).collect()
}

/// The bytes of a tensor.
pub(crate) fn bytes_of(checkpoint: &dyn Checkpoint, index: usize) -> Vec<u8> {
    weightlift_io::read_entry(weightlift_io::real().as_ref(), checkpoint, EntryId(index as u32)).unwrap()
}

/// A folder with one file of these bytes.
pub(crate) struct OneFile {
    pub(crate) path: PathBuf,
    _dir: TempDir,
}

impl OneFile {
    pub(crate) fn new(bytes: &[u8]) -> OneFile {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("model.safetensors");
        std::fs::write(&path, bytes).unwrap();
        OneFile { path, _dir: dir }
    }
}

/// A file with this JSON text and so many bytes after it, counting up.
pub(crate) fn file_of(json: &str, bytes: usize) -> Vec<u8> {
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(json.as_bytes());
    file.extend((0..bytes).map(|n| n as u8));
    file
}

/// The message of refusing a file with this JSON text and so many bytes.
pub(crate) fn refused(json: &str, bytes: usize) -> String {
    let file = OneFile::new(&file_of(json, bytes));
    let error = open(&file.path).err().unwrap_or_else(|| panic!("{json} was accepted"));
    let place = format!("{}: ", file.path.display());
    let message = error.to_string();
    message.strip_prefix(&place).unwrap_or_else(|| panic!("{message} does not name the file")).to_owned()
}

/// A tensor to write.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<u64>,
    pub(crate) bytes: Vec<u8>,
}

/// Writes tensors, each in pieces of `piece` bytes from the end to the start.
pub(crate) fn write(
    path: &Path,
    tensors: &[Tensor],
    metadata: Option<Metadata>,
    piece: usize,
) -> Result<Written, Error> {
    let mut manifest = Manifest::default();
    manifest.extras.extend(metadata.map(|metadata| (0, Extras::new(metadata))));
    let add = |t: &Tensor| manifest.add_tensor(&t.name, t.dtype, Shape::new(t.dims.clone()).unwrap());
    let blobs: Vec<_> = tensors.iter().map(add).collect();
    let mut options = WriteOptions::default();
    options.replace = true;
    let writer = Safetensors.create(weightlift_io::real(), path, manifest, &options)?;
    for (tensor, blob) in tensors.iter().zip(blobs) {
        let pieces: Vec<&[u8]> = tensor.bytes.chunks(piece).collect();
        for (index, bytes) in pieces.iter().enumerate().rev() {
            writer.write_at(blob, (index * piece) as u64, bytes)?;
        }
    }
    writer.finish()
}
