//! Elements of any real dtype as f64.

use super::floats::{Bf16Room, F16Room, F32Room, F64Room};
use super::ints::{Exact, Whole};
use crate::cast::deviation::values;
use crate::cast::format::Element;
use weightlift_core::DType;

/// Brings elements to the nearest f64, which is their value but for integers of 64 bits.
pub(crate) enum Reader {
    /// Elements of one byte.
    Table(Box<[f64; 256]>),
    /// Wider ones.
    Wide(fn(&[u8], &mut [f64])),
}

impl Reader {
    /// For the numbers that elements of `dtype` consist of: parts of complex ones.
    pub(crate) fn new(dtype: DType) -> Option<Reader> {
        Some(match dtype {
            DType::F64 | DType::C128 => Reader::Wide(float::<F64Room, 8>),
            DType::F32 | DType::C64 => Reader::Wide(float::<F32Room, 4>),
            DType::F16 | DType::C32 => Reader::Wide(float::<F16Room, 2>),
            DType::Bf16 | DType::Bc32 => Reader::Wide(float::<Bf16Room, 2>),
            DType::I64 => Reader::Wide(whole::<i64, 8>),
            DType::I32 => Reader::Wide(whole::<i32, 4>),
            DType::I16 => Reader::Wide(whole::<i16, 2>),
            DType::U64 => Reader::Wide(whole::<u64, 8>),
            DType::U32 => Reader::Wide(whole::<u32, 4>),
            DType::U16 => Reader::Wide(whole::<u16, 2>),
            _ => Reader::Table(Box::new(values(&Element::of(dtype)?.coding))),
        })
    }

    /// Bytes of one number of a dtype.
    pub(crate) fn number_bytes(dtype: DType) -> Option<usize> {
        Some(Element::of(dtype)?.bytes)
    }

    /// The numbers in `bytes`, as many as there are.
    pub(crate) fn read(&self, bytes: &[u8], numbers: &mut [f64]) {
        match self {
            Reader::Table(table) => numbers.iter_mut().zip(bytes).for_each(|(x, &code)| *x = table[usize::from(code)]),
            Reader::Wide(read) => read(bytes, numbers),
        }
    }
}

fn float<S: Exact<N>, const N: usize>(bytes: &[u8], numbers: &mut [f64]) {
    numbers.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, bytes)| *x = S::value(*bytes));
}

fn whole<T: Whole<N>, const N: usize>(bytes: &[u8], numbers: &mut [f64]) {
    numbers.iter_mut().zip(bytes.as_chunks().0).for_each(|(x, bytes)| *x = T::read(*bytes).to_f64());
}
