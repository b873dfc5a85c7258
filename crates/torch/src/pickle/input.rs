//! The bytes of a pickle, fetched as they are needed.

use weightlift_core::{Error, Result};

/// Where more bytes come from.
pub(crate) trait Input {
    /// Appends some bytes; `false` at the end.
    ///
    /// # Errors
    /// What reading meets.
    fn more(&mut self, bytes: &mut Vec<u8>) -> Result<bool>;
}

/// A pickle that is in memory as a whole.
#[derive(Debug)]
pub(crate) struct Nothing;

impl Input for Nothing {
    fn more(&mut self, _: &mut Vec<u8>) -> Result<bool> {
        Ok(false)
    }
}

/// A place in the bytes read so far.
#[derive(Debug)]
pub(super) struct Cursor<I> {
    input: I,
    pub(super) at: usize,
    /// Bytes before which a pickle must have ended.
    limit: u64,
    /// Where the pickle starts in the file, if it stands there as it is.
    base: Option<u64>,
}

impl<I: Input> Cursor<I> {
    pub(super) fn new(input: I, limit: u64, base: Option<u64>) -> Cursor<I> {
        Cursor { input, at: 0, limit, base }
    }

    /// Gives an error its place in the file.
    pub(super) fn place(&self, error: Error, at: usize) -> Error {
        match self.base {
            Some(base) => error.at(base.saturating_add(at as u64)),
            None => error,
        }
    }

    /// Steps over `len` bytes and gives their start. Bytes are fetched only as far as the file has them.
    #[inline]
    pub(super) fn take(&mut self, bytes: &mut Vec<u8>, len: u64) -> Result<usize> {
        let start = self.at;
        let wanted = (start as u64).saturating_add(len);
        if wanted <= self.limit.min(bytes.len() as u64) {
            self.at = wanted as usize;
            return Ok(start);
        }
        self.fetch(bytes, len, start, wanted)
    }

    #[cold]
    fn fetch(&mut self, bytes: &mut Vec<u8>, len: u64, start: usize, wanted: u64) -> Result<usize> {
        if wanted > self.limit {
            let limit = self.limit;
            return Err(self.place(Error::limit(format!("a pickle of more than {limit} bytes")), start));
        }
        while (bytes.len() as u64) < wanted {
            if !self.input.more(bytes)? {
                let rest = bytes.len() - start;
                let message = format!("the pickle ends early: {len} more bytes are needed, {rest} are left");
                return Err(self.place(Error::malformed(message), start));
            }
        }
        self.at = wanted as usize;
        Ok(start)
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self, bytes: &mut Vec<u8>) -> Result<[u8; N]> {
        let start = self.take(bytes, N as u64)?;
        let mut array = [0; N];
        array.copy_from_slice(&bytes[start..start + N]);
        Ok(array)
    }

    /// A line without its end: start and length.
    pub(super) fn line(&mut self, bytes: &mut Vec<u8>) -> Result<(usize, usize)> {
        let start = self.at;
        let mut searched = start;
        loop {
            if let Some(found) = bytes[searched..].iter().position(|&byte| byte == b'\n') {
                let end = searched + found;
                self.at = end + 1;
                return Ok((start, end - start));
            }
            searched = bytes.len();
            if searched as u64 > self.limit || !self.input.more(bytes)? {
                return Err(self.place(Error::malformed("the pickle ends within a line"), start));
            }
        }
    }
}
