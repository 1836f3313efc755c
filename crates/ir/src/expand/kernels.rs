//! Execution of custom ops: by a registered kernel, an equivalent op, an expansion, or an evaluation on the host.

use super::Expand;
use crate::{
    BoxFuture, Custom, Engine, Error, Op, Operand, OperandType, Operands, Result, Scalar, TensorData,
    TensorType, Value, Values, wait_for,
};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use spin::Mutex;

/// A kernel for custom ops that computes with an engine's own values.
///
/// It receives the engine inside [`Expand`], the op, its operands, and the inferred result types. A kernel for one
/// device gets its engine by `find` of [`Engine`].
pub type CustomKernel = dyn Fn(&dyn Engine, &Custom, Operands, &[TensorType]) -> Result<Values> + Send + Sync;

/// A kernel for custom ops that computes with data on the host.
type HostKernel = dyn Fn(&Custom, &[TensorData]) -> Result<Vec<TensorData>> + Send + Sync;

/// The kernels for custom ops, by the names of the ops.
#[derive(Default)]
pub(super) struct Kernels(Mutex<BTreeMap<String, Kernel>>);

/// A registered kernel.
#[derive(Clone)]
enum Kernel {
    /// It computes with the engine's values.
    Engine(Arc<CustomKernel>),
    /// Its operands are read, and its results written.
    Host(Arc<HostKernel>),
}

impl Kernels {
    fn get(&self, name: &str) -> Option<Kernel> {
        self.0.lock().get(name).cloned()
    }

    fn insert(&self, name: &str, kernel: Kernel) {
        self.0.lock().insert(name.into(), kernel);
    }
}

impl Expand {
    /// Registers a host kernel for the custom ops of that name. It replaces an earlier kernel of that name. It has
    /// priority over the engine's own kernel, the op's equivalent, its expansion and its evaluation.
    ///
    /// The kernel receives the op and its operands as data; a plain number is a rank-0 tensor. It returns results of
    /// the types that the op's `infer` returns; other types poison the results.
    ///
    /// ```
    /// # use kiln_ir::{CustomOp, Expand, OperandType, Recorder, Result, ResultTypes};
    /// let engine = Expand::new(Recorder::new(&[]));
    /// engine.register_kernel("same", |_, inputs| Ok(inputs.to_vec()));
    /// ```
    pub fn register_kernel(
        &self,
        name: &str,
        kernel: impl Fn(&Custom, &[TensorData]) -> Result<Vec<TensorData>> + Send + Sync + 'static,
    ) {
        self.kernels.insert(name, Kernel::Host(Arc::new(kernel)));
    }

    /// Registers a kernel for the custom ops of that name that computes with the engine's own values, such as one that
    /// runs on its device. It replaces an earlier kernel of that name, and has priority over every other way to run the
    /// op.
    ///
    /// Results whose types differ from those of the op's `infer` are poisoned.
    pub fn register_engine_kernel(
        &self,
        name: &str,
        kernel: impl Fn(&dyn Engine, &Custom, Operands, &[TensorType]) -> Result<Values> + Send + Sync + 'static,
    ) {
        self.kernels.insert(name, Kernel::Engine(Arc::new(kernel)));
    }

    /// Runs a custom op on operands without poison, by the first way that exists: its registered kernel, the engine,
    /// its equivalent, its expansion, or its evaluation on the host.
    pub(super) fn custom(
        &self,
        op: &Op,
        custom: &Custom,
        mut inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        if let Some(found) = self.custom_on_engine(op, custom, &mut inputs, results) {
            return found;
        }
        // Reading consumes the operands, and plain numbers become tensors.
        let numbers: Vec<Option<Scalar>> = inputs.iter().map(Operand::scalar).collect();
        let data = on_host(&*self.inner, custom, inputs)?;
        self.evaluated(op, custom, &numbers, &data, results)
    }

    /// As [`custom`](Expand::custom), but the future waits for operands that are read.
    pub(super) fn custom_async(
        &self,
        op: &Op,
        custom: &Custom,
        mut inputs: Operands,
        results: &[TensorType],
    ) -> BoxFuture<'_, Result<Values>> {
        let has_kernel = self.kernels.get(custom.name()).is_some();
        if !has_kernel && self.inner.supports(op, &OperandType::list(&inputs)) {
            let started = self.inner.execute_async(op, inputs, results);
            return Box::pin(async move { Ok(started.await) });
        }
        if let Some(found) = self.custom_on_engine(op, custom, &mut inputs, results) {
            return Box::pin(core::future::ready(found));
        }
        let (op, custom, results) = (op.clone(), custom.clone(), results.to_vec());
        let numbers: Vec<Option<Scalar>> = inputs.iter().map(Operand::scalar).collect();
        let values = inputs.iter().filter_map(Operand::value);
        let reads: Vec<_> = values.map(|value| self.inner.read(value.clone())).collect();
        Box::pin(async move {
            let mut read = Vec::with_capacity(reads.len());
            for started in reads {
                read.push(started.await?);
            }
            let mut read = read.into_iter();
            let next = |_| read.next().ok_or_else(|| Error::program("an operand was not read"));
            let data = Custom::on_host(inputs, next)?;
            self.evaluated(&op, &custom, &numbers, &data, &results)
        })
    }

    /// Runs a custom op by the ways that need no data on the host; `None` if there is none, with the operands in place.
    fn custom_on_engine(
        &self,
        op: &Op,
        custom: &Custom,
        inputs: &mut Operands,
        results: &[TensorType],
    ) -> Option<Result<Values>> {
        let engine = &*self.inner;
        match self.kernels.get(custom.name()) {
            Some(Kernel::Engine(kernel)) => {
                let found = kernel(engine, custom, core::mem::take(inputs), results);
                return Some(found.and_then(|values| {
                    custom.agree("kernel", values.iter().map(|value: &Value| *value.ty()), results)?;
                    Ok(values)
                }));
            }
            Some(Kernel::Host(_)) => return None,
            None => {}
        }
        if engine.supports(op, &OperandType::list(inputs)) {
            return Some(Ok(engine.execute(op, core::mem::take(inputs), results)));
        }
        if let Some(equivalent) = custom.equivalent_for(inputs, results) {
            return Some(equivalent.map(|op| self.execute(&op, core::mem::take(inputs), results)));
        }
        if let Some(found) = custom.expand_values(self, inputs, results) {
            return Some(found);
        }
        #[cfg(feature = "std")]
        warn_of_host(engine, custom.name());
        None
    }

    /// Runs a custom op on the host, by its registered kernel or its evaluation.
    fn evaluated(
        &self,
        op: &Op,
        custom: &Custom,
        numbers: &[Option<Scalar>],
        data: &[TensorData],
        results: &[TensorType],
    ) -> Result<Values> {
        let outputs = match self.kernels.get(custom.name()) {
            Some(Kernel::Host(kernel)) => {
                Some(kernel(custom, data).and_then(|outputs| custom.agreed("kernel", outputs, results)))
            }
            Some(Kernel::Engine(_)) | None => custom.evaluate_as(data, results),
        };
        match outputs {
            Some(outputs) => Ok(written(&*self.inner, outputs?)),
            None => Err(self.without_evaluation(op, numbers, data)),
        }
    }

    /// The error of a custom op that has no way to run on these operands.
    fn without_evaluation(&self, op: &Op, numbers: &[Option<Scalar>], data: &[TensorData]) -> Error {
        let types: Vec<TensorType> = data.iter().map(TensorData::ty).collect();
        let operand = |(number, ty): (&Option<Scalar>, _)| match *number {
            Some(number) => OperandType::Scalar(number),
            None => OperandType::Tensor(ty),
        };
        let operands: Vec<OperandType<'_>> = numbers.iter().zip(&types).map(operand).collect();
        self.unsupported(op, &operands, "it has no kernel, no expansion and no evaluation")
            .hint("implement `expand` or `evaluate` for the op, or register a kernel with `Expand::register_kernel`")
    }
}

/// Warns once for each op that its operands leave the device, which waits for them.
#[cfg(feature = "std")]
fn warn_of_host(engine: &dyn Engine, name: &str) {
    static WARNED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let caps = engine.caps();
    let is_device = caps.machine.workgroup > 1;
    let mut warned = WARNED.lock();
    if is_device && !warned.iter().any(|warned| warned == name) {
        warned.push(name.into());
        std::eprintln!(
            "[{}] the custom op `{name}` has no kernel and no expansion for this device: it runs on the host",
            caps.name
        );
    }
}

/// The hint for a custom op whose operands cannot be read in a browser.
const HOST_HINT: &str = "await `custom_async`, or register a kernel for the device";

/// Reads operands as data.
fn on_host(engine: &dyn Engine, op: &Custom, inputs: Operands) -> Result<Vec<TensorData>> {
    let what = alloc::format!("`{}` runs on the host, and", op.name());
    Custom::on_host(inputs, |value| wait_for(engine.read(value), &what, HOST_HINT))
}

fn written(engine: &dyn Engine, outputs: Vec<TensorData>) -> Values {
    outputs.into_iter().map(|data| engine.write(data)).collect()
}
