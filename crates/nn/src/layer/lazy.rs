//! Layers whose input size is read from the first input.

mod infer;

use crate::module::ReplaceParameter;
use crate::{
    BackendModule, ForwardModule, Mode, Module, ModuleOn, Parameter, Path, Visitor, VisitorMut, set_mode,
};
use core::fmt;
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Stack};
use spin::Once;

/// A configuration that initializes a layer for an input: the number of input features is that of the input.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{InferConfig, LinearConfig};
/// use kiln_tensor::Tensor;
///
/// let x = Tensor::<Flex, 2>::ones([4, 7], &Default::default());
/// // The 0 is replaced by 7.
/// let layer = LinearConfig::new(0, 3).init_for(&x);
/// assert_eq!(layer.weight.dims(), [3, 7]);
/// ```
pub trait InferConfig<X> {
    /// The layer.
    type Module: Module;

    /// Returns the layer for inputs of this shape, with parameters on the input's device.
    ///
    /// # Panics
    /// When the settings do not suit the input.
    #[track_caller]
    fn init_for(&self, x: &X) -> Self::Module;

    /// Returns the stack of an input.
    #[doc(hidden)]
    fn stack(x: &X) -> &Stack;
}

/// A layer that is initialized by its first input: [`LazyLinear`], [`LazyConv2d`] and so on.
///
/// Before the first call of [`forward`](Lazy::forward) or [`materialize`](Lazy::materialize) it has no parameters. The
/// first call initializes the layer for the input: with its number of features or channels, on its device. Later inputs
/// must have the same number. Call one of them before you create an optimizer, load a record, freeze parameters or
/// clone the layer. Clones of a layer without parameters are initialized independently.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{LazyLinear, LinearConfig, Module};
/// use kiln_tensor::Tensor;
///
/// // The number of input features, 0 here, is replaced.
/// let layer = LazyLinear::<Flex>::new(LinearConfig::new(0, 3));
/// assert_eq!(layer.num_parameters(), 0);
/// let y = layer.forward(Tensor::<Flex, 2>::ones([4, 7], &Default::default()));
/// assert_eq!(y.dims(), [4, 3]);
/// assert_eq!(layer.named_parameters()[0].0, "weight");
/// assert_eq!(layer.num_parameters(), 7 * 3 + 3);
/// ```
///
/// [`InferConfig::init_for`] initializes a layer for an input directly, without a wrapper.
pub struct Lazy<C, M> {
    config: C,
    /// The mode that was set before the layer exists.
    mode: Mode,
    module: Once<M>,
}

impl<C, M> Lazy<C, M> {
    /// Returns a layer without parameters. The number of inputs in the configuration is ignored.
    pub fn new(config: C) -> Lazy<C, M> {
        Lazy { config, mode: Mode::Auto, module: Once::new() }
    }

    /// Returns the layer, if it is initialized.
    pub fn get(&self) -> Option<&M> {
        self.module.get()
    }

    /// Returns the layer, if it is initialized.
    pub fn into_inner(self) -> Option<M> {
        self.module.try_into_inner()
    }
}

impl<C, M: Module> Lazy<C, M> {
    /// Initializes the layer for an input unless it is initialized already, and returns it.
    ///
    /// # Panics
    /// When the settings do not suit the input.
    #[track_caller]
    pub fn materialize<X>(&self, x: &X) -> &M
    where
        C: InferConfig<X, Module = M>,
    {
        if let Some(module) = self.module.get() {
            return module;
        }
        // Outside `call_once`, since a panic there would poison the layer.
        let mut module = self.config.init_for(x);
        module.visit_mut(&mut Path::new(), &mut Mover(C::stack(x).clone()));
        if self.mode != Mode::Auto {
            set_mode(&mut module, self.mode);
        }
        self.module.call_once(|| module)
    }

    /// Computes the output of the layer. The first call initializes it.
    ///
    /// # Panics
    /// When the settings do not suit the input.
    #[track_caller]
    pub fn forward<X>(&self, x: X) -> M::Output
    where
        C: InferConfig<X, Module = M>,
        M: ForwardModule<X>,
    {
        self.materialize(&x).forward(x)
    }
}

/// Moves new parameters to the stack of the input: on [`Dyn`] that may have more layers than its device.
struct Mover(Stack);

impl VisitorMut for Mover {
    fn parameter(&mut self, _path: &Path, parameter: Parameter) -> Parameter {
        Parameter { stack: self.0.clone(), ..parameter }
    }
}

impl<X, C, M> ForwardModule<X> for Lazy<C, M>
where
    C: InferConfig<X, Module = M> + fmt::Debug + Send,
    M: ForwardModule<X>,
{
    type Output = M::Output;

    #[track_caller]
    fn forward(&self, x: X) -> M::Output {
        Lazy::forward(self, x)
    }
}

impl<C: fmt::Debug + Send, M: Module> Module for Lazy<C, M> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        let Some(module) = self.module.get() else {
            visitor.enter(path, "Lazy");
            visitor.attribute(path, &self.config);
            visitor.mode(path, self.mode);
            visitor.exit(path, "Lazy");
            return;
        };
        module.visit(path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        let Some(module) = self.module.get_mut() else {
            visitor.enter(path, "Lazy");
            visitor.mode(path, &mut self.mode);
            visitor.exit(path, "Lazy");
            return;
        };
        module.visit_mut(path, visitor);
    }
}

impl<B: Backend, C: fmt::Debug + Send, M: BackendModule<B>> BackendModule<B> for Lazy<C, M> {}

impl<B: Backend, C: Clone + fmt::Debug + Send, M: ModuleOn<B>> ModuleOn<B> for Lazy<C, M> {
    type On = Lazy<C, M::On>;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        let module = self.module.get().map(|module| module.on(path, place));
        Lazy { config: self.config.clone(), mode: self.mode, module: initialized(module) }
    }
}

impl<C: Clone, M: Clone> Clone for Lazy<C, M> {
    fn clone(&self) -> Self {
        let module = initialized(self.module.get().cloned());
        Lazy { config: self.config.clone(), mode: self.mode, module }
    }
}

fn initialized<M>(module: Option<M>) -> Once<M> {
    match module {
        Some(module) => Once::initialized(module),
        None => Once::new(),
    }
}

impl<C: fmt::Debug, M: fmt::Debug> fmt::Debug for Lazy<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.module.get() {
            Some(module) => module.fmt(f),
            None => f.debug_tuple("Lazy").field(&self.config).finish(),
        }
    }
}

impl<C: fmt::Debug + Send, M: Module> fmt::Display for Lazy<C, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::module::display(self, f)
    }
}

macro_rules! lazy_layers {
    ($($name:ident $config:ident $layer:ident $number:literal;)*) => {$(
        #[doc = concat!("A [`", stringify!($layer), "`](crate::", stringify!($layer), ") layer whose ", $number)]
        /// is that of its first input. See [`Lazy`].
        pub type $name<B = Dyn> = Lazy<crate::$config, crate::$layer<B>>;
    )*};
}

lazy_layers! {
    LazyLinear LinearConfig Linear "number of input features";
    LazyConv1d Conv1dConfig Conv1d "number of input channels";
    LazyConv2d Conv2dConfig Conv2d "number of input channels";
    LazyConv3d Conv3dConfig Conv3d "number of input channels";
    LazyConvTranspose1d ConvTranspose1dConfig ConvTranspose1d "number of input channels";
    LazyConvTranspose2d ConvTranspose2dConfig ConvTranspose2d "number of input channels";
    LazyConvTranspose3d ConvTranspose3dConfig ConvTranspose3d "number of input channels";
    LazyBatchNorm BatchNormConfig BatchNorm "number of channels";
    LazyInstanceNorm InstanceNormConfig InstanceNorm "number of channels";
}
