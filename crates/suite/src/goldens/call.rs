//! A golden case with its inputs on a device.

use super::Golden;
use kiln_backends::{Device, Dyn};
use kiln_ir::{Engine, Value, Var};
use kiln_tensor::{AnyTensor, Int, Tensor, TensorData};
use std::collections::BTreeMap;
use std::ops::Deref;

/// The outputs in the golden's order, `None` for unsupported ones; or the reason why the case cannot run.
pub(crate) type Outputs = Result<Vec<Option<AnyTensor>>, &'static str>;

/// A golden case on a device. Dereferences to the case, for its attributes.
pub(crate) struct Call<'a> {
    golden: &'a Golden,
    /// The device.
    pub(crate) device: Device,
    /// One of the ways to compute the results, from 0.
    pub(crate) way: usize,
    inputs: BTreeMap<String, AnyTensor>,
}

impl Deref for Call<'_> {
    type Target = Golden;
    fn deref(&self) -> &Golden {
        self.golden
    }
}

/// A single output.
pub(crate) fn one(output: AnyTensor) -> Outputs {
    Ok(vec![Some(output)])
}

impl<'a> Call<'a> {
    /// Writes the inputs to the device. With gradients, inputs with a golden gradient become leaves.
    pub(crate) fn new(golden: &'a Golden, device: &Device, with_gradients: bool, way: usize) -> Call<'a> {
        let place = |name: &String| {
            let tensor = AnyTensor::from_data(golden.tensor(name).clone(), device);
            let wanted = with_gradients && golden.gradients.iter().any(|(input, _)| input == name);
            let tensor = if wanted { tensor.require_grad().expect("a float on autodiff") } else { tensor };
            (name.clone(), tensor)
        };
        Call { golden, device: device.clone(), way, inputs: golden.inputs.iter().map(place).collect() }
    }

    /// Writes data to the device.
    pub(crate) fn place(&self, data: &TensorData) -> AnyTensor {
        AnyTensor::from_data(data.clone(), &self.device)
    }

    /// An input.
    pub(crate) fn input(&self, name: &str) -> &AnyTensor {
        self.optional(name).unwrap_or_else(|| panic!("{}: no input `{name}`", self.golden.name))
    }

    /// An input, if the case has it.
    pub(crate) fn optional(&self, name: &str) -> Option<&AnyTensor> {
        self.inputs.get(name)
    }

    /// A float input as a typed tensor.
    pub(crate) fn tensor<const D: usize>(&self, name: &str) -> Tensor<Dyn, D> {
        typed(self.input(name).clone())
    }

    /// A float input as a typed tensor, if the case has it.
    pub(crate) fn optional_tensor<const D: usize>(&self, name: &str) -> Option<Tensor<Dyn, D>> {
        self.optional(name).cloned().map(typed)
    }

    /// An integer input as a typed tensor.
    pub(crate) fn int_tensor<const D: usize>(&self, name: &str) -> Tensor<Dyn, D, Int> {
        self.input(name).clone().try_into_tensor().unwrap_or_else(|error| panic!("{error}"))
    }

    /// The stored data of a tensor of the case.
    pub(crate) fn golden_tensor(&self, name: &str) -> TensorData {
        self.golden.tensor(name).clone()
    }

    fn any(&self) -> &AnyTensor {
        self.inputs.values().next().expect("every case has an input")
    }

    /// The engine stack of the device.
    pub(crate) fn engine(&self) -> &dyn Engine {
        self.any().stack().engine()
    }

    /// An input as a [`Var`].
    pub(crate) fn var(&self, name: &str) -> Var<'_> {
        Var::new(self.engine(), self.input(name).value().clone())
    }

    /// Converts a [`Var`] to a tensor.
    pub(crate) fn done(&self, var: Var<'_>) -> AnyTensor {
        self.wrap(var.into_value())
    }

    fn wrap(&self, value: Value) -> AnyTensor {
        AnyTensor::new(self.any().stack().clone(), value)
    }
}

/// A float tensor with static rank.
pub(crate) fn typed<const D: usize>(tensor: AnyTensor) -> Tensor<Dyn, D> {
    tensor.try_into_tensor().unwrap_or_else(|error| panic!("{error}"))
}

/// Converts a list to an array.
pub(crate) fn array<const N: usize, T: Copy>(list: &[T]) -> [T; N] {
    list.try_into().unwrap_or_else(|_| panic!("{} numbers instead of {N}", list.len()))
}

/// Evaluates an expression of a typed tensor for the dynamic rank of a tensor.
macro_rules! by_rank {
    ($tensor:expr, |$name:ident| $body:expr) => {{
        let tensor: kiln_tensor::AnyTensor = $tensor;
        match tensor.rank() {
            1 => $crate::goldens::call::by_rank!(@ tensor, 1, $name, $body),
            2 => $crate::goldens::call::by_rank!(@ tensor, 2, $name, $body),
            3 => $crate::goldens::call::by_rank!(@ tensor, 3, $name, $body),
            4 => $crate::goldens::call::by_rank!(@ tensor, 4, $name, $body),
            5 => $crate::goldens::call::by_rank!(@ tensor, 5, $name, $body),
            rank => panic!("no golden has a tensor of {rank} axes"),
        }
    }};
    (@ $tensor:ident, $rank:literal, $name:ident, $body:expr) => {{
        let $name: kiln_tensor::Tensor<kiln_backends::Dyn, $rank> = $crate::goldens::call::typed($tensor);
        $body.into_any()
    }};
}
pub(crate) use by_rank;
