//! What becomes of each tensor of a tree when other tensors are written into it.
//!
//! A tensor that keeps its name keeps its place. One whose new name still begins with the joined path of its container
//! only gets another key there. Any other, and one that is new, becomes a key of the container that its path leads to,
//! or else of the one whose joined path its name begins with: at last of the outermost dict.

use crate::checkpoint::Tree;
use crate::list::Found;
use crate::pickle::{Edit, Graph, Make, Node, NodeId};
use crate::symbol::Rebuild;
use crate::tensor;
use crate::tree::{self, Slot};
use crate::write::home::Homes;
use foldhash::{HashMap, HashSet, HashSetExt};
use weightlift_core::{Error, Key, KeyPath, Output, Result};

/// What happens in a slot. Numbers are positions among the outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Another tensor at the same place.
    Replace(usize),
    /// Another tensor under another key of the same dict.
    Rename(String, usize),
    /// No tensor any more.
    Remove,
}

/// All changes.
#[derive(Debug, Default)]
pub(super) struct Edits {
    /// The tensor that the outermost object is.
    pub(super) root: Option<usize>,
    pub(super) slots: HashMap<Slot, Change>,
    /// New keys of a dict or object, by its node.
    pub(super) added: HashMap<NodeId, Vec<(String, usize)>>,
}

struct Planner<'a> {
    tree: &'a Tree,
    outputs: &'a [Output],
    edits: Edits,
    homes: Homes<'a>,
}

/// Plans the changes. `None` where the tree is a lone tensor that gets a name or company: then there is nothing to keep.
///
/// # Errors
/// `Request`, naming the tensor, where it cannot get its place.
pub(super) fn plan(tree: &Tree, input: u32, outputs: &[Output], emptied: &[KeyPath]) -> Result<Option<Edits>> {
    if tensor::is_tensor(&tree.graph, tree.root) || tree.found.iter().any(|found| found.slot.is_none()) {
        let kept = matches!(outputs, [only] if only.path.0.is_empty());
        return Ok(kept.then(|| Edits { root: Some(0), ..Edits::default() }));
    }
    let mut of_entry: Vec<Vec<usize>> = vec![Vec::new(); tree.found.len()];
    let mut strangers = Vec::new();
    for (at, output) in outputs.iter().enumerate() {
        let entry = output.origin.filter(|origin| origin.input == input).map(|origin| origin.entry.0 as usize);
        match entry.and_then(|entry| of_entry.get_mut(entry)) {
            Some(outputs) => outputs.push(at),
            None => strangers.push(at),
        }
    }
    let homes = Homes::new(&tree.graph, tree.root);
    let mut planner = Planner { tree, outputs, edits: Edits::default(), homes };
    let gone: Vec<String> = emptied.iter().filter(|path| planner.empty(path)).map(|path| path.joined() + ".").collect();
    let goes = |found: &Found| gone.iter().any(|container| found.name.starts_with(container));
    for (found, outputs) in
        tree.found.iter().zip(&of_entry).filter(|(found, outputs)| !outputs.is_empty() || !goes(found))
    {
        planner.entry(found, outputs)?;
    }
    strangers.into_iter().try_for_each(|output| planner.add(output))?;
    planner.check_keys()?;
    Ok(Some(planner.edits))
}

impl Planner<'_> {
    /// Takes a whole container out of its dict; whether there is such a one.
    fn empty(&mut self, path: &KeyPath) -> bool {
        let (mut node, mut last) = (self.tree.root, None);
        for key in &path.0 {
            let Some(child) = tree::children(&self.tree.graph, node).into_iter().find(|child| child.key == *key) else {
                return false;
            };
            (node, last) = (child.value, Some(child.slot));
        }
        let slot = last.filter(|&slot| is_value(&self.tree.graph, slot));
        slot.into_iter().for_each(|slot| drop(self.edits.slots.insert(slot, Change::Remove)));
        slot.is_some()
    }

    fn entry(&mut self, found: &Found, outputs: &[usize]) -> Result<()> {
        let same = outputs.iter().position(|&at| self.outputs[at].name == found.name);
        let Some(&kept) = outputs.get(same.unwrap_or(0)) else { return self.drop_entry(found) };
        if same.is_some() {
            self.change(found, Change::Replace(kept), kept)?;
        } else {
            match self.key_in_container(found, kept) {
                Some(key) => self.change(found, Change::Rename(key, kept), kept)?,
                None => {
                    self.change(found, Change::Remove, kept)?;
                    self.add(kept)?;
                }
            }
        }
        for &other in outputs.iter().filter(|&&other| other != kept) {
            match (self.key_in_container(found, other), found.slot) {
                (Some(key), Some(slot)) => self.edits.added.entry(slot.holder).or_default().push((key, other)),
                _ => self.add(other)?,
            }
        }
        Ok(())
    }

    /// An entry without an output goes, unless it never had values.
    fn drop_entry(&mut self, found: &Found) -> Result<()> {
        let kind = tensor::kind(&self.tree.graph, found.node);
        if matches!(kind, Some(Rebuild::Meta | Rebuild::WrapperSubclass)) {
            return Ok(());
        }
        self.set(found, Change::Remove, &found.name)
    }

    /// The key of an output in the dict of an entry, if it can be one there. From the outermost one it may go further in.
    fn key_in_container(&mut self, found: &Found, output: usize) -> Option<String> {
        found.slot.filter(|&slot| is_value(&self.tree.graph, slot))?;
        let Output { path, name, .. } = &self.outputs[output];
        let key = name.strip_prefix(&found.name[..found.prefix])?;
        let goes_in = found.prefix == 0 && self.homes.of(path, name).is_some_and(|(_, inner)| inner != key);
        (!goes_in).then(|| key.to_owned())
    }

    fn change(&mut self, found: &Found, change: Change, output: usize) -> Result<()> {
        let name = self.outputs[output].name.clone();
        self.set(found, change, &name)
    }

    fn set(&mut self, found: &Found, change: Change, name: &str) -> Result<()> {
        let Some(slot) = found.slot else { return Ok(()) };
        if !matches!(change, Change::Replace(_)) && !is_value(&self.tree.graph, slot) {
            let message = format!("{:?} sits in a list, tuple or foreign object, which it cannot leave", found.name);
            return Err(Error::request(message).in_tensor(name).help("--key takes the dict that is wanted alone"));
        }
        let before = self.edits.slots.get(&slot).cloned();
        match before {
            None => drop(self.edits.slots.insert(slot, change)),
            Some(before) if self.is_same(&before, &change) => {}
            Some(_) => {
                let message = format!("{:?} has several names in the file, which cannot become different", found.name);
                return Err(Error::request(message).in_tensor(name).help("--key takes the dict that is wanted alone"));
            }
        }
        Ok(())
    }

    fn is_same(&self, a: &Change, b: &Change) -> bool {
        match (a, b) {
            (Change::Replace(a), Change::Replace(b)) => self.are_equal(*a, *b),
            (Change::Rename(a, x), Change::Rename(b, y)) => a == b && self.are_equal(*x, *y),
            (a, b) => a == b,
        }
    }

    /// Whether two outputs hold the same values in the same way. Blobs may differ: then one of them is not used.
    fn are_equal(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.outputs[a], &self.outputs[b]);
        let layouts = a.parts.iter().map(|part| &part.layout).eq(b.parts.iter().map(|part| &part.layout));
        a.dtype == b.dtype && a.shape == b.shape && layouts
    }

    /// Makes an output a new key where its path or name leads.
    fn add(&mut self, output: usize) -> Result<()> {
        let Output { path, name, .. } = &self.outputs[output];
        let Some((holder, key)) = self.homes.of(path, name) else {
            let what = self.tree.graph.describe(self.tree.root);
            let message = format!("a new name needs a dict to be a key of, but the outermost object is {what}");
            return Err(Error::request(message).in_tensor(name).help("--key takes the dict that is wanted alone"));
        };
        self.edits.added.entry(holder).or_default().push((key, output));
        Ok(())
    }

    /// No two keys of a changed dict may be equal.
    fn check_keys(&self) -> Result<()> {
        let renamed = self.edits.slots.iter().filter(|(_, change)| matches!(change, Change::Rename(..)));
        let holders: HashSet<NodeId> =
            renamed.map(|(slot, _)| slot.holder).chain(self.edits.added.keys().copied()).collect();
        for holder in holders {
            let mut keys = HashSet::new();
            let mut seen = |key: Key| match keys.insert(key.clone()) {
                true => Ok(()),
                false => Err(Error::request("a dict of the file would have this key twice").in_tensor(key.to_string())),
            };
            for child in tree::children(&self.tree.graph, holder) {
                match self.edits.slots.get(&child.slot) {
                    Some(Change::Remove) => {}
                    Some(Change::Rename(key, _)) => seen(Key::Text(key.clone()))?,
                    // Numbers may look like text without being equal to it.
                    _ if child.slot.holder == holder && matches!(child.key, Key::Text(_)) => seen(child.key)?,
                    _ => {}
                }
            }
            for (key, _) in self.edits.added.get(&holder).into_iter().flatten() {
                seen(Key::Text(key.clone()))?;
            }
        }
        Ok(())
    }
}

/// Whether a slot is the value of a key: of a dict, or set on an object.
pub(super) fn is_value(graph: &Graph, slot: Slot) -> bool {
    let part = slot.part as usize;
    let Some(object) = graph.object(slot.holder) else {
        return matches!(graph.node(slot.holder), Node::Dict(_)) && part % 2 == 1;
    };
    let mut first = if matches!(object.make, Make::NewWith(_)) { 3 } else { 2 };
    for edit in &object.edits {
        if part < first + edit.len() {
            return matches!(edit, Edit::Set(_)) && part >= first && (part - first) % 2 == 1;
        }
        first += edit.len();
    }
    false
}
