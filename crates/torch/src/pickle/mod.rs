//! The pickle machine: protocols 0 to 5, read as data.
//!
//! A pickle is a program for a small stack machine that builds objects by naming and calling functions. Here nothing
//! is ever called: names stay names and calls are written down as nodes of a [`Graph`], to be looked at.

mod describe;
mod emit;
mod graph;
mod input;
mod literal;
mod machine;
mod memo;
pub(crate) mod opcode;

pub(crate) use emit::Emitter;
pub use graph::{Edit, Global, Graph, Items, Make, Node, NodeId, Object, Span};
pub(crate) use input::{Input, Nothing};
pub(crate) use machine::Machine;
pub use machine::parse;
