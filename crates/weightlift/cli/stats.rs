//! `weightlift stats`.

use super::args::StatsArgs;
use super::progress::Bar;
use super::show::{self, Align};
use super::{convert, ls};
use serde_json::{Value, json};
use std::io::Write;
use weightlift::{CastReport, EntryId, Opened, Options, Summary, Survey};

/// Sums up values.
pub(crate) fn run(args: &StatsArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let opened = args.open.open(&args.checkpoint)?;
    super::warn(&opened);
    let wanted = ls::selected(&args.patterns, opened.catalog(), &args.checkpoint)?;
    let chosen: Vec<EntryId> = opened.catalog().iter().zip(wanted).filter_map(|((id, _), w)| w.then_some(id)).collect();
    let mut options = Options { like: args.like.into(), verify: !args.no_verify, ..Options::default() };
    options.threads = args.threads.map_or(options.threads, usize::from);
    let bar = Bar::new(args.json);
    let surveys = opened.stats(&chosen, args.cast, &options, &bar);
    bar.clear();
    let surveys = surveys?;
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &to_json(args, &opened, &surveys))?;
        return Ok(writeln!(out)?);
    }
    print(args, &opened, &surveys, out)
}

fn print(args: &StatsArgs, opened: &Opened, surveys: &[Survey], out: &mut dyn Write) -> anyhow::Result<()> {
    let rows: Vec<_> = surveys.iter().map(|survey| row(opened, survey)).collect();
    let mut align = [Align::Right; 9];
    align[..2].fill(Align::Left);
    let header = ["NAME", "DTYPE", "MIN", "MAX", "MEAN", "STD", "ZEROS", "NAN", "INF"];
    show::table(out, header, align, &rows)?;
    for survey in surveys {
        if let Some(why) = &survey.why {
            let name = &opened.catalog().entry(survey.entry).name;
            writeln!(out, "{}", show::plain(&format!("{name}: {why}")))?;
        }
    }
    let Some(to) = args.cast else { return Ok(()) };
    let casts: Vec<&CastReport> = surveys.iter().filter_map(|survey| survey.cast.as_ref()).collect();
    writeln!(out, "\nas {to}: {}", show::count(casts.len(), "tensor"))?;
    let rows: Vec<_> = casts.iter().map(|cast| cast_row(cast)).collect();
    let mut align = [Align::Right; 8];
    align[..2].fill(Align::Left);
    let header = ["NAME", "FROM", "OUT OF RANGE", "TO ZERO", "SUBNORMAL", "NAN", "ABS ERROR", "REL ERROR"];
    show::table(out, header, align, &rows)?;
    if let Some(line) = convert::vanishing_line(casts.iter().copied()) {
        writeln!(out, "\n{}", show::plain(&line))?;
    }
    Ok(())
}

fn row(opened: &Opened, survey: &Survey) -> [String; 9] {
    let entry = opened.catalog().entry(survey.entry);
    let (name, dtype) = (show::plain(&entry.name), entry.dtype.to_string());
    let Some(summary) = &survey.summary else {
        let mut row = [const { String::new() }; 9];
        (row[0], row[1]) = (name, dtype);
        return row;
    };
    let [min, max, mean, std] = numbers(summary).map(|number| number.map_or_else(String::new, show::number));
    let counts = [summary.zeros, summary.nan, summary.infinite].map(|count| count.to_string());
    let [zeros, nan, infinite] = counts;
    [name, dtype, min, max, mean, std, zeros, nan, infinite]
}

/// Least, largest, mean and spread, where a number is finite.
fn numbers(summary: &Summary) -> [Option<f64>; 4] {
    let finite = summary.finite() > 0;
    [finite.then_some(summary.min), finite.then_some(summary.max), summary.mean(), summary.std()]
}

fn cast_row(cast: &CastReport) -> [String; 8] {
    let tally = &cast.tally;
    let [overflow, to_zero, subnormal, nan] =
        [tally.overflow, tally.to_zero, tally.subnormal, tally.nan].map(|count| count.to_string());
    let errors = [cast.deviation.absolute, cast.deviation.relative].map(show::number);
    let [absolute, relative] = errors;
    [show::plain(&cast.name), cast.from.to_string(), overflow, to_zero, subnormal, nan, absolute, relative]
}

fn to_json(args: &StatsArgs, opened: &Opened, surveys: &[Survey]) -> Value {
    let tensor = |survey: &Survey| {
        let entry = opened.catalog().entry(survey.entry);
        let mut value = json!({"name": entry.name, "dtype": entry.dtype.name(), "shape": entry.shape.dims()});
        if let Some(summary) = &survey.summary {
            let names = ["min", "max", "mean", "std"];
            for (name, number) in names.into_iter().zip(numbers(summary)) {
                value[name] = number.map_or(Value::Null, show::json_number);
            }
            value["count"] = json!(summary.count);
            value["zeros"] = json!(summary.zeros);
            value["nan"] = json!(summary.nan);
            value["infinite"] = json!(summary.infinite);
        }
        if let Some(cast) = &survey.cast {
            value["cast"] = convert::cast_to_json(cast);
        }
        if let Some(why) = &survey.why {
            value["why"] = json!(why);
        }
        value
    };
    json!({
        "schema": "weightlift.stats/1",
        "path": opened.path().display().to_string(),
        "as": args.cast.map(weightlift::DType::name),
        "tensors": surveys.iter().map(tensor).collect::<Vec<_>>(),
    })
}
