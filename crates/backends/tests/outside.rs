//! Out-of-tree engines and layers, as backends and as layers of devices.

use kiln_backends::{Autocast, Cpu, Device, Dyn, Flex, Fusion, LowPrecision, with_fusion};
use kiln_ir::{BoxFuture, Caps, Engine, Op, Operands, Result, TensorData, TensorType, Value, Values};
use kiln_reference::Reference;
use kiln_tensor::transform::{grad, jvp, vmap};
use kiln_tensor::{
    AnyTensor, Autodiff, Backend, Checkpointing, DType, DeviceKey, Forward, Int, Stack, Tensor, Vmap,
};
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The reference engine with a count of live instances.
struct Counted {
    inner: Reference,
    alive: &'static AtomicUsize,
}

impl Counted {
    fn new(alive: &'static AtomicUsize) -> Arc<Counted> {
        alive.fetch_add(1, Ordering::SeqCst);
        Arc::new(Counted { inner: Reference::new(), alive })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Engine for Counted {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.inner.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(value)
    }
}

/// A layer that counts ops.
struct Tally {
    inner: Arc<dyn Engine>,
    ops: AtomicUsize,
}

impl Tally {
    fn around(stack: &Stack, name: &'static str) -> Stack {
        let wrap = |inner| Arc::new(Tally { inner, ops: AtomicUsize::new(0) });
        stack.layered(&format!("tally {name}"), name, wrap)
    }

    fn ops(&self) -> usize {
        self.ops.load(Ordering::SeqCst)
    }
}

impl Engine for Tally {
    fn caps(&self) -> &Caps {
        self.inner.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        self.ops.fetch_add(1, Ordering::SeqCst);
        self.inner.execute(op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        self.inner.read(value)
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.inner)
    }
}

static LOCAL: AtomicUsize = AtomicUsize::new(0);
static REMOTE: AtomicUsize = AtomicUsize::new(0);

/// A backend of this machine.
#[derive(Clone, Copy, Debug, Default)]
struct Local;

#[derive(Clone, Debug, Default, PartialEq)]
struct LocalDevice {
    index: u64,
}

impl Backend for Local {
    type Device = LocalDevice;
    type FloatElem = f64;
    type IntElem = i64;
    type BoolElem = bool;

    fn stack(device: &LocalDevice) -> Stack {
        let name = format!("local:{}", device.index);
        let open = || Stack::of_device(Counted::new(&LOCAL), device.clone(), &name, DType::F64, DType::I64);
        Stack::opened::<Local>(DeviceKey::Index(device.index), open)
    }
}

/// A backend of another machine.
#[derive(Clone, Copy, Debug, Default)]
struct Remote;

#[derive(Clone, Debug, Default, PartialEq)]
struct RemoteDevice {
    url: String,
}

impl RemoteDevice {
    fn new(url: &str) -> RemoteDevice {
        RemoteDevice { url: url.to_owned() }
    }
}

impl Backend for Remote {
    type Device = RemoteDevice;
    type FloatElem = f32;
    type IntElem = i32;
    type BoolElem = bool;

    fn stack(device: &RemoteDevice) -> Stack {
        let open = || {
            let stack =
                Stack::of_device(Counted::new(&REMOTE), device.clone(), &device.url, DType::F32, DType::I32);
            with_fusion(&stack)
        };
        Stack::opened::<Remote>(DeviceKey::Url(device.url.clone()), open)
    }
}

/// The layer as a backend.
#[derive(Clone, Copy, Debug, Default)]
struct Tallied<B>(PhantomData<B>);

impl<B: Backend> Backend for Tallied<B> {
    type Device = B::Device;
    type FloatElem = B::FloatElem;
    type IntElem = B::IntElem;
    type BoolElem = B::BoolElem;

    fn stack(device: &B::Device) -> Stack {
        Tally::around(&B::stack(device), "ops")
    }

    fn device(stack: &Stack) -> B::Device {
        B::device(stack.below().unwrap_or(stack))
    }
}

fn numbers(data: impl Into<TensorData>) -> Vec<f64> {
    data.into().to_vec()
}

#[test]
fn an_out_of_tree_engine_is_a_backend() {
    type B = Autodiff<Tallied<Local>>;
    let device = LocalDevice { index: 1 };
    let x = Tensor::<B, 1>::from_floats([1.0, 2.0], &device).require_grad();
    assert_eq!((x.dtype(), x.device()), (DType::F64, device.clone()));
    let before = B::stack(&device).find::<Tally>().map(Tally::ops).expect("the layer is there");
    let gradients = (&x * &x).sum().backward();
    let gradient = x.grad(&gradients).expect("x has one");
    assert_eq!((numbers(gradient.to_data()), gradient.device()), (vec![2.0, 4.0], device.clone()));
    let stack = B::stack(&device);
    assert!(stack.find::<Tally>().expect("the layer is there").ops() >= before + 2);
    assert!(stack.find::<Counted>().is_some() && stack.find::<Reference>().is_none());
    assert_eq!(format!("{stack:?}"), "autodiff over tally ops over local:1");
    // Transforms wrap it in their layers.
    let plain = Tensor::<Tallied<Local>, 1>::from_floats([3.0], &device);
    let cube = |x: Tensor<B, 1>| (&x * &x * &x).sum();
    assert_eq!(numbers(grad(cube)(plain.clone()).into_data()), [27.0]);
    let square = |x: Tensor<Forward<Tallied<Local>>, 1>| &x * &x;
    let (_, change) = jvp(square, plain.clone(), plain.clone());
    assert_eq!(numbers(change.into_data()), [18.0]);
    let double = |x: Tensor<Vmap<Tallied<Local>>, 1>| x * 2;
    let doubled: Tensor<Tallied<Local>, 2> = vmap(double)(plain.unsqueeze::<2>());
    assert_eq!(numbers(doubled.into_data()), [6.0]);
}

#[test]
fn an_out_of_tree_layer_wraps_devices() {
    let device = Device::from(Tally::around(Device::cpu().as_ref(), "cpu")).autodiff();
    assert_eq!(format!("{device:?}"), "Device(autodiff over tally cpu over cpu)");
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &device).require_grad();
    let gradients = (&x * &x).sum().backward();
    assert_eq!(numbers(x.grad(&gradients).expect("x has one").into_data()), [2.0, 4.0]);
    let stack: &Stack = device.as_ref();
    assert!(stack.find::<Tally>().is_some_and(|layer| layer.ops() >= 2));
    assert!(stack.find::<kiln_fusion::Fusion>().is_some() && stack.find::<kiln_cpu::Cpu>().is_some());
    assert!(stack.outermost::<Tally>().is_none() && stack.outermost::<kiln_cpu::Cpu>().is_none());
    assert!(!Device::from(stack.below().expect("autodiff is above").clone()).is_autodiff());
    // A backend type and a device identify one stack.
    let x = Tensor::<Dyn, 1>::from_floats([1.0], &Device::from(Tallied::<Cpu>::stack(&Default::default())));
    assert!(x.into_any().try_into_tensor::<Tallied<Cpu>, 1, kiln_tensor::Float>().is_ok());
}

#[test]
fn layers_are_opened_once_for_equal_settings() {
    let (flex, cpu) = (Device::flex(), Device::cpu());
    assert_eq!(flex.autodiff(), flex.autodiff());
    assert_ne!(flex.autodiff(), cpu.autodiff());
    assert_eq!(flex.autocast(LowPrecision::F16), flex.autocast(LowPrecision::F16));
    assert_ne!(flex.autocast(LowPrecision::F16), flex.autocast(LowPrecision::BF16));
    let stack: &Stack = flex.as_ref();
    assert_ne!(stack.with_autodiff(Checkpointing::None), stack.with_autodiff(Checkpointing::Balanced));
    assert_eq!(Tally::around(stack, "a"), Tally::around(stack, "a"));
    assert_ne!(Tally::around(stack, "a"), Tally::around(stack, "b"));
    // The same layers are found by type and by device.
    let of_device: &Stack = &flex.autocast(LowPrecision::BF16).autodiff().as_ref().clone();
    assert_eq!(*of_device, Autodiff::<Autocast<Flex>>::stack(&Default::default()));
    assert_eq!(with_fusion(stack), Fusion::<Flex>::stack(&Default::default()));
    // `find` returns the outermost of two layers of one type.
    let twice = Tally::around(&Tally::around(stack, "below"), "above");
    let found = twice.find::<Tally>().expect("there are two");
    assert!(std::ptr::eq(found, twice.outermost().expect("it is outermost")));
    assert_eq!(format!("{twice:?}"), "tally above over tally below over flex");
}

#[test]
fn threads_share_one_stack() {
    let open = || Local::stack(&LocalDevice { index: 7 }).with_forward();
    let stacks: Vec<Stack> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        threads.into_iter().map(|thread| thread.join().expect("it opens")).collect()
    });
    assert!(stacks.iter().all(|stack| *stack == stacks[0]));
}

#[test]
fn a_stack_returns_its_typed_device() {
    let device = RemoteDevice::new("kiln://typed:1");
    let stack = Autodiff::<Autocast<Remote>>::stack(&device);
    assert_eq!(stack.device::<RemoteDevice>(), Some(&device));
    assert_eq!(stack.device::<LocalDevice>(), None);
    assert_eq!(stack.device_key(), Some(&DeviceKey::Url(device.url.clone())));
    assert_eq!(stack.device_name(), "kiln://typed:1");
    let x = Tensor::<Autodiff<Autocast<Remote>>, 1>::ones([1], &device);
    assert_eq!(x.device(), device);
    assert_eq!(Device::from_engine(Counted::new(&OTHER), "bare").as_ref().device_key(), None);
    assert_eq!(Device::flex_with_threads(2).as_ref().device_key(), Some(&DeviceKey::Index(2)));
    // A device of another kind is not a device of the backend, although its value falls back to the default.
    let elsewhere = Tensor::<Dyn, 1>::ones([1], &Device::flex_with_threads(2)).into_any();
    assert!(elsewhere.try_into_tensor::<Flex, 1, kiln_tensor::Float>().is_err());
}

#[test]
fn device_keys_are_ordered_and_serialized() {
    let keys = [DeviceKey::Index(3), DeviceKey::Url("kiln://a:1".to_owned())];
    assert!(keys[0] < keys[1]);
    assert_eq!(keys.clone().map(|key| key.to_string()), ["3", "kiln://a:1"]);
    let text = serde_json::to_string(&keys).expect("keys are plain data");
    assert_eq!(text, r#"[{"index":3},{"url":"kiln://a:1"}]"#);
    assert_eq!(serde_json::from_str::<[DeviceKey; 2]>(&text).expect("it is their text"), keys);
}

static OTHER: AtomicUsize = AtomicUsize::new(0);

/// Two devices of one engine.
fn two_devices(alive: &'static AtomicUsize) -> [Stack; 2] {
    let first = RemoteDevice::new("first");
    let here = Stack::of_device(Counted::new(alive), first, "pair", DType::F32, DType::I32);
    let there = here.with_device(RemoteDevice::new("second"), "pair");
    [here, there]
}

fn tensor(stack: &Stack, data: impl Into<TensorData>) -> AnyTensor {
    AnyTensor::from_data(data.into(), stack)
}

#[test]
fn values_of_one_domain_are_operands_of_one_op() -> Result<()> {
    let [here, there] = two_devices(&OTHER);
    assert!(here != there && here.same_domain(&there) && here.domain() == there.domain());
    assert_eq!(there, here.with_device(RemoteDevice::new("second"), "another name"));
    assert_eq!(there, here.with_device_of(&there));
    let (a, b) = (tensor(&here, [1.0f32, 2.0]), tensor(&there, [10.0f32, 20.0]));
    // The result is on the device of the first operand.
    let sum = a.clone().add(b.clone())?;
    assert_eq!((sum.stack(), numbers(sum.to_data()?)), (&here, vec![11.0, 22.0]));
    assert_eq!(b.clone().add(a.clone())?.stack(), &there);
    let joined = AnyTensor::cat(vec![b.clone(), a.clone()], 0)?;
    assert_eq!((joined.stack(), numbers(joined.to_data()?)), (&there, vec![10.0, 20.0, 1.0, 2.0]));
    // Ops with a result per operand keep the device of each operand.
    let recovered = AnyTensor::recover(vec![a.clone(), b.clone()], [])?;
    let stacks: Vec<&Stack> = recovered.tensors.iter().map(AnyTensor::stack).collect();
    assert_eq!(stacks, [&here, &there]);
    // An explicit device moves the tensor.
    assert_eq!(b.to_device(&here)?.stack(), &here);
    Ok(())
}

#[test]
fn stacks_of_one_domain_share_layers() -> Result<()> {
    let [here, there] = two_devices(&OTHER);
    let [above, beside] = [&here, &there].map(|stack| Tally::around(stack, "both"));
    assert!(above.same_domain(&beside) && above != beside && !above.same_domain(&here));
    let layers =
        [&above, &beside].map(|stack| std::ptr::from_ref(stack.find::<Tally>().expect("it is there")));
    assert_eq!(layers[0], layers[1]);
    assert_eq!(above.with_device(RemoteDevice::new("second"), ""), beside);
    // Gradients are on the devices of their tensors.
    let [above, beside] = [above, beside].map(|stack| stack.with_autodiff(Checkpointing::None));
    let a = tensor(&above, [1.0f32, 2.0]).require_grad()?;
    let b = tensor(&beside, [10.0f32, 20.0]).require_grad()?;
    let loss: Tensor<Dyn, 1> = a.clone().mul(b.clone())?.sum()?.try_into_tensor()?;
    let gradients = loss.backward();
    for (tensor, expected) in [(&a, [10.0, 20.0]), (&b, [1.0, 2.0])] {
        let gradient = gradients.get(tensor).expect("it has one");
        assert_eq!(Some(gradient.stack()), tensor.stack().below());
        assert_eq!(numbers(gradient.into_data()?), expected);
    }
    // Lifted tensors also stay on their devices.
    assert_eq!(tensor(&there, [1.0f32]).lift_to(&above)?.stack(), &beside);
    let below = beside.below().expect("autodiff is above");
    assert_eq!(tensor(below, [1.0f32]).from_inner(&above)?.stack(), &beside);
    let product = |(a, b): (Tensor<Dyn, 1>, Tensor<Dyn, 1>)| a * b;
    let batch =
        |stack: &Stack| tensor(stack, [[1.0f32], [2.0]]).try_into_tensor::<Dyn, 2, kiln_tensor::Float>();
    let products: Tensor<Dyn, 2> = vmap(product)((batch(&here)?, batch(&there)?));
    assert_eq!(numbers(products.to_data()), [1.0, 4.0]);
    assert_eq!(products.engine_stack(), &here);
    Ok(())
}

#[test]
fn values_of_two_domains_in_one_op_are_an_error() {
    let [here, _] = two_devices(&OTHER);
    let [other, _] = two_devices(&OTHER);
    let error = tensor(&here, [1.0f32]).add(tensor(&other, [1.0f32])).expect_err("the engines are two");
    let (a, b) = (here.domain(), other.domain());
    assert_eq!(
        error.to_string(),
        format!(
            "[add] tensors are on different devices: pair ({a}) and pair ({b}): f32[1] x f32[1]\n  \
             hint: move one of them with `to_device`"
        )
    );
    let [cpu, flex] = [Device::cpu(), Device::flex()].map(|device| tensor(device.as_ref(), [1i64]));
    let error = cpu.clone().add(flex).expect_err("these are two");
    assert!(error.to_string().contains("different devices: cpu and flex"), "{error}");
    let inside = tensor(&Device::cpu().as_ref().with_vmap(), [1i64]);
    let error = inside.add(cpu).expect_err("one is outside");
    assert!(error.to_string().contains("with `lift`"), "{error}");
}

#[test]
fn a_remote_device_is_closed_with_its_last_handle() {
    static URL: &str = "kiln://closed:1";
    let alive = || REMOTE_ALONE.load(Ordering::SeqCst);
    #[derive(Clone, Copy, Debug, Default)]
    struct Alone;
    static REMOTE_ALONE: AtomicUsize = AtomicUsize::new(0);
    impl Backend for Alone {
        type Device = RemoteDevice;
        type FloatElem = f32;
        type IntElem = i32;
        type BoolElem = bool;

        fn stack(device: &RemoteDevice) -> Stack {
            let engine = || Counted::new(&REMOTE_ALONE);
            let open = || Stack::of_device(engine(), device.clone(), URL, DType::F32, DType::I32);
            Stack::opened::<Alone>(DeviceKey::Url(device.url.clone()), open)
        }
    }
    type B = Autodiff<Alone>;
    let device = RemoteDevice::new(URL);
    let x = Tensor::<B, 1>::from_floats([1.0, 2.0], &device).require_grad();
    assert_eq!(alive(), 1);
    // Every kind of layer, and a dynamic device handle.
    let gradient = x.grad(&(&x * &x).sum().backward()).expect("x has one");
    let plain = gradient.clone();
    let slope = grad(|x: Tensor<B, 1>| (&x * &x).sum())(plain.clone());
    let (_, change) = jvp(|x: Tensor<Forward<Alone>, 1>| &x * &x, plain.clone(), plain.clone());
    let rows: Tensor<Alone, 2> = vmap(|x: Tensor<Vmap<Alone>, 1>| x * 2)(plain.clone().unsqueeze::<2>());
    let handle = Device::from(Alone::stack(&device)).autocast(LowPrecision::BF16).autodiff();
    assert_eq!(alive(), 1, "all are on one engine");
    drop((x, plain, slope, change, rows, handle));
    assert_eq!(alive(), 1, "a gradient is left");
    assert_eq!(numbers(gradient.into_data()), [2.0, 4.0]);
    assert_eq!(alive(), 0, "nothing is left");
    // The next use opens it again.
    let y = Tensor::<B, 1>::from_floats([3.0], &device);
    assert_eq!((alive(), numbers((y * 2).into_data())), (1, vec![6.0]));
    assert_eq!(alive(), 0);
    // The same holds for an engine that was not opened by a key.
    let bare = Device::from_engine(Counted::new(&REMOTE_ALONE), "bare");
    let x = Tensor::<Dyn, 1>::from_floats([1.0], &bare.autodiff());
    drop((bare.as_ref().with_vmap(), bare.as_ref().with_forward(), bare));
    assert_eq!(alive(), 1);
    drop(x);
    assert_eq!(alive(), 0);
}

#[test]
fn a_local_device_stays_open() {
    static KEPT: AtomicUsize = AtomicUsize::new(0);
    #[derive(Clone, Copy, Debug, Default)]
    struct Kept;
    impl Backend for Kept {
        type Device = LocalDevice;
        type FloatElem = f32;
        type IntElem = i32;
        type BoolElem = bool;

        fn stack(device: &LocalDevice) -> Stack {
            let open =
                || Stack::of_device(Counted::new(&KEPT), device.clone(), "kept", DType::F32, DType::I32);
            Stack::opened::<Kept>(DeviceKey::Index(device.index), open)
        }
    }
    let device = LocalDevice::default();
    Kept::seed(&device, 5);
    let draw = || Tensor::<Kept, 1, Int>::randperm(64, None, &device).into_data();
    let first = draw();
    assert_eq!(KEPT.load(Ordering::SeqCst), 1);
    assert_ne!(first, draw(), "the stream of keys goes on");
    // Layers with cached values also stay.
    let tally = |stack: &Stack| stack.find::<Tally>().map(Tally::ops).expect("the layer is there");
    let x = Tensor::<Tallied<Kept>, 1>::ones([1], &device);
    let counted = tally(x.engine_stack());
    drop((&x + &x).into_data());
    drop(x);
    assert_eq!(tally(&Tallied::<Kept>::stack(&device)), counted + 1);
    assert_eq!(KEPT.load(Ordering::SeqCst), 1);
    // A seed applies to every layer of the device.
    Autodiff::<Tallied<Kept>>::seed(&device, 5);
    assert_eq!(draw(), first);
}
