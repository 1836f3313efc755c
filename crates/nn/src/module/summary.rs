//! Output shapes, parameters and arithmetic operations of a module's layers.

mod attribution;
mod print;

use super::table::{LayerTable, Totals};
use super::{ForwardModule, Mode, ModuleOn, Parameter, Path, Visitor};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Debug;
use kiln_backends::{Device, Dyn};
use kiln_ir::{Operand, Program, Recorder, Value};
use kiln_tensor::transform::Tree;
use kiln_tensor::{AnyTensor, Backend, DType, Stack, Tensor, TensorType};

/// The layers of a module with the shapes of their outputs, their parameters and the arithmetic operations of one
/// forward pass. `Display` prints a table.
///
/// The forward pass is recorded as a [program](kiln_tensor::capture): nothing is computed, and layers have no hooks. Each
/// op belongs to the layer whose parameters it reads. Ops without parameters (activations, pooling, sums) belong to
/// [`then`](LayerSummary::then) of the layer before them in the order of execution, because nothing else in a program
/// tells which module ran them. The `+` rows of the table are these ops. Modules without parameters have no row of their
/// own.
///
/// Operations are counted by [`kiln_ir::cost`](fn@kiln_ir::cost): a multiply-add counts 2, an elementwise function 1 per
/// element. Only the forward pass is counted.
///
/// See [`ModuleSummary`] for an example.
#[derive(Clone, Debug)]
pub struct Summary {
    rows: Vec<LayerSummary>,
    before: Option<FunctionSummary>,
    outputs: Vec<TensorType>,
    totals: Totals,
    flops: u64,
}

/// A module in a [`Summary`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSummary {
    /// The dotted path. Empty for the root.
    pub path: String,
    /// The name of the type.
    pub name: String,
    /// The number of modules around this one.
    pub depth: usize,
    /// The type of the last output: dtype and shape. For a module around others, that of the last op of its layers and
    /// of the ops after them. `None` if the forward pass does not read the parameters.
    pub output: Option<TensorType>,
    /// Number of elements in the parameters of the module and its submodules, without buffers. A
    /// [tied](crate::Param#tied-parameters) parameter counts where it is first.
    pub parameters: usize,
    /// Arithmetic operations of the module and its submodules, with the ops between the submodules ([`then`]), and
    /// without its own.
    ///
    /// [`then`]: LayerSummary::then
    pub flops: u64,
    /// The number of times that the forward pass calls the module, if the module has parameters of its own. Consecutive
    /// calls, as in a recurrent network, count as one.
    pub calls: usize,
    /// The ops without parameters after this module.
    pub then: Option<FunctionSummary>,
}

/// Ops without parameters in a [`Summary`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSummary {
    /// The names of the ops in order of execution, without views and repetitions.
    pub ops: Vec<String>,
    /// The type of the last result.
    pub output: TensorType,
    /// Arithmetic operations.
    pub flops: u64,
}

impl Summary {
    /// Returns the modules in traversal order: each is followed by its submodules.
    pub fn layers(&self) -> &[LayerSummary] {
        &self.rows
    }

    /// Returns the module at a dotted path.
    pub fn layer(&self, path: &str) -> Option<&LayerSummary> {
        self.rows.iter().find(|row| row.path == path)
    }

    /// Returns the ops before the first layer.
    pub fn before(&self) -> Option<&FunctionSummary> {
        self.before.as_ref()
    }

    /// Returns the types of the forward pass's outputs.
    pub fn outputs(&self) -> &[TensorType] {
        &self.outputs
    }

    /// Returns the number of elements in all parameters, without buffers.
    pub fn num_parameters(&self) -> usize {
        self.totals.parameters()
    }

    /// Returns the arithmetic operations of the forward pass. A multiply-add counts 2.
    #[doc(alias = "macs")]
    pub fn flops(&self) -> u64 {
        self.flops
    }
}

/// Modules whose forward pass can be summarized: all that can be converted to [`Dyn`], such as derived ones.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::conv::Conv2dConfig;
/// use kiln_nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
/// use kiln_nn::{Conv2d, Linear, LinearConfig, Module, ModuleSummary, Relu};
/// use kiln_tensor::{Backend, Tensor};
///
/// #[derive(Debug, Module)]
/// struct Net<B: Backend> {
///     conv: Conv2d<B>,
///     pool: AdaptiveAvgPool2d,
///     head: Linear<B>,
/// }
///
/// impl<B: Backend> Net<B> {
///     fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 2> {
///         let x = Relu::new().forward(self.conv.forward(x));
///         self.head.forward(self.pool.forward(x).flatten(1, 3))
///     }
/// }
///
/// let device = Default::default();
/// let net = Net::<Flex> {
///     conv: Conv2dConfig::new([3, 8], [3, 3]).init(&device),
///     pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
///     head: LinearConfig::new(8, 10).init(&device),
/// };
/// let summary = net.summary_of(|net, device| net.forward(Tensor::zeros([1, 3, 32, 32], device)));
/// println!("{summary}");
/// let conv = summary.layer("conv").unwrap();
/// assert_eq!(conv.output.unwrap().shape.to_vec(), [1, 8, 30, 30]);
/// assert_eq!(conv.flops, 8 * 30 * 30 * (2 * 3 * 3 * 3 + 1));
/// ```
pub trait ModuleSummary: ModuleOn<Dyn> + Sized {
    /// Summarizes the forward pass of a [`ForwardModule`] for a float tensor of this shape.
    ///
    /// ```
    /// use kiln_backends::Flex;
    /// use kiln_nn::{LinearConfig, ModuleSummary, Relu};
    ///
    /// let device = Default::default();
    /// let mlp = (LinearConfig::new(784, 64).init::<Flex>(&device), Relu::new(), LinearConfig::new(64, 10).init::<Flex>(&device));
    /// let summary = mlp.summary([1, 784]);
    /// assert_eq!(summary.num_parameters(), 784 * 64 + 64 + 64 * 10 + 10);
    /// assert_eq!(summary.flops(), 2 * 784 * 64 + 64 + 64 + 2 * 64 * 10 + 10);
    /// ```
    ///
    /// # Panics
    /// When the module does not accept the shape.
    #[track_caller]
    fn summary<const D: usize>(&self, shape: [usize; D]) -> Summary
    where
        Self::On: ForwardModule<Tensor<Dyn, D>>,
        <Self::On as ForwardModule<Tensor<Dyn, D>>>::Output: Tree<Dyn>,
    {
        self.summary_of(|module, device| module.forward(Tensor::zeros(shape, device)))
    }

    /// Summarizes a forward pass. The function receives the module on [`Dyn`], and the device on which it creates the
    /// inputs. The values of tensors are unknown while it runs.
    ///
    /// Modules are in evaluation mode, unless [`Module::train`](super::Module::train) set another mode.
    ///
    /// # Panics
    /// When `forward` panics, reads a tensor, or uses a tensor of another device.
    #[track_caller]
    fn summary_of<O: Tree<Dyn>>(&self, forward: impl FnOnce(&Self::On, &Device) -> O) -> Summary {
        let mut layers = Layers::default();
        self.visit(&mut Path::new(), &mut layers);
        let (program, outputs) = record(self, &layers.parameters, forward);
        let attribution = attribution::attribute(&program, &layers.owners);
        attribution.into_summary(layers.table, outputs, program.cost().flops)
    }
}

impl<M: ModuleOn<Dyn>> ModuleSummary for M {}

/// The table of a module's layers, and its parameters in traversal order, at each place of tied ones.
#[derive(Default)]
struct Layers {
    table: LayerTable,
    parameters: Vec<TensorType>,
    /// The row of each parameter.
    owners: Vec<usize>,
}

impl Visitor for Layers {
    fn enter(&mut self, path: &Path, name: &str) {
        self.table.enter(path, name);
    }

    fn exit(&mut self, path: &Path, name: &str) {
        self.table.exit(path, name);
    }

    fn attribute(&mut self, path: &Path, value: &dyn Debug) {
        self.table.attribute(path, value);
    }

    fn mode(&mut self, path: &Path, mode: Mode) {
        self.table.mode(path, mode);
    }

    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        self.parameters.push(*parameter.value.ty());
        self.table.parameter(path, parameter);
        self.owners.push(self.table.innermost());
    }

    fn tied(&mut self, path: &Path, parameter: Parameter) {
        self.parameters.push(*parameter.value.ty());
        self.table.tied(path, parameter);
        self.owners.push(self.table.innermost());
    }
}

/// Records the forward pass with the parameters as inputs of the program, in traversal order.
#[track_caller]
fn record<M: ModuleOn<Dyn>, O: Tree<Dyn>>(
    module: &M,
    parameters: &[TensorType],
    forward: impl FnOnce(&M::On, &Device) -> O,
) -> (Program, Vec<TensorType>) {
    let float = parameters.iter().map(|ty| ty.dtype).find(|dtype| dtype.is_float());
    let recorder = Arc::new(Recorder::with_constants(parameters));
    let stack = Stack::new(recorder.clone(), "summary", float.unwrap_or(DType::F32), DType::I32);
    let wrap = |value: Value| AnyTensor::new(stack.clone(), value);
    let mut inputs = recorder.inputs().into_iter().map(wrap);
    let placed = module.on(&mut Path::new(), &mut |path, _| match inputs.next() {
        Some(input) => input,
        None => panic!("[summary] `{path}` is not a parameter that the module visits"),
    });
    let mut outputs = Vec::new();
    forward(&placed, &Dyn::device(&stack)).flatten(&mut outputs);
    let other = outputs.iter().find(|output| !output.stack().same_domain(&stack));
    assert!(
        other.is_none(),
        "[summary] the output does not depend on the module's device\n  \
         hint: create the inputs on the device that the function receives"
    );
    let types = outputs.iter().map(|output| *output.ty()).collect();
    let outputs: Vec<Operand> = outputs.into_iter().map(|output| output.into_value().into()).collect();
    (recorder.finish(&outputs), types)
}
