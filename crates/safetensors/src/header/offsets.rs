//! The offsets of a header: together the tensors cover the bytes after it, each byte once.

use super::Tensor;
use weightlift_core::{ByteRange, Error, Packing, Result};

/// Checks that the tensors tile `data`, the range of the file after the header. Answers the positions of the tensors in
/// the order of their bytes, equal ones as the header has them, and how many bytes follow the last of them: none, unless
/// `lenient`.
///
/// # Errors
/// `Malformed` with the tensor, expected and found, where a tensor has another length than its shape asks for, where
/// tensors overlap or leave a gap, and where the file ends before or after the last of them.
pub(crate) fn in_order_of_bytes(tensors: &[Tensor], data: ByteRange, lenient: bool) -> Result<(Vec<usize>, u64)> {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    let place = |&at: &usize| tensors.get(at).map(|tensor| (tensor.begin, tensor.end));
    if !order.is_sorted_by_key(place) {
        order.sort_by_key(place);
    }
    let mut covered = 0;
    for tensor in order.iter().filter_map(|&at| tensors.get(at)) {
        let offset = data.start().saturating_add(tensor.begin);
        check(tensor, covered).map_err(|error| error.in_tensor(&tensor.name).at(offset))?;
        covered = tensor.end;
    }
    Ok((order, check_end(covered, data, lenient)?))
}

/// One tensor: it begins where the one before it ends and is as long as its shape says.
fn check(tensor: &Tensor, covered: u64) -> Result<()> {
    let &Tensor { begin, end, dtype, ref shape, .. } = tensor;
    if end < begin {
        return Err(Error::malformed(format!("data_offsets [{begin}, {end}] end before they begin")));
    }
    let bits = u128::from(shape.elements()) * u128::from(dtype.bits().unwrap_or(0));
    if bits % 8 != 0 {
        let message = format!("{dtype} of shape {shape} has {bits} bits, which do not fill whole bytes");
        return Err(Error::malformed(message));
    }
    let needed = dtype.bytes(shape.elements(), Packing::Dense);
    if needed != Some(end - begin) {
        let needed = bits / 8;
        let message = format!("{dtype} of shape {shape} needs {needed} bytes, but data_offsets give {}", end - begin);
        return Err(Error::malformed(message));
    }
    if begin != covered {
        let how = if begin < covered { "overlap the tensor before" } else { "leave a gap after the tensor before" };
        let message = format!("data_offsets [{begin}, {end}] {how}: they must begin at {covered}");
        return Err(Error::malformed(message));
    }
    Ok(())
}

/// The file ends with the last tensor.
fn check_end(covered: u64, data: ByteRange, lenient: bool) -> Result<u64> {
    let has = data.end();
    match data.start().checked_add(covered) {
        Some(needed) if needed == has || (needed < has && lenient) => Ok(has - needed),
        Some(needed) if needed < has => {
            let message = format!("{} bytes follow the last tensor: needs {needed} bytes, has {has}", has - needed);
            Err(Error::malformed(message).at(needed).help("--lenient leaves them aside"))
        }
        Some(needed) => Err(truncated(needed, has)),
        None => Err(Error::malformed(format!("the tensors have {covered} bytes, but the file has {has}"))),
    }
}

/// A file that ends too early.
pub(crate) fn truncated(needed: u64, has: u64) -> Error {
    let help = "the file was cut short, perhaps by a broken download: fetch it again";
    Error::malformed(format!("truncated: needs {needed} bytes, has {has}")).help(help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightlift_core::{DType, Shape};

    fn tensor(name: &str, dtype: DType, dims: &[u64], begin: u64, end: u64) -> Tensor {
        Tensor { name: name.into(), dtype, shape: Shape::new(dims).unwrap(), begin, end }
    }

    fn arranged(tensors: Vec<Tensor>, bytes: u64) -> std::result::Result<Vec<String>, String> {
        let data = ByteRange::new(100, bytes).unwrap();
        let (order, surplus) = in_order_of_bytes(&tensors, data, false).map_err(|error| error.to_string())?;
        assert_eq!(surplus, 0);
        Ok(order.into_iter().map(|at| tensors[at].name.clone()).collect())
    }

    #[test]
    fn empty_tensors_lie_between_others() {
        let empty = |name, at| tensor(name, DType::F32, &[0, 3], at, at);
        let bytes = |name, begin, end| tensor(name, DType::U8, &[end - begin], begin, end);
        let tensors = vec![bytes("b", 4, 8), empty("e", 4), bytes("a", 0, 4), empty("f", 4), empty("g", 8)];
        assert_eq!(arranged(tensors, 8).unwrap(), ["a", "e", "f", "b", "g"]);
        let inside = vec![bytes("a", 0, 4), empty("e", 2)];
        assert!(arranged(inside, 4).unwrap_err().contains("tensor \"e\" at byte 102"));
    }

    #[test]
    fn wrong_offsets_name_expected_and_found() {
        let two = |begin, end| vec![tensor("a", DType::U8, &[4], 0, 4), tensor("b", DType::U8, &[4], begin, end)];
        assert!(arranged(two(4, 8), 8).is_ok());
        let message = |begin, end, bytes| arranged(two(begin, end), bytes).unwrap_err();
        assert!(message(2, 6, 8).contains("overlap the tensor before: they must begin at 4"));
        assert!(message(5, 9, 9).contains("leave a gap after the tensor before: they must begin at 4"));
        assert!(message(4, 7, 7).contains("u8 of shape [4] needs 4 bytes, but data_offsets give 3"));
        assert!(message(8, 4, 8).contains("end before they begin"));
        assert!(message(4, 8, 7).contains("truncated: needs 108 bytes, has 107"));
        assert!(message(4, 8, 11).contains("byte 108: 3 bytes follow the last tensor: needs 108 bytes, has 111"));
        let data = ByteRange::new(100, 11).unwrap();
        assert_eq!(in_order_of_bytes(&two(4, 8), data, true).unwrap(), (vec![0, 1], 3));
        assert!(in_order_of_bytes(&two(4, 8), ByteRange::new(100, 7).unwrap(), true).is_err());
        let first = vec![tensor("a", DType::U8, &[4], 1, 5)];
        assert!(arranged(first, 5).unwrap_err().contains("must begin at 0"));
    }

    #[test]
    fn offsets_beyond_all_files_are_refused() {
        let all = tensor("a", DType::U8, &[i64::MAX as u64], 0, i64::MAX as u64);
        assert!(arranged(vec![all.clone()], 8).unwrap_err().contains("truncated"));
        let mut next = all;
        (next.begin, next.end) = (i64::MAX as u64, u64::MAX - 1);
        let first = tensor("a", DType::U8, &[i64::MAX as u64], 0, i64::MAX as u64);
        assert!(arranged(vec![first, next], 8).is_err());
        assert!(arranged(vec![tensor("a", DType::F64, &[1 << 62], 0, 8)], 8).unwrap_err().contains("needs 3689"));
    }

    #[test]
    fn narrow_elements_fill_whole_bytes() {
        assert!(arranged(vec![tensor("a", DType::F4E2m1, &[2, 6], 0, 6)], 6).is_ok());
        assert!(arranged(vec![tensor("a", DType::F6E2m3, &[4], 0, 3)], 3).is_ok());
        let odd = arranged(vec![tensor("a", DType::F4E2m1, &[3], 0, 2)], 2).unwrap_err();
        assert!(odd.contains("12 bits"), "{odd}");
    }
}
