//! `NAME[SLICE]`: which tensor, and which part of it.

use weightlift_convert::{Selection, named_part};
use weightlift_core::{Catalog, EntryId, Error, KeyPath, Result};

/// A tensor and the part of it that an argument names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) id: EntryId,
    /// What stood between the brackets.
    pub(super) slice: Option<String>,
    pub(super) selection: Selection,
}

impl Target {
    /// Finds the tensor: that of this whole name, brackets included; else the last brackets are the slice.
    ///
    /// # Errors
    /// `Request` for an unknown name, with the nearest; for a name of several tensors, listing them; for a slice that
    /// does not fit.
    pub(super) fn find(argument: &str, catalog: &Catalog) -> Result<Target> {
        let Some((id, slice)) = named_part(argument, |name| find_name(name, catalog))? else {
            let name = argument.strip_suffix(']').and_then(|rest| rest.rsplit_once('[')).map_or(argument, |cut| cut.0);
            return Err(unknown(name, catalog));
        };
        let entry = catalog.entry(id);
        let selection = slice.map_or_else(|| Ok(Selection::whole(&entry.shape)), |s| Selection::parse(s, &entry.shape));
        let selection = selection.map_err(|error| error.in_tensor(&entry.name))?;
        Ok(Target { id, slice: slice.map(str::to_owned), selection })
    }
}

fn find_name(name: &str, catalog: &Catalog) -> Result<Option<EntryId>> {
    let found: Vec<EntryId> = catalog.named(name).map(|(id, _)| id).collect();
    match found.as_slice() {
        [] => Ok(None),
        [id] => Ok(Some(*id)),
        several => Err(ambiguous(name, several, catalog)),
    }
}

fn ambiguous(name: &str, several: &[EntryId], catalog: &Catalog) -> Error {
    const LISTED: usize = 8;
    let listed = several.iter().take(LISTED).map(|&id| {
        let entry = catalog.entry(id);
        format!("number {} at {}, {} {}", id.0, keys(&entry.path), entry.dtype, entry.shape)
    });
    let mut listed: Vec<String> = listed.collect();
    if several.len() > LISTED {
        listed.push(format!("and {} more", several.len() - LISTED));
    }
    let message = format!("{} tensors bear this name: {}", several.len(), listed.join("; "));
    Error::request(message).in_tensor(name)
}

/// A path key by key, so that a dot in a key is told from a step.
fn keys(path: &KeyPath) -> String {
    use weightlift_core::Key;
    let key = |key: &Key| match key {
        Key::Text(text) => format!("[{text:?}]"),
        other => format!("[{other}]"),
    };
    path.0.iter().map(key).collect()
}

fn unknown(name: &str, catalog: &Catalog) -> Error {
    let error = Error::request("there is no such tensor").in_tensor(name);
    let names = catalog.entries.iter().map(|entry| entry.name.as_str());
    match weightlift_convert::nearest(name, names).as_slice() {
        [] => error.help("ls lists the names"),
        near => error.help(format!("did you mean {}", near.join(" or "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightlift_core::{DType, Entry, Key, Shape};

    fn shape(dims: &[u64]) -> Shape {
        Shape::new(dims).unwrap()
    }

    fn catalog(names: &[&str]) -> Catalog {
        let mut catalog = Catalog::new("test", "test");
        for name in names {
            let path = KeyPath(name.split('.').map(|key| Key::Text(key.to_owned())).collect());
            catalog.entries.push(Entry::absent(path, DType::F32, shape(&[4, 3]), "a test"));
        }
        catalog
    }

    #[test]
    fn a_whole_name_wins_over_a_slice() {
        let catalog = catalog(&["a", "a[0]", "b[1]", "c", "d.e"]);
        let find = |argument| Target::find(argument, &catalog).map(|target| (target.id.0, target.slice));
        assert_eq!(find("a").unwrap(), (0, None));
        assert_eq!(find("a[0]").unwrap(), (1, None));
        assert_eq!(find("a[1]").unwrap(), (0, Some("1".to_owned())));
        assert_eq!(find("a[0][1:, 2]").unwrap(), (1, Some("1:, 2".to_owned())));
        assert_eq!(find("b[1]").unwrap(), (2, None));
        assert_eq!(find("d.e[...]").unwrap(), (4, Some("...".to_owned())));
        assert!(find("a[9]").unwrap_err().to_string().starts_with("a: index 9") || find("a[9]").is_err());
        assert!(find("a[9]").unwrap_err().to_string().contains("axis 0 of size 4"));
        assert!(find("d.f[0]").unwrap_err().to_string().contains("did you mean \"d.e\""));
        assert!(find("zzzzzzzz").unwrap_err().to_string().contains("no such tensor"));
        assert!(find("a[0").is_err() && find("]").is_err() && find("").is_err());
    }

    #[test]
    fn names_of_several_tensors_are_listed() {
        let mut catalog = catalog(&["d.e"]);
        catalog.entries.push(Entry::absent(KeyPath::flat("d.e"), DType::F16, shape(&[2]), "a test"));
        let message = Target::find("d.e[0]", &catalog).unwrap_err().to_string();
        assert!(message.contains("number 0 at [\"d\"][\"e\"], f32 [4, 3]"), "{message}");
        assert!(message.contains("number 1 at [\"d.e\"], f16 [2]"), "{message}");
    }
}
