//! What to do, as plain data, checked in full before a byte moves.

use crate::step::{CastRule, Step};
use crate::target::{self, Target};
use crate::{KeyChoice, Pattern, Rename, key};
use std::sync::Arc;
use weightlift_core::{Catalog, DType, EntryId, Error, Key, KeyPath, Packing, Result, Shape};
use weightlift_kernels::cast::CastPair;

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
    steps: Vec<Step>,
    allow_unmatched: bool,
}

impl Plan {
    /// A plan that changes nothing.
    pub fn new() -> Plan {
        Plan::default()
    }

    /// Adds a step. Includes that follow one another are one step, likewise excludes and stripped prefixes.
    #[must_use]
    pub fn step(mut self, step: Step) -> Plan {
        match (self.steps.last_mut(), step) {
            (Some(Step::Include(last)), Step::Include(more)) => last.extend(more),
            (Some(Step::Exclude(last)), Step::Exclude(more)) => last.extend(more),
            (Some(Step::StripPrefix(last)), Step::StripPrefix(more)) => last.extend(more),
            (_, step) => self.steps.push(step),
        }
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

    /// Lets patterns and renames match nothing.
    #[must_use]
    pub fn allow_unmatched(self, allow: bool) -> Plan {
        Plan { allow_unmatched: allow, ..self }
    }

    /// The steps in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Carries the steps out on names and dtypes and checks the result against what the target can hold.
    ///
    /// # Errors
    /// `Request` for a rule that matches nothing, names that meet, casts that do not exist, and tensors or names the
    /// target cannot hold, all of them listed.
    pub fn resolve(&self, catalog: &Catalog, target: &Target) -> Result<Resolved> {
        let mut items = Items::of(catalog);
        let mut matches = Vec::new();
        for step in &self.steps {
            let count = items.apply(step, catalog, self.allow_unmatched)?;
            matches.push((step.to_string(), count));
        }
        if items.0.is_empty() && !catalog.entries.is_empty() {
            return Err(Error::request("the steps leave no tensor to write"));
        }
        let key_given = self.steps.iter().any(|step| matches!(step, Step::Key(_)));
        let mut resolved = target::fit(items.0, catalog, target)?;
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
        resolved.carries_extras = catalog.format == target.id && !target.weights_only && !key_given;
        if !resolved.carries_extras {
            resolved.not_carried.clone_from(&catalog.beside);
        }
        resolved.matches = matches;
        if !key_given {
            let paths: Vec<_> = catalog.entries.iter().map(|entry| &entry.path).collect();
            resolved.suggested_key = key::suggestion(&paths);
        }
        Ok(resolved)
    }
}

/// A tensor on its way through the steps.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) entry: EntryId,
    pub(crate) path: KeyPath,
    pub(crate) name: String,
    pub(crate) mark: Option<DType>,
}

impl Item {
    fn rename(&mut self, name: String) {
        if name != self.name {
            self.path = renamed(&self.path, &name);
            self.name = name;
        }
    }
}

/// The path of a renamed tensor: it keeps its container while the new name still starts with the container's joined
/// path; otherwise it becomes a key of the root.
fn renamed(path: &KeyPath, name: &str) -> KeyPath {
    let container = &path.0[..path.0.len().saturating_sub(1)];
    let prefix = KeyPath(container.to_vec()).joined() + ".";
    match name.strip_prefix(&prefix) {
        Some(rest) if !container.is_empty() => {
            KeyPath(container.iter().cloned().chain([Key::Text(rest.to_owned())]).collect())
        }
        _ => KeyPath::flat(name),
    }
}

struct Items(Vec<Item>);

impl Items {
    fn of(catalog: &Catalog) -> Items {
        let item = |(id, entry): (EntryId, &weightlift_core::Entry)| Item {
            entry: id,
            path: entry.path.clone(),
            name: entry.name.clone(),
            mark: None,
        };
        Items(catalog.iter().map(item).collect())
    }

    fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().map(|item| item.name.as_str())
    }

    /// Carries out one step; answers how many tensors it concerned.
    fn apply(&mut self, step: &Step, catalog: &Catalog, allow_unmatched: bool) -> Result<usize> {
        match step {
            Step::Include(patterns) => {
                let chosen = self.select(patterns, "--include", allow_unmatched)?;
                self.keep(|at| chosen[at]);
                Ok(self.0.len())
            }
            Step::Exclude(patterns) => {
                let chosen = self.select(patterns, "--exclude", allow_unmatched)?;
                self.keep(|at| !chosen[at]);
                Ok(chosen.iter().filter(|&&chosen| chosen).count())
            }
            Step::Key(choice) => self.take_key(choice),
            Step::Rename(rename) => self.rename(&step.to_string(), allow_unmatched, |name| rename.apply(name)),
            Step::RenameWith(rename) => self.rename(&step.to_string(), true, |name| Ok(Some(rename(name)))),
            Step::StripPrefix(prefixes) => {
                self.rename(&step.to_string(), allow_unmatched, |name| Ok(strip(name, prefixes)))
            }
            Step::AddPrefix(prefix) => self.rename(&step.to_string(), true, |name| Ok(Some(format!("{prefix}{name}")))),
            Step::Cast(rule) => self.mark(rule, catalog, allow_unmatched),
        }
    }

    fn select(&self, patterns: &[Pattern], doing: &str, allow_unmatched: bool) -> Result<Vec<bool>> {
        let mut chosen = vec![false; self.0.len()];
        for pattern in patterns {
            let found = pattern.select(self.names());
            if found.is_empty() && !allow_unmatched {
                return Err(pattern.unmatched(doing, self.names()));
            }
            found.into_iter().for_each(|at| chosen[at] = true);
        }
        Ok(chosen)
    }

    fn keep(&mut self, keep: impl Fn(usize) -> bool) {
        let mut at = 0;
        self.0.retain(|_| {
            at += 1;
            keep(at - 1)
        });
    }

    fn take_key(&mut self, choice: &KeyChoice) -> Result<usize> {
        let paths: Vec<_> = self.0.iter().map(|item| &item.path).collect();
        let root = choice.find(&paths)?;
        self.0.retain(|item| item.path.0.starts_with(&root.0));
        for item in &mut self.0 {
            item.path = KeyPath(item.path.0[root.0.len()..].to_vec());
            item.name = item.path.joined();
        }
        Ok(self.0.len())
    }

    fn rename(
        &mut self,
        doing: &str,
        allow_unmatched: bool,
        mut new_name: impl FnMut(&str) -> Result<Option<String>>,
    ) -> Result<usize> {
        let mut count = 0;
        for item in &mut self.0 {
            if let Some(name) = new_name(&item.name)? {
                item.rename(name);
                count += 1;
            }
        }
        if count == 0 && !allow_unmatched {
            return Err(Error::request(format!("{doing} matches no tensor")).help("--allow-unmatched lets it pass"));
        }
        Ok(count)
    }

    fn mark(&mut self, rule: &CastRule, catalog: &Catalog, allow_unmatched: bool) -> Result<usize> {
        let chosen = match &rule.pattern {
            Some(pattern) => self.select(std::slice::from_ref(pattern), "--dtype", allow_unmatched)?,
            None => vec![true; self.0.len()],
        };
        let mut count = 0;
        for (item, chosen) in self.0.iter_mut().zip(chosen) {
            if chosen && rule.applies_to(catalog.entry(item.entry).dtype) {
                item.mark = Some(rule.to);
                count += 1;
            }
        }
        let specific = rule.pattern.is_some() || rule.from.is_some();
        if count == 0 && specific && !allow_unmatched {
            let wanted = rule.from.map_or("floating-point".to_owned(), |from| from.to_string());
            let error = Error::request(format!("--dtype {} matches no {wanted} tensor", rule.text()));
            return Err(error.help(format!("write SRC:{} for tensors of another dtype", rule.to)));
        }
        Ok(count)
    }
}

fn strip(name: &str, prefixes: &[String]) -> Option<String> {
    let mut rest = name;
    while let Some(shorter) = prefixes.iter().filter(|p| !p.is_empty()).find_map(|p| rest.strip_prefix(p.as_str())) {
        rest = shorter;
    }
    (rest.len() < name.len()).then(|| rest.to_owned())
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
    /// Where it comes from.
    pub entry: EntryId,
    /// Its path.
    pub path: KeyPath,
    /// Its name.
    pub name: String,
    /// The dtype in the input.
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
    /// Whether what the input has beside tensors goes along.
    pub carries_extras: bool,
    /// Where it does not, what that is, a line each.
    pub not_carried: Vec<String>,
    /// Each step with the number of tensors it concerned.
    pub matches: Vec<(String, usize)>,
    /// The `--key` of a state dict that stands beside other tensors, with its tensor count, where no key was given.
    pub suggested_key: Option<(String, usize)>,
}

impl Resolved {
    /// Bytes of tensors to write.
    pub fn bytes(&self) -> u64 {
        self.outputs.iter().fold(0, |sum, output| sum.saturating_add(output.bytes))
    }
}
