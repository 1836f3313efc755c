//! Views: strided layouts where possible, else copies.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::Driver;
use kiln_ir::{
    DType, Error, Layout, Operand, Operands, PadAxis, Result, Scalar, Shape, SliceAxis, TensorType,
    UpdateMode, Values,
};
use smallvec::smallvec;

/// The array and the type of an operand.
pub(crate) fn tensor<D: Driver>(inputs: &[Operand], place: usize) -> Result<(&Array<D>, &TensorType)> {
    match inputs.get(place) {
        Some(Operand::Value(value)) => Ok((Array::of(value)?, value.ty())),
        Some(Operand::Scalar(_)) | None => {
            Err(Error::unsupported("gpu", format!("operand {place} must be a tensor")))
        }
    }
}

/// The only operand under another layout and dtype, without a copy.
pub(crate) fn view<D: Driver>(
    inputs: &Operands,
    dtype: Option<DType>,
    relaid: impl FnOnce(&Layout) -> Layout,
) -> Result<Values> {
    let (array, ty) = tensor::<D>(inputs, 0)?;
    let layout = relaid(&array.layout);
    let ty = TensorType { shape: layout.shape, dtype: dtype.unwrap_or(ty.dtype) };
    Ok(smallvec![array.with_layout(layout).into_value(ty)])
}

impl<D: Driver> Gpu<D> {
    pub(crate) fn reshape(&self, shape: &Shape, inputs: &Operands) -> Result<Values> {
        let (array, ty) = tensor::<D>(inputs, 0)?;
        if array.layout.num_elements() != shape.num_elements() {
            let problem = format!("{} elements do not fill shape {shape}", array.layout.num_elements());
            return Err(Error::value("reshape", problem));
        }
        let array = match array.layout.reshape(shape) {
            Some(layout) => array.with_layout(layout),
            None => {
                let copy = self.contiguous(array, ty.dtype)?;
                copy.with_layout(Layout::contiguous(*shape))
            }
        };
        Ok(smallvec![array.into_value(ty.with_shape(*shape))])
    }

    pub(crate) fn copy(&self, inputs: &Operands) -> Result<Values> {
        let (array, ty) = tensor::<D>(inputs, 0)?;
        Ok(smallvec![self.contiguous(array, ty.dtype)?.into_value(*ty)])
    }

    pub(crate) fn pad(&self, pads: &[PadAxis], inputs: &Operands, results: &[TensorType]) -> Result<Values> {
        let (x, ty) = tensor::<D>(inputs, 0)?;
        let padding = inputs.get(1).and_then(Operand::scalar);
        let padding = padding.ok_or_else(|| Error::unsupported("gpu", "the padding must be a number"))?;
        let result = self.full(&results[0], padding)?;
        let inside = pads.iter().zip(x.layout.shape.iter());
        let inside: Vec<SliceAxis> =
            inside.map(|(pad, &len)| SliceAxis { start: pad.low, len, step: pad.step(len) }).collect();
        let target = result.with_layout(result.layout.slice(&inside));
        self.copy_elements(x, &target, ty.dtype)?;
        Ok(smallvec![Array { suspicions: x.suspicions.clone(), ..result }.into_value(results[0])])
    }

    pub(crate) fn concat(&self, axis: usize, inputs: &Operands, results: &[TensorType]) -> Result<Values> {
        let result = self.uninit(&results[0])?;
        let mut start = 0;
        for place in 0..inputs.len() {
            let (part, ty) = tensor::<D>(inputs, place)?;
            let slices: Vec<SliceAxis> = ty
                .shape
                .iter()
                .enumerate()
                .map(|(i, &len)| SliceAxis { start: if i == axis { start } else { 0 }, len, step: 1 })
                .collect();
            self.copy_elements(part, &result.with_layout(result.layout.slice(&slices)), ty.dtype)?;
            start += ty.shape[axis];
        }
        let result = Array { suspicions: suspicions::<D>(inputs), ..result };
        Ok(smallvec![result.into_value(results[0])])
    }

    pub(crate) fn slice_update(
        &self,
        slices: &[SliceAxis],
        mode: UpdateMode,
        mut inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let all = suspicions::<D>(&inputs);
        let Some(Operand::Value(source)) = inputs.pop() else {
            return Err(Error::unsupported("gpu", "the source must be a tensor"));
        };
        let base = inputs.pop().unwrap_or(Operand::Scalar(Scalar::Int(0)));
        let result = self.owned(base, results[0])?;
        let target = result.with_layout(result.layout.slice(slices));
        let source = Array::<D>::of(&source)?;
        match mode.binary() {
            None => self.copy_elements(source, &target, results[0].dtype)?,
            Some(function) => self.combine_elements(function, source, &target, results[0].dtype)?,
        }
        Ok(smallvec![Array { suspicions: all, ..result }.into_value(results[0])])
    }
}
