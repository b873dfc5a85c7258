//! Headers written by hand, one rule each.

use crate::support::{OneFile, bytes_of, file_of, open, refused};
use weightlift_safetensors::Metadata;

fn accepted(json: &str, bytes: usize) -> Vec<(String, Vec<u8>)> {
    let file = OneFile::new(&file_of(json, bytes));
    let checkpoint = open(&file.path).unwrap_or_else(|error| panic!("{json}: {error}"));
    let entries = checkpoint.catalog().entries.iter().enumerate();
    entries.map(|(index, entry)| (entry.name.clone(), bytes_of(checkpoint.as_ref(), index))).collect()
}

#[test]
fn a_thousand_by_a_thousand_over_four_bytes_is_refused() {
    let message = refused(r#"{"w":{"dtype":"F32","shape":[1000,1000],"data_offsets":[0,4]}}"#, 4);
    assert!(message.contains("tensor \"w\" at byte 70: f32 of shape [1000, 1000] needs 4000000 bytes"), "{message}");
}

#[test]
fn names_that_stand_twice_are_refused_by_name() {
    let twice = r#"{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"\u0077":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}"#;
    assert_eq!(refused(twice, 4), "tensor \"w\": the name stands twice in the header");
    let metadata = r#"{"__metadata__":{},"__metadata__":{}}"#;
    assert!(refused(metadata, 0).contains("__metadata__ stands twice"));
    let field = r#"{"w":{"dtype":"U8","shape":[2],"shape":[2],"data_offsets":[0,2]}}"#;
    let message = refused(field, 2);
    assert!(message.contains("tensor \"w\" at byte 49: bad header: duplicate field `shape`"), "{message}");
}

#[test]
fn metadata_are_texts_anywhere_or_null() {
    let with =
        |value: &str| format!(r#"{{"w":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}},"__metadata__":{value}}}"#);
    let metadata = |value: &str| {
        let file = OneFile::new(&file_of(&with(value), 1));
        let checkpoint = open(&file.path).unwrap();
        let extras = checkpoint.catalog().extras.clone().unwrap();
        extras.get::<Metadata>().unwrap().clone()
    };
    assert!(metadata("null").is_absent());
    assert!(!metadata("{}").is_absent());
    let last = metadata(r#"{"b":"1","a":"2","b":"3"}"#);
    assert_eq!(last.pairs().collect::<Vec<_>>(), [("b", "3"), ("a", "2")]);
    for value in [r#"{"step":0}"#, r#"{"a":null}"#, "[]", "7", r#""text""#] {
        let message = refused(&with(value), 1);
        assert!(message.contains("__metadata__ holds texts only"), "{message}");
    }
}

#[test]
fn padding_is_json_white_space_and_nothing_else() {
    let json = r#"{"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    for (before, after) in [("", "   "), (" \n", ""), ("", "\r\n\t ")] {
        assert_eq!(accepted(&format!("{before}{json}{after}"), 1).len(), 1);
    }
    assert!(refused(&format!("{json}\0\0\0"), 1).starts_with("byte 61: the header is padded with NUL bytes"));
    assert!(refused(&format!("{json}  x"), 1).contains("trailing characters"));
    assert!(refused("", 0).contains("no JSON object where the header must be"));
}

#[test]
fn the_offset_of_an_error_counts_lines() {
    let json = "{\n  \"w\": {\"dtype\": \"F31\", \"shape\": [],\n  \"data_offsets\": [0, 4]}}";
    let message = refused(json, 4);
    let end = 8 + json.find("F31").unwrap() + 3;
    assert!(message.starts_with(&format!("tensor \"w\" at byte {end}: unknown dtype \"F31\"")), "{message}");
}

#[test]
fn tensors_are_listed_in_the_order_of_their_bytes() {
    let json = concat!(
        r#"{"late":{"dtype":"U8","shape":[3],"data_offsets":[3,6]},"#,
        r#""none":{"dtype":"I64","shape":[4,0],"data_offsets":[3,3]},"#,
        r#""early":{"dtype":"U8","shape":[3],"data_offsets":[0,3],"note":{"deep":[[[]]]}}}"#
    );
    let expected = [("early", &[0u8, 1, 2][..]), ("none", &[]), ("late", &[3, 4, 5])];
    let found = accepted(json, 6);
    assert!(found.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).eq(expected), "{found:?}");
}

#[test]
fn elements_narrower_than_a_byte_are_counted_as_elements() {
    let json = |dtype: &str, dim: u64, bytes: u64| {
        format!(r#"{{"w":{{"dtype":"{dtype}","shape":[{dim}],"data_offsets":[0,{bytes}]}}}}"#)
    };
    assert_eq!(accepted(&json("F4", 6, 3), 3)[0].1, [0, 1, 2]);
    assert_eq!(accepted(&json("F6_E3M2", 4, 3), 3)[0].1, [0, 1, 2]);
    assert!(refused(&json("F4", 5, 3), 3).contains("20 bits, which do not fill whole bytes"));
    assert!(refused(&json("F6_E2M3", 3, 3), 3).contains("18 bits"));
}

#[test]
fn what_is_no_header_is_refused() {
    let tensor = |value: &str| format!(r#"{{"w":{value}}}"#);
    for (value, part) in [
        ("7", "expected an object with dtype, shape and data_offsets"),
        (r#"["U8",[1],[0,1]]"#, "expected an object with dtype, shape and data_offsets"),
        (r#"{"dtype":"u8","shape":[1],"data_offsets":[0,1]}"#, "unknown dtype \"u8\""),
        (r#"{"dtype":8,"shape":[1],"data_offsets":[0,1]}"#, "expected the name of a dtype"),
        (r#"{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}"#, "floating point `1.0`"),
        (r#"{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}"#, "integer `-1`"),
        (r#"{"dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,1]}"#, "floating point"),
        (r#"{"dtype":"U8","shape":1,"data_offsets":[0,1]}"#, "expected a list of whole numbers"),
        (r#"{"dtype":"U8","shape":[1],"data_offsets":[0]}"#, "two numbers, not 1"),
        (
            r#"{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}"#,
            "data_offsets give 18446744073709551615",
        ),
        (r#"{"dtype":"U8","shape":[1],"data_offsets":[18446744073709551615,18446744073709551615]}"#, "needs 1 bytes"),
        (r#"{"dtype":"U8","shape":[0],"data_offsets":[18446744073709551615,18446744073709551615]}"#, "leave a gap"),
    ] {
        let message = refused(&tensor(value), 1);
        assert!(message.contains(part) && message.contains("tensor \"w\""), "{message}\nlacks {part}");
    }
}
