//! Tensors on a router: creation, meeting, devices, gradients, layers, errors.

use kiln_backends::router::{TransferPolicy, duo, oct, trio};
use kiln_backends::{
    Autocast, Cpu, CpuDevice, Device, Dyn, Flex, FlexDevice, NdArray, NdArrayDevice, Router,
};
use kiln_tensor::transform::{grad, hessian, jvp, vmap};
use kiln_tensor::{AnyTensor, Autodiff, Backend, Distribution, Int, Tensor};

type Pair = Router<(Flex, Cpu)>;
type Places = duo::MultiDevice<Flex, Cpu>;

const FIRST: Places = duo::MultiDevice::B1(FlexDevice);
const SECOND: Places = duo::MultiDevice::B2(CpuDevice);

fn vector<B: Backend>(numbers: &[f32], device: &B::Device) -> Tensor<B, 1> {
    Tensor::from_floats(numbers, device)
}

fn numbers<B: Backend>(x: Tensor<B, 1>) -> Vec<f32> {
    x.into_data().to_vec()
}

#[test]
fn tensors_are_made_on_the_device_that_is_named() {
    for device in [FIRST, SECOND] {
        let made: [Tensor<Pair, 1>; 6] = [
            vector(&[1.0, 2.0], &device),
            Tensor::zeros([2], &device),
            Tensor::random([2], Distribution::Default, &device),
            Tensor::random([2], Distribution::Normal(0.0, 1.0), &device),
            Tensor::full([2], 3.0, &device),
            Tensor::<Pair, 1, Int>::arange(0..2, &device).float(),
        ];
        for x in made {
            assert_eq!(x.device(), device);
            let like = x.random_like(Distribution::Default) + x.ones_like();
            assert_eq!(like.device(), device);
            assert_eq!(numbers(x.clone() - x), [0.0; 2]);
        }
    }
    assert_eq!(Places::default(), FIRST);
    assert_eq!(format!("{SECOND:?}"), "B2(CpuDevice)");
}

#[test]
fn members_have_seeds_of_their_own_that_stay() {
    let draw = |device: &Places| numbers(Tensor::<Pair, 1>::random([4], Distribution::Default, device));
    Pair::seed(&SECOND, 7);
    let first = draw(&SECOND);
    draw(&FIRST);
    let second = draw(&SECOND);
    Pair::seed(&SECOND, 7);
    assert_eq!([draw(&SECOND), draw(&SECOND)], [first, second]);
}

#[test]
fn results_of_both_say_where_they_are() {
    type B = Router<(NdArray, Cpu)>;
    let (a, b) = (duo::MultiDevice::B1(NdArrayDevice::Cpu), duo::MultiDevice::B2(CpuDevice));
    let (x, y) = (vector::<B>(&[1.0], &a), vector::<B>(&[2.0, 3.0], &b));
    B::reset_statistics();
    let joined = Tensor::cat(vec![x.clone(), y.clone()], 0);
    assert_eq!(joined.device(), b);
    assert_eq!(numbers(joined), [1.0, 2.0, 3.0]);
    let statistics = B::statistics();
    assert_eq!((statistics.automatic.transfers, statistics.automatic.bytes), (1, 4));
    assert_eq!(statistics.members.len(), 2);

    B::set_transfer_policy(TransferPolicy::Error);
    assert_eq!(B::transfer_policy(), TransferPolicy::Error);
    let error = Tensor::cat(vec![x.clone(), y.clone()], 0).try_into_data().unwrap_err().to_string();
    assert!(error.contains("several devices: ndarray, cpu"), "{error}");
    let moved = x.to_device(&b);
    assert_eq!(moved.device(), b);
    assert_eq!(numbers(moved + y), [3.0, 4.0]);
    B::set_transfer_policy(TransferPolicy::MoveSmaller);
}

#[test]
fn gradients_come_back_to_the_device_of_the_parameter() {
    type B = Autodiff<Pair>;
    let w = vector::<B>(&[1.0, 2.0], &FIRST).require_grad();
    let v = vector::<B>(&[3.0, 4.0], &SECOND).require_grad();
    let hidden = (w.clone() * 2).to_device(&SECOND) * v.clone();
    let loss = (hidden.to_device(&FIRST) + w.clone()).sum();
    let gradients = loss.backward();
    let (gw, gv) = (w.grad(&gradients).unwrap(), v.grad(&gradients).unwrap());
    assert_eq!((gw.device(), gv.device()), (FIRST, SECOND));
    assert_eq!((numbers(gw), numbers(gv)), (vec![7.0, 9.0], vec![2.0, 4.0]));
}

#[test]
fn transforms_of_higher_order_go_through_both() {
    let cubed = |device: &Device, other: &Device| {
        let x = Tensor::<Dyn, 1>::from_floats([2.0, 3.0], device);
        let scale = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], other);
        let f = |x: Tensor<Dyn, 1>| (x.clone() * x.clone() * x.lift(scale.clone()) * x).sum();
        let (gradient, second) = (grad::<Dyn, _, _, _>(f)(x.clone()), hessian::<Dyn, _, 1, _, 2>(f)(x));
        (numbers(gradient), second.into_data().to_vec::<f32>())
    };
    let [a, b] = Device::router(&[Device::cpu(), Device::flex()]);
    assert_eq!(cubed(&a, &b), (vec![12.0, 54.0], vec![12.0, 0.0, 0.0, 36.0]));
    assert_eq!(cubed(&b, &a), cubed(&a, &a));
}

#[test]
fn forward_mode_and_batches_go_through_both() {
    let [a, b] = Device::router(&[Device::cpu(), Device::flex()]);
    let scale = Tensor::<Dyn, 1>::from_floats([2.0, 3.0], &b);
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &a);
    let (_, tangent) =
        jvp(|x: Tensor<Dyn, 1>| x.clone() * x.lift(scale.clone()) * x, x.clone(), x.ones_like());
    assert_eq!(numbers(tangent), [4.0, 12.0]);
    let batch = Tensor::<Dyn, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &a);
    let scaled = vmap(|x: Tensor<Dyn, 1>| x.clone() * x.lift(scale.clone()));
    let y: Tensor<Dyn, 2> = scaled(batch);
    assert_eq!(y.into_data().to_vec::<f32>(), [2.0, 6.0, 6.0, 12.0]);
}

#[test]
fn mixed_precision_goes_around_a_router() {
    type B = Autodiff<Autocast<Router<(Cpu, Flex)>>>;
    let (a, b) = (duo::MultiDevice::B1(CpuDevice), duo::MultiDevice::B2(FlexDevice));
    let w = Tensor::<B, 2>::from_floats([[1.0, 2.0], [3.0, 4.0]], &a).require_grad();
    let x = Tensor::<B, 2>::from_floats([[1.0, 1.0]], &b);
    let y = x.matmul(w.clone());
    assert_eq!(y.clone().into_data().to_vec::<f32>(), [4.0, 6.0]);
    let gradient = w.grad(&y.to_device(&b).sum().backward()).unwrap();
    assert_eq!(gradient.device(), a);
    assert_eq!(gradient.into_data().to_vec::<f32>(), [1.0; 4]);
}

#[test]
fn errors_of_one_member_do_not_harm_the_other() {
    let index = Tensor::<Pair, 1, Int>::from_ints([9], &SECOND);
    let x = vector::<Pair>(&[1.0, 2.0], &FIRST);
    let bad = x.clone().to_device(&SECOND).select(0, index).to_device(&FIRST);
    let sum = bad + x.clone().slice(0..1);
    assert!(sum.try_into_data().unwrap_err().to_string().contains('9'));
    assert_eq!(numbers(x * 2), [2.0, 4.0]);
    Pair::sync(&SECOND).unwrap();
}

#[test]
fn tensors_come_and_go_to_other_backends() {
    let [a, _] = Device::router(&[Device::flex(), Device::cpu()]);
    let x = Tensor::<Dyn, 1>::from_floats([1.0, 2.0], &Device::cpu().autodiff()).require_grad();
    let y = x.clone().to_device(&a.autodiff());
    let back = (y.clone() * y).to_device(&Device::flex().autodiff());
    let gradient = x.grad(&back.sum().backward()).unwrap();
    assert_eq!(gradient.device(), Device::cpu());
    assert_eq!(numbers(gradient), [2.0, 4.0]);
}

#[test]
fn routers_have_up_to_eight_members() {
    type Three = Router<(Flex, Cpu, NdArray)>;
    let third = trio::MultiDevice::B3(NdArrayDevice::Cpu);
    let x = vector::<Three>(&[1.0], &third) + vector::<Three>(&[1.0], &trio::MultiDevice::B2(CpuDevice));
    assert_eq!(numbers(x), [2.0]);
    type Eight = Router<(Flex, Cpu, NdArray, Flex, Cpu, NdArray, Flex, NdArray<f64>)>;
    let last = oct::MultiDevice::B8(NdArrayDevice::Cpu);
    let x = vector::<Eight>(&[1.0], &last);
    assert_eq!((x.device(), numbers(x)), (last, vec![1.0]));
}

#[test]
fn one_engine_under_two_names_is_one_member() {
    type Twice = Router<(Flex, Flex)>;
    let (a, b) = (duo::MultiDevice::B1(FlexDevice), duo::MultiDevice::B2(FlexDevice));
    let sum = vector::<Twice>(&[1.0], &a) + vector::<Twice>(&[2.0], &b);
    assert_eq!(numbers(sum), [3.0]);
    assert_eq!(Twice::statistics().automatic.transfers, 0);
}

#[test]
fn devices_by_name() {
    let device = Device::open("router", 0).unwrap();
    assert_eq!(device, Device::open("router", 0).unwrap());
    let x = AnyTensor::from_data([1.0f32], &device);
    assert_eq!(x.into_data().unwrap().to_vec::<f32>(), [1.0]);
    let error = Device::open("router", 99).unwrap_err().to_string();
    assert!(error.contains("no device 99"), "{error}");
    assert!(Device::kinds().contains(&"router".into()));
    assert!(device.router_engine().is_some() && Device::cpu().router_engine().is_none());
}

#[test]
#[should_panic(expected = "without automatic differentiation")]
fn automatic_differentiation_goes_around() {
    let _ = Device::router(&[Device::cpu(), Device::flex().autodiff()]);
}

#[test]
fn memory_is_that_of_the_member() {
    assert_eq!(Pair::memory(&FIRST).is_some(), Flex::memory(&FlexDevice).is_some());
    assert!(Pair::stack(&FIRST).memory().is_some());
}
