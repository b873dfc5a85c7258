//! The vocabulary of weightlift.
//!
//! A checkpoint is read into a [`Catalog`]: ordered [`Entry`]s, each with a [`DType`], a [`Shape`] and the
//! [`Extent`]s that say where its values lie, without a tensor byte read. A checkpoint is written from a
//! [`Manifest`], in which every length is known before the first byte. A [`Format`] does both for one family of
//! files; it reaches files only through [`Files`], so that tests can inject faults and no format owns a file handle.
//!
//! This crate has no dependencies and does no input or output of its own.
#![forbid(unsafe_code)]

mod catalog;
mod dtype;
mod entry;
mod error;
mod files;
mod format;
mod layout;
mod limits;
mod manifest;
mod object;
mod range;
mod shape;
pub mod sniff;

pub use catalog::{Catalog, Extras, Source, SourceId};
pub use dtype::{Class, DType, UnknownDType};
pub use entry::{Checksum, Data, Entry, EntryId, Extent, Key, KeyPath};
pub use error::{Error, Kind, Place, Result};
pub use files::{FileId, FileKind, Files, ReadAt, Stat, WriteAt};
pub use format::{
    Capabilities, Carried, Checkpoint, CheckpointWriter, Format, Nameless, Names, OpenOptions, Recognised, Share, Ties,
    WriteOptions, Written,
};
pub use layout::{ByteOrder, Layout, Packing, Region};
pub use limits::Limits;
pub use manifest::{Blob, BlobId, Manifest, Origin, Output, Part};
pub use object::{Object, ObjectValue};
pub use range::{ByteRange, FileRange};
pub use shape::Shape;
