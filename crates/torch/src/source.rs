//! The byte spaces of a checkpoint, and how those that are not plain file ranges are decoded.

use crate::sign::SignFlip;
use std::io::{Cursor, Read};
use weightlift_archive::{Member, open_member};
use weightlift_core::{ByteRange, Error, Limits, Result, Source, SourceId};
use weightlift_io::FileSource;

/// How the bytes of a [`Source::Decoded`] come about.
#[derive(Debug, Clone)]
pub(crate) enum Decoder {
    /// A deflated member of the zip.
    Member(Member),
    /// Another range with the signs of its numbers flipped.
    Flipped(Box<Origin>, SignFlip),
    /// Bytes that stood in the pickle.
    Bytes(Vec<u8>),
}

/// What a decoder reads from.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// A range of the file of this number.
    File(usize, ByteRange),
    /// Another decoder's output.
    Decoder(Decoder),
}

/// The byte spaces: files first come, first numbered.
#[derive(Debug, Default)]
pub(crate) struct Spaces {
    files: Vec<FileSource>,
    spaces: Vec<(Source, Way)>,
}

#[derive(Debug)]
enum Way {
    File(usize),
    /// The decoder, and the file it reads from.
    Decoded(Decoder, usize),
}

impl Spaces {
    /// Adds a file.
    pub(crate) fn add_file(&mut self, file: FileSource) -> SourceId {
        let source = Source::File { path: file.path().to_path_buf(), len: file.len() };
        self.files.push(file);
        self.spaces.push((source, Way::File(self.files.len() - 1)));
        SourceId(self.spaces.len() as u32 - 1)
    }

    /// Adds bytes that are decoded out of a file already added.
    pub(crate) fn add_decoded(&mut self, label: String, len: u64, decoder: Decoder, of: SourceId) -> SourceId {
        let file = self.file_number(of);
        self.spaces.push((Source::Decoded { label, len }, Way::Decoded(decoder, file)));
        SourceId(self.spaces.len() as u32 - 1)
    }

    fn file_number(&self, id: SourceId) -> usize {
        match self.spaces.get(id.0 as usize) {
            Some((_, Way::File(file) | Way::Decoded(_, file))) => *file,
            None => 0,
        }
    }

    /// A range of a source, for a decoder to read from.
    pub(crate) fn origin(&self, id: SourceId, range: ByteRange) -> Origin {
        match self.spaces.get(id.0 as usize) {
            Some((_, Way::Decoded(decoder, _))) => Origin::Decoder(decoder.clone()),
            _ => Origin::File(self.file_number(id), range),
        }
    }

    /// The file of a source that is one.
    pub(crate) fn file(&self, id: SourceId) -> Result<&FileSource> {
        match self.spaces.get(id.0 as usize) {
            Some((_, Way::File(number))) => self.numbered(*number),
            _ => Err(Error::request(format!("source {} is no file", id.0))),
        }
    }

    /// The sources, for a catalog.
    pub(crate) fn sources(&self) -> Vec<Source> {
        self.spaces.iter().map(|(source, _)| source.clone()).collect()
    }

    /// The files.
    pub(crate) fn files(&self) -> &[FileSource] {
        &self.files
    }

    /// The bytes of a decoded source from its start.
    pub(crate) fn decode(&self, id: SourceId, limits: &Limits) -> Result<Box<dyn Read + Send + '_>> {
        match self.spaces.get(id.0 as usize) {
            Some((_, Way::Decoded(decoder, file))) => self.run(decoder, *file, limits),
            _ => Err(Error::request(format!("source {} is not a decoded one", id.0))),
        }
    }

    /// A range of any source, from its start.
    pub(crate) fn reader(&self, id: SourceId, range: ByteRange, limits: &Limits) -> Result<Box<dyn Read + Send + '_>> {
        if let Some((_, Way::File(file))) = self.spaces.get(id.0 as usize) {
            return Ok(Box::new(self.numbered(*file)?.reader(range)));
        }
        let mut reader = self.decode(id, limits)?;
        let skipped = std::io::copy(&mut reader.by_ref().take(range.start()), &mut std::io::sink());
        skipped.map_err(|error| Error::malformed(format!("a storage cannot be decoded: {error}")))?;
        Ok(reader)
    }

    fn run<'a>(&'a self, decoder: &'a Decoder, file: usize, limits: &Limits) -> Result<Box<dyn Read + Send + 'a>> {
        match decoder {
            Decoder::Member(member) => open_member(self.numbered(file)?, member, limits),
            Decoder::Bytes(bytes) => Ok(Box::new(Cursor::new(bytes))),
            Decoder::Flipped(origin, flip) => {
                let inner: Box<dyn Read + Send + 'a> = match origin.as_ref() {
                    Origin::File(file, range) => Box::new(self.numbered(*file)?.reader(*range)),
                    Origin::Decoder(decoder) => self.run(decoder, file, limits)?,
                };
                Ok(Box::new(flip.reader(inner)))
            }
        }
    }

    fn numbered(&self, number: usize) -> Result<&FileSource> {
        self.files.get(number).ok_or_else(|| Error::request(format!("no file of number {number}")))
    }
}
