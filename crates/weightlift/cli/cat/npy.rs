//! Values to a `.npy` file.

use super::read::Reader;
use super::target::Target;
use std::path::Path;
use weightlift::Opened;
use weightlift_core::{DType, Error, Packing, Result};
use weightlift_io::Commit;

/// Writes the selected part as an array. Answers what the user should know, a line each.
///
/// # Errors
/// `Request` for a dtype that NumPy has no type for, another extension, an existing file; what reading and writing
/// meet. Nothing bears the name then.
pub(super) fn write(opened: &Opened, target: &Target, path: &Path, replace: bool) -> Result<Vec<String>> {
    if path.extension().is_none_or(|extension| extension != "npy") {
        return Err(Error::request("an array is written to a file that ends in .npy").in_file(path));
    }
    let entry = opened.catalog().entry(target.id);
    let in_tensor = |error: Error| error.in_tensor(&entry.name);
    entry.extents()?;
    let (shape, dtype) = (target.selection.shape()?, home(entry.dtype));
    let header = weightlift_npy::header(dtype, &shape).map_err(|error| in_tensor(error).help(CHOICES))?;
    let mut reader = Reader::new(opened, target.id);
    let note = reader.verify(&target.selection)?;
    let mut commit = Commit::new(opened.files().clone(), replace);
    let sink = commit.create(path)?;
    let mut at = header.len() as u64;
    // A few bytes can expand to more than any disk has: that shows before the first of them is written.
    let values = dtype.bytes(shape.elements(), Packing::Dense).and_then(|bytes| bytes.checked_add(at));
    sink.reserve(values.ok_or_else(|| in_tensor(Error::limit("more than 2^63 bytes")))?)?;
    sink.write_all_at(&header, 0)?;
    reader.blocks::<Error>(&target.selection, &mut |block| {
        let bytes = extended(entry.dtype, block);
        sink.write_all_at(&bytes, at)?;
        at += bytes.len() as u64;
        Ok(())
    })?;
    commit.commit(None)?;
    let wrote = format!("wrote {}: {dtype} {shape}, {at} bytes", path.display());
    Ok(note.into_iter().chain([wrote]).collect())
}

const CHOICES: &str = "cast it first: convert --dtype f32 to another checkpoint, and cat that; or print it with --json";

/// The dtype of NumPy that holds the same values: plain integers for quantised and for narrow ones.
fn home(dtype: DType) -> DType {
    match dtype {
        DType::I4 | DType::I2 | DType::Qi8 => DType::I8,
        DType::U4 | DType::U2 | DType::Qu4 | DType::Qu2 | DType::Qu8 => DType::U8,
        DType::Bits8 | DType::Bits1x8 | DType::Bits2x4 | DType::Bits4x2 => DType::U8,
        DType::Qi16 => DType::I16,
        DType::Qu16 | DType::Bits16 => DType::U16,
        DType::Qi32 => DType::I32,
        other => other,
    }
}

/// Narrow integers filled up to a byte: a signed one keeps its value, an unsigned one its low bits.
fn extended(dtype: DType, block: &[u8]) -> std::borrow::Cow<'_, [u8]> {
    let unused = match dtype {
        DType::I4 | DType::U4 | DType::Qu4 => 4,
        DType::I2 | DType::U2 | DType::Qu2 => 6,
        _ => return block.into(),
    };
    let signed = matches!(dtype, DType::I4 | DType::I2);
    let fill = |&byte: &u8| {
        let top = byte << unused;
        if signed { (top as i8 >> unused) as u8 } else { top >> unused }
    };
    block.iter().map(fill).collect::<Vec<u8>>().into()
}
