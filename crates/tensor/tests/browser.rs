//! Synchronous methods where no thread may wait, as in a browser: the errors name the asynchronous forms, which work.

use kiln_backends::{Flex, FlexDevice};
use kiln_ir::{
    BoxFuture, Caps, Engine, Expand, Op, Operands, Value, Values, Var, anomaly, block_on, without_blocking,
};
use kiln_reference::Reference;
use kiln_tensor::{
    AnyTensor, Checkpointing, Custom, CustomOp, DType, Error, Float, OperandType, Result, ResultTypes, Stack,
    Tensor, TensorData, TensorType, module,
};
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The reference engine as a device: no read is ready at its first poll.
struct Distant(Reference);

impl Engine for Distant {
    fn caps(&self) -> &Caps {
        self.0.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.0.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.0.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let read = self.0.read(value);
        Box::pin(async move {
            let mut is_first = true;
            poll_fn(|context| {
                if std::mem::take(&mut is_first) {
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
            read.await
        })
    }
}

/// `x²`, on the host. The gradient is of built-in ops.
#[derive(Debug)]
struct HostSquare;

impl CustomOp for HostSquare {
    fn name(&self) -> &str {
        "browser_host_square"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        match inputs {
            [OperandType::Tensor(ty)] => Ok(std::iter::once(**ty).collect()),
            _ => Err(Error::type_error(self.name(), "expects one tensor", inputs)),
        }
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let squares: Vec<f32> = inputs[0].to_vec::<f32>().into_iter().map(|x| x * x).collect();
        Some(TensorData::new(squares, *inputs[0].shape()).map(|data| vec![data]))
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        _outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        Some(Ok(vec![gradients[0].as_ref().map(|gradient| gradient * &inputs[0] * 2.0)]))
    }
}

fn stack() -> Stack {
    Stack::new(Arc::new(Distant(Reference::new())), "distant", DType::F32, DType::I32)
}

#[track_caller]
fn is_refused<T: Debug>(body: impl FnOnce() -> Result<T>, form: &str) {
    let error = without_blocking(body).unwrap_err().to_string();
    assert!(error.contains("[browser]") && error.contains(&format!("await `{form}`")), "{error}");
}

#[test]
fn reads_are_refused_and_name_the_asynchronous_form() {
    let x = AnyTensor::from_data([1.0f32, 2.0], &stack());
    is_refused(|| x.clone().into_data(), "into_data_async");
    is_refused(|| x.to_data(), "to_data_async");
    is_refused(|| x.to_vec::<f32>(), "to_vec_async");
    is_refused(|| x.item::<f32>(), "item_async");
    is_refused(|| x.clone().into_scalar::<f32>(), "into_scalar_async");
    is_refused(|| x.clone().all_close(x.clone(), None, None), "all_close_async");
    let numbers = AnyTensor::from_data([1i32, 3], &stack());
    is_refused(|| numbers.clone().bincount(None, 0).and_then(AnyTensor::into_data), "bincount_async");
    is_refused(|| x.clone().to_stack(&other()).and_then(AnyTensor::into_data), "into_data_async");
}

#[test]
fn asynchronous_forms_wait_in_their_futures() {
    let x = AnyTensor::from_data([1.0f32, 2.0], &stack());
    assert_eq!(block_on(x.clone().into_data_async()).unwrap(), TensorData::from([1.0f32, 2.0]));
    assert_eq!(block_on(x.to_vec_async::<i32>()).unwrap(), [1, 2]);
    assert!(block_on(x.clone().all_close_async(x.clone(), None, None)).unwrap());
    assert!(block_on(x.item_async::<f32>()).is_err(), "two elements");
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, 2.0], "a native thread waits");
}

#[test]
fn a_custom_op_on_the_host_waits_in_its_future() {
    let x = AnyTensor::from_data([1.0f32, 3.0], &stack());
    let op = Op::Custom(Custom::new(HostSquare));
    let executed = || {
        let y = x.clone().apply(&op)?;
        y.value().error().cloned().map_or(Ok(()), Err)
    };
    is_refused(executed, "custom_async");
    assert!(executed().is_ok(), "a native thread waits");
    let y = block_on(x.clone().apply_with_async(&op, [])).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [1.0, 9.0]);
    // The layers pass it to the engine of the device.
    let layered = AnyTensor::from_data([2.0f32], &stack().with_autodiff(Checkpointing::default()));
    let y = polled(layered.apply_with_async(&op, [])).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [4.0]);
}

#[test]
fn a_custom_op_on_tracked_operands_waits_in_its_future() {
    for checkpointing in [Checkpointing::None, Checkpointing::Balanced] {
        let stack = stack().with_autodiff(checkpointing);
        let x = AnyTensor::from_data([1.0f32, 3.0], &stack).require_grad().unwrap();
        let op = Op::Custom(Custom::new(HostSquare));
        let y = polled(x.clone().apply_with_async(&op, [])).unwrap();
        assert!(y.value().error().is_none());
        assert_eq!(y.to_vec::<f32>().unwrap(), [1.0, 9.0]);
        let gradients = y.sum().unwrap().backward().unwrap();
        assert_eq!(gradients.get(&x).unwrap().to_vec::<f32>().unwrap(), [2.0, 6.0]);
    }
}

#[test]
fn custom_async_needs_an_operand() {
    let x = Tensor::<Flex, 1>::from_floats([2.0, 3.0], &FlexDevice);
    let y: Tensor<Flex, 1> = block_on(module::custom_async(HostSquare, vec![x])).unwrap();
    assert_eq!(y.into_data().to_vec::<f32>(), [4.0, 9.0]);
    assert!(block_on(module::custom_async::<Flex, 1, 1, Float>(HostSquare, Vec::new())).is_err());
}

#[test]
fn a_registered_host_kernel_waits_in_its_future() {
    let stack = stack();
    let layer = stack.engine().find::<Expand>().expect("every stack has the layer");
    layer.register_kernel("browser_host_square", |_, inputs| Ok(inputs.to_vec()));
    let x = AnyTensor::from_data([1.0f32, 3.0], &stack);
    let op = Op::Custom(Custom::new(HostSquare));
    let y = polled(x.apply_with_async(&op, [])).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [1.0, 3.0], "the kernel has priority over the evaluation");
}

#[test]
fn anomalies_of_asynchronous_ops_are_found() {
    let op = Op::Custom(Custom::new(HostSquare));
    let found = anomaly::detect(|| {
        let x = AnyTensor::from_data([f32::MAX], &stack());
        let y = block_on(x.apply_with_async(&op, [])).unwrap();
        assert!(y.value().error().is_none());
        anomaly::found()
    });
    assert!(found.is_some_and(|found| !found.is_nan));
}

/// The output of a future in a place where no thread may wait.
fn polled<T>(future: impl Future<Output = T>) -> T {
    let output = without_blocking(|| {
        let mut started = pin!(future);
        let mut polls = (0..8).map(|_| started.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        polls.find_map(|poll| if let Poll::Ready(output) = poll { Some(output) } else { None })
    });
    output.expect("few polls end it")
}

/// A device whose reads are ready.
fn other() -> Stack {
    Stack::new(Arc::new(Reference::new()), "reference", DType::F32, DType::I32)
}
