//! A buffer for positioned reads and writes that lies in memory as the bytes lie in the file.

/// Granularity of the agreement between memory and file, in bytes: a cache line.
const LINE: usize = 64;

/// Bytes whose address agrees with a file offset modulo 64.
///
/// The kernel copies between a page and a buffer with one instruction that some processors slow down two- to threefold
/// where the two differ by less than a cache line; large allocations begin 16 bytes into a page, which is just that.
///
/// ```
/// let mut buffer = weightlift_io::AlignedBuffer::default();
/// let bytes = buffer.bytes(1000, 4096 + 8);
/// assert_eq!((bytes.len(), bytes.as_ptr() as usize % 64), (1000, 8));
/// ```
#[derive(Debug, Default)]
pub struct AlignedBuffer(Vec<u8>);

impl AlignedBuffer {
    /// `len` bytes of any content, for the part of a file that begins at `offset`.
    pub fn bytes(&mut self, len: usize, offset: u64) -> &mut [u8] {
        let needed = len + LINE;
        if self.0.len() < needed {
            self.0.resize(needed, 0);
        }
        let wanted = offset as usize % LINE;
        let shift = wanted.wrapping_sub(self.0.as_ptr() as usize) % LINE;
        &mut self.0[shift..shift + len]
    }
}
