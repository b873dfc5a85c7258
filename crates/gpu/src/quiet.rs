//! Drivers that talk.
//!
//! The Vulkan loader, its layers and some drivers write to standard error while they are loaded ("XDG_RUNTIME_DIR is
//! invalid"). Nobody who casts a checkpoint can act on it, so it goes nowhere, unless `VK_LOADER_DEBUG` asks for it.

use std::sync::{Mutex, PoisonError};

/// One thread at a time has standard error turned away.
static TURNED: Mutex<()> = Mutex::new(());

/// Does `work` while standard error leads nowhere.
pub(crate) fn quietly<T>(work: impl FnOnce() -> T) -> T {
    let _turned = TURNED.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = if std::env::var_os("VK_LOADER_DEBUG").is_some() { None } else { turn_away() };
    let done = work();
    if let Some(kept) = kept {
        turn_back(&kept);
    }
    done
}

#[cfg(unix)]
type Kept = std::os::fd::OwnedFd;
#[cfg(not(unix))]
type Kept = ();

#[cfg(unix)]
fn turn_away() -> Option<Kept> {
    let kept = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3).ok()?;
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null").ok()?;
    rustix::stdio::dup2_stderr(&nowhere).ok()?;
    Some(kept)
}

#[cfg(unix)]
fn turn_back(kept: &Kept) {
    // Where even that fails, messages to come are lost, and the work is not.
    let _ = rustix::stdio::dup2_stderr(kept);
}

#[cfg(not(unix))]
fn turn_away() -> Option<Kept> {
    None
}

#[cfg(not(unix))]
fn turn_back((): &Kept) {}
