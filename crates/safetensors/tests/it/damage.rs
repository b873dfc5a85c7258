//! Files cut short or with a bit flipped are refused, and nothing panics.

use crate::support::{open, open_bytes, open_with};
use safetensors::SafeTensors;
use weightlift_core::{Kind, Limits};
use weightlift_testkit::fixture;

const SOUND: &[&str] = &["plain", "metadata", "order", "shapes", "low_dtypes", "unaligned", "escapes", "padded"];

fn bytes(name: &str) -> Vec<u8> {
    std::fs::read(fixture(&format!("safetensors/{name}.safetensors")).path).unwrap()
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    for name in SOUND {
        let whole = bytes(name);
        open_bytes(&whole).unwrap();
        for len in (0..whole.len()).rev() {
            let Err(error) = open_bytes(&whole[..len]) else { panic!("{name} cut to {len} bytes was accepted") };
            let message = error.to_string();
            let told = if len == 0 { "an empty file".to_owned() } else { format!("bytes, has {len}") };
            assert!(message.contains(&told) && error.kind() == Kind::Malformed, "{name} cut to {len}: {message}");
        }
    }
}

/// Every bit of length and header: what the reference refuses is refused here, and what it reads reads the same, but
/// for names that stand twice.
#[test]
fn a_flipped_bit_of_the_header_gets_the_verdict_of_the_reference() {
    let mut accepted = 0;
    for name in SOUND {
        let mut damaged = bytes(name);
        let header = 8 + u64::from_le_bytes(damaged[..8].try_into().unwrap()) as usize;
        for bit in 0..header * 8 {
            damaged[bit / 8] ^= 1 << (bit % 8);
            match (open_bytes(&damaged), SafeTensors::deserialize(&damaged)) {
                (Ok(ours), Ok(theirs)) => {
                    accepted += 1;
                    assert_eq!(ours.len(), theirs.len());
                    for (tensor, bytes) in ours {
                        assert_eq!(bytes, theirs.tensor(&tensor).unwrap().data(), "{name} bit {bit}");
                    }
                }
                (Err(ours), Ok(_)) => assert!(ours.message().contains("stands twice"), "{name} bit {bit}: {ours}"),
                (Ok(_), Err(theirs)) => panic!("{name} bit {bit}: the reference says {theirs}"),
                (Err(_), Err(_)) => {}
            }
            damaged[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(accepted > 1000, "flips within names and metadata stay readable: {accepted}");
}

#[test]
fn every_limit_stops() {
    let shapes = fixture("safetensors/shapes.safetensors").path;
    let refused = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        let error = open_with(&shapes, limits).err().unwrap();
        assert_eq!(error.kind(), Kind::Limit, "{error}");
        error.to_string()
    };
    open_with(&shapes, Limits::unbounded()).unwrap();
    assert!(refused(|limits| limits.tensors = 5).contains("more than the 5 tensors allowed"));
    assert!(refused(|limits| limits.rank = 2).contains("more than the 2 dimensions allowed"));
    assert!(refused(|limits| limits.name_bytes = 9).contains("a name of 10 bytes, where 9 are allowed"));
    assert!(refused(|limits| limits.header_bytes = 100).contains("where 100 are allowed"));
    let exact = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        open_with(&shapes, limits).is_ok()
    };
    assert!(exact(|limits| (limits.tensors, limits.rank, limits.name_bytes) = (6, 3, 10)));
}

#[test]
fn a_missing_file_is_named() {
    let path = std::path::Path::new("no/such/model.safetensors");
    let error = open(path).err().unwrap();
    assert_eq!((error.kind(), error.place().file.as_deref()), (Kind::Io, Some(path)));
}
