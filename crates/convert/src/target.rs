//! What the target can hold, decided before a byte moves.

use crate::agree::Agreement;
use crate::inputs::Inputs;
use crate::items::Item;
use crate::pieces;
use crate::plan::{Change, LeftOut, OutputSpec, Resolved};
use crate::value::Value;
use std::collections::{HashMap, HashSet};
use weightlift_core::{Capabilities, Class, DType, Data, Entry, Error, Extent, KeyPath, Packing, Result, Shape};
use weightlift_kernels::cast::CastPair;

/// How much larger than its storage a view may become.
const MOST_EXPANSION: u64 = 1000;

/// The format to write, as the plan sees it.
#[derive(Debug, Clone)]
pub struct Target {
    /// Its id.
    pub id: &'static str,
    /// Its name for people.
    pub name: &'static str,
    /// What it holds.
    pub capabilities: Capabilities,
    /// Leaves out what it cannot hold instead of failing.
    pub skip_unsupported: bool,
    /// Lets a view grow more than 1000-fold when it is written dense.
    pub allow_expand: bool,
    /// Leaves out everything that is no tensor, even where the format could carry it.
    pub weights_only: bool,
    /// Keeps the whole storage that tensors are views of, where the format knows views, instead of what they reach.
    pub keep_storages: bool,
    /// Writes whole what comes in pieces that the target could keep.
    pub join_partitions: bool,
    /// Leaves out tensors whose values are damaged and names them, instead of failing.
    pub salvage: bool,
}

/// What becomes of one tensor.
enum Fate {
    Written(Box<OutputSpec>),
    LeftOut(String),
    Refused(String),
    /// Its values are damaged: never left out silently.
    Broken(String),
}

/// Decides the fate of every item; refusals are listed together.
pub(crate) fn fit(items: Vec<Item>, inputs: Inputs<'_>, target: &Target) -> Result<Resolved> {
    let mut resolved = Resolved::default();
    let mut refused: Vec<LeftOut> = Vec::new();
    let mut compared = HashSet::new();
    let left_out = |item: &Item, why| LeftOut { name: item.name.clone(), dtype: item.value.dtype(), why };
    for item in items {
        match fate(&item, inputs, target) {
            Fate::Written(output) => {
                for values in item.agrees {
                    // Parts of one tensor ask for the same.
                    if compared.insert(values.iter().map(Value::address).collect::<Vec<_>>()) {
                        resolved.agreements.push(Agreement { name: item.name.clone(), values });
                    }
                }
                resolved.outputs.push(*output);
            }
            Fate::LeftOut(why) => resolved.left_out.push(left_out(&item, why)),
            Fate::Refused(why) => refused.push(left_out(&item, why)),
            Fate::Broken(why) if target.salvage => resolved.lost.push(left_out(&item, why)),
            Fate::Broken(why) => {
                let error = Error::malformed(why).in_tensor(&item.name);
                return Err(error
                    .help("--exclude leaves the tensor out, --salvage all that are damaged; the others are readable"));
            }
        }
    }
    part_equal_names(&mut resolved, &mut refused, inputs, target)?;
    resolved.notes = notes(&resolved, inputs, target);
    if !refused.is_empty() && !target.skip_unsupported {
        return Err(list(&refused, target));
    }
    resolved.left_out.append(&mut refused);
    Ok(resolved)
}

/// What is written as it was asked for and hardly meant so.
fn notes(resolved: &Resolved, inputs: Inputs<'_>, target: &Target) -> Vec<String> {
    let some = |names: Vec<&str>| {
        let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
        names.first().map(|first| format!("{first:?}{more}"))
    };
    let hinted = |output: &&OutputSpec| (target.capabilities.name_hint)(&output.name).is_some();
    let names: Vec<&str> = resolved.outputs.iter().filter(hinted).map(|output| output.name.as_str()).collect();
    let hint = names.first().and_then(|first| (target.capabilities.name_hint)(first));
    let names = some(names).zip(hint).map(|(names, hint)| format!("{names}: names {hint}"));
    let fixed = |output: &&OutputSpec| {
        (!output.pieces.is_empty() || pieces::stay(&output.value, inputs, target))
            && target.capabilities.joins_pieces.is_some_and(|joins| !joins(output.to))
    };
    let pieces: Vec<&str> = resolved.outputs.iter().filter(fixed).map(|output| output.name.as_str()).collect();
    let pieces = some(pieces).map(|names| {
        format!("{names}: slices of this dtype restore only into the same cut; --join-partitions writes them whole")
    });
    names.into_iter().chain(pieces).collect()
}

fn fate(item: &Item, inputs: Inputs<'_>, target: &Target) -> Fate {
    for entry in item.value.entries().into_iter().map(|origin| inputs.entry(origin)) {
        match &entry.data {
            Data::Absent(why) => return Fate::LeftOut(format!("it has no values: {why}")),
            Data::Broken(why) => return Fate::Broken(why.clone()),
            Data::Extents(_) => {}
        }
    }
    if item.of_format && target.weights_only {
        return Fate::LeftOut("it is no tensor of the model".to_owned());
    }
    let dtype = item.value.dtype();
    if let Some((text, count)) = item.value.as_text() {
        return match target.capabilities.texts {
            Some(encode) => written_text(item, encode(text, count), target),
            None => Fate::LeftOut(format!("a {} cannot hold {dtype} tensors", target.name)),
        };
    }
    if let Some(origin) = item.value.entry().filter(|_| dtype.is_opaque()) {
        let (entry, catalog) = (inputs.entry(origin), inputs.catalog(origin.input));
        let whole = entry.extents().is_ok_and(|extents| extents.len() == 1);
        if !whole && !pieces::stay(&item.value, inputs, target) {
            return Fate::Refused(format!("{dtype} tensors cut into slices are carried only as they are cut"));
        }
        return match (target.capabilities.holds)(dtype).filter(|_| catalog.format == target.id) {
            Some(packing) => written_or_refused(item, inputs, dtype, Change::Copy, packing, target),
            None => Fate::LeftOut(format!("a {} cannot hold {dtype} tensors", target.name)),
        };
    }
    let wanted = item.mark.unwrap_or(dtype);
    // What was asked for is written as it was asked for; only what a tensor has by itself may become a plain integer.
    let home = home(wanted, target).filter(|(to, _)| item.mark.is_none() || *to == wanted);
    let Some((to, packing)) = home else {
        return Fate::Refused(format!("a {} cannot hold {wanted}", target.name));
    };
    let change = match item.value.entry() {
        Some(origin) => change(inputs.entry(origin), to, packing),
        None => change_of_dense(dtype, to, packing),
    };
    match change {
        Some(change) => written_or_refused(item, inputs, to, change, packing, target),
        None => Fate::Refused(format!("there is no cast from {dtype} to {to} as a {} stores it", target.name)),
    }
}

/// A tensor of texts, as the target encodes them.
fn written_text(item: &Item, bytes: Vec<u8>, target: &Target) -> Fate {
    if let Some(problem) = (target.capabilities.name_problem)(&item.name) {
        return Fate::Refused(format!("the name {problem}"));
    }
    let (dtype, len, text) = (item.value.dtype(), bytes.len() as u64, item.value.to_string());
    let value = Shape::new([len]).and_then(|shape| Value::of_bytes(DType::U8, shape, bytes, text));
    match value {
        Ok(value) => Fate::Written(Box::new(OutputSpec {
            value,
            origin: item.origin,
            path: item.path.clone(),
            name: item.name.clone(),
            from: dtype,
            to: dtype,
            change: Change::Copy,
            packing: Packing::Dense,
            shape: item.value.shape().clone(),
            bytes: len,
            pieces: Vec::new(),
        })),
        Err(error) => Fate::Refused(error.to_string()),
    }
}

fn written_or_refused(
    item: &Item,
    inputs: Inputs<'_>,
    to: DType,
    change: Change,
    packing: Packing,
    target: &Target,
) -> Fate {
    if let Some(problem) = (target.capabilities.name_problem)(&item.name) {
        return Fate::Refused(format!("the name {problem}"));
    }
    let (entry, shape) = (item.value.entry().map(|origin| inputs.entry(origin)), item.value.shape());
    let bytes = match entry {
        Some(entry) if to.is_opaque() => Some(entry.bytes),
        _ => to.bytes(shape.elements(), packing),
    };
    let Some(bytes) = bytes else { return Fate::Refused(format!("{to} of shape {shape} is too large")) };
    if let Some(entry) = entry {
        let stored: u64 = entry.extents().unwrap_or_default().iter().map(|extent| extent.bytes.len()).sum();
        // Where views stay views nothing grows.
        let grows = !target.capabilities.strides && entry.bytes / MOST_EXPANSION > stored;
        if grows && !target.allow_expand {
            let why = format!("it is a view that would grow from {stored} to {bytes} bytes: --allow-expand lets it");
            return Fate::Refused(why);
        }
    }
    Fate::Written(Box::new(OutputSpec {
        value: item.value.clone(),
        origin: item.origin,
        path: item.path.clone(),
        name: item.name.clone(),
        from: item.value.dtype(),
        to,
        change,
        packing,
        shape: shape.clone(),
        bytes,
        pieces: pieces::kept(item, inputs, target),
    }))
}

/// What brings dense elements that are whole bytes into `to` under `packing`.
fn change_of_dense(from: DType, to: DType, packing: Packing) -> Option<Change> {
    let element = from.element_bytes(Packing::Dense)?;
    let same_bits = from.bits() == to.bits() && from.class() == Class::Quantized;
    if (from == to || same_bits) && to.element_bytes(packing) == Some(element) {
        return Some(Change::Copy);
    }
    CastPair::new(from, to).filter(|_| to.element_bytes(packing).is_some()).map(Change::Cast)
}

/// Leaves a tensor in the dtype it has.
///
/// # Errors
/// `Request` where the target cannot hold that.
pub(crate) fn uncast(output: &mut OutputSpec, inputs: Inputs<'_>, target: &Target) -> Result<()> {
    let refused = || {
        let message = format!("{:?} overflows, and a {} cannot hold {}", output.name, target.name, output.from);
        Error::request(message).help("--on-overflow inf or saturate writes it, --exclude leaves it out")
    };
    let (to, packing) = home(output.from, target).ok_or_else(refused)?;
    let change = match output.value.entry() {
        Some(origin) => change(inputs.entry(origin), to, packing),
        None => change_of_dense(output.from, to, packing),
    };
    let bytes = to.bytes(output.shape.elements(), packing);
    (output.change, output.bytes) = change.zip(bytes).ok_or_else(refused)?;
    (output.to, output.packing) = (to, packing);
    Ok(())
}

/// The dtype under which the target holds `dtype` without loss: itself, or for quantized and narrow integers the
/// plain integer of the same value.
fn home(dtype: DType, target: &Target) -> Option<(DType, Packing)> {
    let plain = match dtype {
        DType::Qi8 | DType::I4 | DType::I2 => DType::I8,
        DType::Qu8 | DType::U4 | DType::U2 => DType::U8,
        DType::Qi16 => DType::I16,
        DType::Qu16 => DType::U16,
        DType::Qi32 => DType::I32,
        other => other,
    };
    let holds = |dtype: DType| Some((dtype, (target.capabilities.holds)(dtype)?));
    holds(dtype).or_else(|| holds(plain))
}

/// What brings the entry's elements into `to` under `packing`, if anything does.
fn change(entry: &Entry, to: DType, packing: Packing) -> Option<Change> {
    let same_packing = |extent: &Extent| {
        extent.packing == packing || entry.dtype.element_bytes(extent.packing) == to.element_bytes(packing)
    };
    let extents = entry.extents().ok()?;
    let whole_and_dense =
        |extent: &Extent| extents.len() == 1 && extent.layout.offset == 0 && extent.layout.is_contiguous(&entry.shape);
    let sub_byte = |extent: &Extent| entry.dtype.element_bytes(extent.packing).is_none();
    if extents.iter().any(|extent| sub_byte(extent) && !whole_and_dense(extent)) {
        return None;
    }
    let same_bits = entry.dtype.bits() == to.bits() && entry.dtype.class() == Class::Quantized;
    if (entry.dtype == to || same_bits) && extents.iter().all(same_packing) {
        return Some(Change::Copy);
    }
    let whole_bytes = |dtype: DType, packing| dtype.element_bytes(packing).is_some();
    let castable = whole_bytes(to, packing) && extents.iter().all(|extent| whole_bytes(entry.dtype, extent.packing));
    CastPair::new(entry.dtype, to).filter(|_| castable).map(Change::Cast)
}

/// Takes tensors of one name out of the outputs: an error, or with `--skip-unsupported` left out all of them, since
/// none has a better right to the name.
fn part_equal_names(
    resolved: &mut Resolved,
    refused: &mut Vec<LeftOut>,
    inputs: Inputs<'_>,
    target: &Target,
) -> Result<()> {
    let key = |output: &OutputSpec| match target.capabilities.nests {
        true => Key::Path(output.path.clone()),
        false => Key::Name(output.name.clone()),
    };
    let mut counts: HashMap<Key, usize> = HashMap::with_capacity(resolved.outputs.len());
    resolved.outputs.iter().for_each(|output| *counts.entry(key(output)).or_default() += 1);
    if counts.len() == resolved.outputs.len() {
        return Ok(());
    }
    let outputs = std::mem::take(&mut resolved.outputs);
    let (equal, apart): (Vec<_>, Vec<_>) = outputs.into_iter().partition(|output| counts[&key(output)] > 1);
    resolved.outputs = apart;
    if !target.skip_unsupported {
        return Err(equal_names(&equal, inputs));
    }
    let left_out = |output: OutputSpec| LeftOut {
        name: output.name,
        dtype: output.from,
        why: "another tensor would bear the same name".into(),
    };
    refused.extend(equal.into_iter().map(left_out));
    Ok(())
}

fn equal_names(equal: &[OutputSpec], inputs: Inputs<'_>) -> Error {
    const SHOWN: usize = 5;
    let mut names: Vec<&str> = equal.iter().map(|output| output.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let one = |name: &&str| {
        let same: Vec<_> = equal.iter().filter(|output| output.name == **name).collect();
        let path = |output: &&&OutputSpec| match output.origin {
            Some(origin) => format!("{:?}", keys(&inputs.entry(origin).path)),
            None => output.value.to_string(),
        };
        let paths: Vec<_> = same.iter().map(|output| path(&output)).collect();
        let count = if paths.len() == 2 { "two".to_owned() } else { paths.len().to_string() };
        format!("{count} tensors would be called {name:?}: {}", paths.join(" and "))
    };
    let mut list: Vec<_> = names.iter().take(SHOWN).map(one).collect();
    if names.len() > SHOWN {
        list.push(format!("and {} more names", names.len() - SHOWN));
    }
    Error::request(list.join("; ")).help("rename some of them; --skip-unsupported leaves them out")
}

/// The keys of a path, so that paths which join to one name can be told apart.
fn keys(path: &KeyPath) -> Vec<String> {
    path.0.iter().map(ToString::to_string).collect()
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    Path(KeyPath),
    Name(String),
}

fn list(refused: &[LeftOut], target: &Target) -> Error {
    const SHOWN: usize = 20;
    let mut lines: Vec<_> =
        refused.iter().take(SHOWN).map(|r| format!("{:?} ({}): {}", r.name, r.dtype, r.why)).collect();
    if refused.len() > SHOWN {
        lines.push(format!("and {} more", refused.len() - SHOWN));
    }
    let (count, noun) = (refused.len(), if refused.len() == 1 { "tensor" } else { "tensors" });
    Error::request(format!("{count} {noun} cannot be written as a {}: {}", target.name, lines.join("; ")))
        .help("--skip-unsupported leaves them out")
}
