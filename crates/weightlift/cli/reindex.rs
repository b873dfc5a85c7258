//! `weightlift reindex`.

use super::args::ReindexArgs;
use super::show;
use serde_json::{Value, json};
use std::io::Write;
use weightlift::Reindexed;

/// Writes an index anew, and says what it changes.
pub(crate) fn run(args: &ReindexArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let found = weightlift::reindex(&args.set)?;
    if !args.dry_run {
        found.write(args.force)?;
    }
    if args.json {
        serde_json::to_writer_pretty(&mut *out, &to_json(&found, !args.dry_run))?;
        return Ok(writeln!(out)?);
    }
    let (files, tensors) = (show::count(found.files.len(), "file"), show::count(found.tensors, "tensor"));
    let bytes = show::bytes(found.bytes);
    writeln!(out, "{}: {files}, {tensors}, {bytes}", show::plain(&found.path.display().to_string()))?;
    for change in &found.changes {
        writeln!(out, "  {}", show::plain(change))?;
    }
    Ok(())
}

fn to_json(found: &Reindexed, written: bool) -> Value {
    json!({
        "schema": "weightlift.reindex/1",
        "path": found.path.display().to_string(),
        "written": written,
        "files": found.files,
        "tensors": found.tensors,
        "bytes": found.bytes,
        "changes": found.changes,
    })
}
