//! Modules for containers of modules and for plain data.

use super::{BackendModule, Module, ModuleOn, Path, ReplaceParameter, Visitor, VisitorMut};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::marker::PhantomData;
use kiln_tensor::Backend;

/// Implements [`Module`] for a type of plain data, so that it can be a field of a module. It has no parameters, layer
/// tables show it (by `Debug`), and on another backend ([`ModuleOn`]) it is a clone.
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

        impl<B: $crate::module::derived::tensor::Backend> $crate::BackendModule<B> for $ty {}

        impl<B: $crate::module::derived::tensor::Backend> $crate::ModuleOn<B> for $ty {
            type On = $ty;
            fn on(&self, _path: &mut $crate::Path, _place: &mut $crate::module::ReplaceParameter<'_>) -> $ty {
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

impl<B: Backend, T: ?Sized> ModuleOn<B> for PhantomData<T>
where
    PhantomData<T>: Send,
{
    type On = PhantomData<T>;
    fn on(&self, _path: &mut Path, _place: &mut ReplaceParameter<'_>) -> PhantomData<T> {
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

impl<B: Backend, M: ModuleOn<B>> ModuleOn<B> for Box<M> {
    type On = Box<M::On>;
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        Box::new((**self).on(path, place))
    }
}

/// `Some` is the module, at the path of the option. `None` has no parameters.
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

impl<B: Backend, M: ModuleOn<B>> ModuleOn<B> for Option<M> {
    type On = Option<M::On>;
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        self.as_ref().map(|module| module.on(path, place))
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

/// Modules named by their indices: `layers.0`, `layers.1`.
impl<M: Module> Module for Vec<M> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        visit_list(self, path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        visit_list_mut(self, path, visitor);
    }
}

impl<B: Backend, M: BackendModule<B>> BackendModule<B> for Vec<M> {}

impl<B: Backend, M: ModuleOn<B>> ModuleOn<B> for Vec<M> {
    type On = Vec<M::On>;
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        let on = |(index, module): (usize, &M)| path.within_index(index, |path| module.on(path, place));
        self.iter().enumerate().map(on).collect()
    }
}

/// Modules named by their indices: `layers.0`, `layers.1`.
impl<M: Module, const N: usize> Module for [M; N] {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        visit_list(self, path, visitor);
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        visit_list_mut(self, path, visitor);
    }
}

impl<B: Backend, M: BackendModule<B>, const N: usize> BackendModule<B> for [M; N] {}

impl<B: Backend, M: ModuleOn<B>, const N: usize> ModuleOn<B> for [M; N] {
    type On = [M::On; N];
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        core::array::from_fn(|index| path.within_index(index, |path| self[index].on(path, place)))
    }
}

macro_rules! tuples {
    ($($($name:ident $index:tt),+;)+) => {$(
        /// Modules named by their indices.
        impl<$($name: Module),+> Module for ($($name,)+) {
            fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
                $(path.within_index($index, |path| self.$index.visit(path, visitor));)+
            }

            fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
                $(path.within_index($index, |path| self.$index.visit_mut(path, visitor));)+
            }
        }

        impl<Back: Backend, $($name: BackendModule<Back>),+> BackendModule<Back> for ($($name,)+) {}

        impl<Back: Backend, $($name: ModuleOn<Back>),+> ModuleOn<Back> for ($($name,)+) {
            type On = ($($name::On,)+);
            fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
                ($(path.within_index($index, |path| self.$index.on(path, place)),)+)
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
