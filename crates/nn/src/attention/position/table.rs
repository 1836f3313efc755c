//! Tables that modules compute from their settings.

use crate::module::ReplaceParameter;
use crate::{BackendModule, Module, ModuleOn, ParamId, Parameter, ParameterRole, Path, Visitor, VisitorMut};
use alloc::vec::Vec;
use core::fmt;
use kiln_tensor::{Backend, Tensor, TensorData};
use spin::Mutex;

/// A constant table `[rows, columns]` of a module. It is not a parameter: visitors do not see it, files do not contain
/// it, and it moves to the device of the first input that is elsewhere.
pub(super) struct Table<B: Backend> {
    value: Mutex<Tensor<B, 2>>,
}

impl<B: Backend> Table<B> {
    /// # Panics
    /// When the number of values is not `rows * columns`.
    #[track_caller]
    pub(super) fn new(values: Vec<f64>, rows: usize, columns: usize, device: &B::Device) -> Table<B> {
        Table::from_tensor(tensor(values, [rows, columns], device))
    }

    pub(super) fn from_tensor(value: Tensor<B, 2>) -> Table<B> {
        Table { value: Mutex::new(value) }
    }

    pub(super) fn rows(&self) -> usize {
        self.value.lock().dims()[0]
    }

    pub(super) fn device(&self) -> B::Device {
        self.value.lock().device()
    }

    /// Returns the table on the given device.
    pub(super) fn on_device(&self, device: &B::Device) -> Tensor<B, 2> {
        let mut value = self.value.lock();
        if value.device() != *device {
            *value = value.clone().to_device(device);
        }
        value.clone()
    }
}

/// Returns a tensor of values that are computed on the host.
#[track_caller]
pub(super) fn tensor<B: Backend, const D: usize>(
    values: Vec<f64>,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D> {
    match TensorData::new(values, shape) {
        Ok(data) => Tensor::from_data(data, device),
        Err(error) => panic!("{error}"),
    }
}

impl<B: Backend> Clone for Table<B> {
    fn clone(&self) -> Self {
        Table::from_tensor(self.value.lock().clone())
    }
}

impl<B: Backend> fmt::Debug for Table<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Table({:?})", self.value.lock().shape())
    }
}

impl<B: Backend> Module for Table<B> {
    fn visit(&self, _path: &mut Path, _visitor: &mut dyn Visitor) {}
    fn visit_mut(&mut self, _path: &mut Path, _visitor: &mut dyn VisitorMut) {}
}

impl<B: Backend> BackendModule<B> for Table<B> {}

impl<B: Backend, B2: Backend> ModuleOn<B2> for Table<B> {
    type On = Table<B2>;

    #[track_caller]
    fn on(&self, path: &mut Path, place: &mut ReplaceParameter<'_>) -> Table<B2> {
        let value = self.value.lock().clone().into_any();
        let stack = value.stack().clone();
        let parameter = Parameter { id: ParamId::new(), value, role: ParameterRole::Buffer, stack };
        Table::from_tensor(Tensor::from_any(place(path, parameter)))
    }
}
