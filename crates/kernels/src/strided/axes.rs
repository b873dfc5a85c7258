//! The axes of a copy, as few as can be.

use weightlift_core::{Error, Layout, Result, Shape};

/// An axis of a box, with the bytes between neighbours on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) size: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// The axes from a strided layout to dense bytes, and the byte of the strided side where the box starts.
pub(super) fn axes(
    layout: &Layout,
    size: &[u64],
    element: usize,
    strided_bytes: usize,
    dense_bytes: usize,
) -> Result<(Vec<Axis>, usize)> {
    let shape = Shape::new(size)?;
    let reach = u128::from(layout.reach(&shape)?) * element as u128;
    if reach > strided_bytes as u128 {
        let strides = &layout.strides;
        return Err(Error::malformed(format!(
            "a box of {shape} elements of {element} bytes, offset {}, strides {strides:?}, takes {reach} bytes of {strided_bytes}",
            layout.offset
        )));
    }
    let dense = u128::from(shape.elements()) * element as u128;
    if dense != dense_bytes as u128 {
        let elements = format!("a box of {shape} elements of {element} bytes");
        return Err(Error::malformed(format!("{elements} takes {dense} dense bytes, not {dense_bytes}")));
    }
    if dense == 0 {
        return Ok((vec![Axis { size: 0, from: 0, to: 0 }], 0));
    }
    // The box lies within both slices, so that no product below is larger than a slice.
    let bytes = |elements: u64| elements as usize * element;
    let sides = layout.strides.iter().zip(shape.contiguous_strides());
    let all = shape.dims().iter().zip(sides).filter(|&(&size, _)| size > 1);
    let all = all.map(|(&size, (&from, to))| Axis { size: size as usize, from: bytes(from), to: bytes(to) });
    Ok((join(all), bytes(layout.offset)))
}

/// Joins neighbours that one stride walks through on both sides.
fn join(all: impl Iterator<Item = Axis>) -> Vec<Axis> {
    let mut axes: Vec<Axis> = vec![];
    for inner in all {
        match axes.last_mut() {
            Some(outer) if outer.from == inner.from * inner.size && outer.to == inner.to * inner.size => {
                *outer = Axis { size: outer.size * inner.size, ..inner };
            }
            _ => axes.push(inner),
        }
    }
    axes
}

/// Calls `work` with both offsets of every index of `axes`, the last axis fastest; once where there is no axis.
pub(super) fn each_offset(axes: &[Axis], mut work: impl FnMut(usize, usize)) {
    let mut index = vec![0; axes.len()];
    let (mut from, mut to) = (0, 0);
    loop {
        work(from, to);
        let mut place = axes.len();
        loop {
            if place == 0 {
                return;
            }
            place -= 1;
            let axis = axes[place];
            index[place] += 1;
            if index[place] < axis.size {
                (from, to) = (from + axis.from, to + axis.to);
                break;
            }
            index[place] = 0;
            (from, to) = (from - axis.from * (axis.size - 1), to - axis.to * (axis.size - 1));
        }
    }
}
