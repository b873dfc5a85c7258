//! String tensors of TensorFlow: all lengths, a checksum over them, all bytes.
//!
//! ```text
//! ┌──────────────────┬───────────────────┬───────────────────────┐
//! │ varint length ×n │ u32 masked CRC32C │ bytes of every string │
//! └──────────────────┴───────────────────┴───────────────────────┘
//! ```

use weightlift_core::{Error, Result};

const CHECKSUM_BYTES: usize = 4;

/// Takes `count` strings apart.
///
/// # Errors
/// `Malformed` where the bytes are not those of so many strings.
pub(super) fn parse(count: u64, bytes: &[u8]) -> Result<Vec<&[u8]>> {
    // No string, no lengths, and the checksum of nothing may be left out.
    if count == 0 && bytes.is_empty() {
        return Ok(Vec::new());
    }
    if count > bytes.len() as u64 {
        return Err(Error::malformed(format!("{} bytes are too few for {count} strings", bytes.len())));
    }
    let mut at = 0;
    let lengths = (0..count).map(|_| varint(bytes, &mut at)).collect::<Result<Vec<u64>>>()?;
    let mut rest = bytes.get(at..).and_then(|rest| rest.get(CHECKSUM_BYTES..)).ok_or_else(|| {
        Error::malformed(format!("strings end at byte {}, within the checksum of their lengths", bytes.len()))
    })?;
    let mut texts = Vec::with_capacity(lengths.len());
    for length in lengths {
        let cut = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let (text, behind) =
            cut.ok_or_else(|| Error::malformed(format!("a string of {length} bytes where {} are left", rest.len())))?;
        texts.push(text);
        rest = behind;
    }
    if rest.is_empty() {
        Ok(texts)
    } else {
        Err(Error::malformed(format!("{} bytes behind the last string", rest.len())))
    }
}

/// Seven bits a byte, the lowest first; the upper bit says that another follows.
fn varint(bytes: &[u8], at: &mut usize) -> Result<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let Some(&byte) = bytes.get(*at) else {
            return Err(Error::malformed(format!("strings end at byte {at}, within their lengths")));
        };
        *at += 1;
        let bits = u64::from(byte & 0x7f);
        if bits << shift >> shift != bits {
            break;
        }
        number |= bits << shift;
        if byte < 0x80 {
            return Ok(number);
        }
    }
    Err(Error::malformed(format!("the length of a string before byte {at} does not fit into 64 bits")))
}

/// A string of bytes as a literal of Python.
pub(super) fn literal(text: &[u8]) -> String {
    let quote = if text.contains(&b'\'') && !text.contains(&b'"') { '"' } else { '\'' };
    let mut literal = format!("b{quote}");
    for &byte in text {
        match byte {
            b'\\' => literal.push_str("\\\\"),
            b'\t' => literal.push_str("\\t"),
            b'\n' => literal.push_str("\\n"),
            b'\r' => literal.push_str("\\r"),
            b' '..=b'~' if char::from(byte) == quote => literal.extend(['\\', quote]),
            b' '..=b'~' => literal.push(char::from(byte)),
            _ => literal.push_str(&format!("\\x{byte:02x}")),
        }
    }
    literal.push(quote);
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[u8] = b"\x03\x00\x11\x22\x33\x44xyz";

    #[test]
    fn strings_are_taken_apart() {
        assert_eq!(parse(1, b"\x03\x63\x3f\x7f\x28xyz").unwrap(), [b"xyz"]);
        assert_eq!(parse(2, TWO).unwrap(), [&b"xyz"[..], b""]);
        assert!(parse(0, b"\xd8\xea\x82\xa2").unwrap().is_empty());
        assert!(parse(0, b"").unwrap().is_empty());
        let long = [&b"\x80\x01cccc"[..], &[7; 128]].concat();
        assert_eq!(parse(1, &long).unwrap(), [[7; 128]]);
    }

    #[test]
    fn damaged_strings_are_refused() {
        for end in 0..TWO.len() {
            assert!(parse(2, &TWO[..end]).is_err(), "{end}");
        }
        assert!(parse(2, &[TWO, b"x"].concat()).unwrap_err().to_string().contains("1 bytes behind"));
        assert!(parse(u64::MAX, TWO).unwrap_err().to_string().contains("too few"));
        assert!(parse(1, &[0xff; 20]).unwrap_err().to_string().contains("64 bits"));
        assert!(parse(1, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01cccc").unwrap_err().to_string().contains("left"));
    }

    #[test]
    fn literals_are_those_of_python() {
        assert_eq!(literal(b"ab\0\xff\n\\"), r"b'ab\x00\xff\n\\'");
        assert_eq!(literal(b"it's"), r#"b"it's""#);
        assert_eq!(literal(b"'\""), r#"b'\'"'"#);
        assert_eq!(literal(b""), "b''");
    }
}
