//! The number formats, as constants of the shaders.

use std::fmt::Write as _;

/// How a number is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // Their names are those of the formats.
pub enum Coding {
    F64,
    F32,
    F16,
    Bf16,
    F8E5m2,
    F8E4m3fn,
    F8E4m3fnuz,
    F8E5m2fnuz,
    F8E4m3b11fnuz,
    F8E8m0fnu,
}

/// What a format of at most 16 bits does with its topmost codes.
enum Special {
    /// Infinity, and NaNs above it.
    Infinity,
    /// All ones is NaN.
    NanAtTop,
    /// The code of negative zero is NaN.
    NanAtNegativeZero,
}

impl Coding {
    /// All of them.
    pub const ALL: [Coding; 10] = [
        Coding::F64,
        Coding::F32,
        Coding::F16,
        Coding::Bf16,
        Coding::F8E5m2,
        Coding::F8E4m3fn,
        Coding::F8E4m3fnuz,
        Coding::F8E5m2fnuz,
        Coding::F8E4m3b11fnuz,
        Coding::F8E8m0fnu,
    ];

    /// Bytes of a number.
    pub fn bytes(self) -> u32 {
        match self {
            Coding::F64 => 8,
            Coding::F32 => 4,
            Coding::F16 | Coding::Bf16 => 2,
            _ => 1,
        }
    }

    /// Exponent bits, fraction bits and bias of a format of at most 16 bits that has a sign.
    fn small(self) -> Option<(u32, u32, u32, Special)> {
        match self {
            Coding::F16 => Some((5, 10, 15, Special::Infinity)),
            Coding::Bf16 => Some((8, 7, 127, Special::Infinity)),
            Coding::F8E5m2 => Some((5, 2, 15, Special::Infinity)),
            Coding::F8E4m3fn => Some((4, 3, 7, Special::NanAtTop)),
            Coding::F8E4m3fnuz => Some((4, 3, 8, Special::NanAtNegativeZero)),
            Coding::F8E5m2fnuz => Some((5, 2, 16, Special::NanAtNegativeZero)),
            Coding::F8E4m3b11fnuz => Some((4, 3, 11, Special::NanAtNegativeZero)),
            Coding::F64 | Coding::F32 | Coding::F8E8m0fnu => None,
        }
    }

    /// What `widen` and `narrow` need to know, under names that begin with `side`.
    pub(crate) fn constants(self, side: &str, saturate: bool) -> String {
        let mut text = String::new();
        let mut word = |name: &str, value: u32| {
            let _ = writeln!(text, "const {side}_{name}: u32 = {value:#x}u;");
        };
        let Some((exponent, fraction, bias, special)) = self.small() else {
            // The largest finite f32, or its infinity.
            word("OVERFLOW", if saturate { 0x7f7f_ffff } else { 0x7f80_0000 });
            let _ = writeln!(text, "const {side}_SPECIAL_ON_OVERFLOW: bool = {};", !saturate);
            return text;
        };
        let sign = 1 << (exponent + fraction);
        let (infinity, nans, max) = match special {
            Special::Infinity => {
                let infinity = ((1 << exponent) - 1) << fraction;
                (infinity, None, infinity - 1)
            }
            Special::NanAtTop => (0, Some((sign - 1, sign | (sign - 1), true)), sign - 2),
            Special::NanAtNegativeZero => (0, Some((sign, sign, false)), sign - 1),
        };
        // No code of the format is all ones in 32 bits.
        let (nan, negative_nan, nan_has_sign) = nans.unwrap_or((u32::MAX, u32::MAX, true));
        let (overflow, has_sign) = match (saturate, infinity) {
            (true, _) => (max, true),
            (false, 0) => (nan, nan_has_sign),
            (false, infinity) => (infinity, true),
        };
        let numbers = [("SIGN_AT", exponent + fraction), ("FRACTION", fraction), ("BIAS", bias), ("MAX", max)];
        let codes = [("INFINITY", infinity), ("NAN", nan), ("NEGATIVE_NAN", negative_nan), ("OVERFLOW", overflow)];
        numbers.into_iter().chain(codes).for_each(|(name, value)| word(name, value));
        let negative_zero = !matches!(special, Special::NanAtNegativeZero);
        for (name, value) in
            [("NAN_HAS_SIGN", nan_has_sign), ("OVERFLOW_HAS_SIGN", has_sign), ("NEGATIVE_ZERO", negative_zero)]
        {
            let _ = writeln!(text, "const {side}_{name}: bool = {value};");
        }
        text
    }

    /// From a code of it to the f32 with its value.
    pub(crate) fn widen(self) -> &'static str {
        match self {
            Coding::F64 => include_str!("wgsl/widen_f64.wgsl"),
            Coding::F32 => include_str!("wgsl/widen_f32.wgsl"),
            Coding::F8E8m0fnu => include_str!("wgsl/widen_scale.wgsl"),
            _ => include_str!("wgsl/widen_small.wgsl"),
        }
    }

    /// From there to a code of it.
    pub(crate) fn narrow(self) -> &'static str {
        match self {
            Coding::F64 => include_str!("wgsl/narrow_f64.wgsl"),
            Coding::F32 => include_str!("wgsl/narrow_f32.wgsl"),
            Coding::F8E8m0fnu => include_str!("wgsl/narrow_scale.wgsl"),
            _ => include_str!("wgsl/narrow_small.wgsl"),
        }
    }
}
