//! A chain of modules that is built at run time.

use super::boxed::{Erased, erased, flat, tree};
use crate::{
    BackendModule, ForwardModule, Module, ModuleOn, Path, Visitor, VisitorMut, module::ReplaceParameter,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::marker::PhantomData;
use kiln_backends::Dyn;
use kiln_tensor::transform::Tree;
use kiln_tensor::{Backend, Tensor};

/// A chain of modules: the output of each is the input of the next, as in `torch.nn.Sequential`.
///
/// The number of modules and their types are chosen at run time; the types of tensors between them are checked by the
/// compiler. The modules are named by their indices (`0.weight`), or by [`push_named`](Sequential::push_named).
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{DropoutConfig, LinearConfig, Module, Relu, Sequential};
/// use kiln_tensor::{Autodiff, Tensor};
///
/// type B = Autodiff<Flex>;
///
/// let device = Default::default();
/// let mut body = Sequential::<B>::new();
/// for _ in 0..3 {
///     body = body.push(LinearConfig::new(8, 8).init::<B>(&device)).push(Relu::new());
/// }
/// let model = body.push(DropoutConfig::new(0.5).init()).push_named("head", LinearConfig::new(8, 2).init::<B>(&device));
/// assert_eq!(model.forward(Tensor::ones([4, 8], &device)).dims(), [4, 2]);
/// assert_eq!(model.named_parameters()[6].0, "head.weight");
/// ```
///
/// A tuple of modules, `(linear, Relu::new(), linear)`, is a chain whose types are known at compile time.
pub struct Sequential<B: Backend, I = Tensor<B, 2>, O = I> {
    modules: Vec<(String, Box<dyn Erased>)>,
    marker: PhantomData<fn(B, I) -> O>,
}

impl<B: Backend, I: Tree<B>> Sequential<B, I, I> {
    /// Returns a chain without modules: the identity.
    pub fn new() -> Sequential<B, I, I> {
        Sequential { modules: Vec::new(), marker: PhantomData }
    }
}

impl<B: Backend, I: Tree<B>> Default for Sequential<B, I, I> {
    fn default() -> Self {
        Sequential::new()
    }
}

impl<B: Backend, I: Tree<B>, O: Tree<B>> Sequential<B, I, O> {
    /// Adds a module at the end, named by its index.
    #[must_use]
    pub fn push<M>(self, module: M) -> Sequential<B, I, M::Output>
    where
        M: ForwardModule<O> + ModuleOn<Dyn>,
        M::Output: Tree<B>,
        M::On: ForwardModule<O::On<Dyn>, Output = <M::Output as Tree<B>>::On<Dyn>>
            + ModuleOn<Dyn, On = M::On>
            + Clone
            + 'static,
        O::On<Dyn>: 'static,
        <M::Output as Tree<B>>::On<Dyn>: 'static,
    {
        let name = format!("{}", self.modules.len());
        self.push_named(name, module)
    }

    /// Adds a module at the end, with a name in the paths of its parameters.
    ///
    /// # Panics
    /// When the name is empty, contains a dot, or is that of another module.
    #[must_use]
    #[track_caller]
    pub fn push_named<M>(mut self, name: impl Into<String>, module: M) -> Sequential<B, I, M::Output>
    where
        M: ForwardModule<O> + ModuleOn<Dyn>,
        M::Output: Tree<B>,
        M::On: ForwardModule<O::On<Dyn>, Output = <M::Output as Tree<B>>::On<Dyn>>
            + ModuleOn<Dyn, On = M::On>
            + Clone
            + 'static,
        O::On<Dyn>: 'static,
        <M::Output as Tree<B>>::On<Dyn>: 'static,
    {
        let name = name.into();
        super::dict::check_name("sequential", &name, self.modules.iter().map(|(name, _)| name.as_str()));
        self.modules.push((name, erased::<M, O::On<Dyn>, <M::Output as Tree<B>>::On<Dyn>>(&module)));
        Sequential { modules: self.modules, marker: PhantomData }
    }

    /// Computes the output of the chain.
    ///
    /// # Panics
    /// When the input has a shape that a module does not accept.
    #[track_caller]
    pub fn forward(&self, input: I) -> O {
        let mut tensors = flat::<B, I>(input);
        for (_, module) in &self.modules {
            tensors = module.forward(tensors);
        }
        tree::<B, O>(tensors)
    }
}

impl<B: Backend, I, O> Sequential<B, I, O> {
    /// Returns the number of modules.
    pub fn len(&self) -> usize {
        self.modules.len()
    }

    /// Returns whether there are no modules: the chain is the identity.
    pub fn is_empty(&self) -> bool {
        self.modules.is_empty()
    }

    /// Iterates over the modules with their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &dyn Module)> {
        self.modules.iter().map(|(name, module)| (name.as_str(), &**module as &dyn Module))
    }
}

impl<B: Backend, I: Tree<B>, O: Tree<B>> ForwardModule<I> for Sequential<B, I, O> {
    type Output = O;

    #[track_caller]
    fn forward(&self, input: I) -> O {
        Sequential::forward(self, input)
    }
}

impl<B: Backend, I, O> Clone for Sequential<B, I, O> {
    fn clone(&self) -> Self {
        let modules =
            self.modules.iter().map(|(name, module)| (name.clone(), module.boxed_clone())).collect();
        Sequential { modules, marker: PhantomData }
    }
}

impl<B: Backend, I, O> fmt::Debug for Sequential<B, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sequential ")?;
        f.debug_map().entries(self.modules.iter().map(|(name, module)| (name, module))).finish()
    }
}

impl<B: Backend, I, O> fmt::Display for Sequential<B, I, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::module::display(self, f)
    }
}

impl<B: Backend, I, O> Module for Sequential<B, I, O> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        visitor.enter(path, "Sequential");
        for (name, module) in &self.modules {
            path.within(name, |path| module.visit(path, visitor));
        }
        visitor.exit(path, "Sequential");
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        visitor.enter(path, "Sequential");
        for (name, module) in &mut self.modules {
            path.within(name, |path| module.visit_mut(path, visitor));
        }
        visitor.exit(path, "Sequential");
    }
}

impl<B: Backend, I, O> BackendModule<B> for Sequential<B, I, O> {}

impl<B: Backend, B2: Backend, I: Tree<B>, O: Tree<B>> ModuleOn<B2> for Sequential<B, I, O> {
    type On = Sequential<B2, I::On<B2>, O::On<B2>>;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        let mut on = |(name, module): &(String, Box<dyn Erased>)| {
            (name.clone(), path.within(name, |path| module.on(path, place)))
        };
        let modules = self.modules.iter().map(&mut on).collect();
        Sequential { modules, marker: PhantomData }
    }
}
