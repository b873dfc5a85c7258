//! The order of the header, where it is another than that of the bytes.

use crate::support::{OneFile, file_of, open};
use std::path::Path;
use weightlift_core::{BlobId, Format, Manifest, Origin, Shape, WriteOptions};
use weightlift_safetensors::Safetensors;

/// Writes a file back as the converter does: tensors in catalog order, blobs in the order of their bytes.
fn rewrite(from: &Path, to: &Path, names: impl Fn(&str) -> String) {
    let checkpoint = open(from).unwrap();
    let catalog = checkpoint.catalog();
    let mut manifest = Manifest::default();
    for (id, entry) in catalog.iter() {
        manifest.add_tensor(&names(&entry.name), entry.dtype, Shape::new(entry.shape.dims()).unwrap());
        manifest.tensors.last_mut().unwrap().origin = Some(Origin { input: 0, entry: id });
    }
    manifest.extras.push((0, catalog.extras.clone().unwrap()));
    let writer = Safetensors.create(weightlift_io::real(), to, manifest, &WriteOptions::default()).unwrap();
    for (id, _) in catalog.iter() {
        let bytes = crate::support::bytes_of(checkpoint.as_ref(), id.0 as usize);
        writer.write_at(BlobId(id.0), 0, &bytes).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn a_header_in_another_order_is_written_back_in_it() {
    let tensor = |name: &str, begin: u64| {
        format!(r#""{name}":{{"dtype":"U8","shape":[2],"data_offsets":[{begin},{}]}}"#, begin + 2)
    };
    let json = format!("{{{},{},{}}}", tensor("z", 4), tensor("a", 0), tensor("m", 2));
    let padded = format!("{json:width$}", width = json.len().next_multiple_of(8));
    let file = OneFile::new(&file_of(&padded, 6));
    let names = |path: &Path| -> Vec<String> {
        open(path).unwrap().catalog().entries.iter().map(|entry| entry.name.clone()).collect()
    };
    assert_eq!(names(&file.path), ["a", "m", "z"], "listed in the order of their bytes");
    let copy = file.path.with_file_name("copy.safetensors");
    rewrite(&file.path, &copy, str::to_owned);
    assert_eq!(std::fs::read(&copy).unwrap(), std::fs::read(&file.path).unwrap(), "the same file, byte for byte");
    let renamed = file.path.with_file_name("renamed.safetensors");
    rewrite(&file.path, &renamed, |name| format!("{name}{name}"));
    let text = String::from_utf8_lossy(&std::fs::read(&renamed).unwrap()).into_owned();
    let place = |name: &str| text.find(name).unwrap();
    assert!(place("\"zz\"") < place("\"aa\"") && place("\"aa\"") < place("\"mm\""), "{text}");
}
