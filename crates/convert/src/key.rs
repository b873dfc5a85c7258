//! The state dict inside a training checkpoint.

use crate::step::weights::is_average;
use std::collections::BTreeMap;
use weightlift_core::{Error, Key, KeyPath, Result};

/// Which subtree is taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyChoice {
    /// The subtree of this joined path.
    Path(String),
    /// The state dict, where there is only one.
    Auto,
}

/// Keys under which trainers keep the weights.
const STATE_DICTS: &[&str] =
    &["state_dict", "model_state_dict", "model", "module", "params", "net", "network", "weights"];

impl KeyChoice {
    /// The path of the subtree among tensors at these paths; empty for the root.
    ///
    /// # Errors
    /// `Request` where there is no such subtree, or several; the candidates are listed with their tensor counts.
    pub fn find(&self, paths: &[&KeyPath]) -> Result<KeyPath> {
        match self {
            KeyChoice::Path(joined) => by_name(joined, paths),
            KeyChoice::Auto => automatic(paths),
        }
    }
}

fn by_name(joined: &str, paths: &[&KeyPath]) -> Result<KeyPath> {
    let mut found: Vec<KeyPath> = Vec::new();
    for container in containers(paths).into_keys() {
        let container = KeyPath(container.to_vec());
        if container.joined() == joined {
            found.push(container);
        }
    }
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Error::request(format!("--key {joined:?}: there is no such subtree of tensors"))
            .help(format!("there are {}", list(&candidates(paths))))),
        several => Err(Error::request(format!("--key {joined:?}: {several} subtrees bear that joined path"))),
    }
}

fn automatic(paths: &[&KeyPath]) -> Result<KeyPath> {
    let candidates = candidates(paths);
    let named: Vec<_> = candidates.iter().filter(|(path, _)| is_state_dict(path)).cloned().collect();
    let choice = if named.is_empty() { &candidates } else { &named };
    match choice.as_slice() {
        [] if paths.is_empty() => Err(Error::request("--key auto: there are no tensors")),
        [] => Ok(KeyPath::default()),
        [(only, _)] => Ok(KeyPath(only.clone())),
        several => Err(Error::request(format!("--key auto: {} subtrees could be the state dict", several.len()))
            .help(format!("choose one of {}{}", list(several), averages(several)))),
    }
}

/// The state dict that `--key auto` would take, where it stands beside other tensors.
pub(crate) fn suggestion(paths: &[&KeyPath]) -> Option<(String, usize)> {
    let candidates = candidates(paths);
    let mut named = candidates.iter().filter(|(path, _)| is_state_dict(path));
    match (named.next(), named.next()) {
        (Some((path, count)), None) if *count < paths.len() => Some((KeyPath(path.clone()).joined(), *count)),
        _ => None,
    }
}

/// The way to choose by what they are, where some of them hold averages.
fn averages(several: &[(Vec<Key>, usize)]) -> &'static str {
    let any = several.iter().any(|(path, _)| matches!(path.last(), Some(Key::Text(text)) if is_average(text)));
    if any { "; --weights raw or ema before it chooses" } else { "" }
}

fn is_state_dict(path: &[Key]) -> bool {
    matches!(path.last(), Some(Key::Text(text)) if STATE_DICTS.contains(&text.as_str()) || is_average(text))
}

/// All containers with the number of tensors below them.
fn containers<'a>(paths: &[&'a KeyPath]) -> BTreeMap<&'a [Key], usize> {
    let mut counts = BTreeMap::new();
    for path in paths {
        for depth in 1..path.0.len() {
            *counts.entry(&path.0[..depth]).or_default() += 1;
        }
    }
    counts
}

/// The outermost containers: of those with a state dict's name, and where there are none, of all.
fn candidates(paths: &[&KeyPath]) -> Vec<(Vec<Key>, usize)> {
    let all = containers(paths);
    let named: Vec<_> = all.iter().filter(|(path, _)| is_state_dict(path)).collect();
    let mut outermost: Vec<(Vec<Key>, usize)> = Vec::new();
    let chosen: Vec<_> =
        if named.is_empty() { all.iter().filter(|(path, _)| path.len() == 1).collect() } else { named };
    for (path, count) in chosen {
        if !outermost.iter().any(|(outer, _)| path.starts_with(outer)) {
            outermost.push((path.to_vec(), *count));
        }
    }
    outermost
}

fn list(candidates: &[(Vec<Key>, usize)]) -> String {
    let one = |(path, count): &(Vec<Key>, usize)| format!("{:?} ({count} tensors)", KeyPath(path.clone()).joined());
    match candidates.is_empty() {
        true => "no subtrees".to_owned(),
        false => candidates.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(texts: &[&str]) -> Vec<KeyPath> {
        let key = |word: &str| word.parse().map_or_else(|_| Key::Text(word.into()), Key::Int);
        texts.iter().map(|text| KeyPath(text.split('/').map(key).collect())).collect()
    }

    fn auto(texts: &[&str]) -> Result<String> {
        let paths = paths(texts);
        KeyChoice::Auto.find(&paths.iter().collect::<Vec<_>>()).map(|path| path.joined())
    }

    #[test]
    fn the_state_dict_is_found_beside_an_optimizer() {
        assert_eq!(auto(&["model/w", "model/b", "optimizer/state/0/exp_avg"]).unwrap(), "model");
        assert_eq!(auto(&["dims/x", "model_state_dict/w"]).unwrap(), "model_state_dict");
        assert_eq!(auto(&["weird/w", "weird/b"]).unwrap(), "weird");
        assert_eq!(auto(&["w", "b"]).unwrap(), "");
        assert_eq!(auto(&["ckpt/state_dict/model/w", "ckpt/opt/0/m"]).unwrap(), "ckpt.state_dict");
    }

    #[test]
    fn several_candidates_are_listed() {
        let error = auto(&["params/w", "params_ema/w", "params_ema/b"]).unwrap_err().to_string();
        assert!(error.contains("\"params\" (1 tensors), \"params_ema\" (2 tensors)"), "{error}");
        assert!(auto(&["x/w", "y/w"]).is_err());
    }

    #[test]
    fn a_path_is_a_joined_one() {
        let paths = paths(&["a/b/w", "a.b/w", "a/c/w"]);
        let paths: Vec<_> = paths.iter().collect();
        let find = |key: &str| KeyChoice::Path(key.into()).find(&paths);
        assert_eq!(find("a.c").unwrap().0.len(), 2);
        assert!(find("a.b").unwrap_err().to_string().contains("2 subtrees"));
        assert!(find("a.c.w").unwrap_err().to_string().contains("no such subtree"));
    }

    #[test]
    fn a_suggestion_needs_other_tensors() {
        let beside = paths(&["model/w", "opt/m"]);
        assert_eq!(suggestion(&beside.iter().collect::<Vec<_>>()), Some(("model".into(), 1)));
        let alone = paths(&["model/w"]);
        assert_eq!(suggestion(&alone.iter().collect::<Vec<_>>()), None);
    }
}
