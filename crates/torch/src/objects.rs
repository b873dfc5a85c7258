//! The objects around the tensors, to be looked at.

use crate::checkpoint::Tree;
use crate::pickle::{Make, Node, NodeId, Object as Made};
use crate::tree::{self, Child, is_mapping};
use crate::{numpy, tensor};
use foldhash::{HashMap, HashMapExt, HashSet};
use weightlift_core::{Key, KeyPath, Object, ObjectValue};

/// All objects, each once: an object that is met again is only named. What lies deeper than the limit is left out.
pub(crate) fn list(tree: &Tree) -> Vec<Object> {
    if tree.graph.node(tree.root) == Node::None {
        return Vec::new();
    }
    let tensors = tree.tensors().collect();
    let mut walk = Walk { tree, tensors, seen: HashMap::new(), path: Vec::new(), out: Vec::new() };
    walk.run();
    walk.out
}

struct Walk<'a> {
    tree: &'a Tree,
    /// Nodes that are listed as tensors.
    tensors: HashSet<NodeId>,
    /// Where an object that can be shared was met first.
    seen: HashMap<NodeId, String>,
    path: Vec<Key>,
    out: Vec<Object>,
}

impl Walk<'_> {
    fn run(&mut self) {
        let mut open = vec![self.enter(None, self.tree.root)];
        while let Some(children) = open.last_mut() {
            let Some(Child { key, value, .. }) = children.next() else {
                open.pop();
                self.path.pop();
                continue;
            };
            self.path.push(key.clone());
            let children = self.enter(Some(key), value);
            open.push(children);
        }
    }

    /// Writes an object down; answers what is to be written below it.
    fn enter(&mut self, key: Option<Key>, node: NodeId) -> std::vec::IntoIter<Child> {
        let (mut value, mut children) = self.value(node);
        if self.path.len() >= self.tree.limits.depth && !children.is_empty() {
            (value, children) = (ObjectValue::Other(self.tree.graph.describe(node)), Vec::new());
        }
        if !children.is_empty() {
            match self.seen.get(&node) {
                Some(path) => (value, children) = (ObjectValue::Same(path.clone()), Vec::new()),
                None => drop(self.seen.insert(node, self.name())),
            }
        }
        self.out.push(Object { depth: self.path.len(), key, value });
        children.into_iter()
    }

    fn name(&self) -> String {
        KeyPath(self.path.clone()).joined()
    }

    fn value(&self, node: NodeId) -> (ObjectValue, Vec<Child>) {
        let graph = &self.tree.graph;
        if self.tensors.contains(&node) || tensor::is_tensor(graph, node) {
            return (ObjectValue::Tensor(self.name()), Vec::new());
        }
        let plain = match graph.node(node) {
            Node::None => ObjectValue::None,
            Node::Bool(truth) => ObjectValue::Bool(truth),
            Node::Int(int) => ObjectValue::Int(int),
            Node::Float(float) => ObjectValue::Float(float),
            Node::Long(digits) => ObjectValue::Long(decimal(graph.span(digits))),
            Node::Text(_) | Node::OldString(_) => ObjectValue::Text(graph.text(node).unwrap_or_default().into_owned()),
            Node::Bytes(bytes) | Node::ByteArray(bytes) => ObjectValue::Bytes(graph.span(bytes).to_vec()),
            Node::Object(_) => return self.object(node),
            Node::Dict(_) => return self.container("dict", node),
            Node::List(_) => return self.container("list", node),
            Node::Tuple(_) => return self.container("tuple", node),
            Node::Set(_) => return self.container("set", node),
            Node::FrozenSet(_) => return self.container("frozenset", node),
            Node::Persistent(_) => ObjectValue::Other("a bare storage".into()),
            Node::Global(_) | Node::Extension(_) => ObjectValue::Other(graph.describe(node)),
        };
        (plain, Vec::new())
    }

    fn container(&self, class: &str, node: NodeId) -> (ObjectValue, Vec<Child>) {
        let mut children = tree::children(&self.tree.graph, node);
        // The version of every module, which PyTorch puts beside each state dict.
        children.retain(|child| child.key != Key::Text("_metadata".into()));
        let in_order = children.iter().enumerate().all(|(at, child)| child.key == Key::Index(at as u64));
        let keyed = !in_order || children.is_empty() && (class == "dict" || is_mapping(&self.tree.graph, node));
        let value = if keyed { ObjectValue::Keyed } else { ObjectValue::Sequence };
        (value(class.to_owned(), children.len()), children)
    }

    fn object(&self, node: NodeId) -> (ObjectValue, Vec<Child>) {
        let graph = &self.tree.graph;
        let Some(object) = graph.object(node) else { return (ObjectValue::None, Vec::new()) };
        let made = graph.global(object.callable).filter(|_| object.make == Make::Call && object.edits.is_empty());
        if let Some(text) = numpy::describe(graph, node) {
            return (ObjectValue::Other(text), Vec::new());
        }
        let first = graph.items(object.args).and_then(|args| args.first()).copied();
        match (made, first) {
            (Some((b"_codecs", b"encode")), _) => {
                if let Some(bytes) = numpy::bytes(graph, node) {
                    return (ObjectValue::Bytes(bytes), Vec::new());
                }
            }
            (Some((b"builtins" | b"__builtin__", name @ (b"set" | b"frozenset"))), Some(list)) => {
                return self.container(&String::from_utf8_lossy(name), list);
            }
            (Some(_), _) if !is_mapping(graph, node) => {
                if let Some(call) = self.call(object) {
                    return (ObjectValue::Other(call), Vec::new());
                }
            }
            _ => {}
        }
        self.container(&graph.describe(node), node)
    }

    /// A call of plain values in words: `pathlib.PosixPath('data', 'x')`.
    fn call(&self, object: &Made) -> Option<String> {
        let graph = &self.tree.graph;
        let args = graph.items(object.args)?;
        let is_plain = |&arg: &NodeId| match graph.node(arg) {
            Node::List(_) | Node::Dict(_) | Node::Set(_) | Node::FrozenSet(_) | Node::Persistent(_) => false,
            Node::Tuple(_) => false,
            Node::Object(_) => numpy::bytes(graph, arg).is_some(),
            _ => true,
        };
        // `torch.Size` is given its dimensions as one tuple.
        let tuple = match args {
            [only] if matches!(graph.node(*only), Node::Tuple(_)) => graph.items(*only),
            _ => None,
        };
        let shown = tuple.unwrap_or(args);
        if !shown.iter().all(is_plain) {
            return None;
        }
        let words: Vec<String> = shown.iter().map(|&arg| graph.describe(arg)).collect();
        let (words, name) = (words.join(", "), graph.dotted(object.callable)?);
        Some(if tuple.is_some() { format!("{name}([{words}])") } else { format!("{name}({words})") })
    }
}

/// An integer in two's complement, low byte first, in decimal.
fn decimal(digits: &[u8]) -> String {
    /// Python itself shows no longer ones.
    const MOST: usize = 1800;
    if digits.len() > MOST {
        return format!("an integer of {} bytes", digits.len());
    }
    let negative = digits.last().is_some_and(|&last| last >= 0x80);
    let mut rest: Vec<u8> = digits.iter().map(|&byte| if negative { !byte } else { byte }).collect();
    if negative {
        // One more than the complement; a run of 0xff grows by a byte.
        rest.push(0);
        for byte in &mut rest {
            let (sum, carry) = byte.overflowing_add(1);
            *byte = sum;
            if !carry {
                break;
            }
        }
    }
    let mut out = Vec::new();
    while rest.iter().any(|&byte| byte != 0) {
        let mut remainder = 0u32;
        for byte in rest.iter_mut().rev() {
            let value = remainder << 8 | u32::from(*byte);
            (*byte, remainder) = ((value / 10) as u8, value % 10);
        }
        out.push(char::from(b'0' + remainder as u8));
    }
    out.extend(negative.then_some('-'));
    out.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn long_integers_are_shown_in_decimal() {
        let long = |int: i128| decimal(&int.to_le_bytes());
        for int in [1i128 << 64, -(1 << 64), i128::MAX, i128::MIN, -1, 255, 256, -256] {
            assert_eq!(long(int), int.to_string());
        }
        assert_eq!(decimal(&[0xff; 2000]), "an integer of 2000 bytes");
    }
}
