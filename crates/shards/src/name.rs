//! File names of a set.

use weightlift_core::{Error, Result};

/// The name of one file of a set: `model-00001-of-00003.safetensors`; a set of one is `model.safetensors`.
/// `number` counts from 0.
///
/// ```
/// assert_eq!(weightlift_shards::shard_name("model", "safetensors", 0, 3), "model-00001-of-00003.safetensors");
/// assert_eq!(weightlift_shards::shard_name("model", "safetensors", 0, 1), "model.safetensors");
/// ```
pub fn shard_name(base: &str, extension: &str, number: usize, count: usize) -> String {
    match count {
        1 => format!("{base}.{extension}"),
        _ => format!("{base}-{:05}-of-{count:05}.{extension}", number + 1),
    }
}

/// The name of the index of a set: `model.safetensors.index.json`.
pub fn index_name(base: &str, extension: &str) -> String {
    format!("{base}.{extension}.index.json")
}

/// The name that a file's name begins with before its number, if it is that of a file of a set.
///
/// ```
/// use weightlift_shards::base_of;
/// assert_eq!(base_of("model-00001-of-00003.safetensors", "safetensors"), Some("model"));
/// assert_eq!(base_of("model.safetensors", "safetensors"), Some("model"));
/// assert_eq!(base_of("model.bin", "safetensors"), None);
/// ```
pub fn base_of<'a>(name: &'a str, extension: &str) -> Option<&'a str> {
    let stem = name.strip_suffix(extension)?.strip_suffix('.')?;
    Some(numbered(stem).map_or(stem, |(base, ..)| base))
}

/// What stands before the number in a file's name without extension, the number, from 1, and how many there are.
pub(crate) fn numbered(stem: &str) -> Option<(&str, usize, usize)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (base, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(number) && digits(count)).then_some(())?;
    Some((base, number.parse().ok()?, count.parse().ok()?))
}

/// Checks the name of a file in an index: it stays in the index's folder, on every system, and has its extension.
pub(crate) fn check(file: &str, extension: &str) -> Result<()> {
    let leaves = file.split(['/', '\\']).any(|part| {
        let part = part.trim_end_matches(['.', ' ']);
        part.is_empty() || part.contains([':', '\0'])
    });
    if leaves {
        let message = format!("the file name {file:?} leads out of the folder of the index or names no file");
        return Err(Error::malformed(message));
    }
    if !extension.is_empty() && file.strip_suffix(extension).is_none_or(|stem| !stem.ends_with('.')) {
        return Err(Error::malformed(format!("the file name {file:?} does not end in .{extension}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_folder_are_refused() {
        for name in ["model-00001-of-00002.safetensors", "a/b.safetensors", "..a.safetensors", ".safetensors"] {
            check(name, "safetensors").unwrap();
        }
        let bad = [
            "../a.safetensors",
            "a/../b.safetensors",
            "/a.safetensors",
            "\\a.safetensors",
            "..\\a.safetensors",
            "C:a.safetensors",
            "C:\\a.safetensors",
            "a//b.safetensors",
            ".. /a.safetensors",
            "./a.safetensors",
            "",
            "a.bin",
            "safetensors",
            "a.safetensors/",
            "a\0.safetensors",
        ];
        for name in bad {
            assert!(check(name, "safetensors").is_err(), "{name}");
        }
    }

    #[test]
    fn bases_are_found_again() {
        for count in [1, 2, 99_999] {
            for base in ["model", "a-b", "x-00001-of-00002", "model.fp16"] {
                let name = shard_name(base, "bin", count - 1, count);
                let found = base_of(&name, "bin").unwrap();
                assert!(found == base || (count == 1 && base.starts_with(found)), "{name} {found}");
            }
        }
        assert_eq!(base_of("model-1-of-3.bin", "bin"), Some("model-1-of-3"));
        assert_eq!(base_of("bin", "bin"), None);
    }
}
