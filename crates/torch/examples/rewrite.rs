//! Writes a checkpoint anew, storages shared as they are: `cargo run --example rewrite -- in.pt out.pt`; with `flat` behind,
//! without the objects around the tensors.

use std::collections::HashMap;
use std::path::Path;
use weightlift_core::{
    ByteOrder, Checkpoint, DType, Data, EntryId, Extent, Format, Manifest, OpenOptions, Origin, Output, Packing, Part,
    Region, Result, WriteOptions,
};
use weightlift_kernels::swap;
use weightlift_torch::Torch;

/// The extent of an entry that is one view of one storage as it is.
fn storage(checkpoint: &dyn Checkpoint, id: EntryId) -> Option<&Extent> {
    match &checkpoint.catalog().entry(id).data {
        Data::Extents(extents) => extents.first(),
        Data::Absent(_) | Data::Broken(_) => None,
    }
}

/// Quantized integers are written as plain ones.
fn plain(dtype: DType) -> DType {
    match dtype {
        DType::Qi8 => DType::I8,
        DType::Qu8 => DType::U8,
        DType::Qi32 => DType::I32,
        other => other,
    }
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, from, to, flat @ ..] = arguments.as_slice() else { return Ok(()) };
    let files = weightlift_io::real();
    let checkpoint = Torch.open(files.clone(), Path::new(from), &OpenOptions::default())?;
    let catalog = checkpoint.catalog();
    let mut manifest = Manifest::default();
    let (mut blobs, mut wanted) = (HashMap::new(), Vec::new());
    for (id, entry) in catalog.iter() {
        let Some(extent) = storage(checkpoint.as_ref(), id) else { continue };
        let range = (extent.source, extent.bytes);
        let blob = *blobs.entry(range).or_insert_with(|| {
            wanted.push((range, entry.dtype, extent.order));
            manifest.add_blob(extent.bytes.len(), extent.checksum)
        });
        let part = Part { blob, layout: extent.layout.clone(), region: Region::whole(&entry.shape) };
        manifest.tensors.push(Output {
            path: entry.path.clone(),
            name: entry.name.clone(),
            dtype: plain(entry.dtype),
            packing: Packing::Dense,
            shape: entry.shape.clone(),
            parts: vec![part],
            origin: Some(Origin { input: 0, entry: id }),
        });
    }
    if flat.is_empty() {
        manifest.extras.extend(catalog.extras.clone().map(|extras| (0, extras)));
    }
    let writer = Torch.create(files.clone(), Path::new(to), manifest, &WriteOptions::default())?;
    let sources = weightlift_io::Sources::new(files.as_ref(), checkpoint.as_ref(), Path::new(to));
    for (at, ((source, bytes), dtype, order)) in wanted.iter().enumerate() {
        let mut data = sources.get(*source)?.read_vec(*bytes, u64::MAX)?;
        if *order == ByteOrder::Big {
            swap::byteswap(dtype.swap_unit(), &mut data);
        }
        writer.write_at(weightlift_core::BlobId(at as u32), 0, &data)?;
    }
    writer.finish()?;
    Ok(())
}
