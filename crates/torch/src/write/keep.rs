//! The whole object tree written back, its tensors changed.

use super::edit::{Change, Edits};
use super::inert;
use super::tensor::{self, Placed};
use crate::checkpoint::Tree;
use crate::pickle::{Edit, Emitter, Graph, Make, Node, NodeId, Object, opcode as op};
use crate::storage::{StorageId, Stored};
use crate::symbol::{Rebuild, StorageType};
use crate::tensor::{self as rebuilt, Tensor};
use crate::tree::Slot;
use std::collections::{BTreeSet, HashMap};
use weightlift_core::{ByteOrder, Class, DType, Error, Output, Result};

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
}

/// The pickle of a tree with its tensors changed, and the storages it needs beside the blobs.
///
/// # Errors
/// `Request`, naming them, where the tree has calls that are not known to be inert; `Unsupported` for values that
/// cannot be written.
pub(super) fn pickle(
    tree: &Tree,
    edits: &Edits,
    outputs: &[Output],
    placed: &[Placed],
    blobs: usize,
) -> Result<(Vec<u8>, Vec<Stored>)> {
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
        first_key: blobs,
        calls: BTreeSet::new(),
    };
    emission.run()?;
    let Emission { calls, out, carried, .. } = emission;
    if !calls.is_empty() {
        let names = calls.into_iter().collect::<Vec<_>>().join(", ");
        let message = format!("the objects around the tensors call {names}, which loading the file would run");
        return Err(Error::request(message).help("--weights-only leaves such objects out"));
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

fn canonical(placed: &[Placed]) -> Vec<usize> {
    let mut first = HashMap::new();
    placed.iter().enumerate().map(|(at, placed)| *first.entry(placed).or_insert(at)).collect()
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
    fn run(&mut self) -> Result<()> {
        self.work.push(match self.edits.root {
            Some(output) => Work::Tensor(self.tree.root, output),
            None => Work::Part(self.tree.root, None),
        });
        while let Some(work) = self.work.pop() {
            match work {
                Work::Part(node, slot) => match slot.and_then(|slot| self.edits.slots.get(&slot)) {
                    Some(Change::Replace(output) | Change::Rename(_, output)) => self.tensor(node, *output)?,
                    _ => self.node(node)?,
                },
                Work::Tensor(node, output) => self.tensor(node, output)?,
                Work::Op(opcode) => self.out.op(opcode),
                Work::Text(text) => self.out.text(text.as_bytes()),
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

    /// Notes a call that is not known to be inert. Classes that are only instantiated are written by name.
    fn check_call(&mut self, object: &Object) {
        if object.make != Make::Call {
            return;
        }
        let inert = |node: NodeId| match self.graph.global(node) {
            Some((module, name)) => inert::is_inert(module, name),
            None => self.graph.node(node) == Node::None,
        };
        // These call what they are given.
        let given = match self.graph.global(object.callable) {
            Some((_, b"_rebuild_from_type_v2" | b"_rebuild_from_type" | b"defaultdict")) => {
                self.graph.items(object.args).and_then(|args| args.first()).copied()
            }
            _ => None,
        };
        let wrong = [Some(object.callable), given].into_iter().flatten().find(|&callable| !inert(callable));
        if let Some(callable) = wrong {
            self.calls.insert(self.graph.describe(callable));
        }
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

/// Tensors in place of others.
impl Emission<'_> {
    /// Writes an output in place of the tensor of a node; parameters, subclasses and attributes stay around it.
    fn tensor(&mut self, node: NodeId, output: usize) -> Result<()> {
        let memo = (node, Some(self.canonical[output]));
        if self.recall(memo) {
            return Ok(());
        }
        // Only such numbers can be parameters that learn.
        let learns = matches!(self.outputs[output].dtype.class(), Class::Float | Class::Complex);
        let object = self.graph.object(node);
        let args = object.and_then(|object| self.graph.items(object.args)).unwrap_or_default();
        let wrapper = object.and_then(|object| rebuilt::rebuild_of(self.graph, object.callable));
        let mut work = match (wrapper, args) {
            (Some(Rebuild::Wrapped), [inner, rest @ ..]) if learns => {
                let mut work = vec![Work::Op(op::MARK), Work::Tensor(*inner, output)];
                work.extend(rest.iter().map(|&arg| Work::Part(arg, None)));
                work
            }
            (Some(Rebuild::FromType), [function, class, inner, rest @ ..]) if learns => {
                let mut work = self.typed(*function, *class, *inner, output, node);
                work.extend(rest.iter().map(|&arg| Work::Part(arg, None)));
                work
            }
            (Some(Rebuild::Quantized), [storage, _, _, _, rest @ ..]) if self.is_its_integer(*storage, output) => {
                let class = self.graph.items(self.storage_fields(*storage)).and_then(|fields| fields.get(1)).copied();
                let mut work = vec![Work::Op(op::MARK), Work::Quantized(output, class.unwrap_or(*storage))];
                work.extend(rest.iter().map(|&arg| Work::Part(arg, None)));
                work
            }
            _ => {
                let learns = learns && rebuilt::requires_grad(self.graph, node);
                tensor::emit(&mut self.out, &self.placed[output], learns);
                self.put(memo);
                return Ok(());
            }
        };
        if let Some(object) = object {
            self.check_call(object);
            work.insert(0, Work::Part(object.callable, None));
            work.push(Work::Op(op::TUPLE));
            work.push(Work::Op(if object.make == Make::Call { op::REDUCE } else { op::NEWOBJ }));
            work.push(Work::Put(memo));
            work.extend(self.object_edits(node, object));
        }
        self.queue(work);
        Ok(())
    }

    /// Whether an output holds the integers of a quantized storage as they are.
    fn is_its_integer(&self, storage: NodeId, output: usize) -> bool {
        let class = StorageId::read(self.graph, storage).map(|storage| storage.class);
        let integer = match class {
            Ok(StorageType::Typed(DType::Qi8)) => DType::I8,
            Ok(StorageType::Typed(DType::Qu8)) => DType::U8,
            Ok(StorageType::Typed(DType::Qi32)) => DType::I32,
            _ => return false,
        };
        self.outputs[output].dtype == integer
    }

    /// The id of a storage.
    fn storage_fields(&self, storage: NodeId) -> NodeId {
        match self.graph.node(storage) {
            Node::Persistent(id) => id,
            _ => storage,
        }
    }

    /// Function, class and arguments of a tensor of another type.
    fn typed(&self, function: NodeId, class: NodeId, inner: NodeId, output: usize, node: NodeId) -> Vec<Work> {
        let args = self.graph.items(inner).unwrap_or_default();
        match (rebuilt::rebuild_of(self.graph, function), args) {
            (Some(Rebuild::Wrapped), [tensor, rest @ ..]) => {
                let mut work = vec![Work::Op(op::MARK), Work::Part(function, None), Work::Part(class, None)];
                work.extend([Work::Op(op::MARK), Work::Tensor(*tensor, output)]);
                work.extend(rest.iter().map(|&arg| Work::Part(arg, None)));
                work.push(Work::Op(op::TUPLE));
                work
            }
            _ => {
                let learns = rebuilt::requires_grad(self.graph, node);
                let function = Work::Function(output);
                vec![Work::Op(op::MARK), function, Work::Part(class, None), Work::Arguments(output, learns)]
            }
        }
    }
}
