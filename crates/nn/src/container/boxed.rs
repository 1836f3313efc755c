//! A module of a type that is chosen at run time.

use crate::{
    BackendModule, ForwardModule, Module, ModuleOn, Path, Visitor, VisitorMut, module::ReplaceParameter,
};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use kiln_backends::Dyn;
use kiln_tensor::transform::{Structure, Tree};
use kiln_tensor::{AnyTensor, Backend, Tensor};

/// A module of a type that is chosen at run time, with an input and an output of fixed types. It has all that other
/// modules have: parameters with dotted names, records, devices, modes, a copy for inference
/// ([`valid`](crate::AutodiffModule::valid)), and [`with_parameters`](crate::with_parameters).
///
/// The module is stored as its type on [`Dyn`], whose tensors may be of any stack. A custom module therefore implements
/// [`ForwardModule`] for every backend. The default is a module of matrices.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{BoxedModule, DropoutConfig, ForwardModule, LinearConfig, Module, Relu};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type B = Autodiff<Flex>;
///
/// let device = Default::default();
/// let blocks: Vec<BoxedModule<B>> = vec![
///     BoxedModule::new(LinearConfig::new(4, 4).init::<B>(&device)),
///     BoxedModule::new(Relu::new()),
///     BoxedModule::new(DropoutConfig::new(0.1).init()),
/// ];
/// let x = Tensor::<B, 2>::ones([3, 4], &device);
/// let y = blocks.eval().iter().fold(x, |x, block| block.forward(x));
/// assert_eq!(y.dims(), [3, 4]);
/// ```
///
/// `Box<dyn ForwardModule<Tensor<B, 2>, Output = Tensor<B, 2>>>` is a module too, but it cannot be converted to another
/// backend.
pub struct BoxedModule<B: Backend, I = Tensor<B, 2>, O = I> {
    module: Box<dyn Erased>,
    marker: PhantomData<fn(B, I) -> O>,
}

/// Tensors with the structure of their tree.
pub(super) type Tensors = (Structure, Vec<AnyTensor>);

/// A module on [`Dyn`] whose type is unknown.
pub(super) trait Erased: Module {
    #[track_caller]
    fn forward(&self, input: Tensors) -> Tensors;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Box<dyn Erased>;

    fn boxed_clone(&self) -> Box<dyn Erased>;
}

/// A module with the types of its input and output.
struct Typed<M, I, O> {
    module: M,
    marker: PhantomData<fn(I) -> O>,
}

impl<M: fmt::Debug, I, O> fmt::Debug for Typed<M, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.module.fmt(f)
    }
}

impl<M: Module, I, O> Module for Typed<M, I, O> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        self.module.visit(path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        self.module.visit_mut(path, visitor);
    }
}

impl<M, I, O> Erased for Typed<M, I, O>
where
    M: ForwardModule<I, Output = O> + ModuleOn<Dyn, On = M> + Clone + 'static,
    I: Tree<Dyn> + 'static,
    O: Tree<Dyn> + 'static,
{
    #[track_caller]
    fn forward(&self, input: Tensors) -> Tensors {
        flat::<Dyn, _>(self.module.forward(tree::<Dyn, _>(input)))
    }

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Box<dyn Erased> {
        typed::<M, I, O>(self.module.on(path, place))
    }

    fn boxed_clone(&self) -> Box<dyn Erased> {
        typed::<M, I, O>(self.module.clone())
    }
}

fn typed<M, I, O>(module: M) -> Box<dyn Erased>
where
    M: ForwardModule<I, Output = O> + ModuleOn<Dyn, On = M> + Clone + 'static,
    I: Tree<Dyn> + 'static,
    O: Tree<Dyn> + 'static,
{
    Box::new(Typed { module, marker: PhantomData::<fn(I) -> O> })
}

/// Boxes a module as its type on `Dyn`, with the same tensors.
pub(super) fn erased<M, I, O>(module: &M) -> Box<dyn Erased>
where
    M: ModuleOn<Dyn>,
    M::On: ForwardModule<I, Output = O> + ModuleOn<Dyn, On = M::On> + Clone + 'static,
    I: Tree<Dyn> + 'static,
    O: Tree<Dyn> + 'static,
{
    typed::<M::On, I, O>(module.on(&mut Path::new(), &mut |_, parameter| parameter.value))
}

pub(super) fn flat<B: Backend, T: Tree<B>>(tree: T) -> Tensors {
    let mut leaves = Vec::new();
    let structure = tree.flatten(&mut leaves);
    (structure, leaves)
}

#[track_caller]
pub(super) fn tree<B: Backend, T: Tree<B>>((structure, leaves): Tensors) -> T {
    match T::unflatten(&structure, &mut leaves.into_iter()) {
        Ok(tree) => tree,
        Err(error) => panic!("{error}"),
    }
}

impl<B: Backend, I: Tree<B>, O: Tree<B>> BoxedModule<B, I, O> {
    /// Boxes a module. Ids, roles and tensors of its parameters are kept.
    pub fn new<M>(module: M) -> BoxedModule<B, I, O>
    where
        M: ForwardModule<I, Output = O> + ModuleOn<Dyn>,
        M::On: ForwardModule<I::On<Dyn>, Output = O::On<Dyn>> + ModuleOn<Dyn, On = M::On> + Clone + 'static,
        I::On<Dyn>: 'static,
        O::On<Dyn>: 'static,
    {
        BoxedModule { module: erased::<M, I::On<Dyn>, O::On<Dyn>>(&module), marker: PhantomData }
    }

    /// Computes the output.
    ///
    /// # Panics
    /// When the input has a shape that the module does not accept.
    #[track_caller]
    pub fn forward(&self, input: I) -> O {
        tree::<B, O>(self.module.forward(flat::<B, I>(input)))
    }
}

impl<B: Backend, I: Tree<B>, O: Tree<B>> ForwardModule<I> for BoxedModule<B, I, O> {
    type Output = O;

    #[track_caller]
    fn forward(&self, input: I) -> O {
        BoxedModule::forward(self, input)
    }
}

impl<B: Backend, I, O> Clone for BoxedModule<B, I, O> {
    fn clone(&self) -> Self {
        BoxedModule { module: self.module.boxed_clone(), marker: PhantomData }
    }
}

impl<B: Backend, I, O> fmt::Debug for BoxedModule<B, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.module.fmt(f)
    }
}

impl<B: Backend, I, O> fmt::Display for BoxedModule<B, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::module::display(self, f)
    }
}

impl<B: Backend, I, O> Module for BoxedModule<B, I, O> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        self.module.visit(path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        self.module.visit_mut(path, visitor);
    }
}

impl<B: Backend, I, O> BackendModule<B> for BoxedModule<B, I, O> {}

impl<B: Backend, B2: Backend, I: Tree<B>, O: Tree<B>> ModuleOn<B2> for BoxedModule<B, I, O> {
    type On = BoxedModule<B2, I::On<B2>, O::On<B2>>;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        BoxedModule { module: self.module.on(path, place), marker: PhantomData }
    }
}
