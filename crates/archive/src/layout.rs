//! Where everything of an archive to be written will stand.

use crate::record::{self, WIDE};
use weightlift_core::{ByteRange, Error, Result};

/// A member to write, stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMember {
    /// Its name, at most 65,535 bytes.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A member with its place.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    /// Where the local header starts.
    pub(crate) header: u64,
    /// Length of the padding in the `FB` field; `None` without that field.
    pub(crate) padding: Option<u16>,
    /// The remark in the directory.
    pub(crate) comment: String,
}

impl Placed {
    /// Whether the size needs 64 bits.
    pub(crate) fn is_wide(&self) -> bool {
        self.bytes >= WIDE
    }

    fn before_padding(&self) -> u64 {
        let wide = if self.is_wide() { 20 } else { 0 };
        let field = if self.padding.is_some() { 4 } else { 0 };
        self.header + 30 + self.name.len() as u64 + wide + field
    }

    fn data(&self) -> u64 {
        self.before_padding() + u64::from(self.padding.unwrap_or(0))
    }
}

/// The places of all members, of the directory, and the length of the whole archive: a pure function of names, lengths
/// and alignment.
#[derive(Debug, Clone)]
pub struct Layout {
    members: Vec<Placed>,
    directory: u64,
    directory_len: u64,
}

impl Layout {
    /// Lays members out in their order, the data of each at a multiple of `align` (1: anywhere).
    ///
    /// # Errors
    /// `Request` for equal, empty or too long names, for an alignment of 0 or over 32 KiB, and for an archive of more
    /// than 2^63 bytes.
    pub fn new(members: Vec<NewMember>, align: u16) -> Result<Layout> {
        if align == 0 || align > 1 << 15 {
            return Err(Error::request(format!("a zip cannot be aligned to {align} bytes")));
        }
        check_names(&members)?;
        let mut at = 0u64;
        let mut placed = Vec::with_capacity(members.len());
        for NewMember { name, bytes } in members {
            let mut member =
                Placed { name, bytes, header: at, padding: (align > 1).then_some(0), comment: String::new() };
            let overhang = member.before_padding() % u64::from(align);
            if align > 1 && overhang != 0 {
                member.padding = Some(align - overhang as u16);
            }
            let end = member.data().checked_add(bytes).filter(|&end| end <= i64::MAX as u64 - (1 << 40));
            at = end.ok_or_else(|| Error::request("the archive would have more than 2^63 bytes"))?;
            placed.push(member);
        }
        let directory_len = placed.iter().map(|member| record::directory_header(member, 0).len() as u64).sum();
        Ok(Layout { members: placed, directory: at, directory_len })
    }

    /// Puts a remark on a member, which readers of the directory see and others do not; at most 65,535 bytes of it.
    ///
    /// # Panics
    /// For a position beyond the members.
    pub fn set_comment(&mut self, member: usize, comment: &str) {
        let most = comment.len().min(usize::from(u16::MAX));
        let end = (0..=most).rev().find(|&end| comment.is_char_boundary(end)).unwrap_or(0);
        let member = &mut self.members[member];
        let before = member.comment.len() as u64;
        comment[..end].clone_into(&mut member.comment);
        self.directory_len = self.directory_len - before + member.comment.len() as u64;
    }

    /// How many members there are.
    pub fn members(&self) -> usize {
        self.members.len()
    }

    /// Where the data of a member stands.
    ///
    /// # Panics
    /// For a position beyond the members.
    pub fn data(&self, member: usize) -> ByteRange {
        let member = &self.members[member];
        // The end was checked when it was laid out.
        ByteRange::new(member.data(), member.bytes).unwrap_or_else(|_| unreachable!())
    }

    /// The length of the whole archive.
    pub fn total(&self) -> u64 {
        self.directory + self.directory_len + self.end().len() as u64
    }

    fn end(&self) -> Vec<u8> {
        record::end(self.members.len() as u64, self.directory, self.directory_len)
    }

    /// What stands before the data of a member, and where: the local header.
    pub(crate) fn local_header(&self, member: usize, crc: u32) -> (u64, Vec<u8>) {
        let member = &self.members[member];
        (member.header, record::local_header(member, crc))
    }

    /// What stands behind the last member, and where: the directory and the end records.
    pub(crate) fn directory(&self, crcs: &[u32]) -> (u64, Vec<u8>) {
        let headers = self.members.iter().zip(crcs).map(|(member, &crc)| record::directory_header(member, crc));
        let mut bytes = headers.flatten().collect::<Vec<u8>>();
        bytes.extend(self.end());
        (self.directory, bytes)
    }
}

fn check_names(members: &[NewMember]) -> Result<()> {
    let mut seen = std::collections::HashSet::with_capacity(members.len());
    for NewMember { name, .. } in members {
        if name.is_empty() || name.len() > usize::from(u16::MAX) {
            let len = name.len();
            return Err(Error::request(format!("a zip member cannot have a name of {len} bytes")));
        }
        if !seen.insert(name) {
            return Err(Error::request(format!("two members would be called {name:?}")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(sizes: &[u64], align: u16) -> Layout {
        let name = |at: usize| format!("archive/data/{at}");
        let members = sizes.iter().enumerate().map(|(at, &bytes)| NewMember { name: name(at), bytes });
        Layout::new(members.collect(), align).unwrap()
    }

    #[test]
    fn data_is_aligned_and_headers_fill_the_gaps() {
        for align in [1, 2, 64, 4096] {
            let layout = layout(&[0, 1, 63, 64, 100, 0], align);
            let mut at = 0;
            for member in 0..layout.members() {
                let (start, header) = layout.local_header(member, 7);
                assert_eq!(start, at);
                assert_eq!(start + header.len() as u64, layout.data(member).start());
                assert_eq!(layout.data(member).start() % u64::from(align), 0);
                at = layout.data(member).end();
            }
            let (start, directory) = layout.directory(&[1; 6]);
            assert_eq!(start, at);
            assert_eq!(start + directory.len() as u64, layout.total());
        }
    }

    #[test]
    fn no_field_without_alignment() {
        assert_eq!(layout(&[3], 1).data(0).start(), 30 + 14);
        assert_eq!(layout(&[3], 64).local_header(0, 0).1[44..50], *b"FB\x10\0ZZ");
    }

    #[test]
    fn wide_numbers_stand_in_zip64_fields() {
        let layout = layout(&[WIDE - 1, WIDE, 5, 0], 64);
        let (_, narrow) = layout.local_header(0, 0);
        assert_eq!(narrow[18..26], [0xfe, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff]);
        let (start, wide) = layout.local_header(1, 0);
        assert!(start > WIDE);
        assert_eq!(wide[18..26], [0xff; 8]);
        assert_eq!(wide[44..48], [1, 0, 16, 0]);
        assert_eq!(wide[48..64], [WIDE.to_le_bytes(), WIDE.to_le_bytes()].concat());
        let (_, directory) = layout.directory(&[0; 4]);
        // Of the first nothing is wide, of the second all three, of the others the offset.
        let extra = |at: usize| u16::from_le_bytes([directory[at + 30], directory[at + 31]]);
        assert_eq!(extra(0), 0);
        assert_eq!(extra(60), 4 + 24);
        assert_eq!(extra(60 + 60 + 28), 4 + 8);
        assert!(directory.windows(4).any(|window| window == b"PK\x06\x07"), "an end record of zip64");
        assert_eq!(layout.directory(&[0; 4]).1.len() as u64 + layout.directory, layout.total());
    }

    #[test]
    fn remarks_stand_in_the_directory_alone() {
        let plain = layout(&[3, 5], 64);
        let mut remarked = plain.clone();
        remarked.set_comment(1, "first");
        remarked.set_comment(1, "bf16");
        assert_eq!(remarked.total(), plain.total() + 4);
        assert_eq!(remarked.local_header(1, 0), plain.local_header(1, 0));
        let (start, directory) = remarked.directory(&[0; 2]);
        assert_eq!(start + directory.len() as u64, remarked.total());
        let end = directory.len() - 22;
        assert_eq!(&directory[end - 4..end], b"bf16");
    }

    #[test]
    fn many_members_need_zip64() {
        let few = layout(&[0; 65534], 1).directory(&[0; 65534]).1;
        let many = layout(&[0; 65535], 1).directory(&[0; 65535]).1;
        assert!(!few[few.len() - 42..].starts_with(b"PK\x06\x07"));
        assert!(many[many.len() - 42..].starts_with(b"PK\x06\x07"));
    }

    #[test]
    fn what_cannot_be_laid_out_is_refused() {
        let member = |name: &str, bytes| NewMember { name: name.into(), bytes };
        assert!(Layout::new(vec![member("a", 1), member("a", 2)], 1).is_err());
        assert!(Layout::new(vec![member("", 1)], 1).is_err());
        assert!(Layout::new(vec![member(&"n".repeat(65536), 1)], 1).is_err());
        assert!(Layout::new(vec![member("a", u64::MAX)], 64).is_err());
        assert!(Layout::new(vec![member("a", 1 << 62), member("b", 1 << 62)], 64).is_err());
        assert!(Layout::new(vec![member("a", 1)], 0).is_err());
        assert!(Layout::new(vec![member("a", 1)], u16::MAX).is_err());
    }
}
