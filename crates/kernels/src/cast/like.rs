//! The casts of other programs, bit for bit: what NumPy with ml_dtypes, TensorFlow and PyTorch do on x86-64.
//!
//! They differ from the definition in five ways, pair by pair: values wider than f32 are rounded to f32 first
//! ([`Manner::near`]), numbers below the normal f32 are taken for zero ([`Manner::flush`]), PyTorch saturates f8e4m3fn,
//! f8e8m0fnu has rules of its own, and NaNs come out with other bits. What they do on the way to integers and truth
//! values is not imitated: there the definition holds.
//!
//! Some bits of NaNs depend on where in a tensor they stand, since vector loops and their leftovers disagree. Those
//! given here are the ones of the loops.

use super::format::{Coding, E5M2, Element, F32, Float, Special};
use super::scalar::{self, Loss, Magnitude, Number};
use super::{CastPair, Overflow, Room, Rule, Tally, run_fast};
use weightlift_core::DType;

/// Whose bits a cast gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Like {
    /// The definition's.
    #[default]
    Exact,
    /// NumPy 2.4 with ml_dtypes 0.7.
    NumPy,
    /// TensorFlow 2.21 on a CPU.
    TensorFlow,
    /// PyTorch 2.15 on a CPU with AVX2.
    Torch,
}

impl Like {
    /// The name of the program; that of the definition is `exact`.
    pub fn name(self) -> &'static str {
        match self {
            Like::Exact => "exact",
            Like::NumPy => "NumPy with ml_dtypes",
            Like::TensorFlow => "TensorFlow",
            Like::Torch => "PyTorch",
        }
    }

    /// Whether the program has this cast; where it does not, [`cast`](super::cast) follows the definition.
    pub fn has(self, pair: CastPair) -> bool {
        let known = |dtype: DType| match self {
            Like::Exact => true,
            Like::NumPy => !matches!(dtype, DType::C32 | DType::Bc32),
            Like::TensorFlow => {
                let wide = dtype.bits().is_some_and(|bits| bits >= 8) && !matches!(dtype, DType::C32 | DType::Bc32);
                wide && (small(dtype).is_none() || matches!(dtype, DType::F8E4m3fn | DType::F8E5m2))
            }
            Like::Torch => {
                let sub_byte = dtype.bits().is_some_and(|bits| bits < 8);
                !sub_byte && !matches!(dtype, DType::F8E4m3b11fnuz | DType::Bc32)
            }
        };
        let float = |dtype: DType| dtype.is_float();
        let (from, to) = (pair.from, pair.to);
        // TensorFlow has its 8-bit floats from and to floats alone.
        let apart = self == Like::TensorFlow
            && ((small(from).is_some() && !float(to)) || (small(to).is_some() && !float(from)));
        known(from) && known(to) && !apart
    }
}

/// The one-byte coding of a float of at most eight bits.
fn small(dtype: DType) -> Option<Coding> {
    let element = Element::of(dtype).filter(|element| element.bytes == 1)?;
    matches!(element.coding, Coding::Float(_) | Coding::Scale).then_some(element.coding)
}

/// What a program does otherwise with a pair of real dtypes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Manner {
    /// Rounds to f32 first.
    near: bool,
    /// Takes what is below the normal f32 for zero.
    flush: bool,
    /// Saturates, infinities too, whatever the policy.
    saturate: bool,
    /// Has a rule of its own for f8e8m0fnu.
    scale: bool,
    /// Gives NaNs other bits than the definition.
    nan: bool,
}

impl Manner {
    fn of(like: Like, pair: CastPair) -> Manner {
        let (from, to) = (pair.from, pair.to);
        let has = |dtypes: &[DType], dtype| dtypes.contains(&dtype);
        let lossy = !matches!(to, DType::F64 | DType::F32);
        let wide = matches!(from, DType::F64 | DType::I64 | DType::U64 | DType::I32 | DType::U32);
        let flushed =
            [(DType::F64, DType::F32), (DType::F64, DType::Bf16), (DType::F32, DType::F64), (DType::Bf16, DType::F64)];
        let near = match like {
            Like::Torch => wide && lossy,
            Like::TensorFlow => wide && has(&[DType::F16, DType::Bf16], to),
            Like::Exact | Like::NumPy => false,
        };
        Manner {
            near,
            flush: like == Like::TensorFlow && flushed.contains(&(from, to)),
            saturate: like == Like::Torch && to == DType::F8E4m3fn,
            scale: matches!(like, Like::NumPy | Like::Torch) && to == DType::F8E8m0fnu,
            nan: from.is_float(),
        }
    }
}

/// A pair of real dtypes with everything the definition needs of it.
struct Imitation {
    like: Like,
    manner: Manner,
    pair: CastPair,
    from: Element,
    to: Element,
    overflow: Overflow,
}

impl Imitation {
    /// `None` where the definition holds as it is.
    fn new(rule: Rule, pair: CastPair) -> Option<Imitation> {
        let (from, to) = (Element::of(pair.from)?, Element::of(pair.to)?);
        let imitated = matches!(to.coding, Coding::Float(_) | Coding::Scale) && rule.like.has(pair);
        let manner = Manner::of(rule.like, pair);
        let overflow = if manner.saturate { Overflow::Saturate } else { rule.overflow };
        (rule.like != Like::Exact && imitated).then_some(Imitation {
            like: rule.like,
            manner,
            pair,
            from,
            to,
            overflow,
        })
    }

    /// The code of the number `code` stands for, and what was lost.
    fn convert(&self, code: u64) -> (u64, Loss) {
        let number = scalar::decode(&self.from.coding, code);
        if matches!(number.magnitude, Magnitude::Nan { .. }) {
            return (self.nan(code), Loss::Nan);
        }
        if self.manner.flush && is_flushed(number) {
            return (self.encode(Number { magnitude: ZERO, ..number }).0, Loss::ToZero);
        }
        self.rounded(number)
    }

    /// The cast of what is neither NaN nor taken for zero.
    fn rounded(&self, number: Number) -> (u64, Loss) {
        self.encode(if self.manner.near { near(number) } else { number })
    }

    fn encode(&self, number: Number) -> (u64, Loss) {
        if !self.manner.scale {
            return scalar::encode(&self.to.coding, number, self.overflow);
        }
        match self.like {
            Like::NumPy => scalar::encode_nearest_scale(number, self.overflow),
            _ => unsigned_scale(number, self.overflow),
        }
    }

    /// Whether the definition's cast of `code` has to be replaced.
    fn is_odd(&self, code: u64) -> bool {
        let number = scalar::decode(&self.from.coding, code);
        let nan = matches!(number.magnitude, Magnitude::Nan { .. });
        nan && self.manner.nan || self.manner.flush && is_flushed(number)
    }

    /// The code of a NaN.
    fn nan(&self, code: u64) -> u64 {
        let own = scalar::convert(&self.from.coding, &self.to.coding, self.overflow, code).0;
        let (Coding::Float(to), Some(payload)) = (&self.to.coding, payload(&self.from.coding, code)) else {
            return own;
        };
        let quiet = own & to.sign() | scalar::nan_code(to, 0, 0);
        let kept = own & to.sign() | to.infinity() | (payload >> (64 - to.fraction_bits)).max(1);
        match (self.like, self.pair.from, self.pair.to) {
            (Like::NumPy, ..) if to.special == Special::Nothing => to.sign() & !sign_of(&self.from.coding, code, to),
            (_, DType::Bf16, DType::F32) => kept,
            (Like::NumPy, DType::F64 | DType::F32, DType::F16) => kept,
            (Like::NumPy, DType::F16, DType::F32 | DType::F64) => kept,
            (Like::NumPy, DType::F64 | DType::F32, DType::F64 | DType::F32) => own,
            (Like::NumPy, DType::Bf16, DType::F64) => own,
            (Like::NumPy, ..) => quiet,
            (Like::TensorFlow, DType::F32, DType::Bf16) => quiet & !to.sign(),
            (Like::TensorFlow, _, DType::Bf16) => quiet,
            (Like::TensorFlow, DType::F16, DType::F8E5m2) => own,
            (Like::TensorFlow, _, DType::F8E5m2) => quiet,
            (Like::TensorFlow, DType::F8E5m2, _) => quiet,
            (Like::Torch, DType::F64 | DType::F32, DType::Bf16) => 0xffff,
            (Like::Torch, _, DType::Bf16) => 0x7fc0,
            (Like::Torch, from, _) if small(from).is_some() => torch_nan(from, code, to),
            (Like::Torch, _, DType::F8E5m2) => own | 0x7f,
            _ => own,
        }
    }
}

const ZERO: Magnitude = Magnitude::Finite { significand: 0, exponent: 0 };

/// The fraction of a float from the top of 64 bits.
fn payload(from: &Coding, code: u64) -> Option<u64> {
    let Coding::Float(from) = from else { return Some(0) };
    Some((code & (from.min_normal() - 1)) << (64 - from.fraction_bits))
}

/// The sign of `to` where the NaN is negative.
fn sign_of(from: &Coding, code: u64, to: &Float) -> u64 {
    if scalar::decode(from, code).negative { to.sign() } else { 0 }
}

/// PyTorch reads its 8-bit floats as f32: a NaN of one that has a single NaN without a payload is 7f800001 there, that
/// of f8e4m3fn keeps its three bits.
fn torch_nan(from: DType, code: u64, to: &Float) -> u64 {
    let single = match from {
        DType::F8E5m2 => scalar::convert_float(&E5M2, &F32, Overflow::Inf, code).0,
        DType::F8E4m3fn => (code & 0x80) << 24 | 0x7ff0_0000,
        _ => 0x7f80_0001,
    };
    match to.special {
        Special::Infinity if *to == F32 => single,
        Special::Infinity if *to == E5M2 => single >> 24 & 0x80 | 0x7f,
        _ => scalar::convert_float(&F32, to, Overflow::Inf, single).0,
    }
}

/// Whether arithmetic that flushes takes a number for zero: rounded to the digits of f32 it is below the normal ones.
fn is_flushed(number: Number) -> bool {
    let Magnitude::Finite { significand, exponent } = number.magnitude else { return false };
    // The tie below the least normal number rounds up to it.
    let bound = Float { bias: 1023, ..F32 };
    let least = scalar::decode_float(&F32, F32.min_normal());
    let rounded = scalar::round(&bound, significand, exponent);
    let Magnitude::Finite { significand: least, exponent: power } = least.magnitude else { return false };
    significand != 0 && rounded < scalar::round(&bound, least, power)
}

/// Rounded to f32, but neither to zero nor to infinity, which would hide that something was lost.
fn near(number: Number) -> Number {
    let Magnitude::Finite { significand: 1.., .. } = number.magnitude else { return number };
    let single = scalar::encode_float(&F32, Number { negative: false, ..number }, Overflow::Saturate).0;
    Number { magnitude: scalar::decode_float(&F32, single.max(1)).magnitude, ..number }
}

/// PyTorch's rule for f8e8m0fnu: that of the definition, of the magnitude; 0 is taken for the least power. What has no
/// sign or no power counts as beyond the format all the same.
fn unsigned_scale(number: Number, overflow: Overflow) -> (u64, Loss) {
    let (code, loss) = match number.magnitude {
        Magnitude::Finite { significand: 0, .. } => (0, Loss::Overflow),
        _ => scalar::encode(&Coding::Scale, Number { negative: false, ..number }, overflow),
    };
    (code, if number.negative { Loss::Overflow } else { loss })
}

/// Elements that are cast by a fast room and looked through at once.
const BLOCK: usize = 4096;

/// The cast of elements whose numbers the dispatcher has checked, or `None` where the definition holds as it is.
pub(super) fn run(room: Room, pair: CastPair, rule: Rule, src: &[u8], dst: &mut [u8]) -> Option<Tally> {
    let real = pair.of_parts().unwrap_or(CastPair { from: pair.from, to: real_part(pair.to) });
    let imitation = Imitation::new(rule, real)?;
    let whole = Element::of(pair.to)?;
    let stride = if pair.of_parts().is_some() { imitation.to.bytes } else { whole.size() };
    let mut tally = Tally::default();
    let blocks = src.chunks(BLOCK * imitation.from.bytes).zip(dst.chunks_mut(BLOCK * stride));
    for (src, dst) in blocks {
        let fast = pair.of_parts().filter(|_| !imitation.manner.scale);
        let done = fast.and_then(|_| run_fast(room, pair, imitation.overflow, imitation.manner.near, src, dst));
        tally.merge(&match done {
            Some(counted) => imitation.patch(counted, src, dst),
            None => scalar::run_with(imitation.from, whole, stride, src, dst, |code| imitation.convert(code)),
        });
    }
    Some(tally)
}

fn real_part(dtype: DType) -> DType {
    match dtype {
        DType::C128 => DType::F64,
        DType::C64 => DType::F32,
        DType::C32 => DType::F16,
        DType::Bc32 => DType::Bf16,
        real => real,
    }
}

impl Imitation {
    /// Replaces what the program does otherwise in a block that was cast by the definition.
    fn patch(&self, mut tally: Tally, src: &[u8], dst: &mut [u8]) -> Tally {
        if !(self.manner.flush || self.manner.nan && tally.nan > 0) {
            return tally;
        }
        for (source, target) in src.chunks_exact(self.from.bytes).zip(dst.chunks_exact_mut(self.to.bytes)) {
            let code = scalar::load(source);
            if self.is_odd(code) {
                let was = self.rounded(scalar::decode(&self.from.coding, code)).1;
                let (code, loss) = self.convert(code);
                target.copy_from_slice(&code.to_le_bytes()[..target.len()]);
                tally.uncount(was);
                tally.count(loss, 1);
            }
        }
        tally
    }
}
