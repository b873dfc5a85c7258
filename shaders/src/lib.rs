//! The shaders of the compute device as WGSL, put together from the pieces in `wgsl/`.
//!
//! They compute in 32-bit integers alone: WGSL fixes no rounding mode for floats, may flush subnormals and may assume
//! that there are no NaNs, and not every adapter has 16-bit floats. A number on its way is the f32 that has its value,
//! as a word; from f64 it is rounded to odd, so that the one rounding that counts is still to come.
//!
//! A kernel goes over **granules** of [`GRANULE`] elements, one for each workgroup of [`WORKGROUP`] invocations. Each
//! invocation makes [`Shader::group`] elements at a time: so many that they are whole words of 4 bytes on both sides.
//!
//! ```
//! use weightlift_shaders::{Coding, Convert, Pick, Shader};
//! let convert = Convert::Cast { from: Coding::F32, to: Coding::F16, saturate: false };
//! let shader = Shader { convert, pick: Pick::Segments, swap: false };
//! assert_eq!(shader.group(), 2);
//! assert!(shader.wgsl().contains("fn main"));
//! ```
#![forbid(unsafe_code)]

mod coding;

pub use coding::Coding;

use std::fmt::Write as _;

/// Elements that one workgroup makes.
pub const GRANULE: u32 = 1024;
/// Invocations of a workgroup.
pub const WORKGROUP: u32 = 256;
/// Most axes of a strided box.
pub const MAX_RANK: usize = 8;

/// What becomes of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Convert {
    /// It keeps its bits; it has 1, 2, 4 or 8 bytes.
    Same {
        /// Bytes of an element.
        bytes: u32,
    },
    /// It is cast.
    Cast {
        /// What it is.
        from: Coding,
        /// What it becomes.
        to: Coding,
        /// Whether what is beyond the target becomes its largest finite value, not its infinity or NaN.
        saturate: bool,
    },
}

impl Convert {
    /// Bytes of an element before and after.
    pub fn bytes(self) -> (u32, u32) {
        match self {
            Convert::Same { bytes } => (bytes, bytes),
            Convert::Cast { from, to, .. } => (from.bytes(), to.bytes()),
        }
    }

    fn wgsl(self) -> String {
        let (same, from_f64) = (include_str!("wgsl/same.wgsl"), include_str!("wgsl/narrow_f64_f32.wgsl"));
        match self {
            Convert::Same { .. } => same.to_owned(),
            Convert::Cast { from: Coding::F64, to: Coding::F32, saturate } => {
                Coding::F32.constants("TO", saturate) + from_f64
            }
            Convert::Cast { from, to, saturate } => {
                let constants = from.constants("FROM", false) + &to.constants("TO", saturate);
                constants + from.widen() + to.narrow()
            }
        }
    }
}

/// Which element of the source an element of the result is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pick {
    /// The one at its own place. Many tensors go through one dispatch as segments that are counted apart.
    Segments,
    /// That of a row which a table names: gathered rows.
    Rows,
    /// That of a box of strided storage: transposed and permuted tensors.
    Strided,
    /// The other way round: a table names the row of the result for each row of the source. Other rows stay.
    Scatter,
}

impl Pick {
    const ALL: [Pick; 4] = [Pick::Segments, Pick::Rows, Pick::Strided, Pick::Scatter];
}

/// One kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shader {
    /// What becomes of an element.
    pub convert: Convert,
    /// Which element of the source it is made of.
    pub pick: Pick,
    /// Whether the bytes of the source's numbers come in reverse order.
    pub swap: bool,
}

impl Shader {
    /// Every kernel there is.
    pub fn all() -> impl Iterator<Item = Shader> {
        let casts = Coding::ALL.into_iter().flat_map(|from| {
            let others = Coding::ALL.into_iter().filter(move |to| *to != from);
            others.flat_map(move |to| [false, true].map(|saturate| Convert::Cast { from, to, saturate }))
        });
        let converts = [1, 2, 4, 8].map(|bytes| Convert::Same { bytes }).into_iter().chain(casts);
        converts.flat_map(|convert| {
            let picks = Pick::ALL.into_iter().flat_map(|pick| [(pick, false), (pick, true)]);
            picks.map(move |(pick, swap)| Shader { convert, pick, swap })
        })
    }

    /// Elements that an invocation makes at a time.
    pub fn group(&self) -> u32 {
        let (from, to) = self.convert.bytes();
        (4 / from.min(4)).max(4 / to.min(4))
    }

    /// The shader's text; its entry point is `main`.
    pub fn wgsl(&self) -> String {
        let (from, to) = self.convert.bytes();
        let load = match from {
            1 => include_str!("wgsl/load1.wgsl"),
            2 => include_str!("wgsl/load2.wgsl"),
            4 => include_str!("wgsl/load4.wgsl"),
            _ => include_str!("wgsl/load8.wgsl"),
        };
        let (whole, segments) = (include_str!("wgsl/pick_whole.wgsl"), include_str!("wgsl/pick_segments.wgsl"));
        let (rows, strided) = (include_str!("wgsl/pick_rows.wgsl"), include_str!("wgsl/pick_strided.wgsl"));
        let picks = match self.pick {
            Pick::Segments => [segments, ""],
            Pick::Rows => [whole, rows],
            Pick::Strided => [whole, strided],
            Pick::Scatter => [whole, ""],
        };
        let main = match self.pick {
            Pick::Scatter => include_str!("wgsl/scatter.wgsl").replace("//PUT", put(to)),
            _ => self.main(to),
        };
        let mut text = format!("const GRANULE: u32 = {GRANULE}u;\nconst GROUP: u32 = {}u;\n", self.group());
        let _ = writeln!(text, "const SWAP: bool = {};", self.swap);
        [include_str!("wgsl/bindings.wgsl"), load, &self.convert.wgsl(), picks[0], picks[1]]
            .into_iter()
            .chain([include_str!("wgsl/tally.wgsl"), &main])
            .for_each(|piece| text.push_str(piece));
        text
    }

    /// The entry point, its group of elements written out: arrays indexed at run time would go through memory.
    fn main(&self, to: u32) -> String {
        let group = self.group();
        let codes: String =
            (0..group).map(|k| format!("let c{k} = one(first + {k}u, within + {k}u < valid);\n        ")).collect();
        let store: String = match to {
            8 => (0..group)
                .map(|k| {
                    let at = format!("2u * (first + {k}u)");
                    format!("result[{at}] = c{k}.x;\n        result[{at} + 1u] = c{k}.y;\n        ")
                })
                .collect(),
            _ => {
                let in_word = 4 / to;
                let word = |word: u32| {
                    let part = |k: u32| format!("(c{} << {}u)", word * in_word + k, k * 8 * to);
                    let parts: Vec<String> = (0..in_word).map(part).collect();
                    format!("result[first / {in_word}u + {word}u] = {};\n        ", parts.join(" | "))
                };
                (0..group / in_word).map(word).collect()
            }
        };
        let result = "@group(0) @binding(1) var<storage, read_write> result: array<u32>;\n\n";
        let main = include_str!("wgsl/main.wgsl").replace("//CODES", codes.trim_end());
        result.to_owned() + &main.replace("//STORE", store.trim_end())
    }
}

/// How a scattered element of so many bytes is put to its place.
fn put(bytes: u32) -> &'static str {
    match bytes {
        1 => {
            "let shift = (at & 3u) * 8u;
    atomicAnd(&result[at >> 2u], ~(0xffu << shift));
    atomicOr(&result[at >> 2u], code << shift);"
        }
        2 => {
            "let shift = (at & 1u) * 16u;
    atomicAnd(&result[at >> 1u], ~(0xffffu << shift));
    atomicOr(&result[at >> 1u], code << shift);"
        }
        4 => "atomicStore(&result[at], code);",
        _ => "atomicStore(&result[2u * at], code.x);\n    atomicStore(&result[2u * at + 1u], code.y);",
    }
}
