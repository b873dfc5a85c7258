//! The names of the files of a checkpoint.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
pub(crate) use weightlift_io::folder_of as folder;

/// `PREFIX.index`.
pub(crate) fn index_path(prefix: &Path) -> PathBuf {
    with_suffix(prefix, ".index")
}

/// `PREFIX.data-SSSSS-of-NNNNN`.
pub(crate) fn shard_path(prefix: &Path, shard: u32, of: u32) -> PathBuf {
    with_suffix(prefix, &format!(".data-{shard:05}-of-{of:05}"))
}

/// The path with something put behind its last component.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}

/// The file's name for messages.
pub(crate) fn shown(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The path without the suffix, if its last component ends in it and is more than it.
pub(crate) fn without_suffix(path: &Path, suffix: &str) -> Option<PathBuf> {
    let stem = path.file_name()?.to_str()?.strip_suffix(suffix)?;
    (!stem.is_empty()).then(|| path.with_file_name(stem))
}

/// What comes before `-SSSSS-of-NNNNN` in a file's name, and the two numbers.
pub(crate) fn parse_shard(name: &str) -> Option<(&str, &str, &str)> {
    let (rest, of) = name.rsplit_once("-of-")?;
    let (stem, shard) = rest.rsplit_once('-')?;
    let number = |text: &str| text.len() >= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (number(shard) && number(of)).then_some((stem, shard, of))
}

/// The prefix of a data file.
pub(crate) fn prefix_of_data(path: &Path) -> Option<PathBuf> {
    let (stem, ..) = parse_shard(path.file_name()?.to_str()?)?;
    let prefix = stem.strip_suffix(".data").filter(|prefix| !prefix.is_empty())?;
    Some(path.with_file_name(prefix))
}

/// Whether a file's name fits a pattern in which `?` is any character and `*` any number of them.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n, mut retry) = (0, 0, None);
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(&sign) if sign == '?' || sign == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, from)) => {
                    retry = Some((star, from + 1));
                    p = star + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|&sign| sign == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart_and_together() {
        let prefix = Path::new("dir.d/model.ckpt-3");
        assert_eq!(index_path(prefix), Path::new("dir.d/model.ckpt-3.index"));
        assert_eq!(shard_path(prefix, 3, 123_456), Path::new("dir.d/model.ckpt-3.data-00003-of-123456"));
        assert_eq!(prefix_of_data(&shard_path(prefix, 3, 123_456)).as_deref(), Some(prefix));
        assert_eq!(without_suffix(&index_path(prefix), ".index").as_deref(), Some(prefix));
        assert_eq!(without_suffix(Path::new("d/.index"), ".index"), None);
        for other in
            ["model.data", "m.data-0-of-1", "m.data-00000-of-0000x", ".data-00000-of-00001", "m-00000-of-00001"]
        {
            assert_eq!(prefix_of_data(Path::new(other)), None, "{other}");
        }
        assert_eq!(parse_shard("m-00000-of-00002"), Some(("m", "00000", "00002")));
        assert_eq!(folder(Path::new("x")), Path::new("."));
    }

    #[test]
    fn patterns() {
        assert!(fits("m-?????-of-00001", "m-00000-of-00001"));
        assert!(fits("m*-of-*1", "m-00000-of-00001"));
        assert!(fits("*", ""));
        assert!(!fits("m-?????-of-00001", "m-0000-of-00001"));
        assert!(!fits("m*x", "m-of"));
        assert!(!fits("?", ""));
        assert!(!fits(&"*a".repeat(200), &"a".repeat(199)));
    }
}
