//! PyTorch checkpoints, read and written without PyTorch and without running a pickle.
//!
//! ```
//! use std::path::Path;
//! use weightlift_core::{Format, OpenOptions};
//! use weightlift_torch::Torch;
//! # fn list(path: &Path) -> weightlift_core::Result<()> {
//! let checkpoint = Torch.open(weightlift_io::real(), path, &OpenOptions::default())?;
//! for entry in &checkpoint.catalog().entries {
//!     println!("{} {} {}", entry.name, entry.dtype, entry.shape);
//! }
//! checkpoint.catalog().beside.iter().for_each(|line| println!("{line}"));
//! # Ok(()) }
//! ```
//!
//! # What is read
//! | file | by |
//! |---|---|
//! | zip of `torch.save` (1.4 and later) | `NAME/data.pkl` in its directory |
//! | TorchScript archive | the same, with `constants.pkl` |
//! | TorchScript archive of 1.0 | `NAME/model.json` and `NAME/tensors/` |
//! | program of `torch.export` (`.pt2`) | its `…_weights_config.json`; the weights are read |
//! | legacy stream (up to 1.5) | its magic number |
//! | tar archive (0.1) | its first member |
//! | distributed checkpoint, a folder | `.metadata` |
//! | sharded set | `*.bin.index.json` |
//!
//! ```text
//! archive/data.pkl     the objects, a pickle         archive/byteorder   little
//! archive/data/0       a storage: bare elements      archive/version     3
//! archive/data/1       …
//! ```
//!
//! A tensor in the pickle is a call, `_rebuild_tensor_v2(storage, offset, size, stride, …)`, and the storage is the
//! persistent id `('storage', class, key, location, length)` with its record under `data/KEY`. Offsets and strides count
//! elements, lengths elements of the storage's class. Tensors over one storage are entries over one range of bytes.
//!
//! # Objects
//! Pickles of protocols 0 to 5 are read as data by the [`pickle`] machine: names stay names, calls are written down,
//! nothing is imported or called. Tensors are found wherever they stand: in dicts, lists, attributes of unknown classes;
//! a module lists what its `state_dict()` would. [`Checkpoint::objects`] shows the rest, and [`Tree`] keeps the whole
//! graph: a file written from entries of such a checkpoint has the same objects around the new tensors, classes by name,
//! attributes, shared references, order.
//!
//! Calls are written back only of functions that make a value and do nothing else (containers, numbers, dates, paths,
//! NumPy arrays, PyTorch's own rebuild functions); others are an error that names them, unless
//! [`WriteOptions::keep_calls`] asks for them. [`WriteOptions::weights_only`] leaves out what
//! `torch.load(weights_only=True)` refuses: keys of dicts go, items of lists and tuples become `None`, and an object that
//! holds tensors becomes a dict or list of what it holds.
//!
//! Quantized tensors are listed in their own dtypes, with scale and zero point as a remark; sparse ones as the tensors
//! they consist of; nested ones stand beside the tensors. Conjugated and negated views give their logical values.
//! Tensors on the meta device are listed without values.
//!
//! # Errors
//! `Malformed` where a file breaks a rule, with file, tensor and the byte in the file; `Unsupported` for kinds and
//! versions that are not known; `Limit` beyond [`Limits`](weightlift_core::Limits). With [`OpenOptions::salvage`] a tensor
//! whose record is missing or too short is listed as damaged instead. A pickle costs at most
//! [`Graph::BYTES_PER_PICKLE_BYTE`](pickle::Graph::BYTES_PER_PICKLE_BYTE) bytes of memory for each of its own.
//!
//! # What is written
//! A zip that PyTorch from 1.5 on loads, with `weights_only=True` and with `mmap=True`: stored members, every storage at
//! a multiple of 64 bytes, real sizes and CRC-32 sums, zip64 fields where they are needed. The dtypes that came after
//! 1.5 need a PyTorch that has them. A storage holds elements of one dtype.
#![forbid(unsafe_code)]

mod checkpoint;
mod dcp;
mod export;
mod legacy;
mod list;
mod numpy;
mod objects;
pub mod pickle;
mod recognise;
mod set;
mod sign;
mod source;
mod storage;
mod symbol;
mod tar;
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
    Capabilities, Checkpoint, CheckpointWriter, DType, Extras, Files, Format, Manifest, OpenOptions, Packing,
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
            return Ok(Box::new(set::open(files.as_ref(), path, options)?));
        }
        if dcp::is_metadata(path) {
            return Ok(Box::new(dcp::open(files.as_ref(), path, options)?));
        }
        let mut spaces = Spaces::default();
        let file = spaces.add_file(FileSource::open(files.as_ref(), path)?);
        let objects = recognise::load(&mut spaces, file, options)?;
        Ok(Box::new(TorchCheckpoint::new(spaces, limits, objects)))
    }

    fn capabilities(&self) -> Option<Capabilities> {
        Some(Capabilities {
            holds: |dtype: DType| symbol::holds(dtype).then_some(Packing::Dense),
            name_problem: |_| None,
            nests: true,
            shares_storage: true,
            strides: true,
            prunes_extras: true,
            joins_pieces: None,
            name_hint: Capabilities::NO_HINT,
            texts: None,
        })
    }

    fn left_behind(&self, extras: &Extras, options: &WriteOptions) -> Result<Vec<String>> {
        extras.get::<Tree>().map_or(Ok(Vec::new()), |tree| write::left_behind(tree, options))
    }

    fn create(
        &self,
        files: Arc<dyn Files>,
        path: &Path,
        manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<Box<dyn CheckpointWriter>> {
        match options.shard_size {
            Some(limit) => write::create_set(files, path, &manifest, limit, options),
            None => Ok(Box::new(write::TorchWriter::create(files, path, &manifest, options)?)),
        }
    }
}
