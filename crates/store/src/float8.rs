//! 8-bit floats in files: decoded to `f32` when they are read, since they are no dtype (see `docs/design/float8-as-bits.md`).

use kiln_tensor::float8::Float8 as Ieee;

/// A format of 8-bit floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Float8 {
    /// `E4M3` without infinities, or `E5M2`: [Micikevicius et al. 2022](https://arxiv.org/abs/2209.05433).
    Ieee(Ieee),
    /// Finite, with an unsigned zero, and NaN in place of -0: [Noune et al. 2022](https://arxiv.org/abs/2206.02915). The
    /// number of fraction bits.
    Fnuz(u32),
    /// A power of two, 2^(bits - 127), for scales:
    /// [OCP Microscaling 1.0](https://www.opencompute.org/documents/ocp-microscaling-formats-mx-v1-0-spec-final-pdf).
    E8M0,
}

impl Float8 {
    /// Returns the format of a dtype name of safetensors, which is the dtype name of
    /// [`TensorInfo`](crate::TensorInfo).
    pub(crate) fn from_name(name: &str) -> Option<Float8> {
        Some(match name {
            "F8_E4M3" => Float8::Ieee(Ieee::E4M3),
            "F8_E5M2" => Float8::Ieee(Ieee::E5M2),
            "F8_E4M3FNUZ" => Float8::Fnuz(3),
            "F8_E5M2FNUZ" => Float8::Fnuz(2),
            "F8_E8M0" => Float8::E8M0,
            _ => return None,
        })
    }

    /// Whether every float dtype has all its values, so that a cast loses nothing.
    pub(crate) fn fits_every_float(self) -> bool {
        self != Float8::E8M0
    }

    /// Decodes bytes.
    pub(crate) fn decode_all(self, bytes: &[u8]) -> Vec<f32> {
        let table: Vec<f32> = (0..=u8::MAX).map(|bits| self.decode(bits)).collect();
        bytes.iter().map(|&bits| table[usize::from(bits)]).collect()
    }

    fn decode(self, bits: u8) -> f32 {
        match self {
            Float8::Ieee(format) => format.decode(bits),
            Float8::Fnuz(_) if bits == 0x80 => f32::NAN,
            Float8::Fnuz(fraction) => {
                let (exponent, significand) =
                    (u32::from(bits & 0x7f) >> fraction, bits & ((1 << fraction) - 1));
                // The bias is 2^(exponent bits - 1). Subnormals have the exponent of the smallest normal numbers.
                let bias = 1 << (6 - fraction);
                let implicit = if exponent == 0 { 0 } else { 1 << fraction };
                let scale = exponent.max(1) as i32 - bias - fraction as i32;
                let magnitude =
                    (u32::from(significand) + implicit) as f32 * f32::from_bits(((scale + 127) as u32) << 23);
                if bits & 0x80 == 0 { magnitude } else { -magnitude }
            }
            Float8::E8M0 if bits == 0xff => f32::NAN,
            // 2^-127 is subnormal.
            Float8::E8M0 => f32::from_bits((u32::from(bits) << 23).max(1 << 22)),
        }
    }
}
