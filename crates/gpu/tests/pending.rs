//! Reads that end late, as in a browser: only their futures wait.

use kiln_fusion::{Fusion, Mode};
use kiln_gpu::driver::{Argument, DevicePtr, Grid};
use kiln_gpu::{DeviceInfo, Driver, DryDriver, DryFunction, DryMemory, Gpu};
use kiln_ir::{
    BoxFuture, DType, Engine, Expand, Op, Operand, OperandType, Operands, Result, TensorData, TensorType,
    Value, Var, block_on, without_blocking,
};
use kiln_kernel::print::Entry;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// A driver without a device, whose reads are pending until the gate is open.
struct Pending {
    dry: DryDriver,
    gate: Arc<Gate>,
}

/// Whether reads end, and the tasks that wait for that.
#[derive(Default)]
struct Gate(Mutex<(bool, Vec<Waker>)>);

impl Gate {
    fn open(&self) {
        let waiting = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            std::mem::take(&mut state.1)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        state.1.push(context.waker().clone());
        Poll::Pending
    }
}

impl Driver for Pending {
    type Memory = DryMemory;
    type Function = DryFunction;

    fn info(&self) -> &DeviceInfo {
        self.dry.info()
    }

    fn deterministic(&self) -> bool {
        false
    }

    fn allocate(&self, bytes: usize) -> Result<DryMemory> {
        self.dry.allocate(bytes)
    }

    fn size(&self, memory: &DryMemory) -> usize {
        self.dry.size(memory)
    }

    fn write(&self, to: &DevicePtr<DryMemory>, bytes: &[u8]) -> Result<()> {
        self.dry.write(to, bytes)
    }

    fn read_all(&self, ranges: &[(DevicePtr<DryMemory>, usize)]) -> BoxFuture<'static, Result<Vec<Vec<u8>>>> {
        let (read, gate) = (self.dry.read_all(ranges), self.gate.clone());
        Box::pin(async move {
            poll_fn(|context| gate.poll(context)).await;
            read.await
        })
    }

    fn fill(&self, to: &DevicePtr<DryMemory>, bytes: usize, value: u8) -> Result<()> {
        self.dry.fill(to, bytes, value)
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>> {
        self.dry.compile(source)
    }

    fn load(&self, binary: &[u8], entries: &[&Entry]) -> Result<Vec<Option<DryFunction>>> {
        self.dry.load(binary, entries)
    }

    unsafe fn launch(
        &self,
        function: &DryFunction,
        grid: Grid,
        arguments: &[Argument<DryMemory>],
    ) -> Result<()> {
        // SAFETY: as the caller says; nothing is launched.
        unsafe { self.dry.launch(function, grid, arguments) }
    }

    fn synchronize(&self) -> BoxFuture<'static, Result<()>> {
        let gate = self.gate.clone();
        Box::pin(async move {
            poll_fn(|context| gate.poll(context)).await;
            Ok(())
        })
    }
}

fn gpu() -> (Gpu<Pending>, Arc<Gate>) {
    let info = DeviceInfo { memory: 1 << 30, multiprocessors: 2, ..DeviceInfo::absent("dry") };
    let gate = Arc::new(Gate::default());
    let driver = Pending { dry: DryDriver::new(info, |_| Ok(Vec::new())), gate: gate.clone() };
    (Gpu::new(driver, kiln_ir::MemoryConfig::new()), gate)
}

fn numbers(engine: &dyn Engine) -> Value {
    engine.write(TensorData::from([[1.0f32, 2.0], [3.0, 4.0]]))
}

/// Polls a future once.
fn poll_once<T>(future: &mut BoxFuture<'_, T>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn a_value_and_its_flags_are_one_read() {
    let (gpu, gate) = gpu();
    let index = gpu.write(TensorData::from([1i32, 0]));
    let y = Var::new(&gpu, numbers(&gpu)).take(0, &Var::new(&gpu, index)).into_value();
    let mut read = gpu.read(y);
    assert_eq!(gpu.driver().dry.reads(), 1, "the call starts the read");
    assert!(poll_once(&mut read).is_none());
    gate.open();
    assert_eq!(poll_once(&mut read).unwrap().unwrap().to_vec::<f32>(), [0.0; 4]);
    assert_eq!(gpu.driver().dry.reads(), 1);
}

/// Where no thread may wait, an op that waits poisons its results with an error that says so.
#[test]
fn no_op_waits_for_a_pending_device() {
    /// Cases of one op that run.
    const MOST: usize = 4;
    let (gpu, _gate) = gpu();
    let engine = Expand::new(gpu);
    let mut ran = BTreeMap::new();
    // Custom ops without a kernel and an expansion run on the host.
    let cases = kiln_suite::cases::all().into_iter().filter(|case| !matches!(case.op, Op::Custom(_)));
    for case in cases {
        let count = ran.entry(case.op.name().to_string()).or_insert(0);
        let Ok(results) = case.result_types() else { continue };
        if *count == MOST {
            continue;
        }
        *count += 1;
        let kinds = case.operand_types();
        let operand = |kind: OperandType<'_>| match kind {
            OperandType::Tensor(ty) => Operand::Value(engine.write(TensorData::zeros(*ty))),
            OperandType::Scalar(scalar) => Operand::Scalar(scalar),
        };
        let operands: Operands = kinds.iter().map(|kind| operand(kind.borrow())).collect();
        let values = without_blocking(|| {
            let mut started = engine.execute_async(&case.op, operands, &results);
            poll_once(&mut started)
        });
        for error in values.iter().flatten().filter_map(Value::error) {
            assert!(!error.to_string().contains("[browser]"), "{}: {error}", case.name);
        }
        let has_to_wait =
            matches!(case.op, Op::NonZero { .. }) && kinds[0].tensor().unwrap().num_elements() > 0;
        assert_eq!(values.is_none(), has_to_wait, "{}", case.name);
    }
    assert!(ran.len() > 20, "{ran:?}");
}

#[test]
fn nonzero_waits_in_its_future() {
    let (gpu, gate) = gpu();
    let op = Op::NonZero { index: DType::I32 };
    let types = [TensorType::new([4, 2], DType::I32)];
    let operands = || -> Operands { std::iter::once(Operand::Value(numbers(&gpu))).collect() };
    let refused = without_blocking(|| gpu.execute(&op, operands(), &types).remove(0));
    let error = refused.error().unwrap().to_string();
    assert!(error.contains("[browser]") && error.contains("await `nonzero_async`"), "{error}");
    let mut started = gpu.execute_async(&op, operands(), &types);
    assert!(poll_once(&mut started).is_none());
    gate.open();
    // The driver reads zeros: no element is counted.
    assert_eq!(block_on(started)[0].shape().to_vec(), [0, 2]);
    assert_eq!(gpu.execute(&op, operands(), &types)[0].shape().to_vec(), [0, 2], "a native thread waits");
}

#[test]
fn a_check_of_fused_regions_waits_in_the_next_read() {
    let (gpu, gate) = gpu();
    let layer = Fusion::with_mode(Arc::new(Expand::new(gpu)), Mode::Check);
    let mut read = without_blocking(|| {
        let x = Var::new(&layer, numbers(&layer));
        let y = (&x * 2.0).exp();
        layer.read(y.into_value())
    });
    assert!(poll_once(&mut read).is_none());
    gate.open();
    assert!(block_on(read).is_ok());
}

#[test]
fn synchronization_waits_in_its_future() {
    let (gpu, gate) = gpu();
    let mut done = gpu.sync();
    assert!(poll_once(&mut done).is_none());
    gate.open();
    assert!(poll_once(&mut done).unwrap().is_ok());
}
