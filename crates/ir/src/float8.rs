//! 8-bit floats, as the bits in the `u8` operands of [`Op::MatMulFloat8`](crate::Op::MatMulFloat8).
//!
//! The two formats are those of [Micikevicius et al. 2022](https://arxiv.org/abs/2209.05433), and of PyTorch's `float8_e4m3fn`
//! and `float8_e5m2`.

use crate::op::named_enum;
use crate::{Binary, Comparison, DType, Op, Scalar, Var};

named_enum! {
    /// The format of an 8-bit float: the widths of exponent and fraction.
    ///
    /// ```
    /// use kiln_ir::Float8;
    ///
    /// assert_eq!(Float8::E4M3.encode(0.3), 0x2a);
    /// assert_eq!(Float8::E4M3.decode(0x2a), 0.3125);
    /// assert_eq!(Float8::E4M3.greatest(), 448.0);
    /// assert_eq!(Float8::E4M3.decode(Float8::E4M3.encode(1e6)), 448.0);
    /// assert_eq!(Float8::E5M2.decode(Float8::E5M2.encode(1e6)), f32::INFINITY);
    /// ```
    Float8 {
        /// 4 bits of exponent and 3 of fraction: up to 448, down to 2⁻⁹, no infinities. For weights and activations.
        E4M3 = "e4m3",
        /// 5 bits of exponent and 2 of fraction: up to 57,344, down to 2⁻¹⁶, with infinities. For gradients.
        E5M2 = "e5m2",
    }
}

impl Float8 {
    /// Returns the greatest finite value.
    pub const fn greatest(self) -> f32 {
        match self {
            Float8::E4M3 => 448.0,
            Float8::E5M2 => 57_344.0,
        }
    }

    /// Decodes bits to a number.
    pub fn decode(self, bits: u8) -> f32 {
        let fraction = self.fraction();
        let magnitude = u32::from(bits & 0x7f);
        let number = if magnitude >= self.infinity() {
            f32::from_bits(magnitude << (23 - fraction) | f32::INFINITY.to_bits())
        } else if magnitude < 1 << fraction {
            magnitude as f32 * self.least()
        } else {
            f32::from_bits((magnitude << (23 - fraction)) + self.rebias())
        };
        if bits & 0x80 == 0 { number } else { -number }
    }

    /// Encodes the nearest representable number, ties to even. Overflow becomes an infinity in [`E5M2`](Float8::E5M2),
    /// and saturates in [`E4M3`](Float8::E4M3), which has no infinity, like PyTorch's casts. NaN remains NaN.
    pub fn encode(self, x: f32) -> u8 {
        let (sign, magnitude) = (x.to_bits() >> 24 & 0x80, x.to_bits() & 0x7fff_ffff);
        let code = if magnitude > f32::INFINITY.to_bits() {
            0x7f
        } else if magnitude < self.least_normal() {
            (f32::from_bits(magnitude) + self.magic()).to_bits() - self.magic().to_bits()
        } else {
            let dropped = 23 - self.fraction();
            let half = (1 << (dropped - 1)) - 1 + (magnitude >> dropped & 1);
            ((magnitude + half - self.rebias()) >> dropped).min(self.most())
        };
        (sign | code) as u8
    }

    /// The number of fraction bits.
    const fn fraction(self) -> u32 {
        match self {
            Float8::E4M3 => 3,
            Float8::E5M2 => 2,
        }
    }

    /// The exponent bias.
    const fn bias(self) -> u32 {
        match self {
            Float8::E4M3 => 7,
            Float8::E5M2 => 15,
        }
    }

    /// The encoding of overflow.
    const fn most(self) -> u32 {
        match self {
            Float8::E4M3 => 0x7e,
            Float8::E5M2 => 0x7c,
        }
    }

    /// The first encoding after the finite values: infinity if the format has one, else NaN.
    const fn infinity(self) -> u32 {
        match self {
            Float8::E4M3 => 0x7f,
            Float8::E5M2 => 0x7c,
        }
    }

    /// The difference between the exponent biases of `f32` and this format, shifted to the exponent field.
    const fn rebias(self) -> u32 {
        (127 - self.bias()) << 23
    }

    /// The bits of the smallest `f32` that is a normal number in this format.
    const fn least_normal(self) -> u32 {
        (128 - self.bias()) << 23
    }

    /// The smallest positive number: the spacing of subnormals.
    const fn least(self) -> f32 {
        f32::from_bits((128 - self.bias() - self.fraction()) << 23)
    }

    /// The `f32` whose ulp is the [smallest subnormal](Float8::least): adding it rounds to that spacing.
    const fn magic(self) -> f32 {
        f32::from_bits((151 - self.bias() - self.fraction()) << 23)
    }

    /// Applies [`encode`](Float8::encode) to all elements: `u8` bits, by integer ops that fuse. Floats of other dtypes
    /// are rounded to `f32` first.
    pub fn encoded<'e>(self, x: &Var<'e>) -> Var<'e> {
        let bits = bitcast(&x.cast(DType::F32), DType::U32);
        let number = |n: u32| bits.scalar(n);
        let sign = shifted(&bits, Binary::Shr, 24).and(&number(0x80));
        let magnitude = bits.and(&number(0x7fff_ffff));
        let magic = self.magic();
        let small = bitcast(&(bitcast(&magnitude, DType::F32) + f64::from(magic)), DType::U32)
            .binary(Binary::Sub, &number(magic.to_bits()));
        let dropped = 23 - self.fraction();
        let odd = shifted(&magnitude, Binary::Shr, dropped).and(&number(1));
        let half = odd.binary(Binary::Add, &number((1 << (dropped - 1)) - 1));
        let rounded = magnitude.binary(Binary::Add, &half).binary(Binary::Sub, &number(self.rebias()));
        let large = shifted(&rounded, Binary::Shr, dropped).min(&number(self.most()));
        let code = magnitude.compare(Comparison::Lt, &number(self.least_normal())).select(&small, &large);
        let is_number = magnitude.compare(Comparison::Le, &number(f32::INFINITY.to_bits()));
        is_number.select(&code, &number(0x7f)).or(&sign).cast(DType::U8)
    }

    /// Applies [`decode`](Float8::decode) to all elements of a `u8` tensor: `f32`, by integer ops that fuse.
    pub fn decoded<'e>(self, bits: &Var<'e>) -> Var<'e> {
        let bits = bits.cast(DType::U32);
        let number = |n: u32| bits.scalar(n);
        let magnitude = bits.and(&number(0x7f));
        let is_below = |n: u32| magnitude.compare(Comparison::Lt, &number(n));
        let placed = shifted(&magnitude, Binary::Shl, 23 - self.fraction());
        let normal = placed.binary(Binary::Add, &number(self.rebias()));
        let small = bitcast(&(magnitude.cast(DType::F32) * f64::from(self.least())), DType::U32);
        // An infinity has a zero fraction, and a NaN a nonzero one.
        let beyond = placed.or(&number(f32::INFINITY.to_bits()));
        let finite = is_below(1 << self.fraction()).select(&small, &normal);
        let unsigned = is_below(self.infinity()).select(&finite, &beyond);
        let sign = shifted(&bits.and(&number(0x80)), Binary::Shl, 24);
        bitcast(&unsigned.or(&sign), DType::F32)
    }
}

fn bitcast<'e>(x: &Var<'e>, dtype: DType) -> Var<'e> {
    x.apply(Op::Bitcast(dtype), &[])
}

fn shifted<'e>(x: &Var<'e>, direction: Binary, bits: u32) -> Var<'e> {
    x.binary(direction, &x.scalar(Scalar::UInt(bits.into())))
}
