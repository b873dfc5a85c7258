//! Changes to an object graph: values that go, come, or move to other objects.

use super::names::Reached;
use super::{Attribute, Child, Node, ObjectGraph, VARIABLE_VALUE};
use std::collections::{HashMap, HashSet};
use weightlift_core::{Error, Result};

impl ObjectGraph {
    /// Forgets values that an optimizer kept for a variable where the object that held them has none left but had
    /// some: TensorFlow would wait for them for ever. Nodes keep their numbers; one without values asks for nothing.
    pub fn drop_empty_slots(&mut self, before: &ObjectGraph) {
        let has_values =
            |graph: &ObjectGraph, id: u32| graph.nodes.get(id as usize).is_some_and(|node| !node.attributes.is_empty());
        let gone: HashSet<u32> =
            (0..self.nodes.len() as u32).filter(|&id| has_values(before, id) && !has_values(self, id)).collect();
        for node in &mut self.nodes {
            node.slots.retain(|slot| !gone.contains(&slot.slot_variable));
        }
    }

    /// Adds variables at the end of ways from the root; objects on the way are made where they are missing. Each is
    /// given as the local names on its way, and the key under which its value is stored.
    ///
    /// # Errors
    /// `Request` where a way leads to an object that has a value already.
    pub fn insert<'a>(&mut self, variables: impl IntoIterator<Item = (Vec<String>, &'a str)>) -> Result<()> {
        let mut edges = Edges::of(self);
        for (way, key) in variables {
            let at = edges.walk(self, &way);
            let full_name = way.join("/");
            let node = self.nodes.get_mut(at as usize).ok_or_else(|| taken(&full_name))?;
            if node.attributes.iter().any(|attribute| attribute.name == VARIABLE_VALUE) {
                return Err(taken(&full_name));
            }
            let (name, checkpoint_key) = (VARIABLE_VALUE.to_owned(), key.to_owned());
            node.attributes.push(Attribute { name, full_name, checkpoint_key, ..Attribute::default() });
        }
        Ok(())
    }

    /// Puts objects at the end of other ways, each once; the local names of a way are joined by `/`. The edge by which
    /// an object is reached first goes, others stay. A value that an optimizer keeps stays one where its new way is
    /// that of its variable and a name.
    ///
    /// # Errors
    /// `Request` where another object is at the end of a new way.
    pub fn relocate(&mut self, moves: &[(u32, String)]) -> Result<()> {
        let new_ways: HashMap<u32, &str> = moves.iter().map(|(node, way)| (*node, way.as_str())).collect();
        let mut edges_gone: HashSet<(u32, String)> = HashSet::new();
        let mut slots_renamed: HashMap<u32, String> = HashMap::new();
        let mut slots_gone: HashSet<u32> = HashSet::new();
        let mut local_names: HashMap<u32, String> = HashMap::new();
        let reached = self.walk();
        for (node, way) in moves {
            match reached.get(*node as usize).copied().flatten() {
                Some(Reached::Child { parent, name }) => {
                    edges_gone.insert((parent, name.to_owned()));
                    local_names.insert(*node, name.to_owned());
                }
                Some(Reached::Slot { variable, .. }) => {
                    let of_variable = new_ways.get(&variable).map_or_else(
                        || super::names::way(&reached, variable).unwrap_or_default(),
                        |way| (*way).to_owned(),
                    );
                    let name = way.strip_prefix(&of_variable).and_then(|rest| rest.strip_prefix('/'));
                    match name.filter(|name| !name.contains('/')) {
                        Some(name) => drop(slots_renamed.insert(*node, name.to_owned())),
                        None => drop(slots_gone.insert(*node)),
                    }
                }
                Some(Reached::Root) | None => {}
            }
        }
        drop(reached);
        for (id, node) in (0..).zip(&mut self.nodes) {
            node.children.retain(|child| !edges_gone.contains(&(id, child.local_name.clone())));
            node.slots.retain(|slot| !slots_gone.contains(&slot.slot_variable));
            for slot in &mut node.slots {
                if let Some(name) = slots_renamed.get(&slot.slot_variable) {
                    slot.slot_name.clone_from(name);
                }
            }
        }
        let mut edges = Edges::of(self);
        for (node, way) in moves.iter().filter(|(node, _)| !slots_renamed.contains_key(node)) {
            let mut parts = parts_of(way, local_names.get(node));
            let last = parts.pop().unwrap_or_default();
            let parent = edges.walk(self, &parts);
            if edges.get(parent, &last).is_some_and(|there| !self.is_spent(there)) {
                return Err(taken(way));
            }
            edges.add(self, parent, &last, Some(*node));
        }
        Ok(())
    }

    /// Whether an object holds nothing.
    fn is_spent(&self, id: u32) -> bool {
        self.nodes.get(id as usize).is_some_and(|node| node.attributes.is_empty() && node.children.is_empty())
    }
}

fn taken(way: &str) -> Error {
    Error::request(format!("the object graph has another object at {way:?}"))
}

/// The local names of a way. The last one may have a `/` of its own, where it is the one that the object had.
fn parts_of(way: &str, old_last: Option<&String>) -> Vec<String> {
    let kept = old_last.filter(|last| last.contains('/'));
    let kept = kept.and_then(|last| Some((way.strip_suffix(last.as_str())?.strip_suffix('/')?, last.clone())));
    let (rest, last) = kept.map_or((way, None), |(rest, last)| (rest, Some(last)));
    rest.split('/').map(str::to_owned).chain(last).collect()
}

/// The children of all objects by name.
struct Edges(HashMap<(u32, String), u32>);

impl Edges {
    fn of(graph: &ObjectGraph) -> Edges {
        let mut edges = HashMap::new();
        for (id, node) in (0..).zip(&graph.nodes) {
            for child in &node.children {
                edges.entry((id, child.local_name.clone())).or_insert(child.node);
            }
        }
        Edges(edges)
    }

    fn get(&self, parent: u32, name: &str) -> Option<u32> {
        self.0.get(&(parent, name.to_owned())).copied()
    }

    /// The object at the end of a way; what is missing on it is made.
    fn walk(&mut self, graph: &mut ObjectGraph, way: &[String]) -> u32 {
        if graph.nodes.is_empty() {
            graph.nodes.push(Node::default());
        }
        way.iter().fold(0, |at, part| match self.get(at, part) {
            Some(node) => node,
            None => self.add(graph, at, part, None),
        })
    }

    /// Makes an object, or one that is there, a child; answers which.
    fn add(&mut self, graph: &mut ObjectGraph, parent: u32, name: &str, known: Option<u32>) -> u32 {
        let node = known.unwrap_or(graph.nodes.len() as u32);
        if known.is_none() {
            graph.nodes.push(Node::default());
        }
        if let Some(holder) = graph.nodes.get_mut(parent as usize) {
            if self.0.contains_key(&(parent, name.to_owned())) {
                holder.children.retain(|child| child.local_name != name);
            }
            holder.children.push(Child { node, local_name: name.to_owned(), ..Child::default() });
        }
        self.0.insert((parent, name.to_owned()), node);
        node
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Slot, variable_key};

    /// A root with `model/kernel`, and `optimizer`, which keeps `m` for it.
    fn graph() -> ObjectGraph {
        let mut graph = ObjectGraph::default();
        let (kernel, rate) = (variable_key("model/kernel"), variable_key("optimizer/rate"));
        graph.insert([(way("model/kernel"), kernel.as_str()), (way("optimizer/rate"), rate.as_str())]).unwrap();
        let attribute = Attribute { checkpoint_key: "slot".into(), ..graph.nodes[2].attributes[0].clone() };
        graph.nodes.push(Node { attributes: vec![attribute], ..Node::default() });
        let slot = Slot { original_variable: 2, slot_name: "m".into(), slot_variable: 5, ..Slot::default() };
        graph.nodes[3].slots.push(slot);
        graph
    }

    fn way(text: &str) -> Vec<String> {
        text.split('/').map(str::to_owned).collect()
    }

    fn names(graph: &ObjectGraph) -> Vec<String> {
        graph.object_names().into_iter().map(|(_, name)| name).collect()
    }

    #[test]
    fn variables_are_added_where_their_names_say() {
        let mut graph = graph();
        assert_eq!(names(&graph), ["model/kernel", "optimizer/rate", "model/kernel/m"]);
        graph.insert([(way("model/bias"), "b"), (way("top"), "t")]).unwrap();
        assert_eq!(names(&graph), ["model/kernel", "optimizer/rate", "model/kernel/m", "model/bias", "top"]);
        assert_eq!(graph.nodes[1].children.len(), 2, "the model is the one that was there");
        let error = graph.insert([(way("model/kernel"), "other")]).unwrap_err();
        assert!(error.message().contains("model/kernel"), "{error}");
    }

    #[test]
    fn objects_move_with_what_is_kept_for_them() {
        let mut graph = graph();
        graph.relocate(&[(2, "net/w".into()), (5, "net/w/momentum".into())]).unwrap();
        assert_eq!(names(&graph), ["net/w", "optimizer/rate", "net/w/momentum"]);
        assert_eq!(graph.nodes[3].slots[0].slot_name, "momentum");
        graph.relocate(&[(5, "apart".into())]).unwrap();
        assert_eq!(names(&graph), ["net/w", "optimizer/rate", "apart"]);
        assert!(graph.nodes[3].slots.is_empty());
        let error = graph.relocate(&[(2, "optimizer/rate".into())]).unwrap_err();
        assert!(error.message().contains("optimizer/rate"), "{error}");
    }

    #[test]
    fn objects_change_places() {
        let mut graph = graph();
        graph.relocate(&[(2, "optimizer/rate".into()), (4, "model/kernel".into())]).unwrap();
        assert_eq!(names(&graph), ["optimizer/rate", "model/kernel", "optimizer/rate/m"]);
    }

    #[test]
    fn slots_go_with_their_values() {
        let (mut edited, before) = (graph(), graph());
        edited.rewrite_keys(|attribute| (attribute.checkpoint_key != "slot").then(|| attribute.checkpoint_key.clone()));
        edited.drop_empty_slots(&before);
        assert!(edited.nodes[3].slots.is_empty());
        assert_eq!(edited.nodes.len(), before.nodes.len());
    }
}
