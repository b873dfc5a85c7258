//! Plans and the pipeline that carries them out.
//!
//! A [`Plan`] is a list of [`Step`]s. [`Plan::resolve`] applies it to a catalog and a [`Target`] without touching a
//! tensor byte: names are made, collisions and unmatched rules found, casts chosen, what the target cannot hold is
//! decided. [`convert`] then streams tiles through a pool of workers: read, verify, cast, write.
//!
//! This crate knows no format by name: what it must know of one is data on entries and in
//! [`weightlift_core::Capabilities`].
#![forbid(unsafe_code)]

mod agree;
mod blueprint;
mod course;
mod dedupe;
mod homes;
mod inputs;
mod items;
mod key;
mod lookup;
mod measure;
mod pattern;
mod pieces;
mod plan;
mod rename;
mod report;
mod run;
mod scales;
mod selection;
mod step;
mod storages;
mod survey;
mod target;
mod tiles;
mod value;
mod workers;

pub use agree::Agreement;
pub use course::{LineColumn, Told};
pub use inputs::{Input, Parameter, ParameterOrder};
pub use key::KeyChoice;
pub use pattern::{Pattern, nearest};
pub use plan::{Change, LeftOut, OutputSpec, Plan, Resolved};
pub use rename::Rename;
pub use report::{CastReport, DeviceReport, Report};
pub use run::{
    Accelerator, Chosen, Conversion, OnOverflow, Options, Progress, Rates, WORTH_OPENING, When, bulk_work, choose,
    convert, manifest, planned_memory, worth_opening,
};
pub use selection::{Axis, Run, Selection, named_part};
pub use step::{
    Add, Array, Average, CastRule, CopyRows, Expected, Fill, Join, JoinAxis, JoinInputs, NameMap, Part, Preset,
    PresetAdd, PresetRule, Reshape, ResizeRows, RowPairs, Set, Slice, Split, Squeeze, Step, Template, Transpose,
    Weights,
};
pub use survey::{Survey, survey};
pub use target::Target;
pub use value::{RowMap, Value};
