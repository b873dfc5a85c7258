//! Values of tensors in memory, for programs that look at a few.

use crate::open::Opened;
use half::{bf16, f16};
use weightlift_convert::Pattern;
use weightlift_core::{DType, Error, Result};

/// A Rust type that is one element of a tensor.
pub trait Element: Copy {
    /// The dtype it is.
    const DTYPE: DType;

    /// Reads dense little-endian elements.
    fn from_le(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        impl Element for $rust {
            const DTYPE: DType = DType::$dtype;

            fn from_le(bytes: &[u8]) -> Vec<Self> {
                bytes.as_chunks::<{ size_of::<$rust>() }>().0.iter().map(|le| <$rust>::from_le_bytes(*le)).collect()
            }
        }
    )*};
}
elements!(
    f64 => F64, f32 => F32, f16 => F16, bf16 => Bf16, i8 => I8, i16 => I16, i32 => I32, i64 => I64, u8 => U8,
    u16 => U16, u32 => U32, u64 => U64,
);

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn from_le(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|byte| *byte != 0).collect()
    }
}

/// A tensor in memory: row-major.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor<T> {
    /// The dimensions.
    pub shape: Vec<usize>,
    /// The elements.
    pub values: Vec<T>,
}

#[cfg(feature = "ndarray")]
impl<T> Tensor<T> {
    /// As an array of the `ndarray` crate.
    ///
    /// # Errors
    /// `Request` where the number of values is not that of the shape.
    pub fn into_ndarray(self) -> Result<ndarray::ArrayD<T>> {
        ndarray::ArrayD::from_shape_vec(self.shape, self.values).map_err(|error| Error::request(error.to_string()))
    }
}

impl Opened {
    /// The names that a pattern selects, as in [`Pattern`], in the order of the checkpoint.
    ///
    /// # Errors
    /// `Request` for a broken pattern.
    pub fn names(&self, pattern: &str) -> Result<Vec<&str>> {
        let all: Vec<&str> = self.catalog().entries.iter().map(|entry| entry.name.as_str()).collect();
        let chosen = Pattern::new(pattern)?.select_or_contains(all.iter().copied());
        Ok(chosen.into_iter().map(|at| all[at]).collect())
    }

    /// All values of a tensor as Rust numbers.
    ///
    /// ```
    /// let checkpoint = weightlift::open("tests/data/fixtures/tf/foo_dense/model.ckpt")?;
    /// let bias = checkpoint.get::<f32>("dense/bias")?;
    /// assert_eq!(bias.shape, [4]);
    /// assert_eq!(bias.values.len(), 4);
    /// assert!(checkpoint.get::<f64>("dense/bias").is_err());
    /// # Ok::<(), weightlift::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Request` where no tensor or several bear the name, or it has another dtype; `Checksum`, `Malformed`, `Io`.
    pub fn get<T: Element>(&self, name: &str) -> Result<Tensor<T>> {
        let bytes = self.read(name)?;
        let wrong = |found: DType| {
            let error = Error::request(format!("holds {found}, not {}", T::DTYPE)).in_tensor(name);
            error.in_file(self.path()).help("read its bytes with Opened::read, or cast it with a plan")
        };
        let Some((_, entry)) = self.catalog().named(name).next().filter(|(_, entry)| entry.dtype == T::DTYPE) else {
            let found = self.catalog().named(name).next().map_or(T::DTYPE, |(_, entry)| entry.dtype);
            return Err(wrong(found));
        };
        let shape = entry.shape.dims().iter().map(|&dim| dim as usize).collect();
        Ok(Tensor { shape, values: T::from_le(&bytes) })
    }
}
