//! The header of an array to be written, and what is recorded beside it.

use crate::descr::{code_of, nameless_code};
use crate::header::{header, render};
use crate::record::Record;
use std::collections::HashMap;
use weightlift_core::{Capabilities, DType, Error, Manifest, Nameless, Output, Packing, Result, WriteOptions};

/// Type codes of arrays that are carried as bytes, by their position in the catalog: what
/// [`weightlift_core::Catalog::extras`] of arrays holds.
#[derive(Debug, Clone, Default)]
pub(crate) struct RawCodes(pub(crate) HashMap<u32, RawCode>);

/// The type of an array that is carried as bytes.
#[derive(Debug, Clone)]
pub(crate) struct RawCode {
    pub(crate) code: String,
    pub(crate) fortran_order: bool,
}

/// An array before its data.
#[derive(Debug)]
pub(crate) struct Planned {
    /// The bytes before the data.
    pub(crate) header: Vec<u8>,
    /// Bytes of the data.
    pub(crate) bytes: u64,
    /// The blob of the data.
    pub(crate) blob: usize,
    pub(crate) record: Option<Record>,
}

impl Planned {
    /// Plans the array of a tensor, dense and with a blob of its own.
    ///
    /// # Errors
    /// `Request` for what an array cannot be.
    pub(crate) fn new(output: &Output, manifest: &Manifest, options: &WriteOptions) -> Result<Planned> {
        let (header, record) = header_of(output, manifest, options)?;
        let dense = || Error::request("arrays are written dense, but this is a view or has several parts");
        let blob = output.dense_blob().ok_or_else(dense)?.0 as usize;
        let bytes = manifest.blobs.get(blob).map(|blob| blob.bytes);
        let bytes = bytes.ok_or_else(|| Error::request(format!("blob {blob} does not exist")))?;
        let wanted = output.dtype.bytes(output.shape.elements(), Packing::Dense);
        if let Some(wanted) = wanted.filter(|&wanted| wanted != bytes) {
            return Err(Error::request(format!("its blob has {bytes} bytes, where {wanted} are needed")));
        }
        Ok(Planned { header, bytes, blob, record })
    }
}

/// Plans the arrays of a manifest, and says for each blob which array it is.
///
/// # Errors
/// `Request` with the tensor for what an array cannot be, and for tensors that share their bytes.
pub(crate) fn plan(manifest: &Manifest, options: &WriteOptions) -> Result<(Vec<Planned>, Vec<usize>)> {
    let mut owners = vec![None; manifest.blobs.len()];
    let mut arrays = Vec::with_capacity(manifest.tensors.len());
    for (number, output) in manifest.tensors.iter().enumerate() {
        let planned = Planned::new(output, manifest, options).and_then(|planned| {
            let owner = owners.get_mut(planned.blob).and_then(|owner: &mut Option<usize>| owner.replace(number));
            let shared = || Error::request("it shares its bytes with another tensor, which arrays cannot express");
            if owner.is_none() { Ok(planned) } else { Err(shared()) }
        });
        arrays.push(planned.map_err(|error| error.in_tensor(&output.name))?);
    }
    let homeless = |blob| Error::request(format!("blob {blob} belongs to no tensor"));
    let owners = owners.into_iter().enumerate().map(|(blob, owner)| owner.ok_or_else(|| homeless(blob)));
    Ok((arrays, owners.collect::<Result<_>>()?))
}

fn header_of(output: &Output, manifest: &Manifest, options: &WriteOptions) -> Result<(Vec<u8>, Option<Record>)> {
    if output.packing != Packing::Dense {
        return Err(Error::request("arrays are written without bits between elements"));
    }
    if output.dtype == DType::Raw {
        let code = raw_code(output, manifest);
        let RawCode { code, fortran_order } =
            code.ok_or_else(|| Error::request("raw bytes that come from no array have no type here"))?;
        return Ok((render(code, *fortran_order, &output.shape), None));
    }
    if let Some(code) = nameless_code(output.dtype, options.nameless) {
        return Ok((render(&code, false, &output.shape), Some(Record::Is(output.dtype))));
    }
    let was = options.widened.iter().find(|(name, _)| *name == output.name);
    Ok((header(output.dtype, &output.shape)?, was.map(|&(_, dtype)| Record::Was(dtype))))
}

/// The type that the bytes of a tensor had in the arrays they come from.
fn raw_code<'m>(output: &Output, manifest: &'m Manifest) -> Option<&'m RawCode> {
    let origin = output.origin?;
    let (_, extras) = manifest.extras.iter().find(|(input, _)| *input == origin.input)?;
    extras.get::<RawCodes>()?.0.get(&origin.entry.0)
}

/// NumPy's own types, and bytes that come from an array.
pub(crate) fn holds(dtype: DType) -> Option<Packing> {
    (dtype == DType::Raw || code_of(dtype).is_some()).then_some(Packing::Dense)
}

/// What [`Capabilities::holds`] of NumPy's formats answers where numbers that NumPy has no type for are written in a
/// form that it has.
pub fn holds_nameless(dtype: DType) -> Option<Packing> {
    holds(dtype).or_else(|| nameless_code(dtype, Nameless::Bits).map(|_| Packing::Dense))
}

/// What arrays can hold.
pub(crate) fn capabilities(name_problem: fn(&str) -> Option<String>) -> Capabilities {
    Capabilities {
        holds,
        name_problem,
        nests: false,
        shares_storage: false,
        strides: false,
        prunes_extras: false,
        joins_pieces: None,
        name_hint: Capabilities::NO_HINT,
        texts: None,
    }
}
