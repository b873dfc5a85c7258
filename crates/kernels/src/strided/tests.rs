use super::*;
use proptest::prelude::*;

/// Every index of `size`, row-major.
fn indices(size: &[u64]) -> Vec<Vec<u64>> {
    size.iter().fold(vec![vec![]], |all, &n| {
        all.iter().flat_map(|index| (0..n).map(move |i| [index.as_slice(), &[i]].concat())).collect()
    })
}

fn place(layout: &Layout, index: &[u64]) -> usize {
    (layout.offset + index.iter().zip(&layout.strides).map(|(i, stride)| i * stride).sum::<u64>()) as usize
}

/// Copies there and back, element by element compared.
fn check(element: usize, layout: &Layout, size: &[u64]) {
    let places: Vec<usize> = indices(size).iter().map(|index| place(layout, index)).collect();
    let reach = places.iter().max().map_or(0, |most| most + 1) * element;
    let src: Vec<u8> = (0..reach).map(|i| (i * 31 % 251) as u8).collect();
    let dense: Vec<u8> = places.iter().flat_map(|&at| src[at * element..][..element].to_vec()).collect();

    let mut got = vec![0xa5; dense.len()];
    gather(&src, element, layout, size, &mut got).unwrap();
    assert_eq!(got, dense, "{layout:?} of {size:?}, elements of {element}");

    let mut back = vec![0xa5; reach];
    scatter(&dense, element, layout, size, &mut back).unwrap();
    let mut expected = vec![0xa5; reach];
    places.iter().for_each(|&at| expected[at * element..][..element].copy_from_slice(&src[at * element..][..element]));
    assert_eq!(back, expected, "back to {layout:?} of {size:?}, elements of {element}");
    if reach > 0 {
        assert!(gather(&src[1..], element, layout, size, &mut got).is_err());
        assert!(scatter(&dense, element, layout, size, &mut back[1..]).is_err());
    }
}

fn layout(offset: u64, strides: &[u64]) -> Layout {
    Layout { offset, strides: strides.to_vec() }
}

#[test]
fn every_path() {
    for element in [1, 2, 3, 4, 8, 16, 32] {
        check(element, &layout(0, &[]), &[]);
        check(element, &layout(7, &[]), &[]);
        check(element, &layout(2, &[12, 4, 1]), &[3, 3, 4]);
        check(element, &layout(2, &[40, 10, 1]), &[3, 3, 4]);
        check(element, &layout(0, &[1, 70]), &[70, 45]);
        check(element, &layout(3, &[1, 33]), &[33, 64]);
        check(element, &layout(0, &[2, 100]), &[40, 33]);
        check(element, &layout(0, &[1, 300, 5]), &[5, 2, 60]);
        check(element, &layout(0, &[60, 1, 6, 2]), &[2, 2, 10, 3]);
        check(element, &layout(1, &[u64::MAX, 3, u64::MAX]), &[1, 5, 1]);
        check(element, &layout(9, &[1, 1]), &[0, 3]);
        check(element, &layout(0, &[0, 1]), &[4, 6]);
        check(element, &layout(0, &[1, 0]), &[4, 6]);
        check(element, &layout(0, &[0, 0]), &[4, 6]);
    }
}

#[test]
fn axes_are_joined() {
    let joined = |strides: &[u64], size: &[u64]| {
        let elements = size.iter().product::<u64>() as usize;
        axes(&layout(0, strides), size, 2, 1 << 20, 2 * elements).unwrap().0
    };
    assert_eq!(joined(&[12, 4, 1], &[5, 3, 4]), [Axis { size: 60, from: 2, to: 2 }]);
    assert_eq!(joined(&[9, 9, 1], &[1, 3, 9]), [Axis { size: 27, from: 2, to: 2 }]);
    assert_eq!(joined(&[20, 5, 1], &[2, 4, 4]).len(), 2);
    assert_eq!(joined(&[1, 10], &[10, 10]).len(), 2);
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut dst = [0; 24];
    assert!(gather(&[0; 24], 4, &layout(0, &[3, 1]), &[2, 3], &mut dst).is_ok());
    assert!(gather(&[0; 24], 4, &layout(1, &[3, 1]), &[2, 3], &mut dst).is_err());
    assert!(gather(&[0; 24], 4, &layout(0, &[3, 1]), &[2, 3], &mut dst[1..]).is_err());
    assert!(gather(&[0; 24], 4, &layout(0, &[1]), &[2, 3], &mut dst).is_err());
    assert!(gather(&[0; 24], 4, &layout(0, &[u64::MAX, 1]), &[2, 3], &mut dst).is_err());
    assert!(gather(&[0; 24], 4, &layout(u64::MAX, &[]), &[], &mut dst[..4]).is_err());
    assert!(gather(&[], 4, &layout(0, &[1, 1]), &[u64::MAX, 2], &mut []).is_err());
    assert!(scatter(&[0; 24], 4, &layout(0, &[4, 1]), &[2, 3], &mut dst).is_err());
    assert!(gather(&[], 4, &layout(u64::MAX, &[u64::MAX, 1]), &[0, 3], &mut []).is_ok());
}

proptest! {
    #[test]
    fn permutations_of_gapped_boxes(
        size in proptest::collection::vec(1u64..7, 1..5),
        keys in proptest::collection::vec(any::<u16>(), 4),
        gaps in proptest::collection::vec(0u64..3, 4),
        offset in 0u64..5,
        element in prop::sample::select(vec![1usize, 2, 4, 6, 8, 16]),
    ) {
        let mut order: Vec<usize> = (0..size.len()).collect();
        order.sort_by_key(|&axis| keys[axis]);
        let (mut strides, mut stride) = (vec![0; size.len()], 1 + gaps[3] / 2);
        for axis in order {
            strides[axis] = stride;
            stride = stride * size[axis] + gaps[axis.min(3)];
        }
        check(element, &Layout { offset, strides }, &size);
    }
}
