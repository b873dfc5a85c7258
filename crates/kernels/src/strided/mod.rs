//! Copies between strided layouts and dense row-major bytes.
//!
//! Axes that can be walked as one are joined first, so most copies are runs of many bytes; a transposition goes in
//! tiles that stay in cache; whatever is left goes element by element.
//!
//! ```
//! use weightlift_core::Layout;
//! let transposed = Layout { offset: 0, strides: vec![1, 2] };
//! let mut dense = [0; 6];
//! weightlift_kernels::strided::gather(&[0, 3, 1, 4, 2, 5], 1, &transposed, &[2, 3], &mut dense).unwrap();
//! assert_eq!(dense, [0, 1, 2, 3, 4, 5]);
//! ```

mod axes;
mod tile;

use axes::{Axis, axes, each_offset};
use weightlift_core::{Layout, Result};

/// Copies a box of a strided layout into dense row-major bytes. `layout` counts elements of `element` bytes from the
/// start of `src`, its offset is where the box starts; `size` is the box, and `dst` holds exactly that.
///
/// # Errors
/// `Malformed` where the box reaches beyond `src`, ranks differ, or `dst` has another length.
pub fn gather(src: &[u8], element: usize, layout: &Layout, size: &[u64], dst: &mut [u8]) -> Result<()> {
    let (axes, offset) = axes(layout, size, element, src.len(), dst.len())?;
    copy(&src[offset..], dst, element, axes);
    Ok(())
}

/// Copies dense row-major bytes into a box of a strided layout: [`gather`] backwards. Bytes of `dst` between the
/// elements of the box stay as they are; where the layout puts several elements in one place, one of them remains.
///
/// # Errors
/// `Malformed` where the box reaches beyond `dst`, ranks differ, or `src` has another length.
pub fn scatter(src: &[u8], element: usize, layout: &Layout, size: &[u64], dst: &mut [u8]) -> Result<()> {
    let (axes, offset) = axes(layout, size, element, dst.len(), src.len())?;
    let turned = axes.into_iter().map(|axis| Axis { from: axis.to, to: axis.from, ..axis }).collect();
    copy(src, &mut dst[offset..], element, turned);
    Ok(())
}

/// Copies all elements of `axes`, whose strides count bytes from the start of both slices and stay within them.
fn copy(src: &[u8], dst: &mut [u8], element: usize, mut axes: Vec<Axis>) {
    if axes.iter().any(|axis| axis.size == 0) {
        return;
    }
    let along_target = axes.iter().position(|axis| axis.to == element);
    let Some(inner) = along_target.map(|at| axes.remove(at)).or_else(|| axes.pop()) else {
        return dst[..element].copy_from_slice(&src[..element]);
    };
    if inner.from == element && inner.to == element {
        let run = inner.size * element;
        return each_offset(&axes, |from, to| dst[to..to + run].copy_from_slice(&src[from..from + run]));
    }
    match axes.iter().position(|axis| axis.from == element) {
        Some(at) if inner.to == element => {
            let along_source = axes.remove(at);
            each_offset(&axes, |from, to| tile::transpose(&src[from..], &mut dst[to..], element, along_source, inner));
        }
        _ => each_offset(&axes, |from, to| tile::line(&src[from..], &mut dst[to..], element, inner)),
    }
}

#[cfg(test)]
mod tests;
