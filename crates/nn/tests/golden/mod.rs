//! Reads the goldens of PyTorch, and compares results and gradients with them.

use kiln_backends::Flex;
use kiln_nn::Param;
use kiln_nn::loss::Reduction;
use kiln_tensor::{AnyTensor, Autodiff, DType, Kind, Tensor, TensorData, TensorType};
use safetensors::SafeTensors;
use serde_json::Value;
use std::path::PathBuf;

pub(crate) type B = Autodiff<Flex>;

/// The cases of a family and their tensors.
struct Family {
    cases: Vec<Value>,
    tensors: Vec<u8>,
}

/// One case: its description, and the tensors of its family.
pub(crate) struct Case<'a> {
    pub(crate) json: &'a Value,
    tensors: &'a SafeTensors<'a>,
}

/// Runs a check on every case of the named ops, and fails unless there are some.
pub(crate) fn each_case(family: &str, ops: &[&str], mut check: impl FnMut(&Case<'_>)) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../suite/goldens");
    let json = std::fs::read_to_string(folder.join(format!("{family}.json"))).unwrap();
    let tensors = std::fs::read(folder.join(format!("{family}.safetensors"))).unwrap();
    let family = Family { cases: serde_json::from_str(&json).unwrap(), tensors };
    let tensors = SafeTensors::deserialize(&family.tensors).unwrap();
    for op in ops {
        let cases = family.cases.iter().filter(|case| case["op"] == **op);
        let count = cases.map(|json| check(&Case { json, tensors: &tensors })).count();
        assert!(count > 0, "no case of {op}");
    }
}

impl Case<'_> {
    pub(crate) fn name(&self) -> &str {
        self.json["name"].as_str().unwrap()
    }

    pub(crate) fn op(&self) -> &str {
        self.json["op"].as_str().unwrap()
    }

    pub(crate) fn has(&self, input: &str) -> bool {
        self.json["inputs"].as_array().unwrap().iter().any(|name| name == input)
    }

    pub(crate) fn data(&self, name: &str) -> TensorData {
        let view = self.tensors.tensor(&format!("{}/{name}", self.name())).unwrap();
        let dtypes = [
            (safetensors::Dtype::F32, DType::F32),
            (safetensors::Dtype::F64, DType::F64),
            (safetensors::Dtype::I32, DType::I32),
        ];
        let (_, dtype) = dtypes.into_iter().find(|(stored, _)| *stored == view.dtype()).unwrap();
        TensorData::from_bytes(view.data(), TensorType::new(view.shape(), dtype)).unwrap()
    }

    pub(crate) fn rank(&self, name: &str) -> usize {
        self.data(name).shape().rank()
    }

    pub(crate) fn constant<const D: usize, K: Kind>(&self, name: &str) -> Tensor<B, D, K> {
        let data = self.data(name);
        let dtype = data.dtype();
        Tensor::from_data_dtype(data, dtype, &Default::default())
    }

    pub(crate) fn input<const D: usize>(&self, name: &str) -> Tensor<B, D> {
        self.constant(name).require_grad()
    }

    pub(crate) fn param<const D: usize>(&self, name: &str) -> Param<Tensor<B, D>> {
        Param::from_tensor(self.constant(name))
    }

    pub(crate) fn optional<const D: usize>(&self, name: &str) -> Option<Param<Tensor<B, D>>> {
        self.has(name).then(|| self.param(name))
    }

    pub(crate) fn number(&self, attribute: &str) -> f64 {
        self.json["attributes"][attribute].as_f64().unwrap()
    }

    pub(crate) fn flag(&self, attribute: &str) -> bool {
        self.json["attributes"][attribute].as_bool().unwrap()
    }

    pub(crate) fn lengths<const N: usize>(&self, attribute: &str) -> [usize; N] {
        let list = self.json["attributes"][attribute].as_array().unwrap();
        std::array::from_fn(|axis| list[axis].as_u64().unwrap() as usize)
    }

    pub(crate) fn reduction(&self) -> Reduction {
        match self.json["attributes"]["reduction"].as_str().unwrap() {
            "mean" => Reduction::Mean,
            "sum" => Reduction::Sum,
            "none" => Reduction::None,
            "batchmean" => Reduction::BatchMean,
            other => panic!("{other}"),
        }
    }

    /// Compares an output, whatever its shape, with the stored one.
    pub(crate) fn compare(&self, name: &str, got: TensorData) {
        let expected: Vec<f64> = self.data(name).to_vec();
        let got: Vec<f64> = got.to_vec();
        assert_eq!(got.len(), expected.len(), "{}: {name} has another number of elements", self.name());
        let absolute = self.json["tolerance"]["absolute"].as_f64().unwrap();
        let relative = self.json["tolerance"]["relative"].as_f64().unwrap();
        for (place, (&got, &expected)) in got.iter().zip(&expected).enumerate() {
            let near = (got - expected).abs() <= absolute + relative * expected.abs();
            let same = got == expected || (got.is_nan() && expected.is_nan());
            assert!(near || same, "{}: {name}[{place}] is {got}, expected {expected}", self.name());
        }
    }

    /// Compares the main output, and the gradients of the inputs.
    pub(crate) fn check<const D: usize>(&self, y: Tensor<B, D>, inputs: &[(&str, Option<AnyTensor>)]) {
        self.compare(self.json["outputs"][0].as_str().unwrap(), y.to_data());
        let stored = self.json["gradients"].as_object().unwrap();
        if stored.is_empty() {
            return;
        }
        let grad_output = self.data("grad_output").reshape(y.shape()).unwrap();
        let dtype = y.dtype();
        let grad_output = Tensor::<B, D>::from_data_dtype(grad_output, dtype, &Default::default());
        let gradients = (y * grad_output).backward();
        for (input, gradient) in stored {
            let (_, tensor) = inputs.iter().find(|(name, _)| name == input).unwrap();
            let got = gradients.get(tensor.as_ref().unwrap()).unwrap();
            self.compare(gradient.as_str().unwrap(), got.into_data().unwrap());
        }
    }
}

pub(crate) fn any<const D: usize>(tensor: &Tensor<B, D>) -> Option<AnyTensor> {
    Some(tensor.clone().into_any())
}

pub(crate) fn any_param<const D: usize>(param: &Option<Param<Tensor<B, D>>>) -> Option<AnyTensor> {
    param.as_ref().map(|param| param.val().into_any())
}

/// Evaluates a body with the rank of `x` as a constant.
macro_rules! with_rank {
    ($case:expr, $rank:ident => $body:block) => {
        match $case.rank("x") {
            1 => {
                const $rank: usize = 1;
                $body
            }
            2 => {
                const $rank: usize = 2;
                $body
            }
            3 => {
                const $rank: usize = 3;
                $body
            }
            4 => {
                const $rank: usize = 4;
                $body
            }
            5 => {
                const $rank: usize = 5;
                $body
            }
            rank => panic!("{}: rank {rank}", $case.name()),
        }
    };
}
pub(crate) use with_rank;
