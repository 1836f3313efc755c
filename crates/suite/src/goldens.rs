//! PyTorch results for small inputs: the reader of `goldens/`, whose `README.md` specifies the files, and the runner of
//! the cases on devices.

mod activation;
mod attention;
mod average;
mod call;
mod contraction;
mod fft;
mod index;
mod layer;
mod loss;
mod loss_module;
mod math;
mod methods;
mod module;
mod norm;
mod optimizer;
mod pool;
mod recurrent;
mod reduce;
mod reparametrize;
mod resize;
mod run;
mod transformer;

pub use run::{family_on, run_family};

use crate::compare::agree;
use kiln_ir::{DType, Shape, TensorData, TensorType};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The families of goldens, each a pair of files.
pub const FAMILIES: &[&str] = &[
    "activation",
    "attention",
    "average",
    "conv",
    "fft",
    "index",
    "loss",
    "loss_module",
    "math",
    "matmul",
    "method_activation",
    "method_core",
    "method_create",
    "method_elementwise",
    "method_einsum",
    "method_grid",
    "method_index",
    "method_linalg",
    "method_loss",
    "method_module",
    "method_order",
    "method_quantize",
    "method_reduce",
    "method_signal",
    "method_special",
    "method_stats",
    "method_view",
    "module",
    "nn_layer",
    "norm",
    "optimizer",
    "optimizer2",
    "pool",
    "recurrent",
    "reduce",
    "reparametrize",
    "resize",
    "transformer",
];

/// The families that the tests of `kiln-nn` and `kiln-optim` run: schedules compute numbers on the host, and the others
/// are options of modules that the families above run on every engine.
pub const HOST_FAMILIES: &[&str] = &["momentum", "pool_indices", "recurrent_options", "schedule"];

/// One case: an op with inputs, PyTorch's results, and the tolerance.
#[derive(Clone, Debug)]
pub struct Golden {
    /// Unique in the family.
    pub name: String,
    /// The op, which fixes inputs, attributes and outputs.
    pub op: String,
    /// The dtype of every float tensor of the case.
    pub dtype: DType,
    /// Every attribute of the op.
    pub attributes: Json,
    /// The names of the inputs.
    pub inputs: Vec<String>,
    /// The names of the outputs, the main one first.
    pub outputs: Vec<String>,
    /// Pairs of an input name and the name of its gradient.
    pub gradients: Vec<(String, String)>,
    /// Allowed absolute difference.
    pub absolute: f64,
    /// Allowed relative difference.
    pub relative: f64,
    tensors: BTreeMap<String, TensorData>,
}

/// Reads the cases of a family, in the order of the file. `KILN_ROOT` names the checkout; default: the one of the
/// build.
///
/// # Panics
/// When a file is missing or violates the specification.
pub fn read_family(family: &str) -> Vec<Golden> {
    let here = || PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let folder =
        std::env::var_os("KILN_ROOT").map_or_else(here, |root| PathBuf::from(root).join("crates/suite"));
    let folder = folder.join("goldens");
    let bytes = |ending: &str| {
        let path = folder.join(format!("{family}.{ending}"));
        std::fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
    };
    let (json, binary) = (bytes("json"), bytes("safetensors"));
    let tensors = SafeTensors::deserialize(&binary).unwrap_or_else(|error| panic!("{family}: {error}"));
    let mut by_case: BTreeMap<String, BTreeMap<String, TensorData>> = BTreeMap::new();
    for (name, view) in tensors.iter() {
        let (case, tensor) =
            name.split_once('/').unwrap_or_else(|| panic!("{family}: `{name}` has no slash"));
        let data = tensor_data(view.dtype(), view.shape(), view.data());
        by_case.entry(case.into()).or_default().insert(tensor.into(), data);
    }
    let cases: Vec<Json> = serde_json::from_slice(&json).unwrap_or_else(|error| panic!("{family}: {error}"));
    cases.into_iter().map(|case| golden(case, &mut by_case)).collect()
}

fn golden(case: Json, by_case: &mut BTreeMap<String, BTreeMap<String, TensorData>>) -> Golden {
    let name = text(&case["name"]);
    let gradients = case["gradients"].as_object().expect("gradients are an object");
    Golden {
        tensors: by_case.remove(&name).unwrap_or_default(),
        op: text(&case["op"]),
        dtype: DType::from_name(&text(&case["dtype"])).expect("a dtype"),
        inputs: texts(&case["inputs"]),
        outputs: texts(&case["outputs"]),
        gradients: gradients.iter().map(|(input, gradient)| (input.clone(), text(gradient))).collect(),
        absolute: case["tolerance"]["absolute"].as_f64().expect("an absolute tolerance"),
        relative: case["tolerance"]["relative"].as_f64().expect("a relative tolerance"),
        attributes: case["attributes"].clone(),
        name,
    }
}

fn text(json: &Json) -> String {
    json.as_str().unwrap_or_else(|| panic!("`{json}` is no text")).into()
}

fn texts(json: &Json) -> Vec<String> {
    json.as_array().unwrap_or_else(|| panic!("`{json}` is no list")).iter().map(text).collect()
}

fn tensor_data(dtype: Dtype, shape: &[usize], bytes: &[u8]) -> TensorData {
    const STORED: [(Dtype, DType); 4] = [
        (Dtype::F32, DType::F32),
        (Dtype::F64, DType::F64),
        (Dtype::I32, DType::I32),
        (Dtype::BOOL, DType::Bool),
    ];
    let found = STORED.iter().find(|(stored, _)| *stored == dtype);
    let (_, dtype) = *found.unwrap_or_else(|| panic!("goldens hold no {dtype:?}"));
    TensorData::from_bytes(bytes, TensorType::new(Shape::new(shape), dtype)).expect("bytes fill the shape")
}

impl Golden {
    /// Returns a tensor of the case.
    ///
    /// # Panics
    /// When the name does not exist.
    pub fn tensor(&self, name: &str) -> &TensorData {
        self.tensors.get(name).unwrap_or_else(|| panic!("{}: no tensor `{name}`", self.name))
    }

    /// Returns an integer attribute.
    pub fn int(&self, name: &str) -> i64 {
        self.attributes[name].as_i64().unwrap_or_else(|| panic!("{}: `{name}` is no integer", self.name))
    }

    /// Returns a count attribute.
    pub fn count(&self, name: &str) -> usize {
        self.int(name) as usize
    }

    /// Returns a real attribute; `"inf"` is infinity.
    pub fn real(&self, name: &str) -> f64 {
        self.optional_real(name).unwrap_or_else(|| panic!("{}: `{name}` is no number", self.name))
    }

    /// Returns a real attribute, if present.
    pub fn optional_real(&self, name: &str) -> Option<f64> {
        let json = &self.attributes[name];
        match json.as_str() {
            Some("inf") => Some(f64::INFINITY),
            Some("-inf") => Some(f64::NEG_INFINITY),
            Some(_) | None => json.as_f64(),
        }
    }

    /// Returns a boolean attribute.
    pub fn flag(&self, name: &str) -> bool {
        self.attributes[name].as_bool().unwrap_or_else(|| panic!("{}: `{name}` is no bool", self.name))
    }

    /// Returns a string attribute.
    pub fn text(&self, name: &str) -> &str {
        self.attributes[name].as_str().unwrap_or_else(|| panic!("{}: `{name}` is no text", self.name))
    }

    /// Returns a list of counts.
    pub fn counts(&self, name: &str) -> Vec<usize> {
        self.optional_counts(name).unwrap_or_else(|| panic!("{}: `{name}` is no list", self.name))
    }

    /// Returns a list of counts, if present.
    pub fn optional_counts(&self, name: &str) -> Option<Vec<usize>> {
        let list = self.attributes[name].as_array()?;
        Some(list.iter().map(|json| json.as_u64().expect("a count") as usize).collect())
    }

    /// Returns a list of integers.
    pub fn ints(&self, name: &str) -> Vec<i64> {
        let list = self.attributes[name].as_array().unwrap_or_else(|| panic!("{}: no `{name}`", self.name));
        list.iter().map(|json| json.as_i64().expect("an integer")).collect()
    }

    /// Returns a list of real numbers, if present.
    pub fn optional_reals(&self, name: &str) -> Option<Vec<f64>> {
        let list = self.attributes[name].as_array()?;
        Some(list.iter().map(|json| json.as_f64().expect("a number")).collect())
    }

    /// Describes the difference of a tensor from the golden one, if any. Integers of any width compare with the stored
    /// `i32`.
    pub fn difference(&self, name: &str, actual: &TensorData) -> Option<String> {
        let expected = self.tensor(name);
        if expected.shape() != actual.shape() {
            return Some(format!("{name}: shape {} instead of {}", actual.shape(), expected.shape()));
        }
        let same_kind =
            expected.dtype() == actual.dtype() || (expected.dtype().is_int() && actual.dtype().is_int());
        if !same_kind {
            return Some(format!("{name}: {} instead of {}", actual.dtype(), expected.dtype()));
        }
        let (e, a) = (expected.to_vec::<f64>(), actual.to_vec::<f64>());
        let (relative, absolute) =
            if expected.dtype().is_float() { (self.relative, self.absolute) } else { (0.0, 0.0) };
        let near = |i: usize| {
            agree(e[i], a[i], relative, absolute) && (e[i].is_finite() || e[i].is_nan() || e[i] == a[i])
        };
        let wrong: Vec<usize> = (0..e.len()).filter(|&i| !near(i)).collect();
        let &first = wrong.first()?;
        let (count, all) = (wrong.len(), e.len());
        Some(format!(
            "{name}: element {first} is {:?} instead of {:?} ({count} of {all} differ)",
            a[first], e[first]
        ))
    }
}
