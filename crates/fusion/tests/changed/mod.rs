//! A modified CPU engine, for tests of the layer above it.
// Each module modifies something else.

use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{
    BoxFuture, Caps, Engine, Machine, Op, Operands, Result, TensorData, TensorType, Value, Values,
};
use std::sync::Arc;
use std::task::Poll;

/// A function that executes an op, given the engine that it replaces.
type Execute = dyn Fn(&Cpu, &Op, Operands, &[TensorType]) -> Values + Send + Sync;

pub(crate) struct Changed {
    cpu: Cpu,
    caps: Caps,
    execute: Box<Execute>,
    /// Whether no read is ready at its first poll, as on a GPU in a browser.
    is_distant: bool,
}

impl Changed {
    /// An unmodified engine.
    pub(crate) fn new(cpu: Cpu) -> Changed {
        let execute =
            |cpu: &Cpu, op: &Op, inputs: Operands, results: &[TensorType]| cpu.execute(op, inputs, results);
        Changed { caps: cpu.caps().clone(), cpu, execute: Box::new(execute), is_distant: false }
    }

    /// Sets the machine description.
    pub(crate) fn with_machine(self, machine: Machine) -> Changed {
        Changed { caps: Caps { machine, ..self.caps }, ..self }
    }

    /// Adds a function that runs before each op.
    pub(crate) fn watched(self, watch: impl Fn(&Op) + Send + Sync + 'static) -> Changed {
        self.with_execute(move |cpu, op, inputs, results| {
            watch(op);
            cpu.execute(op, inputs, results)
        })
    }

    /// Replaces the execution of ops.
    pub(crate) fn with_execute(
        self,
        execute: impl Fn(&Cpu, &Op, Operands, &[TensorType]) -> Values + Send + Sync + 'static,
    ) -> Changed {
        Changed { execute: Box::new(execute), ..self }
    }

    /// Makes each read pending at its first poll.
    pub(crate) fn distant(self) -> Changed {
        Changed { is_distant: true, ..self }
    }

    /// Fusion over it.
    pub(crate) fn fused(self) -> Fusion {
        Fusion::with_mode(Arc::new(self), Mode::On)
    }
}

impl Engine for Changed {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        (self.execute)(&self.cpu, op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.cpu.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let (read, mut is_pending) = (self.cpu.read(value), self.is_distant);
        Box::pin(async move {
            let pause = std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::take(&mut is_pending) { Poll::Pending } else { Poll::Ready(()) }
            });
            pause.await;
            read.await
        })
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&self.cpu)
    }
}
