//! Who does the bulk of the work: the processor, a device, or both. Pure functions of rates and sizes.

use std::time::Duration;

/// Bytes of input a second, from reading to writing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// The processor's threads alone.
    pub processor: f64,
    /// The device alone.
    pub device: f64,
    /// Both at once.
    pub both: f64,
}

/// Who carries on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chosen {
    /// The processor's threads.
    Processor,
    /// The device.
    Device,
    /// Both share the tiles.
    Both,
}

/// The least bulk work for which a device of unknown rate is opened.
pub const WORTH_OPENING: u64 = 1 << 30;
/// What opening one may cost, drivers and all.
const OPENING: Duration = Duration::from_millis(300);
/// A device must be ahead by this factor: what it gains may be noise, and it costs memory and power.
const AHEAD: f64 = 1.05;

/// The fastest; the processor where the others are not clearly ahead, the device alone where the processor adds little.
///
/// ```
/// use weightlift_convert::{Chosen, Rates, choose};
/// let rates = |processor, device, both| Rates { processor, device, both };
/// assert_eq!(choose(&rates(10.0, 4.0, 10.2)), Chosen::Processor);
/// assert_eq!(choose(&rates(2.0, 9.0, 9.1)), Chosen::Device);
/// assert_eq!(choose(&rates(5.0, 5.0, 9.0)), Chosen::Both);
/// ```
pub fn choose(rates: &Rates) -> Chosen {
    let best = rates.device.max(rates.both);
    // Also where a rate is no number.
    if best.partial_cmp(&(rates.processor * AHEAD)) != Some(std::cmp::Ordering::Greater) {
        Chosen::Processor
    } else if rates.device * AHEAD >= rates.both {
        Chosen::Device
    } else {
        Chosen::Both
    }
}

/// Whether so many bytes of bulk work are worth opening a device, of which the rates are known or not.
pub fn worth_opening(bytes: u64, known: Option<&Rates>) -> bool {
    match known {
        None => bytes >= WORTH_OPENING,
        Some(rates) => {
            let best = rates.device.max(rates.both);
            let saved = bytes as f64 / rates.processor - bytes as f64 / best;
            choose(rates) != Chosen::Processor && saved > OPENING.as_secs_f64()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(processor: f64, device: f64, both: f64) -> Rates {
        Rates { processor, device, both }
    }

    #[test]
    fn the_fastest_is_chosen_and_the_processor_where_it_is_close() {
        for (given, expected) in [
            (rates(10.0, 4.0, 10.2), Chosen::Processor),
            (rates(10.0, 10.4, 10.4), Chosen::Processor),
            (rates(10.0, 10.6, 10.4), Chosen::Device),
            (rates(2.0, 9.0, 9.1), Chosen::Device),
            (rates(5.0, 5.0, 9.0), Chosen::Both),
            (rates(5.0, 1.0, 5.5), Chosen::Both),
            (rates(5.0, 20.0, 12.0), Chosen::Device),
            (rates(0.0, 1.0, 1.0), Chosen::Device),
            (rates(1.0, 0.0, 0.0), Chosen::Processor),
            (rates(f64::NAN, 1.0, 1.0), Chosen::Processor),
            (rates(1.0, f64::NAN, f64::NAN), Chosen::Processor),
        ] {
            assert_eq!(choose(&given), expected, "{given:?}");
        }
    }

    #[test]
    fn a_driver_is_opened_for_much_work_or_for_a_known_gain() {
        assert!(!worth_opening(WORTH_OPENING - 1, None));
        assert!(worth_opening(WORTH_OPENING, None));
        let (slow, fast) = (rates(5e9, 1e9, 5e9), rates(1e9, 10e9, 10e9));
        // What is known to lose is not opened however much there is; what wins pays from a third of a second on.
        assert!(!worth_opening(u64::MAX, Some(&slow)));
        assert!(worth_opening(400_000_000, Some(&fast)));
        assert!(!worth_opening(300_000_000, Some(&fast)));
        assert!(!worth_opening(0, Some(&fast)));
    }
}
