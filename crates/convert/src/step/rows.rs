//! Rows of matrices: `--copy-rows` and `--resize-rows`.

use super::related::{Related, Relation};
use crate::items::Items;
use crate::value::{RowMap, Value};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use weightlift_core::{Error, Result};

/// Pairs of source and target row that a file gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowPairs {
    from: Vec<u64>,
    to: Vec<u64>,
}

impl RowPairs {
    /// Pairs of (source, target).
    pub fn new(pairs: impl IntoIterator<Item = (u64, u64)>) -> RowPairs {
        let (from, to) = pairs.into_iter().unzip();
        RowPairs { from, to }
    }

    /// Lines of two numbers, source row and target row, separated by commas, tabs or blanks; a first line of words and
    /// lines that begin with `#` are passed over.
    ///
    /// # Errors
    /// `Request` with the line that has no two numbers.
    pub fn from_csv(text: &str) -> Result<RowPairs> {
        let mut pairs = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let mut fields = line.split([',', '\t', ' ', ';']).map(str::trim).filter(|field| !field.is_empty());
            let (first, second, rest) = (fields.next(), fields.next(), fields.next());
            let Some(first) = first.filter(|first| !first.starts_with('#')) else { continue };
            let numbers = first.parse().ok().zip(second.and_then(|second| second.parse().ok()));
            match (numbers, rest) {
                (Some(pair), None) => pairs.push(pair),
                _ if at == 0 && first.parse::<u64>().is_err() => {}
                _ => return Err(Error::request(format!("line {}: {line:?} is not SOURCE_ROW,TARGET_ROW", at + 1))),
            }
        }
        Ok(RowPairs::new(pairs))
    }

    /// The rows of tokens that two vocabularies share: row of the token in `from`, row in `to`. A vocabulary has a
    /// token a line, or is a JSON object of tokens and rows.
    ///
    /// # Errors
    /// `Request` for JSON that is no such object, or without a shared token.
    pub fn from_vocabularies(from: &str, to: &str) -> Result<RowPairs> {
        let (old, new) = (vocabulary(from)?, vocabulary(to)?);
        let rows: HashMap<&str, u64> = old.iter().map(|(token, row)| (token.as_str(), *row)).collect();
        let shared = new.iter().filter_map(|(token, row)| Some((*rows.get(token.as_str())?, *row)));
        let pairs = RowPairs::new(shared);
        if pairs.from.is_empty() { Err(Error::request("the two vocabularies share no token")) } else { Ok(pairs) }
    }
}

fn vocabulary(text: &str) -> Result<Vec<(String, u64)>> {
    if text.trim_start().starts_with('{') {
        let tokens = super::names::json_pairs(text)
            .map_err(|error| Error::request(format!("a vocabulary is no JSON object: {error}")).caused_by(error))?;
        let row = |(token, row): (String, serde_json::Value)| match row.as_u64() {
            Some(row) => Ok((token, row)),
            None => Err(Error::request(format!("token {token:?} of a vocabulary has no row but {row}"))),
        };
        let mut seen = std::collections::HashSet::new();
        if let Some((twice, _)) = tokens.iter().find(|(token, _)| !seen.insert(token.clone())) {
            return Err(Error::request(format!("token {twice:?} stands twice in a vocabulary")));
        }
        return tokens.into_iter().map(row).collect();
    }
    let lines = text.strip_suffix('\n').unwrap_or(text).split('\n').filter(|_| !text.is_empty());
    Ok(lines.zip(0..).map(|(token, row)| (token.trim_end_matches('\r').to_owned(), row)).collect())
}

/// Which rows are copied where.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Rows {
    /// The texts between the brackets of source and target.
    Lists(String, String),
    /// What a file says.
    Pairs(RowPairs),
}

/// What stands on both sides of the arrow; one with blanks around it rather than one in a name.
fn arrow(text: &str) -> Option<(&str, &str)> {
    text.rsplit_once(" -> ").or_else(|| text.rsplit_once("->"))
}

/// `A[3,5,7] -> B[0:3]`: rows of one tensor become rows of another, cast to its dtype. Both may be the same tensor;
/// what is read is always the state before the step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyRows {
    text: String,
    from: String,
    to: String,
    rows: Rows,
    related: bool,
}

impl CopyRows {
    /// The words of `A -> B by FILE`: source, target, and the file or two vocabularies; `None` for lists of rows.
    pub fn file_of(text: &str) -> Option<&str> {
        let (_, right) = arrow(text)?;
        right.split_once(" by ").map(|(_, files)| files.trim())
    }

    /// Parses `A[ROWS] -> B[ROWS]`, where ROWS are row numbers and ranges: `3,5,7` or `0:3,10:20:2`. With `pairs`, it is
    /// `A -> B by FILE`.
    ///
    /// # Errors
    /// `Request` for any other form.
    pub fn parse(text: &str, pairs: Option<RowPairs>) -> Result<CopyRows> {
        let wrong = || {
            Error::request(format!("--copy-rows {text:?}")).help("write 'A[3,5,7] -> B[0:3]' or 'A -> B by map.csv'")
        };
        let (from, to) = arrow(text).ok_or_else(wrong)?;
        let (from, to) = (from.trim(), to.trim());
        if let Some(pairs) = pairs {
            let to = to.split_once(" by ").map_or(to, |(to, _)| to.trim());
            return Ok(CopyRows::by_pairs(from, to, pairs).called(text));
        }
        let cut = |side: &str| {
            let (name, rows) = side.strip_suffix(']').and_then(|side| side.rsplit_once('[')).ok_or_else(wrong)?;
            Ok::<_, Error>((name.to_owned(), rows.to_owned()))
        };
        let ((from, from_rows), (to, to_rows)) = (cut(from)?, cut(to)?);
        let rows = Rows::Lists(from_rows, to_rows);
        Ok(CopyRows { text: text.to_owned(), from, to, rows, related: false })
    }

    /// Rows of `from` (`NAME` or `WORD::NAME`) to rows of `to`, as pairs say.
    pub fn by_pairs(from: &str, to: &str, pairs: RowPairs) -> CopyRows {
        let text = format!("{from} -> {to} ({} rows)", pairs.from.len());
        CopyRows { text, from: from.to_owned(), to: to.to_owned(), rows: Rows::Pairs(pairs), related: false }
    }

    fn called(self, text: &str) -> CopyRows {
        CopyRows { text: text.to_owned(), ..self }
    }

    /// Applies the same row map to what belongs to the target: tensors tied to it, its optimizer slots, and the output
    /// layers and biases with as many rows.
    #[must_use]
    pub fn with_related(self, related: bool) -> CopyRows {
        CopyRows { related, ..self }
    }

    pub(crate) fn takes_related(&self) -> bool {
        self.related
    }
}

impl fmt::Display for CopyRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.related { " with related" } else { "" })
    }
}

/// What new rows hold.
#[derive(Debug, Clone, PartialEq)]
pub enum Fill {
    /// Zeros.
    Zero,
    /// The mean of the rows there are, summed in f64 in row order.
    Mean,
    /// Normally distributed numbers around 0.
    Normal {
        /// The standard deviation.
        std: f64,
        /// The seed: equal seeds give equal bits.
        seed: u64,
    },
    /// A copy of one row.
    Row(u64),
}

impl Fill {
    fn parse(text: &str) -> Option<Fill> {
        match text {
            "zero" => return Some(Fill::Zero),
            "mean" => return Some(Fill::Mean),
            _ => {}
        }
        if let Some(row) = text.strip_prefix("row:") {
            return row.trim().parse().ok().map(Fill::Row);
        }
        let (std, seed) = text.strip_prefix("normal:")?.split_once(',')?;
        let std: f64 = std.trim().parse().ok().filter(|std: &f64| std.is_finite() && *std >= 0.0)?;
        Some(Fill::Normal { std, seed: seed.trim().parse().ok()? })
    }

    /// `rows` new rows for a value.
    fn rows(&self, value: &Value, rows: u64) -> Result<Value> {
        let mut dims = value.shape().dims().to_vec();
        dims[0] = rows;
        let shape = weightlift_core::Shape::new(dims)?;
        match self {
            Fill::Zero if value.dtype() == weightlift_core::DType::Bool => Value::filled(value.dtype(), shape, "false"),
            Fill::Zero => Value::filled(value.dtype(), shape, "0"),
            Fill::Mean => value.mean()?.repeat(rows),
            Fill::Normal { std, seed } => Value::normal(value.dtype(), shape, *std, *seed),
            Fill::Row(row) => value.row(*row)?.repeat(rows),
        }
    }
}

/// `NAME=N:FILL`: grows a tensor to `N` rows, or cuts it down to them.
#[derive(Debug, Clone, PartialEq)]
pub struct ResizeRows {
    text: String,
    name: String,
    rows: u64,
    fill: Option<Fill>,
    related: bool,
}

impl ResizeRows {
    /// Parses `NAME=N:zero|mean|normal:STD,SEED|row:K`; without a fill, rows can only be taken away.
    ///
    /// # Errors
    /// `Request` for any other form.
    pub fn parse(text: &str) -> Result<ResizeRows> {
        let parsed = text.rsplit_once('=').and_then(|(name, rest)| {
            let (rows, fill) = rest.split_once(':').map_or((rest, None), |(rows, fill)| (rows, Some(fill.trim())));
            let fill = match fill {
                Some(fill) => Some(Fill::parse(fill)?),
                None => None,
            };
            Some((name, rows.trim().parse().ok()?, fill))
        });
        let (name, rows, fill) = parsed.ok_or_else(|| {
            Error::request(format!("--resize-rows {text:?}"))
                .help("write NAME=N:FILL with zero, mean, normal:STD,SEED or row:K as FILL")
        })?;
        Ok(ResizeRows { text: text.to_owned(), name: name.to_owned(), rows, fill, related: false })
    }

    /// `name` to `rows` rows, new ones filled.
    pub fn new(name: &str, rows: u64, fill: Fill) -> ResizeRows {
        ResizeRows {
            text: format!("{name}={rows}:{fill:?}"),
            name: name.to_owned(),
            rows,
            fill: Some(fill),
            related: false,
        }
    }

    /// Resizes what belongs to the tensor too, as [`CopyRows::with_related`].
    #[must_use]
    pub fn with_related(self, related: bool) -> ResizeRows {
        ResizeRows { related, ..self }
    }

    pub(crate) fn takes_related(&self) -> bool {
        self.related
    }
}

impl fmt::Display for ResizeRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.related { " with related" } else { "" })
    }
}

/// Reads row numbers and ranges: `3,5,7`, `0:3`, `10:20:2`, `-1`.
fn row_list(text: &str, rows: u64) -> Result<Vec<u64>> {
    const MOST: u64 = 1 << 26;
    let mut list = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let selection = crate::Selection::parse(item, &weightlift_core::Shape::new([rows])?)?;
        for run in selection.runs() {
            if run.count > MOST - list.len() as u64 {
                let error =
                    Error::limit(format!("[{text}] are more than {MOST} rows, each of which is kept in memory"));
                return Err(error.help("--set 'B[0:N]=A[0:N]' copies a range as one"));
            }
            list.extend((0..run.count).map(|index| run.at(index)));
        }
    }
    Ok(list)
}

impl Items<'_> {
    /// Copies rows.
    pub(crate) fn copy_rows(&mut self, rule: &CopyRows) -> Result<usize> {
        let (at, _) = self.find_whole(&rule.to, "--copy-rows")?;
        let targets = if rule.related { self.related(at)? } else { vec![Related::of(at)] };
        let rows_of = |value: &Value| value.shape().dims().first().copied().unwrap_or(0);
        let name = self.edited()[at].name.clone();
        let source = self.operand(&rule.from, "--copy-rows")?;
        let (from, to) = match &rule.rows {
            Rows::Pairs(pairs) => (pairs.from.clone(), pairs.to.clone()),
            Rows::Lists(from, to) => (
                row_list(from, rows_of(&source)).map_err(|error| error.in_tensor(&rule.from))?,
                row_list(to, rows_of(&self.edited()[at].value)).map_err(|error| error.in_tensor(&name))?,
            ),
        };
        let map = Arc::new(RowMap::new(&from, &to).map_err(|error| error.in_tensor(&name))?);
        if map.is_empty() && !self.allows_unmatched() {
            return Err(Error::request(format!("--copy-rows {rule}: there is no row to copy")).in_tensor(&name));
        }
        let mut made = Vec::new();
        for related in &targets {
            let source = match related.by {
                Relation::Same => source.clone(),
                _ => self.counterpart(&rule.from, &rule.to, related)?,
            };
            let item = &self.edited()[related.at];
            made.push(item.value.with_rows(&source, map.clone()).map_err(|error| error.in_tensor(&item.name))?);
        }
        self.replace(&targets, made);
        Ok(targets.len())
    }

    /// Grows or shrinks.
    pub(crate) fn resize_rows(&mut self, rule: &ResizeRows) -> Result<usize> {
        let (at, _) = self.find_whole(&rule.name, "--resize-rows")?;
        let targets = if rule.related { self.related(at)? } else { vec![Related::of(at)] };
        let mut made = Vec::new();
        for related in &targets {
            let item = &self.edited()[related.at];
            let value = &item.value;
            let fill = match &rule.fill {
                // Random numbers are no moments: a second moment must not be negative.
                Some(Fill::Normal { .. }) if matches!(related.by, Relation::Slot { .. }) => Some(&Fill::Zero),
                fill => fill.as_ref(),
            };
            let resized = value.resize_rows(rule.rows, |more| match fill {
                Some(fill) => fill.rows(value, more),
                None => Err(Error::request("has fewer rows; a fill is needed for more")
                    .help("write NAME=N:FILL with zero, mean, normal:STD,SEED or row:K as FILL")),
            });
            made.push(resized.map_err(|error| error.in_tensor(&item.name))?);
        }
        self.replace(&targets, made);
        Ok(targets.len())
    }

    /// Puts new values in the place of those at `targets`; what was tied and became alike stays tied.
    fn replace(&mut self, targets: &[Related], made: Vec<Value>) {
        let mut known = HashMap::new();
        for (&Related { at, .. }, value) in targets.iter().zip(made) {
            let value = known.entry(self.identity(&self.edited()[at].value)).or_insert(value).clone();
            self.lists[0][at].value = value;
        }
    }
}
