//! Which calls are written back.

use super::inert;
use crate::checkpoint::Tree;
use crate::pickle::{Graph, Make, Node, NodeId, Object};
use crate::tensor;
use std::collections::BTreeSet;
use weightlift_core::{Error, Result};

/// # Errors
/// `Request`, naming them, where there are any.
pub(super) fn refuse(calls: BTreeSet<String>) -> Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let names = calls.into_iter().collect::<Vec<_>>().join(", ");
    let message = format!("the objects around the tensors call {names}, which loading the file would run");
    Err(Error::request(message).help("--keep-calls writes the calls back, --weights-only leaves such objects out"))
}

/// Checks the calls of a tree, those that make tensors left aside.
///
/// # Errors
/// `Request`, naming them, where some are not known to be inert.
pub(super) fn check_calls(tree: &Tree) -> Result<()> {
    let graph = &tree.graph;
    let mut calls = BTreeSet::new();
    let (mut seen, mut pending) = (vec![false; graph.len()], vec![tree.root]);
    while let Some(node) = pending.pop() {
        if std::mem::replace(&mut seen[node.index()], true) || tensor::is_tensor(graph, node) {
            continue;
        }
        calls.extend(graph.object(node).and_then(|object| call(graph, object)));
        graph.parts(node, |part| pending.push(part));
    }
    refuse(calls)
}

/// What an object calls that is not known to be inert. Classes that are only instantiated are written by name.
pub(super) fn call(graph: &Graph, object: &Object) -> Option<String> {
    if object.make != Make::Call {
        return None;
    }
    let inert = |node: NodeId| match graph.global(node) {
        Some((module, name)) => inert::is_inert(module, name),
        None => graph.node(node) == Node::None,
    };
    // These call what they are given.
    let given = match graph.global(object.callable) {
        Some((_, b"_rebuild_from_type_v2" | b"_rebuild_from_type" | b"defaultdict")) => {
            graph.items(object.args).and_then(|args| args.first()).copied()
        }
        _ => None,
    };
    let wrong = [Some(object.callable), given].into_iter().flatten().find(|&callable| !inert(callable));
    wrong.map(|callable| graph.describe(callable))
}
