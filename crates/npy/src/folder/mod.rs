//! Folders of arrays: a `.npy` file for each tensor, and `arrays.json`, which has their names and order.

mod names;
mod read;
mod write;

pub(crate) use read::{is_folder, open};
pub(crate) use write::{create, restore};

use serde::{Deserialize, Serialize};

/// The list of the arrays.
const LIST: &str = "arrays.json";
const EXTENSION: &str = "npy";
/// Held by the run that writes a folder.
const LOCK: &str = ".weightlift-lock";

/// What [`LIST`] says.
#[derive(Debug, Default, Serialize, Deserialize)]
struct List {
    arrays: Vec<Listed>,
}

/// One array of a folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Listed {
    /// The tensor.
    name: String,
    /// Its file.
    file: String,
    /// What its elements are, where the file cannot say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    dtype: Option<String>,
    /// What they were before they were widened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    was: Option<String>,
}
