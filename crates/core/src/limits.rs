//! What a file may ask for before it is refused.

/// Caps on what a file may claim. They bound memory and time on hostile input; the defaults fit every checkpoint
/// seen in the wild, and [`Limits::unbounded`] lifts them for files that are trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Bytes of one index, header or pickle.
    pub header_bytes: u64,
    /// Number of tensors.
    pub tensors: u64,
    /// Number of dimensions of a tensor.
    pub rank: usize,
    /// Bytes of a tensor name.
    pub name_bytes: usize,
    /// Nesting of objects.
    pub depth: usize,
    /// How many times larger than its stored form a compressed member may become.
    pub expansion: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_bytes: 1 << 30,
            tensors: 20_000_000,
            rank: 64,
            name_bytes: 1 << 16,
            depth: 1 << 10,
            expansion: 1100,
        }
    }
}

impl Limits {
    /// No caps but those of the machine.
    pub fn unbounded() -> Limits {
        Limits {
            header_bytes: u64::MAX,
            tensors: u64::MAX,
            rank: usize::MAX,
            name_bytes: usize::MAX,
            depth: 1 << 20,
            expansion: u64::MAX,
        }
    }
}
