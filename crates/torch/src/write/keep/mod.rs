//! The whole object tree written back, its tensors changed.

mod tensors;

use super::allowed::{Verdict, Verdicts};
use super::calls::{call, refuse};
use super::edit::{Change, Edits};
use super::tensor::{self, Placed};
use crate::checkpoint::Tree;
use crate::pickle::{Edit, Emitter, Graph, Make, Node, NodeId, Object, opcode as op};
use crate::storage::{StorageId, Stored};
use crate::tensor::{self as rebuilt, Tensor};
use crate::tree::{self, Child, Slot};
use foldhash::{HashMap, HashMapExt};
use std::collections::BTreeSet;
use weightlift_core::{ByteOrder, Error, Key, Manifest, Output, Result, WriteOptions};

/// What to do next. A stack of these stands in for recursion.
enum Work {
    /// A node, or what was made of it.
    Part(NodeId, Option<Slot>),
    /// A tensor in place of another.
    Tensor(NodeId, usize),
    /// A tensor that was not there before.
    Fresh(usize),
    /// The function that rebuilds a tensor, alone.
    Function(usize),
    /// Storage, offset, size and stride of a quantized tensor, and the node of the storage's class.
    Quantized(usize, NodeId),
    /// The arguments of that function, and whether the tensor requires a gradient.
    Arguments(usize, bool),
    Op(u8),
    Text(String),
    Int(i64),
    /// The end of a tuple: its length.
    TupleEnd(NodeId, usize),
    /// The end of an object's making: the opcode, and the values it takes.
    MakeEnd(NodeId, u8, usize),
    /// Remembers what was just made.
    Put(Memo),
}

/// What is remembered: a node, or a node that an output has taken the place of.
type Memo = (NodeId, Option<usize>);

struct Emission<'a> {
    tree: &'a Tree,
    graph: &'a Graph,
    edits: &'a Edits,
    outputs: &'a [Output],
    placed: &'a [Placed],
    /// For each output the first that is the same view of the same blob.
    canonical: Vec<usize>,
    references: Vec<u32>,
    memo: HashMap<Memo, u32>,
    work: Vec<Work>,
    out: Emitter,
    carried: Vec<Stored>,
    carried_keys: HashMap<StorageName, usize>,
    first_key: usize,
    calls: BTreeSet<String>,
    /// What is left out, where the file must load with `weights_only=True`.
    verdicts: Option<Verdicts>,
}

/// The pickle of a tree with its tensors changed, and the storages it needs beside the blobs.
///
/// # Errors
/// `Request`, naming them, where the tree has calls that are not known to be inert; `Unsupported` for values that
/// cannot be written.
pub(super) fn pickle(
    tree: &Tree,
    edits: &Edits,
    manifest: &Manifest,
    placed: &[Placed],
    options: &WriteOptions,
) -> Result<(Vec<u8>, Vec<Stored>)> {
    let outputs = manifest.tensors.as_slice();
    let mut emission = Emission {
        tree,
        graph: &tree.graph,
        edits,
        outputs,
        placed,
        canonical: canonical(placed),
        references: references(&tree.graph, tree.root),
        memo: HashMap::new(),
        work: Vec::new(),
        out: Emitter::new(),
        carried: Vec::new(),
        carried_keys: shared_keys(tree, edits, outputs, placed),
        first_key: manifest.blobs.len(),
        calls: BTreeSet::new(),
        verdicts: options.weights_only.then(|| Verdicts::of(tree)),
    };
    emission.run(options.nest.as_deref())?;
    let Emission { calls, out, carried, .. } = emission;
    if !options.keep_calls {
        refuse(calls)?;
    }
    Ok((out.finish(), carried))
}

/// The key of a record, and which part of it a storage is.
type StorageName = (String, Option<(u64, u64)>);

/// Storages that an output takes the place of: same dtype, same view, same length. What else names them shares the
/// output's record, as it shared theirs.
fn shared_keys(tree: &Tree, edits: &Edits, outputs: &[Output], placed: &[Placed]) -> HashMap<StorageName, usize> {
    let mut keys = HashMap::new();
    for change in edits.slots.values() {
        let (Change::Replace(output) | Change::Rename(_, output)) = change else { continue };
        let node = outputs[*output].origin.and_then(|origin| tree.found.get(origin.entry.0 as usize));
        let tensor = node.and_then(|found| rebuilt::read(&tree.graph, found.node).ok().flatten());
        let Some(Tensor::View(view)) = tensor else { continue };
        let same_bytes = view.storage.bytes().ok() == Some(placed[*output].storage_bytes());
        let layout = outputs[*output].parts.first().map(|part| &part.layout);
        if same_bytes && view.dtype == outputs[*output].dtype && layout == Some(&view.layout) {
            keys.insert((view.storage.key.clone(), view.storage.view), placed[*output].key() as usize);
        }
    }
    keys
}

/// For each output the first that is the same view of the same blob. Of tensors without elements the blob has no say.
fn canonical(placed: &[Placed]) -> Vec<usize> {
    let mut first = HashMap::new();
    placed.iter().enumerate().map(|(at, placed)| *first.entry(placed.identity()).or_insert(at)).collect()
}

/// How often each node that can be reached is named.
fn references(graph: &Graph, root: NodeId) -> Vec<u32> {
    let mut references = vec![0u32; graph.len()];
    references[root.index()] = 1;
    let mut pending = vec![root];
    while let Some(node) = pending.pop() {
        graph.parts(node, |part| {
            let count = &mut references[part.index()];
            if *count == 0 {
                pending.push(part);
            }
            *count = count.saturating_add(1);
        });
    }
    references
}

impl Emission<'_> {
    fn run(&mut self, nest: Option<&str>) -> Result<()> {
        let root = match self.edits.root {
            Some(output) => Work::Tensor(self.tree.root, output),
            None => Work::Part(self.tree.root, None),
        };
        match nest {
            Some(key) => {
                self.queue(vec![Work::Op(op::EMPTY_DICT), Work::Text(key.into()), root, Work::Op(op::SETITEM)]);
            }
            None => self.work.push(root),
        }
        while let Some(work) = self.work.pop() {
            match work {
                Work::Part(node, slot) => match slot.and_then(|slot| self.edits.slots.get(&slot)) {
                    Some(Change::Replace(output) | Change::Rename(_, output)) => self.tensor(node, *output)?,
                    _ => self.node(node)?,
                },
                Work::Tensor(node, output) => self.tensor(node, output)?,
                Work::Op(opcode) => self.out.op(opcode),
                Work::Text(text) => self.out.text(text.as_bytes()),
                Work::Int(int) => self.out.int(int),
                Work::Fresh(output) => tensor::emit(&mut self.out, &self.placed[output], false),
                Work::Function(output) => tensor::function(&mut self.out, &self.placed[output]),
                Work::Quantized(output, class) => {
                    let (module, name) = self.graph.global(class).unwrap_or_default();
                    tensor::view(&mut self.out, &self.placed[output], (module, name));
                }
                Work::Arguments(output, learns) => tensor::arguments(&mut self.out, &self.placed[output], learns),
                Work::TupleEnd(node, len) => self.tuple_end(node, len),
                Work::MakeEnd(node, opcode, values) => self.make_end(node, opcode, values),
                Work::Put(memo) => self.put(memo),
            }
        }
        Ok(())
    }

    /// Queues work in the order in which it is to be done.
    fn queue(&mut self, work: Vec<Work>) {
        self.work.extend(work.into_iter().rev());
    }

    fn put(&mut self, memo: Memo) {
        if self.references[memo.0.index()] > 1 {
            let number = self.memo.len() as u32;
            self.memo.insert(memo, number);
            self.out.put(number);
        }
    }

    fn recall(&mut self, memo: Memo) -> bool {
        let number = self.memo.get(&memo).copied();
        number.inspect(|&number| self.out.get(number)).is_some()
    }

    fn node(&mut self, node: NodeId) -> Result<()> {
        let memo = (node, None);
        if self.recall(memo) {
            return Ok(());
        }
        match self.verdict(node) {
            Verdict::Keep => {}
            Verdict::Drop => {
                self.out.op(op::NONE);
                return Ok(());
            }
            Verdict::StandIn => {
                self.stand_in(node);
                return Ok(());
            }
        }
        match self.graph.node(node) {
            Node::None => self.out.op(op::NONE),
            Node::Bool(truth) => self.out.bool(truth),
            Node::Int(int) => self.out.int(int),
            Node::Float(float) => self.out.float(float),
            Node::Long(digits) => self.out.long(self.graph.span(digits)),
            Node::Text(text) => {
                self.out.text(self.graph.span(text));
                self.put(memo);
            }
            Node::OldString(text) => self.out.old_string(self.graph.span(text)),
            Node::Bytes(bytes) => {
                self.out.byte_string(self.graph.span(bytes));
                self.put(memo);
            }
            Node::ByteArray(bytes) => {
                self.out.global(b"builtins", b"bytearray");
                self.out.byte_string(self.graph.span(bytes));
                self.out.op(op::TUPLE1);
                self.out.op(op::REDUCE);
                self.put(memo);
            }
            Node::Global(_) => {
                let (module, name) = self.graph.global(node).unwrap_or_default();
                self.out.global(module, name);
                self.put(memo);
            }
            Node::Tuple(_) => self.tuple(node),
            Node::FrozenSet(_) => self.made_from_list(node, b"frozenset"),
            Node::Set(_) => self.made_from_list(node, b"set"),
            Node::List(_) => self.list(node),
            Node::Dict(_) => self.dict(node),
            Node::Object(_) => self.object(node),
            Node::Persistent(id) => self.persistent(node, id)?,
            Node::Extension(code) => {
                return Err(Error::unsupported(format!("an object of extension code {code} cannot be written back")));
            }
        }
        Ok(())
    }

    fn verdict(&self, node: NodeId) -> Verdict {
        self.verdicts.as_ref().map_or(Verdict::Keep, |verdicts| verdicts.verdict(node))
    }

    /// Whether a node has something in it that must be left out.
    fn is_touched(&self, node: NodeId) -> bool {
        self.verdicts.as_ref().is_some_and(|verdicts| verdicts.touches(node))
    }

    /// A dict of what an object holds, or a list where it has only positions.
    fn stand_in(&mut self, node: NodeId) {
        let children = tree::children(self.graph, node);
        let is_list = children.iter().enumerate().all(|(at, child)| child.key == Key::Index(at as u64));
        self.out.op(if is_list { op::EMPTY_LIST } else { op::EMPTY_DICT });
        self.put((node, None));
        let mut holders = vec![node];
        let mut work = Vec::new();
        for Child { key, value, slot } in children {
            if !holders.contains(&slot.holder) {
                holders.push(slot.holder);
            }
            let change = self.edits.slots.get(&slot);
            let drops = change.is_none() && self.verdict(value) == Verdict::Drop;
            let key = match (change, key) {
                (Some(Change::Remove), _) => continue,
                (Some(Change::Rename(key, _)), _) => Work::Text(key.clone()),
                _ if drops && !is_list => continue,
                (_, Key::Text(text) | Key::Other(text)) => Work::Text(text),
                (_, Key::Int(int)) => Work::Int(int),
                (_, Key::Index(index)) => Work::Int(index as i64),
            };
            if !is_list {
                work.push(key);
            }
            work.push(Work::Part(value, Some(slot)));
        }
        if !is_list {
            holders.iter().for_each(|&holder| work.extend(self.added(holder)));
        }
        let work = run(if is_list { op::APPENDS } else { op::SETITEMS }, work);
        self.queue(work);
    }

    fn tuple(&mut self, node: NodeId) {
        let items = self.graph.items(node).unwrap_or_default();
        if items.is_empty() {
            return self.out.op(op::EMPTY_TUPLE);
        }
        let mut work = Vec::with_capacity(items.len() + 2);
        if items.len() > 3 {
            work.push(Work::Op(op::MARK));
        }
        work.extend(slots(node, 0, items));
        work.push(Work::TupleEnd(node, items.len()));
        self.queue(work);
    }

    /// A tuple that holds itself through a list was finished while its items were written: then that one is it.
    fn tuple_end(&mut self, node: NodeId, len: usize) {
        if self.memo.contains_key(&(node, None)) {
            match len {
                1..=3 => (0..len).for_each(|_| self.out.op(op::POP)),
                _ => self.out.op(op::POP_MARK),
            }
            self.recall((node, None));
            return;
        }
        self.out.op(match len {
            1 => op::TUPLE1,
            2 => op::TUPLE2,
            3 => op::TUPLE3,
            _ => op::TUPLE,
        });
        self.put((node, None));
    }

    /// A set or frozenset, as a call with a list of its members.
    fn made_from_list(&mut self, node: NodeId, class: &[u8]) {
        let items = self.graph.items(node).unwrap_or_default();
        self.out.global(b"builtins", class);
        self.out.op(op::EMPTY_LIST);
        let mut work = vec![Work::Op(op::MARK)];
        work.extend(slots(node, 0, items));
        work.extend([Work::Op(op::APPENDS), Work::Op(op::TUPLE1), Work::MakeEnd(node, op::REDUCE, 2)]);
        self.queue(work);
    }

    fn list(&mut self, node: NodeId) {
        let items = self.graph.items(node).unwrap_or_default();
        self.out.op(op::EMPTY_LIST);
        self.put((node, None));
        let work = run(op::APPENDS, slots(node, 0, items).collect());
        self.queue(work);
    }

    fn dict(&mut self, node: NodeId) {
        let pairs = self.graph.pairs(node).unwrap_or_default();
        self.out.op(op::EMPTY_DICT);
        self.put((node, None));
        let mut work = run(op::SETITEMS, self.pairs(node, 0, pairs));
        work.extend(run(op::SETITEMS, self.added(node)));
        self.queue(work);
    }

    /// Keys and values that are the parts of `holder` from `first` on, without those that go.
    fn pairs(&self, holder: NodeId, first: usize, pairs: &[NodeId]) -> Vec<Work> {
        let mut work = Vec::with_capacity(pairs.len());
        for (at, pair) in effective(self.graph, pairs) {
            let slot = Slot { holder, part: (first + 2 * at + 1) as u32 };
            match self.edits.slots.get(&slot) {
                Some(Change::Remove) => continue,
                Some(Change::Rename(key, _)) => work.push(Work::Text(key.clone())),
                _ if self.is_touched(pair[0]) => continue,
                None if self.verdict(pair[1]) == Verdict::Drop => continue,
                _ => work.push(Work::Part(pair[0], None)),
            }
            work.push(Work::Part(pair[1], Some(slot)));
        }
        work
    }

    /// Keys and values that are new in a dict or object.
    fn added(&self, node: NodeId) -> Vec<Work> {
        let added = self.edits.added.get(&node).into_iter().flatten();
        added.flat_map(|(key, output)| [Work::Text(key.clone()), Work::Fresh(*output)]).collect()
    }

    fn object(&mut self, node: NodeId) {
        let Some(object) = self.graph.object(node) else { return };
        self.check_call(object);
        let mut work = vec![Work::Part(object.callable, None), Work::Part(object.args, None)];
        match object.make {
            Make::Call => work.push(Work::MakeEnd(node, op::REDUCE, 2)),
            Make::New => work.push(Work::MakeEnd(node, op::NEWOBJ, 2)),
            Make::NewWith(kwargs) => {
                work.push(Work::Part(kwargs, None));
                work.push(Work::MakeEnd(node, op::NEWOBJ_EX, 3));
            }
        }
        work.extend(self.object_edits(node, object));
        self.queue(work);
    }

    fn object_edits(&self, node: NodeId, object: &Object) -> Vec<Work> {
        let mut work = Vec::new();
        let mut part = if matches!(object.make, Make::NewWith(_)) { 3 } else { 2 };
        for edit in &object.edits {
            match edit {
                Edit::State(state) => {
                    work.push(Work::Part(*state, Some(Slot { holder: node, part: part as u32 })));
                    work.push(Work::Op(op::BUILD));
                }
                Edit::Append(items) => work.extend(run(op::APPENDS, slots(node, part, items).collect())),
                Edit::Add(items) => work.extend(run(op::ADDITEMS, slots(node, part, items).collect())),
                Edit::Set(pairs) => work.extend(run(op::SETITEMS, self.pairs(node, part, pairs))),
            }
            part += edit.len();
        }
        work.extend(run(op::SETITEMS, self.added(node)));
        work
    }

    fn make_end(&mut self, node: NodeId, opcode: u8, values: usize) {
        if self.memo.contains_key(&(node, None)) {
            (0..values).for_each(|_| self.out.op(op::POP));
            self.recall((node, None));
            return;
        }
        self.out.op(opcode);
        self.put((node, None));
    }

    /// Notes a call that is not known to be inert.
    fn check_call(&mut self, object: &Object) {
        self.calls.extend(call(self.graph, object));
    }

    fn persistent(&mut self, node: NodeId, id: NodeId) -> Result<()> {
        let fields = self.graph.items(id).unwrap_or_default();
        if let [tag, class, ..] = fields
            && self.graph.raw(*tag) == Some(b"module")
        {
            return self.node(*class);
        }
        let storage = StorageId::read(self.graph, node)?;
        let key = self.carry(&storage)?;
        let numel = storage.view.map_or(storage.numel, |(_, numel)| numel);
        self.out.op(op::MARK);
        self.out.text(b"storage");
        let (module, name) = fields.get(1).and_then(|&class| self.graph.global(class)).unwrap_or_default();
        self.out.global(module, name);
        self.out.text(key.to_string().as_bytes());
        self.out.text(b"cpu");
        self.out.number(numel);
        self.out.op(op::TUPLE);
        self.out.op(op::BINPERSID);
        Ok(())
    }

    /// The record of a storage that goes along as it is.
    fn carry(&mut self, storage: &StorageId) -> Result<usize> {
        let name = (storage.key.clone(), storage.view);
        if let Some(&known) = self.carried_keys.get(&name) {
            return Ok(known);
        }
        if self.tree.order == ByteOrder::Big {
            return Err(Error::unsupported("big-endian storages that are no tensors' cannot be written back"));
        }
        let stored = self.tree.storages.get(&storage.key);
        let stored = *stored.ok_or_else(|| Error::malformed(format!("the file has no storage {:?}", storage.key)))?;
        let key = self.first_key + self.carried.len();
        self.carried.push(stored.part(storage)?);
        self.carried_keys.insert(name, key);
        Ok(key)
    }
}

/// Keys and values, each with the position of its pair. Of a text key that is set twice the last value counts, at the
/// first place; numbers are left as they are.
fn effective(graph: &Graph, pairs: &[NodeId]) -> Vec<(usize, [NodeId; 2])> {
    let mut places: HashMap<Vec<u8>, usize> = HashMap::with_capacity(pairs.len() / 2);
    let mut found: Vec<(usize, [NodeId; 2])> = Vec::with_capacity(pairs.len() / 2);
    for (at, pair) in pairs.chunks_exact(2).enumerate() {
        let text = match graph.node(pair[0]) {
            Node::Text(_) | Node::OldString(_) => graph.raw(pair[0]),
            _ => None,
        };
        let known = text.and_then(|text| places.get(text).copied());
        match (known, text) {
            (Some(place), _) => found[place] = (at, [found[place].1[0], pair[1]]),
            (None, Some(text)) => {
                places.insert(text.to_vec(), found.len());
                found.push((at, [pair[0], pair[1]]));
            }
            (None, None) => found.push((at, [pair[0], pair[1]])),
        }
    }
    found
}

/// Parts of `holder` from `first` on.
fn slots(holder: NodeId, first: usize, items: &[NodeId]) -> impl Iterator<Item = Work> {
    let slot = move |at: usize| Some(Slot { holder, part: (first + at) as u32 });
    items.iter().enumerate().map(move |(at, &item)| Work::Part(item, slot(at)))
}

/// Values between a mark and the opcode that puts them into a container; nothing where there are none.
fn run(opcode: u8, values: Vec<Work>) -> Vec<Work> {
    if values.is_empty() {
        return values;
    }
    let mut work = Vec::with_capacity(values.len() + 2);
    work.push(Work::Op(op::MARK));
    work.extend(values);
    work.push(Work::Op(opcode));
    work
}
