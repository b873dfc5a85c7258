//! Which tensors become which dtype.

use crate::Pattern;
use weightlift_core::{DType, Error, Result};

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
