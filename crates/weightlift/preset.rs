//! The presets that come with the program, and those that users write: tables of rules in TOML.

use crate::recipe::toml_error;
use serde::Deserialize;
use weightlift_convert::{Preset, PresetAdd, PresetRule, Template};
use weightlift_core::{Error, Result};

/// Name and text of every preset that comes with the program.
pub const PRESETS: &[(&str, &str)] = &[
    ("albert", include_str!("presets/albert.toml")),
    ("bert", include_str!("presets/bert.toml")),
    ("electra", include_str!("presets/electra.toml")),
    ("gpt2", include_str!("presets/gpt2.toml")),
    ("keras", include_str!("presets/keras.toml")),
    ("t5", include_str!("presets/t5.toml")),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    about: String,
    #[serde(default = "yes")]
    reversible: bool,
    separators: Option<(char, char)>,
    rule: Vec<Rule>,
    #[serde(default)]
    add: Vec<Add>,
}

fn yes() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    from: String,
    to: String,
    axes: Option<Vec<usize>>,
    squeeze: Option<usize>,
    rank: Option<usize>,
    beside: Option<String>,
    #[serde(default)]
    merge: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Add {
    name: String,
    tied_to: Option<String>,
    positions_of: Option<String>,
    beside: Option<String>,
}

/// What a preset is for, in a sentence.
///
/// # Errors
/// `Request` for a text that is no preset.
pub fn about(name: &str, text: &str) -> Result<String> {
    Ok(table(name, text)?.about)
}

fn table(name: &str, text: &str) -> Result<Table> {
    toml::from_str(text).map_err(|error| toml_error(name, text, &error))
}

/// A preset from its text; `reverse` for the way back.
///
/// # Errors
/// `Request` for a text that is no preset, or one that has no way back.
pub fn parse_preset(name: &str, text: &str, reverse: bool) -> Result<Preset> {
    let table = table(name, text)?;
    // Two axes that became one do not say how long each was.
    if reverse && (!table.reversible || table.rule.iter().any(|rule| rule.merge)) {
        return Err(Error::request(format!("preset {name} has no way back")));
    }
    let rules = table.rule.into_iter().map(|rule| {
        let Rule { axes, squeeze, rank, merge, .. } = rule;
        let (from, to) = (Template::parse(&rule.from)?, Template::parse(&rule.to)?);
        let beside = rule.beside.as_deref().map(Template::parse).transpose()?;
        Ok(PresetRule { from, to, axes, squeeze, rank, beside, merge })
    });
    let adds = table.add.into_iter().map(|add| match (add.tied_to, add.positions_of) {
        (Some(of), None) => Ok(PresetAdd { name: add.name, of, positions: false, beside: add.beside }),
        (None, Some(of)) => Ok(PresetAdd { name: add.name, of, positions: true, beside: add.beside }),
        _ => Err(Error::request(format!("{:?} is either tied-to or positions-of a tensor", add.name)).in_file(name)),
    });
    let text = if reverse { format!("{name}:reverse") } else { name.to_owned() };
    let separators = table.separators.map(|(there, back)| if reverse { (back, there) } else { (there, back) });
    Ok(Preset { text, rules: rules.collect::<Result<_>>()?, adds: adds.collect::<Result<_>>()?, separators, reverse })
}
