//! The elements of a tensor, whatever they are stored as.

use super::element::{Elements, Value, decode};
use super::read::{Reader, each_index};
use super::target::Target;
use super::texts;
use weightlift::Opened;
use weightlift_convert::Selection;
use weightlift_core::{DType, Entry, Error, Result};

/// A tensor and the part of it that is wanted.
pub(super) struct Values<'a> {
    pub(super) target: &'a Target,
    pub(super) entry: &'a Entry,
    pub(super) elements: Elements,
    pub(super) store: Store<'a>,
}

/// Where the elements come from.
pub(super) enum Store<'a> {
    /// The file, as they are wanted.
    Numbers(Reader<'a>),
    /// All elements: where a string lies is known only from the lengths of those before.
    Memory(Vec<Value>),
}

impl<'a> Values<'a> {
    /// Opens a tensor; strings are read at once.
    ///
    /// # Errors
    /// `Unsupported` for opaque tensors but strings of TensorFlow; what reading meets.
    pub(super) fn open(opened: &'a Opened, target: &'a Target) -> Result<Values<'a>> {
        let entry = opened.catalog().entry(target.id);
        entry.extents()?;
        let (elements, store) = match Elements::of(entry.dtype) {
            Some(elements) => (elements, Store::Numbers(Reader::new(opened, target.id))),
            None if entry.dtype == DType::Str && opened.catalog().format == "tf" => {
                (Elements::Text, Store::Memory(read_texts(opened, target, entry)?))
            }
            None => {
                let message = format!("opaque, {} bytes: values of {} cannot be shown", entry.bytes, entry.dtype);
                return Err(Error::unsupported(message).in_tensor(&entry.name));
            }
        };
        Ok(Values { target, entry, elements, store })
    }

    /// [`Reader::verify`]; what is in memory has been verified.
    ///
    /// # Errors
    /// `Checksum` where a sum differs; `Malformed`, `Io`.
    pub(super) fn verify(&self, shown: &Selection) -> Result<Option<String>> {
        match &self.store {
            Store::Numbers(reader) => reader.verify(shown),
            Store::Memory(_) => Ok(None),
        }
    }

    /// Shows the selected elements in their order.
    ///
    /// # Errors
    /// What reading meets, and what `visit` says.
    pub(super) fn each<E: From<Error>>(
        &mut self,
        selection: &Selection,
        visit: &mut dyn FnMut(&Value) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let dtype = self.entry.dtype;
        match &mut self.store {
            Store::Numbers(reader) => {
                reader.blocks::<E>(selection, &mut |block| decode(dtype, block)?.iter().try_for_each(&mut *visit))
            }
            Store::Memory(values) => {
                let counts: Vec<u64> = selection.axes.iter().map(|axis| axis.count()).collect();
                let strides = self.entry.shape.contiguous_strides();
                each_index(&counts, &mut |index| {
                    let axes = selection.axes.iter().zip(index).zip(&strides);
                    let flat: u64 = axes.map(|((axis, &at), stride)| axis.at(at) * stride).sum();
                    values.get(flat as usize).map_or(Ok(()), &mut *visit)
                })
            }
        }
    }
}

fn read_texts(opened: &Opened, target: &Target, entry: &Entry) -> Result<Vec<Value>> {
    if entry.extents()?.len() != 1 {
        let message = "strings in several slices cannot be shown";
        return Err(Error::unsupported(message).in_tensor(&entry.name));
    }
    let bytes = weightlift_io::read_entry(opened.files().as_ref(), opened.checkpoint(), target.id)?;
    let texts = texts::parse(entry.shape.elements(), &bytes).map_err(|error| error.in_tensor(&entry.name))?;
    Ok(texts.into_iter().map(|text| Value::Text(text.to_vec())).collect())
}
