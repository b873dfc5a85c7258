//! File names for tensors.

use super::EXTENSION;
use std::collections::HashSet;

/// Longer names are cut: with extension and number a file name has at most 255 bytes.
const LONGEST: usize = 200;

/// A file name for each tensor name: the name with `.` for `/` and `_` for what no file system likes, and a number where
/// two would be equal but for their case.
pub(super) fn file_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = HashSet::new();
    let mut free = |stem: &str| {
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        let mut candidates = std::iter::once(stem.to_owned()).chain(numbered);
        candidates.find(|candidate| taken.insert(candidate.to_lowercase())).unwrap_or_default()
    };
    names.map(|name| format!("{}.{EXTENSION}", free(&stem(name)))).collect()
}

fn stem(name: &str) -> String {
    let safe = |c: char| match c {
        '/' => '.',
        c if c.is_alphanumeric() || "._-+=@,()[]{}#~ ".contains(c) => c,
        _ => '_',
    };
    let text: String = name.chars().map(safe).collect();
    let end = (0..=text.len().min(LONGEST)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let text = text.get(..end).unwrap_or_default().trim_end_matches([' ', '.']);
    match text.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None if text.is_empty() => "_".to_owned(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_files_that_differ() {
        let names = ["a/b", "a.b", "A.B", "", "..", "../x", "a:0", "名/前", "a\0b\n", "con ", "x."];
        let files = [
            "a.b.npy",
            "a.b-2.npy",
            "A.B-3.npy",
            "_.npy",
            "_-2.npy",
            "_..x.npy",
            "a_0.npy",
            "名.前.npy",
            "a_b_.npy",
            "con.npy",
            "x.npy",
        ];
        assert_eq!(file_names(names.into_iter()), files);
        let long = "é".repeat(200);
        let files = file_names([long.as_str(), long.as_str()].into_iter());
        assert!(files[0].len() <= 255 && files[1].len() <= 255 && files[0] != files[1]);
    }
}
