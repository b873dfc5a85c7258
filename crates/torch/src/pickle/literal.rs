//! Values that protocols 0 and 1 write as text.

use std::str;

/// The digits that Python itself refuses to exceed when it reads an integer.
pub(super) const MOST_DIGITS: usize = 4300;

/// An integer in decimal digits.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Integer {
    Short(i64),
    /// Two's complement, low byte first.
    Long(Vec<u8>),
}

/// An integer as Python prints it, with an optional `L` behind.
pub(super) fn integer(line: &[u8]) -> Option<Integer> {
    let text = str::from_utf8(line).ok()?.trim();
    let text = text.strip_suffix('L').unwrap_or(text);
    if let Ok(short) = text.parse() {
        return Some(Integer::Short(short));
    }
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let sound = !digits.is_empty() && digits.len() <= MOST_DIGITS && digits.bytes().all(|d| d.is_ascii_digit());
    sound.then(|| Integer::Long(twos_complement(digits, negative)))
}

fn twos_complement(digits: &str, negative: bool) -> Vec<u8> {
    let mut limbs: Vec<u32> = Vec::new();
    for digit in digits.bytes() {
        let mut carry = u64::from(digit - b'0');
        for limb in &mut limbs {
            let product = u64::from(*limb) * 10 + carry;
            (*limb, carry) = (product as u32, product >> 32);
        }
        if carry > 0 {
            limbs.push(carry as u32);
        }
    }
    limbs.push(0);
    let mut bytes: Vec<u8> = limbs.iter().flat_map(|limb| limb.to_le_bytes()).collect();
    if negative {
        negate(&mut bytes);
    }
    shorten(&mut bytes);
    bytes
}

fn negate(bytes: &mut [u8]) {
    let mut carry = true;
    for byte in bytes {
        (*byte, carry) = (!*byte).overflowing_add(u8::from(carry));
    }
}

/// Drops bytes that only repeat the sign.
fn shorten(bytes: &mut Vec<u8>) {
    while let [.., before, last] = bytes[..] {
        if !(last == 0 && before < 0x80 || last == 0xff && before >= 0x80) {
            break;
        }
        bytes.pop();
    }
}

/// A floating-point number as Python prints it.
pub(super) fn float(line: &[u8]) -> Option<f64> {
    str::from_utf8(line).ok()?.trim().parse().ok()
}

/// A Python 2 string literal: quotes around, escapes within.
pub(super) fn quoted(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii_end();
    let (&quote, inner) = line.split_first()?;
    let (&last, inner) = inner.split_last()?;
    if !matches!(quote, b'\'' | b'"') || last != quote {
        return None;
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next()? {
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'v' => out.push(11),
            b'f' => out.push(12),
            b'0' => out.push(0),
            b'x' => out.push(hex(&mut bytes, 2)? as u8),
            other @ (b'\\' | b'\'' | b'"') => out.push(other),
            other => out.extend([b'\\', other]),
        }
    }
    Some(out)
}

/// Latin-1 text in which `\u` and `\U` stand for other characters, as UTF-8 (lone surrogates in three bytes).
pub(super) fn raw_unicode(line: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(line.len());
    let mut bytes = line.iter().copied();
    while let Some(byte) = bytes.next() {
        let after = bytes.clone().next();
        match (byte, after) {
            (b'\\', Some(b'u' | b'U')) => {
                let digits = if bytes.next() == Some(b'u') { 4 } else { 8 };
                encode(hex(&mut bytes, digits)?, &mut out)?;
            }
            _ => encode(u32::from(byte), &mut out)?,
        }
    }
    Some(out)
}

fn hex(bytes: &mut impl Iterator<Item = u8>, digits: usize) -> Option<u32> {
    (0..digits).try_fold(0u32, |value, _| Some(value << 4 | char::from(bytes.next()?).to_digit(16)?))
}

/// UTF-8 of a code point, surrogates included.
fn encode(code: u32, out: &mut Vec<u8>) -> Option<()> {
    match char::from_u32(code) {
        Some(char) => out.extend(char.encode_utf8(&mut [0; 4]).bytes()),
        None if code <= 0xffff => {
            out.extend([0xe0 | (code >> 12) as u8, 0x80 | (code >> 6 & 0x3f) as u8, 0x80 | (code & 0x3f) as u8]);
        }
        None => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_any_length() {
        assert_eq!(integer(b"-12L"), Some(Integer::Short(-12)));
        assert_eq!(integer(b"18446744073709551616"), Some(Integer::Long(vec![0, 0, 0, 0, 0, 0, 0, 0, 1])));
        assert_eq!(integer(b"9223372036854775808"), Some(Integer::Long(vec![0, 0, 0, 0, 0, 0, 0, 0x80, 0])));
        assert_eq!(integer(b"-18446744073709551616"), Some(Integer::Long(vec![0, 0, 0, 0, 0, 0, 0, 0, 0xff])));
        assert_eq!(integer(b"12x"), None);
        assert_eq!(integer(b"-"), None);
        assert_eq!(integer("9".repeat(MOST_DIGITS + 1).as_bytes()), None);
    }

    #[test]
    fn texts_are_unescaped() {
        assert_eq!(quoted(br#"'a\x41\n\\\'z'"#).unwrap(), b"aA\n\\'z");
        assert_eq!(quoted(b"'abc"), None);
        assert_eq!(quoted(br"'ab\'"), None);
        assert_eq!(quoted(b"'"), None);
        assert_eq!(raw_unicode(b"a\\u00e9\xe9\\U0001f600\\n").unwrap(), "aéé😀\\n".as_bytes());
        assert_eq!(raw_unicode(b"\\ud800").unwrap(), [0xed, 0xa0, 0x80]);
        assert_eq!(raw_unicode(b"\\u12"), None);
        assert_eq!(float(b"1e5"), Some(1e5));
        assert!(float(b"nan").unwrap().is_nan());
    }
}
