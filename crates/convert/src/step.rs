//! The steps of a plan.

use crate::{KeyChoice, Pattern, Rename};
use std::fmt;
use std::sync::Arc;
use weightlift_core::{DType, Error, Result};

/// One step. Each sees names as the steps before left them.
#[derive(Clone)]
#[non_exhaustive]
pub enum Step {
    /// Keeps the tensors that any of the patterns selects.
    Include(Vec<Pattern>),
    /// Drops the tensors that any of the patterns selects.
    Exclude(Vec<Pattern>),
    /// Keeps one subtree and takes its path off the names.
    Key(KeyChoice),
    /// Renames by expression.
    Rename(Rename),
    /// Renames by a function; for programs.
    RenameWith(Arc<dyn Fn(&str) -> String + Send + Sync>),
    /// Takes any of the prefixes off the start of names, again and again.
    StripPrefix(Vec<String>),
    /// Puts a prefix before every name.
    AddPrefix(String),
    /// Marks tensors for a cast; the last mark on a tensor wins.
    Cast(CastRule),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = |patterns: &[Pattern]| patterns.iter().map(Pattern::text).collect::<Vec<_>>().join(" ");
        match self {
            Step::Include(patterns) => write!(f, "include {}", texts(patterns)),
            Step::Exclude(patterns) => write!(f, "exclude {}", texts(patterns)),
            Step::Key(KeyChoice::Auto) => f.write_str("key auto"),
            Step::Key(KeyChoice::Path(path)) => write!(f, "key {path}"),
            Step::Rename(rename) => write!(f, "rename {}", rename.text()),
            Step::RenameWith(_) => f.write_str("rename by a function"),
            Step::StripPrefix(prefixes) => write!(f, "strip prefix {}", prefixes.join(" ")),
            Step::AddPrefix(prefix) => write!(f, "add prefix {prefix}"),
            Step::Cast(rule) => write!(f, "dtype {}", rule.text),
        }
    }
}

/// Which tensors become which dtype.
///
/// ```
/// use weightlift_convert::CastRule;
/// use weightlift_core::DType;
/// let rule = CastRule::parse("**/kernel=f32:bf16").unwrap();
/// assert_eq!((rule.from, rule.to), (Some(DType::F32), DType::Bf16));
/// assert!(CastRule::parse("f8").is_err());
/// ```
#[derive(Debug, Clone)]
pub struct CastRule {
    text: String,
    /// The tensors; all of them without a pattern.
    pub pattern: Option<Pattern>,
    /// Only tensors of this dtype; without it every floating-point one.
    pub from: Option<DType>,
    /// The dtype to cast to.
    pub to: DType,
}

impl CastRule {
    /// Parses `[PATTERN=][SRC:]DST`: cut at the last `=`, then at the last `:` of its right side.
    ///
    /// # Errors
    /// `Request` for a name that is no dtype or a broken pattern.
    pub fn parse(text: &str) -> Result<CastRule> {
        let (pattern, dtypes) = match text.rsplit_once('=') {
            Some((pattern, dtypes)) => (Some(Pattern::new(pattern)?), dtypes),
            None => (None, text),
        };
        let dtype = |name: &str| {
            name.parse::<DType>().map_err(|error| Error::request(format!("--dtype {text}: {error}")).caused_by(error))
        };
        let (from, to) = match dtypes.rsplit_once(':') {
            Some((from, to)) => (Some(dtype(from)?), dtype(to)?),
            None => (None, dtype(dtypes)?),
        };
        Ok(CastRule { text: text.to_owned(), pattern, from, to })
    }

    /// Every floating-point tensor to one dtype.
    pub fn floats_to(to: DType) -> CastRule {
        CastRule { text: to.name().to_owned(), pattern: None, from: None, to }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) fn applies_to(&self, dtype: DType) -> bool {
        self.from.map_or(dtype.is_float(), |from| from == dtype)
    }
}
