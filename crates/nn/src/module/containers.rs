//! Modules made of modules, and plain data as fields.

use super::{AutodiffModule, BackendModule, Module, Path, Visitor, VisitorMut};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;
use kiln_tensor::{AutodiffBackend, Backend};

/// Implements [`Module`] for a type of plain data, so that it can be a field of a module: it holds no parameters,
/// layer tables show it (by `Debug`), and [`valid`](AutodiffModule::valid) clones it.
///
/// ```
/// use kiln_nn::{Module, plain_data};
///
/// #[derive(Clone, Debug)]
/// enum Colour { Red }
/// plain_data!(Colour);
///
/// #[derive(Debug, Module)]
/// struct Painter { colour: Colour }
/// ```
#[macro_export]
macro_rules! plain_data {
    ($($ty:ty),+ $(,)?) => {$(
        impl $crate::Module for $ty {
            fn visit(&self, path: &mut $crate::Path, visitor: &mut dyn $crate::Visitor) {
                visitor.attribute(path, self);
            }
            fn visit_mut(&mut self, _path: &mut $crate::Path, _visitor: &mut dyn $crate::VisitorMut) {}
        }

        impl<B: $crate::tensor::Backend> $crate::BackendModule<B> for $ty {}

        impl<B: $crate::tensor::AutodiffBackend> $crate::AutodiffModule<B> for $ty {
            type InnerModule = $ty;
            fn valid(&self) -> $ty {
                self.clone()
            }
        }
    )+};
}

plain_data!(bool, char, f32, f64, u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize);
plain_data!(String, &'static str, core::time::Duration, ());
plain_data!(kiln_tensor::DType, kiln_tensor::Shape, kiln_tensor::Distribution);

impl<T: ?Sized> Module for PhantomData<T>
where
    PhantomData<T>: Send,
{
    fn visit(&self, _path: &mut Path, _visitor: &mut dyn Visitor) {}
    fn visit_mut(&mut self, _path: &mut Path, _visitor: &mut dyn VisitorMut) {}
}

impl<B: Backend, T: ?Sized> BackendModule<B> for PhantomData<T> where PhantomData<T>: Send {}

impl<B: AutodiffBackend, T: ?Sized> AutodiffModule<B> for PhantomData<T>
where
    PhantomData<T>: Send,
{
    type InnerModule = PhantomData<T>;
    fn valid(&self) -> PhantomData<T> {
        PhantomData
    }
}

impl<M: Module + ?Sized> Module for Box<M> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        (**self).visit(path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        (**self).visit_mut(path, visitor);
    }
}

impl<B: Backend, M: BackendModule<B>> BackendModule<B> for Box<M> {}

impl<B: AutodiffBackend, M: AutodiffModule<B>> AutodiffModule<B> for Box<M> {
    type InnerModule = Box<M::InnerModule>;
    fn valid(&self) -> Self::InnerModule {
        Box::new((**self).valid())
    }
}

/// Nothing, or the module at the option's own path.
impl<M: Module> Module for Option<M> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        if let Some(module) = self {
            module.visit(path, visitor);
        }
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        if let Some(module) = self {
            module.visit_mut(path, visitor);
        }
    }
}

impl<B: Backend, M: BackendModule<B>> BackendModule<B> for Option<M> {}

impl<B: AutodiffBackend, M: AutodiffModule<B>> AutodiffModule<B> for Option<M> {
    type InnerModule = Option<M::InnerModule>;
    fn valid(&self) -> Self::InnerModule {
        self.as_ref().map(M::valid)
    }
}

fn visit_list<M: Module>(modules: &[M], path: &mut Path, visitor: &mut dyn Visitor) {
    for (index, module) in modules.iter().enumerate() {
        path.within_index(index, |path| module.visit(path, visitor));
    }
}

fn visit_list_mut<M: Module>(modules: &mut [M], path: &mut Path, visitor: &mut dyn VisitorMut) {
    for (index, module) in modules.iter_mut().enumerate() {
        path.within_index(index, |path| module.visit_mut(path, visitor));
    }
}

/// The modules under their indices: `layers.0`, `layers.1`.
impl<M: Module> Module for Vec<M> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        visit_list(self, path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        visit_list_mut(self, path, visitor);
    }
}

impl<B: Backend, M: BackendModule<B>> BackendModule<B> for Vec<M> {}

impl<B: AutodiffBackend, M: AutodiffModule<B>> AutodiffModule<B> for Vec<M> {
    type InnerModule = Vec<M::InnerModule>;
    fn valid(&self) -> Self::InnerModule {
        self.iter().map(M::valid).collect()
    }
}

/// The modules under their indices: `layers.0`, `layers.1`.
impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        visit_list(self, path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        visit_list_mut(self, path, visitor);
    }
}

impl<B: Backend, M: BackendModule<B>, const N: usize> BackendModule<B> for [M; N] {}

impl<B: AutodiffBackend, M: AutodiffModule<B>, const N: usize> AutodiffModule<B> for [M; N] {
    type InnerModule = [M::InnerModule; N];
    fn valid(&self) -> Self::InnerModule {
        self.each_ref().map(M::valid)
    }
}

macro_rules! tuples {
    ($($($name:ident $index:tt),+;)+) => {$(
        /// The modules under their indices.
        impl<$($name: Module),+> Module for ($($name,)+) {
            fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
                $(path.within_index($index, |path| self.$index.visit(path, visitor));)+
            }

            fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
                $(path.within_index($index, |path| self.$index.visit_mut(path, visitor));)+
            }
        }

        impl<Back: Backend, $($name: BackendModule<Back>),+> BackendModule<Back> for ($($name,)+) {}

        impl<Back: AutodiffBackend, $($name: AutodiffModule<Back>),+> AutodiffModule<Back> for ($($name,)+) {
            type InnerModule = ($($name::InnerModule,)+);
            fn valid(&self) -> Self::InnerModule {
                ($(self.$index.valid(),)+)
            }
        }
    )+};
}

tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}
