//! Work for many threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use weightlift_core::{Error, Result};

/// Calls `work` for `0..count` from `threads` workers, each with buffers of its own; the first error stops them.
pub(crate) fn parallel<B>(
    threads: usize,
    count: usize,
    buffers: impl Fn() -> B + Sync,
    work: impl Fn(&mut B, usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let worker = || {
        let mut own = buffers();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            if let Err(error) = work(&mut own, at) {
                next.store(count, Ordering::Relaxed);
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(first, _)| at < *first) {
                    *failed = Some((at, error));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let others = threads.clamp(1, count.max(1)) - 1;
        // Where the system gives no more threads, those that there are do the work.
        for _ in 0..others {
            if std::thread::Builder::new().spawn_scoped(scope, worker).is_err() {
                break;
            }
        }
        worker();
    });
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}
