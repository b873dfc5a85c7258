//! What can be set about a device, most of it for tests.

use std::time::Duration;
use weightlift_core::{Error, Result};

/// Names of the environment variables that [`Settings::from_env`] reads.
const PREFIX: &str = "WEIGHTLIFT_GPU_";

/// How a device is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Jobs on their way at once; `None`: as many as suit the adapter.
    pub tiles: Option<usize>,
    /// Bytes of source and of result in one job; `None`: as many as suit the adapter.
    pub tile_bytes: Option<u64>,
    /// Most bytes in one binding, below what the adapter offers.
    pub max_binding: Option<u64>,
    /// Most workgroups along a dimension, below what the adapter offers.
    pub max_groups: Option<u32>,
    /// Whether memory that processor and adapter share may be used in place; where it is not, bytes are copied as to a
    /// separate one.
    pub shared_memory: bool,
    /// How long a job may take.
    pub timeout: Duration,
    /// What is to fail.
    pub faults: Faults,
}

/// Failures on purpose: each counts from 1 and happens once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// The submission that is refused.
    pub submit: Option<u64>,
    /// The map of a result that fails.
    pub map: Option<u64>,
    /// The submission after which the device is lost.
    pub lose: Option<u64>,
    /// The submission of which nothing is heard any more.
    pub hang: Option<u64>,
    /// The submission at whose end the library that speaks to drivers panics, as it does for some losses.
    pub panic: Option<u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            tiles: None,
            tile_bytes: None,
            max_binding: None,
            max_groups: None,
            shared_memory: true,
            timeout: Duration::from_secs(30),
            faults: Faults::default(),
        }
    }
}

impl Settings {
    /// The defaults, changed by the environment, so that a whole program can be run with a small or a failing device:
    /// `WEIGHTLIFT_GPU_MAX_BINDING` (bytes), `…_MAX_GROUPS`, `…_TILES`, `…_TILE_BYTES`, `…_SHARED_MEMORY` (0 or 1),
    /// `…_FAULT` (`submit:K`, `map:K`, `lose:K`, `hang:K` or `panic:K`).
    ///
    /// # Errors
    /// `Request` for a value that means nothing.
    pub fn from_env() -> Result<Settings> {
        Settings::from(|name| std::env::var(name).ok())
    }

    fn from(variable: impl Fn(&str) -> Option<String>) -> Result<Settings> {
        let number = |name: &str| -> Result<Option<u64>> {
            let name = format!("{PREFIX}{name}");
            let parsed = variable(&name).map(|text| match text.parse() {
                Ok(number) if number > 0 || name.ends_with("SHARED_MEMORY") => Ok(number),
                _ => Err(Error::request(format!("{name}={text}: expected a whole number above zero"))),
            });
            parsed.transpose()
        };
        let mut settings = Settings {
            tiles: number("TILES")?.and_then(|tiles| usize::try_from(tiles).ok()),
            tile_bytes: number("TILE_BYTES")?,
            max_binding: number("MAX_BINDING")?,
            max_groups: number("MAX_GROUPS")?.map(|groups| u32::try_from(groups).unwrap_or(u32::MAX)),
            ..Settings::default()
        };
        settings.shared_memory = number("SHARED_MEMORY")? != Some(0);
        let name = format!("{PREFIX}FAULT");
        if let Some(text) = variable(&name) {
            settings.faults = fault(&text).ok_or_else(|| {
                Error::request(format!("{name}={text}: expected submit:K, map:K, lose:K, hang:K or panic:K, K from 1"))
            })?;
        }
        if settings.faults.hang.is_some() {
            settings.timeout = Duration::from_millis(300);
        }
        Ok(settings)
    }
}

fn fault(text: &str) -> Option<Faults> {
    let (what, at) = text.split_once(':')?;
    let at = Some(at.parse().ok().filter(|at| *at > 0)?);
    match what {
        "submit" => Some(Faults { submit: at, ..Faults::default() }),
        "map" => Some(Faults { map: at, ..Faults::default() }),
        "lose" => Some(Faults { lose: at, ..Faults::default() }),
        "hang" => Some(Faults { hang: at, ..Faults::default() }),
        "panic" => Some(Faults { panic: at, ..Faults::default() }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_lowers_limits_and_orders_failures() {
        let given = |name: &str| match name {
            "WEIGHTLIFT_GPU_MAX_BINDING" => Some("65536".to_owned()),
            "WEIGHTLIFT_GPU_MAX_GROUPS" => Some("4".to_owned()),
            "WEIGHTLIFT_GPU_SHARED_MEMORY" => Some("0".to_owned()),
            "WEIGHTLIFT_GPU_FAULT" => Some("map:3".to_owned()),
            _ => None,
        };
        let settings = Settings::from(given).unwrap();
        assert_eq!((settings.max_binding, settings.max_groups), (Some(65536), Some(4)));
        assert_eq!((settings.shared_memory, settings.faults.map), (false, Some(3)));
        assert_eq!(Settings::from(|_| None).unwrap(), Settings::default());
    }

    #[test]
    fn a_value_that_means_nothing_is_refused() {
        for (variable, value) in [("FAULT", "map"), ("FAULT", "map:0"), ("TILES", "0"), ("MAX_BINDING", "64k")] {
            let given = |name: &str| name.ends_with(variable).then(|| value.to_owned());
            let error = Settings::from(given).unwrap_err().to_string();
            assert!(error.contains(value) && error.contains(variable), "{error}");
        }
    }
}
