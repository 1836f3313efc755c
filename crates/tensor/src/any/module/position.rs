//! Positional encodings: rotary and sinusoidal.

use super::super::data::check_table;
use crate::{AnyTensor, DType, Error, Result, Stack, TensorData};
use alloc::format;
use alloc::vec::Vec;
use kiln_ir::{SliceAxis, Var};

/// The pairs of elements that [`rotary_embedding`](crate::module::rotary_embedding) rotates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RotaryLayout {
    /// Elements `i` and `i + dim / 2`, as in LLaMA and GPT-NeoX.
    #[default]
    Halves,
    /// Elements `2 i` and `2 i + 1`, as in the paper.
    Interleaved,
}

impl AnyTensor {
    /// Applies rotary position embeddings: rotates pairs of elements of `[.., length, dim]`. Cosines and sines of the
    /// angles are `[length, dim / 2]` or broadcast to `[.., length, dim / 2]`. See
    /// [`module::rotary_embedding`](crate::module::rotary_embedding).
    ///
    /// # Errors
    /// When the dtype is not a float, there are fewer than two axes, the last one is odd, or cosines and sines differ
    /// in shape or dtype or do not broadcast.
    pub fn rotary_embedding(self, cos: AnyTensor, sin: AnyTensor, layout: RotaryLayout) -> Result<AnyTensor> {
        const OP: &str = "rotary_embedding";
        self.check_float(OP)?;
        self.check_rank(OP, 2, "[.., length, dim]")?;
        self.check_alike(OP, &cos)?;
        cos.check_same(OP, &sin)?;
        let (shape, last) = (*self.shape(), self.rank() - 1);
        let dim = shape[last];
        if !dim.is_multiple_of(2) {
            return Err(self.wrong(OP, format!("the last axis has no pairs: its length is {dim}")));
        }
        let half = shape.with(last, dim / 2);
        if kiln_ir::infer::broadcast_shapes(&half, cos.shape()) != Some(half) {
            let problem = format!("the angles do not broadcast to {half}");
            return Err(self.unlike(OP, problem, &cos).hint("pass one angle for each pair of elements"));
        }
        Ok(self.expression_with([cos, sin], |x, [cos, sin]| {
            let (step, second) = match layout {
                RotaryLayout::Halves => (1, dim / 2),
                RotaryLayout::Interleaved => (2, 1),
            };
            let part = |start| x.slice_axis(last, SliceAxis { start, len: dim / 2, step });
            if dim == 0 {
                return x;
            }
            let (a, b) = (part(0), part(second));
            let turned = [&a * &cos - &b * &sin, b * cos + a * sin];
            match layout {
                RotaryLayout::Halves => Var::concat(&turned, last),
                RotaryLayout::Interleaved => {
                    let pairs = turned.map(|part| part.reshape(half.inserted(last + 1, 1)));
                    Var::concat(&pairs, last + 1).reshape(shape)
                }
            }
        }))
    }

    /// Returns cosines and sines of the angles `position base^(-2i / dim)` for `length` positions from `start`, each
    /// `[length, dim / 2]`. See [`module::rotary_angles`](crate::module::rotary_angles).
    ///
    /// # Errors
    /// When `dim` is odd, `dtype` is not a float, or `length * dim` is above 2²⁸.
    pub fn rotary_angles(
        start: usize,
        length: usize,
        dim: usize,
        base: f64,
        dtype: DType,
        device: &impl AsRef<Stack>,
    ) -> Result<(AnyTensor, AnyTensor)> {
        check_dim("rotary_angles", length, dim, dtype)?;
        let table = |f: fn(f64) -> f64| {
            let values = angles(start, length, dim, base).map(f).collect::<Vec<f64>>();
            let data = TensorData::new(values, [length, dim / 2])?.convert(dtype);
            Ok::<_, Error>(AnyTensor::from_data(data, device))
        };
        Ok((table(libm::cos)?, table(libm::sin)?))
    }

    /// Returns sinusoidal positional encodings, `[length, dim]`: `sin(position base^(-2i / dim))` in the even and the
    /// cosine in the odd columns. See [`module::sinusoidal_positions`](crate::module::sinusoidal_positions).
    ///
    /// # Errors
    /// As [`rotary_angles`](AnyTensor::rotary_angles).
    pub fn sinusoidal_positions(
        length: usize,
        dim: usize,
        base: f64,
        dtype: DType,
        device: &impl AsRef<Stack>,
    ) -> Result<AnyTensor> {
        check_dim("sinusoidal_positions", length, dim, dtype)?;
        let both = angles(0, length, dim, base).flat_map(|angle| [libm::sin(angle), libm::cos(angle)]);
        let data = TensorData::new(both.collect::<Vec<f64>>(), [length, dim])?.convert(dtype);
        Ok(AnyTensor::from_data(data, device))
    }
}

/// Returns the angles row by row, in `f64`: 32 bits cannot represent the fraction of a late position's angle.
fn angles(start: usize, length: usize, dim: usize, base: f64) -> impl Iterator<Item = f64> {
    let rates: Vec<f64> = (0..dim / 2).map(|i| libm::pow(base, -2.0 * i as f64 / dim as f64)).collect();
    (start..start.saturating_add(length))
        .flat_map(move |position| rates.clone().into_iter().map(move |rate| position as f64 * rate))
}

fn check_dim(op: &str, length: usize, dim: usize, dtype: DType) -> Result<()> {
    check_table(op, &[length, dim])?;
    if !dim.is_multiple_of(2) {
        return Err(Error::type_error(op, format!("the dimension {dim} is odd"), &[]));
    }
    if !dtype.is_float() {
        return Err(Error::type_error(op, format!("{dtype} is not a float dtype"), &[]));
    }
    Ok(())
}
