//! What `torch.load(weights_only=True)` takes, and what becomes of the rest where a file must load so.
//!
//! A dict loses the keys whose values are refused; a list or tuple keeps its length, with `None` in their place. An
//! object of a refused class that holds tensors becomes a dict, or a list where it has only positions.

use crate::checkpoint::Tree;
use crate::pickle::{Edit, Graph, Make, Node, NodeId, Object};
use crate::tree::{self, Child, is_mapping};
use crate::{symbol, tensor};
use weightlift_core::{Key, KeyPath};

/// Modules and the names in them that are taken, beside dtypes, storages, tensor classes and rebuild functions.
const ALLOWED: &[(&str, &[&str])] = &[
    ("collections", &["OrderedDict", "Counter"]),
    ("torch", &["Size", "device", "Tensor"]),
    ("torch.nn.parameter", &["Parameter"]),
    ("torch.serialization", &["_get_layout"]),
    ("torch._tensor", &["_rebuild_from_type_v2"]),
    ("_codecs", &["encode"]),
    ("builtins", &["bytearray", "set", "complex"]),
    (
        "torch._utils",
        &[
            "_rebuild_parameter",
            "_rebuild_parameter_with_state",
            "_rebuild_qtensor",
            "_rebuild_tensor",
            "_rebuild_tensor_v2",
            "_rebuild_tensor_v3",
            "_rebuild_sparse_tensor",
            "_rebuild_meta_tensor_no_storage",
            "_rebuild_wrapper_subclass",
            "_rebuild_device_tensor_from_numpy",
            "_rebuild_device_tensor_from_cpu_tensor",
        ],
    ),
];
/// The schemes of quantized tensors, in module `torch`.
const SCHEMES: &[&str] = &[
    "per_tensor_affine",
    "per_tensor_symmetric",
    "per_channel_affine",
    "per_channel_symmetric",
    "per_channel_affine_float_qparams",
];
/// Lines about what is left out, before the rest is only counted.
const LINES: usize = 500;

fn is_allowed(module: &[u8], name: &[u8]) -> bool {
    // Names of Python 2 are translated when they are read.
    let module: &[u8] = if module == b"__builtin__" { b"builtins" } else { module };
    let mut listed = ALLOWED.iter().filter(|(listed, _)| listed.as_bytes() == module);
    listed.any(|(_, names)| names.iter().any(|listed| listed.as_bytes() == name))
        || symbol::dtype(module, name).is_some()
        || symbol::storage_type(module, name).is_some()
        || symbol::tensor_class(module, name).is_some()
        || module == b"torch" && SCHEMES.iter().any(|scheme| scheme.as_bytes() == name)
}

/// Whether a node is refused for itself, whatever it is made of.
fn is_refused(graph: &Graph, node: NodeId) -> bool {
    match graph.node(node) {
        Node::Global(_) => graph.global(node).is_none_or(|(module, name)| !is_allowed(module, name)),
        Node::FrozenSet(_) | Node::Extension(_) => true,
        Node::OldString(text) => graph.span(text).len() > 255,
        Node::Long(digits) => graph.span(digits).len() > 255,
        Node::Persistent(id) => {
            let tag = graph.items(id).and_then(|fields| fields.first()).and_then(|&tag| graph.raw(tag));
            tag != Some(b"storage")
        }
        Node::Object(_) => graph.object(node).is_none_or(|object| is_refused_object(graph, object)),
        _ => false,
    }
}

fn is_refused_object(graph: &Graph, object: &Object) -> bool {
    let Some((module, name)) = graph.global(object.callable) else { return true };
    if matches!(object.make, Make::NewWith(_)) {
        return true;
    }
    let keyed = module == b"collections" && matches!(name, b"OrderedDict" | b"Counter");
    let built = keyed && name == b"OrderedDict"
        || symbol::tensor_class(module, name).is_some()
        || (module, name) == (b"torch.nn.parameter", b"Parameter");
    object.edits.iter().any(|edit| match edit {
        Edit::State(_) => !built,
        Edit::Set(_) => !keyed,
        Edit::Append(_) | Edit::Add(_) => true,
    })
}

/// What becomes of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is written; what it holds has verdicts of its own.
    Keep,
    /// It is left out.
    Drop,
    /// A dict or list of what it holds is written in its place.
    StandIn,
}

/// What becomes of every node of a tree.
#[derive(Debug)]
pub(super) struct Verdicts {
    verdicts: Vec<Verdict>,
    /// Whether a node is refused or leads to what is.
    refused: Vec<bool>,
}

impl Verdicts {
    pub(super) fn of(tree: &Tree) -> Verdicts {
        let graph = &tree.graph;
        // The tensors of a tar archive are ids, which are written as tensors.
        let mut ids = vec![false; graph.len()];
        let named = tree.tensors().filter(|&node| matches!(graph.node(node), Node::Persistent(_)));
        named.for_each(|node| ids[node.index()] = true);
        let refused = graph.ids().filter(|&node| is_refused(graph, node) && !ids[node.index()]);
        let refused = tree::reaching(graph, refused);
        let leads = tree::reaching(graph, tree.tensors());
        let verdict = |node: NodeId| match is_hard(graph, &refused, node) {
            false => Verdict::Keep,
            true if leads[node.index()] && !tensor::is_tensor(graph, node) => Verdict::StandIn,
            true => Verdict::Drop,
        };
        Verdicts { verdicts: graph.ids().map(verdict).collect(), refused }
    }

    pub(super) fn verdict(&self, node: NodeId) -> Verdict {
        self.verdicts[node.index()]
    }

    /// Whether something in a node is refused.
    pub(super) fn touches(&self, node: NodeId) -> bool {
        self.refused[node.index()]
    }

    /// What is left out or replaced, a line each.
    pub(super) fn lines(&self, tree: &Tree) -> Vec<String> {
        let mut walk = Walk { tree, verdicts: self, seen: vec![false; tree.graph.len()], lines: Vec::new(), more: 0 };
        walk.run();
        if walk.more > 0 {
            walk.lines.push(format!("and {} more", walk.more));
        }
        walk.lines
    }
}

/// Whether a node cannot be written without what is refused of it.
fn is_hard(graph: &Graph, refused: &[bool], node: NodeId) -> bool {
    if !refused[node.index()] {
        return false;
    }
    match graph.node(node) {
        Node::Dict(_) | Node::List(_) | Node::Tuple(_) => false,
        Node::Object(_) if is_mapping(graph, node) => is_refused(graph, node),
        Node::Object(_) => {
            let made = |object: &Object| refused[object.callable.index()] || refused[object.args.index()];
            is_refused(graph, node) || graph.object(node).is_some_and(made)
        }
        _ => true,
    }
}

struct Walk<'a> {
    tree: &'a Tree,
    verdicts: &'a Verdicts,
    seen: Vec<bool>,
    lines: Vec<String>,
    more: usize,
}

impl Walk<'_> {
    fn run(&mut self) {
        let graph = &self.tree.graph;
        let mut pending = vec![(KeyPath::default(), self.tree.root)];
        while let Some((path, node)) = pending.pop() {
            if !self.verdicts.touches(node) || std::mem::replace(&mut self.seen[node.index()], true) {
                continue;
            }
            let what = || graph.describe(node);
            match self.verdicts.verdict(node) {
                Verdict::Drop if tensor::is_tensor(graph, node) => continue,
                Verdict::Drop => {
                    self.say(format!("{}: {}", path.joined(), what()));
                    continue;
                }
                Verdict::StandIn => self.say(format!("{}: {}, but not its tensors", named(&path), what())),
                Verdict::Keep => {}
            }
            let child = |Child { key, value, .. }: Child| {
                (KeyPath(path.0.iter().cloned().chain([key]).collect::<Vec<Key>>()), value)
            };
            pending.extend(tree::children(graph, node).into_iter().rev().map(child));
        }
    }

    fn say(&mut self, line: String) {
        match self.lines.len() < LINES {
            true => self.lines.push(line),
            false => self.more += 1,
        }
    }
}

fn named(path: &KeyPath) -> String {
    if path.0.is_empty() { "the file".into() } else { path.joined() }
}
