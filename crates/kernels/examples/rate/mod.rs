//! How fast a piece of work goes through bytes.

use std::time::{Duration, Instant};

/// GB/s, the best of several rounds.
pub(crate) fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    let mut times = vec![Duration::MAX];
    let (start, mut rounds) = (Instant::now(), 1);
    while start.elapsed() < Duration::from_millis(120) || times.len() < 6 {
        let round = Instant::now();
        (0..rounds).for_each(|_| work());
        let time = round.elapsed();
        times.push(time / rounds);
        if time < Duration::from_millis(2) {
            rounds *= 2;
        }
    }
    bytes as f64 / times.iter().min().map_or(f64::INFINITY, Duration::as_secs_f64) / 1e9
}
