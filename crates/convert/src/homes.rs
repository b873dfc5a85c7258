//! Containers that tensors join or leave under their final names.

use crate::items::Item;
use std::collections::HashMap;
use weightlift_core::{Catalog, Key, KeyPath};

/// Gives tensors whose path is a lone name the container that the name begins with, and answers a line about tensors
/// that left theirs.
pub(crate) fn settle(items: &mut [Item], catalog: &Catalog, key_given: bool) -> Option<String> {
    let of_entries = catalog.entries.iter().map(|entry| entry.path.clone());
    // Where a subtree was taken, what is left of it says which containers there are.
    let of_items = items.iter().map(|item| item.path.clone());
    let containers = containers(if key_given { of_items.collect() } else { of_entries.collect::<Vec<_>>() });
    let moved = |item: &&mut Item| {
        let entry = item.origin.filter(|origin| origin.input == 0).map(|origin| catalog.entry(origin.entry));
        item.path.0.len() == 1 && entry.is_none_or(|entry| entry.path != item.path)
    };
    for item in items.iter_mut().filter(moved) {
        let cuts = item.name.rmatch_indices('.').map(|(at, _)| item.name.split_at(at + 1));
        let inner = cuts.filter(|(_, rest)| !rest.is_empty());
        let home = inner.into_iter().find_map(|(container, rest)| Some((containers.get(container)?, rest)));
        if let Some((container, rest)) = home {
            let last = Key::Text(rest.to_owned());
            item.path = KeyPath(container.iter().cloned().chain([last]).collect());
        }
    }
    if key_given {
        return None;
    }
    let gone = items.iter().filter_map(|item| Some((item, left(item, catalog)?)));
    let gone: Vec<_> = gone.collect();
    let (item, container) = gone.first()?;
    let entry = item.origin.map(|origin| catalog.entry(origin.entry).name.as_str()).unwrap_or_default();
    let more = if gone.len() > 1 { format!("; {} more leave theirs", gone.len() - 1) } else { String::new() };
    Some(format!("{entry:?} leaves its container {container:?}: it becomes {:?}{more}", item.name))
}

/// The keys to every container of named tensors, by its joined path with a dot.
fn containers(paths: Vec<KeyPath>) -> HashMap<String, Vec<Key>> {
    let mut containers = HashMap::new();
    for KeyPath(mut keys) in paths {
        while let Some(last) = keys.pop() {
            if keys.is_empty() {
                break;
            }
            // Nothing joins a list.
            if !matches!(last, Key::Index(_)) {
                containers.entry(KeyPath(keys.clone()).joined() + ".").or_insert_with(|| keys.clone());
            }
        }
    }
    containers
}

/// The container of the tensor whose place an item takes, where it is not in it any more.
fn left(item: &Item, catalog: &Catalog) -> Option<String> {
    let origin = item.origin.filter(|origin| origin.input == 0)?;
    let (_, before) = catalog.entry(origin.entry).path.0.split_last().filter(|(_, keys)| !keys.is_empty())?;
    let stays = item.path.0.split_last().is_some_and(|(_, after)| after == before);
    (!stays).then(|| KeyPath(before.to_vec()).joined())
}
