//! What a file is that is no checkpoint: the sentence a user needs when a download went wrong.

/// Says what a file with these first bytes (up to 4096) and this length is, where it is known.
///
/// ```
/// let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 438007537\n";
/// assert_eq!(
///     weightlift_core::sniff::describe(pointer, pointer.len() as u64).unwrap(),
///     "a Git LFS pointer to a file of 438007537 bytes: fetch the file itself (git lfs pull)"
/// );
/// ```
pub fn describe(head: &[u8], len: u64) -> Option<String> {
    if len == 0 {
        return Some("an empty file (0 bytes)".into());
    }
    if head.starts_with(b"version https://git-lfs") {
        let text = String::from_utf8_lossy(head);
        let size = text.lines().find_map(|line| line.strip_prefix("size ")).unwrap_or("unknown");
        return Some(format!("a Git LFS pointer to a file of {size} bytes: fetch the file itself (git lfs pull)"));
    }
    let trimmed = head.trim_ascii_start();
    let html = [&b"<!doctype"[..], b"<html", b"<?xml", b"<head", b"<body"];
    if html.iter().any(|tag| trimmed.len() >= tag.len() && trimmed[..tag.len()].eq_ignore_ascii_case(tag)) {
        return Some("a web page: the download gave an error or login page instead of the file".into());
    }
    let magics: &[(&[u8], &str)] = &[
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file (Keras .h5), which is not read here"),
        (b"GGUF", "a GGUF file, which is not read here"),
        (b"\x1f\x8b", "a gzip file: unpack it first"),
        (b"\x28\xb5\x2f\xfd", "a zstd file: unpack it first"),
        (b"BZh", "a bzip2 file: unpack it first"),
        (b"\xfd7zXZ", "an xz file: unpack it first"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive: unpack it first"),
        (b"Rar!", "a RAR archive: unpack it first"),
        (b"%PDF", "a PDF document"),
        (b"\x89PNG", "a PNG picture"),
        (b"\x7fELF", "a program"),
    ];
    if let Some((_, what)) = magics.iter().find(|(magic, _)| head.starts_with(magic)) {
        return Some((*what).into());
    }
    if matches!(trimmed.first(), Some(b'{' | b'[')) && std::str::from_utf8(head).is_ok() {
        return Some("a JSON text".into());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::describe;

    #[test]
    fn common_mistakes_are_named() {
        let name = |head: &[u8]| describe(head, head.len() as u64).unwrap_or_default();
        assert!(name(b"").contains("empty"));
        assert!(name(b"\n<!DOCTYPE html><html>").contains("web page"));
        assert!(name(b"\x1f\x8b\x08").contains("gzip"));
        assert!(name(b"{\"a\": 1}").contains("JSON"));
        assert_eq!(describe(b"\0\x01\x02", 3), None);
    }
}
