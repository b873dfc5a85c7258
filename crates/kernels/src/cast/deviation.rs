//! How far the results of a cast lie from what they were made of.

use super::format::{Coding, Element, F64, Float};
use super::scalar::{self, Magnitude, Number};
use super::{CastPair, Overflow, Room, Rule, Tally};

/// The largest errors of a cast, and how many of its sources were zero.
///
/// They are taken over the numbers that are finite on both sides, each part of a complex one by itself; what became
/// an infinity or a NaN is in the [`Tally`](super::Tally). Sources of at most 32 bits are compared in f32, others in
/// f64, integers of 64 bits as their nearest f64. Nothing is compared or counted where nothing can be lost ([`CastPair::is_lossless`]) and on the way to truth values.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Deviation {
    /// The largest `|source − result|`.
    pub absolute: f64,
    /// The largest `|source − result| / |source|` of sources other than zero; 1 where one became zero.
    pub relative: f64,
    /// How many numbers were compared or left out as not finite.
    pub numbers: u64,
    /// Sources that are zero.
    pub zeros: u64,
}

impl Deviation {
    /// Adds another part of the same tensor.
    pub fn merge(&mut self, other: &Deviation) {
        self.absolute = self.absolute.max(other.absolute);
        self.relative = self.relative.max(other.relative);
        self.numbers += other.numbers;
        self.zeros += other.zeros;
    }
}

impl CastPair {
    /// Whether the target has every value of the source, so that nothing is ever lost but payloads of NaNs.
    pub fn is_lossless(self) -> bool {
        let coding = |dtype| Element::of(dtype).map(|element| element.coding);
        match (coding(self.from), coding(self.to)) {
            (_, None) | (None, _) => false,
            (Some(from), Some(to)) => holds(&to, &from),
        }
    }
}

/// Whether `to` has all finite values of `from`, and its infinities.
fn holds(to: &Coding, from: &Coding) -> bool {
    let ends = |coding: &Coding| -> Vec<u64> {
        match coding {
            // A value with every digit set is the one that asks most, at both ends of the range.
            Coding::Float(float) => {
                let sign = [0, float.sign()];
                let all = float.min_normal() - 1;
                let last =
                    [1, all, all | float.min_normal(), float.max_finite(), float.infinity().min(float.sign() - 1)];
                sign.into_iter().flat_map(|sign| last.map(|magnitude| sign | magnitude)).chain([float.sign()]).collect()
            }
            Coding::Scale => vec![0, 254],
            Coding::Int { bits, .. } => {
                let most = u64::MAX >> (64 - bits);
                vec![0, most, most >> 1, (most >> 1) + 1, (most >> 1) + 2]
            }
            Coding::Bool => vec![0, 1],
        }
    };
    let back = |code: u64| scalar::encode(to, scalar::decode(from, code), Overflow::Inf).0;
    ends(from).into_iter().all(|code| {
        let number = scalar::decode(from, code);
        let nan = matches!(number.magnitude, Magnitude::Nan { .. });
        nan || value(number) == value(scalar::decode(to, back(code))) && fits(to, number)
    })
}

/// Whether a cast to `to` counts nothing lost; integers beyond f64 are told apart by their digits.
fn fits(to: &Coding, number: Number) -> bool {
    let Magnitude::Finite { significand, .. } = number.magnitude else { return true };
    let digits = 64u32.saturating_sub(significand.leading_zeros() + significand.trailing_zeros());
    let room = match to {
        Coding::Float(float) => float.fraction_bits + 1,
        Coding::Scale | Coding::Bool => 1,
        Coding::Int { .. } => 64,
    };
    digits <= room
        && matches!(scalar::encode(to, number, Overflow::Inf).1, scalar::Loss::Nothing | scalar::Loss::Subnormal)
}

/// The nearest f64.
fn value(number: Number) -> f64 {
    f64::from_bits(scalar::encode_float(&F64, number, Overflow::Inf).0)
}

/// The value of every code of one byte.
pub(super) fn values(coding: &Coding) -> [f64; 256] {
    std::array::from_fn(|code| value(scalar::decode(coding, code as u64)))
}

/// Whether numbers of this coding are compared in f32.
pub(super) fn is_single(coding: &Coding, bytes: usize) -> bool {
    bytes <= 4 && matches!(coding, Coding::Float(Float { .. }) | Coding::Scale)
}

/// Compares what [`cast`](super::cast) has made with its source.
///
/// ```
/// use weightlift_core::DType;
/// use weightlift_kernels::cast::{CastPair, Overflow, cast, deviation};
/// let pair = CastPair::new(DType::F32, DType::F16).unwrap();
/// let source: Vec<u8> = [1.0f32, 0.0, 1e-9, 2049.0].iter().flat_map(|x| x.to_le_bytes()).collect();
/// let mut halves = [0; 8];
/// cast(pair, Overflow::Inf, &source, &mut halves);
/// let found = deviation(pair, &source, &halves);
/// assert_eq!((found.absolute, found.relative, found.zeros), (1.0, 1.0, 1));
/// ```
///
/// # Panics
/// If the lengths are not those of one and the same number of elements.
pub fn deviation(pair: CastPair, src: &[u8], dst: &[u8]) -> Deviation {
    deviation_in(Room::best(), pair, src, dst)
}

/// [`deviation`] in a given room, or in the definition's where that one is not available or has no loop for the pair.
///
/// # Panics
/// As [`deviation`].
pub fn deviation_in(room: Room, pair: CastPair, src: &[u8], dst: &[u8]) -> Deviation {
    let Some((from, to)) = super::check(pair, src.len(), dst.len()) else { return Deviation::default() };
    if pair.is_lossless() || matches!(to.coding, Coding::Bool) {
        return Deviation::default();
    }
    compare(room, pair, (from, to), src, dst)
}

/// The comparison of a pair that can lose something.
fn compare(room: Room, pair: CastPair, (from, to): (Element, Element), src: &[u8], dst: &[u8]) -> Deviation {
    let fast = pair.of_parts().and_then(|pair| match room {
        Room::Scalar => None,
        Room::Portable => super::portable::deviation(pair, src, dst),
        #[cfg(target_arch = "x86_64")]
        Room::Avx2 => super::avx2::deviation(pair, src, dst).or_else(|| super::portable::deviation(pair, src, dst)),
        #[cfg(not(target_arch = "x86_64"))]
        Room::Avx2 => super::portable::deviation(pair, src, dst),
    });
    let found = fast.unwrap_or_else(|| define(from, to, src, dst));
    Deviation { numbers: (src.len() / from.bytes) as u64, ..found }
}

/// Numbers that are cast and compared while they are in the nearest cache.
const STEP: usize = 2048;

/// [`cast`](super::cast), and [`deviation`] on the way: what is cast is compared while it is at hand, which costs next
/// to nothing.
///
/// # Panics
/// As [`cast`](super::cast).
pub fn cast_and_compare(pair: CastPair, rule: impl Into<Rule>, src: &[u8], dst: &mut [u8]) -> (Tally, Deviation) {
    let rule = rule.into();
    let Some((from, to)) = super::check(pair, src.len(), dst.len()) else { return Default::default() };
    if pair.is_lossless() || matches!(to.coding, Coding::Bool) {
        return (super::cast(pair, rule, src, dst), Deviation::default());
    }
    let (room, mut total) = (Room::best(), (Tally::default(), Deviation::default()));
    for (src, dst) in src.chunks(STEP * from.size()).zip(dst.chunks_mut(STEP * to.size())) {
        total.0.merge(&super::cast(pair, rule, src, dst));
        total.1.merge(&compare(room, pair, (from, to), src, dst));
    }
    total
}

/// The definition.
fn define(from: Element, to: Element, src: &[u8], dst: &[u8]) -> Deviation {
    let stride = if from.numbers == to.numbers { to.bytes } else { to.size() };
    let (mut found, single) = (Deviation::default(), is_single(&from.coding, from.bytes));
    for (source, target) in src.chunks_exact(from.bytes).zip(dst.chunks_exact(stride)) {
        let x = value(scalar::decode(&from.coding, scalar::load(source)));
        let y = value(scalar::decode(&to.coding, scalar::load(&target[..to.bytes])));
        found.zeros += u64::from(x == 0.0);
        if !(x.is_finite() && y.is_finite()) {
            continue;
        }
        let (absolute, relative) = if single { f32_errors(x, y) } else { ((x - y).abs(), (x - y).abs() / x.abs()) };
        found.absolute = found.absolute.max(absolute);
        found.relative = found.relative.max(if x == 0.0 { 0.0 } else { relative });
    }
    found
}

fn f32_errors(x: f64, y: f64) -> (f64, f64) {
    let (x, y) = (x as f32, y as f32);
    ((x - y).abs().into(), ((x - y).abs() / x.abs()).into())
}
