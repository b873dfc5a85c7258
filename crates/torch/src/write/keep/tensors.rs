//! Tensors in place of others.

use super::{Emission, Work};
use crate::pickle::{Make, Node, NodeId, opcode as op};
use crate::storage::StorageId;
use crate::symbol::{Rebuild, StorageType};
use crate::tensor as rebuilt;
use crate::write::tensor;
use weightlift_core::{Class, DType, Result};

impl Emission<'_> {
    /// Writes an output in place of the tensor of a node; parameters, subclasses and attributes stay around it.
    pub(super) fn tensor(&mut self, node: NodeId, output: usize) -> Result<()> {
        let memo = (node, Some(self.canonical[output]));
        if self.recall(memo) {
            return Ok(());
        }
        // Only such numbers can be parameters that learn.
        let learns = matches!(self.outputs[output].dtype.class(), Class::Float | Class::Complex);
        let object = self.graph.object(node);
        let args = object.and_then(|object| self.graph.items(object.args)).unwrap_or_default();
        let wrapper = object.filter(|_| !self.is_touched(node));
        let wrapper = wrapper.and_then(|object| rebuilt::rebuild_of(self.graph, object.callable));
        let mut work = match (wrapper, args) {
            (Some(Rebuild::Wrapped), [inner, rest @ ..]) if learns => {
                let mut work = vec![Work::Op(op::MARK), Work::Tensor(*inner, output)];
                work.extend(rest.iter().map(|&arg| Work::Part(arg, None)));
                work
            }
            (Some(Rebuild::FromType), [function, class, inner, rest @ ..]) if learns => {
                let mut work = self.typed(*function, *class, *inner, output, node);
                work.extend(rest.iter().map(|&arg| Work::Part(arg, None)));
                work
            }
            (Some(Rebuild::Quantized), [storage, _, _, _, rest @ ..]) if self.is_its_integer(*storage, output) => {
                let class = self.graph.items(self.storage_fields(*storage)).and_then(|fields| fields.get(1)).copied();
                let mut work = vec![Work::Op(op::MARK), Work::Quantized(output, class.unwrap_or(*storage))];
                work.extend(rest.iter().map(|&arg| Work::Part(arg, None)));
                work
            }
            _ => {
                let learns = learns && rebuilt::requires_grad(self.graph, node);
                tensor::emit(&mut self.out, &self.placed[output], learns);
                self.put(memo);
                return Ok(());
            }
        };
        if let Some(object) = object {
            self.check_call(object);
            work.insert(0, Work::Part(object.callable, None));
            work.push(Work::Op(op::TUPLE));
            work.push(Work::Op(if object.make == Make::Call { op::REDUCE } else { op::NEWOBJ }));
            work.push(Work::Put(memo));
            work.extend(self.object_edits(node, object));
        }
        self.queue(work);
        Ok(())
    }

    /// Whether an output holds the integers of a quantized storage as they are.
    fn is_its_integer(&self, storage: NodeId, output: usize) -> bool {
        let class = StorageId::read(self.graph, storage).map(|storage| storage.class);
        let integer = match class {
            Ok(StorageType::Typed(DType::Qi8)) => DType::I8,
            Ok(StorageType::Typed(DType::Qu8)) => DType::U8,
            Ok(StorageType::Typed(DType::Qi32)) => DType::I32,
            _ => return false,
        };
        self.outputs[output].dtype == integer
    }

    /// The id of a storage.
    fn storage_fields(&self, storage: NodeId) -> NodeId {
        match self.graph.node(storage) {
            Node::Persistent(id) => id,
            _ => storage,
        }
    }

    /// Function, class and arguments of a tensor of another type.
    fn typed(&self, function: NodeId, class: NodeId, inner: NodeId, output: usize, node: NodeId) -> Vec<Work> {
        let args = self.graph.items(inner).unwrap_or_default();
        match (rebuilt::rebuild_of(self.graph, function), args) {
            (Some(Rebuild::Wrapped), [tensor, rest @ ..]) => {
                let mut work = vec![Work::Op(op::MARK), Work::Part(function, None), Work::Part(class, None)];
                work.extend([Work::Op(op::MARK), Work::Tensor(*tensor, output)]);
                work.extend(rest.iter().map(|&arg| Work::Part(arg, None)));
                work.push(Work::Op(op::TUPLE));
                work
            }
            _ => {
                let learns = rebuilt::requires_grad(self.graph, node);
                let function = Work::Function(output);
                vec![Work::Op(op::MARK), function, Work::Part(class, None), Work::Arguments(output, learns)]
            }
        }
    }
}
