//! What a pickle says, as data: an arena of nodes that name each other by position.

use std::borrow::Cow;
use weightlift_core::{Error, Result};

/// The position of a node in its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(u32);

impl NodeId {
    /// No node: the last position, which no graph reaches.
    pub(super) const NOWHERE: NodeId = NodeId(u32::MAX);

    /// The position as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A run of bytes in the pickle, or in the graph's own store of decoded text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    start: u64,
    len: u64,
}

/// Set in [`Span::start`] for text that had to be decoded.
const DECODED: u64 = 1 << 63;

/// A run of items in the graph's pool of children.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Items {
    start: u32,
    len: u32,
}

/// One value of a pickle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Node {
    /// `None`.
    None,
    /// `True` or `False`.
    Bool(bool),
    /// An integer of at most 64 bits.
    Int(i64),
    /// A longer integer: two's complement, low byte first.
    Long(Span),
    /// A floating-point number.
    Float(f64),
    /// Text: UTF-8, where lone surrogates may occur.
    Text(Span),
    /// Bytes.
    Bytes(Span),
    /// A string of Python 2: text or bytes, nobody knows.
    OldString(Span),
    /// A bytearray.
    ByteArray(Span),
    /// A tuple.
    Tuple(Items),
    /// A frozenset.
    FrozenSet(Items),
    /// A list, by its position among the growing containers.
    List(u32),
    /// A dict: key, value, key, value, in the order in which they were set.
    Dict(u32),
    /// A set.
    Set(u32),
    /// A name that Python would import.
    Global(u32),
    /// What Python would make by a call.
    Object(u32),
    /// A value that is kept outside of the pickle; the node is its id.
    Persistent(NodeId),
    /// A number of Python's extension registry.
    Extension(u32),
}

/// The name of a class or function. Never imported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Global {
    /// The module.
    pub module: Span,
    /// The name in it, possibly dotted.
    pub name: Span,
}

/// How Python would make an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Make {
    /// By a call: `callable(*args)`.
    Call,
    /// By `class.__new__(class, *args)`.
    New,
    /// By `class.__new__(class, *args, **kwargs)`.
    NewWith(NodeId),
}

/// What was done to an object after it was made, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Edit {
    /// State set.
    State(NodeId),
    /// Items appended.
    Append(Vec<NodeId>),
    /// Keys set: key, value, key, value.
    Set(Vec<NodeId>),
    /// Members added.
    Add(Vec<NodeId>),
}

impl Edit {
    /// How many nodes it names.
    #[expect(clippy::len_without_is_empty, reason = "an edit without nodes is an ordinary one")]
    pub fn len(&self) -> usize {
        match self {
            Edit::State(_) => 1,
            Edit::Append(items) | Edit::Set(items) | Edit::Add(items) => items.len(),
        }
    }
}

/// What Python would make by a call; here only written down.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// How.
    pub make: Make,
    /// The function or class.
    pub callable: NodeId,
    /// The arguments, normally a tuple.
    pub args: NodeId,
    /// What happened to it afterwards.
    pub edits: Vec<Edit>,
}

/// The nodes of one pickle, or of several that follow one another.
///
/// Nothing here is recursive: however deep the objects nest, a graph is made, walked and dropped without recursion.
/// A graph takes at most [`Graph::BYTES_PER_PICKLE_BYTE`] bytes of memory for each byte of pickle.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    pub(super) bytes: Vec<u8>,
    decoded: Vec<u8>,
    nodes: Vec<Node>,
    children: Vec<NodeId>,
    growing: Vec<Vec<NodeId>>,
    globals: Vec<Global>,
    objects: Vec<Object>,
}

fn position(len: usize) -> Result<u32> {
    let position = u32::try_from(len).ok().filter(|&position| position != u32::MAX);
    position.ok_or_else(|| Error::limit("the pickle has more than 2^32 objects"))
}

impl Graph {
    /// The most bytes of memory that one byte of pickle can cost (a pickle made for it; ordinary ones take about as
    /// much as they are long).
    pub const BYTES_PER_PICKLE_BYTE: usize = 160;

    /// The node at a position of this graph.
    pub fn node(&self, id: NodeId) -> Node {
        self.nodes[id.index()]
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All positions.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The bytes of a span of this graph.
    pub fn span(&self, span: Span) -> &[u8] {
        let (store, start) = match span.start & DECODED {
            0 => (&self.bytes, span.start),
            _ => (&self.decoded, span.start ^ DECODED),
        };
        &store[start as usize..(start + span.len) as usize]
    }

    /// The bytes of a text, bytes or bytearray.
    pub fn raw(&self, id: NodeId) -> Option<&[u8]> {
        match self.node(id) {
            Node::Text(span) | Node::Bytes(span) | Node::OldString(span) | Node::ByteArray(span) => {
                Some(self.span(span))
            }
            _ => None,
        }
    }

    /// Where the bytes of a text or bytes node stand in the pickle; `None` where they were decoded.
    pub fn place(&self, id: NodeId) -> Option<(u64, u64)> {
        match self.node(id) {
            Node::Text(span) | Node::Bytes(span) | Node::OldString(span) | Node::ByteArray(span) => {
                (span.start & DECODED == 0).then_some((span.start, span.len))
            }
            _ => None,
        }
    }

    /// The text of a text node or Python 2 string; what is no UTF-8 is replaced.
    pub fn text(&self, id: NodeId) -> Option<Cow<'_, str>> {
        match self.node(id) {
            Node::Text(span) | Node::OldString(span) => Some(match std::str::from_utf8(self.span(span)) {
                Ok(text) => Cow::Borrowed(text),
                Err(_) => String::from_utf8_lossy(self.span(span)),
            }),
            _ => None,
        }
    }

    /// The integer of an integer node; `True` and `False` count as 1 and 0.
    pub fn int(&self, id: NodeId) -> Option<i64> {
        match self.node(id) {
            Node::Int(int) => Some(int),
            Node::Bool(truth) => Some(i64::from(truth)),
            _ => None,
        }
    }

    /// The items of a tuple, list, set or frozenset.
    pub fn items(&self, id: NodeId) -> Option<&[NodeId]> {
        match self.node(id) {
            Node::Tuple(items) | Node::FrozenSet(items) => Some(self.pool(items)),
            Node::List(at) | Node::Set(at) => Some(self.grown(at)),
            _ => None,
        }
    }

    /// Keys and values of a dict, alternating.
    pub fn pairs(&self, id: NodeId) -> Option<&[NodeId]> {
        match self.node(id) {
            Node::Dict(at) => Some(self.grown(at)),
            _ => None,
        }
    }

    /// The object of an object node.
    pub fn object(&self, id: NodeId) -> Option<&Object> {
        match self.node(id) {
            Node::Object(at) => self.objects.get(at as usize),
            _ => None,
        }
    }

    /// Module and name of a global.
    pub fn global(&self, id: NodeId) -> Option<(&[u8], &[u8])> {
        let Node::Global(at) = self.node(id) else { return None };
        let Global { module, name } = self.globals[at as usize];
        Some((self.span(module), self.span(name)))
    }

    /// `module.name` of a global, for people.
    pub fn dotted(&self, id: NodeId) -> Option<String> {
        let (module, name) = self.global(id)?;
        Some(format!("{}.{}", String::from_utf8_lossy(module), String::from_utf8_lossy(name)))
    }

    fn pool(&self, items: Items) -> &[NodeId] {
        &self.children[items.start as usize..(items.start + items.len) as usize]
    }

    fn grown(&self, at: u32) -> &[NodeId] {
        self.growing.get(at as usize).map_or(&[], |items| items)
    }

    /// The nodes that a node is made of, in order. Of an object: the callable, the arguments, the keyword arguments if
    /// there are any, then what its edits name.
    pub fn parts(&self, id: NodeId, mut each: impl FnMut(NodeId)) {
        match self.node(id) {
            Node::Tuple(items) | Node::FrozenSet(items) => self.pool(items).iter().copied().for_each(each),
            Node::List(at) | Node::Set(at) | Node::Dict(at) => self.grown(at).iter().copied().for_each(each),
            Node::Persistent(of) => each(of),
            Node::Object(at) => {
                let object = &self.objects[at as usize];
                each(object.callable);
                each(object.args);
                if let Make::NewWith(kwargs) = object.make {
                    each(kwargs);
                }
                for edit in &object.edits {
                    match edit {
                        Edit::State(state) => each(*state),
                        Edit::Append(items) | Edit::Set(items) | Edit::Add(items) => {
                            items.iter().copied().for_each(&mut each);
                        }
                    }
                }
            }
            _ => {}
        }
    }

    /// Bytes of memory in use.
    pub fn memory(&self) -> usize {
        let edits = |edit: &Edit| match edit {
            Edit::State(_) => 0,
            Edit::Append(items) | Edit::Set(items) | Edit::Add(items) => items.capacity() * size_of::<NodeId>(),
        };
        self.bytes.capacity()
            + self.decoded.capacity()
            + self.nodes.capacity() * size_of::<Node>()
            + self.children.capacity() * size_of::<NodeId>()
            + self.growing.capacity() * size_of::<Vec<NodeId>>()
            + self.growing.iter().map(|items| items.capacity() * size_of::<NodeId>()).sum::<usize>()
            + self.globals.capacity() * size_of::<Global>()
            + self.objects.capacity() * size_of::<Object>()
            + self.objects.iter().map(|o| o.edits.capacity() * size_of::<Edit>()).sum::<usize>()
            + self.objects.iter().flat_map(|o| &o.edits).map(edits).sum::<usize>()
    }
}

/// Making: used by the machine alone.
impl Graph {
    /// An empty graph with room for what a pickle of tensors becomes.
    pub(super) fn of(bytes: Vec<u8>) -> Graph {
        let nodes = bytes.len() / 8;
        let (nodes, children) = (Vec::with_capacity(nodes), Vec::with_capacity(nodes));
        Graph { bytes, nodes, children, ..Graph::default() }
    }

    pub(super) fn add(&mut self, node: Node) -> Result<NodeId> {
        let id = NodeId(position(self.nodes.len())?);
        self.nodes.push(node);
        Ok(id)
    }

    pub(super) fn add_decoded(&mut self, bytes: &[u8]) -> Span {
        let start = self.decoded.len() as u64 | DECODED;
        self.decoded.extend_from_slice(bytes);
        Span { start, len: bytes.len() as u64 }
    }

    pub(super) fn span_at(start: usize, len: usize) -> Span {
        Span { start: start as u64, len: len as u64 }
    }

    pub(super) fn add_items(&mut self, items: &[NodeId]) -> Result<Items> {
        let (start, len) = (position(self.children.len())?, position(items.len())?);
        self.children.extend_from_slice(items);
        position(self.children.len())?;
        Ok(Items { start, len })
    }

    pub(super) fn add_global(&mut self, module: Span, name: Span) -> Result<NodeId> {
        let at = position(self.globals.len())?;
        self.globals.push(Global { module, name });
        self.add(Node::Global(at))
    }

    pub(super) fn add_object(&mut self, make: Make, callable: NodeId, args: NodeId) -> Result<NodeId> {
        let at = position(self.objects.len())?;
        self.objects.push(Object { make, callable, args, edits: Vec::new() });
        self.add(Node::Object(at))
    }

    /// Extends a list, dict or set. An empty one has no vector of its own yet.
    pub(super) fn grow(&mut self, id: NodeId, items: &[NodeId]) -> Result<()> {
        let fresh = position(self.growing.len())?;
        let at = match &mut self.nodes[id.index()] {
            Node::List(at) | Node::Dict(at) | Node::Set(at) => at,
            _ => return Ok(()),
        };
        if items.is_empty() {
            return Ok(());
        }
        if *at == EMPTY {
            *at = fresh;
            self.growing.push(Vec::new());
        }
        let at = *at as usize;
        self.growing[at].extend_from_slice(items);
        Ok(())
    }

    pub(super) fn edit(&mut self, id: NodeId, edit: Edit) {
        let Node::Object(at) = self.nodes[id.index()] else { return };
        let edits = &mut self.objects[at as usize].edits;
        match (edits.last_mut(), edit) {
            (Some(Edit::Append(old)), Edit::Append(new)) => old.extend(new),
            (Some(Edit::Set(old)), Edit::Set(new)) => old.extend(new),
            (Some(Edit::Add(old)), Edit::Add(new)) => old.extend(new),
            (_, edit) => edits.push(edit),
        }
    }
}

/// The vector of a container that nothing was put into.
pub(super) const EMPTY: u32 = u32::MAX;
