//! The bytes before the data of an array.

use crate::descr::{self, Descr};
use crate::literal::{Literal, Literals};
use weightlift_core::{DType, Error, Limits, Result, Shape};

/// The first bytes of every file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Magic, version and the longest form of the header's length.
pub(crate) const PREFIX_BYTES: usize = 12;

/// The data begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// The first dimension has room for so many digits, so that an array can grow in place.
const GROWING_DIGITS: usize = 21;

/// Where the dictionary of a header lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prefix {
    /// Its first byte.
    pub(crate) start: u64,
    /// Its length.
    pub(crate) len: u64,
}

impl Prefix {
    /// Reads the first bytes of a file: [`PREFIX_BYTES`], or all where it has fewer.
    ///
    /// # Errors
    /// `Malformed` for another magic number or a file cut short; `Unsupported` for an unknown version.
    pub(crate) fn parse(head: &[u8]) -> Result<Prefix> {
        let truncated = |needed| truncated(needed, head.len() as u64);
        if !head.starts_with(MAGIC) {
            let cut = MAGIC.starts_with(head);
            return Err(if cut { truncated(10) } else { Error::malformed("no array of NumPy: another magic number") });
        }
        let &[major, minor, ref length @ ..] = head.get(MAGIC.len()..).unwrap_or_default() else {
            return Err(truncated(10));
        };
        let (start, len) = match (major, minor) {
            (1, 0) => (10, length.first_chunk().map(|&bytes| u64::from(u16::from_le_bytes(bytes)))),
            (2 | 3, 0) => (12, length.first_chunk().map(|&bytes| u64::from(u32::from_le_bytes(bytes)))),
            _ => return Err(Error::unsupported(format!("version {major}.{minor}, known are 1.0, 2.0 and 3.0")).at(6)),
        };
        Ok(Prefix { start, len: len.ok_or_else(|| truncated(start))? })
    }

    /// First byte of the data.
    pub(crate) fn end(self) -> u64 {
        self.start + self.len
    }
}

/// A file that ends too early.
pub(crate) fn truncated(needed: u64, has: u64) -> Error {
    Error::malformed(format!("truncated: needs {needed} bytes, has {has}"))
}

/// What the header says of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// The elements.
    pub(crate) descr: Descr,
    /// Whether the first index runs fastest.
    pub(crate) fortran_order: bool,
    /// The dimensions.
    pub(crate) shape: Shape,
}

impl Header {
    /// Reads the dictionary, which lies at `offset` of its file.
    ///
    /// # Errors
    /// `Malformed` where it is no dictionary of exactly the three keys, `Limit`; with the offset in the file.
    pub(crate) fn parse(text: &[u8], offset: u64, limits: &Limits) -> Result<Header> {
        let mut literals = Literals::new(text);
        let header = parse_dictionary(&mut literals, limits);
        header.map_err(|error| error.at(offset + literals.position() as u64))
    }

    /// Bytes of the data.
    ///
    /// # Errors
    /// `Malformed` where they are 2^63 or more.
    pub(crate) fn data_bytes(&self) -> Result<u64> {
        let bytes = self.shape.elements().checked_mul(self.descr.size()).filter(|&bytes| bytes <= i64::MAX as u64);
        bytes.ok_or_else(|| {
            let (shape, size) = (&self.shape, self.descr.size());
            Error::malformed(format!("an array of shape {shape} and {size} bytes an element has more than 2^63 bytes"))
        })
    }
}

fn parse_dictionary(literals: &mut Literals<'_>, limits: &Limits) -> Result<Header> {
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    literals.expect(b'{')?;
    while !literals.take(b'}') {
        let key = literals.text()?;
        literals.expect(b':')?;
        let twice = match (key.as_str(), literals.value()?) {
            ("descr", Literal::Text(text)) => descr.replace(Descr::parse(&text)).is_some(),
            ("descr", Literal::List(fields)) => descr.replace(Descr::records(&fields)).is_some(),
            ("fortran_order", Literal::Bool(value)) => fortran_order.replace(value).is_some(),
            ("shape", Literal::Tuple(dims)) => shape.replace(shape_of(dims, limits)?).is_some(),
            ("descr" | "fortran_order" | "shape", _) => {
                return Err(Error::malformed(format!("{key:?} has a value of the wrong kind")));
            }
            _ => return Err(Error::malformed(format!("unknown key {key:?}"))),
        };
        if twice {
            return Err(Error::malformed(format!("{key:?} stands twice")));
        }
        if !literals.take(b',') {
            literals.expect(b'}')?;
            break;
        }
    }
    if literals.peek().is_some() {
        return Err(Error::malformed("text after the dictionary"));
    }
    let missing = |key: &str| Error::malformed(format!("no {key:?} in the header"));
    Ok(Header {
        descr: descr.ok_or_else(|| missing("descr"))?,
        fortran_order: fortran_order.ok_or_else(|| missing("fortran_order"))?,
        shape: shape.ok_or_else(|| missing("shape"))?,
    })
}

fn shape_of(dims: Vec<u64>, limits: &Limits) -> Result<Shape> {
    if dims.len() > limits.rank {
        return Err(Error::limit(format!("{} dimensions, where {} are allowed", dims.len(), limits.rank)));
    }
    Shape::new(dims)
}

/// The bytes before the data of an array in row-major, little-endian order: what `numpy.save` writes, byte for byte.
///
/// ```
/// use weightlift_core::{DType, Shape};
/// let header = weightlift_npy::header(DType::F32, &Shape::new([2, 3]).unwrap()).unwrap();
/// assert_eq!(header.len(), 128);
/// assert!(header.starts_with(b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"));
/// ```
///
/// # Errors
/// `Request` for element types that NumPy has no type of its own for, such as bf16.
pub fn header(dtype: DType, shape: &Shape) -> Result<Vec<u8>> {
    let code = descr::code_of(dtype);
    let code = code.ok_or_else(|| Error::request(format!("NumPy has no type of its own for {dtype}")))?;
    Ok(render(&code, false, shape))
}

/// The same for any type code and either order.
pub(crate) fn render(code: &str, fortran_order: bool, shape: &Shape) -> Vec<u8> {
    let order = if fortran_order { "True" } else { "False" };
    let mut text = format!("{{'descr': '{code}', 'fortran_order': {order}, 'shape': {}, }}", tuple(shape));
    let growing = if fortran_order { shape.dims().last() } else { shape.dims().first() };
    if let Some(dim) = growing {
        text.push_str(&" ".repeat(GROWING_DIGITS.saturating_sub(dim.to_string().len())));
    }
    // A text that ends on the boundary gets a whole block of blanks: NumPy pads by 1 to 64.
    let padded = |start: usize| (start + text.len() + 1) / ALIGNMENT * ALIGNMENT + ALIGNMENT;
    let (version, total) = match padded(10) {
        total if total - 10 <= usize::from(u16::MAX) => (1, total),
        _ => (2, padded(12)),
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend([version, 0]);
    match version {
        1 => bytes.extend(((total - 10) as u16).to_le_bytes()),
        _ => bytes.extend(((total - 12) as u32).to_le_bytes()),
    }
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(total - 1, b' ');
    bytes.push(b'\n');
    bytes
}

/// The dimensions as a Python tuple.
fn tuple(shape: &Shape) -> String {
    match shape.dims() {
        [one] => format!("({one},)"),
        dims => format!("({})", dims.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightlift_core::ByteOrder;

    fn parse(text: &str) -> Result<Header> {
        Header::parse(text.as_bytes(), 10, &Limits::default())
    }

    fn message(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn keys_stand_in_any_order_and_spacing() {
        let expected = Header {
            descr: Descr::Plain(DType::F32, ByteOrder::Big),
            fortran_order: true,
            shape: Shape::new([2, 3]).unwrap(),
        };
        for text in [
            "{'descr': '>f4', 'fortran_order': True, 'shape': (2, 3), }\n",
            "{\"shape\":(2L,3L),'fortran_order':True,\n'descr':\">f4\"}   \n",
            " { 'fortran_order' : True , 'descr' : '>f4' , 'shape' : ( 2 , 3 , ) } ",
        ] {
            assert_eq!(parse(text).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_no_header_is_refused_with_its_place() {
        let with = |descr: &str, shape: &str| {
            message(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}"))
        };
        assert!(with("'<f4'", "(2)").contains("number in brackets"));
        assert!(with("'<f4'", "[2]").contains("\"shape\" has a value of the wrong kind"));
        assert!(with("'<f4'", "(4294967296, 4294967296)").contains("more elements than 2^63"));
        assert!(with("'<f4'", &format!("({})", "1,".repeat(65))).contains("65 dimensions, where 64 are allowed"));
        assert!(with("7", "()").starts_with("byte 20: expected a value, found \"7\""));
        assert!(message("{'descr': '<f4', 'shape': ()}").contains("no \"fortran_order\""));
        assert!(message("{'descr': '<f4', 'descr': '<f4'}").contains("stands twice"));
        assert!(message("{'order': True}").contains("unknown key \"order\""));
        assert!(message("{'shape': ()} x").contains("text after the dictionary"));
        assert!(message("{'shape' ()}").contains("expected ':', found '('"));
        assert!(message("").contains("expected '{', found the end"));
    }

    #[test]
    fn prefixes_of_every_version() {
        let prefix = |bytes: &[u8]| Prefix::parse(bytes);
        assert_eq!(prefix(b"\x93NUMPY\x01\0\x76\0{'").unwrap(), Prefix { start: 10, len: 118 });
        assert_eq!(prefix(b"\x93NUMPY\x02\0\x74\0\x01\0").unwrap(), Prefix { start: 12, len: 65652 });
        assert_eq!(prefix(b"\x93NUMPY\x03\0\xff\xff\xff\xff").unwrap().end(), 12 + u64::from(u32::MAX));
        assert!(prefix(b"\x93NUMPY\x04\0\0\0\0\0").unwrap_err().to_string().contains("version 4.0"));
        assert!(prefix(b"\x93NUMPZ\x01\0\x76\0").unwrap_err().to_string().contains("magic"));
        for (len, needed) in [(0, 10), (6, 10), (7, 10), (8, 12), (11, 12)] {
            let error = prefix(&b"\x93NUMPY\x02\0\x74\0\x01"[..len]).unwrap_err().to_string();
            assert_eq!(error, format!("truncated: needs {needed} bytes, has {len}"));
        }
    }

    #[test]
    fn headers_are_read_back() {
        for dims in [vec![], vec![0], vec![7], vec![2, 3], vec![1; 30], vec![1; 64]] {
            let shape = Shape::new(dims).unwrap();
            for fortran_order in [false, true] {
                let bytes = render("<c16", fortran_order, &shape);
                assert_eq!(bytes.len() % 64, 0);
                let prefix = Prefix::parse(&bytes).unwrap();
                assert_eq!(prefix.end(), bytes.len() as u64);
                let header = Header::parse(&bytes[prefix.start as usize..], 10, &Limits::default()).unwrap();
                assert_eq!((header.fortran_order, &header.shape), (fortran_order, &shape));
            }
        }
        let long = render("<f4", false, &Shape::new(vec![1; 30_000]).unwrap());
        assert_eq!(Prefix::parse(&long).unwrap().end(), long.len() as u64);
        assert_eq!(long[6], 2);
    }
}
