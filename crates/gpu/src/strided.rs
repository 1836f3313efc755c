//! Kernels made without a program: copies between layouts, updates of a part of a tensor, the same number everywhere, and
//! indices.

use crate::Gpu;
use crate::array::Array;
use crate::driver::Driver;
use crate::region::Made;
use kiln_ir::{Binary, DType, Layout, Operand, Operands, Result, Scalar, Shape, TensorType, Value};
use kiln_kernel::{Axis, Binding, Compute, Hero, Instruction, Kernel, Launch, Param, ParamKind, StrideClass};
use smallvec::smallvec;

/// An axis on which all layouts agree: its length, and the step of each layout.
struct Loop {
    extent: usize,
    strides: Vec<isize>,
}

impl<D: Driver> Gpu<D> {
    /// Copies elements of one layout to the places of another of the same shape, bit by bit.
    pub(crate) fn copy_elements(&self, from: &Array<D>, to: &Array<D>, dtype: DType) -> Result<()> {
        self.strided(&[from], to, bits(dtype), vec![Compute::Load(0), Compute::Store(1, 0)])
    }

    /// Combines elements with those that are there already.
    pub(crate) fn combine_elements(
        &self,
        function: Binary,
        from: &Array<D>,
        to: &Array<D>,
        dtype: DType,
    ) -> Result<()> {
        let combined = Compute::Binary(function, 0, 1);
        let body = vec![Compute::Load(0), Compute::Load(1), combined, Compute::Store(2, 2)];
        self.strided(&[to, from], to, dtype, body)
    }

    /// The elements in row-major order without gaps.
    pub(crate) fn contiguous(&self, array: &Array<D>, dtype: DType) -> Result<Array<D>> {
        if array.layout.is_contiguous() {
            return Ok(array.clone());
        }
        let fresh = self.uninit(&TensorType { shape: array.layout.shape, dtype })?;
        self.copy_elements(array, &fresh, dtype)?;
        Ok(Array { suspicions: array.suspicions.clone(), ..fresh })
    }

    /// A fresh array with the same number everywhere.
    pub(crate) fn full(&self, ty: &TensorType, scalar: Scalar) -> Result<Array<D>> {
        let result = self.uninit(ty)?;
        let number = Param { kind: ParamKind::Number, dtype: ty.dtype, strides: Vec::new() };
        let body = vec![Compute::Number(0), Compute::Store(1, 0)];
        let lengths = [ty.num_elements()];
        self.generate(&lengths, Some(number), body, smallvec![scalar.into()], &result, ty.dtype)?;
        Ok(result)
    }

    /// A fresh array of indices along an axis.
    pub(crate) fn iota(&self, ty: &TensorType, axis: usize) -> Result<Array<D>> {
        let result = self.uninit(ty)?;
        let product = |lengths: &[usize]| lengths.iter().product();
        let lengths = [product(&ty.shape[..axis]), ty.shape[axis], product(&ty.shape[axis + 1..])];
        let body = vec![Compute::Index(1), Compute::Store(0, 0)];
        self.generate(&lengths, None, body, Operands::new(), &result, ty.dtype)?;
        Ok(result)
    }

    /// Runs a kernel without operands in memory over a contiguous result, seen with axes of these lengths.
    fn generate(
        &self,
        lengths: &[usize],
        number: Option<Param>,
        body: Vec<Compute>,
        inputs: Operands,
        result: &Array<D>,
        dtype: DType,
    ) -> Result<()> {
        if lengths.contains(&0) {
            return Ok(());
        }
        let layout = Layout::contiguous(lengths.iter().copied().collect::<Shape>());
        let steps = layout.strides().to_vec();
        let output = Param { kind: ParamKind::Output, dtype, strides: steps.iter().map(class).collect() };
        let mut bindings = vec![Binding { place: 0, offset: 0, strides: steps }];
        if number.is_some() {
            bindings.insert(0, Binding::default());
        }
        let kernel = Kernel {
            hero: Hero::Map,
            axes: vec![Axis::Parallel; lengths.len()],
            params: number.into_iter().chain([output]).collect(),
            body: body.into_iter().map(|compute| Instruction { compute, dtype }).collect(),
        };
        let launch = Launch { extents: lengths.to_vec(), bindings };
        self.run_made(Made { kernel, launch, aligned: true }, &inputs, result)
    }

    fn strided(
        &self,
        inputs: &[&Array<D>],
        output: &Array<D>,
        dtype: DType,
        body: Vec<Compute>,
    ) -> Result<()> {
        let layouts: Vec<&Layout> =
            inputs.iter().map(|array| &array.layout).chain([&output.layout]).collect();
        let shape = output.layout.shape;
        if shape.num_elements() == 0 {
            return Ok(());
        }
        let loops = loops(&shape, &layouts);
        let kernel = kernel(&loops, layouts.len(), dtype, body);
        let launch = Launch {
            extents: loops.iter().map(|axis| axis.extent).collect(),
            bindings: (0..layouts.len())
                .map(|i| Binding {
                    place: if i < inputs.len() { i } else { 0 },
                    offset: 0,
                    strides: loops.iter().map(|axis| axis.strides[i]).collect(),
                })
                .collect(),
        };
        let aligned = layouts.iter().all(|layout| (layout.offset * dtype.size()).is_multiple_of(16));
        let ty = TensorType { shape, dtype };
        let operands: Operands =
            inputs.iter().map(|array| Operand::Value(Value::new(ty, (*array).clone()))).collect();
        self.run_made(Made { kernel, launch, aligned }, &operands, output)
    }
}

/// The unsigned integers of the same size, which nothing changes on the way.
pub(crate) fn bits(dtype: DType) -> DType {
    match dtype.size() {
        1 => DType::U8,
        2 => DType::U16,
        4 => DType::U32,
        _ => DType::U64,
    }
}

/// The axes, in the order in which the result is written, merged where all layouts allow.
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

fn kernel(loops: &[Loop], num_params: usize, dtype: DType, body: Vec<Compute>) -> Kernel {
    let params: Vec<Param> = (0..num_params)
        .map(|i| Param {
            kind: if i + 1 == num_params { ParamKind::Output } else { ParamKind::Input },
            dtype,
            strides: loops.iter().map(|axis| class(&axis.strides[i])).collect(),
        })
        .collect();
    Kernel {
        hero: if params.iter().any(is_turned) { Hero::Transpose } else { Hero::Map },
        axes: vec![Axis::Parallel; loops.len()],
        params,
        body: body.into_iter().map(|compute| Instruction { compute, dtype }).collect(),
    }
}

/// Whether neighbouring elements are not those that neighbour each other in the result: they go through tiles.
fn is_turned(param: &Param) -> bool {
    let along = |class: &StrideClass| *class == StrideClass::One;
    param.kind == ParamKind::Input
        && param.strides.last() == Some(&StrideClass::Any)
        && param.strides.iter().any(along)
}
