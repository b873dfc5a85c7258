//! The memo: values by number, overwritten at will.

use super::graph::NodeId;
use foldhash::HashMap;

/// Picklers count numbers up from 0 or 1; others stand in the map, so that a lone huge number costs no memory.
#[derive(Debug, Default)]
pub(super) struct Memo {
    dense: Vec<NodeId>,
    sparse: HashMap<u64, NodeId>,
    filled: u64,
}

/// How many numbers may be skipped within the vector.
const GAP: usize = 8;

impl Memo {
    pub(super) fn put(&mut self, number: u64, id: NodeId) {
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if at > self.dense.len() + GAP || self.sparse.contains_key(&number) {
            self.filled += u64::from(self.sparse.insert(number, id).is_none());
            return;
        }
        if at >= self.dense.len() {
            self.dense.resize(at + 1, NodeId::NOWHERE);
        }
        self.filled += u64::from(self.dense[at] == NodeId::NOWHERE);
        self.dense[at] = id;
    }

    pub(super) fn get(&self, number: u64) -> Option<NodeId> {
        let dense = usize::try_from(number).ok().and_then(|at| self.dense.get(at).copied());
        dense.filter(|&id| id != NodeId::NOWHERE).or_else(|| self.sparse.get(&number).copied())
    }

    /// How many values there are: the number that MEMOIZE takes next.
    pub(super) fn len(&self) -> u64 {
        self.filled
    }

    pub(super) fn clear(&mut self) {
        *self = Memo::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pickle::Graph;

    #[test]
    fn numbers_may_start_anywhere_and_repeat() {
        let ids: Vec<NodeId> = {
            let mut graph = Graph::default();
            for _ in 0..4 {
                graph.add(crate::pickle::Node::None).unwrap();
            }
            graph.ids().collect()
        };
        let mut memo = Memo::default();
        for (number, id) in [(1, ids[0]), (2, ids[1]), (u64::MAX, ids[2]), (2, ids[3]), (40, ids[0])] {
            memo.put(number, id);
        }
        assert_eq!(memo.get(0), None);
        assert_eq!(memo.get(2), Some(ids[3]));
        assert_eq!(memo.get(u64::MAX), Some(ids[2]));
        assert_eq!(memo.len(), 4);
        for number in 3..50 {
            memo.put(number, ids[1]);
        }
        assert_eq!(memo.get(40), Some(ids[1]));
        assert_eq!(memo.len(), 50);
    }
}
