//! Tensors under their paths: an `OrderedDict` of tensors, dicts and lists.

use super::tensor::{self, Placed};
use crate::pickle::{Emitter, opcode as op};
use foldhash::{HashMap, HashMapExt};
use weightlift_core::{DType, Error, Key, Manifest, Output, Result};

/// A container of the tree to write; children by position in the arena.
#[derive(Debug, Default)]
struct Container {
    children: Vec<(Key, Child)>,
    places: HashMap<Key, usize>,
    /// Whether the keys are the positions 0, 1, 2, … in order.
    is_list: bool,
}

#[derive(Debug, Clone, Copy)]
enum Child {
    Container(usize),
    Tensor(usize),
}

/// The pickle of a manifest's tensors under their paths, all of it under the key `nest` where there is one.
///
/// # Errors
/// `Request`, naming the tensor, where paths contradict each other or a tensor cannot be held.
pub(super) fn pickle(manifest: &Manifest, tensors: &[Placed], nest: Option<&str>) -> Result<Vec<u8>> {
    let mut out = Emitter::new();
    if let Some(key) = nest {
        out.op(op::EMPTY_DICT);
        out.text(key.as_bytes());
    }
    match manifest.tensors.as_slice() {
        [only] if only.path.0.is_empty() => tensor::emit(&mut out, &tensors[0], false),
        outputs => emit(&mut out, &arrange(outputs)?, tensors),
    }
    if nest.is_some() {
        out.op(op::SETITEM);
    }
    Ok(out.finish())
}

/// Every tensor's place; a storage has elements of one dtype.
pub(super) fn placed(manifest: &Manifest) -> Result<Vec<Placed>> {
    let mut dtypes: HashMap<u32, DType> = HashMap::new();
    let place = |output: &Output| {
        let placed = tensor::place(manifest, output)?;
        let dtype = *dtypes.entry(placed.key()).or_insert(placed.dtype());
        if dtype != placed.dtype() {
            let message = format!("a {} view of a storage of {dtype} elements", placed.dtype());
            return Err(Error::request(message).in_tensor(&output.name));
        }
        Ok(placed)
    };
    manifest.tensors.iter().map(place).collect()
}

/// The tree of all paths; its root is the first container.
fn arrange(outputs: &[Output]) -> Result<Vec<Container>> {
    let mut tree = vec![Container::default()];
    for (tensor, output) in outputs.iter().enumerate() {
        let wrong = |what: &str| Error::request(what).in_tensor(&output.name);
        let Some((last, containers)) = output.path.0.split_last() else {
            return Err(wrong("a tensor without a name beside others"));
        };
        let mut at = 0;
        for key in containers {
            let next = tree.len();
            match tree[at].child(key, Child::Container(next)) {
                (Child::Container(found), _) => at = found,
                (Child::Tensor(_), _) => return Err(wrong("its path leads through another tensor")),
            }
            if at == next {
                tree.push(Container::default());
            }
        }
        if let (_, false) = tree[at].child(last, Child::Tensor(tensor)) {
            return Err(wrong("another tensor or container has the same path"));
        }
        if output.path.0.iter().any(|key| matches!(key, Key::Other(_))) {
            return Err(wrong("a key of its path is neither text nor a number").help("--rename gives it a plain name"));
        }
    }
    for container in &mut tree {
        let mut keys = container.children.iter().enumerate();
        container.is_list = !container.children.is_empty() && keys.all(|(at, (key, _))| *key == Key::Index(at as u64));
    }
    Ok(tree)
}

impl Container {
    /// The child of a key, made where there is none; and whether it was.
    fn child(&mut self, key: &Key, new: Child) -> (Child, bool) {
        if let Some(&at) = self.places.get(key) {
            return (self.children[at].1, false);
        }
        self.places.insert(key.clone(), self.children.len());
        self.children.push((key.clone(), new));
        (new, true)
    }
}

fn emit(out: &mut Emitter, tree: &[Container], tensors: &[Placed]) {
    open(out, &tree[0], true);
    let mut pending = vec![(0, 0)];
    while let Some((container, at)) = pending.pop() {
        let Some((key, child)) = tree[container].children.get(at) else {
            close(out, &tree[container]);
            continue;
        };
        pending.push((container, at + 1));
        if !tree[container].is_list {
            self::key(out, key);
        }
        match *child {
            Child::Tensor(tensor) => tensor::emit(out, &tensors[tensor], false),
            Child::Container(child) => {
                open(out, &tree[child], false);
                pending.push((child, 0));
            }
        }
    }
}

fn open(out: &mut Emitter, container: &Container, outermost: bool) {
    match (container.is_list, outermost) {
        (true, _) => out.op(op::EMPTY_LIST),
        (false, true) => out.ordered_dict(),
        (false, false) => out.op(op::EMPTY_DICT),
    }
    if !container.children.is_empty() {
        out.op(op::MARK);
    }
}

fn close(out: &mut Emitter, container: &Container) {
    if !container.children.is_empty() {
        out.op(if container.is_list { op::APPENDS } else { op::SETITEMS });
    }
}

fn key(out: &mut Emitter, key: &Key) {
    match key {
        Key::Text(text) | Key::Other(text) => out.text(text.as_bytes()),
        Key::Int(int) => out.int(*int),
        Key::Index(index) => out.number(*index),
    }
}
