//! Code, bounds and crates that derived modules and configurations use. The crates are not in the root of this one: a glob
//! of it would make their names ambiguous.
//!
//! A field that is no module gets one error, that of `Module` in the traversal. The method `on` of [`OnField`] therefore
//! exists for each field type. The compiler takes the first that applies: the inherent one, then those of the traits, by
//! value before by reference (autoref specialization). The traits of bounds, [`AlsoOn`] and [`SameOn`], have no supertrait
//! `Module`: the compiler would check it for each bound.

pub use kiln_tensor as tensor;
pub use serde;

use super::{BackendModule, Module, ModuleOn, Path, ReplaceParameter};
use core::marker::PhantomData;
use kiln_tensor::Backend;

/// Extends a path by the name of a field.
pub fn enter(path: &mut Path, name: &str) {
    path.push(format_args!("{name}"));
}

/// Removes the last component of a path.
pub fn leave(path: &mut Path) {
    path.pop();
}

/// A field of a module that is converted to backend `B`.
pub struct OnField<'a, T: ?Sized, B>(&'a T, PhantomData<B>);

impl<'a, T: ?Sized, B> OnField<'a, T, B> {
    /// Wraps a field.
    pub fn new(field: &'a T) -> OnField<'a, T, B> {
        OnField(field, PhantomData)
    }
}

impl<T: ModuleOn<B> + ?Sized, B: Backend> OnField<'_, T, B> {
    /// Converts the field.
    pub fn on(self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> T::On {
        self.0.on(path, place)
    }
}

/// A module that cannot be converted: the bound is an error.
pub trait NotOn<T: ?Sized, B: Backend> {
    /// Does not compile.
    fn on(self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> T::On
    where
        T: ModuleOn<B>;
}

impl<T: Module + ?Sized, B: Backend> NotOn<T, B> for OnField<'_, T, B> {
    fn on(self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> T::On
    where
        T: ModuleOn<B>,
    {
        self.0.on(path, place)
    }
}

/// A field that is no module: the traversal has the error.
pub trait NoModule {
    /// Compiles beside the error of the traversal, so it never runs.
    fn on<R>(&self, _path: &mut Path, _place: &mut ReplaceParameter<'_>) -> R {
        unreachable!("the traversal of a field that is no module does not compile")
    }
}

impl<T: ?Sized, B> NoModule for OnField<'_, T, B> {}

/// A [`BackendModule`], as a bound on the fields of a type without a backend.
pub trait AlsoOn<B: Backend> {}

impl<B: Backend, T: BackendModule<B>> AlsoOn<B> for T {}

/// A module that has the same type on the backend, as a bound on the fields of a type without a backend.
pub trait SameOn<B: Backend>: Sized {
    /// Converts the field.
    fn same_on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self;
}

impl<B: Backend, T: ModuleOn<B, On = T>> SameOn<B> for T {
    fn same_on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> T {
        self.on(path, place)
    }
}
