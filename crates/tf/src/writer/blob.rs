//! What has arrived of a blob.

use crate::record::StringSum;
use std::sync::atomic::{AtomicBool, Ordering};
use weightlift_core::{Blob, Checksum, Error, Result};
use weightlift_kernels::checksum::{Algorithm, Digest, crc32c, mask_crc32c};

/// Collects the checksum of a blob while its bytes pass by.
#[derive(Debug)]
pub(super) struct BlobState {
    pub(super) blob: Blob,
    digest: Digest,
    /// For strings whose checksum is not known.
    strings: Option<StringSum>,
    copied: AtomicBool,
    /// Whether nothing more is due.
    held: AtomicBool,
}

impl BlobState {
    /// Nothing has arrived; `strings` says how many strings need a checksum.
    pub(super) fn new(blob: Blob, strings: Option<u64>) -> BlobState {
        let (digest, strings) = (Digest::new(Algorithm::Crc32c), strings.map(StringSum::new));
        BlobState { blob, digest, strings, copied: AtomicBool::new(false), held: AtomicBool::new(false) }
    }

    /// Takes bytes, known to lie in the blob.
    pub(super) fn add(&self, offset: u64, bytes: &[u8]) {
        self.digest.add(offset, bytes.len() as u64, crc32c(bytes));
        if let Some(strings) = &self.strings {
            strings.add(offset, bytes);
        }
    }

    /// Notes that all bytes are where they belong.
    pub(super) fn set_held(&self) {
        self.held.store(true, Ordering::Release);
    }

    /// Whether all bytes are where they belong without having been sent.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Whether the blob may be copied unseen: its checksum in the index is known.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.blob.checksum, Some(Checksum::Crc32c(_) | Checksum::OfFormat(_)))
    }

    /// Notes that the whole blob was copied by the system.
    pub(super) fn set_copied(&self) -> Result<()> {
        match self.copied.swap(true, Ordering::AcqRel) {
            false => Ok(()),
            true => Err(Error::request("a blob was copied twice")),
        }
    }

    /// The checksum as the index stores it.
    pub(super) fn crc(&self) -> Result<u32> {
        let (bytes, covered) = (self.blob.bytes, self.digest.covered());
        if self.copied.load(Ordering::Acquire) {
            return match self.blob.checksum {
                Some(Checksum::Crc32c(crc)) if covered == 0 => Ok(mask_crc32c(crc)),
                Some(Checksum::OfFormat(crc)) if covered == 0 => Ok(crc),
                _ => Err(Error::request(format!("{covered} bytes were written over a copy of {bytes}"))),
            };
        }
        let Some(crc) = self.digest.finish(bytes) else {
            let message = format!("{covered} bytes were written where each of {bytes} was due once");
            return Err(Error::request(message));
        };
        match (self.blob.checksum, &self.strings) {
            (Some(Checksum::OfFormat(crc)), _) => Ok(crc),
            (_, Some(strings)) => strings.finish(crc, bytes).map(mask_crc32c),
            _ => Ok(mask_crc32c(crc)),
        }
    }
}
