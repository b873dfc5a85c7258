//! What can be said of an archive whose end is missing.

use weightlift_core::{ByteRange, Error};
use weightlift_io::FileSource;

const LOCAL: u64 = 30;

/// The error for a file that starts like a zip, but has no directory at its end.
pub(crate) fn explain(source: &FileSource, range: ByteRange) -> Error {
    let len = range.len();
    let mut start = [0; 4];
    let is_zip = len >= 4 && source.read_exact_at(&mut start, range.start()).is_ok() && start == *b"PK\x03\x04";
    if !is_zip {
        return Error::malformed(format!("no zip archive: {len} bytes without a zip's end record"));
    }
    let needs = match needed(source, range) {
        Some((needs, name)) => format!("it needs at least {needs} for its member {name:?}"),
        None => "its directory, which stands at the end, is missing".to_owned(),
    };
    Error::malformed(format!("the zip ends early at {len} bytes, {needs}"))
        .help("the download or copy was cut short: fetch the file again")
}

/// The end of the first member that does not fit, as far as local headers say how long members are.
fn needed(source: &FileSource, range: ByteRange) -> Option<(u64, String)> {
    let mut at = 0;
    loop {
        let mut fixed = [0; LOCAL as usize];
        source.read_exact_at(&mut fixed, range.slice(at, LOCAL)?.start()).ok()?;
        let deferred = u16::from_le_bytes([fixed[6], fixed[7]]) & 8 != 0;
        let size = u32::from_le_bytes([fixed[18], fixed[19], fixed[20], fixed[21]]);
        if !fixed.starts_with(b"PK\x03\x04") || deferred || size == u32::MAX {
            return None;
        }
        let name_len = u64::from(u16::from_le_bytes([fixed[26], fixed[27]]));
        let extra_len = u64::from(u16::from_le_bytes([fixed[28], fixed[29]]));
        let end = at + LOCAL + name_len + extra_len + u64::from(size);
        if end > range.len() {
            let mut name = vec![0; name_len as usize];
            source.read_exact_at(&mut name, range.slice(at + LOCAL, name_len)?.start()).ok()?;
            return Some((end, String::from_utf8_lossy(&name).into_owned()));
        }
        at = end;
    }
}
