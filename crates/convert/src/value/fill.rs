//! Values that come from no tensor: constants and random numbers.

use super::{Kind, Value};
use weightlift_core::{DType, Error, Packing, Result, Shape};
use weightlift_kernels::cast::{self, CastPair, Overflow};

impl Value {
    /// Dense little-endian bytes of a small tensor.
    ///
    /// # Errors
    /// `Request` where their number does not fit.
    pub(crate) fn of_bytes(dtype: DType, shape: Shape, bytes: Vec<u8>, text: String) -> Result<Value> {
        if dtype.bytes(shape.elements(), Packing::Dense) != Some(bytes.len() as u64) {
            return Err(Error::request(format!("{text}: {} bytes for {dtype} of shape {shape}", bytes.len())));
        }
        Ok(Value::new(dtype, shape, Kind::Bytes(bytes), text))
    }

    /// One number as every element.
    ///
    /// # Errors
    /// `Request` for a number that the dtype does not have, exactly for integers and bool.
    pub(crate) fn filled(dtype: DType, shape: Shape, number: &str) -> Result<Value> {
        let element = element_of(dtype, number)?;
        Ok(Value::new(dtype, shape, Kind::Fill(element), number.to_owned()))
    }

    /// A text as every element of a tensor of texts.
    ///
    /// # Errors
    /// `Limit` where the texts together are large.
    pub(crate) fn text(shape: Shape, text: &str) -> Result<Value> {
        const MOST: u64 = 1 << 24;
        let bytes = shape.elements().saturating_mul(text.len() as u64 + 1);
        if bytes > MOST {
            return Err(Error::limit(format!(
                "{} texts of {} bytes are more than {MOST}",
                shape.elements(),
                text.len()
            )));
        }
        Ok(Value::new(DType::Str, shape, Kind::Text(text.to_owned()), format!("{text:?}")))
    }

    /// The text that is every element, and how many there are.
    pub(crate) fn as_text(&self) -> Option<(&str, u64)> {
        match &self.0.kind {
            Kind::Text(text) => Some((text, self.shape().elements())),
            _ => None,
        }
    }

    /// Normally distributed numbers around 0: bits depend on seed, shape and dtype alone.
    ///
    /// # Errors
    /// `Request` for a dtype that is no floating-point one.
    pub(crate) fn normal(dtype: DType, shape: Shape, std: f64, seed: u64) -> Result<Value> {
        let text = format!("normal:{std},{seed}");
        let known = dtype == DType::F64 || CastPair::new(DType::F64, dtype).is_some();
        if !dtype.is_float() || !known {
            return Err(Error::request(format!("{text}: {dtype} holds no random numbers; floating-point dtypes do")));
        }
        Ok(Value::new(dtype, shape, Kind::Normal { std, seed }, text))
    }
}

/// The bytes of `true`, `false`, an integer or a float in a dtype.
///
/// # Errors
/// `Request` for what is no number or what the dtype does not have.
pub(crate) fn element_of(dtype: DType, number: &str) -> Result<Vec<u8>> {
    let wrong = |why: &str| Error::request(format!("{number:?} is no value of {dtype}: {why}"));
    let real = match dtype {
        DType::C64 => Some(DType::F32),
        DType::C128 => Some(DType::F64),
        DType::C32 => Some(DType::F16),
        _ => None,
    };
    if let Some(real) = real {
        // A real number: its imaginary part is 0.
        let mut element = element_of(real, number)?;
        element.resize(2 * element.len(), 0);
        return Ok(element);
    }
    let (from, bytes) = match number {
        "true" | "false" if dtype == DType::Bool => (DType::Bool, vec![u8::from(number == "true")]),
        _ if dtype == DType::Bool => return Err(wrong("write true or false")),
        _ => match (number.parse::<i128>(), number.parse::<f64>()) {
            (Ok(integer), _) if !dtype.is_float() => {
                return integer_of(dtype, integer).ok_or_else(|| wrong("it is out of range"));
            }
            (_, Ok(float))
                if dtype.is_float() && float.is_infinite() && number.contains(|c: char| c.is_ascii_digit()) =>
            {
                return Err(wrong("it is out of range"));
            }
            (_, Ok(float)) if dtype.is_float() => (DType::F64, float.to_le_bytes().to_vec()),
            (_, Ok(_)) => return Err(wrong("write an integer")),
            _ => return Err(wrong("write a number")),
        },
    };
    let size = dtype.element_bytes(Packing::Dense).ok_or_else(|| wrong("its elements are no whole bytes"))?;
    if from == dtype {
        return Ok(bytes);
    }
    let pair = CastPair::new(from, dtype).ok_or_else(|| wrong("there is no cast to it"))?;
    let mut element = vec![0; size as usize];
    let tally = cast::cast(pair, Overflow::Inf, &bytes, &mut element);
    match (tally.overflow, tally.to_zero) {
        (0, 0) => Ok(element),
        (0, _) => Err(wrong("it is so small that it would become 0")),
        _ => Err(wrong("it is out of range")),
    }
}

/// The bytes of an integer, exact; `None` where it does not fit or the dtype is none of whole integers.
fn integer_of(dtype: DType, integer: i128) -> Option<Vec<u8>> {
    Some(match dtype {
        DType::I8 => i8::try_from(integer).ok()?.to_le_bytes().to_vec(),
        DType::I16 => i16::try_from(integer).ok()?.to_le_bytes().to_vec(),
        DType::I32 => i32::try_from(integer).ok()?.to_le_bytes().to_vec(),
        DType::I64 => i64::try_from(integer).ok()?.to_le_bytes().to_vec(),
        DType::U8 => u8::try_from(integer).ok()?.to_le_bytes().to_vec(),
        DType::U16 => u16::try_from(integer).ok()?.to_le_bytes().to_vec(),
        DType::U32 => u32::try_from(integer).ok()?.to_le_bytes().to_vec(),
        DType::U64 => u64::try_from(integer).ok()?.to_le_bytes().to_vec(),
        _ => return None,
    })
}

/// The `index`-th number of the standard normal distribution that a seed gives: Box and Muller on two uniform numbers
/// hashed from both, so that any part can be made alone.
pub(super) fn gaussian(seed: u64, index: u64) -> f64 {
    let uniform = |salt: u64| {
        let hashed = mix(mix(seed ^ salt).wrapping_add(index));
        ((hashed >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    };
    let (radius, angle) = (uniform(0x9e37_79b9_7f4a_7c15), uniform(0xd1b5_4a32_d192_ed03));
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
