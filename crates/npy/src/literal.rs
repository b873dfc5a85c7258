//! The header of an array is a Python dictionary in text form. These are the few kinds of literals it is made of.

use weightlift_core::{Error, Result};

/// A value of the dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Literal {
    /// A text in quotes, as it stands there.
    Text(String),
    /// `True` or `False`.
    Bool(bool),
    /// A tuple of whole numbers.
    Tuple(Vec<u64>),
    /// A list, as it stands there: the fields of a structured type.
    List(String),
}

/// A position in a text of literals.
pub(crate) struct Literals<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Literals<'a> {
    /// At the start of `text`.
    pub(crate) fn new(text: &'a [u8]) -> Literals<'a> {
        Literals { text, at: 0 }
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Passes over blanks and takes `byte`, if it comes next.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes `byte`.
    ///
    /// # Errors
    /// `Malformed` where something else comes next.
    pub(crate) fn expect(&mut self, byte: u8) -> Result<()> {
        if self.take(byte) {
            return Ok(());
        }
        let found = match self.peek() {
            Some(found) => format!("{:?}", char::from(found)),
            None => "the end".to_owned(),
        };
        Err(Error::malformed(format!("expected {:?}, found {found}", char::from(byte))))
    }

    /// The next byte that is no blank.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_ascii_start().len();
        self.rest().first().copied()
    }

    fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// A text in quotes.
    ///
    /// # Errors
    /// `Malformed` where there is none.
    pub(crate) fn text(&mut self) -> Result<String> {
        let quote = self.peek().filter(|byte| matches!(byte, b'\'' | b'"'));
        let quote = quote.ok_or_else(|| Error::malformed("expected a text in quotes"))?;
        let start = self.at + 1;
        self.skip_text(quote)?;
        Ok(words(self.text.get(start..self.at - 1).unwrap_or_default()))
    }

    /// Any of the values there are.
    ///
    /// # Errors
    /// `Malformed` for all others.
    pub(crate) fn value(&mut self) -> Result<Literal> {
        match self.peek() {
            Some(b'\'' | b'"') => self.text().map(Literal::Text),
            Some(b'(') => self.tuple().map(Literal::Tuple),
            Some(b'[') => self.list().map(Literal::List),
            _ => {
                let start = self.at;
                match self.word() {
                    "True" => Ok(Literal::Bool(true)),
                    "False" => Ok(Literal::Bool(false)),
                    word => {
                        self.at = start;
                        Err(Error::malformed(format!("expected a value, found {word:?}")))
                    }
                }
            }
        }
    }

    /// Letters, digits and underscores.
    fn word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.iter().position(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').unwrap_or(rest.len());
        let (word, _) = rest.split_at(end);
        self.at += end;
        std::str::from_utf8(word).unwrap_or_default()
    }

    /// `()`, `(2,)`, `(2, 3)`, `(2L, 3L)`; not `(2)`, which is a number in brackets.
    fn tuple(&mut self) -> Result<Vec<u64>> {
        self.expect(b'(')?;
        let mut numbers = Vec::new();
        let mut comma = true;
        while !self.take(b')') {
            if !comma {
                self.expect(b',')?;
            }
            self.peek();
            numbers.push(self.number()?);
            comma = self.take(b',');
        }
        if numbers.len() == 1 && !comma {
            return Err(Error::malformed("expected a tuple, found a number in brackets"));
        }
        Ok(numbers)
    }

    /// Digits, with the `L` of Python 2.
    fn number(&mut self) -> Result<u64> {
        let word = self.word();
        let digits = word.strip_suffix('L').unwrap_or(word);
        let number = digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit()));
        number.ok_or_else(|| Error::malformed(format!("expected a whole number below 2^64, found {word:?}")))
    }

    /// A list with whatever is in it, up to the bracket that closes it.
    fn list(&mut self) -> Result<String> {
        let start = self.at;
        let mut depth = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'\'' | b'"' => {
                    self.skip_text(byte)?;
                    continue;
                }
                b'[' | b'(' | b'{' => depth += 1,
                b']' | b')' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Ok(words(self.text.get(start..self.at).unwrap_or_default()));
            }
        }
        Err(Error::malformed("a list without its end"))
    }

    /// Passes over a text and its quotes; a backslash protects the next character.
    fn skip_text(&mut self, quote: u8) -> Result<()> {
        self.at += 1;
        while let Some(&byte) = self.rest().first() {
            self.at += 1 + usize::from(byte == b'\\');
            if byte == quote {
                return Ok(());
            }
        }
        Err(Error::malformed("a text without its closing quote"))
    }
}

/// Bytes as text: UTF-8 where they are, Latin-1 otherwise.
fn words(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().copied().map(char::from).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<Literal> {
        let mut literals = Literals::new(text.as_bytes());
        let value = literals.value()?;
        assert_eq!((literals.peek(), literals.position()), (None, text.len()));
        Ok(value)
    }

    #[test]
    fn values_of_every_kind() {
        assert_eq!(value("'<f4'").unwrap(), Literal::Text("<f4".into()));
        assert_eq!(value(" \"a'\\\"b\"").unwrap(), Literal::Text("a'\\\"b".into()));
        assert_eq!(value("True").unwrap(), Literal::Bool(true));
        assert_eq!(value("()").unwrap(), Literal::Tuple(vec![]));
        assert_eq!(value("( 2 , )").unwrap(), Literal::Tuple(vec![2]));
        assert_eq!(value("(2, 3)").unwrap(), Literal::Tuple(vec![2, 3]));
        assert_eq!(value("(2L,3L,)").unwrap(), Literal::Tuple(vec![2, 3]));
        let fields = "[('a]', '<f4'), ('b', '|u1', (2,)), {'x': [1]}]";
        assert_eq!(value(fields).unwrap(), Literal::List(fields.into()));
    }

    #[test]
    fn everything_else_is_refused() {
        let odd = [
            "",
            "true",
            "None",
            "7",
            "'open",
            "'open\\",
            "(2)",
            "(,)",
            "(2,,3)",
            "(2 3)",
            "(-1,)",
            "(2.0,)",
            "(0x2,)",
            "(18446744073709551616,)",
            "(L,)",
            "(2",
            "[1",
            "['a]",
            "(True,)",
            "((2,),)",
        ];
        for text in odd {
            assert!(value(text).is_err(), "{text}");
        }
    }

    #[test]
    fn deep_lists_need_no_stack() {
        let deep = "[".repeat(1 << 20) + &"]".repeat(1 << 20);
        assert_eq!(value(&deep).unwrap(), Literal::List(deep.clone()));
    }
}
