//! Positions in tensors, and moving elements between them.
//!
//! A *position* is one index per axis, held in a [`Shape`]; a *place* is the index in row-major order.

use alloc::vec::Vec;
use kiln_ir::{Elements, Result, Shape, TensorData};

/// All positions of a shape, in row-major order.
pub(crate) fn positions(shape: Shape) -> impl Iterator<Item = Shape> {
    (0..shape.num_elements()).map(move |place| position(&shape, place))
}

/// The position of a place.
pub(crate) fn position(shape: &Shape, mut place: usize) -> Shape {
    let mut position = *shape;
    for axis in (0..shape.rank()).rev() {
        position[axis] = place % shape[axis];
        place /= shape[axis];
    }
    position
}

/// The place of a position.
pub(crate) fn place(shape: &Shape, position: &[usize]) -> usize {
    shape.iter().zip(position).fold(0, |place, (&length, &index)| place * length + index)
}

/// One line of elements along an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    start: usize,
    stride: usize,
    len: usize,
}

impl Line {
    /// The place of the element with that index.
    pub(crate) fn place(&self, index: usize) -> usize {
        self.start + index * self.stride
    }

    /// The places of all elements, in order.
    pub(crate) fn places(self) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.len).map(move |index| self.place(index))
    }
}

/// All lines along an axis, in row-major order of the other axes.
pub(crate) fn lines(shape: &Shape, axis: usize) -> impl Iterator<Item = Line> {
    let (len, stride) = (shape[axis], shape[axis + 1..].iter().product::<usize>());
    let outer: usize = shape[..axis].iter().product();
    (0..outer).flat_map(move |o| (0..stride).map(move |i| Line { start: o * len * stride + i, stride, len }))
}

/// Gathers the elements at these places, bit for bit. Places index the concatenation of the sources, which have one
/// dtype.
pub(crate) fn pick(
    sources: &[&TensorData],
    places: impl IntoIterator<Item = usize>,
    shape: impl Into<Shape>,
) -> Result<TensorData> {
    let dtype = sources[0].dtype();
    let bytes = sources.iter().map(|data| data.bytes()).collect::<Vec<_>>().concat();
    let mut picked = Vec::new();
    for place in places {
        picked.extend_from_slice(&bytes[place * dtype.size()..][..dtype.size()]);
    }
    TensorData::from_elements(Elements::from_bytes(&picked, dtype)?, shape.into())
}
