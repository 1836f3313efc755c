//! The modules of a task.

use std::collections::BTreeMap;

use kiln_ir::profile::ProfiledModule;
use kiln_nn::Module;
use kiln_nn::module::{Parameter, Path, Visitor};
use kiln_tensor::Stack;

use crate::error::Result;
use crate::task::{StateVisitor, Task};

/// The modules of a task with their parameters, and the stacks below automatic differentiation.
#[derive(Default)]
pub(super) struct Modules {
    pub(super) modules: Vec<ProfiledModule>,
    pub(super) stacks: Vec<Stack>,
    /// The index of each path.
    indices: BTreeMap<String, usize>,
}

impl Modules {
    pub(super) fn of<T: Task>(task: &mut T) -> Result<Modules> {
        let mut modules = Modules::default();
        task.state(&mut modules)?;
        Ok(modules)
    }

    fn add(&mut self, name: &str, path: &Path, parameter: &Parameter) {
        let owner = path.as_str().rsplit_once('.').map(|(owner, _)| format!("{name}.{owner}"));
        let owner = owner.unwrap_or_else(|| name.to_owned());
        let modules = &mut self.modules;
        let index = *self.indices.entry(owner).or_insert_with_key(|owner| {
            modules.push(ProfiledModule { path: owner.clone(), parameters: Vec::new() });
            modules.len() - 1
        });
        self.modules[index].parameters.push(parameter.id.value());
        let mut stack = &parameter.stack;
        while let Some(inner) = stack.inner() {
            stack = inner;
        }
        if !self.stacks.iter().any(|known| known.same(stack)) {
            self.stacks.push(stack.clone());
        }
    }
}

impl StateVisitor for Modules {
    fn module(&mut self, name: &str, module: &mut dyn Module) -> Result<()> {
        module.visit(&mut Path::new(), &mut Named { name, modules: self });
        Ok(())
    }
}

/// Adds the parameters of a module with a name.
struct Named<'a> {
    name: &'a str,
    modules: &'a mut Modules,
}

impl Visitor for Named<'_> {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        self.modules.add(self.name, path, &parameter);
    }
}
