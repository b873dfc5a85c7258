//! The JSON text of a header as it is written: compact, metadata first, padded with spaces.

use super::{Header, LENGTH_BYTES};
use crate::{METADATA_KEY, dtype};
use serde_json::Value;
use std::fmt::Write as _;
use weightlift_core::{Error, Result};

/// The data begin at a multiple of this.
const ALIGNMENT: u64 = 8;

/// The JSON text, without padding.
///
/// # Errors
/// `Request` with the tensor where an element type has no name in the format.
pub(crate) fn render(header: &Header) -> Result<String> {
    let mut text = String::from("{");
    if !header.metadata.is_absent() {
        let pairs = header.metadata.pairs().map(|(key, value)| format!("{}:{}", quoted(key), quoted(value)));
        let pairs: Vec<String> = pairs.collect();
        let _ = write!(text, "\"{METADATA_KEY}\":{{{}}}", pairs.join(","));
    }
    for tensor in &header.tensors {
        let Some(dtype) = dtype::to_name(tensor.dtype) else {
            let message = format!("safetensors has no dtype for {}", tensor.dtype);
            return Err(Error::request(message).in_tensor(&tensor.name));
        };
        let separator = if text.len() == 1 { "" } else { "," };
        let dims: Vec<String> = tensor.shape.dims().iter().map(u64::to_string).collect();
        let (name, dims, begin, end) = (quoted(&tensor.name), dims.join(","), tensor.begin, tensor.end);
        let _ =
            write!(text, r#"{separator}{name}:{{"dtype":"{dtype}","shape":[{dims}],"data_offsets":[{begin},{end}]}}"#);
    }
    text.push('}');
    Ok(text)
}

/// A JSON string.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The bytes before the data: the length of the padded text, the text, spaces up to a multiple of 8.
pub(crate) fn padded(text: &str) -> Vec<u8> {
    let length = (text.len() as u64).next_multiple_of(ALIGNMENT);
    let mut bytes = length.to_le_bytes().to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize((LENGTH_BYTES + length) as usize, b' ');
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::{Tensor, parse};
    use super::*;
    use crate::Metadata;
    use weightlift_core::{DType, OpenOptions, Shape};

    fn tensor(name: &str, dims: &[u64], begin: u64, end: u64) -> Tensor {
        Tensor { name: name.into(), dtype: DType::F32, shape: Shape::new(dims).unwrap(), begin, end }
    }

    #[test]
    fn the_text_is_that_of_the_reference() {
        let x = Header { metadata: Metadata::absent(), tensors: vec![tensor("x", &[1], 0, 4)] };
        let text = render(&x).unwrap();
        assert_eq!(text, r#"{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#);
        let bytes = padded(&text);
        assert_eq!((bytes.len(), &bytes[..8]), (64, &[0x38, 0, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(padded(&render(&Header::default()).unwrap()), b"\x08\0\0\0\0\0\0\0{}      ");
    }

    #[test]
    fn metadata_stand_first() {
        let metadata = Metadata::from_pairs(vec![("a\"\n".into(), "é\\".into()), ("b".into(), String::new())]);
        let header = Header { metadata, tensors: vec![tensor("", &[], 0, 4), tensor("é\u{1}", &[0, 2], 4, 4)] };
        let text = render(&header).unwrap();
        let tensors = concat!(
            r#""":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"#,
            r#""é\u0001":{"dtype":"F32","shape":[0,2],"data_offsets":[4,4]}"#
        );
        assert_eq!(text, format!(r#"{{"__metadata__":{{"a\"\n":"é\\","b":""}},{tensors}}}"#));
        assert_eq!(parse(text.as_bytes(), &OpenOptions::default(), &mut Vec::new()).unwrap(), header);
        let empty = Header { metadata: Metadata::from_pairs(Vec::new()), tensors: Vec::new() };
        assert_eq!(render(&empty).unwrap(), r#"{"__metadata__":{}}"#);
    }
}
