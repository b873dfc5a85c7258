//! From the object graph to the entries of a catalog.

use crate::numpy;
use crate::pickle::{Graph, Node, NodeId};
use crate::sign::SignFlip;
use crate::source::{Decoder, Spaces};
use crate::storage::{Records, StorageId, Storages, Stored};
use crate::tensor::{self, Tensor, View};
use crate::tree::{self, Child, Slot};
use foldhash::{HashMap, HashMapExt};
use std::collections::hash_map::Entry as Slotted;
use weightlift_core::{
    ByteOrder, ByteRange, Checksum, DType, Data, Entry, Error, Extent, Key, KeyPath, Kind, Layout, Limits, OpenOptions,
    Packing, Result, Shape, SourceId,
};
use weightlift_kernels::cast::{CastPair, Overflow, cast};
use weightlift_kernels::swap;

/// Lines about what is not a tensor, before the rest is only counted.
const LINES: usize = 500;

/// What a pickle lists.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub(crate) entries: Vec<Entry>,
    /// Where each entry was found.
    pub(crate) found: Vec<Found>,
    pub(crate) beside: Vec<String>,
    /// Storages that something else than a listed tensor names.
    pub(crate) shared: Vec<(SourceId, ByteRange)>,
    pub(crate) unlisted: u64,
}

impl Listing {
    /// Adds what came of reading a tensor. With `salvage` a damaged one is listed as such; one of a kind that is not
    /// known is no reason to refuse the others.
    pub(crate) fn push(&mut self, entry: Result<Entry>, path: KeyPath, salvage: bool) -> Result<()> {
        match entry {
            Ok(entry) => self.entries.push(entry),
            Err(error) if error.kind() == Kind::Unsupported => {
                self.beside.push(format!("{}: {}", path.joined(), error.message()));
            }
            Err(error) if salvage && error.kind() == Kind::Malformed => {
                self.entries.push(Entry::broken(path, DType::Raw, Shape::scalar(), error.message()));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// Where an entry was found. Several entries may come from one node, and from one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) node: NodeId,
    /// `None` for the outermost object.
    pub(crate) slot: Option<Slot>,
    pub(crate) name: String,
    /// How many bytes of the name lead to the container, the last dot included.
    pub(crate) prefix: usize,
}

/// Lists the tensors of a graph in the order in which they are met.
pub(crate) struct Lister<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) records: &'a mut dyn Records,
    pub(crate) spaces: &'a mut Spaces,
    pub(crate) order: ByteOrder,
    pub(crate) options: &'a OpenOptions,
    /// Tensors that the pickle names by persistent ids.
    pub(crate) outside: &'a HashMap<NodeId, View>,
}

/// What an entry must equal to be tied to another.
type Place = (DType, Shape, Layout);
/// A storage, or the part of one that is a view of its own.
type Run = (SourceId, u64, u64);

/// The first entry over each place.
#[derive(Default)]
struct Places {
    /// The only entry of a storage, as most have one.
    lone: HashMap<Run, usize>,
    /// The entries of storages that have several.
    several: HashMap<(Run, Place), usize>,
}

/// Where an entry lies, and how.
fn place_of(entry: &Entry) -> Option<(Run, Place)> {
    let Data::Extents(extents) = &entry.data else { return None };
    let extent = extents.first()?;
    let run = (extent.source, extent.bytes.start(), extent.bytes.len());
    Some((run, (entry.dtype, entry.shape.clone(), extent.layout.clone())))
}

impl Places {
    /// The earlier entry that an entry, which will be the last of `entries`, is tied to.
    fn tie(&mut self, entry: &Entry, run: Run, entries: &[Entry]) -> Option<usize> {
        let first = match self.lone.entry(run) {
            Slotted::Vacant(free) => {
                free.insert(entries.len());
                return None;
            }
            Slotted::Occupied(taken) => *taken.get(),
        };
        // Comparing all places of a storage is put off until a second entry comes.
        if let Some(place) = entries.get(first).and_then(place_of) {
            self.several.entry(place).or_insert(first);
        }
        match self.several.entry(place_of(entry)?) {
            Slotted::Vacant(free) => {
                free.insert(entries.len());
                None
            }
            Slotted::Occupied(taken) => Some(*taken.get()),
        }
    }
}

struct Walk<'a, 'b> {
    lister: &'b mut Lister<'a>,
    storages: Storages,
    listing: Listing,
    leads: Vec<bool>,
    /// The nodes of storages that listed tensors name.
    used: Vec<bool>,
    on_path: Vec<bool>,
    path: KeyPath,
    places: Places,
    flipped: HashMap<(SourceId, u64, u64, SignFlip), SourceId>,
    budget: Budget,
}

/// What shared objects may cost when they are listed under each of their names.
struct Budget {
    children: u64,
    entries: u64,
    name_bytes: u64,
}

impl Budget {
    fn new(graph: &Graph, limits: &Limits) -> Budget {
        let nodes = graph.len() as u64;
        let entries = (nodes / 2 + 1000).min(limits.tensors);
        Budget { children: 64 * nodes + 100_000, entries, name_bytes: 64 * nodes + (1 << 20) }
    }

    fn spend(left: &mut u64, cost: u64) -> Result<()> {
        *left = left.checked_sub(cost).ok_or_else(|| {
            Error::limit("objects that are shared again and again name more tensors than the file can have")
        })?;
        Ok(())
    }
}

/// A container being walked.
struct Frame {
    node: NodeId,
    children: std::vec::IntoIter<Child>,
}

impl Lister<'_> {
    /// Lists all tensors that `root` leads to.
    ///
    /// # Errors
    /// `Malformed`, naming the tensor, where one is broken; `Limit`.
    pub(crate) fn list(&mut self, root: NodeId) -> Result<(Listing, HashMap<String, Stored>)> {
        let nodes: Vec<NodeId> = self.graph.ids().filter(|&node| tensor::is_tensor(self.graph, node)).collect();
        // Most tensors are listed once.
        let tensors = nodes.len();
        let leads = tree::reaching(self.graph, nodes.into_iter().chain(self.outside.keys().copied()));
        let budget = Budget::new(self.graph, &self.options.limits);
        let mut walk = Walk {
            on_path: vec![false; leads.len()],
            used: vec![false; leads.len()],
            leads,
            lister: self,
            storages: Storages::with_capacity(tensors),
            listing: Listing {
                entries: Vec::with_capacity(tensors),
                found: Vec::with_capacity(tensors),
                ..Listing::default()
            },
            path: KeyPath::default(),
            places: Places { lone: HashMap::with_capacity(tensors), ..Places::default() },
            flipped: HashMap::new(),
            budget,
        };
        walk.run(root)?;
        let Walk { mut listing, mut storages, used, .. } = walk;
        if listing.unlisted > 0 {
            listing.beside.push(format!("and {} more", listing.unlisted));
        }
        listing.shared = self.bare_storages(&used, &mut storages);
        Ok((listing, storages.into_places()))
    }

    /// The storages that are named by something else than a listed tensor. A broken one is an error only where it is
    /// needed.
    fn bare_storages(&mut self, used: &[bool], storages: &mut Storages) -> Vec<(SourceId, ByteRange)> {
        let graph = self.graph;
        let mut bare = Vec::new();
        for node in graph.ids().filter(|node| matches!(graph.node(*node), Node::Persistent(_)) && !used[node.index()]) {
            let found = StorageId::read(graph, node).and_then(|id| storages.find(&id, self.records, self.spaces));
            bare.extend(found.ok().map(|stored| (stored.source, stored.bytes)));
        }
        bare
    }
}

impl Walk<'_, '_> {
    fn run(&mut self, root: NodeId) -> Result<()> {
        let mut frames = Vec::new();
        frames.extend(self.enter(root, None)?);
        while let Some(frame) = frames.last_mut() {
            let Some(Child { key, value, slot }) = frame.children.next() else {
                self.on_path[frame.node.index()] = false;
                frames.pop();
                self.path.0.pop();
                continue;
            };
            self.path.0.push(key);
            match self.enter(value, Some(slot))? {
                Some(frame) if frames.len() < self.lister.options.limits.depth => frames.push(frame),
                Some(_) => {
                    let depth = self.lister.options.limits.depth;
                    return Err(Error::limit(format!("tensors lie deeper than {depth} objects")));
                }
                None => drop(self.path.0.pop()),
            }
        }
        Ok(())
    }

    /// Lists a node if it is a tensor; opens it if it leads to tensors.
    fn enter(&mut self, node: NodeId, slot: Option<Slot>) -> Result<Option<Frame>> {
        Budget::spend(&mut self.budget.children, 1)?;
        if !self.leads[node.index()] {
            self.mention(node);
            return Ok(None);
        }
        if tensor::is_tensor(self.lister.graph, node) || self.lister.outside.contains_key(&node) {
            self.tensor(node, slot)?;
            return Ok(None);
        }
        // An object that holds itself is not entered again.
        if std::mem::replace(&mut self.on_path[node.index()], true) {
            return Ok(None);
        }
        let children = tree::children(self.lister.graph, node);
        Ok(Some(Frame { node, children: children.into_iter() }))
    }

    /// A line about what is no tensor.
    fn mention(&mut self, node: NodeId) {
        let graph = self.lister.graph;
        let hidden = matches!(self.path.0.last(), Some(Key::Text(name)) if name == "_metadata");
        if hidden {
            return;
        }
        if self.listing.beside.len() >= LINES {
            self.listing.unlisted += 1;
            return;
        }
        let what = numpy::describe(graph, node).unwrap_or_else(|| graph.describe(node));
        let name = self.path.joined();
        let name = if name.is_empty() { "the file".into() } else { name };
        self.listing.beside.push(match graph.node(node) {
            Node::None | Node::Bool(_) | Node::Int(_) | Node::Float(_) | Node::Text(_) | Node::OldString(_) => {
                format!("{name} = {what}")
            }
            Node::Persistent(_) => format!("{name}: a bare storage"),
            _ => format!("{name}: {what}"),
        });
    }

    fn tensor(&mut self, node: NodeId, slot: Option<Slot>) -> Result<()> {
        let (len, limit) = (self.path.joined_len(), self.lister.options.limits.name_bytes);
        if len > limit {
            return Err(Error::limit(format!("a tensor name of {len} bytes; the limit is {limit}")));
        }
        Budget::spend(&mut self.budget.entries, 1)?;
        Budget::spend(&mut self.budget.name_bytes, len as u64)?;
        let read = match self.lister.outside.get(&node) {
            Some(view) => Ok(Some(Tensor::View(Box::new(view.clone())))),
            None => tensor::read(self.lister.graph, node),
        };
        let listed = match read {
            Ok(Some(tensor)) => self.list(node, slot, tensor),
            Ok(None) => Ok(()),
            // A kind of tensor that is not known is no reason to refuse the others.
            Err(error) if error.kind() == Kind::Unsupported => {
                self.listing.beside.push(format!("{}: {}", self.path.joined(), error.message()));
                Ok(())
            }
            Err(error) if self.lister.options.salvage && error.kind() == Kind::Malformed => {
                let path = self.path.clone();
                self.add(node, slot, Entry::broken(path, DType::Raw, Shape::scalar(), error.message()));
                Ok(())
            }
            Err(error) if error.kind() == Kind::Malformed && error.advice().is_none() => {
                Err(error.help("--salvage lists the others"))
            }
            Err(error) => Err(error),
        };
        listed.map_err(|error| error.in_tensor(self.path.joined()))
    }

    fn list(&mut self, node: NodeId, slot: Option<Slot>, tensor: Tensor) -> Result<()> {
        let path = self.path.clone();
        let entry = match tensor {
            Tensor::View(view) if self.lister.options.salvage => {
                let (dtype, shape) = (view.dtype, view.shape.clone());
                match self.view(path.clone(), *view) {
                    Err(error) if error.kind() == Kind::Malformed => Entry::broken(path, dtype, shape, error.message()),
                    entry => entry?,
                }
            }
            Tensor::View(view) => self.view(path, *view)?,
            Tensor::Absent { dtype, shape, why } => Entry::absent(path, dtype, shape, why),
            Tensor::Parts { what, parts } => return self.parts(&what, parts),
            Tensor::Array { array, dtype } => self.array(path, array, dtype)?,
        };
        self.add(node, slot, entry);
        Ok(())
    }

    fn add(&mut self, node: NodeId, slot: Option<Slot>, entry: Entry) {
        let prefix = entry_prefix(&self.path.0);
        self.listing.found.push(Found { node, slot, name: entry.name.clone(), prefix });
        self.listing.entries.push(entry);
    }

    /// The tensors that make up one without strides, each listed under its name.
    fn parts(&mut self, what: &str, parts: Vec<Child>) -> Result<()> {
        for Child { key, value, slot } in parts {
            self.path.0.push(key);
            let before = self.listing.entries.len();
            let listed = self.tensor_part(value, slot);
            self.path.0.pop();
            listed?;
            for entry in &mut self.listing.entries[before..] {
                entry.remarks.push(format!("part of a {what}"));
            }
        }
        Ok(())
    }

    fn tensor_part(&mut self, part: NodeId, slot: Slot) -> Result<()> {
        Budget::spend(&mut self.budget.entries, 1)?;
        match tensor::read(self.lister.graph, part)? {
            Some(tensor @ (Tensor::View(_) | Tensor::Absent { .. })) => self.list(part, Some(slot), tensor),
            _ => Ok(()),
        }
    }

    fn view(&mut self, path: KeyPath, mut view: View) -> Result<Entry> {
        let stored = self.storages.find(&view.storage, self.lister.records, self.lister.spaces)?;
        if let Some(place) = view.place {
            self.used[place.index()] = true;
        }
        let (dtype, shape) = (view.dtype, &view.shape);
        check_size(dtype, shape)?;
        let layout = std::mem::take(&mut view.layout);
        let mut extent = Extent::strided(stored.source, stored.bytes, dtype, shape, layout)?;
        (extent.order, extent.checksum) = (self.lister.order, stored.checksum);
        if view.conj || view.neg {
            match self.flipped(&view, &stored)? {
                Some(source) => {
                    extent.source = source;
                    extent.bytes = ByteRange::new(0, stored.bytes.len())?;
                    extent.checksum = None;
                }
                None => {
                    let bits = if view.conj { "conjugate" } else { "negative" };
                    let why = format!("the values are the {bits} of those stored, which {dtype} has no bit for");
                    return Ok(Entry::broken(path, dtype, shape.clone(), why));
                }
            }
        }
        let run = (extent.source, extent.bytes.start(), extent.bytes.len());
        let mut entry = Entry::new(path, dtype, view.shape, vec![extent])?;
        entry.remarks = view.remarks;
        if entry.bytes < stored.bytes.len() {
            entry.remarks.push(format!("view of {} bytes", stored.bytes.len()));
        }
        // Empty tensors share nothing.
        let entries = &self.listing.entries;
        let tied = if entry.bytes > 0 { self.places.tie(&entry, run, entries) } else { None };
        entry.remarks.extend(tied.map(|other| format!("tied to {}", entries[other].name)));
        Ok(entry)
    }

    /// A tensor whose values are in the pickle, cast where they are of another dtype than the tensor.
    fn array(&mut self, path: KeyPath, node: NodeId, dtype: Option<DType>) -> Result<Entry> {
        let graph = self.lister.graph;
        let array = numpy::array(graph, node).ok_or_else(|| {
            Error::malformed(format!("a tensor is made from {} instead of an array", graph.describe(node)))
        })?;
        let (from, mut values) = array.values(graph)?;
        let (to, mut order) = (dtype.unwrap_or(from), array.order);
        if to != from {
            if order == ByteOrder::Big {
                swap::byteswap(from.swap_unit(), &mut values);
                order = ByteOrder::Little;
            }
            values = converted(from, to, &values)?;
        }
        let spaces = &mut *self.lister.spaces;
        let len = values.len() as u64;
        let source = spaces.add_decoded("an array in the pickle".into(), len, Decoder::Bytes(values), SourceId(0));
        let bytes = ByteRange::new(0, len)?;
        let extent = Extent::strided(source, bytes, to, &array.shape, array.layout())?.with_order(order);
        Entry::new(path, to, array.shape.clone(), vec![extent])
    }

    /// The storage with the signs flipped that the tensor's bits ask for.
    fn flipped(&mut self, view: &View, stored: &Stored) -> Result<Option<SourceId>> {
        let Some(flip) = SignFlip::of(view.dtype, view.conj, view.neg, self.lister.order) else { return Ok(None) };
        let key = (stored.source, stored.bytes.start(), stored.bytes.len(), flip);
        if let Some(&known) = self.flipped.get(&key) {
            return Ok(Some(known));
        }
        let spaces = &mut *self.lister.spaces;
        let label = format!("storage {:?} with signs flipped", view.storage.key);
        let origin = spaces.origin(stored.source, stored.bytes);
        let decoder = Decoder::Flipped(Box::new(origin), flip);
        let source = spaces.add_decoded(label, stored.bytes.len(), decoder, stored.source);
        self.flipped.insert(key, source);
        Ok(Some(source))
    }
}

/// How much of the joined path leads to the container.
fn entry_prefix(path: &[Key]) -> usize {
    let container = path.len().saturating_sub(1);
    path[..container].iter().map(|key| key.joined_len() + 1).sum()
}

/// Values in another dtype. Such tensors were of that dtype before they were made an array, so nothing is lost.
fn converted(from: DType, to: DType, values: &[u8]) -> Result<Vec<u8>> {
    let pair = CastPair::new(from, to).ok_or_else(|| Error::unsupported(format!("a {to} tensor kept as {from}")))?;
    let elements = values.len() as u64 / from.element_bytes(Packing::Dense).unwrap_or(1);
    let mut out = vec![0; to.bytes(elements, Packing::Dense).unwrap_or(0) as usize];
    cast(pair, Overflow::Inf, values, &mut out);
    Ok(out)
}

fn check_size(dtype: DType, shape: &Shape) -> Result<()> {
    match dtype.bytes(shape.elements(), Packing::Dense) {
        Some(_) => Ok(()),
        None => Err(Error::malformed(format!("{dtype} of shape {shape} has more than 2^63 bytes"))),
    }
}

/// The checksum of a zip member, in the words of the catalog.
pub(crate) fn checksum(crc: Option<u32>) -> Option<Checksum> {
    crc.map(Checksum::Crc32)
}
