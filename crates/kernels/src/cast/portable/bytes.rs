//! Sources of one byte: the definition is asked once for every code.

use crate::cast::format::Element;
use crate::cast::scalar::{self, Loss};
use crate::cast::{CastPair, Overflow, Tally};

/// From so many elements on, making the table is cheaper than casting one by one.
const WORTHWHILE: usize = 1024;

/// The cast by table, or `None` where the source is wider or too short for it to pay.
pub(super) fn run(pair: CastPair, overflow: Overflow, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    let (from, to) = (Element::of(pair.from)?, Element::of(pair.to)?);
    if from.bytes != 1 || src.len() < WORTHWHILE {
        return None;
    }
    match to.bytes {
        1 => Some(Table::<1>::new(from, to, overflow).cast(src, dst)),
        2 => Some(Table::<2>::new(from, to, overflow).cast(src, dst)),
        4 => Some(Table::<4>::new(from, to, overflow).cast(src, dst)),
        8 => Some(Table::<8>::new(from, to, overflow).cast(src, dst)),
        _ => None,
    }
}

/// What becomes of each code, in `N` bytes.
struct Table<const N: usize> {
    target: [[u8; N]; 256],
    loss: [Loss; 256],
}

impl<const N: usize> Table<N> {
    fn new(from: Element, to: Element, overflow: Overflow) -> Table<N> {
        let mut table = Table { target: [[0; N]; 256], loss: [Loss::Nothing; 256] };
        for (code, (target, loss)) in (0..).zip(table.target.iter_mut().zip(&mut table.loss)) {
            let (result, lost) = scalar::convert(&from.coding, &to.coding, overflow, code);
            target.copy_from_slice(&result.to_le_bytes()[..N]);
            *loss = lost;
        }
        table
    }

    fn cast(&self, src: &[u8], dst: &mut [u8]) -> Tally {
        let targets = dst.as_chunks_mut::<N>().0;
        if self.loss.iter().all(|&loss| loss == Loss::Nothing) {
            targets.iter_mut().zip(src).for_each(|(target, &code)| *target = self.target[usize::from(code)]);
            return Tally::default();
        }
        // Several counters a code, so that equal neighbours need not wait for each other.
        let mut counts = [[0u64; 256]; 4];
        for (targets, codes) in targets.chunks_mut(4).zip(src.chunks(4)) {
            for ((target, &code), counts) in targets.iter_mut().zip(codes).zip(&mut counts) {
                *target = self.target[usize::from(code)];
                counts[usize::from(code)] += 1;
            }
        }
        let mut tally = Tally::default();
        for (code, &loss) in self.loss.iter().enumerate() {
            tally.count(loss, counts.iter().map(|counts| counts[code]).sum());
        }
        tally
    }
}
