//! Modules by name.

use crate::{BackendModule, Module, ModuleOn, Path, Visitor, VisitorMut, module::ReplaceParameter};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Index, IndexMut};
use kiln_tensor::Backend;

/// Modules of one type by name, in the order of insertion, as in `torch.nn.ModuleDict`. The names are parts of the
/// parameters' paths.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig, Module, ModuleDict};
///
/// let device = Default::default();
/// let mut heads: ModuleDict<Linear<Flex>> = ModuleDict::new();
/// heads.insert("digits", LinearConfig::new(8, 10).init(&device));
/// heads.insert("letters", LinearConfig::new(8, 26).init(&device));
/// assert_eq!(heads["letters"].weight.dims(), [26, 8]);
/// assert_eq!(heads.named_parameters()[0].0, "digits.weight");
/// ```
#[derive(Clone)]
pub struct ModuleDict<M> {
    entries: Vec<(String, M)>,
}

impl<M> ModuleDict<M> {
    /// Returns a dictionary without modules.
    pub fn new() -> ModuleDict<M> {
        ModuleDict { entries: Vec::new() }
    }

    /// Inserts a module and returns the previous one of this name, whose place it takes.
    ///
    /// # Panics
    /// When the name is empty or contains a dot.
    #[track_caller]
    pub fn insert(&mut self, name: impl Into<String>, module: M) -> Option<M> {
        let name = name.into();
        if let Some(present) = self.get_mut(&name) {
            return Some(core::mem::replace(present, module));
        }
        check_name("module_dict", &name, core::iter::empty());
        self.entries.push((name, module));
        None
    }

    /// Returns the module of this name.
    pub fn get(&self, name: &str) -> Option<&M> {
        self.entries.iter().find(|(own, _)| own == name).map(|(_, module)| module)
    }

    /// Returns the mutable module of this name.
    pub fn get_mut(&mut self, name: &str) -> Option<&mut M> {
        self.entries.iter_mut().find(|(own, _)| own == name).map(|(_, module)| module)
    }

    /// Removes the module of this name and returns it.
    pub fn remove(&mut self, name: &str) -> Option<M> {
        let place = self.entries.iter().position(|(own, _)| own == name)?;
        Some(self.entries.remove(place).1)
    }

    /// Returns the number of modules.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether there are no modules.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Iterates over the names and modules.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &M)> {
        self.entries.iter().map(|(name, module)| (name.as_str(), module))
    }

    /// Iterates over the names and mutable modules.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&str, &mut M)> {
        self.entries.iter_mut().map(|(name, module)| (name.as_str(), module))
    }
}

/// Panics unless a name is valid in a dotted path and not among `others`.
#[track_caller]
pub(super) fn check_name<'a>(owner: &str, name: &str, mut others: impl Iterator<Item = &'a str>) {
    assert!(
        !name.is_empty() && !name.contains('.'),
        "[{owner}] `{name}` cannot be the name of a module\n  hint: a name in a path is not empty and has no dots"
    );
    assert!(
        others.all(|other| other != name),
        "[{owner}] there are two modules `{name}`\n  hint: names in a path are unique"
    );
}

impl<M> Default for ModuleDict<M> {
    fn default() -> Self {
        ModuleDict::new()
    }
}

impl<M> Index<&str> for ModuleDict<M> {
    type Output = M;

    #[track_caller]
    fn index(&self, name: &str) -> &M {
        self.get(name).unwrap_or_else(|| panic!("[module_dict] there is no module `{name}`"))
    }
}

impl<M> IndexMut<&str> for ModuleDict<M> {
    #[track_caller]
    fn index_mut(&mut self, name: &str) -> &mut M {
        self.get_mut(name).unwrap_or_else(|| panic!("[module_dict] there is no module `{name}`"))
    }
}

impl<N: Into<String>, M> FromIterator<(N, M)> for ModuleDict<M> {
    #[track_caller]
    fn from_iter<T: IntoIterator<Item = (N, M)>>(entries: T) -> Self {
        let mut dict = ModuleDict::new();
        for (name, module) in entries {
            dict.insert(name, module);
        }
        dict
    }
}

impl<M: fmt::Debug> fmt::Debug for ModuleDict<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<M: Module> fmt::Display for ModuleDict<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::module::display(self, f)
    }
}

impl<M: Module> Module for ModuleDict<M> {
    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor) {
        for (name, module) in &self.entries {
            path.within(name, |path| module.visit(path, visitor));
        }
    }

    fn visit_mut(&mut self, path: &mut Path, visitor: &mut dyn VisitorMut) {
        for (name, module) in &mut self.entries {
            path.within(name, |path| module.visit_mut(path, visitor));
        }
    }
}

impl<B: Backend, M: BackendModule<B>> BackendModule<B> for ModuleDict<M> {}

impl<B: Backend, M: ModuleOn<B>> ModuleOn<B> for ModuleDict<M> {
    type On = ModuleDict<M::On>;

    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Self::On {
        let on =
            |(name, module): &(String, M)| (name.clone(), path.within(name, |path| module.on(path, place)));
        ModuleDict { entries: self.entries.iter().map(on).collect() }
    }
}
