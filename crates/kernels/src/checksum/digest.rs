//! One checksum out of pieces that arrive in any order from many threads.

use super::Algorithm;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Collects the checksums of pieces of one byte range and joins neighbours at once, so it holds no more pieces than
/// there are gaps. Shared by reference between threads.
#[derive(Debug)]
pub struct Digest {
    algorithm: Algorithm,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Start of each joined piece, with its length and checksum.
    pieces: BTreeMap<u64, (u64, u32)>,
    covered: u64,
    overlapped: bool,
}

impl Digest {
    /// Nothing covered yet.
    pub fn new(algorithm: Algorithm) -> Digest {
        Digest { algorithm, state: Mutex::default() }
    }

    /// Which checksum the pieces carry.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Takes the checksum `crc` of the `len` bytes from `offset` on. Empty pieces are welcome and change nothing.
    pub fn add(&self, offset: u64, len: u64, crc: u32) {
        if len > 0 {
            self.with_state(|state| state.add(self.algorithm, offset, len, crc));
        }
    }

    /// How many bytes the pieces hold, counted as often as they came.
    pub fn covered(&self) -> u64 {
        self.with_state(|state| state.covered)
    }

    /// The checksum of bytes `0..len`; `None` while one of them is missing, or where one came twice or lies outside.
    pub fn finish(&self, len: u64) -> Option<u32> {
        self.with_state(|state| match state.pieces.first_key_value() {
            _ if state.overlapped => None,
            None => (len == 0).then_some(0),
            Some((&start, &(piece, crc))) => (state.pieces.len() == 1 && start == 0 && piece == len).then_some(crc),
        })
    }

    fn with_state<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn add(&mut self, algorithm: Algorithm, mut offset: u64, mut len: u64, mut crc: u32) {
        self.covered = self.covered.saturating_add(len);
        let before = self.pieces.range(..=offset).next_back().map(|(&start, &piece)| (start, piece));
        let after = self.pieces.range(offset..).next().map(|(&start, &piece)| (start, piece));
        let Some(end) = offset.checked_add(len) else { return self.overlapped = true };
        if before.is_some_and(|(start, (len, _))| start + len > offset) || after.is_some_and(|(start, _)| start < end) {
            return self.overlapped = true;
        }
        if let Some((start, (len_before, crc_before))) = before.filter(|(start, (len, _))| start + len == offset) {
            self.pieces.remove(&start);
            crc = algorithm.combine(crc_before, crc, len);
            (offset, len) = (start, len_before + len);
        }
        if let Some((start, (len_after, crc_after))) = after.filter(|&(start, _)| start == end) {
            self.pieces.remove(&start);
            crc = algorithm.combine(crc, crc_after, len_after);
            len += len_after;
        }
        self.pieces.insert(offset, (len, crc));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(cuts: &[usize], text: &[u8]) -> Vec<(u64, u64, u32)> {
        let piece =
            |ends: &[usize]| (ends[0] as u64, (ends[1] - ends[0]) as u64, Algorithm::Crc32.of(&text[ends[0]..ends[1]]));
        cuts.windows(2).map(piece).collect()
    }

    #[test]
    fn any_order_gives_the_checksum_and_stays_small() {
        let text: Vec<u8> = (0..97u8).collect();
        let pieces = pieces(&[0, 1, 2, 10, 40, 41, 64, 97], &text);
        for step in 1..pieces.len() {
            let digest = Digest::new(Algorithm::Crc32);
            for i in 0..pieces.len() {
                assert_eq!(digest.finish(97), None);
                let (offset, len, crc) = pieces[i * step % pieces.len()];
                digest.add(offset, len, crc);
            }
            assert_eq!(digest.finish(97), Some(Algorithm::Crc32.of(&text)));
            assert_eq!(digest.with_state(|state| state.pieces.len()), 1);
            assert_eq!((digest.covered(), digest.finish(96), digest.finish(98)), (97, None, None));
        }
    }

    #[test]
    fn bytes_that_come_twice_spoil_it() {
        for (offset, len) in [(0, 10), (0, 1), (9, 1), (3, 2), (0, 20), (9, 5), (u64::MAX, 2)] {
            let digest = Digest::new(Algorithm::Crc32);
            digest.add(0, 10, 7);
            assert_eq!(digest.finish(10), Some(7));
            digest.add(offset, len, 8);
            digest.add(10, 4, 9);
            assert_eq!((digest.finish(10), digest.finish(14)), (None, None), "{offset}+{len}");
        }
        let digest = Digest::new(Algorithm::Crc32);
        digest.add(5, 5, 1);
        digest.add(0, 6, 1);
        assert_eq!(digest.finish(10), None);
    }

    #[test]
    fn nothing_is_whole_when_nothing_is_asked() {
        let digest = Digest::new(Algorithm::Crc32c);
        digest.add(9, 0, 55);
        assert_eq!((digest.finish(0), digest.finish(1), digest.covered()), (Some(0), None, 0));
    }

    #[test]
    fn threads_share_one() {
        let text: Vec<u8> = (0..200u8).collect();
        let pieces = pieces(&(0..=200).collect::<Vec<_>>(), &text);
        let digest = Digest::new(Algorithm::Crc32);
        std::thread::scope(|scope| {
            for chunk in pieces.chunks(50) {
                scope.spawn(|| chunk.iter().rev().for_each(|&(offset, len, crc)| digest.add(offset, len, crc)));
            }
        });
        assert_eq!(digest.finish(200), Some(Algorithm::Crc32.of(&text)));
    }
}
