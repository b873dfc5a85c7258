//! `descr`: the element type of an array, as NumPy spells it.

use weightlift_core::{ByteOrder, DType, Nameless};

/// The type codes of plain numbers: kind, bytes of an element, what it is.
const CODES: &[(char, u64, DType)] = &[
    ('f', 2, DType::F16),
    ('f', 4, DType::F32),
    ('f', 8, DType::F64),
    ('f', 16, DType::F80),
    ('c', 8, DType::C64),
    ('c', 16, DType::C128),
    ('c', 32, DType::C160),
    ('i', 1, DType::I8),
    ('i', 2, DType::I16),
    ('i', 4, DType::I32),
    ('i', 8, DType::I64),
    ('u', 1, DType::U8),
    ('u', 2, DType::U16),
    ('u', 4, DType::U32),
    ('u', 8, DType::U64),
    ('b', 1, DType::Bool),
];

/// Names that NumPy takes in place of a code.
const NAMES: &[(&str, DType)] = &[
    ("float16", DType::F16),
    ("float32", DType::F32),
    ("float64", DType::F64),
    ("complex64", DType::C64),
    ("complex128", DType::C128),
    ("int8", DType::I8),
    ("int16", DType::I16),
    ("int32", DType::I32),
    ("int64", DType::I64),
    ("uint8", DType::U8),
    ("uint16", DType::U16),
    ("uint32", DType::U32),
    ("uint64", DType::U64),
    ("bool", DType::Bool),
];

/// What an array's elements are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Descr {
    /// Numbers.
    Plain(DType, ByteOrder),
    /// Bytes of a fixed size nobody looks into: text, raw bytes, dates. NumPy also saves the types of `ml_dtypes`
    /// (bfloat16, float8, int4) so, and their names are lost.
    Raw {
        /// The code in the file.
        code: String,
        /// Bytes of an element.
        size: u64,
    },
    /// Elements that are not read, and why.
    Foreign(String),
}

impl Descr {
    /// Reads a code or a name.
    pub(crate) fn parse(text: &str) -> Descr {
        let known = named(text).or_else(|| coded(text));
        known.unwrap_or_else(|| match text.trim_start_matches(['|', '<', '>', '=']).starts_with('O') {
            true => Descr::Foreign("an array of Python objects, stored as a pickle, which is never run".to_owned()),
            false => Descr::Foreign(format!("an array of unknown dtype {text:?}")),
        })
    }

    /// The fields of an array of records.
    pub(crate) fn records(fields: &str) -> Descr {
        let shown: String = fields.chars().take(100).collect();
        Descr::Foreign(format!("an array of records, {shown}"))
    }

    /// Bytes of one element.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Descr::Plain(dtype, _) => u64::from(dtype.bits().unwrap_or(0) / 8),
            Descr::Raw { size, .. } => *size,
            Descr::Foreign(_) => 0,
        }
    }
}

fn named(text: &str) -> Option<Descr> {
    let name = NAMES.iter().find(|(name, _)| *name == text);
    name.map(|&(_, dtype)| Descr::Plain(dtype, ByteOrder::Little))
}

fn coded(text: &str) -> Option<Descr> {
    let code = text.strip_prefix(['|', '<', '>', '=']).unwrap_or(text);
    let order = if text.starts_with('>') { ByteOrder::Big } else { ByteOrder::Little };
    let kind = code.chars().next()?;
    let digits = code.strip_prefix(kind)?;
    let raw = |size: Option<u64>| Some(Descr::Raw { code: text.to_owned(), size: size? });
    match kind {
        '?' if digits.is_empty() => Some(Descr::Plain(DType::Bool, order)),
        'S' | 'V' | 'a' => raw(number(digits)),
        'U' => raw(number(digits).and_then(|characters| characters.checked_mul(4))),
        'M' | 'm' => raw(is_date(digits).then_some(8)),
        _ => {
            let size = number(digits)?;
            let &(_, _, dtype) = CODES.iter().find(|&&(k, s, _)| (k, s) == (kind, size))?;
            // An extended number with its high byte first belongs to other processors, and means something else.
            let foreign = order == ByteOrder::Big && matches!(dtype, DType::F80 | DType::C160);
            (!foreign).then_some(Descr::Plain(dtype, order))
        }
    }
}

/// The size of a date and its unit: `8[ns]`, `8`.
fn is_date(rest: &str) -> bool {
    rest.strip_prefix('8').is_some_and(|unit| unit.is_empty() || (unit.starts_with('[') && unit.ends_with(']')))
}

/// Digits and nothing else.
fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// The code under which numbers are written, in little-endian order; `None` for what NumPy has no type of its own for.
pub(crate) fn code_of(dtype: DType) -> Option<String> {
    let &(kind, size, _) = CODES.iter().find(|&&(_, _, known)| known == dtype)?;
    let order = if size == 1 { '|' } else { '<' };
    Some(format!("{order}{kind}{size}"))
}

/// The code under which numbers are written that NumPy has no type of its own for; `None` for all others.
pub(crate) fn nameless_code(dtype: DType, form: Nameless) -> Option<String> {
    let bytes = nameless_bytes(dtype)?;
    match form {
        Nameless::Refuse => None,
        Nameless::Bits if bytes == 1 => Some("|u1".to_owned()),
        Nameless::Bits => Some(format!("<u{bytes}")),
        Nameless::Raw => Some(format!("<V{bytes}")),
    }
}

/// Bytes of an element of a type of `ml_dtypes` that fills whole bytes.
pub(crate) fn nameless_bytes(dtype: DType) -> Option<u64> {
    use DType::{Bc32, Bf16, C32, F8E4m3b11fnuz, F8E4m3fn, F8E4m3fnuz, F8E5m2, F8E5m2fnuz, F8E8m0fnu};
    match dtype {
        F8E4m3fn | F8E5m2 | F8E4m3fnuz | F8E5m2fnuz | F8E4m3b11fnuz | F8E8m0fnu => Some(1),
        Bf16 => Some(2),
        C32 | Bc32 => Some(4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_pair_off() {
        for &(kind, size, dtype) in CODES {
            let code = code_of(dtype).unwrap();
            assert_eq!(Descr::parse(&code), Descr::Plain(dtype, ByteOrder::Little));
            assert_eq!(Descr::parse(&format!("={kind}{size}")), Descr::Plain(dtype, ByteOrder::Little));
            assert_eq!(Descr::parse(&code).size(), size);
        }
        assert_eq!(code_of(DType::Bf16), None);
        assert_eq!(code_of(DType::U8).as_deref(), Some("|u1"));
    }

    #[test]
    fn nameless_types_have_no_code_of_their_own() {
        for &dtype in DType::ALL {
            let bits = nameless_code(dtype, Nameless::Bits);
            assert!(bits.is_none() || code_of(dtype).is_none(), "{dtype}");
            assert_eq!(nameless_code(dtype, Nameless::Refuse), None);
            if let Some(code) = bits {
                assert_eq!(Some(Descr::parse(&code).size()), dtype.bits().map(|bits| u64::from(bits / 8)));
            }
        }
        assert_eq!(nameless_code(DType::Bf16, Nameless::Bits).as_deref(), Some("<u2"));
        assert_eq!(nameless_code(DType::F8E5m2, Nameless::Raw).as_deref(), Some("<V1"));
    }

    #[test]
    fn byte_orders_names_and_raw_types() {
        let plain = |text: &str| Descr::parse(text);
        assert_eq!(plain(">f4"), Descr::Plain(DType::F32, ByteOrder::Big));
        assert_eq!(plain("f4"), Descr::Plain(DType::F32, ByteOrder::Little));
        assert_eq!(plain("float32"), Descr::Plain(DType::F32, ByteOrder::Little));
        assert_eq!(plain("?"), Descr::Plain(DType::Bool, ByteOrder::Little));
        for (code, size) in [("|S5", 5), ("<U5", 20), ("|V2", 2), ("<V2", 2), ("<M8[ns]", 8), ("m8", 8), ("|S0", 0)] {
            assert_eq!(plain(code), Descr::Raw { code: code.to_owned(), size });
        }
    }

    #[test]
    fn what_is_no_type_is_foreign() {
        let odd =
            ["", "<", "f", "<f3", "<f+4", "f4 ", "<f04x", "q8", "<U4611686018427387904", "M8[ns", "é4", ">f16", "|V"];
        for text in odd {
            assert_eq!(Descr::parse(text), Descr::Foreign(format!("an array of unknown dtype {text:?}")));
        }
        assert!(matches!(Descr::parse("|O"), Descr::Foreign(why) if why.contains("pickle")));
        assert!(matches!(Descr::records("[('a', '<i4')]"), Descr::Foreign(why) if why.ends_with("('a', '<i4')]")));
    }
}
