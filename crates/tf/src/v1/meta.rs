//! What the files of a version 1 checkpoint hold together.

use crate::bundle;
use crate::proto::{SavedTensorSlices, TensorSlice};
use prost::Message;
use std::collections::BTreeMap;
use weightlift_core::{DType, Error, Limits, Result, Shape};

/// A tensor with its slices, each in one of the files.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    /// The file and the slice.
    pub(super) slices: Vec<(usize, TensorSlice)>,
}

/// The tensors of all files by name.
#[derive(Debug, Default)]
pub(super) struct Tensors(pub(super) BTreeMap<String, Tensor>);

impl Tensors {
    /// Adds what one file says it holds.
    ///
    /// # Errors
    /// `Malformed` for what is no header or contradicts another file; `Unsupported` for a file made for later readers;
    /// `Limit`.
    pub(super) fn add(&mut self, file: usize, header: &[u8], limits: &Limits) -> Result<()> {
        let broken = |error| no_header().caused_by(error);
        let meta = SavedTensorSlices::decode(header).map_err(broken)?.meta.ok_or_else(no_header)?;
        bundle::check_version(&meta.versions.unwrap_or_default())?;
        for tensor in meta.tensor {
            let name = tensor.name;
            let added = Self::tensor(tensor.dtype, tensor.shape.as_ref(), limits);
            let (dtype, shape) = added.map_err(|error| error.in_tensor(&name))?;
            if name.len() > limits.name_bytes {
                return Err(Error::limit(format!(
                    "a name of {} bytes is longer than {}",
                    name.len(),
                    limits.name_bytes
                )));
            }
            let known = self.0.entry(name.clone());
            let known = known.or_insert_with(|| Tensor { dtype, shape: shape.clone(), slices: Vec::new() });
            if known.dtype != dtype || known.shape != shape {
                let message =
                    format!("is {dtype} of shape {shape} here, but {} of {} before", known.dtype, known.shape);
                return Err(Error::malformed(message).in_tensor(name));
            }
            known.slices.extend(tensor.slice.into_iter().map(|slice| (file, slice)));
            if self.0.len() as u64 > limits.tensors {
                return Err(Error::limit(format!("more than {} tensors", limits.tensors)));
            }
        }
        Ok(())
    }

    fn tensor(dtype: i32, shape: Option<&crate::proto::TensorShape>, limits: &Limits) -> Result<(DType, Shape)> {
        Ok((crate::dtype::from_number(dtype)?, bundle::shape(shape, limits)?))
    }
}

pub(super) fn no_header() -> Error {
    Error::malformed("is a table, but no TensorFlow checkpoint of version 1: it has no header")
        .help("the name of an index must end in .index")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Dim, SavedSliceMeta, SavedTensorSliceMeta, TensorShape, VersionDef};

    fn header(dtype: i32, dims: &[i64], min_consumer: i32) -> Vec<u8> {
        let shape = Some(TensorShape { dim: dims.iter().map(|&size| Dim { size }).collect(), unknown_rank: false });
        let tensor = SavedSliceMeta { name: "w".into(), shape, dtype, slice: vec![TensorSlice::default()] };
        let versions = Some(VersionDef { producer: 1, min_consumer, bad_consumers: Vec::new() });
        SavedTensorSlices { meta: Some(SavedTensorSliceMeta { tensor: vec![tensor], versions }) }.encode_to_vec()
    }

    #[test]
    fn files_are_merged_and_must_agree() {
        let limits = Limits::default();
        let mut tensors = Tensors::default();
        tensors.add(0, &header(1, &[4], 0), &limits).unwrap();
        tensors.add(1, &header(1, &[4], 1), &limits).unwrap();
        assert_eq!(tensors.0["w"].slices.iter().map(|(file, _)| *file).collect::<Vec<_>>(), [0, 1]);
        assert!(tensors.add(2, &header(1, &[5], 0), &limits).is_err());
        assert!(tensors.add(2, &header(2, &[4], 0), &limits).is_err());
        assert!(tensors.add(2, &header(1, &[4], 2), &limits).is_err());
        assert!(tensors.add(2, &header(99, &[4], 0), &limits).is_err());
        assert!(tensors.add(2, &header(1, &[-4], 0), &limits).is_err());
        assert!(tensors.add(2, &[0x08, 0x01, 0x1a, 0x02, 0x08, 0x01], &limits).is_err(), "the header of a bundle");
        let mut none = Limits::default();
        none.tensors = 0;
        assert!(Tensors::default().add(0, &header(1, &[4], 0), &none).is_err());
    }

    #[test]
    fn cuts_and_flips_never_panic() {
        let header = header(1, &[4, 5], 1);
        for len in 0..header.len() {
            assert!(Tensors::default().add(0, &header[..len], &Limits::default()).is_err() || len > 0);
        }
        for bit in 0..header.len() * 8 {
            let mut flipped = header.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let _ = Tensors::default().add(0, &flipped, &Limits::default());
        }
    }
}
