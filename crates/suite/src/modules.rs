//! Every module of `kiln_nn`, as tables: one [`ModuleRow`] for each.
//!
//! A row is a [`Method`] whose operands are the module's parameters, in traversal order, and then its inputs. The checks of
//! methods therefore hold for modules too: [`check_value`](crate::methods::check_value) compares values on an engine with
//! the reference, [`check_gradient`](crate::methods::check_gradient) and
//! [`check_second`](crate::methods::check_second) compare gradients by parameters and inputs with finite differences.
//! [`check_saved`] saves and loads the parameters. [`check_tied`] trains a model with a shared parameter. [`page`](page()) prints the table of the book.

mod activations;
mod convolutions;
mod layers;
mod losses;
mod page;
mod pools;
mod random;
mod sequences;
mod surface;
mod tied;
mod updates;

pub use page::{Page, page};
pub use surface::{EXEMPT, surface};
pub use tied::check_tied;
pub use updates::{OPTIMIZERS, OptimizerRow, SCHEDULES, ScheduleRow, check_long_training, check_optimizer};

use crate::check::Outcome;
use crate::methods::{Argument, Method};
use kiln_backends::{Device, Dyn};
use kiln_ir::{DType, TensorData};
use kiln_nn::{Module, ModuleOn, Parameter, Path};
use kiln_store::{load_module, save_module};
use kiln_tensor::{AnyTensor, Kind, Result, Tensor};

/// A module, a call of it, and its expected properties.
#[derive(Clone)]
pub struct ModuleRow {
    /// The module as a function of its parameters and inputs. The name is that of the type.
    pub method: Method,
    /// PyTorch's results for it.
    pub twin: Twin,
    /// Builds the module twice, and saves and loads its parameters.
    pub saved: fn() -> std::result::Result<usize, String>,
}

/// The cases of the goldens that call a module's twin in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// The cases of this op in this family.
    Golden(&'static str, &'static str),
    /// The cases of this op in this family, which have no gradients, for this reason.
    Values(&'static str, &'static str, &'static str),
    /// There are none, for this reason.
    None(&'static str),
}

impl ModuleRow {
    /// Names the row, to distinguish it from others of the same module.
    pub fn variant(mut self, variant: &'static str) -> ModuleRow {
        self.method = self.method.variant(variant);
        self
    }

    /// Changes the expected properties of the function.
    pub fn with(mut self, change: impl FnOnce(Method) -> Method) -> ModuleRow {
        self.method = change(self.method);
        self
    }
}

/// A row of a module.
///
/// * `row!("Relu", twin, |_| Relu::new(), 2, away(&[2, 3]))` has one input of that rank.
/// * `row!("Bilinear", twin, |d| .., |m, x| one(m.forward(t::<2, _>(&x[0]), t(&x[1]))), [normal(&[2, 3]), normal(&[2, 4])])`
///   has any inputs.
macro_rules! row {
    ($name:literal, $twin:expr, $build:expr, $rank:literal, $input:expr) => {
        $crate::modules::row!(
            $name,
            $twin,
            $build,
            |m, x| $crate::modules::one(kiln_nn::ForwardModule::forward(
                m,
                $crate::modules::t::<$rank, kiln_tensor::Float>(&x[0])
            )),
            [$input]
        )
    };
    ($name:literal, $twin:expr, $build:expr, $forward:expr, [$($input:expr),* $(,)?]) => {{
        let mut operands = $crate::modules::parameters($build);
        operands.extend([$($input),*]);
        $crate::modules::ModuleRow {
            method: $crate::methods::Method::new($name, |x| $crate::modules::call(x, $build, $forward)).on(&operands),
            twin: $twin,
            saved: || $crate::modules::saved($build),
        }
    }};
}

pub(crate) use row;

/// The name of a group and its rows.
pub type Group = (&'static str, fn() -> Vec<ModuleRow>);

/// Every row, by group.
pub const GROUPS: &[Group] = &[
    ("Activations", activations::rows),
    ("Linear layers, embeddings and norms", layers::rows),
    ("Convolutions, padding and images", convolutions::rows),
    ("Pooling", pools::rows),
    ("Random layers", random::rows),
    ("Recurrent modules and attention", sequences::rows),
    ("Losses", losses::rows),
];

/// Returns every row.
pub fn all() -> Vec<ModuleRow> {
    GROUPS.iter().flat_map(|(_, rows)| rows()).collect()
}

/// Saves the parameters of a row's module as safetensors, loads them by name into another instance, and compares.
pub fn check_saved(row: &ModuleRow) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.note(&row.method.key(), (row.saved)().err());
    outcome
}

/// The parameters as operands, filled with normal numbers.
fn parameters<M: Module>(build: impl Fn(&Device) -> M) -> Vec<Argument> {
    let module = build(&Device::flex());
    let operand = |(_, parameter): (String, Parameter)| {
        // Rows are static data; the few shapes of a table live as long as the process.
        let shape: &'static [usize] = Box::leak(parameter.value.shape().to_vec().into_boxed_slice());
        crate::methods::normal(shape)
    };
    module
        .named_parameters()
        .into_iter()
        .filter(|(_, parameter)| !parameter.is_buffer())
        .map(operand)
        .collect()
}

/// Calls a module with the first operands in place of its parameters, and the others as inputs. Buffers keep their values.
fn call<M: ModuleOn<Dyn, On = M>>(
    operands: &[AnyTensor],
    build: impl Fn(&Device) -> M,
    forward: impl Fn(&M, &[AnyTensor]) -> Result<Vec<AnyTensor>>,
) -> Result<Vec<AnyTensor>> {
    let Some(first) = operands.first() else { return Ok(Vec::new()) };
    let (stack, dtype) =
        (first.stack().clone(), operands.iter().map(AnyTensor::dtype).find(|dtype| dtype.is_float()));
    let mut taken = 0;
    let module = build(&Device::flex()).on(&mut Path::new(), &mut |_, parameter| {
        if parameter.is_buffer() {
            let data = parameter.value.into_data().expect("a buffer is on the host");
            let dtype = if data.dtype().is_float() { dtype.unwrap_or(DType::F32) } else { data.dtype() };
            return AnyTensor::from_data(data.convert(dtype), &stack);
        }
        taken += 1;
        operands[taken - 1].clone()
    });
    forward(&module, &operands[taken..])
}

/// The operand as a typed tensor.
#[track_caller]
fn t<const D: usize, K: Kind>(any: &AnyTensor) -> Tensor<Dyn, D, K> {
    Tensor::from_any(any.clone())
}

/// The only output of a module.
fn one<const D: usize, K: Kind>(output: Tensor<Dyn, D, K>) -> Result<Vec<AnyTensor>> {
    Ok(vec![output.into_any()])
}

/// The number of tensors that a module saves. They are saved, loaded into another instance, and compared.
fn saved<M: Module>(build: impl Fn(&Device) -> M) -> std::result::Result<usize, String> {
    let device = Device::flex();
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = folder.path().join("module.safetensors");
    let (first, second) = (build(&device), build(&device));
    save_module(&first, &file).map_err(|error| error.to_string())?;
    let loaded = load_module(second, &file).map_err(|error| error.to_string())?;
    let (before, after) = (host(&first)?, host(&loaded)?);
    if before != after {
        return Err("the loaded parameters differ from the saved ones".into());
    }
    Ok(before.len())
}

fn host<M: Module>(module: &M) -> std::result::Result<Vec<(String, TensorData)>, String> {
    let data = |(name, parameter): (String, Parameter)| {
        parameter.value.into_data().map(|data| (name, data)).map_err(|error| error.to_string())
    };
    module.named_parameters().into_iter().map(data).collect()
}
