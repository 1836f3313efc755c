//! Batch normalisation over the batches of several threads.

use kiln_backends::Flex;
use kiln_ir::ThreadGroup;
use kiln_nn::{BatchNorm, BatchNormConfig, Module, Param, SyncBatchNorm, SyncGroup};
use kiln_tensor::{Autodiff, Tensor};

type B = Autodiff<Flex>;

fn numbers<const D: usize>(shape: [usize; D], seed: usize) -> Tensor<B, D> {
    let len: usize = shape.iter().product();
    let numbers: Vec<f32> = (0..len).map(|i| ((i * 13 + seed * 7) % 17) as f32 / 5.0 - 1.3).collect();
    Tensor::<B, 1>::from_floats(numbers, &Default::default()).reshape(shape)
}

fn layer() -> BatchNorm<B> {
    let mut layer: BatchNorm<B> = BatchNormConfig::new(3).init(&Default::default());
    layer.weight = Some(Param::from_tensor(Tensor::from_floats([0.5, 2.0, -1.5], &Default::default())));
    layer.bias = Some(Param::from_tensor(Tensor::from_floats([0.1, -0.2, 0.3], &Default::default())));
    layer.train()
}

/// The output, the gradients of input, weight and bias, and the running statistics after two passes.
type Results = [Vec<f32>; 6];

fn results(
    forward: impl Fn(Tensor<B, 3>) -> Tensor<B, 3>,
    parameters: [&Option<Param<Tensor<B, 1>>>; 2],
    running: impl Fn() -> [Vec<f32>; 2],
    [x, coefficients]: [Tensor<B, 3>; 2],
) -> Results {
    forward(x.clone() * 0.5 - 1.0);
    let x = x.require_grad();
    let y = forward(x.clone());
    let gradients = (y.clone() * coefficients).sum().backward();
    let of = |parameter: &Option<Param<Tensor<B, 1>>>| {
        parameter.as_ref().unwrap().val().grad(&gradients).unwrap().to_vec::<f32>()
    };
    let [weight, bias] = parameters.map(of);
    let [mean, variance] = running();
    [y.to_vec(), x.grad(&gradients).unwrap().to_vec(), weight, bias, mean, variance]
}

fn of_the_whole(x: [Tensor<B, 3>; 2]) -> Results {
    let layer = layer();
    let running = || [layer.running_mean.value().to_vec(), layer.running_var.value().to_vec()];
    results(|x| layer.forward(x), [&layer.weight, &layer.bias], running, x)
}

fn of_a_member(group: SyncGroup, x: [Tensor<B, 3>; 2]) -> Results {
    let layer = SyncBatchNorm::from_batch_norm(layer(), group);
    let running = || [layer.running_mean.value().to_vec(), layer.running_var.value().to_vec()];
    results(|x| layer.forward(x), [&layer.weight, &layer.bias], running, x)
}

fn assert_close(actual: &[f32], expected: &[f32], name: &str) {
    assert_eq!(actual.len(), expected.len(), "{name}");
    for (a, e) in actual.iter().zip(expected) {
        assert!((a - e).abs() <= 2e-5 * (1.0 + e.abs()), "{name}: {actual:?} instead of {expected:?}");
    }
}

/// Batches of different sizes in threads, against the concatenated batch.
fn check(sizes: &[usize]) {
    let total: usize = sizes.iter().sum();
    let whole = [numbers([total, 3, 2], 1), numbers([total, 3, 2], 5)];
    let expected = of_the_whole(whole.clone());
    let group = ThreadGroup::new(sizes.len());
    let members = group.join().unwrap();
    let starts: Vec<usize> =
        sizes.iter().scan(0, |start, size| Some(std::mem::replace(start, *start + size))).collect();
    let members: Vec<Results> = std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .into_iter()
            .map(|member| {
                let part =
                    |x: &Tensor<B, 3>| x.clone().narrow(0, starts[member.rank()], sizes[member.rank()]);
                let part = [part(&whole[0]), part(&whole[1])];
                let sync = SyncGroup { id: group.id(), rank: member.rank(), size: member.size() };
                scope.spawn(move || {
                    let _member = member;
                    of_a_member(sync, part)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (index, name) in ["output", "gradient of the input"].into_iter().enumerate() {
        let all: Vec<f32> = members.iter().flat_map(|results| results[index].clone()).collect();
        assert_close(&all, &expected[index], name);
    }
    for (index, name) in [(2, "gradient of the weight"), (3, "gradient of the bias")] {
        let sum = |i: usize| members.iter().map(|results| results[index][i]).sum();
        let total: Vec<f32> = (0..3).map(sum).collect();
        assert_close(&total, &expected[index], name);
    }
    for results in &members {
        assert_close(&results[4], &expected[4], "running mean");
        assert_close(&results[5], &expected[5], "running variance");
        assert_eq!(results[4..], members[0][4..]);
    }
}

#[test]
fn two_members_equal_the_concatenated_batch() {
    check(&[3, 5]);
}

#[test]
fn three_members_equal_the_concatenated_batch() {
    check(&[1, 4, 2]);
}
