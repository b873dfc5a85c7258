//! Recipes: the steps of a plan as a TOML file.
//!
//! ```toml
//! [[step]]
//! exclude = ["**/adam_{m,v}", "global_step"]
//! [[step]]
//! strip-prefix = "module."
//! allow-unmatched = true
//! [[step]]
//! set = { target = "a=b[0]", value = 1.5 }
//! [[step]]
//! drop-optimizer = true
//! ```
//!
//! A step is a table of one key, a word of [`Words`], and the text that the flag of that name would take; a list of
//! texts means several such steps. Numbers and `true` stand for their text. `set` and `add` also take a table, in
//! which nothing has to be cut at a sign. `allow-unmatched` lets one step match nothing, or before all steps, every one.

use crate::words::{Words, rules_of};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use weightlift_convert::{Add, JoinInputs, LineColumn, Set, Step, Told};
use weightlift_core::{Error, Result};

/// A key of a recipe, and of each of its steps.
const ALLOW: &str = "allow-unmatched";
/// Words that take no text.
const SWITCHES: [&str; 2] = ["apply-scales", "drop-optimizer"];

type Value<'a> = Spanned<DeValue<'a>>;

/// The steps of a recipe, in order. `path` names it in errors, `text` is its content.
///
/// # Errors
/// `Request` with line and column of what cannot be understood, and what was expected there; `Io` for tables that it
/// names.
pub fn parse_recipe(path: &str, text: &str, words: &Words) -> Result<Vec<Told>> {
    let recipe = Recipe { path, text };
    let mut steps = Vec::new();
    let allow_all = recipe.each(|entry| {
        let value = entry.value;
        for (span, step) in recipe.made(entry.word, value, words)? {
            steps.push(Told { step, at: Some(recipe.at(&span)), allow_unmatched: entry.allow });
        }
        Ok(())
    })?;
    steps.iter_mut().for_each(|told| told.allow_unmatched |= allow_all);
    Ok(steps)
}

/// The same steps as the text of a recipe that can follow other steps: what holds for all of them stands in each.
///
/// # Errors
/// As [`parse_recipe`].
pub fn restate_recipe(path: &str, text: &str, words: &Words) -> Result<String> {
    let recipe = Recipe { path, text };
    let mut stated: Vec<(String, bool)> = Vec::new();
    let allow_all = recipe.each(|entry| {
        let raw = text.get(entry.value.span()).unwrap_or_default();
        let rows = matches!(entry.word, "copy-rows" | "resize-rows");
        let value = match entry.value.get_ref() {
            DeValue::String(rule) if rows && words.with_related => with_related(rule),
            _ => raw.to_owned(),
        };
        stated.push((format!("[[step]]\n{} = {value}\n", entry.word), entry.allow));
        Ok(())
    })?;
    let state = |(step, allow): (String, bool)| match allow || allow_all {
        true => format!("{step}{ALLOW} = true\n\n"),
        false => step + "\n",
    };
    Ok(stated.into_iter().map(state).collect())
}

/// What is wrong with a TOML file, in one line with its place.
pub(crate) fn toml_error(path: &str, text: &str, error: &toml::de::Error) -> Error {
    let place = error.span().map(|span| format!("{}: ", line_column(path, text, &span))).unwrap_or_default();
    Error::request(format!("{place}{}", error.message().replace('\n', " "))).in_file(path)
}

/// Line and column, counted from 1.
fn line_column(path: &str, text: &str, span: &Range<usize>) -> LineColumn {
    let before = text.get(..span.start).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |line| line.chars().count()) + 1;
    LineColumn { file: path.to_owned(), line, column }
}

/// A step of a recipe.
struct Entry<'a> {
    word: &'a str,
    value: &'a Value<'a>,
    allow: bool,
}

struct Recipe<'a> {
    path: &'a str,
    text: &'a str,
}

impl Recipe<'_> {
    fn at(&self, span: &Range<usize>) -> LineColumn {
        line_column(self.path, self.text, span)
    }

    fn wrong(&self, span: &Range<usize>, message: impl Into<String>) -> Error {
        Error::request(format!("{}: {}", self.at(span), message.into())).in_file(self.path)
    }

    /// Hands over every step; answers whether all of them may match nothing.
    fn each(&self, mut step: impl FnMut(Entry<'_>) -> Result<()>) -> Result<bool> {
        let document = DeTable::parse(self.text).map_err(|error| toml_error(self.path, self.text, &error))?;
        let mut allow_all = false;
        let mut steps: &[Value<'_>] = &[];
        for (key, value) in document.get_ref().iter() {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("step", DeValue::Array(list)) => steps = list,
                (ALLOW, value_of) => allow_all = self.truth(value_of, &value.span())?,
                ("step", _) => return Err(self.wrong(&value.span(), "steps are written [[step]]")),
                (other, _) => {
                    let message = format!("there is no key {other:?}; a recipe has [[step]] and {ALLOW}");
                    return Err(self.wrong(&key.span(), message));
                }
            }
        }
        for table in steps {
            let DeValue::Table(keys) = table.get_ref() else {
                return Err(self.wrong(&table.span(), "a step is a table of one key: the word of a flag"));
            };
            let mut allow = false;
            let mut words = Vec::new();
            for (key, value) in keys.iter() {
                match key.get_ref().as_ref() {
                    ALLOW => allow = self.truth(value.get_ref(), &value.span())?,
                    word => words.push((word, key, value)),
                }
            }
            let [(word, key, value)] = words.as_slice() else {
                let message = format!("a step has one key, and this has {}", words.len());
                return Err(self.wrong(&table.span(), message));
            };
            Words::check(word).map_err(|error| self.at(&key.span()).blame(error))?;
            step(Entry { word, value, allow })?;
        }
        Ok(allow_all)
    }

    fn truth(&self, value: &DeValue<'_>, span: &Range<usize>) -> Result<bool> {
        match value {
            DeValue::Boolean(truth) => Ok(*truth),
            _ => Err(self.wrong(span, format!("{ALLOW} is true or false"))),
        }
    }

    /// The steps that a word and its value mean, each with its place.
    fn made(&self, word: &str, value: &Value<'_>, words: &Words) -> Result<Vec<(Range<usize>, Step)>> {
        match value.get_ref() {
            DeValue::Array(list) if list.is_empty() => {
                Err(self.wrong(&value.span(), format!("{word} = [] says nothing; leave the step out")))
            }
            DeValue::Array(list) if word != "average" => {
                let steps = list.iter().map(|item| self.made(word, item, words));
                steps.collect::<Result<Vec<_>>>().map(|steps| steps.concat())
            }
            _ => match one(word, value.get_ref(), words) {
                Ok(step) => Ok(step.into_iter().map(|step| (value.span(), step)).collect()),
                Err(error) => Err(self.at(&value.span()).blame(error)),
            },
        }
    }
}

/// The step that a word and its value mean; `None` for one that is switched off.
fn one(word: &str, value: &DeValue<'_>, words: &Words) -> Result<Option<Step>> {
    match value {
        DeValue::Array(list) => {
            let weights: Vec<String> =
                list.iter().map(|weight| text_of(word, weight.get_ref())).collect::<Result<_>>()?;
            words.step(word, &weights.join(",")).map(Some)
        }
        DeValue::Table(table) => table_step(word, table, words).map(Some),
        DeValue::Boolean(true) if word == "average" || SWITCHES.contains(&word) => words.step(word, "").map(Some),
        DeValue::Boolean(false) if SWITCHES.contains(&word) => Ok(None),
        _ if SWITCHES.contains(&word) => Err(Error::request(format!("{word} is true or false"))),
        value => words.step(word, &text_of(word, value)?).map(Some),
    }
}

/// A step of several fields, in which nothing is cut at a sign.
fn table_step(word: &str, table: &DeTable<'_>, words: &Words) -> Result<Step> {
    let only = |known: &[&str]| match table.keys().map(|key| key.get_ref()).find(|key| !known.contains(&key.as_ref())) {
        Some(key) => Err(Error::request(format!("{word} = {{…}} has no {key:?}; it takes {}", known.join(", ")))),
        None => Ok(()),
    };
    let field = |name: &str| match table.get(name) {
        Some(value) => text_of(word, value.get_ref()),
        None => Err(Error::request(format!("{word} = {{…}} needs {name:?}"))),
    };
    match word {
        "set" => {
            only(&["target", "value"])?;
            Ok(Step::Set(Set::new(&field("target")?, &field("value")?)))
        }
        "add" => {
            only(&["name", "value"])?;
            Ok(Step::Add(Add::new(&field("name")?, &field("value")?)))
        }
        "join-inputs" => {
            let text = |(pattern, axis): &(String, String)| format!("{pattern}={axis}");
            let rules = rules_of(table)?;
            let shown = rules.iter().map(text).collect::<Vec<_>>().join(";");
            Ok(Step::JoinInputs(JoinInputs::new(&shown, rules)?))
        }
        "copy-rows" | "resize-rows" => {
            only(&["rule", "with-related"])?;
            let with_related = match table.get("with-related").map(|value| value.get_ref()) {
                None => words.with_related,
                Some(DeValue::Boolean(truth)) => *truth,
                Some(_) => return Err(Error::request("with-related is true or false")),
            };
            Words { with_related, ..words.clone() }.step(word, &field("rule")?)
        }
        _ => Err(Error::request(format!("{word} takes a text, not a table"))),
    }
}

fn text_of(word: &str, value: &DeValue<'_>) -> Result<String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Ok(number.as_str().to_owned()),
        DeValue::Integer(number) => i128::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|error| Error::request(format!("{number} is too large")).caused_by(error)),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Ok(truth.to_string()),
        DeValue::Datetime(_) => Err(Error::request(format!("{word} takes a text, not a date"))),
        DeValue::Array(_) => Err(Error::request(format!("{word} takes a text, not an array"))),
        DeValue::Table(_) => Err(Error::request(format!("{word} takes a text, not a table"))),
    }
}

fn with_related(rule: &str) -> String {
    format!("{{ rule = {}, with-related = true }}", toml::Value::String(rule.to_owned()))
}

/// A recipe of words and their texts, the rules of rows with or without what belongs to their tensors, as
/// [`parse_recipe`] reads it.
pub fn write_recipe<'a>(steps: impl IntoIterator<Item = (&'a str, &'a str)>, related: bool) -> String {
    let mut recipe = String::new();
    for (word, text) in steps {
        let value = match word {
            "copy-rows" | "resize-rows" if related => with_related(text),
            word if SWITCHES.contains(&word) => "true".to_owned(),
            "average" if text.is_empty() => "true".to_owned(),
            _ => toml::Value::String(text.to_owned()).to_string(),
        };
        recipe.push_str(&format!("[[step]]\n{word} = {value}\n\n"));
    }
    recipe
}
