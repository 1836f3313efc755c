//! Views and reductions by offset and strides.

use kiln::Shape;
use kiln::ir::{Axes, SliceAxis};

/// Linear indices into one array as an affine function of the indices of another: from the result of a view to its
/// operand, or from the operand of a reduction to its result.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Linear index of the first element.
    pub(crate) offset: usize,
    /// Stride for each axis of the other array.
    pub(crate) strides: Vec<isize>,
}

impl Places {
    /// The indices for another array of this shape, in row-major order.
    pub(crate) fn of(&self, shape: &Shape) -> Vec<usize> {
        let mut places = vec![self.offset];
        for (length, stride) in shape.iter().zip(&self.strides) {
            let step =
                |place: usize| (0..*length).map(move |i| place.wrapping_add_signed(i as isize * stride));
            places = places.into_iter().flat_map(step).collect();
        }
        places
    }
}

/// Row-major strides.
fn strides(shape: &Shape) -> Vec<isize> {
    (0..shape.rank()).map(|axis| shape[axis + 1..].iter().product::<usize>() as isize).collect()
}

/// Operand indices of [`Op::Permute`](kiln::ir::Op::Permute).
pub(crate) fn permuted(shape: &Shape, axes: &Axes) -> Places {
    let strides = strides(shape);
    Places { offset: 0, strides: axes.iter().map(|axis| strides[axis]).collect() }
}

/// Operand indices of [`Op::Broadcast`](kiln::ir::Op::Broadcast).
pub(crate) fn repeated(shape: &Shape, result: &Shape) -> Places {
    let added = std::iter::repeat_n(0, result.rank() - shape.rank());
    let kept = strides(shape).into_iter().zip(shape.iter());
    let kept = kept.map(|(stride, length)| if *length == 1 { 0 } else { stride });
    Places { offset: 0, strides: added.chain(kept).collect() }
}

/// Operand indices of [`Op::Slice`](kiln::ir::Op::Slice).
pub(crate) fn sliced(shape: &Shape, slices: &[SliceAxis]) -> Places {
    let strides = strides(shape);
    let starts = slices.iter().zip(&strides).map(|(slice, stride)| slice.start * *stride as usize);
    let steps = slices.iter().zip(&strides).map(|(slice, stride)| slice.step * stride);
    Places { offset: starts.sum(), strides: steps.collect() }
}

/// The index in the result of [`Op::Reduce`](kiln::ir::Op::Reduce) for each element of the operand.
pub(crate) fn reduced(shape: &Shape, axes: &Axes) -> Places {
    let mut kept = *shape;
    for axis in axes.iter() {
        kept[axis] = 1;
    }
    let mut strides = strides(&kept);
    for axis in axes.iter() {
        strides[axis] = 0;
    }
    Places { offset: 0, strides }
}
