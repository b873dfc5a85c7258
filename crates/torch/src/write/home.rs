//! Where in a tree a tensor goes that was not there before, or that left its place.

use crate::pickle::{Graph, Node, NodeId};
use crate::tensor;
use crate::tree::{self, Child};
use crate::write::edit::is_value;
use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use weightlift_core::{Key, KeyPath};

/// The containers of a tree, looked into as far as they are asked for.
pub(super) struct Homes<'a> {
    graph: &'a Graph,
    root: NodeId,
    inner: HashMap<NodeId, Vec<(Key, NodeId)>>,
}

impl<'a> Homes<'a> {
    pub(super) fn new(graph: &'a Graph, root: NodeId) -> Homes<'a> {
        Homes { graph, root, inner: HashMap::new() }
    }

    /// The dict or object that takes a tensor, and its key there: the container its path leads to, else the one whose
    /// joined path is the longest beginning of its name.
    pub(super) fn of(&mut self, path: &KeyPath, name: &str) -> Option<(NodeId, String)> {
        let named = path.joined() == name;
        named.then(|| self.by_path(path)).flatten().or_else(|| self.by_name(name))
    }

    fn by_path(&mut self, path: &KeyPath) -> Option<(NodeId, String)> {
        let (last, containers) = path.0.split_last().filter(|(_, containers)| !containers.is_empty())?;
        let mut node = self.root;
        for key in containers {
            node = self.inner(node).iter().find(|(known, _)| known == key)?.1;
        }
        Some((self.holder(node)?, last.to_string()))
    }

    fn by_name(&mut self, name: &str) -> Option<(NodeId, String)> {
        let mut best: Option<(NodeId, usize)> = None;
        let (mut seen, mut pending) = (HashSet::new(), vec![(self.root, 0)]);
        while let Some((node, at)) = pending.pop() {
            // A tree may lead to one place in many ways.
            if !seen.insert((node, at)) {
                continue;
            }
            if best.is_none_or(|(_, longest)| at > longest) {
                best = self.holder(node).map(|holder| (holder, at)).or(best);
            }
            for (key, inner) in self.inner(node) {
                let rest = name[at..].strip_prefix(&key.to_string()).and_then(|rest| rest.strip_prefix('.'));
                if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
                    pending.push((*inner, name.len() - rest.len()));
                }
            }
        }
        best.map(|(holder, at)| (holder, name[at..].to_owned()))
    }

    /// What a new key of a container is set on: a dict itself, of other objects what holds their tensors.
    fn holder(&self, node: NodeId) -> Option<NodeId> {
        if tree::is_mapping(self.graph, node) {
            return Some(node);
        }
        let holds = |child: &Child| tensor::is_tensor(self.graph, child.value) && is_value(self.graph, child.slot);
        tree::children(self.graph, node).iter().find(|child| holds(child)).map(|child| child.slot.holder)
    }

    /// The containers in a container.
    fn inner(&mut self, node: NodeId) -> &[(Key, NodeId)] {
        let graph = self.graph;
        let is_container = |child: &Child| {
            let kind = graph.node(child.value);
            let container = matches!(kind, Node::Dict(_) | Node::List(_) | Node::Tuple(_) | Node::Object(_));
            container && !tensor::is_tensor(graph, child.value)
        };
        self.inner.entry(node).or_insert_with(|| {
            let children = tree::children(graph, node).into_iter();
            children.filter(is_container).map(|child| (child.key, child.value)).collect()
        })
    }
}
