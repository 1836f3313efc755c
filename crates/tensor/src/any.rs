//! Tensors whose rank and dtype are known at run time.

use crate::tensor::{detach, mismatch, require_grad};
use crate::{
    Backend, DType, Distribution, Kind, Number, Raw, Result, Shape, SliceArg, Stack, Tensor, TensorData,
    TensorType,
};
use alloc::vec::Vec;
use core::fmt;
use kiln_ir::{Binary, Comparison, Extremum, Reduction, SliceAxis, Unary};

/// A tensor whose rank, kind and backend are known at run time. Every method returns a [`Result`].
///
/// Modules are traversed as `AnyTensor`s, and files and tools that meet shapes at run time work with them.
///
/// ```
/// use kiln_tensor::{AnyTensor, DType, Device, TensorData};
///
/// let x = AnyTensor::from_data(TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]), &Device::cpu());
/// let y = x.clone().matmul(x)?.cast(DType::F64)?;
/// assert_eq!(y.into_data()?.to_vec::<f64>(), [7.0, 10.0, 15.0, 22.0]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
///
/// # Errors
/// Methods return the error of inference when shapes or dtypes do not suit.
#[derive(Clone)]
pub struct AnyTensor(Raw);

impl AnyTensor {
    /// The rank-erased tensor of a raw one.
    pub fn from_raw(raw: Raw) -> AnyTensor {
        AnyTensor(raw)
    }

    /// The raw tensor inside.
    pub fn raw(&self) -> &Raw {
        &self.0
    }

    /// The raw tensor inside.
    pub fn into_raw(self) -> Raw {
        self.0
    }

    /// Data of the host on a device, in its own dtype.
    pub fn from_data(data: impl Into<TensorData>, device: &crate::Device) -> AnyTensor {
        AnyTensor::from_data_on(data, &device.0)
    }

    /// Data of the host on a stack, in its own dtype.
    pub fn from_data_on(data: impl Into<TensorData>, stack: &Stack) -> AnyTensor {
        AnyTensor(Raw::from_data(stack, data.into()))
    }

    /// A tensor filled with a number.
    pub fn full(ty: TensorType, x: impl Number, device: &crate::Device) -> Result<AnyTensor> {
        Raw::full(&device.0, ty, x.scalar()).map(AnyTensor)
    }

    /// Random numbers.
    pub fn random(ty: TensorType, distribution: Distribution, device: &crate::Device) -> Result<AnyTensor> {
        Raw::random(&device.0, ty, distribution).map(AnyTensor)
    }

    /// The typed tensor.
    ///
    /// # Errors
    /// When rank or kind differ, or the tensor is not on a device of `B`.
    pub fn try_into_tensor<B: Backend, const D: usize, K: Kind>(self) -> Result<Tensor<B, D, K>> {
        if self.0.shape().rank() != D || !K::holds(self.0.dtype()) {
            return Err(mismatch::<D, K>(self.0.ty()));
        }
        if !B::stack(&B::device(self.0.stack())).same(self.0.stack()) {
            let problem = alloc::format!("is on {:?}, which is no device of the backend", self.0.stack());
            return Err(kiln_ir::Error::type_error("tensor", problem, &[self.0.ty().into()])
                .hint("move it with `to_stack`, or name the backend that made it"));
        }
        Ok(Tensor::from_raw(self.0))
    }

    /// The shape and dtype.
    pub fn ty(&self) -> &TensorType {
        self.0.ty()
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        self.0.shape()
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.shape().rank()
    }

    /// The dtype.
    pub fn dtype(&self) -> DType {
        self.0.dtype()
    }

    /// The stack of engines that runs this tensor's ops.
    pub fn stack(&self) -> &Stack {
        self.0.stack()
    }

    /// The elements. Waits for the device.
    pub fn into_data(self) -> Result<TensorData> {
        self.0.into_data()
    }

    /// The elements; the tensor stays. Waits for the device.
    pub fn to_data(&self) -> Result<TensorData> {
        self.0.clone().into_data()
    }

    /// The same elements on another stack. Waits for this one.
    pub fn to_stack(self, stack: &Stack) -> Result<AnyTensor> {
        self.0.to_stack(stack).map(AnyTensor)
    }

    /// The same elements on another device. Waits for this one.
    pub fn to_device(self, device: &crate::Device) -> Result<AnyTensor> {
        self.to_stack(&device.0)
    }

    /// Whether the tensor is a start of a tape.
    pub fn is_require_grad(&self) -> bool {
        self.0.stack().autodiff().is_some_and(|layer| layer.leaf_id(self.0.value()).is_some())
    }

    /// A new start of a tape.
    ///
    /// # Errors
    /// When the stack has no automatic differentiation, or the dtype is no float.
    pub fn require_grad(self) -> Result<AnyTensor> {
        require_grad(self.0).map(AnyTensor)
    }

    /// The same elements without a tape.
    #[must_use]
    pub fn detach(self) -> AnyTensor {
        AnyTensor(detach(self.0))
    }

    /// The tensor on the stack below automatic differentiation; the same tensor if there is none.
    #[must_use]
    pub fn inner(self) -> AnyTensor {
        let stack = self.0.stack().clone();
        let (Some(layer), Some(below)) = (stack.autodiff(), stack.inner()) else { return self };
        // `detach` takes the value over, so that a sole owner stays one.
        AnyTensor(Raw::new(below.clone(), layer.detach(self.0.into_value())))
    }

    /// The tensor brought under the automatic differentiation of a stack, without a tape: the reverse of
    /// [`inner`](AnyTensor::inner).
    ///
    /// # Errors
    /// When the tensor is not on the stack below.
    pub fn from_inner(self, stack: &Stack) -> Result<AnyTensor> {
        match stack.autodiff() {
            Some(layer) if stack.inner().is_some_and(|inner| inner.same(self.0.stack())) => {
                let value = layer.from_inner(self.0.into_value());
                Ok(AnyTensor(Raw::new(stack.clone(), value)))
            }
            _ => {
                let problem = alloc::format!("is on {:?}, which is not below {stack:?}", self.0.stack());
                Err(kiln_ir::Error::type_error("from_inner", problem, &[self.0.ty().into()]))
            }
        }
    }

    /// A function of each element.
    pub fn unary(self, function: Unary) -> Result<AnyTensor> {
        self.0.unary(function).map(AnyTensor)
    }

    /// A function of two elements; broadcasts.
    pub fn binary(self, function: Binary, other: AnyTensor) -> Result<AnyTensor> {
        self.0.binary(function, other.0).map(AnyTensor)
    }

    /// A function of each element and a number.
    pub fn binary_scalar(self, function: Binary, x: impl Number) -> Result<AnyTensor> {
        self.0.binary_scalar(function, x).map(AnyTensor)
    }

    /// A comparison of two elements; broadcasts.
    pub fn compare(self, comparison: Comparison, other: AnyTensor) -> Result<AnyTensor> {
        self.0.compare(comparison, other.0).map(AnyTensor)
    }

    /// `self + other`; broadcasts.
    #[allow(
        clippy::should_implement_trait,
        reason = "operators cannot return a Result as field users expect"
    )]
    pub fn add(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Add, other)
    }

    /// `self - other`; broadcasts.
    #[allow(
        clippy::should_implement_trait,
        reason = "operators cannot return a Result as field users expect"
    )]
    pub fn sub(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Sub, other)
    }

    /// `self * other`, element by element; broadcasts.
    #[allow(
        clippy::should_implement_trait,
        reason = "operators cannot return a Result as field users expect"
    )]
    pub fn mul(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Mul, other)
    }

    /// `self / other`; broadcasts.
    #[allow(
        clippy::should_implement_trait,
        reason = "operators cannot return a Result as field users expect"
    )]
    pub fn div(self, other: AnyTensor) -> Result<AnyTensor> {
        self.binary(Binary::Div, other)
    }

    /// Matrix products over the last two axes; the axes before broadcast.
    pub fn matmul(self, other: AnyTensor) -> Result<AnyTensor> {
        self.0.matmul(other.0).map(AnyTensor)
    }

    /// Another dtype.
    pub fn cast(self, dtype: DType) -> Result<AnyTensor> {
        self.0.cast(dtype).map(AnyTensor)
    }

    /// Another shape.
    pub fn reshape(self, shape: impl Into<Shape>) -> Result<AnyTensor> {
        self.0.reshape(shape).map(AnyTensor)
    }

    /// Repeats axes of length 1 and adds axes in front.
    pub fn expand(self, shape: impl Into<Shape>) -> Result<AnyTensor> {
        self.0.broadcast(shape).map(AnyTensor)
    }

    /// Axes in another order.
    pub fn permute(self, axes: &[usize]) -> Result<AnyTensor> {
        self.0.permute(axes).map(AnyTensor)
    }

    /// Exchanges two axes.
    pub fn swap_dims(self, a: usize, b: usize) -> Result<AnyTensor> {
        self.0.swap_axes(a, b).map(AnyTensor)
    }

    /// A range of each axis; fewer ranges than axes leave the last axes whole.
    pub fn slice(self, ranges: &[SliceArg]) -> Result<AnyTensor> {
        let shape = *self.0.shape();
        let range = |axis: usize| ranges.get(axis).copied().unwrap_or(SliceArg::FULL);
        let slices = (0..shape.rank().max(ranges.len())).map(|axis| match shape.get(axis) {
            Some(&length) => range(axis).resolve(axis, length),
            None => Err(kiln_ir::Error::type_error("slice", "more ranges than axes", &[self.0.ty().into()])),
        });
        let slices = slices.collect::<Result<Vec<SliceAxis>>>()?;
        self.0.slice(slices).map(AnyTensor)
    }

    /// Tensors one after the other along an axis.
    pub fn cat(tensors: Vec<AnyTensor>, axis: usize) -> Result<AnyTensor> {
        Raw::concat(tensors.into_iter().map(|tensor| tensor.0).collect(), axis).map(AnyTensor)
    }

    /// Combines elements along axes, which stay with length 1.
    pub fn reduce(self, reduction: Reduction, axes: &[usize]) -> Result<AnyTensor> {
        self.0.reduce(reduction, axes).map(AnyTensor)
    }

    /// The sum of all elements, of shape `[1]`.
    pub fn sum(self) -> Result<AnyTensor> {
        self.0.reduce_all(Reduction::Sum).map(AnyTensor)
    }

    /// Where the greatest along an axis is; the axis stays with length 1.
    pub fn argmax(self, axis: usize) -> Result<AnyTensor> {
        self.0.arg_reduce(Extremum::Max, axis).map(AnyTensor)
    }

    /// The slices of an axis at these indices.
    pub fn take(self, axis: usize, index: AnyTensor) -> Result<AnyTensor> {
        self.0.take(axis, index.0).map(AnyTensor)
    }

    /// `self` where the mask is false, `values` where it is true; broadcasts.
    pub fn mask_where(self, mask: AnyTensor, values: AnyTensor) -> Result<AnyTensor> {
        mask.0.select(values.0, self.0).map(AnyTensor)
    }
}

impl fmt::Debug for AnyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyTensor({}, {:?})", self.0.ty(), self.0.stack())
    }
}
