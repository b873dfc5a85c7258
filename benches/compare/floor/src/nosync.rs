//! `fsync` that does nothing, for `LD_PRELOAD`: shows what a program costs without the wait for the disk.

/// Claims that the file is on the disk.
// SAFETY: the name and the signature are those of the C library's function, whose place it takes on purpose; it
// touches no memory.
#[unsafe(no_mangle)]
pub extern "C" fn fsync(_descriptor: i32) -> i32 {
    0
}

/// Claims that the file's data are on the disk.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn fdatasync(_descriptor: i32) -> i32 {
    0
}
