//! Averages kept in lists, by numbers instead of names.

use super::weights::{Averages, is_average};
use crate::items::Items;
use std::collections::{BTreeMap, HashMap, HashSet};
use weightlift_core::{Error, Result};

/// Lists of averages, one for each parameter in order, and the list of the parameters where that is one too.
const LISTS: &[(&str, Option<&str>)] =
    &[("shadow_params", None), ("_model_variables_moving_average", Some("_trainable_variables"))];

/// What stands beside such a list, the weights of before while the averages are in use.
const SPARE: &str = "collected_params";

/// What is behind the names of variables of TensorFlow 2.
const VARIABLE: &str = "/.ATTRIBUTES/VARIABLE_VALUE";

/// Whether a subtree of this key is such a list, or stands beside one.
pub(super) fn is_list(key: &str) -> bool {
    key == SPARE || parameters_of(key).is_some()
}

/// The list of the parameters that a list of averages is of; `None` for another word.
fn parameters_of(list: &str) -> Option<Option<&'static str>> {
    LISTS.iter().find(|(word, _)| *word == list).map(|(_, parameters)| *parameters)
}

impl Items<'_> {
    /// Averages in lists: each is that of the parameter with its place. Answers all tensors that belong to such lists.
    ///
    /// # Errors
    /// `Request` where it is not sure whose averages they are.
    pub(super) fn numbered(&self, places: &HashMap<&str, usize>, found: &mut Averages) -> Result<HashSet<usize>> {
        // By what stands before the word: the list's word, and its tensors by their number.
        let mut lists: BTreeMap<(&str, &str), BTreeMap<u64, usize>> = BTreeMap::new();
        for (at, name) in self.names().enumerate() {
            let plain = name.strip_suffix(VARIABLE).unwrap_or(name);
            let Some((list, number)) = plain.rsplit_once(['.', '/']) else { continue };
            let cut = list.rfind(['.', '/']).map_or(0, |cut| cut + 1);
            if parameters_of(&list[cut..]).is_none() {
                continue;
            }
            if let Ok(number) = number.parse() {
                lists.entry((&list[..cut], &list[cut..])).or_default().insert(number, at);
            }
        }
        let mut known = HashSet::new();
        for ((before, word), averages) in lists {
            let weights = match parameters_of(word).flatten() {
                Some(of) => self.variables(places, before, of, &averages),
                None => self.parameters_of_list(before),
            };
            let shape = |at: usize| self.edited()[at].value.shape();
            let unlike = averages.values().zip(&weights).find(|(average, weight)| shape(**average) != shape(**weight));
            let why = match (weights.len(), unlike) {
                (0, _) => "there are no parameters that it could be of".to_owned(),
                (count, _) if count != averages.len() => {
                    format!("it has {} averages, and there are {count} parameters", averages.len())
                }
                (_, Some((average, weight))) => {
                    let names =
                        [*average, *weight].map(|at| format!("{:?} has shape {}", self.edited()[at].name, shape(at)));
                    names.join(", and ")
                }
                (_, None) => {
                    found.pairs.extend(averages.values().copied().zip(weights.into_iter().map(Some)));
                    known.extend(averages.into_values());
                    self.beside_list(before, &mut known, found);
                    continue;
                }
            };
            let error = Error::request(format!(
                "--weights: whose averages are in the list \"{before}{word}\" is not known: {why}"
            ));
            return Err(error.help(format!("--exclude '{before}{word}**' before it leaves them out")));
        }
        Ok(known)
    }

    /// The variables of a list beside one of averages, by the numbers of these.
    fn variables(
        &self,
        places: &HashMap<&str, usize>,
        before: &str,
        list: &str,
        averages: &BTreeMap<u64, usize>,
    ) -> Vec<usize> {
        let variable = |number: &u64| {
            let name = format!("{before}{list}/{number}");
            places.get(name.as_str()).or_else(|| places.get(format!("{name}{VARIABLE}").as_str())).copied()
        };
        averages.keys().filter_map(variable).collect()
    }

    /// The parameters of the state dict beside a list of averages, or beside what holds the list.
    fn parameters_of_list(&self, before: &str) -> Vec<usize> {
        const DICTS: &[&str] =
            &["model", "state_dict", "model_state_dict", "module", "net", "network", "params", "weights"];
        let holder = before.trim_end_matches(['.', '/']);
        let above = &before[..holder.rfind(['.', '/']).map_or(0, |cut| cut + 1)];
        for level in [before, above] {
            for dict in DICTS {
                let parameters = self.parameters_among(0, |item| {
                    let inner = item.name.strip_prefix(level).and_then(|rest| rest.strip_prefix(dict));
                    inner.is_some_and(|inner| inner.starts_with(['.', '/']))
                });
                if !parameters.is_empty() {
                    return parameters;
                }
            }
        }
        Vec::new()
    }

    /// What stands beside a list of averages and goes with it: spare weights; under a key of averages also numbers.
    fn beside_list(&self, before: &str, known: &mut HashSet<usize>, found: &mut Averages) {
        let of_averages = before.trim_end_matches(['.', '/']).rsplit(['.', '/']).next().is_some_and(is_average);
        for (at, item) in self.edited().iter().enumerate() {
            let Some(inner) = item.name.strip_prefix(before) else { continue };
            let spare = inner.strip_prefix(SPARE).is_some_and(|rest| rest.starts_with(['.', '/']));
            if (spare || of_averages && item.value.shape().elements() <= 1) && known.insert(at) {
                found.beside.push(at);
            }
        }
    }
}
