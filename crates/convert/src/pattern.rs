//! Patterns that select tensors by name.

use regex::Regex;
use weightlift_core::{Error, Result};

/// A pattern as a user writes it.
///
/// The whole name of a tensor means that tensor alone. Otherwise it is a glob over the whole name, in which only
/// `* ** ? {a,b}` are special: `*` and `?` stay within a component (names are split at `/` and `.`), `**` crosses
/// components. Or it is `/regex/`, found anywhere in the name.
///
/// ```
/// use weightlift_convert::Pattern;
/// let names = ["bert/embeddings/word", "bert/pooler/kernel", "bert/pooler/kernel/adam_m"];
/// let select = |pattern: &str| Pattern::new(pattern).unwrap().select(names.iter().copied());
/// assert_eq!(select("bert/pooler/kernel"), [1]);
/// assert_eq!(select("bert/*/*"), [0, 1]);
/// assert_eq!(select("**kernel**"), [1, 2]);
/// assert_eq!(select("/adam_[mv]$/"), [2]);
/// ```
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    regex: Regex,
    glob: bool,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// `Request` for a `/regex/` that is none.
    pub fn new(text: &str) -> Result<Pattern> {
        let inner = text.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).filter(|inner| !inner.is_empty());
        let source = inner.map_or_else(|| glob_to_regex(text), str::to_owned);
        let regex = compile(&source, text)?;
        Ok(Pattern { text: text.to_owned(), regex, glob: inner.is_none() })
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Positions of the names it selects. A trailing `:0`, as TensorFlow's Python objects print it, is forgiven
    /// where no name ends so.
    pub fn select<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Vec<usize> {
        let positions = |wanted: &dyn Fn(&str) -> bool| {
            names.clone().enumerate().filter(|(_, name)| wanted(name)).map(|(at, _)| at).collect::<Vec<_>>()
        };
        let exact = |text: &str| positions(&|name| name == text);
        let mut found = exact(&self.text);
        if found.is_empty() {
            found = positions(&|name| self.regex.is_match(name));
        }
        if found.is_empty()
            && let Some(stem) = self.text.strip_suffix(":0")
        {
            found = exact(stem);
        }
        found
    }

    /// The same, where a bare word also means every name it is a part of: for commands that only look.
    pub fn select_or_contains<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Vec<usize> {
        let found = self.select(names.clone());
        if !found.is_empty() || !self.is_bare() {
            return found;
        }
        names.enumerate().filter(|(_, name)| name.contains(&self.text)).map(|(at, _)| at).collect()
    }

    /// The error of a pattern that selects nothing, with the nearest names.
    pub fn unmatched<'a>(&self, doing: &str, names: impl Iterator<Item = &'a str> + Clone) -> Error {
        let error = Error::request(format!("{doing} {:?} matches no tensor", self.text));
        match nearest(&self.text, names.clone()).as_slice() {
            [] if self.is_bare() && names.clone().any(|name| name.contains(&self.text)) => {
                error.help(format!("a whole name or a glob is needed: **{}** matches", self.text))
            }
            [] => error,
            near => error.help(format!("did you mean {}", near.join(" or "))),
        }
    }

    fn is_bare(&self) -> bool {
        self.glob && !self.text.is_empty() && !self.text.contains(['*', '?', '{', '}'])
    }
}

pub(crate) fn compile(source: &str, shown: &str) -> Result<Regex> {
    Regex::new(source).map_err(|error| {
        let first = error.to_string().lines().last().unwrap_or_default().trim().to_owned();
        Error::request(format!("{shown:?} is no regular expression: {first}")).caused_by(error)
    })
}

fn glob_to_regex(glob: &str) -> String {
    let mut regex = String::from(r"(?s)\A");
    let mut rest = glob;
    let mut open = 0;
    while let Some(c) = rest.chars().next() {
        let mut used = c.len_utf8();
        match c {
            '*' if rest.starts_with("**") => {
                regex.push_str(".*");
                used = 2;
            }
            '*' => regex.push_str("[^/.]*"),
            '?' => regex.push_str("[^/.]"),
            '{' if rest.contains('}') => {
                regex.push_str("(?:");
                open += 1;
            }
            '}' if open > 0 => {
                regex.push(')');
                open -= 1;
            }
            ',' if open > 0 => regex.push('|'),
            other => regex.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
        rest = &rest[used..];
    }
    regex.push_str(&")".repeat(open));
    regex + r"\z"
}

/// At most three names, quoted, that differ from `text` in few letters, nearest first.
pub fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    const LOOKED_AT: usize = 10_000;
    let most = (text.chars().count() / 3).clamp(1, 8);
    let mut near: Vec<(usize, &str)> =
        names.take(LOOKED_AT).filter_map(|name| Some((distance(text, name, most)?, name))).collect();
    near.sort();
    near.into_iter().take(3).map(|(_, name)| format!("{name:?}")).collect()
}

/// Letters to insert, delete or replace to make `b` of `a`, if at most `most`.
fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().filter(|&distance| distance <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, name: &str) -> bool {
        !Pattern::new(pattern).unwrap().select([name].into_iter()).is_empty()
    }

    #[test]
    fn stars_stay_within_components() {
        assert!(matches("layer.*.weight", "layer.10.weight"));
        assert!(!matches("layer.*", "layer.10.weight"));
        assert!(matches("layer.**", "layer.10.weight"));
        assert!(matches("**", ""));
        assert!(matches("a/?", "a/b"));
        assert!(!matches("a?b", "a/b"));
        assert!(!matches("kernel", "a/kernel"));
    }

    #[test]
    fn braces_list_and_other_signs_are_plain() {
        assert!(matches("{a,b{c,d}}/x", "bd/x"));
        assert!(!matches("{a,b}/x", "c/x"));
        assert!(matches("a[0]!", "a[0]!"));
        assert!(matches("*[0]", "a[0]"));
        assert!(matches(r"a\*", r"a\b"));
        assert!(matches("a}*", "a}b"));
        assert!(matches("{a*", "{ab"));
        assert!(matches("a,*", "a,b"));
        assert!(matches("*\n*", "a\nb"));
    }

    #[test]
    fn a_name_with_signs_in_it_means_itself() {
        let names = ["a*", "ab"];
        assert_eq!(Pattern::new("a*").unwrap().select(names.iter().copied()), [0]);
        assert_eq!(Pattern::new("/w/").unwrap().select(["/w/", "w"].into_iter()), [0]);
    }

    #[test]
    fn output_suffixes_are_forgiven() {
        assert_eq!(Pattern::new("a:0").unwrap().select(["a", "b"].into_iter()), [0]);
        assert_eq!(Pattern::new("a:0").unwrap().select(["a", "a:0"].into_iter()), [1]);
    }

    #[test]
    fn unmatched_patterns_hint() {
        let hint = |pattern: &str| {
            Pattern::new(pattern).unwrap().unmatched("--include", ["dense/kernel", "a/biases"].into_iter()).to_string()
        };
        assert!(hint("kernel").contains("**kernel** matches"), "{}", hint("kernel"));
        assert!(hint("a/bias").contains("did you mean \"a/biases\""), "{}", hint("a/bias"));
        assert!(!hint("zzzzzzzzzzzzzzz").contains("did you mean"));
        assert!(Pattern::new("/(/").is_err());
        assert!(Pattern::new("//").is_ok());
    }

    #[test]
    fn looking_takes_bare_words() {
        let pattern = Pattern::new("kern").unwrap();
        assert_eq!(pattern.select_or_contains(["a/kernel", "b"].into_iter()), [0]);
        assert!(pattern.select(["a/kernel", "b"].into_iter()).is_empty());
    }
}
