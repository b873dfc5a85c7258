//! The text form of protocol buffers, as far as a flat message needs it.

use weightlift_core::{Error, Result};

/// The value of a field.
#[derive(Debug, PartialEq)]
pub(super) enum Value {
    /// Adjacent strings in quotes, joined.
    Text(Vec<u8>),
    /// A number or a name, as it is written.
    Word(String),
    /// A message in brackets, skipped.
    Message,
}

/// Calls `visit` for every value of every field; values of a list come one by one.
///
/// # Errors
/// `Malformed` with the offset.
pub(super) fn read(bytes: &[u8], mut visit: impl FnMut(&str, Value) -> Result<()>) -> Result<()> {
    let mut text = Text { bytes, at: 0 };
    text.skip_space();
    while text.at < bytes.len() {
        let start = text.at as u64;
        text.field(&mut visit).map_err(|error| error.at(start))?;
    }
    Ok(())
}

struct Text<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Text<'_> {
    fn field(&mut self, visit: &mut impl FnMut(&str, Value) -> Result<()>) -> Result<()> {
        let name = self.word()?;
        let colon = self.eat(b':');
        if colon && self.eat(b'[') {
            while !self.eat(b']') {
                visit(&name, self.value(true)?)?;
                self.eat(b',');
            }
        } else {
            visit(&name, self.value(colon)?)?;
        }
        if !self.eat(b',') {
            self.eat(b';');
        }
        Ok(())
    }

    fn value(&mut self, colon: bool) -> Result<Value> {
        match self.peek() {
            Some(b'{' | b'<') => self.skip_message().map(|()| Value::Message),
            _ if !colon => Err(Error::malformed("expected a colon after the name of a field")),
            Some(b'"' | b'\'') => {
                let mut joined = Vec::new();
                while let Some(quote @ (b'"' | b'\'')) = self.peek() {
                    self.string(quote, &mut joined)?;
                }
                Ok(Value::Text(joined))
            }
            _ => {
                let minus = if self.eat(b'-') { "-" } else { "" };
                Ok(Value::Word(minus.to_owned() + &self.word()?))
            }
        }
    }

    /// Skips a message with all it holds, without recursion.
    fn skip_message(&mut self) -> Result<()> {
        let mut open = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'"' | b'\'' => self.string(byte, &mut Vec::new())?,
                b'{' => open.push(b'}'),
                b'<' => open.push(b'>'),
                b'[' => open.push(b']'),
                b'}' | b'>' | b']' if open.pop() != Some(byte) => {
                    return Err(Error::malformed("brackets do not match").at(self.at as u64));
                }
                _ => {}
            }
            if !matches!(byte, b'"' | b'\'') {
                self.at += 1;
                self.skip_space();
            }
            if open.is_empty() {
                return Ok(());
            }
        }
        Err(Error::malformed("a message is not closed"))
    }

    fn word(&mut self) -> Result<String> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-' | b'/');
        let rest = self.rest();
        let len = rest.iter().position(|&byte| !is_part(byte)).unwrap_or(rest.len());
        if len == 0 {
            return Err(Error::malformed("expected a name or a number").at(self.at as u64));
        }
        let word = String::from_utf8_lossy(&rest[..len]).into_owned();
        self.at += len;
        self.skip_space();
        Ok(word)
    }

    /// Reads a string with C escapes and the space after it.
    fn string(&mut self, quote: u8, out: &mut Vec<u8>) -> Result<()> {
        self.at += 1;
        loop {
            match self.next() {
                Some(byte) if byte == quote => break,
                Some(b'\\') => self.escaped(out)?,
                Some(b'\n') | None => return Err(Error::malformed("a string is not closed").at(self.at as u64)),
                Some(byte) => out.push(byte),
            }
        }
        self.skip_space();
        Ok(())
    }

    fn escaped(&mut self, out: &mut Vec<u8>) -> Result<()> {
        let plain = match self.next() {
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(b'r') => b'\r',
            Some(b'a') => 7,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'v') => 11,
            Some(byte @ (b'\\' | b'\'' | b'"' | b'?')) => byte,
            Some(b'0'..=b'7') => {
                self.at -= 1;
                self.digits(8, 1, 3)? as u8
            }
            Some(b'x' | b'X') => self.digits(16, 1, 2)? as u8,
            Some(b'u') => return self.unicode(4, out),
            Some(b'U') => return self.unicode(8, out),
            _ => return Err(Error::malformed("an escape is not known").at(self.at as u64)),
        };
        out.push(plain);
        Ok(())
    }

    fn unicode(&mut self, digits: usize, out: &mut Vec<u8>) -> Result<()> {
        let code = self.digits(16, digits, digits)?;
        let Some(char) = char::from_u32(code) else {
            return Err(Error::malformed(format!("{code:x} is no character")).at(self.at as u64));
        };
        out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        Ok(())
    }

    fn digits(&mut self, radix: u32, least: usize, most: usize) -> Result<u32> {
        let digits = self.rest().iter().take(most).map_while(|&byte| char::from(byte).to_digit(radix));
        let (mut value, mut count) = (0, 0);
        for digit in digits {
            value = value * radix + digit;
            count += 1;
        }
        if count < least {
            return Err(Error::malformed("an escape lacks digits").at(self.at as u64));
        }
        self.at += count;
        Ok(value)
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Takes a sign and the space after it, if it comes next.
    fn eat(&mut self, sign: u8) -> bool {
        let found = self.peek() == Some(sign);
        if found {
            self.at += 1;
            self.skip_space();
        }
        found
    }

    /// Skips space and comments.
    fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b'#' => {
                    let line = self.rest().iter().position(|&byte| byte == b'\n');
                    self.at = line.map_or(self.bytes.len(), |line| self.at + line);
                }
                b' ' | b'\t' | b'\r' | b'\n' | 11 | 12 => self.at += 1,
                _ => return,
            }
        }
    }
}

/// A string as it stands between quotes: everything but printable ASCII as octal escapes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'\n' => out += "\\n",
            b'\r' => out += "\\r",
            b'\t' => out += "\\t",
            b'"' | b'\'' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=b'~' => out.push(char::from(byte)),
            _ => out += &format!("\\{byte:03o}"),
        }
    }
    out
}
