//! An allocator that counts, and ends the process where an input makes the reader hold more than its size explains.

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What any input may take, and how much more for each of its bytes.
const BASE: usize = 64 << 20;
const PER_BYTE: usize = 64;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Runs `work` on an input of `len` bytes with the bytes it may hold limited.
pub fn within<R>(len: usize, work: impl FnOnce() -> R) -> R {
    MOST.store(LIVE.load(Relaxed) + BASE + PER_BYTE * len, Relaxed);
    let result = work();
    MOST.store(usize::MAX, Relaxed);
    result
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed).saturating_add(bytes);
    if live > MOST.load(Relaxed) {
        MOST.store(usize::MAX, Relaxed);
        eprintln!("an allocation of {bytes} bytes makes {live}:\n{}", Backtrace::force_capture());
        std::process::abort();
    }
}

#[expect(unsafe_code, reason = "an allocator is")]
// SAFETY: every call goes on to the system's allocator as it came; only numbers are kept.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        grow(new_size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, new_size) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}
