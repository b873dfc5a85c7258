//! The parts in which a checkpoint stores a tensor.

use serde_json::{Value, json};
use weightlift::{Catalog, Entry, Extent, Source};

/// The parts of a tensor that is stored in several; none of one that is stored whole.
pub(super) fn of(entry: &Entry) -> &[Extent] {
    entry.extents().ok().filter(|extents| extents.len() > 1).unwrap_or_default()
}

/// Where a part lies, for people.
pub(super) fn place(catalog: &Catalog, extent: &Extent) -> String {
    match catalog.source(extent.source) {
        Source::File { path, .. } => {
            let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            format!("{name} at {}", extent.bytes.start())
        }
        Source::Decoded { label, .. } => label.clone(),
    }
}

/// A part with the box that it fills.
pub(super) fn to_json(catalog: &Catalog, extent: &Extent) -> Value {
    let mut value =
        json!({"start": extent.region.start, "shape": extent.region.size.dims(), "bytes": extent.bytes.len()});
    if let Source::File { path, .. } = catalog.source(extent.source) {
        value["file"] = json!(path.display().to_string());
        value["offset"] = json!(extent.bytes.start());
    }
    value
}
