//! Properties shared by the inputs and ops of a generated program.

use super::Generator;
use crate::random::Random;
use kiln_ir::{DType, Shape};
use kiln_suite::case::Fill;

/// The style of a program.
#[derive(Clone, Debug)]
pub struct Style {
    /// Floats are `f64` and inputs moderate, so that finite differences approximate gradients.
    pub smooth: bool,
    /// Inputs contain NaN, infinities, subnormals, extreme integers and random bits.
    pub special: bool,
    /// Indices may be out of range.
    pub stray: bool,
    /// The preferred dtypes.
    pub dtypes: Vec<DType>,
    /// The preferred axis lengths.
    pub lengths: Vec<usize>,
    /// The maximum number of elements of an input.
    pub most_elements: usize,
    /// The program is a long chain of fusible ops: elementwise functions, views, and row reductions that combine with
    /// their rows. It fuses into large regions.
    pub chains: bool,
    /// The remaining nesting depth of fused regions.
    pub nesting: usize,
}

const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];
const LENGTHS: [usize; 16] = [1, 1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 40];

impl Style {
    /// Draws a random style.
    pub fn draw(random: &mut Random) -> Style {
        let smooth = random.chance(30);
        let special = !smooth && random.chance(30);
        let integers: Vec<DType> = DType::ALL.into_iter().filter(|dtype| dtype.is_int()).collect();
        let mut dtypes = vec![random.pick(&integers)];
        if smooth {
            dtypes.extend([DType::F64; 5]);
        } else {
            dtypes.extend([random.pick(&FLOATS), random.pick(&DType::ALL)]);
        }
        let mut lengths: Vec<usize> = (0..3).map(|_| random.pick(&LENGTHS)).collect();
        if random.chance(8) {
            lengths.push(0);
        }
        let chains = random.chance(25);
        let large = !smooth && random.chance(if chains { 4 } else { 1 });
        if large {
            lengths.extend([67, 130, 300]);
        }
        Style {
            smooth,
            special,
            stray: !smooth && random.chance(4),
            dtypes,
            lengths,
            most_elements: if large {
                30_000
            } else if smooth {
                48
            } else {
                200
            },
            chains,
            nesting: 2,
        }
    }
}

impl Generator<'_> {
    /// An accepted dtype, if possible a preferred one.
    pub(super) fn dtype(&mut self, ok: impl Fn(DType) -> bool) -> DType {
        let allowed = |dtype: DType| ok(dtype) && self.allows(dtype);
        let mut suitable: Vec<DType> = self.style.dtypes.iter().copied().filter(|&d| allowed(d)).collect();
        if suitable.is_empty() {
            suitable = DType::ALL.into_iter().filter(|&dtype| allowed(dtype)).collect();
        }
        self.random.pick(&suitable)
    }

    /// Whether the style allows a dtype: smooth programs have one float dtype.
    pub(super) fn allows(&self, dtype: DType) -> bool {
        !self.style.smooth || !dtype.is_float() || dtype == DType::F64
    }

    /// An axis length.
    pub(super) fn length(&mut self) -> usize {
        let lengths = std::mem::take(&mut self.style.lengths);
        let length =
            if self.random.chance(85) { self.random.pick(&lengths) } else { self.random.between(1, 6) };
        self.style.lengths = lengths;
        length
    }

    /// An axis length from 1 to a maximum.
    pub(super) fn short(&mut self, most: usize) -> usize {
        self.length().clamp(1, most)
    }

    /// A shape of a rank, with not too many elements.
    pub(super) fn shape(&mut self, rank: usize) -> Shape {
        let mut shape: Shape = (0..rank).map(|_| self.length()).collect();
        while shape.num_elements() > self.style.most_elements {
            let axis = self.random.below(rank);
            shape[axis] = (shape[axis] / 2).max(1);
        }
        shape
    }

    /// The fill rule of an input with arbitrary data.
    pub(super) fn fill(&mut self, dtype: DType) -> Fill {
        if self.style.smooth {
            return self.random.pick(&[
                Fill::Normal,
                Fill::Normal,
                Fill::Distinct,
                Fill::Away,
                Fill::Positive,
            ]);
        }
        if self.style.special && self.random.chance(60) {
            return self.random.pick(&[Fill::Special, Fill::Special, Fill::Bits]);
        }
        let repeating =
            if dtype.is_float() { Fill::Among(&[-1.0, 0.0, 0.5, 2.0]) } else { Fill::Uniform(-2.0, 2.0) };
        self.random.pick(&[Fill::Normal, Fill::Normal, Fill::Distinct, Fill::Away, Fill::Positive, repeating])
    }
}
