//! Branch-free conversions between 16-bit floats and `f32`, so that loops over them are vectorized.
//!
//! Widening and narrowing preserves the bits of a number, including a NaN's: kernels that only move 16-bit floats pass
//! them through `f32`.

use half::{bf16, f16};

/// A 16-bit float.
pub(crate) trait HalfFloat: Copy {
    fn widen(self) -> f32;

    /// Rounds to nearest, ties to even.
    fn narrow(x: f32) -> Self;
}

impl HalfFloat for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(x: f32) -> bf16 {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let nan = bits >> 16;
        // With an empty fraction it would be an infinity.
        let nan = if nan & 0x7f == 0 { nan | 0x40 } else { nan };
        bf16::from_bits(if x.is_nan() { nan } else { rounded } as u16)
    }
}

impl HalfFloat for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let sign = (bits & 0x8000) << 16;
        let magnitude = (bits & 0x7fff) << 13;
        let exponent = magnitude & 0x0f80_0000;
        let normal = magnitude + ((127 - 15) << 23);
        let special = magnitude + ((255 - 31) << 23);
        // 2⁻¹⁴ plus the subnormal's bits, minus 2⁻¹⁴.
        let subnormal = (f32::from_bits(magnitude + (113 << 23)) - f32::from_bits(113 << 23)).to_bits();
        let wide = if exponent == 0x0f80_0000 { special } else { normal };
        let wide = if exponent == 0 { subnormal } else { wide };
        f32::from_bits(wide | sign)
    }

    #[inline(always)]
    fn narrow(x: f32) -> f16 {
        let sign = (x.to_bits() >> 16) & 0x8000;
        let magnitude = x.to_bits() & 0x7fff_ffff;
        let odd = (magnitude >> 13) & 1;
        let normal = magnitude.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + odd) >> 13;
        // Adding ½ shifts a subnormal's bits to the bottom and rounds them.
        let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
        let finite = if magnitude < (113 << 23) { subnormal } else { normal };
        let narrow = if magnitude >= (143 << 23) { 0x7c00 } else { finite };
        let fraction = (magnitude >> 13) & 0x3ff;
        // With an empty fraction it would be an infinity.
        let nan = 0x7c00 | if fraction == 0 { 0x200 } else { fraction };
        let narrow = if magnitude > 0x7f80_0000 { nan } else { narrow };
        f16::from_bits((narrow | sign) as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widening_and_narrowing_round_trips_every_bit_pattern() {
        for bits in 0..=u16::MAX {
            let (x, y) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert_eq!(f16::narrow(x.widen()).to_bits(), bits);
            assert_eq!(bf16::narrow(y.widen()).to_bits(), bits);
            assert!(x.is_nan() || x.widen().to_bits() == x.to_f32().to_bits());
            assert_eq!(x.is_nan(), x.widen().is_nan());
        }
    }

    #[test]
    fn rounding_agrees_with_half() {
        for i in 0..2_000_000u32 {
            let x = f32::from_bits(i.wrapping_mul(2147).wrapping_add(i << 16));
            if x.is_nan() {
                assert!(f16::narrow(x).is_nan() && bf16::narrow(x).is_nan());
            } else {
                assert_eq!(f16::narrow(x).to_bits(), f16::from_f32(x).to_bits(), "{x:e}");
                assert_eq!(bf16::narrow(x).to_bits(), bf16::from_f32(x).to_bits(), "{x:e}");
            }
        }
    }
}
