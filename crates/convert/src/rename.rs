//! Renames by regular expression, with arithmetic on captured numbers.

use crate::pattern::compile;
use regex::{Captures, Regex};
use weightlift_core::{Error, Result};

/// `REGEX=REPL`: every match anywhere in a name is replaced. In the replacement `$1`, `${name}` stand for groups,
/// `${1+1}` for the number a group matched plus one (also `-` and `*`), `$$` for a dollar sign.
///
/// ```
/// use weightlift_convert::Rename;
/// let rename = Rename::parse(r"layer_(\d+)/=layer.${1+1}.").unwrap();
/// assert_eq!(rename.apply("layer_011/w").unwrap().unwrap(), "layer.12.w");
/// assert_eq!(rename.apply("bias").unwrap(), None);
/// ```
#[derive(Debug, Clone)]
pub struct Rename {
    text: String,
    regex: Regex,
    replacement: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Group(usize),
    Computed { group: usize, operator: char, operand: i64 },
}

impl Rename {
    /// Parses `REGEX=REPL`, cut at the last `=`.
    ///
    /// # Errors
    /// `Request` without a `=`, for a broken expression, or for a group that the expression does not have.
    pub fn parse(text: &str) -> Result<Rename> {
        let (regex, replacement) = text
            .rsplit_once('=')
            .ok_or_else(|| Error::request(format!("--rename {text:?} has no '='")).help("write REGEX=REPLACEMENT"))?;
        Rename::new(regex, replacement)
    }

    /// A rename of what `regex` finds by `replacement`.
    ///
    /// # Errors
    /// `Request` for a broken expression or a group that it does not have.
    pub fn new(regex: &str, replacement: &str) -> Result<Rename> {
        let text = format!("{regex}={replacement}");
        let regex = compile(regex, regex)?;
        let replacement = parse_replacement(replacement, &regex)?;
        Ok(Rename { text, regex, replacement })
    }

    /// The rule as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The new name, or `None` where nothing matches.
    ///
    /// # Errors
    /// `Request` where a group in arithmetic is no number or the result does not fit.
    pub fn apply(&self, name: &str) -> Result<Option<String>> {
        let mut out = String::new();
        let mut end = 0;
        for captures in self.regex.captures_iter(name) {
            let Some(whole) = captures.get(0) else { continue };
            out.push_str(&name[end..whole.start()]);
            self.expand(&captures, &mut out).map_err(|error| error.in_tensor(name))?;
            end = whole.end();
        }
        if end == 0 && out.is_empty() && !self.regex.is_match(name) {
            return Ok(None);
        }
        out.push_str(&name[end..]);
        Ok(Some(out))
    }

    /// The groups that the replacement does not use.
    pub(crate) fn unused_groups(&self) -> Vec<usize> {
        let uses = |group: usize| {
            self.replacement.iter().any(|piece| match piece {
                Piece::Group(index) | Piece::Computed { group: index, .. } => *index == group,
                Piece::Text(_) => false,
            })
        };
        (1..self.regex.captures_len()).filter(|group| !uses(*group)).collect()
    }

    /// How many alternatives a group of the form `(a|b|c)` has.
    pub(crate) fn alternatives(&self, group: usize) -> Option<usize> {
        let words = group_source(self.regex.as_str(), group)?;
        let plain = words.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '|'));
        (plain && words.contains('|')).then(|| words.split('|').count())
    }

    /// The place that a group gives a name: the number it matched, or which of the alternatives `(a|b|c)` it is.
    pub(crate) fn order(&self, name: &str, group: usize) -> Option<u64> {
        let matched = self.regex.captures(name)?.get(group)?.as_str();
        matched.parse().ok().or_else(|| {
            let alternatives = group_source(self.regex.as_str(), group)?;
            alternatives.split('|').position(|word| word == matched).map(|at| at as u64)
        })
    }

    fn expand(&self, captures: &Captures<'_>, out: &mut String) -> Result<()> {
        let group = |index: usize| captures.get(index).map_or("", |found| found.as_str());
        for piece in &self.replacement {
            match piece {
                Piece::Text(text) => out.push_str(text),
                Piece::Group(index) => out.push_str(group(*index)),
                Piece::Computed { group: index, operator, operand } => {
                    out.push_str(&compute(group(*index), *operator, *operand, &self.text)?.to_string());
                }
            }
        }
        Ok(())
    }
}

/// What stands between the brackets of a group, where it has no brackets of its own.
fn group_source(regex: &str, group: usize) -> Option<&str> {
    let mut seen = 0;
    let bytes = regex.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'(' if bytes.get(at + 1) != Some(&b'?')
                || regex[at..].starts_with("(?P<")
                || regex[at..].starts_with("(?<") =>
            {
                seen += 1;
                if seen == group {
                    let inner = regex[at + 1..].split(')').next()?;
                    return Some(inner.rsplit_once('>').map_or(inner, |(_, inner)| inner));
                }
            }
            _ => {}
        }
        at += 1;
    }
    None
}

fn compute(captured: &str, operator: char, operand: i64, rule: &str) -> Result<i64> {
    let value = captured.parse::<i64>().ok().and_then(|number| match operator {
        '+' => number.checked_add(operand),
        '-' => number.checked_sub(operand),
        _ => number.checked_mul(operand),
    });
    value.ok_or_else(|| {
        Error::request(format!("rename {rule:?}: {captured:?} {operator} {operand} is no number of 64 bits"))
    })
}

fn parse_replacement(text: &str, regex: &Regex) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        pieces.push(Piece::Text(rest[..at].to_owned()));
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix('$') {
            pieces.push(Piece::Text("$".to_owned()));
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix('{') {
            let (inner, tail) = tail.split_once('}').ok_or_else(|| bad(text, "has a ${ without a }"))?;
            pieces.push(parse_group(inner, text, regex)?);
            rest = tail;
        } else {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            pieces.push(parse_group(&rest[..end], text, regex)?);
            rest = &rest[end..];
        }
    }
    pieces.push(Piece::Text(rest.to_owned()));
    pieces.retain(|piece| *piece != Piece::Text(String::new()));
    Ok(pieces)
}

fn parse_group(inner: &str, text: &str, regex: &Regex) -> Result<Piece> {
    let split = inner.char_indices().skip(1).find(|(_, c)| matches!(c, '+' | '-' | '*'));
    let (name, arithmetic) = match split {
        Some((at, operator)) => (&inner[..at], Some((operator, &inner[at + 1..]))),
        None => (inner, None),
    };
    let by_number = name.parse::<usize>().ok().filter(|&index| index < regex.captures_len());
    let by_name = || regex.capture_names().position(|known| known == Some(name));
    let group = by_number.or_else(by_name).ok_or_else(|| {
        let known: Vec<_> = regex.capture_names().flatten().collect();
        let count = regex.captures_len() - 1;
        bad(text, &format!("names group {name:?}; the expression has {count} groups {known:?}"))
            .help("write ${1}text where letters follow a group, $$ for a dollar sign")
    })?;
    let Some((operator, operand)) = arithmetic else { return Ok(Piece::Group(group)) };
    let operand = operand.parse().map_err(|_| bad(text, &format!("has {inner:?}, which is no arithmetic")))?;
    Ok(Piece::Computed { group, operator, operand })
}

fn bad(text: &str, what: &str) -> Error {
    Error::request(format!("replacement {text:?} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(rule: &str, name: &str) -> Option<String> {
        Rename::parse(rule).unwrap().apply(name).unwrap()
    }

    #[test]
    fn every_match_is_replaced() {
        assert_eq!(apply("a=b", "banana").unwrap(), "bbnbnb");
        assert_eq!(apply("^a=b", "banana"), None);
        assert_eq!(apply("=x", "ab").unwrap(), "xaxbx");
        assert_eq!(apply("a=", "banana").unwrap(), "bnn");
        assert_eq!(apply("^a$=", "a").unwrap(), "");
        assert_eq!(apply(":0$=", "w:0").unwrap(), "w");
        assert_eq!(apply("a=b=c", "a=b").unwrap(), "c", "cut at the last =");
    }

    #[test]
    fn groups_and_arithmetic() {
        assert_eq!(apply(r"(?P<n>\d+)=<${n}>$$", "w12").unwrap(), "w<12>$");
        assert_eq!(apply(r"(\d+)=${1-1}", "w007").unwrap(), "w6");
        assert_eq!(apply(r"(\d+)_(\d+)=$2.${1*10}", "4_5").unwrap(), "5.40");
        assert_eq!(apply(r"(x)?y=[$1]", "y").unwrap(), "[]");
    }

    #[test]
    fn mistakes_are_named() {
        let error = |rule: &str| Rename::parse(rule).unwrap_err().to_string();
        assert!(error("abc").contains("no '='"));
        assert!(error("(a)=$2").contains("1 groups"));
        assert!(error("(a)=$1b").contains("${1}text"));
        assert!(error("a=${").contains("without a }"));
        assert!(error("(=b").contains("no regular expression"));
        assert!(error("(a)=${1+x}").contains("no arithmetic"));
        let overflow = Rename::parse(r"(\d+)=${1*9}").unwrap();
        assert!(overflow.apply("9223372036854775807").is_err());
    }
}
