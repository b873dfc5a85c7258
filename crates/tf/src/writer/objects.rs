//! The object graph of an output: tensors that were renamed, left out or added are renamed, left out and added in it,
//! so that TensorFlow finds every value that is there and asks for none that is not.

use crate::carried::{Carried, OF_TABLE, Objects};
use crate::graph::{self, Attribute, ObjectGraph, VARIABLE_VALUE, variable_key};
use crate::varint;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use weightlift_core::{
    BlobId, DType, Error, KeyPath, Layout, Manifest, Names, Output, Packing, Part, Region, Result, Shape,
};
use weightlift_kernels::checksum::mask_crc32c;

const VALUE_OF_VARIABLE: &str = "/.ATTRIBUTES/VARIABLE_VALUE";
const SLOT: &str = "/.OPTIMIZER_SLOT/";
/// The variable that `tf.train.Checkpoint` counts its saves with.
const SAVE_COUNTER: &str = "save_counter";

/// What the writer adds of its own.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Blobs whose bytes it makes itself.
    pub(super) blobs: BTreeMap<BlobId, Vec<u8>>,
    /// What a user should know.
    pub(super) notes: Vec<String>,
}

/// Gives the tensors of a manifest the keys that they are stored under, and the graph what has changed. Without a graph
/// in the source, `make` asks for one.
///
/// # Errors
/// `Request` for names under which TensorFlow would not find a value; what reading the graph meets.
pub(super) fn prepare(manifest: &mut Manifest, make: bool, prefix: &Path) -> Result<Own> {
    let at = manifest.tensors.iter().position(|output| output.name == graph::KEY);
    let known = at.and_then(|at| Some((at, Carried::objects_of(&manifest.extras, manifest.tensors[at].origin)?)));
    match known {
        Some((at, objects)) => {
            let (keys, graph, notes) = edit(manifest, at, objects)?;
            for (output, key) in manifest.tensors.iter_mut().zip(keys) {
                output.name = key;
            }
            let mut own = Own { notes, ..Own::default() };
            if let (Some(graph), [part]) = (graph, manifest.tensors[at].parts.as_slice()) {
                let blob = part.blob;
                own.put(manifest, blob, record(&graph.to_bytes()));
            }
            Ok(own)
        }
        None if make && at.is_none() => build(manifest, prefix),
        None => Ok(Own::default()),
    }
}

impl Own {
    fn put(&mut self, manifest: &mut Manifest, blob: BlobId, bytes: Vec<u8>) {
        if let Some(known) = manifest.blobs.get_mut(blob.0 as usize) {
            (known.bytes, known.checksum) = (bytes.len() as u64, None);
        }
        manifest.verbatim.remove(&blob);
        self.blobs.insert(blob, bytes);
    }
}

/// The key of every output, and the graph where it has changed.
fn edit(manifest: &Manifest, at: usize, objects: &Objects) -> Result<(Vec<String>, Option<ObjectGraph>, Vec<String>)> {
    let input = manifest.tensors[at].origin.map(|origin| origin.input);
    let entry_of = |output: &Output| output.origin.filter(|origin| Some(origin.input) == input);
    // The first output of an entry is the entry; further ones are copies.
    let mut outputs_of: HashMap<usize, usize> = HashMap::new();
    for (index, output) in manifest.tensors.iter().enumerate() {
        if let Some(origin) = entry_of(output) {
            let first = outputs_of.entry(origin.entry.0 as usize).or_insert(index);
            if output.name == objects.name(origin.entry.0 as usize) {
                *first = index;
            }
        }
    }
    let is_first = |index: usize| {
        entry_of(&manifest.tensors[index]).filter(|origin| outputs_of[&(origin.entry.0 as usize)] == index)
    };
    let same = |index: usize| {
        is_first(index).is_some_and(|o| objects.name(o.entry.0 as usize) == manifest.tensors[index].name)
    };
    if outputs_of.len() == objects.keys.len() && (0..manifest.tensors.len()).all(same) {
        let key = |output: &Output| entry_of(output).map(|origin| objects.keys[origin.entry.0 as usize].clone());
        return Ok((manifest.tensors.iter().filter_map(key).collect(), None, Vec::new()));
    }
    let mut editor = Editor::new(objects, |entry| Some(manifest.tensors[*outputs_of.get(&entry)?].name.as_str()))?;
    editor.edit()?;
    let (mut keys, mut added) = (Vec::with_capacity(manifest.tensors.len()), Vec::new());
    for (index, output) in manifest.tensors.iter().enumerate() {
        match is_first(index) {
            Some(origin) => keys.push(editor.key(origin.entry.0 as usize, &output.name)),
            None => {
                added.push(index);
                keys.push(key_of_new(&output.name, objects.naming));
            }
        }
    }
    let notes =
        editor.add(added.into_iter().map(|index| (manifest.tensors[index].name.as_str(), keys[index].as_str())))?;
    Ok((keys, Some(editor.graph), notes))
}

/// The key of a tensor that the graph does not know yet.
fn key_of_new(name: &str, naming: Names) -> String {
    match naming {
        Names::Stored => name.to_owned(),
        Names::Object | Names::Full => variable_key(name),
    }
}

/// A graph that follows its tensors.
struct Editor<'a> {
    objects: &'a Objects,
    graph: ObjectGraph,
    /// For every key of the source its new name, `None` where it is left out.
    new_names: HashMap<&'a str, Option<&'a str>>,
    /// The name that the source's catalog gives every key.
    old_names: HashMap<&'a str, &'a str>,
    /// New keys for old ones.
    new_keys: HashMap<String, String>,
}

impl<'a> Editor<'a> {
    fn new(objects: &'a Objects, name_of: impl Fn(usize) -> Option<&'a str>) -> Result<Editor<'a>> {
        let keys = || objects.keys.iter().enumerate();
        Ok(Editor {
            objects,
            graph: objects.graph()?,
            new_names: keys().map(|(at, key)| (key.as_str(), name_of(at))).collect(),
            old_names: keys().map(|(at, key)| (key.as_str(), objects.name(at))).collect(),
            new_keys: HashMap::new(),
        })
    }

    /// The key of an entry that is called `name` now.
    fn key(&self, entry: usize, name: &str) -> String {
        let Some(old) = self.objects.keys.get(entry) else { return name.to_owned() };
        let of_table = || {
            let (old, end) = OF_TABLE.iter().find_map(|end| Some((old.strip_suffix(end)?, end)))?;
            Some(format!("{}{end}", self.new_keys.get(old)?))
        };
        let new = self.new_keys.get(old).cloned().or_else(of_table);
        new.unwrap_or_else(|| if self.old_names[old.as_str()] == name { old.clone() } else { name.to_owned() })
    }

    /// What becomes of the value that the graph knows by this key.
    fn fate(&self, key: &str) -> Result<Fate<'a>> {
        if let Some(new) = self.new_names.get(key) {
            return Ok(new.map_or(Fate::Gone, |new| Fate::Named(self.old_names[key], new)));
        }
        let half = |end: &str| {
            let (key, new) = self.new_names.get_key_value(format!("{key}{end}").as_str())?;
            Some((self.old_names[key], *new))
        };
        let (Some((old, keys)), Some((_, values))) = (half(OF_TABLE[0]), half(OF_TABLE[1])) else {
            return Ok(Fate::Unknown);
        };
        let stem = |name: &'a str, end: &str| name.strip_suffix(end);
        match (keys, values) {
            (None, None) => Ok(Fate::Gone),
            (Some(keys), Some(values))
                if stem(keys, OF_TABLE[0]).is_some_and(|s| stem(values, OF_TABLE[1]) == Some(s)) =>
            {
                let old = stem(old, OF_TABLE[0]).unwrap_or(old);
                Ok(Fate::Named(old, stem(keys, OF_TABLE[0]).unwrap_or(keys)))
            }
            _ => Err(Error::request("keys and values of a table keep one name, with -keys and -values behind it")
                .in_tensor(keys.or(values).unwrap_or(old))),
        }
    }

    fn edit(&mut self) -> Result<()> {
        let before = self.graph.clone();
        let (mut moves, mut gone, mut full_names) = (BTreeMap::new(), HashSet::new(), HashMap::new());
        for (id, node) in (0..).zip(&before.nodes) {
            for attribute in &node.attributes {
                let key = attribute.checkpoint_key.as_str();
                match self.fate(key)? {
                    Fate::Unknown => {}
                    Fate::Gone => drop(gone.insert(key)),
                    Fate::Named(old, new) if old == new => {}
                    Fate::Named(_, new) => match self.objects.naming {
                        Names::Stored => self.rename_key(key, new)?,
                        Names::Object => self.move_object(id, attribute, new, &mut moves)?,
                        Names::Full => {
                            full_names.insert(key, new);
                            self.new_keys.insert(key.to_owned(), key.to_owned());
                        }
                    },
                }
            }
        }
        for node in &mut self.graph.nodes {
            node.attributes.retain(|attribute| !gone.contains(attribute.checkpoint_key.as_str()));
            for attribute in &mut node.attributes {
                if let Some(new) = full_names.get(attribute.checkpoint_key.as_str()) {
                    attribute.full_name = (*new).to_owned();
                }
                if let Some(new) = self.new_keys.get(&attribute.checkpoint_key) {
                    attribute.checkpoint_key.clone_from(new);
                }
            }
        }
        self.graph.drop_empty_slots(&before);
        self.graph.relocate(&moves.into_iter().collect::<Vec<_>>())
    }

    /// A key may be called anything, as long as TensorFlow takes it for the key of such a value.
    fn rename_key(&mut self, key: &str, new: &str) -> Result<()> {
        let variable = key.ends_with(VALUE_OF_VARIABLE);
        let needed = if variable { VALUE_OF_VARIABLE } else { "/.ATTRIBUTES/" };
        if !(if variable { new.ends_with(needed) } else { new.contains(needed) }) {
            let message =
                format!("the object graph finds a value only under a key that has {needed:?} behind its name");
            return Err(Error::request(message).in_tensor(new).help(
                "rename what stands before it; --names object gives names without it; without the graph, \
                 --exclude _CHECKPOINTABLE_OBJECT_GRAPH, any name will do",
            ));
        }
        self.new_keys.insert(key.to_owned(), new.to_owned());
        Ok(())
    }

    /// Notes where an object goes, and the key that its value has there.
    fn move_object(
        &mut self,
        id: u32,
        attribute: &Attribute,
        new: &str,
        moves: &mut BTreeMap<u32, String>,
    ) -> Result<()> {
        let way = match attribute.name.as_str() {
            VARIABLE_VALUE => Some(new),
            name => new.strip_suffix(name).and_then(|way| way.strip_suffix('/')),
        };
        let way = way.ok_or_else(|| {
            let message = format!("this value of an object keeps /{} at the end of its name", attribute.name);
            Error::request(message).in_tensor(new)
        })?;
        if moves.insert(id, way.to_owned()).is_some_and(|other| other != way) {
            return Err(Error::request("the values of one object are renamed together").in_tensor(new));
        }
        let key = &attribute.checkpoint_key;
        let new_key = slot_key(key, way).unwrap_or_else(|| graph::attribute_key(way, &attribute.name));
        self.new_keys.insert(key.clone(), new_key);
        Ok(())
    }

    /// Adds what the source does not have; answers what could not be added.
    fn add<'n>(&mut self, added: impl Iterator<Item = (&'n str, &'n str)>) -> Result<Vec<String>> {
        let (mut notes, mut variables) = (Vec::new(), Vec::new());
        for (name, key) in added {
            let way = match self.objects.naming {
                Names::Stored => {
                    key.strip_suffix(VALUE_OF_VARIABLE).map(|way| way.split('/').map(graph::unescape).collect())
                }
                Names::Object | Names::Full => Some(name.split('/').map(str::to_owned).collect::<Vec<String>>()),
            };
            match way {
                Some(way) => variables.push((way, key)),
                None => notes.push(format!(
                    "{name:?} is not in the object graph, which finds a value only under a key that ends in \
                     {VALUE_OF_VARIABLE}: tf.train.load_checkpoint reads it, tf.train.Checkpoint does not"
                )),
            }
        }
        self.graph.insert(variables)?;
        Ok(notes)
    }
}

/// What becomes of a value of the graph.
enum Fate<'a> {
    /// It was never stored.
    Unknown,
    Gone,
    /// Its name before and now.
    Named(&'a str, &'a str),
}

/// The key of a value that an optimizer keeps, at its new place; `None` for any other key.
fn slot_key(old: &str, way: &str) -> Option<String> {
    let (_, tail) = old.split_once(SLOT)?;
    let (optimizer, _) = tail.strip_suffix(VALUE_OF_VARIABLE)?.rsplit_once('/')?;
    let (variable, name) = way.rsplit_once('/')?;
    let variable: Vec<String> = variable.split('/').map(graph::escape).collect();
    Some(format!("{}{SLOT}{optimizer}/{}{VALUE_OF_VARIABLE}", variable.join("/"), graph::escape(name)))
}

/// A graph for tensors that had none, with the counter that `tf.train.Checkpoint` looks for.
fn build(manifest: &mut Manifest, prefix: &Path) -> Result<Own> {
    let mut own = Own::default();
    if !manifest.tensors.iter().any(|output| output.name == SAVE_COUNTER) {
        let saves = saves_of(prefix);
        let blob = add_scalar(manifest, SAVE_COUNTER, DType::I64);
        own.put(manifest, blob, saves.to_le_bytes().to_vec());
    }
    let names: Vec<String> = manifest.tensors.iter().map(|output| output.name.clone()).collect();
    let keys: Vec<String> = names.iter().map(|name| variable_key(name)).collect();
    let graph = ObjectGraph::of_names(names.iter().map(String::as_str).zip(keys.iter().map(String::as_str)))?;
    for (output, key) in manifest.tensors.iter_mut().zip(keys) {
        output.name = key;
    }
    let blob = add_scalar(manifest, graph::KEY, DType::Str);
    own.put(manifest, blob, record(&graph.to_bytes()));
    Ok(own)
}

/// The number that a prefix such as `ckpt-7` ends in, as `tf.train.Checkpoint` counts; else 1.
fn saves_of(prefix: &Path) -> i64 {
    let name = prefix.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).filter(|&number| number > 0).unwrap_or(1)
}

fn add_scalar(manifest: &mut Manifest, name: &str, dtype: DType) -> BlobId {
    let shape = Shape::scalar();
    let blob = manifest.add_blob(0, None);
    let part = Part { blob, layout: Layout::contiguous(&shape), region: Region::whole(&shape) };
    let (path, name, packing) = (KeyPath::flat(name), name.to_owned(), Packing::Dense);
    manifest.tensors.push(Output { path, name, dtype, packing, shape, parts: vec![part], origin: None });
    blob
}

/// One string as a tensor stores it.
fn record(text: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(text.len() + varint::MAX_LEN + 4);
    varint::put(&mut record, text.len() as u64);
    let sum = crate::record::add_length(0, text.len() as u64);
    record.extend(mask_crc32c(sum).to_le_bytes());
    record.extend_from_slice(text);
    record
}
