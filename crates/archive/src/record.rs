//! The fixed records of a zip, as they are written.

use crate::layout::Placed;

/// Values from here on need 64 bits.
pub(crate) const WIDE: u64 = 0xffff_ffff;
/// The flag for UTF-8 names.
const UTF8: u16 = 0x0800;
/// The first of January 1980, the earliest date of a zip.
const DATE: u16 = 0x0021;

fn narrow(value: u64) -> [u8; 4] {
    u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes()
}

fn narrow16(value: u64) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_le_bytes()
}

fn version(wide: bool) -> [u8; 2] {
    (if wide { 45u16 } else { 20 }).to_le_bytes()
}

/// From the needed version to the sizes: equal in local and directory header.
fn common(placed: &Placed, crc: u32, wide: bool) -> Vec<u8> {
    let size = narrow(if placed.is_wide() { WIDE } else { placed.bytes });
    let parts: [&[u8]; 8] =
        [&version(wide), &UTF8.to_le_bytes(), &[0, 0], &[0, 0], &DATE.to_le_bytes(), &crc.to_le_bytes(), &size, &size];
    parts.concat()
}

/// The local header with name and extra fields: all that stands before the data.
pub(crate) fn local_header(placed: &Placed, crc: u32) -> Vec<u8> {
    let mut extra = Vec::new();
    if placed.is_wide() {
        extra.extend([1, 0, 16, 0]);
        extra.extend(placed.bytes.to_le_bytes());
        extra.extend(placed.bytes.to_le_bytes());
    }
    if let Some(padding) = placed.padding {
        extra.extend(b"FB");
        extra.extend(padding.to_le_bytes());
        extra.resize(extra.len() + usize::from(padding), b'Z');
    }
    let mut header = b"PK\x03\x04".to_vec();
    header.extend(common(placed, crc, placed.is_wide()));
    header.extend(narrow16(placed.name.len() as u64));
    header.extend(narrow16(extra.len() as u64));
    header.extend(placed.name.as_bytes());
    header.extend(extra);
    header
}

/// The directory's header of a member.
pub(crate) fn directory_header(placed: &Placed, crc: u32) -> Vec<u8> {
    let mut fields = Vec::new();
    if placed.is_wide() {
        fields.extend(placed.bytes.to_le_bytes());
        fields.extend(placed.bytes.to_le_bytes());
    }
    if placed.header >= WIDE {
        fields.extend(placed.header.to_le_bytes());
    }
    let wide = !fields.is_empty();
    let mut header = b"PK\x01\x02".to_vec();
    header.extend(version(wide));
    header.extend(common(placed, crc, wide));
    header.extend(narrow16(placed.name.len() as u64));
    header.extend(narrow16(if wide { fields.len() as u64 + 4 } else { 0 }));
    header.extend(narrow16(placed.comment.len() as u64));
    header.extend([0; 2 + 2 + 4]); // disk, attributes
    header.extend(narrow(placed.header));
    header.extend(placed.name.as_bytes());
    if wide {
        header.extend([1, 0]);
        header.extend(narrow16(fields.len() as u64));
        header.extend(fields);
    }
    header.extend(placed.comment.as_bytes());
    header
}

/// What stands behind the directory: with zip64 records where one of the three numbers needs them.
pub(crate) fn end(members: u64, start: u64, len: u64) -> Vec<u8> {
    let mut end = Vec::new();
    if members >= 0xffff || start >= WIDE || len >= WIDE {
        end.extend(b"PK\x06\x06");
        end.extend(44u64.to_le_bytes());
        end.extend([45, 0, 45, 0]);
        end.extend([0; 8]); // disks
        for number in [members, members, len, start] {
            end.extend(number.to_le_bytes());
        }
        end.extend(b"PK\x06\x07");
        end.extend([0; 4]); // disk
        end.extend((start + len).to_le_bytes());
        end.extend(1u32.to_le_bytes()); // disks in all
    }
    end.extend(b"PK\x05\x06");
    end.extend([0; 4]); // disks
    end.extend(narrow16(members));
    end.extend(narrow16(members));
    end.extend(narrow(len));
    end.extend(narrow(start));
    end.extend([0; 2]); // comment
    end
}
