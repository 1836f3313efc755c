//! Goldens whose inputs are the state dict of a PyTorch module.

use kiln_backends::Flex;
use kiln_nn::Module;
use kiln_tensor::{AnyTensor, Autodiff, DType, Kind, Tensor, TensorData, TensorType};
use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

pub(crate) type B = Autodiff<Flex>;

pub(crate) struct Case<'a> {
    json: &'a Value,
    tensors: &'a SafeTensors<'a>,
}

/// Runs a check on every case of an op, and fails unless there are `count`.
pub(crate) fn each_case(family: &str, op: &str, count: usize, mut check: impl FnMut(&Case<'_>)) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../suite/goldens");
    let json = std::fs::read_to_string(folder.join(format!("{family}.json"))).unwrap();
    let tensors = std::fs::read(folder.join(format!("{family}.safetensors"))).unwrap();
    let cases: Vec<Value> = serde_json::from_str(&json).unwrap();
    let tensors = SafeTensors::deserialize(&tensors).unwrap();
    let cases = cases.iter().filter(|case| case["op"] == op);
    assert_eq!(cases.map(|json| check(&Case { json, tensors: &tensors })).count(), count, "cases of {op}");
}

impl Case<'_> {
    pub(crate) fn name(&self) -> &str {
        self.json["name"].as_str().unwrap()
    }

    pub(crate) fn attribute(&self, name: &str) -> &Value {
        let value = &self.json["attributes"][name];
        assert!(!value.is_null(), "{}: no attribute {name}", self.name());
        value
    }

    pub(crate) fn number(&self, name: &str) -> usize {
        self.attribute(name).as_u64().unwrap() as usize
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.attribute(name).as_bool().unwrap()
    }

    fn inputs(&self) -> impl Iterator<Item = &str> {
        self.json["inputs"].as_array().unwrap().iter().map(|name| name.as_str().unwrap())
    }

    pub(crate) fn has(&self, input: &str) -> bool {
        self.inputs().any(|name| name == input)
    }

    pub(crate) fn has_output(&self, output: &str) -> bool {
        self.json["outputs"].as_array().unwrap().iter().any(|name| name == output)
    }

    pub(crate) fn data(&self, name: &str) -> TensorData {
        let view = self.tensors.tensor(&format!("{}/{name}", self.name())).unwrap();
        let dtypes = [
            (safetensors::Dtype::F32, DType::F32),
            (safetensors::Dtype::I32, DType::I32),
            (safetensors::Dtype::BOOL, DType::Bool),
        ];
        let (_, dtype) = dtypes.into_iter().find(|(stored, _)| *stored == view.dtype()).unwrap();
        TensorData::from_bytes(view.data(), TensorType::new(view.shape(), dtype)).unwrap()
    }

    pub(crate) fn tensor<const D: usize, K: Kind>(&self, name: &str) -> Tensor<B, D, K> {
        Tensor::from_data(self.data(name), &Default::default())
    }

    pub(crate) fn optional<const D: usize, K: Kind>(&self, name: &str) -> Option<Tensor<B, D, K>> {
        self.has(name).then(|| self.tensor(name))
    }

    pub(crate) fn input<const D: usize>(&self, name: &str) -> Tensor<B, D> {
        self.tensor(name).require_grad()
    }

    /// Loads the state dict, all inputs but `others`, by name. Fails unless names and shapes are the module's.
    pub(crate) fn load<M: Module>(&self, mut module: M, others: &[&str]) -> M {
        let stored: BTreeSet<&str> = self.inputs().filter(|name| !others.contains(name)).collect();
        let own: Vec<String> = module.named_parameters().into_iter().map(|(name, _)| name).collect();
        let own: BTreeSet<&str> = own.iter().map(String::as_str).collect();
        assert_eq!(own, stored, "{}", self.name());
        module.map_parameters(|path, parameter| {
            let data = self.data(path.as_str());
            parameter.map(|value| AnyTensor::from_data(data, value.stack()))
        });
        module
    }

    pub(crate) fn compare(&self, name: &str, got: TensorData) {
        let stored = self.data(name);
        assert_eq!(got.shape(), stored.shape(), "{}: {name}", self.name());
        let (got, expected): (Vec<f64>, Vec<f64>) = (got.to_vec(), stored.to_vec());
        let absolute = self.json["tolerance"]["absolute"].as_f64().unwrap();
        let relative = self.json["tolerance"]["relative"].as_f64().unwrap();
        for (place, (&got, &expected)) in got.iter().zip(&expected).enumerate() {
            let near = (got - expected).abs() <= absolute + relative * expected.abs();
            assert!(near, "{}: {name}[{place}] is {got}, expected {expected}", self.name());
        }
    }

    /// Compares the output and the gradients of inputs and parameters.
    pub(crate) fn check<const D: usize>(
        &self,
        y: Tensor<B, D>,
        inputs: &[(&str, &Tensor<B, 3>)],
        module: &impl Module,
    ) {
        self.compare("y", y.to_data());
        let gradients = (y * self.tensor::<D, _>("grad_output")).backward();
        let parameters =
            module.named_parameters().into_iter().map(|(name, parameter)| (name, parameter.value));
        let inputs = inputs.iter().map(|(name, tensor)| (name.to_string(), (*tensor).clone().into_any()));
        let all: Vec<(String, AnyTensor)> = parameters.chain(inputs).collect();
        let stored = self.json["gradients"].as_object().unwrap();
        assert!(!stored.is_empty(), "{} has no gradients", self.name());
        for (input, gradient) in stored {
            let (_, tensor) = all.iter().find(|(name, _)| name == input).unwrap();
            let got =
                gradients.get(tensor).unwrap_or_else(|| panic!("{}: no gradient of {input}", self.name()));
            self.compare(gradient.as_str().unwrap(), got.into_data().unwrap());
        }
    }
}
