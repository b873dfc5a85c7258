//! `cat`: the values of a tensor.

mod array;
mod big;
mod digits;
mod element;
mod exact;
mod float;
mod json;
mod npy;
mod objects;
mod read;
mod target;
mod texts;
mod values;

#[cfg(test)]
mod tests;

use array::{EDGE, Form, Printer, THRESHOLD};
use json::{Head, JsonWriter};
use std::io::Write;
use std::path::PathBuf;
use target::Target;
use values::Values;
use weightlift::Opened;
use weightlift_convert::Selection;
use weightlift_core::{Error, Result};

/// The most elements a summary shows; a shape of many axes can ask for more than anyone reads.
const MOST_SHOWN: u64 = 1 << 20;

/// Prints values of tensors as NumPy would.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "\
A SLICE is written as in Python: w[0:3, -1], w[..., ::2], w[-1]. Only what it asks for is read. A tensor whose own \
name ends in brackets comes first; its slice is a second pair: 'a[0][1:3]'. Quote the brackets for the shell.

Examples:
  weightlift cat model.safetensors 'wte.weight[0, :8]'
  weightlift cat bert_model.ckpt bert/pooler/dense/kernel -o kernel.npy
  weightlift cat train.pt --objects")]
pub(crate) struct CatArgs {
    /// The checkpoint, in any format that is read
    #[arg(value_name = "CKPT")]
    pub(crate) checkpoint: PathBuf,
    /// The tensor, with the slice to print; several are printed one after the other, each below its name
    #[arg(value_name = "NAME[SLICE]", required_unless_present = "objects")]
    pub(crate) name: Vec<String>,
    /// Write the values to this .npy file instead of printing them
    #[arg(short, long, value_name = "FILE.npy", conflicts_with_all = ["json", "all", "precision"])]
    pub(crate) output: Option<PathBuf>,
    /// Print JSON, one object a tensor, a line each; nothing is left out, NaN and infinities are strings
    #[arg(long, conflicts_with_all = ["all", "precision"])]
    pub(crate) json: bool,
    /// Print every value: without it, more than 1000 are summarised by the first and last 3 of every axis
    #[arg(long)]
    pub(crate) all: bool,
    /// At most so many digits behind the point; scalars and types NumPy has no own printing for are not cut
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) precision: u16,
    #[command(flatten)]
    pub(crate) opening: super::args::OpenArgs,
    /// Print what stands around the tensors: epoch, arguments, optimizer settings, objects of other classes by name
    #[arg(long, conflicts_with_all = ["name", "output", "all", "precision"])]
    pub(crate) objects: bool,
    /// Replace an existing FILE.npy
    #[arg(long, requires = "output")]
    pub(crate) force: bool,
}

/// Prints what is asked for to `out`. Answers what the user should know beside it, a line each.
///
/// # Errors
/// Names and slices that do not fit, opaque tensors, and what reading or writing meets.
pub(crate) fn run(args: &CatArgs, opened: &Opened, out: &mut dyn Write) -> anyhow::Result<Vec<String>> {
    if args.objects {
        let print = if args.json { objects::print_json } else { objects::print };
        print(opened, out)?;
        return Ok(Vec::new());
    }
    let find = |name: &String| Target::find(name, opened.catalog()).map_err(|error| error.in_file(&args.checkpoint));
    let targets = args.name.iter().map(find).collect::<Result<Vec<Target>>>()?;
    let mut notes = Vec::new();
    if let Some(path) = &args.output {
        let [target] = targets.as_slice() else {
            return Err(Error::request(format!("{} tensors for one array", targets.len())).in_file(path).into());
        };
        notes.extend(npy::write(opened, target, path, args.force)?);
        return Ok(notes);
    }
    for (at, target) in targets.iter().enumerate() {
        let mut values = Values::open(opened, target)?;
        let note = if args.json { print_json(&mut values, out)? } else { print_text(args, at, &mut values, out)? };
        notes.extend(note);
    }
    Ok(notes)
}

fn print_json(values: &mut Values<'_>, out: &mut dyn Write) -> anyhow::Result<Option<String>> {
    let (target, entry) = (values.target, values.entry);
    let shape = target.selection.shape()?;
    json::check_empty(&shape).map_err(|error| error.in_tensor(&entry.name))?;
    let note = values.verify(&target.selection)?;
    let slice = target.slice.as_deref();
    let head = Head { name: &entry.name, dtype: entry.dtype.name(), shape: &shape, slice };
    let mut writer = JsonWriter::new(out, &head)?;
    values.each::<anyhow::Error>(&target.selection, &mut |value| Ok(writer.element(value)?))?;
    writer.finish()?;
    Ok(note)
}

fn print_text(
    args: &CatArgs,
    at: usize,
    values: &mut Values<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<Option<String>> {
    let target = values.target;
    let shape = target.selection.shape()?;
    let summarised = !args.all && target.selection.elements() > THRESHOLD;
    let shown = if summarised { target.selection.corners(EDGE) } else { target.selection.clone() };
    if !args.all && shown.elements() > MOST_SHOWN {
        let message = format!("even the corners of shape {shape} are {} values", shown.elements());
        let error = Error::limit(message).in_tensor(&values.entry.name);
        return Err(error.help("name a slice, or print all with --all").into());
    }
    let note = values.verify(&shown)?;
    if args.name.len() > 1 {
        let blank = if at > 0 { "\n" } else { "" };
        writeln!(out, "{blank}{} {} {shape}", args.name.get(at).map_or("", String::as_str), values.entry.dtype)?;
    }
    let form = form_of(values, &shown, usize::from(args.precision), shape.rank())?;
    let kept = || shown.axes.iter().filter(|axis| axis.kept);
    let (dims, gaps) = (kept().map(|axis| axis.count()), kept().map(|axis| axis.runs.len() > 1));
    let mut printer = Printer::new(out, dims.collect(), gaps.collect())?;
    values.each::<anyhow::Error>(&shown, &mut |value| Ok(printer.element(&form.text(value))?))?;
    writeln!(out)?;
    Ok(note)
}

/// Looks at all that is shown, as often as it takes to know how wide it gets.
fn form_of(values: &mut Values<'_>, shown: &Selection, precision: usize, axes: usize) -> Result<Form> {
    let mut form = Form::new(values.entry.dtype, values.elements, precision, axes);
    values.each::<Error>(shown, &mut |value| {
        form.look(value);
        Ok(())
    })?;
    if form.measures() {
        values.each::<Error>(shown, &mut |value| {
            form.measure(value);
            Ok(())
        })?;
    }
    Ok(form)
}
