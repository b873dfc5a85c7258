//! `weightlift ls`.

mod parts;

use super::Outcome;
use super::args::{LsArgs, Sort};
use super::show::{self, Align};
use serde_json::{Value, json};
use std::io::Write;
use std::path::Path;
use weightlift::{Catalog, DType, Data, Entry, Extent, Opened, Pattern};

/// Lists a checkpoint.
pub(crate) fn run(args: &LsArgs, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let opened = args.opening.open(&args.checkpoint)?;
    super::warn(&opened);
    let chosen = choose(args, opened.catalog())?;
    let damaged = chosen.iter().any(|entry| matches!(entry.data, Data::Broken(_)));
    let outcome = if damaged && args.opening.salvage { Outcome::Lost } else { Outcome::Done };
    if args.names_only {
        for entry in &chosen {
            writeln!(out, "{}", show::plain(&entry.name))?;
        }
        return Ok(outcome);
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &to_json(&opened, &chosen, args.partitions))?;
        writeln!(out)?;
        return Ok(outcome);
    }
    print(&opened, &chosen, args.partitions, out)?;
    Ok(outcome)
}

/// Which entries the patterns select, a part of a name included; all of them without a pattern.
pub(super) fn selected(patterns: &[String], catalog: &Catalog, checkpoint: &Path) -> anyhow::Result<Vec<bool>> {
    let names = catalog.entries.iter().map(|entry| entry.name.as_str());
    let mut wanted = vec![patterns.is_empty(); catalog.entries.len()];
    for text in patterns {
        let pattern = Pattern::new(text)?;
        let found = pattern.select_or_contains(names.clone());
        if found.is_empty() {
            return Err(pattern.unmatched("the pattern", names).in_file(checkpoint).into());
        }
        found.into_iter().for_each(|at| wanted[at] = true);
    }
    Ok(wanted)
}

fn choose<'a>(args: &LsArgs, catalog: &'a Catalog) -> anyhow::Result<Vec<&'a Entry>> {
    let wanted = selected(&args.patterns, catalog, &args.checkpoint)?;
    let mut chosen: Vec<&Entry> =
        catalog.entries.iter().zip(wanted).filter_map(|(entry, wanted)| wanted.then_some(entry)).collect();
    match args.sort {
        Sort::File => {}
        Sort::Name => chosen.sort_by(|a, b| a.name.cmp(&b.name)),
        Sort::Bytes => chosen.sort_by_key(|entry| std::cmp::Reverse(entry.bytes)),
    }
    Ok(chosen)
}

fn print(opened: &Opened, chosen: &[&Entry], partitions: bool, out: &mut dyn Write) -> anyhow::Result<()> {
    let row = |entry: &&Entry| {
        let (name, shape) = (show::plain(&entry.name), entry.shape.to_string());
        [name, entry.dtype.to_string(), shape, show::bytes(entry.bytes), remarks(entry)]
    };
    let part = |entry: &Entry, extent: &Extent| {
        let place = parts::place(opened.catalog(), extent);
        let (name, shape) = (format!("  {}", extent.region.index_in(&entry.shape)), extent.region.size.to_string());
        [name, String::new(), shape, show::bytes(extent.bytes.len()), show::plain(&place)]
    };
    let mut rows = Vec::with_capacity(chosen.len());
    for entry in chosen {
        rows.push(row(entry));
        let of_entry = if partitions { parts::of(entry) } else { &[] };
        rows.extend(of_entry.iter().map(|extent| part(entry, extent)));
    }
    let align = [Align::Left, Align::Left, Align::Left, Align::Right, Align::Left];
    show::table(out, ["NAME", "DTYPE", "SHAPE", "BYTES", ""], align, &rows)?;
    let by_dtype = totals(chosen);
    let bytes = by_dtype.iter().fold(0, |sum: u64, (_, _, bytes)| sum.saturating_add(*bytes));
    let parts: Vec<_> =
        by_dtype.iter().map(|(dtype, count, bytes)| format!("{count} {dtype} ({})", show::bytes(*bytes))).collect();
    let (tensors, total) = (show::count(chosen.len(), "tensor"), show::bytes(bytes));
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    writeln!(out, "\n{}\n{tensors}, {total}{parts}", show::plain(&opened.catalog().description))?;
    let unused = opened.catalog().unused_bytes();
    if unused > 0 {
        writeln!(out, "storage that no tensor uses: {}", show::bytes(unused))?;
    }
    print_beside(&beside(opened.catalog()), out)
}

/// All that was found beside tensors.
fn beside(catalog: &Catalog) -> Vec<&str> {
    catalog.beside.iter().chain(&catalog.left_behind).map(String::as_str).collect()
}

fn print_beside(beside: &[&str], out: &mut dyn Write) -> anyhow::Result<()> {
    const SHOWN: usize = 20;
    if beside.is_empty() {
        return Ok(());
    }
    writeln!(out, "beside tensors:")?;
    for line in beside.iter().take(SHOWN) {
        writeln!(out, "  {}", show::plain(line))?;
    }
    if beside.len() > SHOWN {
        writeln!(out, "  and {} more (--json has all, cat --objects the tree)", beside.len() - SHOWN)?;
    }
    Ok(())
}

fn remarks(entry: &Entry) -> String {
    let absent = match &entry.data {
        Data::Absent(why) => Some(format!("no values: {why}")),
        Data::Broken(why) => Some(format!("damaged: {why}")),
        Data::Extents(_) => None,
    };
    show::plain(&entry.remarks.iter().cloned().chain(absent).collect::<Vec<_>>().join(", "))
}

/// Tensors and bytes of each dtype, most bytes first.
fn totals(chosen: &[&Entry]) -> Vec<(DType, usize, u64)> {
    let mut totals: Vec<(DType, usize, u64)> = Vec::new();
    for entry in chosen {
        match totals.iter_mut().find(|(dtype, ..)| *dtype == entry.dtype) {
            Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, bytes.saturating_add(entry.bytes)),
            None => totals.push((entry.dtype, 1, entry.bytes)),
        }
    }
    totals.sort_by_key(|(_, _, bytes)| std::cmp::Reverse(*bytes));
    totals
}

fn to_json(opened: &Opened, chosen: &[&Entry], partitions: bool) -> Value {
    let catalog = opened.catalog();
    let by_dtype = totals(chosen);
    let dtypes: serde_json::Map<String, Value> = by_dtype
        .iter()
        .map(|(dtype, count, bytes)| (dtype.to_string(), json!({"tensors": count, "bytes": bytes})))
        .collect();
    json!({
        "schema": "weightlift.ls/1",
        "path": opened.path().display().to_string(),
        "format": catalog.format,
        "description": catalog.description,
        "tensors": chosen.iter().map(|entry| entry_to_json(catalog, entry, partitions)).collect::<Vec<_>>(),
        "totals": {
            "tensors": chosen.len(),
            "bytes": by_dtype.iter().fold(0, |sum: u64, (_, _, bytes)| sum.saturating_add(*bytes)),
            "dtypes": dtypes,
        },
        "unused_bytes": catalog.unused_bytes(),
        "beside": beside(catalog),
        "warnings": opened.warnings().collect::<Vec<_>>(),
    })
}

fn entry_to_json(catalog: &Catalog, entry: &Entry, partitions: bool) -> Value {
    use weightlift::Key;
    let key = |key: &Key| match key {
        Key::Text(text) | Key::Other(text) => json!(text),
        Key::Int(int) => json!(int),
        Key::Index(index) => json!(index),
    };
    let mut value = json!({
        "name": entry.name,
        "path": entry.path.0.iter().map(key).collect::<Vec<_>>(),
        "dtype": entry.dtype.name(),
        "shape": entry.shape.dims(),
        "bytes": entry.bytes,
    });
    if !entry.remarks.is_empty() {
        value["remarks"] = json!(entry.remarks);
    }
    if partitions && !parts::of(entry).is_empty() {
        value["partitions"] = parts::of(entry).iter().map(|extent| parts::to_json(catalog, extent)).collect();
    }
    match &entry.data {
        Data::Absent(why) => value["absent"] = json!(why),
        Data::Broken(why) => value["damaged"] = json!(why),
        Data::Extents(_) => {}
    }
    value
}
