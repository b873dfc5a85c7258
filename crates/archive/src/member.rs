//! One member of an archive.

use weightlift_core::{ByteRange, Error, Result};

/// How a member's bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// As they are.
    Stored,
    /// By DEFLATE.
    Deflated,
    /// By another method, of this number.
    Other(u16),
    /// Encrypted.
    Encrypted,
}

/// One member of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its name; what is no UTF-8 is replaced.
    pub name: String,
    /// How its bytes are stored.
    pub method: Method,
    /// Its stored bytes in the file.
    pub stored: ByteRange,
    /// Its length when decoded.
    pub len: u64,
    /// The CRC-32 of its decoded bytes; `None` where the directory has 0 for bytes that are there, as writers do that
    /// were told to compute none.
    pub crc: Option<u32>,
    /// The remark in the directory, mostly empty.
    pub comment: String,
}

impl Member {
    /// Where the bytes stand in the file as they are, if they do.
    pub fn plain(&self) -> Option<ByteRange> {
        (self.method == Method::Stored).then_some(self.stored)
    }

    /// Whether the bytes can be had.
    ///
    /// # Errors
    /// `Unsupported`, naming the member, for an unknown method or encryption.
    pub fn check_method(&self) -> Result<()> {
        let what = match self.method {
            Method::Stored | Method::Deflated => return Ok(()),
            Method::Encrypted => "is encrypted".to_owned(),
            Method::Other(number) => {
                let name = match number {
                    9 => " (deflate64)",
                    12 => " (bzip2)",
                    14 => " (lzma)",
                    93 => " (zstd)",
                    95 => " (xz)",
                    _ => "",
                };
                format!("is compressed by method {number}{name}; stored and deflated members are read")
            }
        };
        Err(Error::unsupported(format!("member {:?} of the zip {what}", self.name)).help("zip it anew, stored"))
    }
}
