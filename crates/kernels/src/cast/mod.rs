//! Casts between number formats: one rounding, every lost value counted.
//!
//! # The definition
//! A source code stands for an exact value. It is rounded once, to the nearest value of the target, a tie to the one
//! with an even code, as if the target's exponents had no end; what then lies above the largest finite value has
//! overflowed. Subnormal results are kept, signs are kept (formats without negative zero have one zero). A NaN keeps
//! its sign and as many of its upper payload bits as the target has, and becomes quiet; a target with a single NaN
//! gets that, one without any gets 0.
//!
//! Integers are exact values, and targets like any other: what follows the point is cut off, what lies beyond becomes
//! the last value on its side under both rules, NaN becomes 0. True is 1; everything but zero is true, infinities and
//! NaN too, and nothing is beyond it. A real number becomes a complex one with imaginary part 0, complex numbers are cast part by part; complex to real is
//! no cast. f8e8m0fnu, which only has powers of two, rounds half way and above up, anything above its least value but
//! below the next up to that, and anything below its least value to that; zero and negative numbers are beyond it.
//!
//! What overflows becomes, under [`Overflow::Inf`], the target's infinity, or its NaN where it has no infinity; under
//! [`Overflow::Saturate`], and in targets with neither, the largest finite value of its sign. An infinity stays an
//! infinity under both; a target without one treats it as overflowed.
//!
//! # The tally
//! Each source number, each part of a complex one, is counted at most once:
//! - [`Tally::nan`]: the source is a NaN; what was written is one too, if the target has any.
//! - [`Tally::overflow`]: the source is finite and lies beyond the target as above, or is an infinity the target
//!   lacks; whatever was then written.
//! - [`Tally::to_zero`]: the source is finite and not zero, the result is zero.
//! - [`Tally::subnormal`]: the result is not zero and subnormal in the target, while the source was a normal number
//!   of its own format.
//!
//! # Rooms
//! A [`Room`] is one implementation of all this. The scalar room is the definition, the others are fast, and all
//! give the same bits and the same counts. [`cast`] takes the fastest the processor has.
//!
//! ```
//! use weightlift_core::DType;
//! use weightlift_kernels::cast::{CastPair, Overflow, cast};
//! let pair = CastPair::new(DType::F32, DType::F16).unwrap();
//! let source: Vec<u8> = [1.0f32, 1e6, 1e-9].iter().flat_map(|x| x.to_le_bytes()).collect();
//! let mut halves = [0; 6];
//! let tally = cast(pair, Overflow::Inf, &source, &mut halves);
//! assert_eq!(halves, [0x00, 0x3c, 0x00, 0x7c, 0x00, 0x00]);
//! assert_eq!((tally.overflow, tally.to_zero), (1, 1));
//! ```

#[cfg(target_arch = "x86_64")]
mod avx2;
mod deviation;
mod format;
mod like;
mod limits;
mod portable;
mod scalar;
#[cfg(test)]
mod tests;

pub use deviation::{Deviation, cast_and_compare, deviation, deviation_in};
use format::Element;
pub use like::Like;
pub(crate) use portable::Reader;
use weightlift_core::DType;

/// Two dtypes between which a cast is defined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CastPair {
    from: DType,
    to: DType,
}

impl CastPair {
    /// `None` where no cast leads from `from` to `to`: opaque and quantized dtypes, x87 numbers, complex to real;
    /// and where both are the same, which is a copy of bytes.
    pub fn new(from: DType, to: DType) -> Option<CastPair> {
        let (source, target) = (Element::of(from)?, Element::of(to)?);
        (from != to && source.numbers <= target.numbers).then_some(CastPair { from, to })
    }

    /// Every pair there is.
    pub fn all() -> impl Iterator<Item = CastPair> {
        let to = |from: DType| DType::ALL.iter().filter_map(move |&to| CastPair::new(from, to));
        DType::ALL.iter().flat_map(move |&from| to(from))
    }

    /// The cast of both parts of complex numbers; `None` where one side alone is complex.
    fn of_parts(self) -> Option<CastPair> {
        let part = |dtype| match dtype {
            DType::C128 => (DType::F64, true),
            DType::C64 => (DType::F32, true),
            DType::C32 => (DType::F16, true),
            DType::Bc32 => (DType::Bf16, true),
            real => (real, false),
        };
        let ((from, from_complex), (to, to_complex)) = (part(self.from), part(self.to));
        (from_complex == to_complex).then_some(CastPair { from, to })
    }

    /// The source's dtype.
    pub fn from(self) -> DType {
        self.from
    }

    /// The target's dtype.
    pub fn to(self) -> DType {
        self.to
    }
}

/// What to write for values beyond the target. To refuse them, look at [`Tally::overflow`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// The target's infinity, else its NaN, else as [`Overflow::Saturate`].
    Inf,
    /// The largest finite value of the same sign.
    Saturate,
}

/// How a cast decides: whose bits, and what becomes of values beyond the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rule {
    /// Whose bits.
    pub like: Like,
    /// What to write for values beyond the target.
    pub overflow: Overflow,
}

impl From<Overflow> for Rule {
    /// The definition.
    fn from(overflow: Overflow) -> Rule {
        Rule { like: Like::Exact, overflow }
    }
}

/// What a cast took from its source, in numbers; the [module](self) says when each is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Numbers beyond the target.
    pub overflow: u64,
    /// Numbers other than zero that became zero.
    pub to_zero: u64,
    /// Normal numbers that became subnormal.
    pub subnormal: u64,
    /// NaNs in the source.
    pub nan: u64,
}

impl Tally {
    /// Adds what another part of the same tensor lost.
    pub fn merge(&mut self, other: &Tally) {
        self.overflow += other.overflow;
        self.to_zero += other.to_zero;
        self.subnormal += other.subnormal;
        self.nan += other.nan;
    }
}

/// An implementation of the casts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Room {
    /// The definition, one number at a time.
    Scalar,
    /// Plain loops, for every processor.
    Portable,
    /// x86-64 with AVX2, F16C and FMA.
    Avx2,
}

impl Room {
    /// The rooms this processor can use, slowest first.
    pub fn available() -> Vec<Room> {
        [Room::Scalar, Room::Portable, Room::Avx2].into_iter().filter(|room| room.is_available()).collect()
    }

    /// The fastest of [`Room::available`].
    pub fn best() -> Room {
        if Room::Avx2.is_available() { Room::Avx2 } else { Room::Portable }
    }

    /// Whether this processor can use it. The answer is found once and remembered.
    pub fn is_available(self) -> bool {
        match self {
            Room::Scalar | Room::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Room::Avx2 => {
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c") && is_x86_feature_detected!("fma")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Room::Avx2 => false,
        }
    }
}

/// Casts the dense little-endian elements in `src` into `dst`, neither of which needs any alignment. Elements
/// narrower than a byte come and go one per byte.
///
/// # Panics
/// If the lengths are not those of one and the same number of elements.
pub fn cast(pair: CastPair, rule: impl Into<Rule>, src: &[u8], dst: &mut [u8]) -> Tally {
    cast_in(Room::best(), pair, rule, src, dst)
}

/// [`cast`] in a given room, or in the definition's where that one is not available or has no loop for the pair.
///
/// # Panics
/// As [`cast`].
pub fn cast_in(room: Room, pair: CastPair, rule: impl Into<Rule>, src: &[u8], dst: &mut [u8]) -> Tally {
    let rule = rule.into();
    let Some((from, to)) = check(pair, src.len(), dst.len()) else { return Tally::default() };
    let imitated = like::run(room, pair, rule, src, dst);
    imitated
        .or_else(|| run_fast(room, pair, rule.overflow, false, src, dst))
        .unwrap_or_else(|| scalar::run(from, to, rule.overflow, src, dst))
}

/// What both sides consist of.
///
/// # Panics
/// If the lengths are not those of one and the same number of elements.
fn check(pair: CastPair, src: usize, dst: usize) -> Option<(Element, Element)> {
    let (from, to) = (Element::of(pair.from)?, Element::of(pair.to)?);
    let whole = src.is_multiple_of(from.size()) && dst.is_multiple_of(to.size());
    let same = src / from.size() == dst / to.size();
    assert!(whole && same, "{src} bytes of {} for {dst} of {}", pair.from, pair.to);
    Some((from, to))
}

/// The cast in the room's own loop, if it has one for the pair and can be used; `near`: values wider than f32 are
/// rounded to that first.
fn run_fast(room: Room, pair: CastPair, overflow: Overflow, near: bool, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    let pair = pair.of_parts()?;
    let portable = |dst: &mut [u8]| portable::run(pair, overflow, near, src, dst);
    match room {
        Room::Scalar => None,
        Room::Portable => portable(dst),
        #[cfg(target_arch = "x86_64")]
        Room::Avx2 => avx2::run(pair, overflow, near, src, dst).or_else(|| portable(dst)),
        #[cfg(not(target_arch = "x86_64"))]
        Room::Avx2 => portable(dst),
    }
}
