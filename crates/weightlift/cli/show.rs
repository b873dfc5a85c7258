//! How names, sizes and tables look.

use std::fmt::Write as _;
use std::io::{self, Write};

/// A text without control characters: names come from strangers' files, and a terminal obeys what it is sent.
pub(crate) fn plain(text: &str) -> String {
    let risky = |c: char| {
        c.is_control() || matches!(c, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if risky(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    shown
}

/// Bytes in decimal units, three significant digits.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// Reads a size: `5GB` (decimal), `512MiB` (binary), or bytes.
pub(crate) fn parse_bytes(text: &str) -> Result<u64, String> {
    const UNITS: [(&str, u64); 9] = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("kB", 1000),
        ("KB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
    ];
    let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
    let (number, unit) = unit.unwrap_or((text.strip_suffix('B').unwrap_or(text), 1));
    let size = number.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).filter(|&size| size > 0);
    size.ok_or_else(|| "not a size; write 5GB, 512MiB or a number of bytes".to_owned())
}

/// `1 tensor`, `2 tensors`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A number with six significant digits.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let text = if (1e-4..1e6).contains(&magnitude) {
        let before = magnitude.log10().floor() as i32;
        format!("{value:.*}", (5 - before).max(0) as usize)
    } else {
        let text = format!("{value:.5e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", trimmed(digits));
    };
    trimmed(&text).to_owned()
}

/// Without zeros that say nothing.
fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// A number for JSON, which has neither NaN nor infinities.
pub(crate) fn json_number(value: f64) -> serde_json::Value {
    match value {
        finite if finite.is_finite() => serde_json::json!(finite),
        nan if nan.is_nan() => "NaN".into(),
        infinite => if infinite > 0.0 { "Infinity" } else { "-Infinity" }.into(),
    }
}

/// At most `most` of the names, then how many more there are.
pub(crate) fn some<'a>(names: impl ExactSizeIterator<Item = &'a str>, most: usize) -> String {
    let rest = names.len().saturating_sub(most);
    let mut list = names.take(most).collect::<Vec<_>>().join(", ");
    if rest > 0 {
        let _ = write!(list, " and {rest} more");
    }
    list
}

/// Which way a column is pushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Prints rows in columns two blanks apart; the last column is never padded. Columns wider than [`WIDEST`] do not push
/// the others.
pub(crate) fn table<const N: usize>(
    out: &mut dyn Write,
    header: [&str; N],
    align: [Align; N],
    rows: &[[String; N]],
) -> io::Result<()> {
    const WIDEST: usize = 90;
    let width = |text: &str| text.chars().count();
    let mut widths = header.map(width);
    for row in rows {
        for (widest, cell) in widths.iter_mut().zip(row) {
            *widest = (*widest).max(width(cell).min(WIDEST));
        }
    }
    let header = header.map(str::to_owned);
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let blanks = " ".repeat(widths[column].saturating_sub(width(cell)));
            match align[column] {
                Align::Left => line.extend([cell.as_str(), &blanks]),
                Align::Right => line.extend([&blanks, cell.as_str()]),
            }
            line.push_str("  ");
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits() {
        let shown = |n| bytes(n);
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(999), "999 B");
        assert_eq!(shown(1000), "1.00 kB");
        assert_eq!(shown(12_340), "12.3 kB");
        assert_eq!(shown(999_499), "999 kB");
        assert_eq!(shown(999_500), "1.00 MB");
        assert_eq!(shown(89_378_000_000), "89.4 GB");
        assert_eq!(shown(u64::MAX), "18.4 EB");
    }

    #[test]
    fn sizes_are_read_in_both_kinds_of_units() {
        assert_eq!(parse_bytes("5GB"), Ok(5_000_000_000));
        assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("17"), Ok(17));
        assert_eq!(parse_bytes("17 B"), Ok(17));
        for wrong in ["", "GB", "0", "-1", "5gb", "1.5GB", "99999999999TB"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn terminals_are_not_steered() {
        assert_eq!(plain("a\u{1b}[31mé\n"), "a\\u{1b}[31mé\\n");
        assert_eq!(plain("\u{202e}x"), "\\u{202e}x");
    }

    #[test]
    fn tables_line_up() {
        let rows = [["a".to_owned(), "1".to_owned()], ["bcd".to_owned(), "22".to_owned()]];
        let mut out = Vec::new();
        table(&mut out, ["X", "N"], [Align::Left, Align::Right], &rows).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "X     N\na     1\nbcd  22\n");
    }
}
