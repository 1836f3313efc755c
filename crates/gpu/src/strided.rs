//! Kernels that the engine builds without a program: strided copies, slice updates, fills and `arange`.

use crate::Gpu;
use crate::array::Array;
use crate::driver::Driver;
use crate::region::{BuiltKernel, CopyKind, KernelKey};
use kiln_ir::{Binary, DType, Layout, Operand, Operands, Result, Scalar, Shape, TensorType, Value};
use kiln_kernel::{
    Axis, Binding, Compute, Instruction, Kernel, KernelKind, Launch, Param, ParamKind, StrideClass,
};
use smallvec::{SmallVec, smallvec};

/// An axis common to all layouts: its length, and the stride of each layout.
struct Loop {
    extent: usize,
    strides: Vec<isize>,
}

/// The address alignment in bytes required by vendor libraries and by kernels with vector accesses.
pub(crate) const ALIGNMENT: usize = 16;

/// Whether the first element is at a multiple of [`ALIGNMENT`], given that blocks are.
pub(crate) fn begins_aligned(layout: &Layout, dtype: DType) -> bool {
    (layout.offset * dtype.size()).is_multiple_of(ALIGNMENT)
}

impl<D: Driver> Gpu<D> {
    /// Copies elements bitwise between two layouts of the same shape.
    pub(crate) fn copy_elements(&self, from: &Array<D>, to: &Array<D>, dtype: DType) -> Result<()> {
        self.strided(CopyKind::Copy, &[from], to, bits(dtype))
    }

    /// Combines elements in place with those of the target.
    pub(crate) fn combine_elements(
        &self,
        function: Binary,
        from: &Array<D>,
        to: &Array<D>,
        dtype: DType,
    ) -> Result<()> {
        self.strided(CopyKind::Combine(function), &[to, from], to, dtype)
    }

    /// A contiguous array of the elements, row-major; copied only if needed.
    pub(crate) fn contiguous(&self, array: &Array<D>, dtype: DType) -> Result<Array<D>> {
        if array.layout.is_contiguous() { Ok(array.clone()) } else { self.copied(array, dtype) }
    }

    /// A contiguous array with [`ALIGNMENT`], as vendor libraries require; copied only if needed.
    ///
    /// # Errors
    /// When the device is out of memory.
    pub(crate) fn contiguous_aligned(&self, array: &Array<D>, dtype: DType) -> Result<Array<D>> {
        if array.layout.is_contiguous() && begins_aligned(&array.layout, dtype) {
            Ok(array.clone())
        } else {
            self.copied(array, dtype)
        }
    }

    fn copied(&self, array: &Array<D>, dtype: DType) -> Result<Array<D>> {
        let fresh = self.uninit(&TensorType { shape: array.layout.shape, dtype })?;
        self.copy_elements(array, &fresh, dtype)?;
        Ok(Array { suspicions: array.suspicions.clone(), ..fresh })
    }

    /// A new array filled with one number.
    pub(crate) fn full(&self, ty: &TensorType, scalar: Scalar) -> Result<Array<D>> {
        let result = self.uninit(ty)?;
        let shape = Shape::from([ty.num_elements()]);
        self.generate(CopyKind::Full, shape, &smallvec![scalar.into()], &result, ty.dtype)?;
        Ok(result)
    }

    /// A new array of indices along an axis.
    pub(crate) fn iota(&self, ty: &TensorType, axis: usize) -> Result<Array<D>> {
        let result = self.uninit(ty)?;
        let product = |lengths: &[usize]| lengths.iter().product();
        let shape = Shape::from([product(&ty.shape[..axis]), ty.shape[axis], product(&ty.shape[axis + 1..])]);
        self.generate(CopyKind::Iota, shape, &Operands::new(), &result, ty.dtype)?;
        Ok(result)
    }

    /// Runs a kernel without tensor operands over a contiguous result, reshaped to these axes.
    fn generate(
        &self,
        kind: CopyKind,
        shape: Shape,
        inputs: &Operands,
        result: &Array<D>,
        dtype: DType,
    ) -> Result<()> {
        if shape.num_elements() == 0 {
            return Ok(());
        }
        let key = KernelKey { kind, dtype, shape, strides: SmallVec::new(), aligned: true };
        self.run_built(key, || generator(kind, shape, dtype), inputs, result)
    }

    fn strided(&self, kind: CopyKind, inputs: &[&Array<D>], output: &Array<D>, dtype: DType) -> Result<()> {
        let shape = output.layout.shape;
        if shape.num_elements() == 0 {
            return Ok(());
        }
        let layouts: SmallVec<[&Layout; 3]> =
            inputs.iter().map(|array| &array.layout).chain([&output.layout]).collect();
        let key = KernelKey {
            kind,
            dtype,
            shape,
            strides: layouts.iter().flat_map(|layout| layout.strides()).copied().collect(),
            aligned: layouts.iter().all(|layout| begins_aligned(layout, dtype)),
        };
        let ty = TensorType { shape, dtype };
        let operands: Operands =
            inputs.iter().map(|array| Operand::Value(Value::new(ty, (*array).clone()))).collect();
        self.run_built(key, || mover(kind, &shape, &layouts, dtype), &operands, output)
    }
}

/// A kernel that writes a contiguous result from a number or an index.
fn generator(kind: CopyKind, shape: Shape, dtype: DType) -> BuiltKernel {
    let layout = Layout::contiguous(shape);
    let steps = layout.strides().to_vec();
    let output = Param { kind: ParamKind::Output, dtype, strides: steps.iter().map(class).collect() };
    let written = Binding { place: 0, offset: 0, strides: steps };
    let number = Param { kind: ParamKind::Number, dtype, strides: Vec::new() };
    let (params, bindings) = match kind {
        CopyKind::Full => (vec![number, output], vec![Binding::default(), written]),
        CopyKind::Iota | CopyKind::Copy | CopyKind::Combine(_) => (vec![output], vec![written]),
    };
    let kernel = Kernel {
        kind: KernelKind::Map,
        axes: vec![Axis::Parallel; shape.rank()],
        params,
        body: body(kind, dtype),
    };
    BuiltKernel { kernel, launch: Launch { extents: shape.to_vec(), bindings } }
}

/// A copy or combine kernel over operands and a result with these layouts.
fn mover(kind: CopyKind, shape: &Shape, layouts: &[&Layout], dtype: DType) -> BuiltKernel {
    let loops = loops(shape, layouts);
    let result = layouts.len() - 1;
    let launch = Launch {
        extents: loops.iter().map(|axis| axis.extent).collect(),
        bindings: (0..layouts.len())
            .map(|i| Binding {
                place: if i < result { i } else { 0 },
                offset: 0,
                strides: loops.iter().map(|axis| axis.strides[i]).collect(),
            })
            .collect(),
    };
    BuiltKernel { kernel: kernel(&loops, layouts.len(), dtype, body(kind, dtype)), launch }
}

fn body(kind: CopyKind, dtype: DType) -> Vec<Instruction> {
    let computes = match kind {
        CopyKind::Copy => vec![Compute::Load(0), Compute::Store(1, 0)],
        CopyKind::Combine(function) => {
            let combined = Compute::Binary(function, 0, 1);
            vec![Compute::Load(0), Compute::Load(1), combined, Compute::Store(2, 2)]
        }
        CopyKind::Full => vec![Compute::Number(0), Compute::Store(1, 0)],
        CopyKind::Iota => vec![Compute::Index(1), Compute::Store(0, 0)],
    };
    computes.into_iter().map(|compute| Instruction { compute, dtype }).collect()
}

/// The unsigned integer dtype of the same size, for bitwise copies.
pub(crate) fn bits(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// The loop axes in the memory order of the result, merged where all layouts allow.
fn loops(shape: &Shape, layouts: &[&Layout]) -> Vec<Loop> {
    let result = layouts.len() - 1;
    let mut loops: Vec<Loop> = (0..shape.rank())
        .filter(|&axis| shape[axis] != 1)
        .map(|axis| Loop {
            extent: shape[axis],
            strides: layouts.iter().map(|layout| layout.strides()[axis]).collect(),
        })
        .collect();
    loops.sort_by_key(|axis| core::cmp::Reverse(axis.strides[result].unsigned_abs()));
    let mut merged: Vec<Loop> = Vec::new();
    for inner in loops {
        if let Some(outer) = merged.last_mut() {
            let mut steps = outer.strides.iter().zip(&inner.strides);
            if steps.all(|(outer, step)| *outer == step * inner.extent as isize) {
                outer.extent *= inner.extent;
                outer.strides = inner.strides;
                continue;
            }
        }
        merged.push(inner);
    }
    merged
}

fn class(stride: &isize) -> StrideClass {
    match *stride {
        0 => StrideClass::Zero,
        1 => StrideClass::One,
        _ => StrideClass::Any,
    }
}

fn kernel(loops: &[Loop], num_params: usize, dtype: DType, body: Vec<Instruction>) -> Kernel {
    let params: Vec<Param> = (0..num_params)
        .map(|i| Param {
            kind: if i + 1 == num_params { ParamKind::Output } else { ParamKind::Input },
            dtype,
            strides: loops.iter().map(|axis| class(&axis.strides[i])).collect(),
        })
        .collect();
    Kernel {
        kind: if params.iter().any(is_transposed) { KernelKind::Transpose } else { KernelKind::Map },
        axes: vec![Axis::Parallel; loops.len()],
        params,
        body,
    }
}

/// Whether the operand's contiguous axis is not the result's, which needs a tiled transpose.
fn is_transposed(param: &Param) -> bool {
    let along = |class: &StrideClass| *class == StrideClass::One;
    param.kind == ParamKind::Input
        && param.strides.last() == Some(&StrideClass::Any)
        && param.strides.iter().any(along)
}
