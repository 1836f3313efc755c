//! The trainable parameters of a module as one vector.

use super::NAME;
use crate::error::{OptimError, Result};
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_nn::{GradientsParams, Module, ParamId, Parameter, Path, Visitor, VisitorMut};
use kiln_tensor::{AnyTensor, DType, Stack, TensorType};

/// The layout of the vector: the parameters in traversal order.
pub(super) struct Space {
    entries: Vec<Entry>,
    /// The stack and dtype of the vector. `None` without parameters.
    place: Option<(Stack, DType)>,
}

struct Entry {
    name: String,
    id: ParamId,
    ty: TensorType,
}

impl Space {
    /// The layout of a module's trainable parameters.
    ///
    /// # Errors
    /// When two have one id.
    pub(super) fn of(module: &dyn Module) -> Result<Space> {
        let mut space = Space { entries: Vec::new(), place: None };
        module.visit(&mut Path::new(), &mut space);
        let mut seen = BTreeSet::new();
        match space.entries.iter().find(|entry| !seen.insert(entry.id)) {
            None => Ok(space),
            Some(Entry { name, .. }) => {
                Err(OptimError::SeparateTensors { optimizer: NAME, parameter: name.clone() })
            }
        }
    }

    /// The number of parameters.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.entries.iter().map(|entry| entry.name.clone()).collect()
    }

    /// The type of the vector and its stack. `None` without parameters.
    pub(super) fn vector(&self) -> Option<(TensorType, &Stack)> {
        let length: usize = self.entries.iter().map(|entry| entry.ty.num_elements()).sum();
        self.place.as_ref().map(|(stack, dtype)| (TensorType::new([length], *dtype), stack))
    }

    /// Rejects gradients of other types than their parameters.
    pub(super) fn check(&self, gradients: &GradientsParams) -> Result<()> {
        for Entry { name, id, ty } in &self.entries {
            let Some(gradient) = gradients.get(*id) else { continue };
            if gradient.ty() != ty {
                return Err(OptimError::GradientType {
                    optimizer: NAME,
                    parameter: name.clone(),
                    expected: (*ty).into(),
                    found: (*gradient.ty()).into(),
                });
            }
        }
        Ok(())
    }

    /// The gradients as a vector, 0 where a parameter has none.
    pub(super) fn flatten(&self, mut gradients: GradientsParams) -> Result<AnyTensor> {
        self.check(&gradients)?;
        let Some((stack, dtype)) = &self.place else {
            let requirement = "a module with trainable parameters";
            return Err(OptimError::option(NAME, "the module", "without them", requirement));
        };
        let part = |Entry { id, ty, .. }: &Entry| {
            let part = match gradients.remove(*id) {
                Some(gradient) => gradient.detach().to_stack(stack)?.detach(),
                None => AnyTensor::zeros(*ty, stack)?,
            };
            Ok(part.cast(*dtype)?.reshape([ty.num_elements()])?)
        };
        let parts = self.entries.iter().map(part).collect::<Result<Vec<_>>>()?;
        Ok(AnyTensor::cat(parts, 0)?)
    }

    /// The values of the parameters.
    pub(super) fn values(&self, module: &dyn Module) -> Vec<AnyTensor> {
        struct Values(Vec<AnyTensor>);
        impl Visitor for Values {
            fn parameter(&mut self, _: &Path, parameter: Parameter) {
                if parameter.is_trainable() {
                    self.0.push(parameter.value.inner());
                }
            }
        }
        let mut values = Values(Vec::new());
        module.visit(&mut Path::new(), &mut values);
        values.0
    }

    /// Sets the parameters to `start + length · direction`.
    pub(super) fn set(
        &self,
        module: &mut dyn Module,
        start: &[AnyTensor],
        direction: &AnyTensor,
        length: f64,
    ) -> Result<()> {
        let moves = direction.clone().mul_scalar(length)?;
        let mut first = 0;
        let mut values = Vec::with_capacity(start.len());
        for (Entry { ty, .. }, value) in self.entries.iter().zip(start) {
            let change = moves.clone().narrow(0, first, ty.num_elements())?.reshape(ty.shape)?;
            values.push(value.clone().add(change.cast(ty.dtype)?.to_stack(value.stack())?)?);
            first += ty.num_elements();
        }
        self.restore(module, values);
        Ok(())
    }

    /// Sets the parameters to these values.
    pub(super) fn restore(&self, module: &mut dyn Module, values: Vec<AnyTensor>) {
        struct Set(alloc::vec::IntoIter<AnyTensor>);
        impl VisitorMut for Set {
            fn parameter(&mut self, _: &Path, parameter: Parameter) -> Parameter {
                if !parameter.is_trainable() {
                    return parameter;
                }
                match self.0.next() {
                    Some(value) => Parameter { value, ..parameter },
                    None => parameter,
                }
            }
        }
        module.visit_mut(&mut Path::new(), &mut Set(values.into_iter()));
    }
}

impl Visitor for Space {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        if !parameter.is_trainable() {
            return;
        }
        let ty = *parameter.value.ty();
        let wide = if ty.dtype == DType::F64 { DType::F64 } else { DType::F32 };
        match &mut self.place {
            None => self.place = Some((parameter.value.inner().stack().clone(), wide)),
            Some((_, dtype)) if wide == DType::F64 => *dtype = wide,
            Some(_) => {}
        }
        self.entries.push(Entry { name: path.to_string(), id: parameter.id, ty });
    }
}
