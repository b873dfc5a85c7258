//! The command line: arguments, verbs, and what a person sees.
//!
//! Data go to stdout, messages and the progress bar to stderr. Exit codes: 0 done; 1 something was lost of what was to
//! be salvaged; 2 anything wrong with arguments, input or output.

mod args;
mod bench;
#[cfg(feature = "gpu")]
mod bench_gpu;
mod cat;
mod convert;
mod devices;
mod ls;
mod progress;
mod reindex;
mod show;
mod stats;
mod steps;

use args::{Cli, Verb};
use clap::{CommandFactory, FromArgMatches};
use std::io::{self, Write};
use std::process::ExitCode;
use steps::Given;
use weightlift::Opened;

/// Runs the command and answers its exit code.
pub(crate) fn run() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let mut out = io::BufWriter::new(io::stdout().lock());
    let done = verb(&cli, &matches, &mut out).and_then(|outcome| out.flush().map(|()| outcome).map_err(Into::into));
    match done {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Lost) => ExitCode::from(1),
        // The reader of a pipe has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = out.flush();
            let _ = writeln!(io::stderr(), "weightlift: {}", show::plain(&error.to_string()));
            ExitCode::from(2)
        }
    }
}

/// How a verb ended that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All was done.
    Done,
    /// What could be salvaged is there; something is lost.
    Lost,
}

fn verb(cli: &Cli, matches: &clap::ArgMatches, out: &mut dyn Write) -> anyhow::Result<Outcome> {
    let sub = matches.subcommand().map(|(_, sub)| sub);
    match &cli.verb {
        Verb::Ls(args) => ls::run(args, out),
        Verb::Cat(args) => {
            let opened = args.opening.open(&args.checkpoint)?;
            warn(&opened);
            let notes = cat::run(args, &opened, out)?;
            notes.iter().for_each(|note| message(&format!("note: {note}")));
            Ok(Outcome::Done)
        }
        Verb::Convert(args) => convert::run(args, &Given::in_order(sub), out),
        Verb::Presets { name } => presets(name.as_deref(), out).map(|()| Outcome::Done),
        Verb::Plan(args) => convert::plan(&args.convert, &Given::in_order(sub), args.output.as_deref(), out),
        Verb::Reindex(args) => reindex::run(args, out).map(|()| Outcome::Done),
        Verb::Stats(args) => stats::run(args, out).map(|()| Outcome::Done),
        Verb::Bench(args) => bench::run(args, out).map(|()| Outcome::Done),
        Verb::Devices(args) => devices::run(args, out).map(|()| Outcome::Done),
    }
}

/// Lists the presets, or prints one.
fn presets(name: Option<&str>, out: &mut dyn Write) -> anyhow::Result<()> {
    let known = || weightlift::PRESETS.iter().map(|(name, _)| *name);
    let Some(name) = name else {
        for (name, text) in weightlift::PRESETS {
            writeln!(out, "{name:8}  {}", weightlift::about_preset(name, text)?)?;
        }
        return Ok(());
    };
    match weightlift::PRESETS.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => Ok(out.write_all(text.as_bytes())?),
        None if name.ends_with(".toml") => {
            let words = weightlift::Words { files: weightlift_io::real(), with_related: false };
            let text = words.text(name)?;
            weightlift::parse_preset(name, &text, false)?;
            Ok(out.write_all(text.as_bytes())?)
        }
        None => anyhow::bail!(
            "there is no preset {name:?} (there are {}; a file of your own ends in .toml)",
            known().collect::<Vec<_>>().join(", ")
        ),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<io::Error>().map(io::Error::kind);
    error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}

/// Tells the user something beside the data.
fn message(text: &str) {
    let _ = writeln!(io::stderr(), "{}", show::plain(text));
}

/// Tells what the user should know of an input.
fn warn(opened: &Opened) {
    opened.warnings().for_each(|warning| message(&format!("warning: {warning}")));
}
