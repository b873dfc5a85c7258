//! A small archive of stored members, made in memory.

use weightlift_kernels::checksum::crc32;

/// What local header and directory have in common: version, flags, method, time, date, checksum, sizes, length of the
/// name, length of the extra field.
fn common(name: &str, data: &[u8]) -> Vec<u8> {
    let mut out = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    out.extend(crc32(data).to_le_bytes());
    let len = (data.len() as u32).to_le_bytes();
    out.extend(len);
    out.extend(len);
    out.extend((name.len() as u16).to_le_bytes());
    out.extend([0; 2]);
    out
}

/// An archive of these members.
pub(crate) fn archive(members: &[(String, &[u8])]) -> Vec<u8> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let (start, common) = ((out.len() as u32).to_le_bytes(), common(name, data));
        out.extend(*b"PK\x03\x04");
        out.extend_from_slice(&common);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(data);
        // Between: comment, disk, attributes.
        directory.extend([&b"PK\x01\x02\x14\0"[..], &common, &[0; 10], &start, name.as_bytes()].concat());
    }
    let (start, len) = (out.len() as u32, directory.len() as u32);
    let count = (members.len() as u16).to_le_bytes();
    out.extend(directory);
    out.extend(
        [&b"PK\x05\x06\0\0\0\0"[..], &count, &count, &len.to_le_bytes(), &start.to_le_bytes(), &[0; 2]].concat(),
    );
    out
}
