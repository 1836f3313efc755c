//! Modules as functions of their parameters.

use super::{Module, ModuleOn, ParamId, Parameter, ParameterRole, Path, Visitor, visitors};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use kiln_tensor::{AnyTensor, Backend, Stack};

/// Tensors by the dotted names of a module's parameters. It is a [`Tree`](kiln_tensor::transform::Tree), so
/// [transformed](kiln_tensor::transform) functions accept and return it: a gradient has the names of its parameters.
pub type NamedTensors = BTreeMap<String, AnyTensor>;

/// Returns the module with other tensors in place of some parameters, on the backend of these tensors. This makes a
/// module a function of its parameters, for the [transforms](kiln_tensor::transform).
///
/// Parameters and buffers that are not replaced are [lifted](kiln_tensor::Tensor::lift) from the outer backend. They
/// are constants in derivatives, and the same for all examples. One tensor, under any one of the names, replaces a
/// [tied](crate::Param#tied-parameters) parameter at all of its places. The given module does not change.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig, NamedTensors, trainable_parameters, with_parameters};
/// use kiln_tensor::transform::{VmapOptions, grad, vmap_with};
/// use kiln_tensor::{Autodiff, Tensor, Vmap};
///
/// let device = Default::default();
/// let model: Linear<Flex> = LinearConfig::new(2, 1).init(&device);
/// let x = Tensor::<Flex, 2>::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], &device);
///
/// // The gradient of each of three examples by the weights, in one pass.
/// type E = Autodiff<Vmap<Flex>>;
/// let output = |(parameters, x): (NamedTensors, Tensor<E, 1>)| {
///     let model: Linear<E> = with_parameters(&model, parameters);
///     model.forward(x.unsqueeze::<2>()).sum()
/// };
/// let options = VmapOptions::default().in_axes([None, Some(0)]);
/// let (by_parameters, _): (NamedTensors, Tensor<Flex, 2>) =
///     vmap_with(options, grad(output))((trainable_parameters(&model), x));
/// assert_eq!(by_parameters["weight"].shape().to_vec(), [3, 1, 2]);
/// assert_eq!(by_parameters["bias"].shape().to_vec(), [3, 1]);
/// ```
///
/// The backend selects training mode. Under `grad`, dropout is active. Under `vmap`, each example draws its own random
/// values, unless [`Randomness`](kiln_tensor::transform::Randomness) selects another mode. Batch normalisation uses the
/// statistics of its input: under `vmap`, of the single example. The returned module holds the new running statistics.
/// To keep them, return them from the transformed function; see [`buffers`].
///
/// The definition is that of
/// [`torch.func.functional_call`](https://docs.pytorch.org/docs/stable/generated/torch.func.functional_call.html).
///
/// # Panics
/// * When `parameters` is empty, or its tensors are not on one backend.
/// * When a name is not a parameter of the module, or two names are of one parameter.
/// * When a tensor has another shape or kind than its parameter.
/// * When the module is not on a backend below that of the tensors.
#[track_caller]
pub fn with_parameters<B: Backend, M: ModuleOn<B>>(model: &M, parameters: NamedTensors) -> M::On {
    let inside = common_stack(&parameters);
    let given = Given::new(model, parameters);
    model.on(&mut Path::new(), &mut |path, parameter| match given.at(path) {
        Some(tensor) => tensor.clone(),
        None => lifted(path, parameter.value, &inside),
    })
}

/// Returns the tensors of a module's trainable parameters by name, on the module's own backend. A
/// [tied](crate::Param#tied-parameters) parameter occurs once, under its first name.
///
/// For a module in training, on `Autodiff<B>`, call it on [`valid`](super::AutodiffModule::valid): transforms add
/// layers to the backend of their arguments.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{AutodiffModule, Linear, LinearConfig, trainable_parameters};
/// use kiln_tensor::Autodiff;
///
/// let model: Linear<Autodiff<Flex>> = LinearConfig::new(3, 2).init(&Default::default());
/// let parameters = trainable_parameters(&model.valid());
/// assert_eq!(parameters.keys().collect::<Vec<_>>(), ["bias", "weight"]);
/// ```
pub fn trainable_parameters(module: &dyn Module) -> NamedTensors {
    tensors(module, ParameterRole::Trainable)
}

/// Returns the tensors of a module's buffers by name, on the module's own backend. Return them from a transformed
/// function to keep new running statistics.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{BatchNorm, BatchNormConfig, NamedTensors, buffers, trainable_parameters, with_parameters};
/// use kiln_tensor::transform::value_and_grad_with_aux;
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type A = Autodiff<Flex>;
/// let device = Default::default();
/// let model: BatchNorm<Flex> = BatchNormConfig::new(1).init(&device);
/// let loss = |(parameters, x): (NamedTensors, Tensor<A, 2>)| {
///     let model: BatchNorm<A> = with_parameters(&model, parameters);
///     (model.forward(x).square().mean(), buffers(&model))
/// };
/// let x = Tensor::<Flex, 2>::from_floats([[0.0], [10.0]], &device);
/// let (_, _, statistics): (_, _, NamedTensors) =
///     value_and_grad_with_aux(loss)((trainable_parameters(&model), x));
/// assert_eq!(statistics["running_mean"].clone().into_data()?.to_vec::<f32>(), [0.5]);
/// // The module itself is as it was.
/// assert_eq!(model.running_mean.value().into_data().to_vec::<f32>(), [0.0]);
/// # Ok::<(), kiln_tensor::Error>(())
/// ```
pub fn buffers(module: &dyn Module) -> NamedTensors {
    tensors(module, ParameterRole::Buffer)
}

fn tensors(module: &dyn Module, role: ParameterRole) -> NamedTensors {
    let mut found = NamedTensors::new();
    visitors::for_each(module, |path, Parameter { value, role: own, .. }| {
        if own == role {
            found.insert(path.to_string(), value);
        }
    });
    found
}

/// The common stack of the tensors.
#[track_caller]
fn common_stack(parameters: &NamedTensors) -> Stack {
    let Some((first, tensor)) = parameters.first_key_value() else {
        panic!(
            "[with_parameters] the backend is unknown without tensors\n  \
             hint: `trainable_parameters` returns the parameters of a module that are not frozen"
        )
    };
    let stack = tensor.stack();
    for (name, other) in parameters {
        if !other.stack().same_domain(stack) {
            let [here, there] = stack.distinguishable_names(other.stack());
            panic!(
                "[with_parameters] `{first}` is on {here}, but `{name}` on {there}\n  \
                 hint: lift outer tensors with `lift_to`"
            )
        }
    }
    stack.clone()
}

/// The replacement tensors.
struct Given {
    /// The tensors whose parameters are not found yet, by their names.
    unknown: NamedTensors,
    /// The tensors and the names that they were given under, by the first names of their parameters.
    tensors: BTreeMap<String, (String, AnyTensor)>,
    /// The first names of parameters by id, and of tied parameters by their other names.
    first: BTreeMap<ParamId, String>,
    aliases: BTreeMap<String, String>,
    twice: Option<[String; 2]>,
}

impl Given {
    #[track_caller]
    fn new(module: &dyn Module, parameters: NamedTensors) -> Given {
        let mut given = Given {
            unknown: parameters,
            tensors: BTreeMap::new(),
            first: BTreeMap::new(),
            aliases: BTreeMap::new(),
            twice: None,
        };
        module.visit(&mut Path::new(), &mut given);
        if let Some([first, second]) = &given.twice {
            panic!(
                "[with_parameters] `{first}` and `{second}` are one parameter of the module\n  hint: pass one tensor"
            )
        }
        if let Some(name) = given.unknown.keys().next() {
            panic!(
                "[with_parameters] the module has no parameter `{name}`\n  hint: `named_parameters` lists the names"
            )
        }
        given
    }

    /// The tensor for a place.
    fn at(&self, path: &Path) -> Option<&AnyTensor> {
        let name = self.aliases.get(path.as_str()).map_or(path.as_str(), String::as_str);
        self.tensors.get(name).map(|(_, tensor)| tensor)
    }

    fn insert(&mut self, path: &Path, first: String) {
        let Some((name, tensor)) = self.unknown.remove_entry(path.as_str()) else { return };
        if let Some((other, _)) = self.tensors.insert(first, (name, tensor)) {
            self.twice = Some([other, path.to_string()]);
        }
    }
}

impl Visitor for Given {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        self.first.insert(parameter.id, path.to_string());
        self.insert(path, path.to_string());
    }

    fn tied(&mut self, path: &Path, parameter: Parameter) {
        let first = self.first[&parameter.id].clone();
        self.aliases.insert(path.to_string(), first.clone());
        self.insert(path, first);
    }
}

/// Lifts a parameter from an outer backend.
#[track_caller]
fn lifted(path: &Path, value: AnyTensor, inside: &Stack) -> AnyTensor {
    let below = value.clone().inner();
    match value.lift_to(inside).or_else(|_| below.lift_to(inside)) {
        Ok(value) => value,
        Err(error) => panic!("[with_parameters] parameter `{path}` cannot be lifted: {error}"),
    }
}
