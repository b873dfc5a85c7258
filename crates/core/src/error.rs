//! The one error type: what went wrong, where, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::path::{Path, PathBuf};

/// A result whose error names file, tensor and offset.
pub type Result<T> = std::result::Result<T, Error>;

/// Who has to act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The operating system refused: missing file, no permission, disk full.
    Io,
    /// The file breaks the rules of its format.
    Malformed,
    /// The file is sound, but holds something this version does not read or write.
    Unsupported,
    /// The file asks for more than [`crate::Limits`] allow.
    Limit,
    /// Stored and computed checksum differ.
    Checksum,
    /// The caller asked for something that cannot be done.
    Request,
    /// A compute device failed.
    Device,
}

/// Where an error happened; every part is optional.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub file: Option<PathBuf>,
    /// The tensor's name.
    pub tensor: Option<String>,
    /// Byte offset from the start of the file.
    pub offset: Option<u64>,
}

/// An error with its [`Kind`], its [`Place`], its cause and, where there is one, a way out.
///
/// Messages are lower case without a full stop and say what was expected and what was found.
///
/// ```
/// use weightlift_core::{Error, Kind};
/// let error = Error::malformed("header length 12 runs past the end of the file (9 bytes)")
///     .in_file("model.safetensors").at(0).help("the download was cut short: fetch it again");
/// assert_eq!(error.kind(), Kind::Malformed);
/// assert_eq!(error.to_string(), "model.safetensors: byte 0: header length 12 runs past the end of the file (9 bytes) \
///     (the download was cut short: fetch it again)");
/// ```
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    place: Place,
    help: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of any kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, message: message.into(), place: Place::default(), help: None, source: None }))
    }

    /// A file that breaks the rules of its format.
    pub fn malformed(message: impl Into<String>) -> Error {
        Error::new(Kind::Malformed, message)
    }

    /// A sound file with something not read or written here.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(Kind::Unsupported, message)
    }

    /// A file that asks for more than the limits allow.
    pub fn limit(message: impl Into<String>) -> Error {
        Error::new(Kind::Limit, message)
    }

    /// A stored checksum that differs from the computed one.
    pub fn checksum(message: impl Into<String>) -> Error {
        Error::new(Kind::Checksum, message)
    }

    /// A request that cannot be fulfilled.
    pub fn request(message: impl Into<String>) -> Error {
        Error::new(Kind::Request, message)
    }

    /// A failed operation on `path`, e.g. `Error::io("cannot open", path, error)`.
    pub fn io(doing: &str, path: impl AsRef<Path>, source: std::io::Error) -> Error {
        let mut error = Error::new(Kind::Io, format!("{doing}: {source}")).in_file(path.as_ref());
        error.0.source = Some(Box::new(source));
        error
    }

    /// Names the file, unless one is named already (the innermost place is the right one).
    #[must_use]
    pub fn in_file(mut self, path: impl AsRef<Path>) -> Error {
        self.0.place.file.get_or_insert_with(|| path.as_ref().to_path_buf());
        self
    }

    /// Names the tensor, unless one is named already.
    #[must_use]
    pub fn in_tensor(mut self, name: impl Into<String>) -> Error {
        self.0.place.tensor.get_or_insert_with(|| name.into());
        self
    }

    /// Gives the byte offset in the file, unless one is given already.
    #[must_use]
    pub fn at(mut self, offset: u64) -> Error {
        self.0.place.offset.get_or_insert(offset);
        self
    }

    /// Says what the user can do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.0.help = Some(help.into());
        self
    }

    /// Keeps the cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Error {
        self.0.source = Some(source.into());
        self
    }

    /// Who has to act.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// Where it happened.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// The message alone, without place and help.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do, where something can be done.
    pub fn advice(&self) -> Option<&str> {
        self.0.help.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { file, tensor, offset } = &self.0.place;
        if let Some(file) = file {
            write!(f, "{}: ", file.display())?;
        }
        match (tensor, offset) {
            (Some(tensor), Some(offset)) => write!(f, "tensor {tensor:?} at byte {offset}: ")?,
            (Some(tensor), None) => write!(f, "tensor {tensor:?}: ")?,
            (None, Some(offset)) => write!(f, "byte {offset}: ")?,
            (None, None) => {}
        }
        f.write_str(&self.0.message)?;
        match &self.0.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_place_wins() {
        let error = Error::checksum("stored 1, computed 2").at(64).in_tensor("w").at(0).in_file("a").in_file("b");
        assert_eq!(error.to_string(), "a: tensor \"w\" at byte 64: stored 1, computed 2");
    }

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
