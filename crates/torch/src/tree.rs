//! The objects of a checkpoint as a tree of containers: which keys lead from one to the next.

use crate::pickle::{Edit, Graph, Make, Node, NodeId, Object};
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use weightlift_core::Key;

/// The place of a value: the node that holds it, and which of that node's parts it is (see [`Graph::parts`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) holder: NodeId,
    pub(crate) part: u32,
}

/// A value in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) key: Key,
    pub(crate) value: NodeId,
    pub(crate) slot: Slot,
}

/// What a container holds, in order. A key that was set twice has its first place and last value.
pub(crate) fn children(graph: &Graph, node: NodeId) -> Vec<Child> {
    if let Some(children) = module_children(graph, node) {
        return children;
    }
    let mut out = Children::default();
    match graph.node(node) {
        Node::Dict(_) => out.dict(graph, node),
        Node::Object(_) => out.object(graph, node),
        _ => out.sequence(graph, node),
    }
    out.unique()
}

#[derive(Default)]
struct Children {
    children: Vec<Child>,
}

impl Children {
    /// The children, those of a key that was set again at its first place with its last value. Most often there is none.
    fn unique(mut self) -> Vec<Child> {
        let is_set = |child: &&Child| !matches!(child.key, Key::Index(_));
        let once = {
            let mut seen = HashSet::with_capacity(self.children.len());
            self.children.iter().filter(is_set).all(|child| seen.insert(&child.key))
        };
        if once {
            return self.children;
        }
        let mut places: HashMap<Key, usize> = HashMap::new();
        let mut kept: Vec<Child> = Vec::new();
        for child in self.children.drain(..) {
            match places.get(&child.key) {
                Some(&at) => kept[at] = child,
                None => {
                    if is_set(&&child) {
                        places.insert(child.key.clone(), kept.len());
                    }
                    kept.push(child);
                }
            }
        }
        kept
    }

    fn set(&mut self, key: Key, value: NodeId, slot: Slot) {
        self.children.push(Child { key, value, slot });
    }

    /// Keys and values that are the parts of `holder` from `first` on.
    fn pairs(&mut self, graph: &Graph, pairs: &[NodeId], holder: NodeId, first: usize) {
        self.children.reserve(pairs.len() / 2);
        for (at, pair) in pairs.chunks_exact(2).enumerate() {
            let part = (first + 2 * at + 1) as u32;
            self.set(key(graph, pair[0]), pair[1], Slot { holder, part });
        }
    }

    fn dict(&mut self, graph: &Graph, node: NodeId) {
        self.pairs(graph, graph.pairs(node).unwrap_or_default(), node, 0);
    }

    /// Items that are the parts of `holder` from `first` on. They are never looked up by key, and may be many.
    fn items(&mut self, items: &[NodeId], holder: NodeId, first: usize) {
        let start = self.children.len();
        let child = |(at, &value): (usize, &NodeId)| Child {
            key: Key::Index((start + at) as u64),
            value,
            slot: Slot { holder, part: (first + at) as u32 },
        };
        self.children.extend(items.iter().enumerate().map(child));
    }

    fn sequence(&mut self, graph: &Graph, node: NodeId) {
        self.items(graph.items(node).unwrap_or_default(), node, 0);
    }

    fn object(&mut self, graph: &Graph, node: NodeId) {
        let Some(object) = graph.object(node) else { return };
        match ordered_dict_items(graph, node) {
            Some(pairs) => self.made_from_pairs(graph, &pairs),
            None => self.sequence(graph, object.args),
        }
        let mut part = 2;
        if let Make::NewWith(kwargs) = object.make {
            self.dict(graph, kwargs);
            part += 1;
        }
        for edit in &object.edits {
            match edit {
                Edit::State(state) => self.state(graph, *state, Slot { holder: node, part: part as u32 }),
                Edit::Append(items) | Edit::Add(items) => self.items(items, node, part),
                Edit::Set(pairs) => self.pairs(graph, pairs, node, part),
            }
            part += edit.len();
        }
    }

    fn made_from_pairs(&mut self, graph: &Graph, pairs: &[NodeId]) {
        for &pair in pairs {
            if let Some(&[name, value]) = graph.items(pair) {
                self.set(key(graph, name), value, Slot { holder: pair, part: 1 });
            }
        }
    }

    /// A state is the dict of attributes, or a tuple of it and the dict of slots, or anything.
    fn state(&mut self, graph: &Graph, state: NodeId, slot: Slot) {
        match graph.items(state) {
            _ if graph.pairs(state).is_some() => self.dict(graph, state),
            Some(&[attributes, slots]) if [attributes, slots].iter().all(|&part| is_attributes(graph, part)) => {
                self.dict(graph, attributes);
                self.dict(graph, slots);
            }
            Some(_) => self.sequence(graph, state),
            None => self.items(&[state], slot.holder, slot.part as usize),
        }
    }
}

fn is_attributes(graph: &Graph, node: NodeId) -> bool {
    matches!(graph.node(node), Node::None | Node::Dict(_))
}

/// The pairs that an `OrderedDict` of old was made from: a list of `[key, value]`.
fn ordered_dict_items(graph: &Graph, node: NodeId) -> Option<Vec<NodeId>> {
    let object = graph.object(node).filter(|_| is_mapping(graph, node))?;
    let items = graph.items(*graph.items(object.args)?.first()?)?;
    let is_pair = |&pair: &NodeId| graph.items(pair).is_some_and(|pair| pair.len() == 2);
    items.iter().all(is_pair).then(|| items.to_vec())
}

/// Whether a node is a dict or an `OrderedDict`.
pub(crate) fn is_mapping(graph: &Graph, node: NodeId) -> bool {
    match graph.object(node) {
        Some(object) => graph.global(object.callable) == Some((b"collections", b"OrderedDict")),
        None => graph.pairs(node).is_some(),
    }
}

/// What a dict or an `OrderedDict` holds, attributes left out.
pub(crate) fn mapping(graph: &Graph, node: NodeId) -> Option<Vec<Child>> {
    if !is_mapping(graph, node) {
        return None;
    }
    let mut out = Children::default();
    out.dict(graph, node);
    if let Some(object) = graph.object(node) {
        out.made_from_pairs(graph, &ordered_dict_items(graph, node).unwrap_or_default());
        let mut part = 2;
        for edit in &object.edits {
            if let Edit::Set(pairs) = edit {
                out.pairs(graph, pairs, node, part);
            }
            part += edit.len();
        }
    }
    Some(out.unique())
}

/// The attributes of an object whose state is a dict.
pub(crate) fn attributes(graph: &Graph, node: NodeId) -> Option<&[NodeId]> {
    match graph.object(node)?.edits.as_slice() {
        [Edit::State(state)] => graph.pairs(*state),
        _ => None,
    }
}

pub(crate) fn attribute(graph: &Graph, attributes: &[NodeId], name: &str) -> Option<NodeId> {
    let found = attributes.chunks_exact(2).rfind(|pair| graph.raw(pair[0]) == Some(name.as_bytes()));
    found.map(|pair| pair[1])
}

/// What `state_dict()` names in an `nn.Module`: its parameters, the buffers it keeps, then its submodules.
fn module_children(graph: &Graph, node: NodeId) -> Option<Vec<Child>> {
    let attributes = attributes(graph, node)?;
    let part = |name: &str| attribute(graph, attributes, name).and_then(|node| mapping(graph, node));
    let (parameters, modules) = (part("_parameters")?, part("_modules")?);
    let dropped = attribute(graph, attributes, "_non_persistent_buffers_set");
    let dropped: Vec<Key> = dropped.map(|set| set_items(graph, set)).unwrap_or_default();
    let buffers = part("_buffers").unwrap_or_default().into_iter().filter(|child| !dropped.contains(&child.key));
    let all = parameters.into_iter().chain(buffers).chain(modules);
    Some(all.filter(|child| graph.node(child.value) != Node::None).collect())
}

/// The members of a set, or of a set made from a list as protocol 2 does it.
fn set_items(graph: &Graph, node: NodeId) -> Vec<Key> {
    let made_from = |object: &Object| graph.items(object.args)?.first().copied();
    let list = graph.object(node).and_then(made_from).unwrap_or(node);
    graph.items(list).unwrap_or_default().iter().map(|&item| key(graph, item)).collect()
}

/// A dict's key.
pub(crate) fn key(graph: &Graph, node: NodeId) -> Key {
    match (graph.node(node), graph.text(node)) {
        (_, Some(text)) => Key::Text(text.into_owned()),
        (Node::Int(int), _) => Key::Int(int),
        (Node::Tuple(_), _) => {
            let items = graph.items(node).unwrap_or_default();
            let words: Vec<String> = items.iter().map(|&item| graph.describe(item)).collect();
            let comma = if words.len() == 1 { "," } else { "" };
            Key::Other(format!("({}{comma})", words.join(", ")))
        }
        _ => Key::Other(graph.describe(node)),
    }
}

/// For every node, whether one of `wanted` can be reached from it.
pub(crate) fn reaching(graph: &Graph, wanted: impl Iterator<Item = NodeId>) -> Vec<bool> {
    let mut marked = vec![false; graph.len()];
    let mut any = false;
    for node in wanted {
        marked[node.index()] = true;
        any = true;
    }
    // Containers are made before what they hold, tuples after it: a sweep each way settles what a pickler writes.
    if any && sweep(graph, graph.ids().rev(), &mut marked) && sweep(graph, graph.ids(), &mut marked) {
        Reverse::of(graph).spread(&mut marked);
    }
    marked
}

/// Marks whatever holds a marked node; whether one was marked.
fn sweep(graph: &Graph, nodes: impl Iterator<Item = NodeId>, marked: &mut [bool]) -> bool {
    let mut changed = false;
    for node in nodes {
        if marked[node.index()] {
            continue;
        }
        let mut holds = false;
        graph.parts(node, |part| holds |= marked[part.index()]);
        marked[node.index()] = holds;
        changed |= holds;
    }
    changed
}

/// Who holds a node.
struct Reverse {
    starts: Vec<u64>,
    parents: Vec<NodeId>,
}

impl Reverse {
    fn of(graph: &Graph) -> Reverse {
        let mut starts = vec![0u64; graph.len() + 1];
        for node in graph.ids() {
            graph.parts(node, |part| starts[part.index() + 1] += 1);
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut next = starts.clone();
        let mut parents = graph.ids().next().map_or(Vec::new(), |id| vec![id; starts[graph.len()] as usize]);
        for node in graph.ids() {
            graph.parts(node, |part| {
                let at = &mut next[part.index()];
                parents[*at as usize] = node;
                *at += 1;
            });
        }
        Reverse { starts, parents }
    }

    /// Marks all that lead to a marked node.
    fn spread(&self, marked: &mut [bool]) {
        let mut pending: Vec<usize> = (0..marked.len()).filter(|&at| marked[at]).collect();
        while let Some(at) = pending.pop() {
            for &parent in &self.parents[self.starts[at] as usize..self.starts[at + 1] as usize] {
                if !std::mem::replace(&mut marked[parent.index()], true) {
                    pending.push(parent.index());
                }
            }
        }
    }
}
