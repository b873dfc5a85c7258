//! Copies whose elements do not follow each other on both sides.

use super::Axis;

/// Elements along a side of a tile: small enough that the lines a tile touches on either side stay in cache.
const SIDE: usize = 32;

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
    for row in (0..rows.size).step_by(SIDE) {
        for column in (0..columns.size).step_by(SIDE) {
            let rows_here = Axis { size: SIDE.min(rows.size - row), ..rows };
            let columns_here = Axis { size: SIDE.min(columns.size - column), ..columns };
            let src = &src[row * rows.from + column * columns.from..];
            let dst = &mut dst[row * rows.to + column * columns.to..];
            sized!(tile_of(element, src, dst, rows_here, columns_here));
        }
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
    for row in 0..rows.size {
        line_of::<E>(&src[row * rows.from..], &mut dst[row * rows.to..], columns, element);
    }
}
