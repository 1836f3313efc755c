//! Memory layouts of operands: the same elements through different views.

use crate::case::Layouts;
use crate::engines::reference;
use kiln_ir::{
    DType, Engine, Op, Operand, OperandType, PadAxis, Scalar, SliceAxis, TensorData, Value, block_on, infer,
};
use smallvec::smallvec;

/// The memory layout of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Row-major and unshared: the engine may overwrite it.
    Owned,
    /// Row-major and shared: the engine must not overwrite it.
    Shared,
    /// The last axis is outermost in memory.
    Permuted,
    /// Stride 2 from an offset, with NaN or the maximum integer between the elements.
    Strided,
    /// Negative strides along every axis.
    Flipped,
    /// Stride 0 along the first axis longer than 1. Repeats the elements of index 0.
    Repeated,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Layout; 6] =
        [Layout::Owned, Layout::Shared, Layout::Permuted, Layout::Strided, Layout::Flipped, Layout::Repeated];
}

impl Layouts {
    /// Returns the tested layouts.
    pub fn list(self) -> &'static [Layout] {
        match self {
            Layouts::All => &Layout::ALL,
            Layouts::Few => &[Layout::Owned, Layout::Permuted],
        }
    }
}

/// Returns the elements of an operand in a layout: the given ones, except for [`Layout::Repeated`].
pub fn elements(layout: Layout, data: &TensorData) -> TensorData {
    match (layout, repeated_axis(data)) {
        (Layout::Repeated, Some(axis)) => {
            let one = on_reference(Op::Slice(head(data, axis)), data.clone(), None);
            on_reference(Op::Broadcast(*data.shape()), one, None)
        }
        (
            Layout::Owned
            | Layout::Shared
            | Layout::Permuted
            | Layout::Strided
            | Layout::Flipped
            | Layout::Repeated,
            _,
        ) => data.clone(),
    }
}

/// An operand in a layout, on the host: a view of other data. It is made once for all engines.
pub struct Placed {
    base: TensorData,
    view: Option<Op>,
}

impl Placed {
    /// Returns the data in a layout.
    pub fn new(layout: Layout, data: &TensorData) -> Placed {
        let rank = data.shape().rank();
        let seen = |op: Op| Placed { base: on_reference(op.clone(), data.clone(), None), view: Some(op) };
        match layout {
            Layout::Owned | Layout::Shared => Placed { base: data.clone(), view: None },
            Layout::Permuted => {
                let reversed: Vec<usize> = (0..rank).rev().collect();
                seen(Op::Permute(kiln_ir::Axes::new(&reversed)))
            }
            Layout::Strided => {
                let pads = vec![PadAxis { low: 1, high: 1, interior: 1 }; rank];
                let base = on_reference(Op::Pad(pads), data.clone(), Some(filler(data.dtype())));
                let every_second = |&len: &usize| SliceAxis { start: 1, len, step: 2 };
                Placed { base, view: Some(Op::Slice(data.shape().iter().map(every_second).collect())) }
            }
            Layout::Flipped => {
                let backwards =
                    |&len: &usize| SliceAxis { start: usize::saturating_sub(len, 1), len, step: -1 };
                seen(Op::Slice(data.shape().iter().map(backwards).collect()))
            }
            Layout::Repeated => match repeated_axis(data) {
                Some(axis) => {
                    let base = on_reference(Op::Slice(head(data, axis)), data.clone(), None);
                    Placed { base, view: Some(Op::Broadcast(*data.shape())) }
                }
                None => Placed { base: data.clone(), view: None },
            },
        }
    }

    /// Writes the operand to an engine.
    pub fn on(&self, engine: &dyn Engine) -> Value {
        let value = engine.write(self.base.clone());
        let Some(op) = &self.view else { return value };
        let operands = smallvec![Operand::Value(value)];
        let types = infer(op, &OperandType::list(&operands)).expect("a valid view");
        engine.execute(op, operands, &types).remove(0)
    }
}

/// Writes data to an engine in a layout.
pub fn place(engine: &dyn Engine, layout: Layout, data: &TensorData) -> Value {
    Placed::new(layout, data).on(engine)
}

/// A filler between elements, which exposes kernels that read it.
fn filler(dtype: DType) -> Scalar {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Scalar::Float(f64::NAN),
        DType::I64 | DType::U64 => Scalar::Int(i64::MAX),
        DType::I32 | DType::U32 => Scalar::Int(i32::MAX.into()),
        DType::I16 | DType::U16 => Scalar::Int(i16::MAX.into()),
        DType::I8 | DType::U8 => Scalar::Int(i8::MAX.into()),
        DType::Bool => Scalar::Bool(true),
    }
}

fn repeated_axis(data: &TensorData) -> Option<usize> {
    data.shape().iter().position(|&len| len > 1)
}

/// The first slice along an axis.
fn head(data: &TensorData, axis: usize) -> Vec<SliceAxis> {
    let range = |(a, &len): (usize, &usize)| SliceAxis::all(if a == axis { 1 } else { len });
    data.shape().iter().enumerate().map(range).collect()
}

fn on_reference(op: Op, data: TensorData, scalar: Option<Scalar>) -> TensorData {
    let reference = reference();
    let mut operands: kiln_ir::Operands = smallvec![Operand::Value(reference.write(data))];
    operands.extend(scalar.map(Operand::Scalar));
    let types = infer(&op, &OperandType::list(&operands)).expect("a valid view");
    let value = reference.execute(&op, operands, &types).remove(0);
    block_on(reference.read(value)).expect("views do not fail")
}
