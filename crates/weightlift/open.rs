//! Opening a checkpoint of any format, recognised by its content.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use weightlift_core::{
    Catalog, Checkpoint, Error, FileKind, Files, Format, Names, OpenOptions, Recognised, Result, sniff,
};
use weightlift_io::FileSource;

/// How many first bytes of a file the formats see.
const HEAD: u64 = 4096;

/// The formats, in the order in which they are asked.
pub fn formats() -> &'static [&'static dyn Format] {
    &[
        &weightlift_safetensors::Safetensors,
        &weightlift_torch::Torch,
        &weightlift_npy::Npy,
        &weightlift_npy::Npz,
        &weightlift_tf::TensorFlow,
    ]
}

/// An opened checkpoint with the format that reads it.
pub struct Opened {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) checkpoint: Box<dyn Checkpoint>,
    pub(crate) format: &'static dyn Format,
    pub(crate) path: PathBuf,
    warnings: Vec<String>,
    /// The word by which steps may name it, and the other inputs with theirs.
    pub(crate) word: String,
    pub(crate) others: Vec<(String, Opened)>,
}

impl Opened {
    /// Gives it a word, so that steps can name its tensors `WORD::NAME` too.
    #[must_use]
    pub fn called(self, word: impl Into<String>) -> Opened {
        Opened { word: word.into(), ..self }
    }

    /// Adds a checkpoint to read from: its tensors are called `WORD::NAME` in steps, and `average` takes part of it.
    ///
    /// ```no_run
    /// use weightlift::{Average, Plan, SaveOptions, Step};
    /// # fn main() -> weightlift::Result<()> {
    /// let inputs = weightlift::open("a.safetensors")?.with("b", weightlift::open("b.safetensors")?);
    /// let plan = Plan::new().step(Step::Average(Average::weighted([0.9, 0.1])));
    /// inputs.save(&plan, "mixed.safetensors", &SaveOptions::default())?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn with(mut self, word: impl Into<String>, other: Opened) -> Opened {
        self.others.push((word.into(), other));
        self
    }

    /// The file system it lies in.
    pub fn files(&self) -> &Arc<dyn Files> {
        &self.files
    }

    /// The checkpoint.
    pub fn checkpoint(&self) -> &dyn Checkpoint {
        self.checkpoint.as_ref()
    }

    /// What it holds.
    pub fn catalog(&self) -> &Catalog {
        self.checkpoint.catalog()
    }

    /// The format it is in.
    pub fn format(&self) -> &'static dyn Format {
        self.format
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a user should know: the catalog's warnings, and an extension that says something else than the content.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.warnings.iter().chain(&self.catalog().warnings).map(String::as_str)
    }

    /// All values of the tensor of this name as dense row-major little-endian bytes, its checksum verified.
    ///
    /// # Errors
    /// `Request` where no tensor or several bear the name; `Checksum`, `Malformed`, `Io`.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let mut found = self.catalog().named(name);
        match (found.next(), found.next()) {
            (Some((id, _)), None) => weightlift_io::read_entry(self.files.as_ref(), self.checkpoint(), id),
            (None, _) => Err(Error::request("there is no such tensor").in_tensor(name).in_file(&self.path)),
            _ => Err(Error::request("several tensors bear that name").in_tensor(name).in_file(&self.path)),
        }
    }
}

/// Opens a checkpoint of any format.
///
/// # Errors
/// `Io` where nothing is there, `Unsupported` where it is no checkpoint, with what it is instead; what the format says
/// of a damaged one.
pub fn open(path: impl AsRef<Path>) -> Result<Opened> {
    open_with(path, &OpenOptions::default())
}

/// The same with options: limits, leniency.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Opened> {
    open_in(weightlift_io::real(), path.as_ref(), options)
}

/// The same in any file system.
///
/// # Errors
/// As [`open`].
pub fn open_in(files: Arc<dyn Files>, path: &Path, options: &OpenOptions) -> Result<Opened> {
    let given = path;
    // A sharded set is named by its index, or by the name that its one file would have.
    let index = PathBuf::from(format!("{}.index.json", path.display()));
    let is_set = files.stat(path).is_err() && files.stat(&index).is_ok();
    let path = if is_set { &index } else { path };
    let found = match recognise(files.as_ref(), path) {
        // A run that was killed while it gave its files their names is finished first.
        Err(error) if finish_interrupted(files.as_ref(), path)? => {
            recognise(files.as_ref(), path).map_err(|_| error)?
        }
        other => other?,
    };
    let (format, recognised) = found;
    let checkpoint = format.open(files.clone(), &recognised.path, options)?;
    let warnings = lying_extension(path, format).into_iter().chain(one_name(format, options)).collect();
    let path = given.to_path_buf();
    Ok(Opened { files, checkpoint, format, path, warnings, word: String::new(), others: Vec::new() })
}

fn recognise(files: &dyn Files, path: &Path) -> Result<(&'static dyn Format, Recognised)> {
    let head = read_head(files, path)?;
    let mut by_name = None;
    for &format in formats() {
        match format.recognise(files, path, head.as_ref().map(|(head, _)| head.as_slice()))? {
            Some(recognised) if recognised.by_content => return Ok((format, recognised)),
            Some(recognised) if by_name.is_none() => by_name = Some((format, recognised)),
            _ => {}
        }
    }
    by_name.ok_or_else(|| unknown(files, path, head))
}

/// The first bytes and the length, where the path names a file.
fn read_head(files: &dyn Files, path: &Path) -> Result<Option<(Vec<u8>, u64)>> {
    match files.stat(path) {
        Ok(stat) if stat.kind == FileKind::File => {
            let source = FileSource::open(files, path)?;
            Ok(Some((source.head(HEAD)?, source.len())))
        }
        Ok(stat) if stat.kind == FileKind::Other => {
            Err(Error::unsupported("is a pipe or a device; a checkpoint is read at any position: save it as a file")
                .in_file(path))
        }
        _ => Ok(None),
    }
}

fn unknown(files: &dyn Files, path: &Path, head: Option<(Vec<u8>, u64)>) -> Error {
    let known = "TensorFlow checkpoints, PyTorch files, safetensors and NumPy arrays are read";
    if let Some((head, len)) = head {
        let what = sniff::describe(&head, len).map_or_else(
            || format!("is none of the formats read here; it begins with {}", hex(&head)),
            |what| format!("is {what}"),
        );
        return Error::unsupported(what).in_file(path).help(known);
    }
    match files.stat(path) {
        Ok(_) => Error::unsupported("is a folder without a checkpoint").in_file(path).help(known),
        Err(error) => {
            let near = near_names(files, path);
            let error = Error::io("cannot open", path, error);
            if near.is_empty() { error } else { error.help(format!("there is {}", near.join(", "))) }
        }
    }
}

fn hex(head: &[u8]) -> String {
    head.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// Names beside a path that names nothing, that begin alike.
fn near_names(files: &dyn Files, path: &Path) -> Vec<String> {
    let folder = weightlift_io::folder_of(path);
    let Some(wanted) = path.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let stem = wanted.split('.').next().unwrap_or(wanted);
    let mut near: Vec<String> =
        files.list(folder).unwrap_or_default().into_iter().filter_map(|n| n.into_string().ok()).collect();
    near.retain(|name| !stem.is_empty() && name.starts_with(stem));
    near.sort();
    near.truncate(4);
    near
}

fn finish_interrupted(files: &dyn Files, path: &Path) -> Result<bool> {
    let parent = weightlift_io::folder_of(path);
    let mut finished = 0;
    for folder in [path, parent] {
        if files.stat(folder).is_ok_and(|stat| stat.kind == FileKind::Dir) {
            finished += weightlift_io::recover(files, folder)?;
        }
    }
    Ok(finished > 0)
}

/// What to say where other names are asked for than there are.
fn one_name(format: &dyn Format, options: &OpenOptions) -> Option<String> {
    let asked = options.names != Names::Stored && format.id() != "tf";
    asked.then(|| format!("a {} has one name for each tensor: other names are TensorFlow's", format.name()))
}

fn lying_extension(path: &Path, format: &dyn Format) -> Option<String> {
    let extension = path.extension()?.to_str()?;
    let other = formats().iter().find(|other| other.extensions().contains(&extension))?;
    (other.id() != format.id())
        .then(|| format!("{} is a {}, though its name says {}", path.display(), format.name(), other.name()))
}
