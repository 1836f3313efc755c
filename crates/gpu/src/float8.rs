//! 8-bit float matmuls: by the vendor's BLAS if it supports the layout, else by expansion.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{Driver, Float8Factors, Library};
use crate::matmul::MatrixLayout;
use crate::strided::ALIGNMENT;
use crate::view::tensor;
use kiln_ir::{
    Axes, DType, Float8, Op, Operand, Operands, PadAxis, Result, SliceAxis, TensorType, Value, Values, Var,
};
use smallvec::smallvec;

impl<D: Driver> Gpu<D> {
    /// [`Op::MatMulFloat8`].
    pub(crate) fn matmul_float8(
        &self,
        op: &Op,
        formats: [Float8; 2],
        inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let inner = inputs[0].value().map_or(0, |a| *a.shape().last().unwrap_or(&0));
        if !self.driver.library().is_some_and(Library::has_float8)
            || results[0].num_elements() == 0
            || inner == 0
        {
            return self.expanded(op, inputs, results);
        }
        match self.by_library(formats, &inputs, results[0])? {
            Some(value) => Ok(smallvec![value]),
            None => self.expanded(op, inputs, results),
        }
    }

    /// Matmul by the library. It requires rows that are multiples of 16 bytes; other factors are zero-padded, which
    /// does not change sums.
    fn by_library(&self, formats: [Float8; 2], inputs: &Operands, ty: TensorType) -> Result<Option<Value>> {
        let vars: Vec<Var<'_>> = inputs.iter().map(|operand| Var::new(self, operand.clone())).collect();
        let (rank, columns) = (ty.rank(), ty.shape[ty.rank() - 1]);
        let missing = |length: usize| length.next_multiple_of(ALIGNMENT) - length;
        let (deep, wide) = (missing(vars[0].shape()[rank - 1]), missing(columns));
        let mut factors = [vars[0].clone(), vars[1].clone()];
        if deep != 0 {
            factors = [padded(&factors[0], [0, deep]), padded(&factors[1], [deep, 0])];
        }
        if wide != 0 {
            factors[1] = padded(&factors[1], [0, wide]);
        }
        let [rows, columns_of] = factors.map(Var::into_value);
        let mut factors = [self.inner_contiguous(rows, false)?, self.inner_contiguous(columns_of, true)?]
            .map(Operand::Value);
        let whole = TensorType { shape: ty.shape.with(rank - 1, columns + wide), ..ty };
        let result = self.uninit(&whole)?;
        let Some(mut products) = self.products(&mut factors, &whole, &result)? else { return Ok(None) };
        // A scale that is one element of a larger tensor may be misaligned. The library would only fail when the matmul
        // runs.
        let scale = |place: usize| self.contiguous_aligned(tensor::<D>(inputs, place)?.0, DType::F32);
        let scales = [scale(2)?, scale(3)?];
        let places = scales.each_ref().map(|scale| scale.at(DType::F32.size()));
        products.float8 = Some(Float8Factors { formats, scales: places });
        if !self.multiply(products)? {
            return Ok(None);
        }
        let product = Array { suspicions: suspicions::<D>(inputs), ..result }.into_value(whole);
        if wide == 0 {
            return Ok(Some(product));
        }
        let narrow = SliceAxis { start: 0, len: columns, step: 1 };
        Ok(Some(Var::new(self, product).slice_axis(rank - 1, narrow).into_value()))
    }

    /// Returns the value with a contiguous reduced axis, copied if needed; the library requires that of both factors.
    fn inner_contiguous(&self, value: Value, transposed: bool) -> Result<Value> {
        let array = Array::<D>::of(&value)?;
        let whole = |elements: usize| elements.is_multiple_of(ALIGNMENT);
        let fits = |matrix: MatrixLayout| {
            matrix.transposed == transposed && whole(matrix.leading_dim) && whole(matrix.step)
        };
        if whole(array.layout.offset) && MatrixLayout::of(&array.layout).is_some_and(fits) {
            return Ok(value);
        }
        let ty = *value.ty();
        let mut order: Vec<usize> = (0..ty.rank()).collect();
        if transposed {
            order.swap(ty.rank() - 2, ty.rank() - 1);
        }
        let order = Axes::new(&order);
        let inward = array.with_layout(array.layout.permute(&order));
        let copy = self.contiguous_aligned(&inward, ty.dtype)?;
        Ok(copy.with_layout(copy.layout.permute(&order)).into_value(ty))
    }
}

/// Zero-pads the ends of the last two axes.
fn padded<'e>(x: &Var<'e>, high: [usize; 2]) -> Var<'e> {
    let mut pads = vec![PadAxis::default(); x.rank() - 2];
    pads.extend(high.map(|high| PadAxis::new(0, high)));
    x.pad(pads, 0)
}
