//! What optimizers keep beside the weights: `--drop-optimizer`. docs/optimizer.md shows these tables to users.

use crate::items::Items;
use std::collections::HashSet;
use weightlift_core::{Error, Result};

/// Endings of what optimizers keep beside a weight, after `/`, `.` or as they stand.
const SLOTS: &[&str] = &[
    // TensorFlow 1 optimizers
    "/Adam",
    "/Adam_1",
    "/adam_m",
    "/adam_v",
    "/AdamW",
    "/AdamW_1",
    "/Momentum",
    "/RMSProp",
    "/RMSProp_1",
    "/Adagrad",
    "/Adadelta",
    "/Adadelta_1",
    "/Ftrl",
    "/Ftrl_1",
    "/BERTAdam",
    "/BERTAdam_1",
    "/LAMB",
    "/LAMB_1",
    "/lamb_m",
    "/lamb_v",
    "/AdamWeightDecayOptimizer",
    "/AdamWeightDecayOptimizer_1",
    // Adafactor of mesh and tensor2tensor
    "_slot_v",
    "_slot_vr",
    "_slot_vc",
    "_slot_m",
    "/Adafactor",
    "/Adafactor_1",
    "/vr",
    "/vc",
    // averages, which --weights ema takes
    "/ExponentialMovingAverage",
];

/// Names, and parts of names, that belong to an optimizer alone.
const OPTIMIZER: &[&str] = &[
    r"^(beta[12]_power|global_step|learning_rate|loss_scale|good_steps)(_\d+)?$",
    r"(^|/)(beta[12]_power|global_step)(_\d+)?$",
    // TF2 objects: slots, the optimizer's own variables, the counter of saves
    r"/\.OPTIMIZER_SLOT/",
    r"^(optimizer|save_counter)(/|$)",
    r"^_optimizer(/|$)",
    r"/_?optimizer/(_variables/\d+|_iterations|_learning_rate)(/|$)",
    // PyTorch: trainers' keys
    r"^(optimizer|optimizers|optimizer_state_dict|optimizer_states|optim)\.(\d+\.)?(state|param_groups)(\.|$)",
    r"^(lr_scheduler|lr_schedulers|scheduler_state_dict|grad_scaler)\.",
];

/// The weights themselves, where the optimizer of Keras is what the object graph reaches them by.
const WEIGHTS: &str = r"(^|/)_?optimizer/_trainable_variables/\d+(/\.ATTRIBUTES/VARIABLE_VALUE)?$";

/// Keys of containers in which trainers keep optimizers and what goes with them.
const CONTAINERS: &[&str] = &[
    "optimizer",
    "optimizers",
    "optimizer_state_dict",
    "optimizer_states",
    "optim",
    "lr_scheduler",
    "lr_schedulers",
    "scheduler_state_dict",
    "grad_scaler",
];

/// The ending that makes `name` an optimizer's slot of the weight `of`.
pub(super) fn slot_of<'a>(name: &'a str, of: &str) -> Option<&'a str> {
    let stem = of.strip_suffix("/.ATTRIBUTES/VARIABLE_VALUE").unwrap_or(of);
    let rest = name.strip_prefix(stem)?;
    (SLOTS.contains(&rest) || rest.starts_with("/.OPTIMIZER_SLOT/")).then_some(rest)
}

/// At most three names, and how many more there are.
pub(super) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const SHOWN: usize = 3;
    let names: Vec<&str> = names.collect();
    let more = if names.len() > SHOWN { format!(" and {} more", names.len() - SHOWN) } else { String::new() };
    names.iter().take(SHOWN).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ") + &more
}

/// What kind of variable a name of an optimizer's own is: its last word that is no number.
fn kind(name: &str) -> &str {
    let name = name.strip_suffix("/.ATTRIBUTES/VARIABLE_VALUE").unwrap_or(name);
    let is_word = |part: &&str| !part.is_empty() && !part.bytes().all(|byte| byte.is_ascii_digit());
    name.rsplit(['/', '.']).find(is_word).unwrap_or(name)
}

impl Items<'_> {
    /// What each tensor is of an optimizer: slots of tensors that are there, and what belongs to one by its name.
    pub(super) fn of_optimizer(&self) -> Vec<Option<&str>> {
        // The expressions are the program's own.
        let own: Vec<_> = OPTIMIZER.iter().filter_map(|regex| crate::pattern::compile(regex, regex).ok()).collect();
        let names: HashSet<&str> = self.names().collect();
        // A slot is one only beside its weight, so that a weight that is called so by chance stays.
        let slot = |name: &str| {
            let of = |slot: &&&str| name.strip_suffix(**slot).is_some_and(|weight| names.contains(weight));
            SLOTS.iter().find(of).map(|slot| slot.trim_start_matches(['/', '_']))
        };
        let weights = crate::pattern::compile(WEIGHTS, WEIGHTS).ok();
        let is_weight = |name: &str| weights.as_ref().is_some_and(|weights| weights.is_match(name));
        let is_own = |name: &str| own.iter().any(|regex| regex.is_match(name)) && !is_weight(name);
        let kind = |name| slot(name).or_else(|| is_own(name).then(|| kind(name)));
        self.names().map(kind).collect()
    }

    /// Drops what optimizers keep, and tells what that was.
    pub(crate) fn drop_optimizer(&mut self) -> Result<usize> {
        let kinds = self.of_optimizer();
        let gone: Vec<bool> = kinds.iter().map(Option::is_some).collect();
        let mut counts: Vec<(&str, usize)> = Vec::new();
        for kind in kinds.into_iter().flatten() {
            match counts.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, count)) => *count += 1,
                None => counts.push((kind, 1)),
            }
        }
        let count = gone.iter().filter(|&&gone| gone).count();
        if count == 0 && !self.allows_unmatched() {
            let error = Error::request("--drop-optimizer finds no optimizer variable");
            return Err(error.help("--allow-unmatched lets it pass; --exclude names others"));
        }
        let by_kind: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let averages = counts.iter().any(|(kind, _)| *kind == "ExponentialMovingAverage");
        let hint = if averages { "; --weights ema before it takes the averages" } else { "" };
        let tensors = if count == 1 { "tensor" } else { "tensors" };
        let before = self.emptied.len();
        self.empty(&gone, |key| CONTAINERS.contains(&key));
        let whole: Vec<String> = self.emptied[before..].iter().map(|path| format!("{:?}", path.joined())).collect();
        let whole = if whole.is_empty() { String::new() } else { format!("; {} as a whole", whole.join(", ")) };
        if count > 0 {
            self.notes.push(format!("--drop-optimizer dropped {count} {tensors}: {}{whole}{hint}", by_kind.join(", ")));
        }
        self.keep(|at| !gone[at]);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_for_users_has_every_name() {
        let table = include_str!("../../../../docs/optimizer.md");
        let missing: Vec<_> =
            SLOTS.iter().chain(CONTAINERS).filter(|name| !table.contains(&format!("`{name}`"))).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
}
