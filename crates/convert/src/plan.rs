//! What to do, as plain data, checked in full before a byte moves.

use crate::agree::Agreement;
use crate::course::Told;
use crate::inputs::{Input, Inputs, Place};
use crate::items::{Identity, Item, Items};
use crate::step::{CastRule, Step};
use crate::target::{self, Target};
use crate::value::Value;
use crate::{KeyChoice, Pattern, Rename, homes, key, scales};
use std::collections::HashSet;
use std::sync::Arc;
use weightlift_core::{DType, Error, Extent, KeyPath, Origin, Packing, Region, Result, Shape};
use weightlift_kernels::cast::{CastPair, Like};

/// An ordered list of steps.
///
/// ```
/// use weightlift_convert::{CastRule, Pattern, Plan, Rename};
/// use weightlift_core::DType;
/// let plan = Plan::new()
///     .exclude([Pattern::new("**/adam_{m,v}").unwrap()])
///     .rename(Rename::new("^bert/", "").unwrap())
///     .cast(CastRule::floats_to(DType::F16));
/// assert_eq!(plan.steps().len(), 3);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Plan {
    steps: Vec<Told>,
    allow_unmatched: bool,
}

impl Plan {
    /// A plan that changes nothing.
    pub fn new() -> Plan {
        Plan::default()
    }

    /// Adds a step. Includes that follow one another are one step, likewise excludes and stripped prefixes.
    #[must_use]
    pub fn step(mut self, step: impl Into<Told>) -> Plan {
        self.steps.push(step.into());
        self
    }

    /// Puts a step before all others.
    #[must_use]
    pub fn before(mut self, step: impl Into<Told>) -> Plan {
        self.steps.insert(0, step.into());
        self
    }

    /// Keeps what any of the patterns selects.
    #[must_use]
    pub fn include(self, patterns: impl Into<Vec<Pattern>>) -> Plan {
        self.step(Step::Include(patterns.into()))
    }

    /// Drops what any of the patterns selects.
    #[must_use]
    pub fn exclude(self, patterns: impl Into<Vec<Pattern>>) -> Plan {
        self.step(Step::Exclude(patterns.into()))
    }

    /// Takes one subtree.
    #[must_use]
    pub fn key(self, choice: KeyChoice) -> Plan {
        self.step(Step::Key(choice))
    }

    /// Renames by expression.
    #[must_use]
    pub fn rename(self, rename: Rename) -> Plan {
        self.step(Step::Rename(rename))
    }

    /// Renames every tensor by a function.
    #[must_use]
    pub fn rename_with(self, rename: impl Fn(&str) -> String + Send + Sync + 'static) -> Plan {
        self.step(Step::RenameWith(Arc::new(rename)))
    }

    /// Casts.
    #[must_use]
    pub fn cast(self, rule: CastRule) -> Plan {
        self.step(Step::Cast(rule))
    }

    /// The `.npy` files that steps name: each that exists is to be given to [`Plan::resolve`] as an input whose word is
    /// the path. Where an argument can be cut in several ways, what each of them names is among them, as not certain.
    pub fn arrays(&self) -> Vec<(&str, bool)> {
        let mut arrays: Vec<(&str, bool)> = Vec::new();
        for told in &self.steps {
            let of_step = match &told.step {
                Step::Set(set) => set.arrays(),
                Step::Add(add) => add.array().into_iter().collect(),
                _ => Vec::new(),
            };
            let certain = of_step.len() == 1;
            for array in of_step {
                match arrays.iter_mut().find(|(known, _)| *known == array) {
                    Some((_, known)) => *known |= certain,
                    None => arrays.push((array, certain)),
                }
            }
        }
        arrays
    }

    /// Whether a step asks how optimizers number parameters: then [`Input::orders`] is to be given.
    pub fn follows_optimizers(&self) -> bool {
        self.steps.iter().any(|told| match &told.step {
            Step::CopyRows(rule) => rule.takes_related(),
            Step::ResizeRows(rule) => rule.takes_related(),
            _ => false,
        })
    }

    /// Lets patterns and renames match nothing.
    #[must_use]
    pub fn allow_unmatched(self, allow: bool) -> Plan {
        Plan { allow_unmatched: allow, ..self }
    }

    /// Multiplies 8-bit weights with the scales beside them where they become wider floats, and leaves out the scales.
    #[must_use]
    pub fn apply_scales(self) -> Plan {
        self.step(Step::ApplyScales)
    }

    /// The steps in order.
    pub fn steps(&self) -> &[Told] {
        &self.steps
    }

    /// Carries the steps out on names, dtypes and shapes and checks the result against what the target can hold. The
    /// first input is edited; what is beside its tensors goes along where the format stays the same.
    ///
    /// # Errors
    /// `Request` for a rule that matches nothing, names that meet, casts that do not exist, and tensors or names the
    /// target cannot hold, all of them listed.
    pub fn resolve(&self, inputs: &[Input<'_>], target: &Target) -> Result<Resolved> {
        if inputs.is_empty() {
            return Err(Error::request("there is no input"));
        }
        let mut words = std::collections::HashSet::new();
        if let Some(twice) = inputs.iter().find(|input| !input.word.is_empty() && !words.insert(input.word)) {
            return Err(
                Error::request(format!("two inputs are called {:?}", twice.word)).help("give each its own WORD=PATH")
            );
        }
        let inputs = Inputs(inputs);
        let catalog = inputs.edited();
        let mut course = Items::of(inputs);
        let mut matches = course.carry_out(&self.steps, self.allow_unmatched)?;
        let mut items = course.finish()?;
        let notes = self.scale(&mut items, inputs, &mut matches)?;
        if items.iter().all(|item| item.of_format) && !catalog.entries.is_empty() {
            return Err(Error::request("the steps leave no tensor to write"));
        }
        let key_given = self.steps.iter().any(|told| matches!(told.step, Step::Key(_)));
        let nests = target.capabilities.nests;
        let left = nests.then(|| homes::settle(&mut items, catalog, key_given)).flatten();
        let mut resolved = target::fit(items, inputs, target)?;
        if resolved.outputs.is_empty() && !catalog.entries.is_empty() {
            let error = Error::request(format!("no tensor is left that {} can hold", target.name));
            return Err(match resolved.left_out.first() {
                Some(first) => error.help(format!("{:?}: {}", first.name, first.why)),
                None => error,
            });
        }
        if resolved.outputs.iter().try_fold(0u64, |sum, output| sum.checked_add(output.bytes)).is_none() {
            return Err(Error::limit("the tensors together have more than 2^64 bytes"));
        }
        // A subtree leaves what stands around it behind.
        let prunes = !target.weights_only || target.capabilities.prunes_extras;
        resolved.carries_extras = catalog.extras.is_some() && catalog.format == target.id && !key_given && prunes;
        if !resolved.carries_extras {
            resolved.not_carried.clone_from(&catalog.beside);
        }
        resolved.not_carried.extend(catalog.left_behind.iter().cloned());
        resolved.matches = matches;
        resolved.notes.extend(course.notes);
        resolved.notes.extend(notes.into_iter().chain(left));
        resolved.emptied = course.emptied;
        resolved.count_reads(inputs);
        if !key_given {
            let paths: Vec<_> = catalog.entries.iter().map(|entry| &entry.path).collect();
            resolved.suggested_key = key::suggestion(&paths);
        }
        Ok(resolved)
    }

    /// Applies scales, or says that it does not.
    fn scale(&self, items: &mut Vec<Item>, inputs: Inputs<'_>, matches: &mut [(String, usize)]) -> Result<Vec<String>> {
        let Some(told) = self.steps.iter().find(|told| matches!(told.step, Step::ApplyScales)) else {
            return Ok(scales::warning(items, inputs.edited()).into_iter().collect());
        };
        let count = scales::apply(items, inputs.edited()).map_err(|error| told.blame(error))?;
        if count == 0 && !self.allow_unmatched && !told.allow_unmatched {
            let error = Error::request("--apply-scales finds no 8-bit tensor with a scale that becomes a wider float");
            return Err(told.blame(error.help("--dtype f8e4m3fn:bf16 widens; --allow-unmatched lets it pass")));
        }
        let said = told.step.to_string();
        matches.iter_mut().filter(|(step, _)| *step == said).for_each(|(_, found)| *found = count);
        let tensors = if count == 1 { "tensor is" } else { "tensors are" };
        Ok(vec![format!("{count} 8-bit {tensors} multiplied with the scales beside them, which are left out")])
    }
}

/// How a tensor's bytes become those of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// They stay, whatever the dtype calls them.
    Copy,
    /// Every value is cast.
    Cast(CastPair),
}

/// One tensor of the output.
#[derive(Debug, Clone)]
pub struct OutputSpec {
    /// What it is made of.
    pub value: Value,
    /// The tensor of the input whose place it takes; `None` for one that was added.
    pub origin: Option<Origin>,
    /// Its path.
    pub path: KeyPath,
    /// Its name.
    pub name: String,
    /// The dtype before the cast.
    pub from: DType,
    /// The dtype in the output.
    pub to: DType,
    /// What is done to its bytes.
    pub change: Change,
    /// The packing in the output.
    pub packing: Packing,
    /// Its dimensions.
    pub shape: Shape,
    /// Its length in the output, in bytes.
    pub bytes: u64,
    /// The boxes that it is written in, where steps made it and it stays cut as it was; empty for the whole.
    pub pieces: Vec<Region>,
}

/// A tensor that the output will not have, though nobody excluded it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub name: String,
    /// Its dtype.
    pub dtype: DType,
    /// Why.
    pub why: String,
}

/// A plan applied to a catalog and a target: what will be written, in order.
#[derive(Debug, Clone, Default)]
pub struct Resolved {
    /// The tensors.
    pub outputs: Vec<OutputSpec>,
    /// What the target cannot hold.
    pub left_out: Vec<LeftOut>,
    /// Tensors whose values are damaged, left out because that was asked for.
    pub lost: Vec<LeftOut>,
    /// What inputs must have alike, compared before anything is written.
    pub agreements: Vec<Agreement>,
    /// About how many bytes of tensors are read to write the output and to compare what must agree.
    pub bytes_read: u64,
    /// How many are read once more for their checksums, since they are not read in one go.
    pub bytes_verified: u64,
    /// Whether what the input has beside tensors goes along.
    pub carries_extras: bool,
    /// Where it does not, what that is, a line each.
    pub not_carried: Vec<String>,
    /// Containers that a step emptied and that go with their tensors, as paths of the edited checkpoint.
    pub emptied: Vec<KeyPath>,
    /// What a user should know: what steps chose or dropped by themselves, and what is hardly meant so; a line each.
    pub notes: Vec<String>,
    /// Each step, or each pattern of one that selects, with the number of tensors it concerned.
    pub matches: Vec<(String, usize)>,
    /// The `--key` of a state dict that stands beside other tensors, with its tensor count, where no key was given.
    pub suggested_key: Option<(String, usize)>,
}

impl Resolved {
    /// Adds up what is read; tied tensors once.
    fn count_reads(&mut self, inputs: Inputs<'_>) {
        let bytes = |origin: Origin| inputs.entry(origin).bytes;
        let (mut seen, mut verified) = (HashSet::new(), HashSet::new());
        let values = self.outputs.iter().map(|output| &output.value);
        for value in values.chain(self.agreements.iter().flat_map(|agreement| &agreement.values)) {
            let place = value.entry().and_then(|origin| Place::of(origin.input, inputs.entry(origin)));
            if seen.insert(place.map_or_else(|| Identity::Made(value.address()), Identity::Stored)) {
                self.bytes_read = self.bytes_read.saturating_add(value.reads(&bytes));
            }
            if value.entry().is_some() {
                continue;
            }
            for origin in value.entries().into_iter().filter(|origin| verified.insert(*origin)) {
                let stored = |extent: &Extent| if extent.checksum.is_some() { extent.bytes.len() } else { 0 };
                let extents = inputs.entry(origin).extents().unwrap_or_default();
                self.bytes_verified = extents.iter().map(stored).fold(self.bytes_verified, u64::saturating_add);
            }
        }
    }

    /// How many tensors a measuring pass reads, and their bytes: all that are to be cast.
    pub fn measured(&self) -> (usize, u64) {
        let casts = self.outputs.iter().filter(|output| matches!(output.change, Change::Cast(_)));
        let source = |output: &OutputSpec| output.from.bytes(output.shape.elements(), Packing::OnePerByte);
        casts.fold((0, 0), |(tensors, bytes), output| (tensors + 1, bytes + source(output).unwrap_or(0)))
    }

    /// Whether all casts are ones that a program has, so that its bits can be given.
    ///
    /// # Errors
    /// `Request` that names tensors it has no cast for.
    pub fn castable_like(&self, like: Like) -> Result<()> {
        const SHOWN: usize = 5;
        let missing = |output: &&OutputSpec| matches!(output.change, Change::Cast(pair) if !like.has(pair));
        let missing: Vec<&OutputSpec> = self.outputs.iter().filter(missing).collect();
        let Some(first) = missing.first() else { return Ok(()) };
        let names: Vec<_> = missing.iter().take(SHOWN).map(|output| format!("{:?}", output.name)).collect();
        let more = if missing.len() > SHOWN { " and more" } else { "" };
        let (from, to) = (first.from, first.to);
        let message = format!("{} has no cast from {from} to {to}: {}{more}", like.name(), names.join(", "));
        Err(Error::request(message).help("--like exact has every cast"))
    }

    /// Bytes of tensors to write.
    pub fn bytes(&self) -> u64 {
        self.outputs.iter().fold(0, |sum, output| sum.saturating_add(output.bytes))
    }
}
