//! The grammar of keys: parts between `/`, in which `.` is written `..` and `/` is written `.S`.

/// A local name as a part of a key.
///
/// ```
/// use weightlift_tf::graph::{escape, unescape};
/// assert_eq!(escape("a/b.c"), "a.Sb..c");
/// assert_eq!(unescape("a.Sb..c"), "a/b.c");
/// ```
pub fn escape(name: &str) -> String {
    name.replace('.', "..").replace('/', ".S")
}

/// The local name behind a part of a key. A `.` that escapes nothing stays.
pub fn unescape(part: &str) -> String {
    let mut out = String::with_capacity(part.len());
    let mut rest = part;
    while let Some(at) = rest.find('.') {
        let (before, after) = rest.split_at(at);
        out.push_str(before);
        let (sign, len) = match after.as_bytes() {
            [b'.', b'S', ..] => ('/', 2),
            [b'.', b'.', ..] => ('.', 2),
            _ => ('.', 1),
        };
        out.push(sign);
        rest = &after[len..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive() {
        for name in ["", "a", "a/b", "c.d", ".", "..", "./S", ".S", "S./.", "ä/.ö"] {
            assert_eq!(unescape(&escape(name)), name);
            assert_eq!(unescape(&unescape(&escape(&escape(name)))), name);
        }
        assert_eq!(escape(&escape("a/b")), "a..Sb");
        assert_eq!(escape(&escape("c.d")), "c....d");
        assert_eq!(unescape("a.b."), "a.b.");
    }
}
