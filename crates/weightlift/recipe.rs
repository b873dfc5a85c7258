//! Recipes: the steps of a plan as a TOML file.
//!
//! ```toml
//! [[step]]
//! exclude = ["**/adam_{m,v}", "global_step"]
//! [[step]]
//! rename = "^bert/="
//! [[step]]
//! set = { target = "a=b[0]", value = 1.5 }
//! [[step]]
//! drop-optimizer = true
//! ```
//!
//! A step is a table of one key, a word of [`Words`], and the text that the flag of that name would take; a list of
//! texts means several such steps. Numbers and `true` stand for their text. `set` and `add` also take a table, in
//! which nothing has to be cut at a sign.

use crate::words::Words;
use std::ops::Range;
use toml::Spanned;
use toml::Value as Toml;
use weightlift_convert::{Add, Set, Step};
use weightlift_core::{Error, Result};

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Recipe {
    #[serde(default)]
    step: Vec<Spanned<std::collections::BTreeMap<Spanned<String>, Spanned<Toml>>>>,
}

/// The steps of a recipe, in order. `path` names it in errors, `text` is its content.
///
/// # Errors
/// `Request` with line and column of what cannot be understood, and what was expected there; `Io` for tables that it
/// names.
pub fn parse_recipe(path: &str, text: &str, words: &Words) -> Result<Vec<Step>> {
    let recipe: Recipe = toml::from_str(text).map_err(|error| toml_error(path, text, &error))?;
    let mut steps = Vec::new();
    for table in &recipe.step {
        let at = |span: Range<usize>| {
            move |error: Error| Error::request(format!("{}{error}", place(text, &span))).in_file(path)
        };
        let mut keys = table.get_ref().iter();
        let (Some((word, value)), None) = (keys.next(), keys.next()) else {
            let message = format!("a step has one key, and this has {}", table.get_ref().len());
            return Err(at(table.span())(Error::request(message)));
        };
        let made = made(word.get_ref(), value.get_ref(), words).map_err(at(value.span()))?;
        steps.extend(made);
    }
    Ok(steps)
}

/// What is wrong with a TOML file, in one line with its place.
pub(crate) fn toml_error(path: &str, text: &str, error: &toml::de::Error) -> Error {
    let place = error.span().map(|span| place(text, &span)).unwrap_or_default();
    Error::request(format!("{place}{}", error.message().replace('\n', " "))).in_file(path)
}

/// Line and column, counted from 1.
fn place(text: &str, span: &Range<usize>) -> String {
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    format!("line {line}, column {column}: ")
}

fn made(word: &str, value: &Toml, words: &Words) -> Result<Vec<Step>> {
    match value {
        Toml::Array(list) if word == "average" => {
            let weights: Vec<String> = list.iter().map(|weight| text_of(word, weight)).collect::<Result<_>>()?;
            Ok(vec![words.step(word, &weights.join(","))?])
        }
        Toml::Array(list) => {
            list.iter().map(|item| made(word, item, words)).collect::<Result<Vec<_>>>().map(|steps| steps.concat())
        }
        Toml::Table(table) => {
            let only = |known: &[&str]| match table.keys().find(|key| !known.contains(&key.as_str())) {
                Some(key) => {
                    Err(Error::request(format!("{word} = {{…}} has no {key:?}; it takes {}", known.join(", "))))
                }
                None => Ok(()),
            };
            let field = |name: &str| match table.get(name) {
                Some(value) => text_of(word, value),
                None => Err(Error::request(format!("{word} = {{…}} needs {name:?}"))),
            };
            match word {
                "set" => only(&["target", "value"])
                    .and_then(|()| Ok(vec![Step::Set(Set::new(&field("target")?, &field("value")?))])),
                "add" => only(&["name", "value"])
                    .and_then(|()| Ok(vec![Step::Add(Add::new(&field("name")?, &field("value")?))])),
                "copy-rows" | "resize-rows" => {
                    only(&["rule", "with-related"])?;
                    let with_related = table.get("with-related").and_then(Toml::as_bool).unwrap_or(words.with_related);
                    Ok(vec![Words { with_related, ..words.clone() }.step(word, &field("rule")?)?])
                }
                _ => Err(Error::request(format!("{word} takes a text, not a table"))),
            }
        }
        Toml::Boolean(true) if word == "drop-optimizer" => Ok(vec![words.step(word, "")?]),
        Toml::Boolean(true) if word == "average" => Ok(vec![words.step(word, "")?]),
        Toml::Boolean(false) if word == "drop-optimizer" => Ok(Vec::new()),
        _ if word == "drop-optimizer" => Err(Error::request("drop-optimizer is true or false")),
        value => Ok(vec![words.step(word, &text_of(word, value)?)?]),
    }
}

fn text_of(word: &str, value: &Toml) -> Result<String> {
    match value {
        Toml::String(text) => Ok(text.clone()),
        Toml::Integer(number) => Ok(number.to_string()),
        Toml::Float(number) => Ok(number.to_string()),
        Toml::Boolean(truth) => Ok(truth.to_string()),
        other => Err(Error::request(format!("{word} takes a text, not {}", other.type_str()))),
    }
}

/// A recipe of words and their texts, the rules of rows with or without what belongs to their tensors, as [`parse_recipe`] reads it.
pub fn write_recipe<'a>(steps: impl IntoIterator<Item = (&'a str, &'a str)>, with_related: bool) -> String {
    let mut recipe = String::new();
    for (word, text) in steps {
        let text_value = || Toml::String(text.to_owned());
        let value = match word {
            "copy-rows" | "resize-rows" if with_related => {
                let rule = [("rule".to_owned(), text_value()), ("with-related".to_owned(), Toml::Boolean(true))];
                Toml::Table(rule.into_iter().collect())
            }
            "drop-optimizer" => Toml::Boolean(true),
            "average" if text.is_empty() => Toml::Boolean(true),
            _ => text_value(),
        };
        recipe.push_str(&format!("[[step]]\n{word} = {value}\n\n"));
    }
    recipe
}
