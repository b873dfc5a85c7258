//! Copies whose elements do not follow each other on both sides.

use super::Axis;

/// Elements along a side of a tile: small enough that the lines a tile touches on either side stay in cache.
const TILE: usize = 64;

/// Elements along a side of a block, which is turned between registers and writes whole lines.
const BLOCK: usize = 8;

/// Calls the function with the element's size as a constant where it is a usual one, so that a copy is one move.
macro_rules! sized {
    ($function:ident($element:expr, $($argument:expr),*)) => {
        match $element {
            1 => $function::<1>($($argument),*, 1),
            2 => $function::<2>($($argument),*, 2),
            4 => $function::<4>($($argument),*, 4),
            8 => $function::<8>($($argument),*, 8),
            16 => $function::<16>($($argument),*, 16),
            other => $function::<0>($($argument),*, other),
        }
    };
}

/// One line of elements.
pub(super) fn line(src: &[u8], dst: &mut [u8], element: usize, axis: Axis) {
    sized!(line_of(element, src, dst, axis));
}

/// A plane: `rows` follow each other without gaps in the source, `columns` in the target.
pub(super) fn transpose(src: &[u8], dst: &mut [u8], element: usize, rows: Axis, columns: Axis) {
    each_part(rows, TILE, |row, rows_here| {
        each_part(columns, TILE, |column, columns_here| {
            let src = &src[row * rows.from + column * columns.from..];
            let dst = &mut dst[row * rows.to + column * columns.to..];
            sized!(tile_of(element, src, dst, rows_here, columns_here));
        });
    });
}

/// Cuts `axis` into parts of `size` elements and a shorter last one.
fn each_part(axis: Axis, size: usize, mut work: impl FnMut(usize, Axis)) {
    for start in (0..axis.size).step_by(size) {
        work(start, Axis { size: size.min(axis.size - start), ..axis });
    }
}

/// `E` is the element's size, or 0 where only `element` knows it.
#[inline(always)]
fn move_one<const E: usize>(src: &[u8], dst: &mut [u8], element: usize) {
    let bytes = if E > 0 { E } else { element };
    dst[..bytes].copy_from_slice(&src[..bytes]);
}

fn line_of<const E: usize>(src: &[u8], dst: &mut [u8], axis: Axis, element: usize) {
    for i in 0..axis.size {
        move_one::<E>(&src[i * axis.from..], &mut dst[i * axis.to..], element);
    }
}

fn tile_of<const E: usize>(src: &[u8], dst: &mut [u8], rows: Axis, columns: Axis, element: usize) {
    each_part(rows, BLOCK, |row, rows_here| {
        each_part(columns, BLOCK, |column, columns_here| {
            let src = &src[row * rows.from + column * columns.from..];
            let dst = &mut dst[row * rows.to + column * columns.to..];
            if E > 0 && rows_here.size == BLOCK && columns_here.size == BLOCK {
                block_of::<E>(src, dst, columns.from, rows.to);
            } else {
                for row in 0..rows_here.size {
                    line_of::<E>(&src[row * rows.from..], &mut dst[row * rows.to..], columns_here, element);
                }
            }
        });
    });
}

/// A whole block, whose source lines are `from` bytes apart and whose target lines are `to`.
#[inline(always)]
fn block_of<const E: usize>(src: &[u8], dst: &mut [u8], from: usize, to: usize) {
    match E {
        1 => words_of::<1, 8>(src, dst, from, to),
        2 => words_of::<2, 4>(src, dst, from, to),
        _ => lines_of::<E>(src, dst, from, to),
    }
}

/// Element by element from eight lines that are held at once.
#[inline(always)]
fn lines_of<const E: usize>(src: &[u8], dst: &mut [u8], from: usize, to: usize) {
    let mut lines = [[[0; E]; BLOCK]; BLOCK];
    for (i, line) in lines.iter_mut().enumerate() {
        line.as_flattened_mut().copy_from_slice(&src[i * from..][..BLOCK * E]);
    }
    for i in 0..BLOCK {
        let turned: [[u8; E]; BLOCK] = std::array::from_fn(|j| lines[j][i]);
        dst[i * to..][..BLOCK * E].copy_from_slice(turned.as_flattened());
    }
}

/// In squares of `N` elements a side, a line of which is one word: halves, quarters and so on change places.
#[inline(always)]
fn words_of<const E: usize, const N: usize>(src: &[u8], dst: &mut [u8], from: usize, to: usize) {
    for (row, column) in (0..BLOCK / N).flat_map(|row| (0..BLOCK / N).map(move |column| (row * N, column * N))) {
        let (src, dst) = (&src[column * from + row * E..], &mut dst[row * to + column * E..]);
        let mut words: [u64; N] = std::array::from_fn(|i| {
            let bytes = src[i * from..].first_chunk();
            bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        });
        exchange::<4>(&mut words, N / 2, 0x0000_0000_ffff_ffff);
        if N > 2 {
            exchange::<2>(&mut words, N / 4, 0x0000_ffff_0000_ffff);
        }
        if N > 4 {
            exchange::<1>(&mut words, N / 8, 0x00ff_00ff_00ff_00ff);
        }
        words.iter().enumerate().for_each(|(i, word)| dst[i * to..][..8].copy_from_slice(&word.to_le_bytes()));
    }
}

/// In every two words `step` apart: the `low` parts of the upper one change places with the parts of the lower one
/// that lie `BYTES` bytes above those.
#[inline(always)]
fn exchange<const BYTES: usize>(words: &mut [u64], step: usize, low: u64) {
    for square in words.chunks_exact_mut(2 * step) {
        let (lower, upper) = square.split_at_mut(step);
        for (lower, upper) in lower.iter_mut().zip(upper) {
            let swapped = (*lower >> (8 * BYTES) ^ *upper) & low;
            *upper ^= swapped;
            *lower ^= swapped << (8 * BYTES);
        }
    }
}
