//! The steps of a plan, carried out one after the other.

use crate::items::Items;
use crate::step::Step;
use std::fmt;
use weightlift_core::{Error, Result};

/// Where a step is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineColumn {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
}

impl fmt::Display for LineColumn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

impl LineColumn {
    /// Names the place in an error about what is written there.
    pub fn blame(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("{self}: {error}")).in_file(&self.file).caused_by(error)
    }
}

/// A step as it was given.
#[derive(Debug, Clone)]
pub struct Told {
    /// What to do.
    pub step: Step,
    /// Where that is written; `None` for a step of the command line or of a program.
    pub at: Option<LineColumn>,
    /// Whether it may match nothing, whatever the plan says.
    pub allow_unmatched: bool,
}

impl Told {
    pub(crate) fn blame(&self, error: Error) -> Error {
        match &self.at {
            Some(at) => at.blame(error),
            None => error,
        }
    }
}

impl From<Step> for Told {
    fn from(step: Step) -> Told {
        Told { step, at: None, allow_unmatched: false }
    }
}

impl Items<'_> {
    /// Carries out all steps; answers each, or each of its patterns, with the number of tensors that it concerned.
    pub(crate) fn carry_out(&mut self, steps: &[Told], allow_unmatched: bool) -> Result<Vec<(String, usize)>> {
        let mut matches = Vec::new();
        let mut rest = steps;
        while let Some(first) = rest.first() {
            // Steps that keep or drop are one with those that follow: what the one drops the next may still select.
            let kind = std::mem::discriminant(&first.step);
            let joins = matches!(first.step, Step::Include(_) | Step::Exclude(_) | Step::StripPrefix(_));
            let alike = rest.iter().take_while(|told| joins && std::mem::discriminant(&told.step) == kind).count();
            let (these, others) = rest.split_at(alike.max(1));
            self.allow_unmatched(allow_unmatched || these.iter().any(|told| told.allow_unmatched));
            let blame = |error| first.blame(error);
            match first.step {
                Step::Include(_) | Step::Exclude(_) => self.choose(these, allow_unmatched, &mut matches)?,
                Step::StripPrefix(_) => {
                    let all = these.iter().flat_map(|told| match &told.step {
                        Step::StripPrefix(prefixes) => prefixes.as_slice(),
                        _ => &[],
                    });
                    let step = Step::StripPrefix(all.cloned().collect());
                    matches.push((step.to_string(), self.apply(&step).map_err(blame)?));
                }
                _ => matches.push((first.step.to_string(), self.apply(&first.step).map_err(blame)?)),
            }
            let rules = self.rules.drain(..).map(|(rule, count)| (format!("  {rule}"), count));
            matches.extend(rules);
            rest = others;
        }
        Ok(matches)
    }

    /// Keeps or drops what any of the patterns selects.
    fn choose(&mut self, steps: &[Told], allow: bool, matches: &mut Vec<(String, usize)>) -> Result<()> {
        let mut chosen = vec![false; self.edited().len()];
        let mut keeps = false;
        for told in steps {
            let (word, patterns) = match &told.step {
                Step::Include(patterns) => ("include", patterns),
                Step::Exclude(patterns) => ("exclude", patterns),
                _ => continue,
            };
            keeps = word == "include";
            self.allow_unmatched(allow || told.allow_unmatched);
            for pattern in patterns {
                let found = self.select(std::slice::from_ref(pattern), &format!("--{word}"));
                let found = found.map_err(|error| told.blame(error))?;
                let count = found.iter().filter(|&&found| found).count();
                matches.push((format!("{word} {}", pattern.text()), count));
                chosen.iter_mut().zip(found).for_each(|(chosen, found)| *chosen |= found);
            }
        }
        let of_format: Vec<bool> = self.edited().iter().map(|item| item.of_format).collect();
        self.keep(|at| if keeps { chosen[at] || of_format[at] } else { !chosen[at] });
        Ok(())
    }

    /// Carries out one step; answers how many tensors it concerned.
    fn apply(&mut self, step: &Step) -> Result<usize> {
        let any = self.allows_unmatched();
        match step {
            Step::Include(_) | Step::Exclude(_) => Ok(0),
            // When it is known what each tensor becomes.
            Step::ApplyScales => Ok(0),
            Step::Key(choice) => self.take_key(choice),
            Step::Weights(choice) => self.choose_weights(*choice),
            Step::Rename(rename) => self.rename(&step.to_string(), any, |name| rename.apply(name)),
            Step::RenameWith(rename) => self.rename(&step.to_string(), true, |name| Ok(Some(rename(name)))),
            Step::StripPrefix(prefixes) => self.rename(&step.to_string(), any, |name| Ok(strip(name, prefixes))),
            Step::AddPrefix(prefix) => self.rename(&step.to_string(), true, |name| Ok(Some(format!("{prefix}{name}")))),
            Step::Cast(rule) => self.mark(rule),
            Step::DropOptimizer => self.drop_optimizer(),
            Step::Map(map) => self.map(map),
            Step::Set(rule) => self.set(rule),
            Step::Add(rule) => self.add(rule),
            Step::CopyRows(rule) => self.copy_rows(rule),
            Step::ResizeRows(rule) => self.resize_rows(rule),
            Step::Transpose(rule) => self.transpose(rule),
            Step::Reshape(rule) => self.reshape(rule),
            Step::Squeeze(rule) => self.squeeze(rule),
            Step::Slice(rule) => self.slice(rule),
            Step::Concat(rule) => self.concat(rule),
            Step::Stack(rule) => self.stack(rule),
            Step::Split(rule) => self.split(rule),
            Step::Average(rule) => self.average(rule),
            Step::JoinInputs(rule) => self.join_inputs(rule),
            Step::Preset(preset) => self.preset(preset),
            Step::Expect(expected) => self.expect(expected),
        }
    }
}

fn strip(name: &str, prefixes: &[String]) -> Option<String> {
    let mut rest = name;
    while let Some(shorter) = prefixes.iter().filter(|p| !p.is_empty()).find_map(|p| rest.strip_prefix(p.as_str())) {
        rest = shorter;
    }
    (rest.len() < name.len()).then(|| rest.to_owned())
}
