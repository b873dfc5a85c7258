//! Archives written, read back, cut, flipped and crafted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests say what they expect"
)]

use std::io::Write;
use std::path::Path;
use weightlift_archive::{Archive, ArchiveWriter, Layout, Method, NewMember, read_member};
use weightlift_core::{ByteRange, Kind, Limits, Result};
use weightlift_io::{Commit, FileSource, real};
use weightlift_testkit::OneFile;

fn source(bytes: &[u8]) -> FileSource {
    FileSource::open(&OneFile::new(bytes), Path::new("m.zip")).unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let source = source(bytes);
    let archive = Archive::read(&source, &Limits::default())?;
    let whole = |member| read_member(&source, member, &Limits::default(), 1 << 20);
    archive.members().iter().map(|member| Ok((member.name.clone(), whole(member)?))).collect()
}

fn write(members: &[(&str, &[u8])], align: u16) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("out.zip");
    let mut commit = Commit::new(real(), false);
    let new = members.iter().map(|(name, data)| NewMember { name: (*name).into(), bytes: data.len() as u64 });
    let layout = Layout::new(new.collect(), align).unwrap();
    let total = layout.total();
    let writer = ArchiveWriter::create(commit.create(&path).unwrap(), layout).unwrap();
    std::thread::scope(|scope| {
        for (at, (_, data)) in members.iter().enumerate() {
            let writer = &writer;
            // In pieces, the last one first.
            scope.spawn(move || {
                for (piece, bytes) in data.chunks(7).enumerate().rev() {
                    writer.write_at(at, piece as u64 * 7, bytes).unwrap();
                }
            });
        }
    });
    writer.finish().unwrap();
    commit.commit(None).unwrap();
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes.len() as u64, total);
    bytes
}

const MEMBERS: &[(&str, &[u8])] = &[
    ("archive/data.pkl", b"\x80\x02N."),
    ("archive/data/0", &[7; 100]),
    ("archive/é", b""),
    ("archive/version", b"3\n"),
];

#[test]
fn what_is_written_is_read() {
    for align in [1, 64] {
        let bytes = write(MEMBERS, align);
        let expected: Vec<(String, Vec<u8>)> = MEMBERS.iter().map(|(n, d)| ((*n).into(), d.to_vec())).collect();
        assert_eq!(read(&bytes).unwrap(), expected);
        let archive = Archive::read(&source(&bytes), &Limits::default()).unwrap();
        for member in archive.members() {
            assert_eq!(member.plain().unwrap().start() % u64::from(align), 0);
            assert!(member.crc.is_some());
        }
    }
}

#[test]
fn an_archive_may_lie_within_a_file() {
    let bytes = write(MEMBERS, 64);
    let file = [b"before".as_slice(), &bytes, b"behind"].concat();
    let source = source(&file);
    let range = ByteRange::new(6, bytes.len() as u64).unwrap();
    let archive = Archive::read_in(&source, range, &Limits::default()).unwrap();
    let member = archive.find("archive/version").unwrap().unwrap();
    assert_eq!(read_member(&source, member, &Limits::default(), 10).unwrap(), b"3\n");
    assert_eq!(archive.find("archive/nothing").unwrap(), None);
}

#[test]
fn missing_and_repeated_bytes_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let start = |commit: &mut Commit| {
        let layout = Layout::new(vec![NewMember { name: "m".into(), bytes: 10 }], 64).unwrap();
        ArchiveWriter::create(commit.create(&dir.path().join("out.zip")).unwrap(), layout).unwrap()
    };
    for pieces in [vec![(0, 9)], vec![(0, 10), (3, 1)], vec![]] {
        let mut commit = Commit::new(real(), false);
        let writer = start(&mut commit);
        for (offset, len) in pieces {
            writer.write_at(0, offset, &vec![1; len]).unwrap();
        }
        assert_eq!(writer.finish().unwrap_err().kind(), Kind::Request);
    }
    let mut commit = Commit::new(real(), false);
    assert_eq!(start(&mut commit).write_at(0, 5, &[0; 6]).unwrap_err().kind(), Kind::Request);
    drop(commit);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn every_cut_is_an_error_that_says_so() {
    let bytes = write(MEMBERS, 64);
    for len in 0..bytes.len() {
        let error = read(&bytes[..len]).unwrap_err();
        assert_eq!(error.kind(), Kind::Malformed, "{error}");
        if len >= 4 {
            assert!(error.to_string().contains(&format!("ends early at {len} bytes")), "{error}");
        }
    }
    let error = read(&bytes[..200]).unwrap_err().to_string();
    assert!(error.contains("needs at least 228 for its member \"archive/data/0\""), "{error}");
}

#[test]
fn no_flipped_bit_changes_what_is_read() {
    let bytes = write(MEMBERS, 64);
    let good = read(&bytes).unwrap();
    let (mut errors, mut same) = (0, 0);
    for at in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        match read(&flipped) {
            Err(_) => errors += 1,
            Ok(members) => {
                let values = |members: &[(String, Vec<u8>)]| members.iter().map(|m| m.1.clone()).collect::<Vec<_>>();
                assert_eq!(values(&members), values(&good), "bit {at}");
                same += 1;
            }
        }
    }
    // Padding, dates, names and local sizes may change; nothing else may.
    assert!(errors > 100 * 8 && same > 0, "{errors} errors, {same} without");
}

/// An archive by another writer, with DEFLATE.
fn deflated(name: &str, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut zip = rawzip::ZipArchiveWriter::new(&mut out);
    let method = rawzip::CompressionMethod::DEFLATE;
    let (mut entry, config) = zip.new_file(name).compression_method(method).start().unwrap();
    let mut writer = config.wrap(flate2::write::DeflateEncoder::new(&mut entry, flate2::Compression::best()));
    writer.write_all(data).unwrap();
    let (encoder, descriptor) = writer.finish().unwrap();
    encoder.finish().unwrap();
    entry.finish(descriptor).unwrap();
    zip.finish().unwrap();
    out
}

/// Replaces a 16-bit or 32-bit field of the first directory header.
fn patch(bytes: &mut [u8], field: usize, value: &[u8]) {
    let at = bytes.windows(4).position(|window| window == b"PK\x01\x02").unwrap() + field;
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[test]
fn deflated_members_are_decoded() {
    let data: Vec<u8> = (0..5000u32).flat_map(|i| (i / 7).to_le_bytes()).collect();
    let bytes = deflated("a/data/0", &data);
    assert_eq!(read(&bytes).unwrap(), [("a/data/0".to_owned(), data.clone())]);
    let archive = Archive::read(&source(&bytes), &Limits::default()).unwrap();
    assert_eq!((archive.members()[0].method, archive.members()[0].plain()), (Method::Deflated, None));
    for len in 0..bytes.len() {
        assert!(read(&bytes[..len]).is_err());
    }
    for at in (0..bytes.len() * 8).step_by(3) {
        let mut flipped = bytes.clone();
        flipped[at / 8] ^= 1 << (at % 8);
        if let Ok(members) = read(&flipped) {
            assert_eq!(members[0].1, data, "bit {at}");
        }
    }
}

#[test]
fn claims_beyond_the_stored_bytes_are_refused() {
    let bytes = deflated("bomb", &[0; 100_000]);
    let mut huge = bytes.clone();
    patch(&mut huge, 24, &0xfff0_0000u32.to_le_bytes());
    assert_eq!(read(&huge).unwrap_err().kind(), Kind::Limit);
    let source = source(&huge);
    let archive = Archive::read(&source, &Limits::unbounded()).unwrap();
    let limit = read_member(&source, &archive.members()[0], &Limits::default(), u64::MAX).unwrap_err();
    assert!(limit.to_string().contains("4293918720 bytes out of"), "{limit}");
    let mut longer = bytes.clone();
    patch(&mut longer, 24, &100_001u32.to_le_bytes());
    assert!(read(&longer).unwrap_err().to_string().contains("ends 1 bytes early"));
    let mut shorter = bytes;
    patch(&mut shorter, 24, &99_999u32.to_le_bytes());
    assert!(read(&shorter).unwrap_err().to_string().contains("longer than it says"));
}

#[test]
fn a_wrong_sum_names_the_member() {
    let mut bytes = write(MEMBERS, 64);
    let at = bytes.windows(8).position(|window| window == [7; 8]).unwrap();
    bytes[at] = 8;
    let error = read(&bytes).unwrap_err();
    assert_eq!(error.kind(), Kind::Checksum);
    assert!(error.to_string().contains("archive/data/0"), "{error}");
}

#[test]
fn a_sum_of_zero_is_no_sum() {
    let mut bytes = write(&[("m", b"data")], 1);
    patch(&mut bytes, 16, &[0; 4]);
    let source = source(&bytes);
    let archive = Archive::read(&source, &Limits::default()).unwrap();
    assert_eq!(archive.members()[0].crc, None);
    assert_eq!(read(&bytes).unwrap()[0].1, b"data");
}

#[test]
fn other_methods_are_an_error_only_where_they_are_read() {
    for (field, value, word) in [(10, [12, 0], "bzip2"), (8, [1, 8], "encrypted")] {
        let mut bytes = write(MEMBERS, 64);
        patch(&mut bytes, field, &value);
        let source = source(&bytes);
        let archive = Archive::read(&source, &Limits::default()).unwrap();
        let error = read_member(&source, &archive.members()[0], &Limits::default(), 100).unwrap_err();
        assert_eq!(error.kind(), Kind::Unsupported);
        assert!(error.to_string().contains(word), "{error}");
        assert!(read_member(&source, &archive.members()[3], &Limits::default(), 100).is_ok());
    }
}

#[test]
fn overlapping_and_missing_members_are_refused() {
    let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let good = write(MEMBERS, 64);
    // The first member's header given as the second's place: both would have the same bytes.
    let mut overlap = good.clone();
    let second = overlap.windows(4).enumerate().filter(|(_, w)| *w == b"PK\x01\x02").nth(1).unwrap().0;
    overlap[second + 42..second + 46].copy_from_slice(&[0; 4]);
    overlap[second + 20..second + 28].copy_from_slice(&[4, 0, 0, 0, 4, 0, 0, 0]);
    assert!(message(&overlap).contains("overlap"), "{}", message(&overlap));
    let mut beyond = good.clone();
    patch(&mut beyond, 42, &0x7000_0000u32.to_le_bytes());
    assert!(message(&beyond).contains("starts at byte"), "{}", message(&beyond));
    let mut headerless = good.clone();
    patch(&mut headerless, 42, &1u32.to_le_bytes());
    assert!(message(&headerless).contains("no local header"), "{}", message(&headerless));
    let mut long = good.clone();
    patch(&mut long, 20, &[0, 0, 1, 0, 0, 0, 1, 0]);
    assert!(message(&long).contains("needs 65536 bytes"), "{}", message(&long));
    let mut unequal = good;
    patch(&mut unequal, 20, &[3, 0, 0, 0]);
    assert!(message(&unequal).contains("stored in 3 bytes"), "{}", message(&unequal));
}

#[test]
fn two_members_of_one_name_are_an_error_where_they_are_asked_for() {
    let bytes = write(&[("a", b"1"), ("b", b"2"), ("c", b"3")], 1);
    let twice: Vec<u8> = bytes.iter().map(|&byte| if byte == b'b' { b'a' } else { byte }).collect();
    let archive = Archive::read(&source(&twice), &Limits::default()).unwrap();
    assert!(archive.find("a").unwrap_err().to_string().contains("two members"));
    assert!(archive.find("c").unwrap().is_some());
}

#[test]
fn comments_preludes_and_empty_archives() {
    let mut bytes = write(MEMBERS, 64);
    let len = bytes.len();
    bytes[len - 2..].copy_from_slice(&[5, 0]);
    bytes.extend(b"hello");
    assert_eq!(read(&bytes).unwrap().len(), 4);
    assert_eq!(read(b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0").unwrap(), []);
    assert!(read(b"").is_err());
    assert!(read(b"hello world").unwrap_err().to_string().contains("no zip archive"));
}
