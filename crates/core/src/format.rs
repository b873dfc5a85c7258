//! What a format does for the rest: recognise, open, say what it can hold, write.

use crate::{
    BlobId, ByteRange, Catalog, DType, EntryId, Error, Extras, FileRange, Files, Limits, Manifest, Object, Packing,
    Result, SourceId,
};
use std::fmt::Debug;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a checkpoint is opened.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// What a file may ask for.
    pub limits: Limits,
    /// Reads files with harmless faults, each with a warning: padding and trailing bytes where none belong, values of
    /// the wrong kind beside the tensors, headers longer than other readers take.
    pub lenient: bool,
    /// Refuses what is otherwise a warning: an index that does not fit its files in every point.
    pub strict: bool,
    /// Which names tensors bear, for formats that know several for each.
    pub names: Names,
    /// Lists tensors whose values are missing or cut short as damaged, instead of refusing the whole file.
    pub salvage: bool,
}

/// Which of its names a tensor bears.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// The one under which the file stores it.
    #[default]
    Stored,
    /// The way to it through the objects of the program that saved it.
    Object,
    /// The one it had in that program; the way to it where it had none of its own.
    Full,
}

/// How bytes that do not change come into an output whose format can take over whole files of its input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Share {
    /// By reflink where the file system has them; otherwise they are read, verified and written.
    #[default]
    Auto,
    /// They are read, verified and written.
    Never,
    /// By reflink, or else copied by the operating system.
    Reflink,
    /// By hard link: input and output are the same files.
    HardLink,
    /// Copied by the operating system.
    Copy,
}

/// Bytes that came into an output without being read, so that nobody verified them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Carried {
    /// How, in words: `reflink`, `hard link`, `system copy`, `in place`.
    pub how: &'static str,
    /// How many, those included that no tensor of the output uses.
    pub bytes: u64,
    /// How many of them no tensor of the output uses.
    pub unused: u64,
}

/// How a checkpoint is written.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Whether files of that name may be replaced.
    pub replace: bool,
    /// The most bytes of tensors in one file, for formats of several files; a larger tensor has a file of its own.
    pub shard_size: Option<u64>,
    /// What is put under a key of the metadata, or taken off it where there is no value, for formats that have
    /// metadata. The last entry of a key counts.
    pub metadata: Vec<(String, Option<String>)>,
    /// What becomes of the second names of a tensor, for formats that write the bytes of a tensor once.
    pub ties: Ties,
    /// Changes only what stands before the tensors, in the file itself. Bytes of tensors may not move.
    pub in_place: bool,
    /// How a format writes numbers that it has no type of its own for.
    pub nameless: Nameless,
    /// Tensors that were widened because the format has no type for what they were, with that type: recorded beside
    /// them where the format can.
    pub widened: Vec<(String, DType)>,
    /// Whether calls of functions that are not known to do nothing but make a value are written back among the objects
    /// around the tensors.
    pub keep_calls: bool,
    /// Leaves out of the objects around the tensors what a loader that runs nothing would refuse.
    pub weights_only: bool,
    /// Puts everything under this key of an outermost dict, for formats that nest.
    pub nest: Option<String>,
    /// How bytes that do not change come into the output.
    pub share: Share,
    /// Names the output in the file beside it that tells programs which checkpoint is the latest one.
    pub state_file: bool,
    /// Describes the tensors by the objects that hold them, where the source does not.
    pub object_graph: bool,
}

/// What becomes of the second names of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Ties {
    /// They are recorded, each with the name the tensor is written under.
    #[default]
    Alias,
    /// Each has bytes of its own. Only the manifest can say so: no two tensors lie over one blob.
    Copy,
    /// They are forgotten: only the first name is left.
    First,
}

/// How a format writes numbers that it has no type of its own for (bf16, the 8-bit floats in NumPy's files). Either way
/// the dtype is recorded, so that the format reads it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nameless {
    /// Not at all.
    #[default]
    Refuse,
    /// As unsigned integers of the same bits.
    Bits,
    /// As raw bytes, the way the libraries that extend the format with such types do.
    Raw,
}

/// The answer of a format that knows a path for its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recognised {
    /// The path to open: a prefix, an index, the file itself.
    pub path: PathBuf,
    /// Whether the content says so (a magic number), rather than the name.
    pub by_content: bool,
}

/// What a format can hold; the converter plans by these alone.
#[derive(Debug, Clone, Copy)]
pub struct Capabilities {
    /// How elements of this dtype are stored; `None` where they cannot be. Opaque dtypes are held only when they come
    /// from the same format.
    pub holds: fn(DType) -> Option<Packing>,
    /// What is wrong with a tensor name, in words that complete `the name "x" …`.
    pub name_problem: fn(&str) -> Option<String>,
    /// Whether paths of several keys are kept, so that only whole paths must differ; otherwise joined names must.
    pub nests: bool,
    /// Whether several tensors may lie over one blob.
    pub shares_storage: bool,
    /// Whether a tensor may be any strided view of a blob; otherwise it is its bytes, row-major and dense.
    pub strides: bool,
    /// Whether the writer itself takes out of the extras what [`WriteOptions::weights_only`] refuses; otherwise they are
    /// left out as a whole then.
    pub prunes_extras: bool,
    /// For formats that store a tensor in pieces: whether its own framework puts pieces of this dtype together in
    /// another way than they were cut. A tensor that comes in pieces from the same format keeps them.
    pub joins_pieces: Option<fn(DType) -> bool>,
    /// Something about a name that the target holds, yet its users hardly want; completes `… names …`.
    pub name_hint: fn(&str) -> Option<&'static str>,
    /// The stored bytes of a tensor of texts, each of so many elements the same text; `None` where it holds none that
    /// does not come from the same format.
    pub texts: Option<fn(&str, u64) -> Vec<u8>>,
}

impl Capabilities {
    /// No hint for any name.
    pub const NO_HINT: fn(&str) -> Option<&'static str> = |_| None;
}

/// One family of checkpoint files.
pub trait Format: Debug + Send + Sync {
    /// The word of `--to`: `tf`, `pt`, `safetensors`.
    fn id(&self) -> &'static str;

    /// The name for people: `TensorFlow checkpoint`.
    fn name(&self) -> &'static str;

    /// File extensions that mean this format as an output, without the dot.
    fn extensions(&self) -> &'static [&'static str];

    /// Whether `path` is for this format to open. `head` has the first bytes (up to 4096) where it names a file;
    /// otherwise it is a folder or names nothing.
    ///
    /// # Errors
    /// As [`Files`] say.
    fn recognise(&self, files: &dyn Files, path: &Path, head: Option<&[u8]>) -> Result<Option<Recognised>>;

    /// Reads index or header; no tensor byte. `path` is what [`Format::recognise`] answered.
    ///
    /// # Errors
    /// `Malformed`, `Unsupported` or `Limit` with file and offset; `Io`.
    fn open(&self, files: Arc<dyn Files>, path: &Path, options: &OpenOptions) -> Result<Box<dyn Checkpoint>>;

    /// What it can hold; `None` for a format that is only read.
    fn capabilities(&self) -> Option<Capabilities>;

    /// What of the extras of a catalog of this format stays behind where they are written back, a line each.
    ///
    /// # Errors
    /// `Request` where they cannot be written back, with the options that would help.
    fn left_behind(&self, extras: &Extras, options: &WriteOptions) -> Result<Vec<String>> {
        let _ = (extras, options);
        Ok(Vec::new())
    }

    /// Refuses what [`Format::create`] would refuse of a manifest, without touching a file.
    ///
    /// # Errors
    /// `Request` where the manifest has what the format cannot hold.
    fn check(&self, path: &Path, manifest: Manifest, options: &WriteOptions) -> Result<()> {
        let _ = (path, manifest, options);
        Ok(())
    }

    /// Starts an output. Nothing bears the final names before [`CheckpointWriter::finish`].
    ///
    /// # Errors
    /// `Request` where the manifest has what the format cannot hold or files exist that may not be replaced; `Io`.
    fn create(
        &self,
        files: Arc<dyn Files>,
        path: &Path,
        manifest: Manifest,
        options: &WriteOptions,
    ) -> Result<Box<dyn CheckpointWriter>>;
}

/// An opened checkpoint.
pub trait Checkpoint: Send + Sync {
    /// What it holds.
    fn catalog(&self) -> &Catalog;

    /// What stands around the tensors, in the order of the file, where the format has such objects.
    fn objects(&self) -> Vec<Object> {
        Vec::new()
    }

    /// The files that belong to it, for sizes and for telling whether an output is its own input.
    fn files(&self) -> Vec<PathBuf>;

    /// What the file itself calls a range of its bytes: the name of a zip member.
    fn record(&self, source: SourceId, range: ByteRange) -> Option<String> {
        let _ = (source, range);
        None
    }

    /// The bytes of a [`crate::Source::Decoded`], from its start.
    ///
    /// # Errors
    /// `Request` for a source that is a file; otherwise what decoding meets.
    fn decode(&self, source: SourceId) -> Result<Box<dyn Read + Send + '_>> {
        Err(Error::request(format!("source {} is not a decoded one", source.0)))
    }

    /// Checks the sums of an entry whose extents carry [`crate::Checksum::OfFormat`].
    ///
    /// # Errors
    /// `Checksum` where it differs; `Malformed`, `Io`.
    fn verify(&self, entry: EntryId) -> Result<()> {
        let _ = entry;
        Ok(())
    }
}

/// What a finished output consists of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Written {
    /// Files and their lengths, the one to name first.
    pub files: Vec<(PathBuf, u64)>,
    /// What a user should know: a state file left alone, objects that could not be carried.
    pub notes: Vec<String>,
    /// What came over without being read.
    pub carried: Option<Carried>,
}

/// An output under way. Dropped without [`CheckpointWriter::finish`], it leaves nothing behind.
pub trait CheckpointWriter: Send + Sync {
    /// Takes bytes of a blob: any order, many threads, every byte exactly once.
    ///
    /// # Errors
    /// `Io`; `Request` for bytes beyond the blob's end.
    fn write_at(&self, blob: BlobId, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Whether the bytes of a blob are there already, so that they need not be sent.
    fn holds(&self, blob: BlobId) -> bool {
        let _ = blob;
        false
    }

    /// Lets the operating system copy a range; `false` means: send the bytes instead.
    ///
    /// # Errors
    /// `Io`.
    fn copy_from(&self, blob: BlobId, offset: u64, range: &FileRange) -> Result<bool> {
        let _ = (blob, offset, range);
        Ok(false)
    }

    /// Writes checksums and index and gives the files their names.
    ///
    /// # Errors
    /// `Io`; `Request` where bytes are missing.
    fn finish(self: Box<Self>) -> Result<Written>;
}
