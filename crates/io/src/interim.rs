//! Plain copies between strided and dense bytes, until the kernels have them.

use weightlift_core::Layout;

fn each(size: &[u64], layout: &Layout, mut visit: impl FnMut(u64, u64) -> Option<()>) -> Option<()> {
    let total: u64 = size.iter().product();
    let mut index = vec![0u64; size.len()];
    for dense in 0..total {
        let at = layout.offset + index.iter().zip(&layout.strides).map(|(i, s)| i * s).sum::<u64>();
        visit(dense, at)?;
        for axis in (0..size.len()).rev() {
            index[axis] += 1;
            if index[axis] < size[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Some(())
}

pub(crate) mod strided {
    use super::*;
    pub(crate) fn gather(src: &[u8], element: usize, layout: &Layout, size: &[u64], dst: &mut [u8]) -> Option<()> {
        each(size, layout, |dense, at| {
            let (d, a) = (dense as usize * element, at as usize * element);
            dst.get_mut(d..d + element)?.copy_from_slice(src.get(a..a + element)?);
            Some(())
        })
    }
    pub(crate) fn scatter(src: &[u8], element: usize, size: &[u64], layout: &Layout, dst: &mut [u8]) -> Option<()> {
        each(size, layout, |dense, at| {
            let (d, a) = (dense as usize * element, at as usize * element);
            dst.get_mut(a..a + element)?.copy_from_slice(src.get(d..d + element)?);
            Some(())
        })
    }
}

pub mod swap {
    /// Interim.
    pub fn byteswap(unit: usize, bytes: &mut [u8]) {
        if unit > 1 {
            bytes.chunks_exact_mut(unit).for_each(<[u8]>::reverse);
        }
    }
}
