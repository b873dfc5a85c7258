//! safetensors files as they are met: odd but sound ones read, broken ones refused with the tensor and a way out.

use crate::command::{path, stderr, weightlift};
use std::path::{Path, PathBuf};
use weightlift::{Error, OpenOptions, Opened, Plan, SaveOptions};
use weightlift_testkit::fixture;

/// A file with this JSON text and these bytes after it.
pub fn file(dir: &Path, json: &str, data: &[u8]) -> PathBuf {
    let path = dir.join("in.safetensors");
    let header = (json.len() as u64).to_le_bytes();
    std::fs::write(&path, [&header[..], json.as_bytes(), data].concat()).unwrap();
    path
}

/// The member of a tensor in a header.
pub fn member(name: &str, dtype: &str, shape: &str, begin: u64, end: u64) -> String {
    format!(r#""{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{begin},{end}]}}"#)
}

fn open_bytes(json: &str, data: &[u8]) -> Result<Opened, Error> {
    let dir = tempfile::tempdir().unwrap();
    weightlift::open(file(dir.path(), json, data))
}

fn refusal(json: &str, data: &[u8]) -> String {
    open_bytes(json, data).err().unwrap_or_else(|| panic!("{json} was accepted")).to_string()
}

pub fn open_leniently(path: &Path) -> Opened {
    let mut options = OpenOptions::default();
    options.lenient = true;
    weightlift::open_with(path, &options).unwrap()
}

pub fn save(from: &Path, to: &Path) -> weightlift::Report {
    weightlift::open(from).unwrap().save(&Plan::new(), to, &SaveOptions::default()).unwrap()
}

pub fn names(path: &Path) -> Vec<String> {
    weightlift::open(path).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect()
}

#[test]
fn a_name_that_stands_twice_is_refused_by_name() {
    let twice = format!("{{{},{}}}", member("w.weight", "U8", "2", 0, 2), member("w.weight", "U8", "2", 0, 2));
    let message = refusal(&twice, &[1, 2]);
    assert!(message.contains("tensor \"w.weight\": the name stands twice"), "{message}");
}

/// Numbers in the metadata: refused with the switch named, read as text with it, and written as text.
#[test]
fn numbers_in_the_metadata_become_text_where_that_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let json = format!(r#"{{"__metadata__":{{"step":0,"lr":1e-3}},{}}}"#, member("w", "U8", "1", 0, 1));
    let input = file(dir.path(), &json, &[7]);
    let out = dir.path().join("out.safetensors");
    let refused = weightlift(&["convert", path(&input), path(&out)]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("--lenient"), "{}", stderr(&refused));
    let lenient = weightlift(&["convert", path(&input), path(&out), "--lenient"]);
    assert!(lenient.status.success(), "{}", stderr(&lenient));
    assert!(stderr(&lenient).contains("warning: ") && stderr(&lenient).contains("\"step\" is no text but 0"));
    let text = String::from_utf8_lossy(&std::fs::read(&out).unwrap()).into_owned();
    assert!(text.contains(r#""__metadata__":{"step":"0","lr":"0.001","format":"pt"}"#), "{text}");
    assert!(weightlift::open(&out).is_ok(), "what is written needs no switch");
}

#[test]
fn a_file_of_metadata_alone_and_empty_metadata_are_sound() {
    let dir = tempfile::tempdir().unwrap();
    for (json, expected) in [
        (r#"{"__metadata__":{"a":"b"}}"#, r#"{"__metadata__":{"a":"b","format":"pt"}}"#),
        (r#"{"__metadata__":{}}"#, r#"{"__metadata__":{"format":"pt"}}"#),
        ("{}", "{}"),
    ] {
        let out = dir.path().join("out.safetensors");
        let input = file(dir.path(), json, &[]);
        let opened = weightlift::open(&input).unwrap();
        assert_eq!(opened.catalog().entries.len(), 0);
        let mut options = SaveOptions::default();
        options.options.replace = true;
        opened.save(&Plan::new(), &out, &options).unwrap();
        let written = std::fs::read(&out).unwrap();
        assert_eq!(String::from_utf8_lossy(&written[8..]).trim_end(), expected);
        assert!(weightlift::open(&out).is_ok());
    }
}

/// Padding of NUL bytes is read with the switch, and spaces are written.
#[test]
fn nul_padding_needs_the_switch_and_is_never_written() {
    let input = fixture("safetensors/bad_nul_padding.safetensors").path;
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out.safetensors");
    let refused = weightlift(&["convert", path(&input), path(&out)]);
    assert!(stderr(&refused).contains("padded with NUL bytes") && stderr(&refused).contains("--lenient"));
    let lenient = weightlift(&["convert", path(&input), path(&out), "--lenient"]);
    assert!(lenient.status.success() && stderr(&lenient).contains("NUL bytes, where the format has spaces"));
    let bytes = std::fs::read(&out).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    assert!(!bytes[8..8 + length].contains(&0));
    for verb in [&["ls", path(&input), "--lenient"][..], &["cat", path(&input), "x", "--lenient"]] {
        assert!(weightlift(verb).status.success(), "{verb:?}");
    }
}

/// Tensors without elements go through every format and back; an element without bytes does not.
#[test]
fn tensors_without_elements_survive_every_format() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [
        member("scaled_fp8", "F8_E4M3", "0", 0, 0),
        member("two", "F32", "0,4", 0, 0),
        member("scalar", "I16", "", 0, 2),
    ];
    let input = file(dir.path(), &format!("{{{}}}", tensors.join(",")), &[3, 1]);
    let shapes = |path: &Path| -> Vec<(String, String)> {
        let opened = weightlift::open(path).unwrap();
        let one = |entry: &weightlift::Entry| (entry.name.clone(), format!("{}{}", entry.dtype, entry.shape));
        let mut shapes: Vec<_> = opened.catalog().entries.iter().map(one).collect();
        shapes.sort();
        shapes
    };
    for middle in ["middle.pt", "middle.ckpt", "middle.safetensors"] {
        let (middle, back) = (dir.path().join(middle), dir.path().join("back.safetensors"));
        save(&input, &middle);
        let mut options = SaveOptions::default();
        options.options.replace = true;
        weightlift::open(&middle).unwrap().save(&Plan::new(), &back, &options).unwrap();
        assert_eq!(shapes(&back), shapes(&input), "{}", middle.display());
        assert_eq!(weightlift::open(&back).unwrap().read("scalar").unwrap(), [3, 1]);
    }
    let message = refusal(&format!("{{{}}}", member("x", "F32", "1", 0, 0)), &[]);
    assert!(
        message.contains("tensor \"x\"") && message.contains("needs 4 bytes, but data_offsets give 0"),
        "{message}"
    );
}

#[test]
fn offsets_that_do_not_fit_are_refused_with_the_tensor() {
    let two = |begin, end| format!("{{{},{}}}", member("a", "U8", "4", 0, 4), member("b", "U8", "4", begin, end));
    let huge = member("w", "F32", "4294967296,4294967296,4", 0, 4);
    for (json, part) in [
        (
            format!("{{{}}}", member("w", "F32", "1000,1000", 0, 4)),
            "\"w\" at byte 70: f32 of shape [1000, 1000] needs 4000000",
        ),
        (two(2, 6), "\"b\" at byte"),
        (two(5, 9), "leave a gap after the tensor before"),
        (two(8, 4), "end before they begin"),
        (two(4, 80), "needs 4 bytes, but data_offsets give 76"),
        (format!("{{{huge}}}"), "more elements than 2^63"),
    ] {
        let message = refusal(&json, &[0; 8]);
        assert!(message.contains(part), "{message}\nlacks {part}");
    }
}

#[test]
fn trailing_bytes_are_an_error_or_with_the_switch_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let input = file(dir.path(), &format!("{{{}}}", member("w", "U8", "2", 0, 2)), &[1, 2, 3, 4, 5]);
    let message = weightlift::open(&input).err().unwrap().to_string();
    assert!(message.contains("3 bytes follow the last tensor") && message.contains("--lenient"), "{message}");
    let opened = open_leniently(&input);
    assert_eq!(opened.read("w").unwrap(), [1, 2]);
    assert!(opened.warnings().any(|warning| warning.contains("3 bytes after the last tensor are left aside")));
    let out = dir.path().join("out.safetensors");
    opened.save(&Plan::new(), &out, &SaveOptions::default()).unwrap();
    assert_eq!(weightlift::open(&out).unwrap().read("w").unwrap(), [1, 2]);
}

/// An odd byte tensor before floats, in a header of no multiple of 8: read as it is, and written with aligned data.
#[test]
fn misaligned_tensors_are_read_and_data_written_aligned() {
    let dir = tempfile::tempdir().unwrap();
    let json = format!("{{{},{}}}", member("u", "U8", "3", 0, 3), member("f", "F32", "2", 3, 11));
    let json = format!("{json:width$}", width = json.len().next_multiple_of(8) + 3);
    let data = [9, 8, 7, 0, 0, 128, 63, 0, 0, 0, 64];
    let input = file(dir.path(), &json, &data);
    let opened = weightlift::open(&input).unwrap();
    assert_eq!((opened.read("u").unwrap(), opened.read("f").unwrap()), (data[..3].to_vec(), data[3..].to_vec()));
    let out = dir.path().join("out.safetensors");
    save(&input, &out);
    let bytes = std::fs::read(&out).unwrap();
    assert_eq!(u64::from_le_bytes(bytes[..8].try_into().unwrap()) % 8, 0);
    assert_eq!(weightlift::open(&out).unwrap().read("f").unwrap(), data[3..]);
    let text = dir.path().join("out.pt");
    save(&input, &text);
    assert_eq!(weightlift::open(&text).unwrap().read("f").unwrap(), data[3..]);
}

/// z, a, m: the order of the file in the listing, in a PyTorch file, and back.
#[test]
fn the_order_of_a_file_survives_every_way() {
    let dir = tempfile::tempdir().unwrap();
    let tensors = [member("z", "U8", "1", 0, 1), member("a", "U8", "1", 1, 2), member("m", "U8", "1", 2, 3)];
    let input = file(dir.path(), &format!("{{{}}}", tensors.join(",")), &[1, 2, 3]);
    assert_eq!(names(&input), ["z", "a", "m"]);
    let (torch, back) = (dir.path().join("out.pt"), dir.path().join("back.safetensors"));
    save(&input, &torch);
    assert_eq!(names(&torch), ["z", "a", "m"]);
    save(&torch, &back);
    assert_eq!(names(&back), ["z", "a", "m"]);
    // Where the header has another order than the bytes, both are kept.
    let shuffled = fixture("safetensors/header_order.safetensors").path;
    let copy = dir.path().join("copy.safetensors");
    save(&shuffled, &copy);
    let members = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let json: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        json.into_iter().filter(|(name, _)| name != "__metadata__").collect::<Vec<_>>()
    };
    assert_eq!(members(&copy), members(&shuffled));
    let order: Vec<_> = members(&copy).into_iter().map(|(name, _)| name).collect();
    assert_ne!(order, names(&copy), "the fixture has two orders");
}

/// All 256 codes of the 8-bit floats are listed, copied and cast.
#[test]
fn eight_bit_floats_are_listed_copied_and_cast() {
    let dir = tempfile::tempdir().unwrap();
    let codes: Vec<u8> = (0..=255).collect();
    let tensors = [member("e4m3", "F8_E4M3", "256", 0, 256), member("e5m2", "F8_E5M2", "256", 256, 512)];
    let input = file(dir.path(), &format!("{{{}}}", tensors.join(",")), &[&codes[..], &codes[..]].concat());
    let listed = weightlift(&["ls", path(&input)]);
    assert!(String::from_utf8_lossy(&listed.stdout).contains("e4m3  f8e4m3fn  [256]"), "{listed:?}");
    let copy = dir.path().join("copy.pt");
    save(&input, &copy);
    assert_eq!(weightlift::open(&copy).unwrap().read("e5m2").unwrap(), codes);
    let wide = dir.path().join("wide.safetensors");
    assert!(weightlift(&["convert", path(&input), path(&wide), "--dtype", "f32"]).status.success());
    let floats = |name: &str| -> Vec<f32> {
        let bytes = weightlift::open(&wide).unwrap().read(name).unwrap();
        bytes.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    };
    let (e4m3, e5m2) = (floats("e4m3"), floats("e5m2"));
    assert_eq!((e4m3[0x7e], e4m3[0x08], e4m3[0x01]), (448.0, 0.015625, 0.001953125));
    assert_eq!((e5m2[0x7b], e5m2[0x7c], e5m2[0x01]), (57344.0, f32::INFINITY, 2f32.powi(-16)));
    assert_eq!((e4m3.iter().filter(|f| f.is_nan()).count(), e5m2.iter().filter(|f| f.is_nan()).count()), (2, 6));
    let back = dir.path().join("back.safetensors");
    let arguments = ["convert", path(&wide), path(&back), "--dtype", "e4m3=f8e4m3fn", "--dtype", "e5m2=f8e5m2"];
    assert!(weightlift(&[&arguments[..], &["--on-overflow", "inf"]].concat()).status.success());
    let again = weightlift::open(&back).unwrap().read("e4m3").unwrap();
    assert!(again.iter().zip(&codes).all(|(a, b)| a == b || b & 0x7f == 0x7f), "finite codes come back");
}

/// Headers that other readers refuse: a warning where one is written, the switch where one is read.
#[test]
fn a_header_beyond_a_hundred_megabytes_is_warned_of_and_needs_the_switch() {
    let dir = tempfile::tempdir().unwrap();
    // 1300 names of 77 kB each would exceed the limit on names; 60,000 bytes are allowed.
    let long = "n".repeat(60_000);
    let members: Vec<String> = (0..1670).map(|n| member(&format!("{long}{n}"), "U8", "0", 0, 0)).collect();
    let json = format!("{{{}}}", members.join(","));
    assert!(json.len() > 100_000_000);
    let input = file(dir.path(), &json, &[]);
    let refused = weightlift::open(&input).err().unwrap().to_string();
    assert!(refused.contains("more than the 100000000 that other readers take (--lenient reads it)"), "{refused}");
    let opened = open_leniently(&input);
    assert_eq!(opened.catalog().entries.len(), 1670);
    let report = opened.save(&Plan::new(), dir.path().join("out.safetensors"), &SaveOptions::default()).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("but the safetensors library reads 100000000")), "{report:?}");
}

#[test]
fn files_cut_short_and_pointers_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let json = format!("{{{}}}", member("w", "F32", "8", 0, 32));
    let input = file(dir.path(), &json, &[0; 20]);
    let needed = 8 + json.len() + 32;
    let message = weightlift::open(&input).err().unwrap().to_string();
    assert!(message.contains(&format!("truncated: needs {needed} bytes, has {}", needed - 12)), "{message}");
    assert!(message.contains("fetch it again"), "{message}");
    std::fs::write(&input, &(200_000_000u64.to_le_bytes())[..]).unwrap();
    let message = weightlift::open(&input).err().unwrap().to_string();
    assert!(message.contains("truncated: needs 200000008 bytes, has 8"), "{message}");
    let message = weightlift::open(fixture("safetensors/bad_lfs_pointer.safetensors").path).err().unwrap().to_string();
    assert!(message.contains("a Git LFS pointer to a file of"), "{message}");
    std::fs::write(&input, b"GGUF\x03\0\0\0 and more bytes").unwrap();
    assert!(weightlift::open(&input).err().unwrap().to_string().contains("a GGUF file"));
}
