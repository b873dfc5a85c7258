//! The object graph of a TensorFlow 2 checkpoint: which objects there were, how they hung together, and under which
//! keys their values are stored.
//!
//! It is the one string of the tensor [`KEY`], a serialized message. Node 0 is the root. Fields that are not known
//! here survive reading and writing, and a graph that is not changed keeps its bytes.

mod edit;
mod keys;
mod message;
mod names;

pub use keys::{escape, unescape};
pub(crate) use names::attribute_key;
pub use names::variable_key;

use message::{Fields, put_bytes, put_varint_field};
use weightlift_core::{Error, Limits, Result};

/// The name of the tensor that holds the graph.
pub const KEY: &str = "_CHECKPOINTABLE_OBJECT_GRAPH";
/// The attribute of a variable that is its value.
pub const VARIABLE_VALUE: &str = "VARIABLE_VALUE";

/// All objects of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ObjectGraph {
    /// The objects; ids are positions.
    pub nodes: Vec<Node>,
    unknown: Vec<u8>,
}

/// One object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// The objects it holds.
    pub children: Vec<Child>,
    /// Its values.
    pub attributes: Vec<Attribute>,
    /// Values that an optimizer keeps for variables.
    pub slots: Vec<Slot>,
    unknown: Vec<u8>,
}

/// One object as a part of another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Child {
    /// Which object.
    pub node: u32,
    /// Its name there, not escaped.
    pub local_name: String,
    unknown: Vec<u8>,
}

/// A value of an object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attribute {
    /// What it is: [`VARIABLE_VALUE`] for most.
    pub name: String,
    /// The name of the variable in a graph of TensorFlow 1, or in Keras; may be empty.
    pub full_name: String,
    /// The name of the tensor. It need not be stored: tables have two tensors whose names go on from it.
    pub checkpoint_key: String,
    unknown: Vec<u8>,
}

/// A value that an optimizer keeps for a variable.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Slot {
    /// The variable.
    pub original_variable: u32,
    /// What the value is called: `m`, `momentum`.
    pub slot_name: String,
    /// The object that holds it.
    pub slot_variable: u32,
    unknown: Vec<u8>,
}

impl ObjectGraph {
    /// Reads the message.
    ///
    /// # Errors
    /// `Malformed` with the offset for what is no such message or refers to objects that are not there; `Limit`.
    ///
    /// ```
    /// use weightlift_tf::graph::ObjectGraph;
    /// // A root that holds an object as `w`, whose value is stored under `key`.
    /// let bytes = b"\x0a\x07\x0a\x05\x08\x01\x12\x01w\x0a\x17\x12\x15\x0a\x0eVARIABLE_VALUE\x1a\x03key";
    /// let graph = ObjectGraph::parse(bytes, &Default::default()).unwrap();
    /// assert_eq!(graph.object_names(), [("key", "w".to_owned())]);
    /// assert_eq!(graph.to_bytes(), bytes);
    /// ```
    pub fn parse(bytes: &[u8], limits: &Limits) -> Result<ObjectGraph> {
        let mut graph = ObjectGraph::default();
        let mut fields = Fields::new(bytes, 0);
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => {
                    if graph.nodes.len() as u64 >= limits.tensors {
                        return Err(Error::limit(format!("the object graph has more than {} objects", limits.tensors)));
                    }
                    graph.nodes.push(Node::parse(field.message()?)?);
                }
                _ => graph.unknown.extend_from_slice(field.raw),
            }
        }
        graph.check()?;
        Ok(graph)
    }

    /// Every object that is referred to is there.
    fn check(&self) -> Result<()> {
        let count = self.nodes.len();
        let children = self.nodes.iter().flat_map(|node| node.children.iter().map(|child| child.node));
        let slots = self.nodes.iter().flat_map(|node| &node.slots);
        let slots = slots.flat_map(|slot| [slot.original_variable, slot.slot_variable]);
        match children.chain(slots).find(|&id| id as usize >= count) {
            Some(id) => Err(Error::malformed(format!("the object graph has {count} objects, but refers to {id}"))),
            None => Ok(()),
        }
    }

    /// The message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for node in &self.nodes {
            put_bytes(&mut out, 1, &node.to_bytes());
        }
        out.extend_from_slice(&self.unknown);
        out
    }

    /// The keys under which the graph expects tensors, with their attributes, object by object.
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        self.nodes.iter().flat_map(|node| &node.attributes)
    }

    /// Gives values other keys: `rename` answers the new key, or `None` to drop the value from its object.
    pub fn rewrite_keys(&mut self, mut rename: impl FnMut(&Attribute) -> Option<String>) {
        for node in &mut self.nodes {
            node.attributes.retain_mut(|attribute| match rename(attribute) {
                Some(key) => {
                    attribute.checkpoint_key = key;
                    true
                }
                None => false,
            });
        }
    }

    /// A graph for values that had none: a component of a name between `/` is an object, the last one a variable.
    /// `names` gives each name with the key under which its value is stored. TensorFlow restores it into objects that
    /// hang together by these names.
    ///
    /// # Errors
    /// `Request` for a name that comes twice.
    pub fn of_names<'a>(names: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<ObjectGraph> {
        let mut graph = ObjectGraph { nodes: vec![Node::default()], ..ObjectGraph::default() };
        graph.insert(names.into_iter().map(|(name, key)| (name.split('/').map(str::to_owned).collect(), key)))?;
        Ok(graph)
    }
}

impl Node {
    fn parse(mut fields: Fields<'_>) -> Result<Node> {
        let mut node = Node::default();
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => node.children.push(Child::parse(field.message()?)?),
                2 => node.attributes.push(Attribute::parse(field.message()?)?),
                3 => node.slots.push(Slot::parse(field.message()?)?),
                _ => node.unknown.extend_from_slice(field.raw),
            }
        }
        Ok(node)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.children.iter().for_each(|child| put_bytes(&mut out, 1, &child.to_bytes()));
        self.attributes.iter().for_each(|attribute| put_bytes(&mut out, 2, &attribute.to_bytes()));
        self.slots.iter().for_each(|slot| put_bytes(&mut out, 3, &slot.to_bytes()));
        out.extend_from_slice(&self.unknown);
        out
    }
}

impl Child {
    fn parse(mut fields: Fields<'_>) -> Result<Child> {
        let mut child = Child::default();
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => child.node = field.id()?,
                2 => child.local_name = field.text()?,
                _ => child.unknown.extend_from_slice(field.raw),
            }
        }
        Ok(child)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint_field(&mut out, 1, self.node);
        put_text(&mut out, 2, &self.local_name);
        out.extend_from_slice(&self.unknown);
        out
    }
}

impl Attribute {
    fn parse(mut fields: Fields<'_>) -> Result<Attribute> {
        let mut attribute = Attribute::default();
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => attribute.name = field.text()?,
                2 => attribute.full_name = field.text()?,
                3 => attribute.checkpoint_key = field.text()?,
                _ => attribute.unknown.extend_from_slice(field.raw),
            }
        }
        Ok(attribute)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_text(&mut out, 1, &self.name);
        put_text(&mut out, 2, &self.full_name);
        put_text(&mut out, 3, &self.checkpoint_key);
        out.extend_from_slice(&self.unknown);
        out
    }
}

impl Slot {
    fn parse(mut fields: Fields<'_>) -> Result<Slot> {
        let mut slot = Slot::default();
        while let Some(field) = fields.next_field()? {
            match field.number {
                1 => slot.original_variable = field.id()?,
                2 => slot.slot_name = field.text()?,
                3 => slot.slot_variable = field.id()?,
                _ => slot.unknown.extend_from_slice(field.raw),
            }
        }
        Ok(slot)
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint_field(&mut out, 1, self.original_variable);
        put_text(&mut out, 2, &self.slot_name);
        put_varint_field(&mut out, 3, self.slot_variable);
        out.extend_from_slice(&self.unknown);
        out
    }
}

fn put_text(out: &mut Vec<u8>, number: u32, text: &str) {
    if !text.is_empty() {
        put_bytes(out, number, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> ObjectGraph {
        let key = variable_key("w");
        ObjectGraph::of_names([("w", key.as_str()), ("l/k", "l/k/.ATTRIBUTES/VARIABLE_VALUE")]).unwrap()
    }

    #[test]
    fn unknown_fields_survive() {
        let unknown = [0x22, 0x01, b'x', 0x78, 0x05, 0x7d, 1, 2, 3, 4, 0x79, 1, 2, 3, 4, 5, 6, 7, 8];
        let mut out = Vec::new();
        for node in &graph().nodes {
            let mut node_bytes = Vec::new();
            for child in &node.children {
                put_bytes(&mut node_bytes, 1, &[child.to_bytes(), unknown.to_vec()].concat());
            }
            for attribute in &node.attributes {
                put_bytes(&mut node_bytes, 2, &[attribute.to_bytes(), unknown.to_vec()].concat());
            }
            put_bytes(&mut node_bytes, 3, &[&[0x08, 0x01, 0x18, 0x02][..], &unknown].concat());
            put_bytes(&mut out, 1, &[node_bytes, unknown.to_vec()].concat());
        }
        out.extend(unknown);
        let graph = ObjectGraph::parse(&out, &Limits::default()).unwrap();
        assert_eq!(graph.to_bytes(), out);
        assert_eq!(graph.nodes[0].slots[0].slot_variable, 2);
    }

    #[test]
    fn keys_are_rewritten_or_dropped() {
        let mut graph = graph();
        graph.rewrite_keys(|attribute| attribute.checkpoint_key.strip_prefix("l/").map(|rest| format!("layer/{rest}")));
        let keys: Vec<_> = graph.attributes().map(|attribute| attribute.checkpoint_key.as_str()).collect();
        assert_eq!(keys, ["layer/k/.ATTRIBUTES/VARIABLE_VALUE"]);
    }

    #[test]
    fn cuts_and_flips_never_panic() {
        let bytes = graph().to_bytes();
        for len in 0..bytes.len() {
            let cut = ObjectGraph::parse(&bytes[..len], &Limits::default());
            assert!(cut.is_err() || len == 0, "cut to {len} gives objects that are not there");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(graph) = ObjectGraph::parse(&flipped, &Limits::default()) {
                let _ = (graph.object_names(), graph.full_names(), graph.to_bytes());
            }
        }
    }

    #[test]
    fn references_and_limits_are_checked() {
        let mut graph = graph();
        graph.nodes[0].children[0].node = 99;
        let error = ObjectGraph::parse(&graph.to_bytes(), &Limits::default()).unwrap_err();
        assert!(error.message().contains("refers to 99"), "{error}");
        let mut limits = Limits::default();
        limits.tensors = 2;
        let error = ObjectGraph::parse(&self::graph().to_bytes(), &limits).unwrap_err();
        assert_eq!(error.kind(), weightlift_core::Kind::Limit);
    }
}
