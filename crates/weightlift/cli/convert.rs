//! `weightlift convert` and `weightlift plan`.

use super::Outcome;
use super::args::{ConvertArgs, OpenArgs};
use super::progress::Bar;
use super::show::{self, Align};
use super::steps::Given;
use serde_json::{Value, json};
use std::io::Write;
use std::path::{Path, PathBuf};
use weightlift::{
    Carried, CastReport, Chosen, DeviceReport, LeftOut, OnOverflow, Opened, OutputSpec, Plan, Report, Resolved,
    SaveOptions, Words,
};
use weightlift_io::Commit;

/// Converts, and says what was done.
pub(crate) fn run(args: &ConvertArgs, given: &Given, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    if args.dry_run {
        return self::plan(args, given, None, out);
    }
    let (opened, plan, save) = prepare(args, given)?;
    let bar = Bar::new(args.quiet || args.json);
    let report = opened.save_with(&plan, args.inputs().1, &save, &bar);
    bar.clear();
    let report = report?;
    let outcome = if report.lost.is_empty() { Outcome::Done } else { Outcome::Lost };
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &report_to_json(&report))?;
        writeln!(out)?;
        return Ok(outcome);
    }
    if !args.quiet {
        closing_lines(&report).iter().for_each(|line| super::message(line));
        if let Some(hint) = key_hint(&opened, report.suggested_key.as_ref()) {
            super::message(&hint);
        }
    } else {
        lost_lines(&report.lost).iter().for_each(|line| super::message(line));
    }
    Ok(outcome)
}

/// Shows what `run` would do, and writes the steps to a recipe where that is asked for.
pub(crate) fn plan(
    args: &ConvertArgs,
    given: &Given,
    recipe: Option<&Path>,
    out: &mut dyn Write,
) -> anyhow::Result<Outcome> {
    let (opened, plan, save) = prepare(args, given)?;
    let (resolved, target) = opened.resolve(&plan, args.inputs().1, &save)?;
    if let Some(path) = recipe {
        write_recipe(&opened, path, &given.recipe(&words(args), args.allow_unmatched)?, args.force)?;
    }
    let mut options = save.options.clone();
    if let Some(most) = save.max_memory {
        options.fit_memory(&resolved, most)?;
    }
    let memory = weightlift::planned_memory(&resolved, &options);
    if args.json {
        let mut json = plan_to_json(&resolved, target.id, memory);
        json["device_memory"] = json!(save.device.most_memory(&resolved));
        json["measured"] = measured(&resolved, &save).map(|(t, bytes)| json!({"tensors": t, "bytes": bytes})).into();
        serde_json::to_writer_pretty(&mut *out, &json)?;
        writeln!(out)?;
        return Ok(Outcome::Done);
    }
    print_plan(&resolved, out)?;
    let bytes = show::bytes(resolved.bytes());
    let tensors = show::count(resolved.outputs.len(), "tensor");
    let path = show::plain(&args.inputs().1.display().to_string());
    writeln!(out, "\n{path}: {tensors}, {bytes} as a {}", target.name)?;
    for (step, count) in &resolved.matches {
        writeln!(out, "  step      {}: {}", show::plain(step), show::count(*count, "tensor"))?;
    }
    let lost = lost_lines(&resolved.lost).into_iter();
    let left_out = lost.chain(left_out_lines(&resolved.left_out)).chain(not_carried_line(&resolved.not_carried));
    for line in left_out.chain(resolved.notes.iter().map(note_line)) {
        writeln!(out, "{}", show::plain(&line))?;
    }
    if let Some((tensors, bytes)) = measured(&resolved, &save) {
        let (tensors, bytes) = (show::count(tensors, "tensor"), show::bytes(bytes));
        writeln!(out, "  measure   {tensors}, {bytes}, read twice: those that overflow keep their dtype")?;
    }
    if args.dedupe {
        writeln!(out, "  measure   all tensors are read twice: those of equal values are written once")?;
    }
    let verified = if args.no_verify { 0 } else { resolved.bytes_verified };
    let again =
        if verified > 0 { format!(", and {} to verify checksums", show::bytes(verified)) } else { String::new() };
    writeln!(out, "  reads     {}{again}", show::bytes(resolved.bytes_read))?;
    if !resolved.agreements.is_empty() {
        let tensors = show::count(resolved.agreements.len(), "tensor");
        writeln!(out, "  compare   {tensors} that all inputs must have alike, before anything is written")?;
    }
    let staging = match save.device.most_memory(&resolved) {
        0 => String::new(),
        bytes => format!(", and up to {} more where a device is used", show::bytes(bytes)),
    };
    writeln!(out, "  memory    about {}{staging}", show::bytes(memory))?;
    if let Some(hint) = key_hint(&opened, resolved.suggested_key.as_ref()) {
        writeln!(out, "{}", show::plain(&hint))?;
    }
    Ok(Outcome::Done)
}

/// Tensors and bytes that are read by a measuring pass, where there is one.
fn measured(resolved: &Resolved, save: &SaveOptions) -> Option<(usize, u64)> {
    (save.options.on_overflow == OnOverflow::Keep).then(|| resolved.measured())
}

fn words(args: &ConvertArgs) -> Words {
    Words { files: weightlift_io::real(), with_related: args.with_related }
}

/// Writes a recipe, whole or not at all.
fn write_recipe(opened: &Opened, path: &Path, text: &str, replace: bool) -> anyhow::Result<()> {
    let mut commit = Commit::new(opened.files().clone(), replace);
    commit.create(path)?.write_all_at(text.as_bytes(), 0)?;
    commit.commit(None)?;
    Ok(())
}

/// The inputs opened, each with its word.
fn open_inputs(paths: &[PathBuf], opening: &OpenArgs) -> anyhow::Result<Opened> {
    let mut opened: Option<Opened> = None;
    for path in paths {
        let (word, path) = split_word(path);
        let input = opening.open(path)?;
        super::warn(&input);
        opened = Some(match opened {
            None => input.called(word),
            Some(first) => first.with(word, input),
        });
    }
    opened.ok_or_else(|| anyhow::anyhow!("there is no input"))
}

/// Cuts `WORD=PATH`; what exists as it stands is a path.
fn split_word(argument: &Path) -> (&str, &Path) {
    let is_word = |word: &str| {
        let mut letters = word.chars();
        letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
    };
    let text = argument.to_str().unwrap_or_default();
    match text.split_once('=') {
        Some((word, path)) if is_word(word) && weightlift_io::real().stat(argument).is_err() => (word, Path::new(path)),
        _ => ("", argument),
    }
}

fn prepare(args: &ConvertArgs, given: &Given) -> anyhow::Result<(Opened, Plan, SaveOptions)> {
    let plan = given.plan(&words(args))?;
    let opened = open_inputs(args.inputs().0, &args.opening)?;
    let mut save = SaveOptions {
        to: args.to.clone(),
        skip_unsupported: args.skip_unsupported,
        allow_expand: args.allow_expand,
        weights_only: args.weights_only,
        keep_storages: args.keep_storages,
        join_partitions: args.join_partitions,
        salvage: args.opening.salvage,
        ..SaveOptions::default()
    };
    save.options.on_overflow = args.on_overflow.into();
    save.options.like = args.like.into();
    save.options.verify = !args.no_verify;
    save.options.replace = args.force;
    save.options.shard_size = args.shard_size;
    save.options.output.keep_calls = args.keep_calls;
    save.options.output.nest.clone_from(&args.nest);
    let set = args.metadata.iter().map(|(key, value)| (key.clone(), Some(value.clone())));
    save.options.output.metadata = args.drop_metadata.iter().map(|key| (key.clone(), None)).chain(set).collect();
    save.options.output.ties = args.ties.into();
    save.options.output.in_place = args.in_place;
    save.npy_raw = args.npy_raw.map(Into::into);
    save.options.output.share = args.share.map_or(save.options.output.share, weightlift::Share::from);
    (save.options.output.state_file, save.options.output.object_graph) = (args.state_file, args.object_graph);
    save.device = args.device.clone();
    save.max_memory = args.max_memory;
    save.options.dedupe = args.dedupe;
    save.options.threads = args.threads.map_or(save.options.threads, usize::from);
    Ok((opened, plan.allow_unmatched(args.allow_unmatched), save))
}

fn dtypes(output: &OutputSpec) -> String {
    match output.from == output.to {
        true => output.to.to_string(),
        false => format!("{} -> {}", output.from, output.to),
    }
}

fn print_plan(resolved: &Resolved, out: &mut dyn Write) -> anyhow::Result<()> {
    let old = |output: &OutputSpec| show::plain(&output.value.to_string());
    let row = |output: &OutputSpec| {
        let new = show::plain(&output.name);
        let new = if new == old(output) { "=".to_owned() } else { new };
        [old(output), new, dtypes(output), output.shape.to_string(), show::bytes(output.bytes)]
    };
    let rows: Vec<_> = resolved.outputs.iter().map(row).collect();
    let align = [Align::Left, Align::Left, Align::Left, Align::Left, Align::Right];
    Ok(show::table(out, ["NAME", "NEW NAME", "DTYPE", "SHAPE", "BYTES"], align, &rows)?)
}

/// The lines that end a conversion.
fn closing_lines(report: &Report) -> Vec<String> {
    let path = report.files.first().map(|(path, _)| path.display().to_string()).unwrap_or_default();
    let (tensors, written) = (show::count(report.tensors, "tensor"), show::bytes(report.bytes_written()));
    let (read, seconds) = (show::bytes(report.bytes_read), report.elapsed.as_secs_f64());
    let rate = show::bytes((report.bytes_read as f64 / seconds.max(1e-9)) as u64);
    let mut lines = vec![format!("{path}: {tensors}, {read} read, {written} written in {seconds:.2} s ({rate}/s)")];
    lines.extend(cast_lines(&report.casts));
    lines.extend(kept_back_line(&report.kept_back));
    for (kept, word) in [(&report.kept, "as it was"), (&report.edited, "edited   ")] {
        let counts: Vec<_> = kept.iter().map(|(dtype, count)| format!("{count} {dtype}")).collect();
        lines.extend((!kept.is_empty()).then(|| format!("  {word} {}", counts.join(", "))));
    }
    lines.extend(lost_lines(&report.lost));
    lines.extend(left_out_lines(&report.left_out));
    lines.extend(not_carried_line(&report.not_carried));
    lines.extend(report.carried.as_ref().map(carried_line));
    lines.extend(report.device.iter().flat_map(device_lines));
    lines.extend(report.notes.iter().map(note_line));
    lines.extend(vanishing_line(report.casts.iter()));
    lines
}

/// How bytes came over that nobody read.
fn carried_line(carried: &Carried) -> String {
    let unused = match carried.unused {
        0 => String::new(),
        unused => format!("; {} of them belong to no tensor of the output", show::bytes(unused)),
    };
    format!("  {:<9} {} carried unverified{unused}", carried.how, show::bytes(carried.bytes))
}

/// Who did the bulk work, at which rates, and what went wrong.
fn device_lines(device: &DeviceReport) -> Vec<String> {
    let all = device.by_processor + device.by_device;
    let rates = device.rates.as_ref().map(|rates| {
        let [cpu, gpu, both] = [rates.processor, rates.device, rates.both].map(|rate| show::bytes(rate as u64));
        format!("; tried: processor {cpu}/s, device {gpu}/s, both {both}/s")
    });
    let chosen = match device.chosen {
        Some(Chosen::Processor) => "the processor was faster",
        Some(Chosen::Device) => "the device",
        Some(Chosen::Both) => "both",
        None => "both, too little to choose",
    };
    let (did, all) = (show::bytes(device.by_device), show::bytes(all));
    let line = format!("  device    {}: {did} of {all}; chosen: {chosen}{}", device.name, rates.unwrap_or_default());
    let warning = |why: &String| format!("  warning   the device was given up, the processor did the rest: {why}");
    std::iter::once(line).chain(device.failure.as_ref().map(warning)).collect()
}

fn device_to_json(device: &DeviceReport) -> Value {
    let chosen = device.chosen.map(|chosen| match chosen {
        Chosen::Processor => "cpu",
        Chosen::Device => "gpu",
        Chosen::Both => "both",
    });
    let rates = device.rates.map(|rates| json!({"cpu": rates.processor, "gpu": rates.device, "both": rates.both}));
    json!({
        "name": device.name,
        "chosen": chosen,
        "bytes_cpu": device.by_processor,
        "bytes_gpu": device.by_device,
        "rates": rates,
        "failure": device.failure,
    })
}

fn note_line(note: &String) -> String {
    format!("  note      {note}")
}

/// A line for each pair of dtypes, with what was lost and where.
fn cast_lines(casts: &[CastReport]) -> Vec<String> {
    let mut pairs: Vec<(_, _)> = casts.iter().map(|cast| (cast.from, cast.to)).collect();
    pairs.sort();
    pairs.dedup();
    let line = |(from, to)| {
        let these: Vec<_> = casts.iter().filter(|cast| (cast.from, cast.to) == (from, to)).collect();
        let losses = [
            lost(&these, "out of range", |cast| cast.tally.overflow),
            lost(&these, "became 0", |cast| cast.tally.to_zero),
            lost(&these, "NaN", |cast| cast.tally.nan),
        ];
        let losses: Vec<_> = losses.into_iter().flatten().chain(errors(&these)).collect();
        let losses = if losses.is_empty() { String::new() } else { format!("; {}", losses.join("; ")) };
        format!("  cast      {} {from} -> {to}{losses}", these.len())
    };
    pairs.into_iter().map(line).collect()
}

fn lost(casts: &[&CastReport], what: &str, count: impl Fn(&CastReport) -> u64) -> Option<String> {
    let hit: Vec<_> = casts.iter().filter(|cast| count(cast) > 0).collect();
    let total: u64 = hit.iter().map(|cast| count(cast)).sum();
    let names: Vec<_> = hit.iter().map(|cast| format!("{} ({})", cast.name, count(cast))).collect();
    let noun = if total == 1 { "value" } else { "values" };
    (total > 0).then(|| format!("{total} {noun} {what}: {}", show::some(names.iter().map(String::as_str), 3)))
}

/// The largest errors, with the tensors that have them.
fn errors(casts: &[&CastReport]) -> Option<String> {
    let largest = |of: fn(&CastReport) -> f64| {
        let cast = casts.iter().copied().max_by(|a, b| of(a).total_cmp(&of(b)).then(std::cmp::Ordering::Greater))?;
        (of(cast) > 0.0).then(|| format!("{} in {}", show::number(of(cast)), cast.name))
    };
    let absolute = largest(|cast| cast.deviation.absolute)?;
    let relative = largest(|cast| cast.deviation.relative).map_or(String::new(), |text| format!(", relative {text}"));
    Some(format!("largest error {absolute}{relative}"))
}

/// The line that names tensors of which a good part became zero.
pub(super) fn vanishing_line<'a>(casts: impl Iterator<Item = &'a CastReport>) -> Option<String> {
    let names: Vec<String> = casts.filter(|cast| cast.vanishes()).map(vanished).collect();
    let line = format!(
        "  note      more than 1% of the values other than 0 became 0 in {}: {}",
        show::count(names.len(), "tensor"),
        show::some(names.iter().map(String::as_str), 10)
    );
    (!names.is_empty()).then_some(line)
}

/// A name and the share of its values that became zero.
fn vanished(cast: &CastReport) -> String {
    let values = cast.deviation.numbers - cast.deviation.zeros;
    let percent = cast.tally.to_zero as f64 * 100.0 / values.max(1) as f64;
    format!("{} ({percent:.1}%)", cast.name)
}

/// The line that names the tensors which were not cast because they would have overflowed.
fn kept_back_line(kept_back: &[CastReport]) -> Option<String> {
    let name = |cast: &CastReport| {
        format!("{} ({} of {} to {})", cast.name, cast.tally.overflow + cast.tally.nan, cast.from, cast.to)
    };
    let names: Vec<String> = kept_back.iter().map(name).collect();
    let (tensors, some) = (show::count(names.len(), "tensor"), show::some(names.iter().map(String::as_str), 5));
    (!names.is_empty()).then(|| format!("  not cast  {tensors} with values out of range: {some}"))
}

/// A line for each reason.
/// A line for each damaged tensor.
fn lost_lines(lost: &[LeftOut]) -> Vec<String> {
    const SHOWN: usize = 20;
    let line = |tensor: &LeftOut| format!("  lost      {}: {}", tensor.name, tensor.why);
    let mut lines: Vec<String> = lost.iter().take(SHOWN).map(line).collect();
    if lost.len() > SHOWN {
        lines.push(format!("  lost      and {} more", lost.len() - SHOWN));
    }
    lines
}

fn left_out_lines(left_out: &[LeftOut]) -> Vec<String> {
    let mut reasons: Vec<&str> = left_out.iter().map(|tensor| tensor.why.as_str()).collect();
    reasons.sort_unstable();
    reasons.dedup();
    let line = |why| {
        let names: Vec<&str> = left_out.iter().filter(|t| t.why == why).map(|t| t.name.as_str()).collect();
        format!("  left out  {}: {why}: {}", show::count(names.len(), "tensor"), show::some(names.into_iter(), 5))
    };
    reasons.into_iter().map(line).collect()
}

fn not_carried_line(not_carried: &[String]) -> Option<String> {
    let objects = show::count(not_carried.len(), "object");
    let some = show::some(not_carried.iter().map(String::as_str), 5);
    (!not_carried.is_empty()).then(|| format!("  left out  {objects} beside tensors: {some}"))
}

fn key_hint(opened: &Opened, suggested: Option<&(String, usize)>) -> Option<String> {
    let (key, count) = suggested?;
    let all = opened.catalog().entries.len();
    Some(format!(
        "  hint      {key:?} looks like the state dict ({count} of {all} tensors): --key {key} takes it alone"
    ))
}

fn left_out_to_json(left_out: &[LeftOut]) -> Value {
    left_out.iter().map(|t| json!({"name": t.name, "dtype": t.dtype.name(), "why": t.why})).collect()
}

fn plan_to_json(resolved: &Resolved, format: &str, memory: u64) -> Value {
    let tensor = |output: &OutputSpec| {
        json!({
            "source": output.value.to_string(),
            "name": output.name,
            "from": output.from.name(),
            "dtype": output.to.name(),
            "shape": output.shape.dims(),
            "bytes": output.bytes,
        })
    };
    let step = |(step, count): &(String, usize)| json!({"step": step, "tensors": count});
    json!({
        "schema": "weightlift.plan/1",
        "format": format,
        "tensors": resolved.outputs.iter().map(tensor).collect::<Vec<_>>(),
        "steps": resolved.matches.iter().map(step).collect::<Vec<_>>(),
        "left_out": left_out_to_json(&resolved.left_out),
        "lost": left_out_to_json(&resolved.lost),
        "not_carried": resolved.not_carried,
        "notes": resolved.notes,
        "agreements": resolved.agreements.iter().map(|agreement| &agreement.name).collect::<Vec<_>>(),
        "bytes": resolved.bytes(),
        "bytes_read": resolved.bytes_read,
        "bytes_verified": resolved.bytes_verified,
        "memory": memory,
        "suggested_key": resolved.suggested_key.as_ref().map(|(key, _)| key),
    })
}

/// A cast and all it took.
pub(super) fn cast_to_json(cast: &CastReport) -> Value {
    json!({
        "name": cast.name,
        "from": cast.from.name(),
        "to": cast.to.name(),
        "overflow": cast.tally.overflow,
        "to_zero": cast.tally.to_zero,
        "subnormal": cast.tally.subnormal,
        "nan": cast.tally.nan,
        "absolute_error": show::json_number(cast.deviation.absolute),
        "relative_error": show::json_number(cast.deviation.relative),
        "vanishes": cast.vanishes(),
    })
}

fn report_to_json(report: &Report) -> Value {
    let file = |(path, bytes): &(std::path::PathBuf, u64)| json!({"path": path.display().to_string(), "bytes": bytes});
    let kept = |(dtype, count): &(weightlift::DType, usize)| json!({"dtype": dtype.name(), "tensors": count});
    json!({
        "schema": "weightlift.convert/1",
        "files": report.files.iter().map(file).collect::<Vec<_>>(),
        "tensors": report.tensors,
        "bytes_read": report.bytes_read,
        "bytes_written": report.bytes_written(),
        "seconds": report.elapsed.as_secs_f64(),
        "casts": report.casts.iter().map(cast_to_json).collect::<Vec<_>>(),
        "kept_back": report.kept_back.iter().map(cast_to_json).collect::<Vec<_>>(),
        "kept": report.kept.iter().map(kept).collect::<Vec<_>>(),
        "edited": report.edited.iter().map(kept).collect::<Vec<_>>(),
        "left_out": left_out_to_json(&report.left_out),
        "lost": left_out_to_json(&report.lost),
        "not_carried": report.not_carried,
        "carried": report.carried.as_ref().map(|c| json!({"how": c.how, "bytes": c.bytes, "unused": c.unused})),
        "device": report.device.as_ref().map(device_to_json),
        "notes": report.notes,
    })
}
