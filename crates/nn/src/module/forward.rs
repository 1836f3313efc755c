//! Modules with one input and one output.

use super::Module;
use alloc::boxed::Box;

/// A module with one input and one output: the elements of [`Sequential`](crate::Sequential) and
/// [`BoxedModule`](crate::BoxedModule), and of generic code that accepts any such module.
///
/// `Input` is a tensor, or a tuple of tensors. Layers implement it beside their own `forward` methods. A custom module
/// implements it for every backend:
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{ForwardModule, Linear, LinearConfig, Module, Relu};
/// use kiln_tensor::{Backend, Tensor};
///
/// /// `x + relu(linear(x))`
/// #[derive(Clone, Debug, Module)]
/// struct Residual<B: Backend> {
///     linear: Linear<B>,
/// }
///
/// impl<B: Backend> ForwardModule<Tensor<B, 2>> for Residual<B> {
///     type Output = Tensor<B, 2>;
///
///     fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
///         x.clone() + Relu::new().forward(self.linear.forward(x))
///     }
/// }
///
/// let device = Default::default();
/// let block = || Residual::<Flex> { linear: LinearConfig::new(4, 4).init(&device) };
/// // A tuple applies its modules in order.
/// let model = (block(), block(), LinearConfig::new(4, 2).init(&device));
/// assert_eq!(model.forward(Tensor::ones([3, 4], &device)).dims(), [3, 2]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no `forward` from one `{Input}`",
    note = "implement `ForwardModule<{Input}>` for the module, for every backend, to put it into a `Sequential`"
)]
pub trait ForwardModule<Input>: Module {
    /// The output: a tensor, or a tuple of tensors.
    type Output;

    /// Computes the output.
    ///
    /// # Panics
    /// When the input has a shape that the module does not accept.
    #[track_caller]
    fn forward(&self, input: Input) -> Self::Output;
}

impl<X, M: ForwardModule<X> + ?Sized> ForwardModule<X> for Box<M> {
    type Output = M::Output;

    #[track_caller]
    fn forward(&self, input: X) -> M::Output {
        (**self).forward(input)
    }
}

/// `None` is the identity.
impl<X, M: ForwardModule<X, Output = X>> ForwardModule<X> for Option<M> {
    type Output = X;

    #[track_caller]
    fn forward(&self, input: X) -> X {
        match self {
            Some(module) => module.forward(input),
            None => input,
        }
    }
}

macro_rules! chains {
    ($($($name:ident $index:tt $input:ident $output:ident),+ => $last:ident;)+) => {$(
        /// Applies the modules in order.
        impl<X0, $($name, $output),+> ForwardModule<X0> for ($($name,)+)
        where
            $($name: ForwardModule<$input, Output = $output>),+
        {
            type Output = $last;

            #[track_caller]
            fn forward(&self, input: X0) -> $last {
                let x = input;
                $(let x = self.$index.forward(x);)+
                x
            }
        }
    )+};
}

chains! {
    A 0 X0 X1 => X1;
    A 0 X0 X1, B 1 X1 X2 => X2;
    A 0 X0 X1, B 1 X1 X2, C 2 X2 X3 => X3;
    A 0 X0 X1, B 1 X1 X2, C 2 X2 X3, D 3 X3 X4 => X4;
    A 0 X0 X1, B 1 X1 X2, C 2 X2 X3, D 3 X3 X4, E 4 X4 X5 => X5;
    A 0 X0 X1, B 1 X1 X2, C 2 X2 X3, D 3 X3 X4, E 4 X4 X5, F 5 X5 X6 => X6;
    A 0 X0 X1, B 1 X1 X2, C 2 X2 X3, D 3 X3 X4, E 4 X4 X5, F 5 X5 X6, G 6 X6 X7 => X7;
    A 0 X0 X1, B 1 X1 X2, C 2 X2 X3, D 3 X3 X4, E 4 X4 X5, F 5 X5 X6, G 6 X6 X7, H 7 X7 X8 => X8;
}

/// Implements [`ForwardModule`] by the module's own `forward` method.
///
/// * `Relu, Linear<B>;` for modules of any rank that keep it.
/// * `Conv2d<B>: 4 => 4;` for modules of one rank.
/// * `Embedding<B>: 2 Int => 3;` for inputs of another kind.
macro_rules! forward_modules {
    () => {};
    ($module:ty: $rank:literal => $output:literal; $($rest:tt)*) => {
        impl<B: kiln_tensor::Backend> $crate::ForwardModule<kiln_tensor::Tensor<B, $rank>> for $module {
            type Output = kiln_tensor::Tensor<B, $output>;

            #[track_caller]
            fn forward(&self, input: kiln_tensor::Tensor<B, $rank>) -> Self::Output {
                <$module>::forward(self, input)
            }
        }
        $crate::module::forward::forward_modules!($($rest)*);
    };
    ($module:ty: $rank:literal $kind:ident => $output:literal; $($rest:tt)*) => {
        impl<B: kiln_tensor::Backend> $crate::ForwardModule<kiln_tensor::Tensor<B, $rank, kiln_tensor::$kind>>
            for $module
        {
            type Output = kiln_tensor::Tensor<B, $output>;

            #[track_caller]
            fn forward(&self, input: kiln_tensor::Tensor<B, $rank, kiln_tensor::$kind>) -> Self::Output {
                <$module>::forward(self, input)
            }
        }
        $crate::module::forward::forward_modules!($($rest)*);
    };
    ($module:ty; $($rest:tt)*) => {
        impl<B: kiln_tensor::Backend, const D: usize> $crate::ForwardModule<kiln_tensor::Tensor<B, D>> for $module {
            type Output = kiln_tensor::Tensor<B, D>;

            #[track_caller]
            fn forward(&self, input: kiln_tensor::Tensor<B, D>) -> Self::Output {
                <$module>::forward(self, input)
            }
        }
        $crate::module::forward::forward_modules!($($rest)*);
    };
}

pub(crate) use forward_modules;
