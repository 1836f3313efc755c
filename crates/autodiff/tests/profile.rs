//! Profiles: the parts of forward and backward passes, and the work that they count.

use kiln_autodiff::{Autodiff, Checkpointing, no_grad};
use kiln_ir::profile::{self, Part, PartKind, ProfiledModule};
use kiln_ir::{Cost, DType, Engine, Expand, Op, Operand, Operands, TensorData, TensorType, Value, Var};
use kiln_reference::Reference;
use std::sync::Arc;

fn layer() -> Autodiff {
    Autodiff::new(Arc::new(Expand::new(Reference::new())), Checkpointing::None)
}

fn leaf<const M: usize, const N: usize>(layer: &Autodiff) -> Value {
    layer.require_grad(layer.write(TensorData::from([[0.5f32; N]; M])))
}

fn module(path: &str, parameters: &[u64]) -> ProfiledModule {
    ProfiledModule { path: path.to_owned(), parameters: parameters.to_vec() }
}

fn start(layer: &Autodiff) {
    let modules = vec![module("a", &[1, 2]), module("b", &[3])];
    profile::start(vec![layer.inner().clone()], modules);
}

fn part<'p>(profile: &'p profile::Profile, name: &str) -> &'p Part {
    profile.parts.iter().find(|part| part.name == name).unwrap()
}

fn bytes(elements: usize) -> u64 {
    4 * elements as u64
}

#[test]
fn a_pass_counts_the_ops_of_its_module_once() {
    let layer = layer();
    let (v, w) = (leaf::<3, 4>(&layer), leaf::<4, 2>(&layer));
    let x = layer.write(TensorData::from([[1.0f32; 3]; 5]));
    start(&layer);
    profile::read_parameter(1);
    profile::read_parameter(2);
    let hidden = Var::new(&layer, x).matmul(&Var::new(&layer, v.clone())).exp();
    profile::read_parameter(3);
    let y = hidden.matmul(&Var::new(&layer, w.clone()));
    drop(hidden);
    let loss = profile::scope("loss", || y.sum(&[0, 1]).into_value());
    drop(y);
    let gradients = layer.backward_owned(loss, None).unwrap();
    let updated = profile::optimizer("model", || {
        let engine = &**layer.inner();
        let step = |leaf: &Value| {
            let gradient = Var::new(engine, gradients.get(leaf).unwrap());
            (Var::new(engine, layer.inner_value(leaf)) - gradient * 0.1).into_value()
        };
        [step(&v), step(&w)]
    });
    let profile = profile::stop().unwrap();
    assert!(!profile::is_on() && profile::stop().is_none());
    drop(updated);

    let (a, b) = (part(&profile, "a"), part(&profile, "b"));
    assert_eq!((a.kind, a.calls, b.calls), (PartKind::Module, 1, 1));
    // `x v`, with its exponential; only `v` needs a gradient.
    assert_eq!(a.forward.work, Cost { flops: 2 * 5 * 3 * 4 + 20, bytes: bytes(15 + 12 + 20) });
    assert_eq!(a.backward.work.flops, 2 * 5 * 3 * 4 + 20);
    // Read: the gradient of the exponential, its result, `x`. Written: the gradient of `v`.
    assert_eq!(a.backward.work.bytes, bytes(20 + 20 + 15 + 12));
    assert_eq!(b.forward.work, Cost { flops: 2 * 5 * 4 * 2, bytes: bytes(20 + 8 + 10) });
    assert_eq!(b.backward.work.flops, 2 * 2 * 5 * 4 * 2);
    let update = part(&profile, "optimizer model");
    assert_eq!((update.kind, update.calls), (PartKind::Optimizer, 1));
    assert_eq!(update.forward.work, Cost { flops: 2 * 20, bytes: bytes(3 * 20) });
    assert_eq!(part(&profile, "loss").forward.work.flops, 10);
    for name in ["a", "b", "loss"] {
        let part = part(&profile, name);
        assert!(!part.forward.time.is_zero() && !part.backward.time.is_zero(), "{part:?}");
    }
}

#[test]
fn results_do_not_depend_on_a_profile() {
    let layer = layer();
    let run = || {
        let w = leaf::<2, 2>(&layer);
        let y = profile::scope("y", || Var::new(&layer, w.clone()).exp()) * 3.0;
        let gradient = layer.backward(&y.into_value(), None).unwrap().get(&w).unwrap();
        kiln_ir::block_on(layer.inner().read(gradient)).unwrap().into_vec::<f32>().unwrap()
    };
    let plain = run();
    start(&layer);
    let profiled = run();
    assert_eq!(part(&profile::stop().unwrap(), "y").calls, 1);
    assert_eq!(plain, profiled);
}

#[test]
fn parameters_within_a_scope_do_not_end_it() {
    let layer = layer();
    let w = no_grad(|| leaf::<2, 2>(&layer));
    start(&layer);
    profile::scope("block", || {
        profile::read_parameter(1);
        Var::new(&layer, w.clone()).exp();
        profile::outside_scopes(|| {
            profile::read_parameter(3);
            Var::new(&layer, w.clone()).exp();
        });
        Var::new(&layer, w.clone()).exp();
    });
    let profile = profile::stop().unwrap();
    let flops = |name| part(&profile, name).forward.work.flops;
    assert_eq!([flops("a"), flops("b"), flops("block")], [0, 4, 8]);
}

#[test]
fn other_threads_are_not_profiled() {
    let layer = layer();
    start(&layer);
    std::thread::scope(|threads| {
        threads.spawn(|| assert!(!profile::is_on()));
    });
    Var::new(&layer, leaf::<2, 2>(&layer)).exp();
    let profile = profile::stop().unwrap();
    assert_eq!(part(&profile, "input").forward.work.flops, 4);
}

#[test]
fn an_asynchronous_op_counts_as_the_synchronous_one() {
    let layer = layer();
    let op = Op::NonZero { index: DType::I32 };
    let types = [TensorType::new([6, 2], DType::I32)];
    let work = |is_async: bool| {
        let x = layer.write(TensorData::from([[1.0f32; 3]; 2]));
        start(&layer);
        let places = profile::scope("places", || {
            let inputs: Operands = core::iter::once(Operand::Value(x)).collect();
            let mut values = match is_async {
                true => kiln_ir::block_on(layer.execute_async(&op, inputs, &types)),
                false => layer.execute(&op, inputs, &types),
            };
            values.remove(0)
        });
        profile::scope("sum", || drop(Var::new(&layer, places).sum(&[0, 1])));
        part(&profile::stop().unwrap(), "places").forward.work
    };
    let expected = work(false);
    // Six elements are read, and six places of two numbers are written.
    assert_eq!(expected.bytes, bytes(6 + 12));
    assert_eq!(work(true), expected);
}
