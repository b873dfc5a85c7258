//! The JSON text of a header, member by member, so that order is kept and a name that stands twice is seen.

use super::{Header, LENGTH_BYTES, Tensor};
use crate::{METADATA_KEY, Metadata, dtype};
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use weightlift_core::{DType, Error, OpenOptions, Result, Shape};

/// Reads the JSON text that follows the length. Harmless faults that [`OpenOptions::lenient`] lets pass are added to
/// `remarks`.
///
/// # Errors
/// `Malformed`, `Unsupported` or `Limit` with the offset in the file and, where one is being read, the tensor.
pub(crate) fn parse(bytes: &[u8], options: &OpenOptions, remarks: &mut Vec<String>) -> Result<Header> {
    let padding = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
    let bytes = match options.lenient && padding > 0 {
        true => {
            remarks.push(format!("the header is padded with {padding} NUL bytes, where the format has spaces"));
            bytes.get(..bytes.len() - padding).unwrap_or_default()
        }
        false => bytes,
    };
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = LENGTH_BYTES + error.valid_up_to() as u64;
        Error::malformed("the header is not UTF-8").at(at).caused_by(error)
    })?;
    let mut reader = Reader {
        options,
        remarks,
        header: Header::default(),
        has_metadata: false,
        inside: Inside::Nothing,
        refusal: None,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let read = (&mut reader).deserialize(&mut json).and_then(|()| json.end());
    if let Err(error) = read {
        return Err(reader.explain(&error, text));
    }
    refuse_duplicates(&reader.header.tensors)?;
    Ok(reader.header)
}

/// Names are unique: readers disagree about which of two tensors counts.
fn refuse_duplicates(tensors: &[Tensor]) -> Result<()> {
    let mut names: Vec<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair.first() == pair.last()).and_then(|pair| pair.first()) {
        Some(name) => Err(Error::malformed("the name stands twice in the header").in_tensor(*name)),
        None => Ok(()),
    }
}

/// Collects the header and remembers what it was reading when it failed.
struct Reader<'a> {
    options: &'a OpenOptions,
    remarks: &'a mut Vec<String>,
    header: Header,
    has_metadata: bool,
    /// The member being read.
    inside: Inside,
    /// Why the reader itself refused, with the kind that the JSON error cannot carry.
    refusal: Option<Error>,
}

/// What is being read.
enum Inside {
    Nothing,
    Metadata,
    Tensor(String),
}

impl Reader<'_> {
    /// Stops the JSON reader for a reason of our own.
    fn refuse<E: serde::de::Error>(&mut self, error: Error) -> E {
        self.refusal = Some(error);
        E::custom("refused")
    }

    /// The error to report for one of the JSON reader.
    fn explain(self, error: &serde_json::Error, text: &str) -> Error {
        let offset = offset_of(error, text);
        let rest = text.as_bytes().get(offset..).unwrap_or_default();
        let ours = self.refusal.unwrap_or_else(|| {
            let whole = error.to_string();
            let message = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(message, _)| message);
            match matches!(self.inside, Inside::Nothing) && !rest.is_empty() && rest.iter().all(|&byte| byte == 0) {
                true => Error::malformed("the header is padded with NUL bytes, where the format has spaces")
                    .help("--lenient reads it"),
                false => Error::malformed(format!("bad header: {message}")),
            }
        });
        let ours = ours.at(LENGTH_BYTES + offset as u64);
        match self.inside {
            Inside::Metadata => ours.help("__metadata__ holds texts only; --lenient takes other values as text"),
            Inside::Tensor(name) => ours.in_tensor(name),
            Inside::Nothing => ours,
        }
    }
}

/// The byte of `text` at which the JSON reader stopped: it counts lines from 1 and bytes of a line from 1.
fn offset_of(error: &serde_json::Error, text: &str) -> usize {
    let line = error.line().saturating_sub(1);
    let start: usize = text.split_inclusive('\n').take(line).map(str::len).sum();
    (start + error.column().saturating_sub(1)).min(text.len())
}

impl<'de> DeserializeSeed<'de> for &mut Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for &mut Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a member for each tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA_KEY {
                self.inside = Inside::Metadata;
                self.metadata(&mut map)?;
            } else {
                self.tensor(name, &mut map)?;
            }
            self.inside = Inside::Nothing;
        }
        Ok(())
    }
}

impl Reader<'_> {
    fn metadata<'de, A: MapAccess<'de>>(&mut self, map: &mut A) -> std::result::Result<(), A::Error> {
        if std::mem::replace(&mut self.has_metadata, true) {
            return Err(A::Error::custom("__metadata__ stands twice in the header"));
        }
        self.header.metadata = map.next_value_seed(Pairs(self))?;
        Ok(())
    }

    fn tensor<'de, A: MapAccess<'de>>(&mut self, name: String, map: &mut A) -> std::result::Result<(), A::Error> {
        let limits = &self.options.limits;
        if name.len() > limits.name_bytes {
            let (bytes, most) = (name.len(), limits.name_bytes);
            return Err(self.refuse(Error::limit(format!("a name of {bytes} bytes, where {most} are allowed"))));
        }
        self.inside = Inside::Tensor(name);
        if self.header.tensors.len() as u64 >= limits.tensors {
            let most = limits.tensors;
            return Err(self.refuse(Error::limit(format!("more than the {most} tensors allowed"))));
        }
        let Fields { dtype, shape, offsets } = map.next_value_seed(FieldsOf(self))?;
        let shape = Shape::new(shape).map_err(|error| self.refuse(error))?;
        let &[begin, end] = offsets.as_slice() else {
            return Err(A::Error::custom(format!("data_offsets are two numbers, not {}", offsets.len())));
        };
        if let Inside::Tensor(name) = std::mem::replace(&mut self.inside, Inside::Nothing) {
            self.header.tensors.push(Tensor { name, dtype, shape, begin, end });
        }
        Ok(())
    }
}

/// The value of a tensor's member.
struct Fields {
    dtype: DType,
    shape: Vec<u64>,
    offsets: Vec<u64>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum Field {
    Dtype,
    Shape,
    DataOffsets,
    #[serde(other)]
    Other,
}

struct FieldsOf<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for FieldsOf<'_, '_> {
    type Value = Fields;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Fields, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for FieldsOf<'_, '_> {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Fields, A::Error> {
        let (mut dtype, mut shape, mut offsets) = (None, None, None);
        while let Some(field) = map.next_key::<Field>()? {
            let twice = match field {
                Field::Dtype => dtype.replace(map.next_value_seed(DTypeOf(self.0))?).map(|_| "dtype"),
                Field::Shape => shape.replace(map.next_value_seed(Numbers(self.0))?).map(|_| "shape"),
                Field::DataOffsets => offsets.replace(map.next_value_seed(Numbers(self.0))?).map(|_| "data_offsets"),
                Field::Other => map.next_value::<IgnoredAny>().map(|_| None)?,
            };
            if let Some(field) = twice {
                return Err(A::Error::duplicate_field(field));
            }
        }
        Ok(Fields {
            dtype: dtype.ok_or_else(|| A::Error::missing_field("dtype"))?,
            shape: shape.ok_or_else(|| A::Error::missing_field("shape"))?,
            offsets: offsets.ok_or_else(|| A::Error::missing_field("data_offsets"))?,
        })
    }
}

/// Reads the name of an element type.
struct DTypeOf<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for DTypeOf<'_, '_> {
    type Value = DType;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<DType, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for DTypeOf<'_, '_> {
    type Value = DType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a dtype")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> std::result::Result<DType, E> {
        dtype::from_name(name).ok_or_else(|| {
            let known = dtype::known();
            self.0.refuse(Error::unsupported(format!("unknown dtype {name:?}")).help(format!("known are {known}")))
        })
    }
}

/// Reads a list of numbers, which may be as long as a shape.
struct Numbers<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for Numbers<'_, '_> {
    type Value = Vec<u64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Vec<u64>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Numbers<'_, '_> {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of whole numbers")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> std::result::Result<Vec<u64>, A::Error> {
        let mut numbers = Vec::new();
        while let Some(number) = list.next_element()? {
            let most = self.0.options.limits.rank;
            if numbers.len() >= most {
                return Err(self.0.refuse(Error::limit(format!("more than the {most} dimensions allowed"))));
            }
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// Reads the value of `__metadata__`: texts by key, or null. Of a key that stands twice, the last value counts.
struct Pairs<'r, 'a>(&'r mut Reader<'a>);

impl<'de> DeserializeSeed<'de> for Pairs<'_, '_> {
    type Value = Metadata;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Metadata, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for Pairs<'_, '_> {
    type Value = Metadata;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of texts")
    }

    fn visit_none<E>(self) -> std::result::Result<Metadata, E> {
        Ok(Metadata::absent())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<Metadata, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Metadata, A::Error> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = self.0.text_of(&key, &mut map)?;
            match places.entry(key.clone()) {
                Entry::Vacant(place) => {
                    place.insert(pairs.len());
                    pairs.push((key, value));
                }
                Entry::Occupied(place) => {
                    if let Some(pair) = pairs.get_mut(*place.get()) {
                        pair.1 = value;
                    }
                }
            }
        }
        Ok(Metadata::from_pairs(pairs))
    }
}

impl Reader<'_> {
    /// The value of a key of the metadata: a text, or what else stands there as text.
    fn text_of<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> std::result::Result<String, A::Error> {
        if !self.options.lenient {
            return map.next_value();
        }
        Ok(match map.next_value()? {
            Value::String(text) => text,
            other => {
                self.remarks.push(format!("metadata {key:?} is no text but {other}: taken as text"));
                other.to_string()
            }
        })
    }
}
