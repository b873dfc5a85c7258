//! The words of steps: what a flag of the command line or a key of a recipe means.

use crate::preset::{PRESETS, parse_preset};
use crate::recipe::toml_error;
use std::path::Path;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};
use weightlift_convert::{
    Add, Average, CastRule, CopyRows, Expected, Join, JoinInputs, KeyChoice, NameMap, Pattern, Rename, Reshape,
    ResizeRows, RowPairs, Set, Slice, Split, Squeeze, Step, Transpose, Weights,
};
use weightlift_core::{Error, Files, Result};
use weightlift_io::FileSource;

/// The most bytes of a table of names or rows.
const LARGEST_TABLE: u64 = 1 << 30;

/// What steps need beside their words.
#[derive(Debug, Clone)]
pub struct Words {
    /// Where the files lie that steps name.
    pub files: Arc<dyn Files>,
    /// Whether row copies and resizes take along what belongs to the tensor.
    pub with_related: bool,
}

/// Patterns and axes of a table, in the order in which they are written.
pub(crate) fn rules_of(table: &DeTable<'_>) -> Result<Vec<(String, String)>> {
    let mut rules = Vec::new();
    for (pattern, axis) in table.iter() {
        let axis = match axis.get_ref() {
            DeValue::Integer(axis) => axis.to_string(),
            DeValue::String(axis) => axis.to_string(),
            _ => {
                let error = Error::request(format!("{:?} has no axis", pattern.get_ref()));
                return Err(error.help("write 0, 1, \"0x16\" or \"same\""));
            }
        };
        rules.push((pattern.span().start, (pattern.get_ref().to_string(), axis)));
    }
    rules.sort();
    Ok(rules.into_iter().map(|(_, rule)| rule).collect())
}

pub(crate) type Parse = fn(&Words, &str) -> Result<Step>;

/// Every step that a flag or a key of a recipe can name, without the dashes.
const STEPS: &[(&str, Parse)] = &[
    ("add", |_, text| Ok(Step::Add(Add::parse(text)?))),
    ("add-prefix", |_, text| Ok(Step::AddPrefix(text.to_owned()))),
    ("apply-scales", |_, _| Ok(Step::ApplyScales)),
    ("average", |_, text| Ok(Step::Average(Average::parse(text)?))),
    ("concat", |_, text| Ok(Step::Concat(Join::parse(text)?))),
    ("copy-rows", |words, text| words.copy_rows(text)),
    ("drop-optimizer", |_, _| Ok(Step::DropOptimizer)),
    ("dtype", |_, text| Ok(Step::Cast(CastRule::parse(text)?))),
    ("exclude", |_, text| Ok(Step::Exclude(vec![Pattern::new(text)?]))),
    ("expect", |words, path| Ok(Step::Expect(Expected::parse(path, &words.text(path)?)?))),
    ("include", |_, text| Ok(Step::Include(vec![Pattern::new(text)?]))),
    ("join-inputs", |words, text| words.join_inputs(text)),
    ("key", |_, text| Ok(Step::Key(if text == "auto" { KeyChoice::Auto } else { KeyChoice::Path(text.to_owned()) }))),
    ("map", |words, path| words.map(path)),
    ("preset", |words, text| words.preset(text)),
    ("rename", |_, text| Ok(Step::Rename(Rename::parse(text)?))),
    ("reshape", |_, text| Ok(Step::Reshape(Reshape::parse(text)?))),
    ("resize-rows", |words, text| Ok(Step::ResizeRows(ResizeRows::parse(text)?.with_related(words.with_related)))),
    ("set", |_, text| Ok(Step::Set(Set::parse(text)))),
    ("slice", |_, text| Ok(Step::Slice(Slice(text.to_owned())))),
    ("split", |_, text| Ok(Step::Split(Split::parse(text)))),
    ("squeeze", |_, text| Ok(Step::Squeeze(Squeeze::parse(text)?))),
    ("stack", |_, text| Ok(Step::Stack(Join::parse(text)?))),
    ("strip-prefix", |_, text| Ok(Step::StripPrefix(vec![text.to_owned()]))),
    ("transpose", |_, text| Ok(Step::Transpose(Transpose::parse(text)?))),
    ("weights", |_, text| Ok(Step::Weights(Weights::parse(text)?))),
];

impl Words {
    /// The words there are.
    pub fn all() -> impl Iterator<Item = &'static str> {
        STEPS.iter().map(|(word, _)| *word)
    }

    /// The step that a word and its text mean; files that it names are read.
    ///
    /// # Errors
    /// `Request` for an unknown word or a text that does not fit it; `Io`.
    pub fn step(&self, word: &str, text: &str) -> Result<Step> {
        let parse = Words::check(word)?;
        parse(self, text)
    }

    /// How a word is parsed.
    pub(crate) fn check(word: &str) -> Result<Parse> {
        match STEPS.iter().find(|(known, _)| *known == word) {
            Some((_, parse)) => Ok(*parse),
            None => {
                let error = Error::request(format!("there is no step {word:?}"));
                Err(match weightlift_convert::nearest(word, Words::all()).as_slice() {
                    [] => error.help(format!("there are {}", Words::all().collect::<Vec<_>>().join(", "))),
                    near => error.help(format!("did you mean {}", near.join(" or "))),
                })
            }
        }
    }

    /// A preset by its name, or from a file.
    fn preset(&self, text: &str) -> Result<Step> {
        let (name, reverse) = text.strip_suffix(":reverse").map_or((text, false), |name| (name, true));
        if let Some((name, rules)) = PRESETS.iter().find(|(known, _)| *known == name) {
            return Ok(Step::Preset(parse_preset(name, rules, reverse)?));
        }
        if name.ends_with(".toml") {
            return Ok(Step::Preset(parse_preset(name, &self.text(name)?, reverse)?));
        }
        let known: Vec<&str> = PRESETS.iter().map(|(name, _)| *name).collect();
        let error = Error::request(format!("there is no preset {name:?}"));
        Err(error.help(format!("there are {}; a file of your own ends in .toml", known.join(", "))))
    }

    fn map(&self, path: &str) -> Result<Step> {
        let text = self.text(path)?;
        if !path.ends_with(".toml") {
            return Ok(Step::Map(NameMap::parse(path, &text)?));
        }
        let table: std::collections::BTreeMap<String, String> =
            toml::from_str(&text).map_err(|error| toml_error(path, &text, &error))?;
        Ok(Step::Map(NameMap::new(path, table.into_iter().collect())?))
    }

    /// Rules for tensors of several inputs: as they stand, or from a table in a file.
    fn join_inputs(&self, text: &str) -> Result<Step> {
        if !text.ends_with(".toml") {
            return Ok(Step::JoinInputs(JoinInputs::parse(text)?));
        }
        let content = self.text(text)?;
        let table = DeTable::parse(&content).map_err(|error| toml_error(text, &content, &error))?;
        let rules = rules_of(table.get_ref()).map_err(|error| error.in_file(text))?;
        Ok(Step::JoinInputs(JoinInputs::new(text, rules)?))
    }

    fn copy_rows(&self, text: &str) -> Result<Step> {
        let pairs = CopyRows::file_of(text).map(|files| self.pairs(files)).transpose()?;
        Ok(Step::CopyRows(CopyRows::parse(text, pairs)?.with_related(self.with_related)))
    }

    /// The rows that a table, an array of two columns, or two vocabularies give.
    fn pairs(&self, files: &str) -> Result<RowPairs> {
        if let Some((from, to)) = files.split_once(',') {
            return RowPairs::from_vocabularies(&self.text(from.trim())?, &self.text(to.trim())?);
        }
        if files.ends_with(".npy") {
            return self.pairs_of_array(files);
        }
        RowPairs::from_csv(&self.text(files)?).map_err(|error| error.in_file(files))
    }

    fn pairs_of_array(&self, path: &str) -> Result<RowPairs> {
        use weightlift_core::{DType, EntryId, Format, OpenOptions};
        let wrong = || Error::request("is no array of integers with two columns: source row, target row").in_file(path);
        let files = &self.files;
        let checkpoint = weightlift_npy::Npy.open(files.clone(), Path::new(path), &OpenOptions::default())?;
        let entry = checkpoint.catalog().entries.first().ok_or_else(wrong)?;
        let [_, 2] = entry.shape.dims() else { return Err(wrong()) };
        let bytes = weightlift_io::read_entry(files.as_ref(), checkpoint.as_ref(), EntryId(0))?;
        let numbers: Vec<Option<u64>> = match entry.dtype {
            DType::I64 => bytes.as_chunks::<8>().0.iter().map(|b| u64::try_from(i64::from_le_bytes(*b)).ok()).collect(),
            DType::U64 => bytes.as_chunks::<8>().0.iter().map(|b| Some(u64::from_le_bytes(*b))).collect(),
            DType::I32 => bytes.as_chunks::<4>().0.iter().map(|b| u64::try_from(i32::from_le_bytes(*b)).ok()).collect(),
            DType::U32 => bytes.as_chunks::<4>().0.iter().map(|b| Some(u32::from_le_bytes(*b).into())).collect(),
            _ => return Err(wrong()),
        };
        let numbers: Vec<u64> = numbers.into_iter().collect::<Option<_>>().ok_or_else(wrong)?;
        Ok(RowPairs::new(numbers.as_chunks::<2>().0.iter().map(|[from, to]| (*from, *to))))
    }

    /// The content of a table or recipe.
    ///
    /// # Errors
    /// `Request` for what is no text, `Limit` for more than 1 GiB, `Io`.
    pub fn text(&self, path: &str) -> Result<String> {
        let path = Path::new(path);
        let source = FileSource::open(self.files.as_ref(), path)?;
        if source.len() > LARGEST_TABLE {
            let message = format!("has {} bytes; tables of names and rows have at most {LARGEST_TABLE}", source.len());
            return Err(Error::limit(message).in_file(path));
        }
        let bytes = source.head(LARGEST_TABLE)?;
        let text = String::from_utf8(bytes)
            .map_err(|error| Error::request("is no UTF-8 text").in_file(path).caused_by(error))?;
        Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
    }
}
