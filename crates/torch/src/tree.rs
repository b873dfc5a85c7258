//! The objects of a checkpoint as a tree of containers: which keys lead from one to the next.

use crate::pickle::{Edit, Graph, Make, Node, NodeId, Object};
use crate::tensor;
use std::collections::HashMap;
use weightlift_core::Key;

/// What a container holds, in order: keys and values. A key that was set twice has its first place and last value.
pub(crate) fn children(graph: &Graph, node: NodeId) -> Vec<(Key, NodeId)> {
    if let Some(children) = module_children(graph, node) {
        return children;
    }
    let mut out = Children::default();
    match graph.node(node) {
        Node::Dict(_) => out.pairs(graph, graph.pairs(node).unwrap_or_default()),
        Node::Object(_) => out.object(graph, node),
        _ => out.list(graph.items(node).unwrap_or_default()),
    }
    out.children
}

#[derive(Default)]
struct Children {
    children: Vec<(Key, NodeId)>,
    places: HashMap<Key, usize>,
}

impl Children {
    fn set(&mut self, key: Key, value: NodeId) {
        match self.places.get(&key) {
            Some(&at) => self.children[at].1 = value,
            None => {
                self.places.insert(key.clone(), self.children.len());
                self.children.push((key, value));
            }
        }
    }

    fn pairs(&mut self, graph: &Graph, pairs: &[NodeId]) {
        for pair in pairs.chunks_exact(2) {
            self.set(key(graph, pair[0]), pair[1]);
        }
    }

    /// Items are never looked up by key, and may be many.
    fn list(&mut self, items: &[NodeId]) {
        let start = self.children.len() as u64;
        self.children.extend(items.iter().enumerate().map(|(at, &item)| (Key::Index(start + at as u64), item)));
    }

    fn object(&mut self, graph: &Graph, node: NodeId) {
        let Some(object) = graph.object(node) else { return };
        match ordered_dict_items(graph, node) {
            Some(pairs) => self.pairs(graph, &pairs),
            None => self.list(graph.items(object.args).unwrap_or_default()),
        }
        if let Make::NewWith(kwargs) = object.make {
            self.pairs(graph, graph.pairs(kwargs).unwrap_or_default());
        }
        for edit in &object.edits {
            match edit {
                Edit::State(state) => self.state(graph, *state),
                Edit::Append(items) | Edit::Add(items) => self.list(items),
                Edit::Set(pairs) => self.pairs(graph, pairs),
            }
        }
    }

    /// A state is the dict of attributes, or a tuple of it and the dict of slots, or anything.
    fn state(&mut self, graph: &Graph, state: NodeId) {
        match (graph.pairs(state), graph.items(state)) {
            (Some(pairs), _) => self.pairs(graph, pairs),
            (_, Some(items)) if items.len() == 2 && items.iter().all(|&item| is_attributes(graph, item)) => {
                items.iter().for_each(|&item| self.pairs(graph, graph.pairs(item).unwrap_or_default()));
            }
            (_, Some(items)) => self.list(items),
            _ => self.list(&[state]),
        }
    }
}

fn is_attributes(graph: &Graph, node: NodeId) -> bool {
    matches!(graph.node(node), Node::None | Node::Dict(_))
}

/// The pairs that an `OrderedDict` of old was made from: a list of `[key, value]`.
fn ordered_dict_items(graph: &Graph, node: NodeId) -> Option<Vec<NodeId>> {
    let object = graph.object(node)?;
    if graph.global(object.callable) != Some((b"collections", b"OrderedDict")) {
        return None;
    }
    let items = graph.items(*graph.items(object.args)?.first()?)?;
    let pairs = items.iter().map(|&pair| graph.items(pair).filter(|pair| pair.len() == 2));
    pairs.collect::<Option<Vec<_>>>().map(|pairs| pairs.concat())
}

/// Keys and values of a dict or an `OrderedDict`.
pub(crate) fn mapping(graph: &Graph, node: NodeId) -> Option<Vec<(Key, NodeId)>> {
    let is_dict = match graph.object(node) {
        Some(object) => graph.global(object.callable) == Some((b"collections", b"OrderedDict")),
        None => graph.pairs(node).is_some(),
    };
    if !is_dict {
        return None;
    }
    let mut out = Children::default();
    match graph.pairs(node) {
        Some(pairs) => out.pairs(graph, pairs),
        None => {
            let edits = graph.object(node).map(|object| object.edits.as_slice()).unwrap_or_default();
            out.pairs(graph, &ordered_dict_items(graph, node).unwrap_or_default());
            for edit in edits {
                if let Edit::Set(pairs) = edit {
                    out.pairs(graph, pairs);
                }
            }
        }
    }
    Some(out.children)
}

/// The attributes of an object whose state is a dict.
fn attributes(graph: &Graph, node: NodeId) -> Option<&[NodeId]> {
    match graph.object(node)?.edits.as_slice() {
        [Edit::State(state)] => graph.pairs(*state),
        _ => None,
    }
}

fn attribute(graph: &Graph, attributes: &[NodeId], name: &str) -> Option<NodeId> {
    let found = attributes.chunks_exact(2).rfind(|pair| graph.raw(pair[0]) == Some(name.as_bytes()));
    found.map(|pair| pair[1])
}

/// What `state_dict()` names in an `nn.Module`: its parameters, the buffers it keeps, then its submodules.
fn module_children(graph: &Graph, node: NodeId) -> Option<Vec<(Key, NodeId)>> {
    let attributes = attributes(graph, node)?;
    let part = |name: &str| attribute(graph, attributes, name).and_then(|node| mapping(graph, node));
    let (parameters, modules) = (part("_parameters")?, part("_modules")?);
    let dropped = attribute(graph, attributes, "_non_persistent_buffers_set");
    let dropped: Vec<Key> = dropped.map(|set| set_items(graph, set)).unwrap_or_default();
    let buffers = part("_buffers").unwrap_or_default().into_iter().filter(|(key, _)| !dropped.contains(key));
    let all = parameters.into_iter().chain(buffers).chain(modules);
    Some(all.filter(|&(_, value)| graph.node(value) != Node::None).collect())
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

/// For every node, whether a tensor can be reached from it.
pub(crate) fn leads_to_tensor(graph: &Graph) -> Vec<bool> {
    let reverse = Reverse::of(graph);
    let mut marked = vec![false; graph.len()];
    let mut pending: Vec<NodeId> = graph.ids().filter(|&node| tensor::is_tensor(graph, node)).collect();
    pending.iter().for_each(|node| marked[node.index()] = true);
    while let Some(node) = pending.pop() {
        for &parent in reverse.parents(node) {
            if !std::mem::replace(&mut marked[parent.index()], true) {
                pending.push(parent);
            }
        }
    }
    marked
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

    fn parents(&self, node: NodeId) -> &[NodeId] {
        &self.parents[self.starts[node.index()] as usize..self.starts[node.index() + 1] as usize]
    }
}
