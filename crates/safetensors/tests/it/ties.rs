//! Tensors of several names.

use crate::support::{OneFile, bytes_of, file_of, open};
use weightlift_core::{DType, Extras, Format, Manifest, Shape, WriteOptions};
use weightlift_safetensors::{Metadata, Safetensors};
use weightlift_testkit::fixture;

#[test]
fn a_second_name_in_the_metadata_is_a_tensor_over_the_same_bytes() {
    let checkpoint = open(&fixture("safetensors/tied_model.safetensors").path).unwrap();
    let [kept, tied] = &checkpoint.catalog().entries[..] else { panic!("two entries") };
    assert_eq!((kept.name.as_str(), tied.name.as_str()), ("emb.weight", "head.weight"));
    assert_eq!((kept.extents().unwrap(), &kept.shape), (tied.extents().unwrap(), &tied.shape));
    assert_eq!(tied.remarks, ["tied to emb.weight"]);
    assert_eq!(bytes_of(checkpoint.as_ref(), 0), bytes_of(checkpoint.as_ref(), 1));
}

#[test]
fn other_metadata_name_no_tensors() {
    let tensor =
        |name: &str, at: u64| format!(r#""{name}":{{"dtype":"U8","shape":[1],"data_offsets":[{at},{}]}}"#, at + 1);
    let metadata = r#""__metadata__":{"format":"pt","a":"b","c":"d","b":"a","e":""}"#;
    let tensors = [("a", 0), ("b", 1), ("pt", 2), ("", 3)].map(|(name, at)| tensor(name, at));
    let json = format!("{{{metadata},{}}}", tensors.join(","));
    let file = OneFile::new(&file_of(&json, 4));
    let names: Vec<String> = open(&file.path).unwrap().catalog().entries.iter().map(|e| e.name.clone()).collect();
    assert_eq!(names, ["a", "b", "pt", ""]);
}

/// Written once, listed twice, and so again when it is read back and renamed.
#[test]
fn shared_bytes_are_written_once_and_stay_shared() {
    let file = OneFile::new(b"");
    let mut metadata = Metadata::absent();
    for names in [["embed", "head"], ["embed.weight", "head.weight"]] {
        let mut manifest = Manifest::default();
        let blob = manifest.add_tensor(names[0], DType::U8, Shape::new([3]).unwrap());
        let mut tied = manifest.tensors[0].clone();
        names[1].clone_into(&mut tied.name);
        manifest.tensors.push(tied);
        manifest.extras.push((0, Extras::new(metadata)));
        let mut options = WriteOptions::default();
        options.replace = true;
        let writer = Safetensors.create(weightlift_io::real(), &file.path, manifest, &options).unwrap();
        writer.write_at(blob, 0, b"abc").unwrap();
        writer.finish().unwrap();

        let bytes = std::fs::read(&file.path).unwrap();
        assert_eq!(safetensors::SafeTensors::deserialize(&bytes).unwrap().names(), [names[0]]);
        let checkpoint = open(&file.path).unwrap();
        let catalog = checkpoint.catalog();
        assert_eq!(catalog.entries.iter().map(|entry| &entry.name).collect::<Vec<_>>(), names);
        assert_eq!(bytes_of(checkpoint.as_ref(), 1), b"abc");
        metadata = catalog.extras.as_ref().unwrap().get::<Metadata>().unwrap().clone();
        let mut pairs: Vec<_> = metadata.pairs().collect();
        pairs.sort_unstable();
        assert_eq!(pairs, [("format", "pt"), (names[1], names[0])]);
    }
}
