//! What a manifest becomes: a header, and a place for every blob.

use crate::header::{Header, Tensor};
use crate::{METADATA_KEY, Metadata, dtype};
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use weightlift_core::{Error, Manifest, Output, Packing, Result, Ties, WriteOptions};
use weightlift_shards::{list, split};

/// What is wrong with a tensor name, in words that complete `the name "x" …`.
pub(crate) fn name_problem(name: &str) -> Option<String> {
    (name == METADATA_KEY).then(|| "is reserved for metadata in safetensors files".to_owned())
}

/// A file to write.
#[derive(Debug, Default)]
pub(crate) struct File {
    /// Its header.
    pub(crate) header: Header,
    /// Bytes after the header.
    pub(crate) bytes: u64,
}

/// Where a blob goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The number of the file.
    pub(crate) file: usize,
    /// First byte after the header of the file.
    pub(crate) begin: u64,
    /// Bytes.
    pub(crate) len: u64,
}

/// Where everything of a manifest goes.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The files, one at the least.
    pub(crate) files: Vec<File>,
    /// The place of each blob.
    pub(crate) blobs: Vec<Place>,
    /// The metadata of the index of several files.
    pub(crate) index: Map<String, Value>,
    /// What a user should know.
    pub(crate) notes: Vec<String>,
}

impl Layout {
    /// Lays blobs out in their order, over files of at most [`WriteOptions::shard_size`] bytes of tensors. Of the tensors
    /// over one blob the first is written; what becomes of the others is for [`WriteOptions::ties`] to say.
    ///
    /// # Errors
    /// `Request` with the tensor for what the format cannot hold, and for a key to remove that is not there.
    pub(crate) fn new(manifest: &Manifest, options: &WriteOptions) -> Result<Layout> {
        let (blobs, files) = places(manifest, options.shard_size.unwrap_or(u64::MAX))?;
        let (mut metadata, notes) = metadata_of(manifest);
        metadata.edit(&options.metadata)?;
        let mut layout = Layout { files, blobs, index: Map::new(), notes };
        let mut owners = vec![None; manifest.blobs.len()];
        let (mut names, mut ties) = (HashSet::new(), Vec::new());
        for output in &manifest.tensors {
            let placed = check_name(output, &mut names).and_then(|()| layout.place(output, &mut owners));
            if let Some(owner) = placed.map_err(|error| error.in_tensor(&output.name))? {
                ties.push((output.name.as_str(), owner.name.as_str()));
            }
        }
        if let Some(blob) = owners.iter().position(Option::is_none) {
            return Err(Error::request(format!("blob {blob} belongs to no tensor")));
        }
        if options.ties == Ties::First {
            layout.notes.extend(forgotten(&ties));
            ties.clear();
        }
        match layout.files.len() {
            1 => metadata.record_ties(&ties)?,
            _ => layout.index = metadata.record_ties_in_index(&ties)?,
        }
        metadata.complete();
        layout.order_headers(manifest);
        layout.files.iter_mut().for_each(|file| file.header.metadata = metadata.clone());
        Ok(layout)
    }

    /// Lists tensors in the order of the header they come from, where that is another than the order of their bytes.
    fn order_headers(&mut self, manifest: &Manifest) {
        let orders =
            manifest.extras.iter().filter_map(|(input, extras)| Some((*input, &extras.get::<Metadata>()?.order)));
        let orders: HashMap<u32, &Vec<u32>> = orders.filter(|(_, order)| !order.is_empty()).collect();
        if orders.is_empty() {
            return;
        }
        let place = |output: &Output| {
            let origin = output.origin?;
            Some((origin.input, *orders.get(&origin.input)?.get(origin.entry.0 as usize)?))
        };
        let places = manifest.tensors.iter().filter_map(|output| Some((output.name.as_str(), place(output)?)));
        let places: HashMap<&str, (u32, u32)> = places.collect();
        for file in &mut self.files {
            // What comes from no header follows.
            file.header.tensors.sort_by_key(|tensor| {
                let place = places.get(tensor.name.as_str()).copied();
                (place.is_none(), place)
            });
        }
    }

    /// Lists a tensor, or returns the one that its bytes are listed for already.
    fn place<'m>(&mut self, output: &'m Output, owners: &mut [Option<&'m Output>]) -> Result<Option<&'m Output>> {
        let wanted = length_of(output)?;
        let dense = || Error::request("safetensors files hold dense tensors, but this is a view or has several parts");
        let id = output.dense_blob().ok_or_else(dense)?.0 as usize;
        let (Some(&Place { file, begin, len }), Some(owner)) = (self.blobs.get(id), owners.get_mut(id)) else {
            return Err(Error::request(format!("blob {id} does not exist")));
        };
        if len != wanted {
            return Err(Error::request(format!("its blob has {len} bytes, where {wanted} are needed")));
        }
        // Tensors without bytes share nothing, though they lie at one place.
        if let Some(owner) = owner.filter(|_| len > 0) {
            let same = owner.dtype == output.dtype && owner.shape == output.shape;
            let differs = || Error::request(format!("it shares its bytes with {:?} in another form", owner.name));
            return if same { Ok(Some(owner)) } else { Err(differs()) };
        }
        *owner = Some(output);
        let (name, shape) = (output.name.clone(), output.shape.clone());
        if let Some(file) = self.files.get_mut(file) {
            file.header.tensors.push(Tensor { name, dtype: output.dtype, shape, begin, end: begin + len });
        }
        Ok(None)
    }
}

/// What to say of second names that are not written.
fn forgotten(ties: &[(&str, &str)]) -> Option<String> {
    let names: Vec<String> = ties.iter().map(|(name, kept)| format!("{name} (tied to {kept})")).collect();
    let (noun, list) = (if names.len() == 1 { "name" } else { "names" }, list(&names));
    (!names.is_empty()).then(|| format!("{} second {noun} left out: {list}", names.len()))
}

/// The place of each blob, and the files with their lengths.
fn places(manifest: &Manifest, limit: u64) -> Result<(Vec<Place>, Vec<File>)> {
    let sizes: Vec<u64> = manifest.blobs.iter().map(|blob| blob.bytes).collect();
    let mut files = vec![File::default()];
    let mut places = Vec::with_capacity(sizes.len());
    for (number, len) in split(&sizes, limit).into_iter().zip(sizes) {
        files.resize_with(files.len().max(number + 1), File::default);
        let Some(file) = files.get_mut(number) else { continue };
        places.push(Place { file: number, begin: file.bytes, len });
        let end = file.bytes.checked_add(len).filter(|&end| end <= i64::MAX as u64);
        file.bytes = end.ok_or_else(|| Error::request("the file would have more than 2^63 bytes"))?;
    }
    Ok((places, files))
}

/// The metadata to write: those of the inputs of this format, the first input's first; for inputs of other formats
/// alone the conventional ones.
fn metadata_of(manifest: &Manifest) -> (Metadata, Vec<String>) {
    let mut inputs: Vec<_> = manifest.extras.iter().filter_map(|(id, e)| Some((*id, e.get::<Metadata>()?))).collect();
    inputs.sort_by_key(|&(input, _)| input);
    let Some((&(_, first), others)) = inputs.split_first() else {
        return (Metadata::conventional(), Vec::new());
    };
    let mut metadata = first.clone();
    let mut notes = Vec::new();
    for &(input, other) in others {
        let note = |key| format!("metadata {key:?} of input {input} differs from an earlier input's and is left out");
        notes.extend(metadata.join(other).into_iter().map(note));
    }
    (metadata, notes)
}

fn check_name<'m>(output: &'m Output, names: &mut HashSet<&'m str>) -> Result<()> {
    if let Some(problem) = name_problem(&output.name) {
        return Err(Error::request(format!("the name {problem}")));
    }
    if !names.insert(&output.name) {
        return Err(Error::request("two tensors of this name, where names must differ"));
    }
    Ok(())
}

/// The length of a tensor in the file.
fn length_of(output: &Output) -> Result<u64> {
    let Output { dtype, shape, .. } = output;
    if dtype::packing(*dtype) != Some(output.packing) {
        return Err(Error::request(format!("safetensors files cannot hold {dtype} ({:?})", output.packing)));
    }
    let bits = u128::from(dtype.bits().unwrap_or(0)) * u128::from(shape.elements());
    if bits % 8 != 0 {
        let message = format!("{dtype} of shape {shape} does not fill whole bytes, which safetensors files need");
        return Err(Error::request(message));
    }
    let bytes = dtype.bytes(shape.elements(), Packing::Dense);
    bytes.ok_or_else(|| Error::request(format!("{dtype} of shape {shape} has more than 2^63 bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightlift_core::{BlobId, DType, Extras, Part, Region, Shape};

    fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn laid_out(manifest: &Manifest) -> Result<Layout> {
        Layout::new(manifest, &WriteOptions::default())
    }

    fn refused(manifest: &Manifest) -> String {
        laid_out(manifest).err().map(|error| error.to_string()).unwrap_or_default()
    }

    fn of_one(dtype: DType, dims: &[u64]) -> Manifest {
        let mut manifest = Manifest::default();
        manifest.add_tensor("w", dtype, shape(dims));
        manifest
    }

    #[test]
    fn the_header_has_the_order_of_tensors_and_the_data_that_of_blobs() {
        let mut manifest = Manifest::default();
        for (name, dim) in [("a", 3), ("b", 0), ("c", 5)] {
            manifest.add_tensor(name, DType::U8, shape(&[dim]));
        }
        manifest.tensors.reverse();
        let layout = laid_out(&manifest).unwrap();
        let place = |file, begin, len| Place { file, begin, len };
        assert_eq!(layout.blobs, [place(0, 0, 3), place(0, 3, 0), place(0, 3, 5)]);
        let listed =
            layout.files[0].header.tensors.iter().map(|tensor| (tensor.name.as_str(), tensor.begin, tensor.end));
        assert_eq!(listed.collect::<Vec<_>>(), [("c", 3, 8), ("b", 3, 3), ("a", 0, 3)]);
        let mut options = WriteOptions::default();
        options.shard_size = Some(4);
        let layout = Layout::new(&manifest, &options).unwrap();
        assert_eq!(layout.blobs, [place(0, 0, 3), place(0, 3, 0), place(1, 0, 5)]);
        assert_eq!((layout.files[0].header.tensors.len(), layout.files[1].header.tensors.len()), (2, 1));
        assert_eq!((layout.files[0].bytes, layout.files[1].bytes), (3, 5));
    }

    #[test]
    fn tensors_over_one_blob_are_written_once() {
        let mut manifest = of_one(DType::U8, &[4]);
        for (name, dims) in [("x", &[4][..]), ("y", &[4])] {
            manifest.tensors.push(Output { name: name.into(), shape: shape(dims), ..manifest.tensors[0].clone() });
        }
        let layout = laid_out(&manifest).unwrap();
        assert_eq!(layout.files[0].header.tensors.len(), 1);
        let pairs: Vec<_> = layout.files[0].header.metadata.pairs().collect();
        assert_eq!(pairs, [("format", "pt"), ("x", "w"), ("y", "w")]);
        let mut options = WriteOptions::default();
        options.ties = Ties::First;
        let first = Layout::new(&manifest, &options).unwrap();
        assert_eq!(first.files[0].header.metadata, Metadata::conventional());
        assert_eq!(first.notes, ["2 second names left out: x (tied to w), y (tied to w)"]);
        manifest.tensors[2].shape = shape(&[2, 2]);
        manifest.tensors[2].parts[0].region = Region::whole(&shape(&[2, 2]));
        manifest.tensors[2].parts[0].layout.strides = vec![2, 1];
        assert!(refused(&manifest).contains("tensor \"y\": it shares its bytes with \"w\" in another form"));
        manifest.tensors[2] = Output { name: "format".into(), ..manifest.tensors[0].clone() };
        assert!(refused(&manifest).contains("tensor \"format\": it is tied to \"w\""));
    }

    #[test]
    fn tensors_without_bytes_are_not_tied() {
        let mut manifest = of_one(DType::U8, &[0]);
        manifest.tensors.push(Output { name: "x".into(), ..manifest.tensors[0].clone() });
        manifest.tensors.push(Output { name: "y".into(), dtype: DType::F32, ..manifest.tensors[0].clone() });
        let layout = laid_out(&manifest).unwrap();
        assert_eq!(layout.files[0].header.tensors.len(), 3);
        assert_eq!(layout.files[0].header.metadata, Metadata::conventional());
    }

    #[test]
    fn what_the_format_cannot_hold_is_refused() {
        assert!(refused(&of_one(DType::C128, &[2])).contains("tensor \"w\": safetensors files cannot hold c128"));
        assert!(refused(&of_one(DType::F4E2m1, &[3])).contains("whole bytes"));
        assert_eq!(refused(&of_one(DType::F4E2m1, &[2, 3])), "");
        let mut odd = of_one(DType::U8, &[1]);
        odd.tensors[0].name = "__metadata__".into();
        assert!(refused(&odd).contains("reserved"));
        let mut odd = of_one(DType::U8, &[1]);
        odd.add_tensor("w", DType::U8, shape(&[1]));
        assert!(refused(&odd).contains("two tensors of this name"));
        let mut odd = of_one(DType::U8, &[1]);
        odd.add_blob(4, None);
        assert!(refused(&odd).contains("blob 1 belongs to no tensor"));
        let mut odd = of_one(DType::U8, &[1]);
        odd.tensors[0].parts[0].blob = BlobId(7);
        assert!(refused(&odd).contains("blob 7 does not exist"));
        let mut odd = of_one(DType::U8, &[1]);
        odd.blobs[0].bytes = 2;
        assert!(refused(&odd).contains("its blob has 2 bytes, where 1 are needed"));
    }

    #[test]
    fn views_and_parts_are_refused() {
        let whole = of_one(DType::U8, &[2, 2]);
        assert_eq!(refused(&whole), "");
        let changed = |change: fn(&mut Part)| {
            let mut manifest = whole.clone();
            change(&mut manifest.tensors[0].parts[0]);
            refused(&manifest)
        };
        assert!(changed(|part| part.layout.strides = vec![1, 2]).contains("dense"));
        assert!(changed(|part| part.layout.offset = 1).contains("dense"));
        assert!(changed(|part| part.region.size = shape(&[1, 2])).contains("dense"));
        let mut twice = whole;
        let part = twice.tensors[0].parts[0].clone();
        twice.tensors[0].parts.push(part);
        assert!(refused(&twice).contains("several parts"));
    }

    #[test]
    fn metadata_come_from_the_inputs_of_this_format() {
        let with = |extras: Vec<(u32, Extras)>| {
            let layout = laid_out(&Manifest { extras, ..Manifest::default() }).unwrap();
            (layout.files[0].header.metadata.clone(), layout.notes)
        };
        let metadata = |pairs: &[(&str, &str)]| {
            let mut metadata = Metadata::from_pairs(Vec::new());
            pairs.iter().for_each(|(key, value)| metadata.set(key, value));
            metadata
        };
        assert_eq!(with(vec![]).0, Metadata::conventional());
        assert_eq!(with(vec![(0, Extras::new("foreign"))]).0, Metadata::conventional());
        assert!(with(vec![(0, Extras::new(Metadata::absent()))]).0.is_absent());
        let second = (1, Extras::new(metadata(&[("a", "2"), ("b", "3")])));
        let first = (0, Extras::new(metadata(&[("format", "tf"), ("a", "1")])));
        let (joined, notes) = with(vec![second, first]);
        assert_eq!(joined, metadata(&[("format", "tf"), ("a", "1"), ("b", "3")]));
        assert_eq!(notes, ["metadata \"a\" of input 1 differs from an earlier input's and is left out"]);
    }
}
