//! The steps of a plan.

pub(crate) mod axis;
mod cast;
mod cut;
mod join_inputs;
mod layout;
mod merge;
mod names;
mod numbered;
mod optimizer;
mod preset;
mod related;
mod rows;
mod set;
mod split;
mod squeeze;
pub(crate) mod weights;

pub use axis::Axis as JoinAxis;
pub use cast::CastRule;
pub use join_inputs::{JoinInputs, Part};
pub use layout::{Join, Reshape, Slice, Transpose};
pub use merge::Average;
pub use names::{Expected, NameMap};
pub use preset::{Preset, PresetAdd, PresetRule, Template};
pub use rows::{CopyRows, Fill, ResizeRows, RowPairs};
pub use set::{Add, Array, Set};
pub(crate) use split::Seams;
pub use split::Split;
pub use squeeze::Squeeze;
pub use weights::Weights;

use crate::{KeyChoice, Pattern, Rename};
use std::fmt;
use std::sync::Arc;

/// One step. Each sees names as the steps before left them.
#[derive(Clone)]
#[non_exhaustive]
pub enum Step {
    /// Keeps the tensors that any of the patterns selects.
    Include(Vec<Pattern>),
    /// Drops the tensors that any of the patterns selects.
    Exclude(Vec<Pattern>),
    /// Keeps one subtree and takes its path off the names.
    Key(KeyChoice),
    /// Takes the weights themselves, or the averages kept of them in training.
    Weights(Weights),
    /// Renames by expression.
    Rename(Rename),
    /// Renames by a function; for programs.
    RenameWith(Arc<dyn Fn(&str) -> String + Send + Sync>),
    /// Takes any of the prefixes off the start of names, again and again.
    StripPrefix(Vec<String>),
    /// Puts a prefix before every name.
    AddPrefix(String),
    /// Marks tensors for a cast; the last mark on a tensor wins.
    Cast(CastRule),
    /// Multiplies 8-bit weights with the scales beside them where they become wider floats, when all else is done, and
    /// leaves out the scales.
    ApplyScales,
    /// Drops what optimizers keep beside the weights.
    DropOptimizer,
    /// Renames by a table of old and new names.
    Map(NameMap),
    /// Sets a tensor or a part of it.
    Set(Set),
    /// Adds a tensor.
    Add(Add),
    /// Copies rows into a tensor.
    CopyRows(CopyRows),
    /// Adds rows to a tensor or takes some away.
    ResizeRows(ResizeRows),
    /// Brings axes into another order.
    Transpose(Transpose),
    /// Gives tensors another shape.
    Reshape(Reshape),
    /// Takes axes of one out.
    Squeeze(Squeeze),
    /// Keeps a part of a tensor.
    Slice(Slice),
    /// Joins tensors along an axis.
    Concat(Join),
    /// Joins tensors along a new axis.
    Stack(Join),
    /// Cuts tensors along an axis.
    Split(Split),
    /// Averages all inputs.
    Average(Average),
    /// Joins the tensors of all inputs.
    JoinInputs(JoinInputs),
    /// Renames and lays out by a table of rules.
    Preset(Preset),
    /// Checks the names, dtypes and shapes.
    Expect(Expected),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = |patterns: &[Pattern]| patterns.iter().map(Pattern::text).collect::<Vec<_>>().join(" ");
        match self {
            Step::Include(patterns) => write!(f, "include {}", texts(patterns)),
            Step::Exclude(patterns) => write!(f, "exclude {}", texts(patterns)),
            Step::Key(KeyChoice::Auto) => f.write_str("key auto"),
            Step::Key(KeyChoice::Path(path)) => write!(f, "key {path}"),
            Step::Weights(choice) => write!(f, "weights {choice}"),
            Step::Rename(rename) => write!(f, "rename {}", rename.text()),
            Step::RenameWith(_) => f.write_str("rename by a function"),
            Step::StripPrefix(prefixes) => write!(f, "strip prefix {}", prefixes.join(" ")),
            Step::AddPrefix(prefix) => write!(f, "add prefix {prefix}"),
            Step::Cast(rule) => write!(f, "dtype {}", rule.text()),
            Step::ApplyScales => f.write_str("apply scales"),
            Step::DropOptimizer => f.write_str("drop optimizer"),
            Step::Map(map) => write!(f, "map {}", map.text()),
            Step::Set(set) => write!(f, "set {set}"),
            Step::Add(add) => write!(f, "add {add}"),
            Step::CopyRows(copy) => write!(f, "copy rows {copy}"),
            Step::ResizeRows(resize) => write!(f, "resize rows {resize}"),
            Step::Transpose(transpose) => write!(f, "transpose {transpose}"),
            Step::Reshape(reshape) => write!(f, "reshape {reshape}"),
            Step::Squeeze(squeeze) => write!(f, "squeeze {squeeze}"),
            Step::Slice(slice) => write!(f, "slice {slice}"),
            Step::Concat(join) => write!(f, "concat {join}"),
            Step::Stack(join) => write!(f, "stack {join}"),
            Step::Split(split) => write!(f, "split {split}"),
            Step::Average(average) => write!(f, "average {average}"),
            Step::JoinInputs(join) => write!(f, "join inputs {join}"),
            Step::Preset(preset) => write!(f, "preset {preset}"),
            Step::Expect(expected) => write!(f, "expect {}", expected.text()),
        }
    }
}
