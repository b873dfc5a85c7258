//! Names that people know the values by: the way to an object from the root, or its name in a graph.

use super::{Attribute, ObjectGraph, VARIABLE_VALUE, escape};
use std::collections::{HashMap, VecDeque};

/// How many times longer than its key, and how many bytes more, the name of a value may be. The key holds the same
/// path, so only a graph made to exhaust memory has longer names; they give way to the key.
const LONGEST: (usize, usize) = (4, 256);
/// The longest way to an object that is looked for on its own.
const LONGEST_WAY: usize = 1 << 16;

/// How an object was reached.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reached<'a> {
    Root,
    Child { parent: u32, name: &'a str },
    Slot { variable: u32, name: &'a str },
}

impl ObjectGraph {
    /// The key of every value and a plain name for it: the local names on the shortest way from the root, joined by
    /// `/`. A value that an optimizer keeps for a variable is named under that variable. What is no variable's value
    /// has the attribute's name behind. Names need not be unique.
    pub fn object_names(&self) -> Vec<(&str, String)> {
        self.named(|_| None)
    }

    /// The same with the names that variables had in their graph or in Keras, where they had one that no other has.
    pub fn full_names(&self) -> Vec<(&str, String)> {
        let mut bearers: HashMap<&str, usize> = HashMap::new();
        for attribute in self.attributes() {
            *bearers.entry(&attribute.full_name).or_default() += 1;
        }
        let is_own = |name: &str| !name.is_empty() && bearers.get(name) == Some(&1);
        self.named(|attribute| is_own(&attribute.full_name).then(|| attribute.full_name.clone()))
    }

    fn named(&self, known: impl Fn(&Attribute) -> Option<String>) -> Vec<(&str, String)> {
        let reached = self.walk();
        let mut names = Vec::new();
        for (id, node) in (0..).zip(&self.nodes) {
            for attribute in &node.attributes {
                let name = known(attribute).or_else(|| path(&reached, id, attribute));
                let name = name.unwrap_or_else(|| attribute.checkpoint_key.clone());
                names.push((attribute.checkpoint_key.as_str(), name));
            }
        }
        names
    }

    /// How each object is reached first, breadth first; slots come after everything else.
    pub(super) fn walk(&self) -> Vec<Option<Reached<'_>>> {
        let mut reached: Vec<Option<Reached<'_>>> = vec![None; self.nodes.len()];
        let mut queue = VecDeque::new();
        if let Some(root) = reached.first_mut() {
            *root = Some(Reached::Root);
            queue.push_back(0u32);
        }
        while let Some(parent) = queue.pop_front() {
            for child in self.nodes.get(parent as usize).into_iter().flat_map(|node| &node.children) {
                if let Some(place @ None) = reached.get_mut(child.node as usize) {
                    *place = Some(Reached::Child { parent, name: &child.local_name });
                    queue.push_back(child.node);
                }
            }
        }
        for slot in self.nodes.iter().flat_map(|node| &node.slots) {
            let variable = slot.original_variable;
            // Slots hang on objects with a way of their own: slots of slots could go round in circles.
            let plain = matches!(reached.get(variable as usize), Some(Some(Reached::Root | Reached::Child { .. })));
            if let (true, Some(place @ None)) = (plain, reached.get_mut(slot.slot_variable as usize)) {
                *place = Some(Reached::Slot { variable, name: &slot.slot_name });
            }
        }
        reached
    }
}

/// The way to a value of an object; `None` where there is none or it is absurdly long.
fn path(reached: &[Option<Reached<'_>>], id: u32, attribute: &Attribute) -> Option<String> {
    let longest = attribute.checkpoint_key.len() * LONGEST.0 + LONGEST.1;
    let way = way_within(reached, id, longest)?;
    let name = match (attribute.name.as_str(), way.as_str()) {
        (VARIABLE_VALUE, _) => way,
        (name, "") => name.to_owned(),
        (name, _) => format!("{way}/{name}"),
    };
    Some(name).filter(|name| !name.is_empty())
}

/// The way to an object, its names joined by `/`; `None` where there is none.
pub(super) fn way(reached: &[Option<Reached<'_>>], id: u32) -> Option<String> {
    way_within(reached, id, LONGEST_WAY)
}

fn way_within(reached: &[Option<Reached<'_>>], id: u32, longest: usize) -> Option<String> {
    let mut parts = Vec::new();
    let mut len = 0;
    let mut at = id;
    loop {
        let (next, name) = match (*reached.get(at as usize)?)? {
            Reached::Root => break,
            Reached::Child { parent, name } => (parent, name),
            Reached::Slot { variable, name } => (variable, name),
        };
        parts.push(name);
        len += name.len() + 1;
        if len > longest {
            return None;
        }
        at = next;
    }
    parts.reverse();
    Some(parts.join("/"))
}

/// The key of a variable that is reached by these local names, joined by `/`.
///
/// ```
/// use weightlift_tf::graph::variable_key;
/// assert_eq!(variable_key("layer.1/kernel"), "layer..1/kernel/.ATTRIBUTES/VARIABLE_VALUE");
/// ```
pub fn variable_key(name: &str) -> String {
    attribute_key(name, VARIABLE_VALUE)
}

/// The key of any value of the object that is reached by these local names, joined by `/`.
pub(crate) fn attribute_key(way: &str, attribute: &str) -> String {
    let parts: Vec<String> = way.split('/').map(escape).collect();
    format!("{}/.ATTRIBUTES/{}", parts.join("/"), escape(attribute))
}

#[cfg(test)]
mod tests {
    use super::super::{Child, Node, Slot};
    use super::*;
    use std::time::{Duration, Instant};
    use weightlift_core::Limits;

    fn child(node: u32, name: &str) -> Child {
        Child { node, local_name: name.into(), ..Child::default() }
    }

    fn value(name: &str, full_name: &str, key: &str) -> Attribute {
        let (name, full_name, checkpoint_key) = (name.into(), full_name.into(), key.into());
        Attribute { name, full_name, checkpoint_key, ..Attribute::default() }
    }

    /// A root with a model and an optimizer that know each other, a shared variable, a table and a slot.
    fn graph() -> ObjectGraph {
        let mut nodes = vec![Node::default(); 6];
        nodes[0].children = vec![child(1, "model"), child(2, "optimizer")];
        nodes[1].children = vec![child(3, "a/b"), child(2, "opt"), child(4, "table"), child(0, "root")];
        nodes[2].children = vec![child(3, "watched")];
        nodes[2].slots =
            vec![Slot { original_variable: 3, slot_name: "m".into(), slot_variable: 5, ..Slot::default() }];
        nodes[3].attributes = vec![value(VARIABLE_VALUE, "dense/kernel", "K1")];
        nodes[4].attributes = vec![value("table", "", "K2")];
        nodes[5].attributes = vec![value(VARIABLE_VALUE, "", "K3")];
        ObjectGraph { nodes, ..ObjectGraph::default() }
    }

    fn own(names: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        names.iter().map(|&(key, name)| (key, name.to_owned())).collect()
    }

    #[test]
    fn names_are_ways_or_full_names() {
        let graph = graph();

        let object = own(&[("K1", "model/a/b"), ("K2", "model/table/table"), ("K3", "model/a/b/m")]);
        assert_eq!(graph.object_names(), object);
        let full = own(&[("K1", "dense/kernel"), ("K2", "model/table/table"), ("K3", "model/a/b/m")]);
        assert_eq!(graph.full_names(), full);
        assert_eq!(ObjectGraph::parse(&graph.to_bytes(), &Limits::default()).unwrap(), graph);
    }

    #[test]
    fn what_has_no_way_keeps_its_key() {
        let mut graph = graph();
        graph.nodes[0].children.clear();
        assert!(graph.object_names().iter().all(|(key, name)| key == name));
        graph.nodes.clear();
        assert!(graph.object_names().is_empty());
    }

    #[test]
    fn a_chain_of_objects_stays_cheap() {
        let mut nodes: Vec<Node> =
            (1..200_000).map(|id| Node { children: vec![child(id, "x")], ..Node::default() }).collect();
        nodes.push(Node::default());
        nodes.iter_mut().for_each(|node| node.attributes.push(value(VARIABLE_VALUE, "", "k")));
        let start = Instant::now();
        let graph = ObjectGraph { nodes, ..ObjectGraph::default() };
        let names = graph.object_names();
        assert_eq!(names[3].1, "x/x/x");
        assert_eq!(names[100_000].1, "k");
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn graphs_are_made_from_names() {
        let graph = ObjectGraph::of_names([("a/b", "K1"), ("a/c", "K2"), ("a", "K3")]).unwrap();
        assert_eq!(graph.nodes.len(), 4);
        let names: Vec<_> = graph.object_names();
        assert_eq!(names, [("K3", "a".to_owned()), ("K1", "a/b".to_owned()), ("K2", "a/c".to_owned())]);
        assert_eq!(variable_key("a/b.c"), "a/b..c/.ATTRIBUTES/VARIABLE_VALUE");
    }
}
