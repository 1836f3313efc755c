//! Methods of tensors on the eager CPU engine: values, views, reductions, and conversion of data.

use kiln_backends::{Device, Dyn, Flex, FlexDevice};
use kiln_tensor::{
    AnyTensor, Backend, Bool, DType, Distribution, Int, Tensor, TensorData, TensorType, module, s,
};

const DEVICE: FlexDevice = FlexDevice;

fn floats<const D: usize>(data: impl Into<TensorData>) -> Tensor<Flex, D> {
    Tensor::from_floats(data, &DEVICE)
}

fn ints<const D: usize>(data: impl Into<TensorData>) -> Tensor<Flex, D, Int> {
    Tensor::from_ints(data, &DEVICE)
}

#[track_caller]
fn assert_floats<const D: usize>(tensor: Tensor<Flex, D>, expected: &[f32]) {
    assert_eq!(tensor.into_data().to_vec::<f32>(), expected);
}

#[track_caller]
fn assert_ints<const D: usize>(tensor: Tensor<Flex, D, Int>, expected: &[i32]) {
    assert_eq!(tensor.into_data().to_vec::<i32>(), expected);
}

#[test]
fn data_round_trips_unchanged() {
    let data = TensorData::new(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).unwrap();
    assert_eq!(floats::<2>(data.clone()).into_data(), data);
    let double = Tensor::<Flex, 1>::from_data_dtype([1.0f64, 0.1], DType::F64, &DEVICE);
    assert_eq!(double.into_data().into_vec::<f64>().unwrap(), [1.0, 0.1]);
    assert_eq!(floats::<1>([0.5f64]).into_scalar::<f32>(), 0.5);
    assert_eq!(ints::<1>([7i64]).into_scalar::<u8>(), 7);
}

#[test]
fn broadcasting_follows_numpy() {
    let column = floats::<2>([[1.0], [2.0]]);
    let row = floats::<2>([[10.0, 20.0, 30.0]]);
    assert_floats(&column + &row, &[11.0, 21.0, 31.0, 12.0, 22.0, 32.0]);
    assert_floats(column.clone().max_pair(floats([[1.5]])), &[1.5, 2.0]);
    assert_floats(column.expand([2, 2]), &[1.0, 1.0, 2.0, 2.0]);
}

#[test]
fn assignment_operators_update() {
    let mut x = floats::<1>([1.0, 2.0]);
    x += 1;
    x *= floats([2.0, 3.0]);
    x -= &floats([1.0, 1.0]);
    x /= 2.0;
    assert_floats(x, &[1.5, 4.0]);
}

#[test]
fn views_and_shape_methods() {
    let x = ints::<1>([0, 1, 2, 3, 4, 5]).reshape([2, 3]);
    assert_ints(x.clone().transpose(), &[0, 3, 1, 4, 2, 5]);
    assert_ints(x.clone().flip([1]), &[2, 1, 0, 5, 4, 3]);
    assert_ints(x.clone().slice(s![.., 1..]), &[1, 2, 4, 5]);
    assert_ints(x.clone().reshape([-1, 2]), &[0, 1, 2, 3, 4, 5]);
    assert_eq!(x.clone().reshape([0, -1, 1]).dims(), [2, 3, 1]);
    assert_ints(x.clone().repeat([1, 2]), &[0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]);
    assert_ints(x.clone().pad([(1, 0), (0, 1)], 9), &[9, 9, 9, 9, 0, 1, 2, 9, 3, 4, 5, 9]);
    assert_ints(x.clone().slice_assign(s![0, ..2], ints([[8, 9]])), &[8, 9, 2, 3, 4, 5]);
    assert_ints(Tensor::cat(vec![x.clone(), x.clone()], 0).narrow(0, 1, 2), &[3, 4, 5, 0, 1, 2]);
    assert_eq!(Tensor::stack::<3>(vec![x.clone(), x.clone()], 1).dims(), [2, 2, 3]);
    assert_eq!(x.clone().unsqueeze_dim::<3>(1).squeeze_dim::<2>(1).dims(), [2, 3]);
    assert_eq!(x.clone().unsqueeze::<4>().squeeze::<2>().dims(), [2, 3]);
    assert_eq!(x.clone().flatten::<1>(0, 1).dims(), [6]);
    assert_eq!(x.clone().chunk(2, 1).iter().map(|part| part.dims()[1]).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(x.clone().permute([-1, 0]).dims(), [3, 2]);
    assert_eq!(x.reshape([1, 2, 3]).movedim(2, 0).dims(), [3, 1, 2]);
}

#[test]
fn reductions_keep_dims() {
    let x = floats::<2>([[1.0, 2.0, 3.0], [4.0, 6.0, 5.0]]);
    assert_floats(x.clone().sum(), &[21.0]);
    assert_floats(x.clone().sum_dim(0), &[5.0, 8.0, 8.0]);
    assert_floats(x.clone().mean_dim(1), &[2.0, 5.0]);
    assert_floats(x.clone().prod_dim(1), &[6.0, 120.0]);
    assert_floats(x.clone().max(), &[6.0]);
    assert_floats(x.clone().var(1), &[1.0, 1.0]);
    assert_floats(x.clone().var_bias(1), &[2.0 / 3.0, 2.0 / 3.0]);
    assert_floats(x.clone().cumsum(1), &[1.0, 3.0, 6.0, 4.0, 10.0, 15.0]);
    assert_ints(x.clone().argmax(1), &[2, 1]);
    let (values, indices) = x.clone().max_dim_with_indices(0);
    assert_floats(values, &[4.0, 6.0, 5.0]);
    assert_ints(indices, &[1, 1, 1]);
    let (values, indices) = x.topk_with_indices(2, 1);
    assert_floats(values, &[3.0, 2.0, 6.0, 5.0]);
    assert_ints(indices, &[2, 1, 1, 2]);
}

#[test]
fn indices_and_masks_select() {
    let x = floats::<2>([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    assert_floats(x.clone().select(0, ints([2, 0])), &[5.0, 6.0, 1.0, 2.0]);
    assert_floats(x.clone().gather(1, ints([[1], [0], [1]])), &[2.0, 3.0, 6.0]);
    let mask: Tensor<Flex, 2, Bool> = x.clone().greater_elem(2.5);
    assert_floats(x.clone().mask_fill(mask.clone(), 0), &[1.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
    assert_ints(mask.argwhere().slice(s![.., 0]), &[1, 1, 2, 2]);
    assert_floats(
        x.scatter(1, ints([[0], [0], [1]]), floats([[1.0], [1.0], [1.0]])),
        &[2.0, 2.0, 4.0, 4.0, 5.0, 7.0],
    );
    assert_ints(ints::<1>([1, 2, 0]).one_hot::<2>(3).sum_dim(0), &[1, 1, 1]);
    assert_floats(Tensor::eye(2, &DEVICE), &[1.0, 0.0, 0.0, 1.0]);
    assert_eq!(
        Tensor::<Flex, 2, Bool>::tril_mask([2, 2], 0, &DEVICE).into_data().to_vec::<u8>(),
        [1, 0, 1, 1]
    );
    assert_ints(Tensor::arange_step(1..8, 3, &DEVICE), &[1, 4, 7]);
}

#[test]
fn remainders_follow_python_and_c() {
    let (a, b) = (floats::<1>([5.0, -5.0, 5.0, 1.0]), floats::<1>([3.0, 3.0, -3.0, f32::INFINITY]));
    assert_floats(a.clone() % b.clone(), &[2.0, -2.0, 2.0, 1.0]);
    assert_floats(a.remainder(b), &[2.0, 1.0, -1.0, 1.0]);
    assert_ints(ints::<1>([-7, 7]).remainder(ints([3, -3])), &[2, -2]);
}

#[test]
fn the_same_seed_gives_the_same_samples() {
    let draw = |device: &Device| {
        Dyn::seed(device, 7);
        let normal = Tensor::<Dyn, 1>::random([100], Distribution::Normal(1.0, 2.0), device);
        let uniform = Tensor::<Dyn, 1>::random([100], Distribution::Uniform(-1.0, 1.0), device);
        [normal.into_data().to_vec::<f32>(), uniform.into_data().to_vec::<f32>()]
    };
    let device = crate::own_device();
    assert_eq!(draw(&device.autodiff()), draw(&device.autodiff()));
    let [normal, uniform] = draw(&device);
    assert!(uniform.iter().all(|x| (-1.0..1.0).contains(x)));
    let mean = normal.iter().sum::<f32>() / 100.0;
    assert!((0.0..2.0).contains(&mean), "mean {mean}");
    let coins = Tensor::<Flex, 1, Bool>::random([1000], Distribution::Bernoulli(0.25), &DEVICE).int().sum();
    assert!((150..350).contains(&coins.into_scalar::<i32>()));
}

#[test]
fn rank_erased_tensors_return_errors() {
    let device = Device::cpu();
    let a = AnyTensor::full(TensorType::new([2, 3], DType::F32), 1.0, &device).unwrap();
    let error = a.clone().matmul(a.clone()).unwrap_err().to_string();
    assert!(error.starts_with("[matmul] inner sizes differ: f32[2, 3] x f32[2, 3]\n  hint:"), "{error}");
    let back = a.clone().try_into_tensor::<Dyn, 2, kiln_tensor::Float>().unwrap();
    assert_eq!(back.dims(), [2, 3]);
    assert!(a.clone().try_into_tensor::<Dyn, 1, kiln_tensor::Float>().is_err());
    assert!(a.slice([kiln_tensor::SliceArg::FULL; 3]).is_err());
}

#[test]
fn an_index_out_of_range_is_an_error_when_read() {
    let result = floats::<1>([1.0, 2.0]).select(0, ints([0, 5])).exp().try_into_data();
    let error = result.unwrap_err().to_string();
    assert!(error.contains("[take]") && error.contains("index 5"), "{error}");
}

#[test]
fn pooling_and_convolution_have_standard_output_sizes() {
    let x = Tensor::<Flex, 4>::ones([1, 2, 7, 7], &DEVICE);
    let mut options = module::PoolOptions::new([2, 2]);
    assert_eq!(module::max_pool2d(x.clone(), &options).dims(), [1, 2, 3, 3]);
    options.ceil_mode = true;
    assert_eq!(module::avg_pool2d(x.clone(), &options, true).into_data().to_vec::<f32>(), [1.0; 32]);
    assert_eq!(module::adaptive_avg_pool2d(x.clone(), [3, 7]).dims(), [1, 2, 3, 7]);
    let weight = Tensor::ones([4, 2, 3, 3], &DEVICE);
    let options = module::ConvOptions::new([2, 2], [1, 1], [1, 1], 1);
    let y = module::conv2d(x.clone(), weight.clone(), Some(Tensor::ones([4], &DEVICE)), &options);
    assert_eq!(y.dims(), [1, 4, 4, 4]);
    assert_eq!(y.clone().slice(s![0, 0, 1, 1]).into_scalar::<f32>(), 19.0);
    let back = module::conv_transpose2d(y, weight, None, &options, [0, 0]);
    assert_eq!(back.dims(), [1, 2, 7, 7]);
}

#[test]
fn tensors_print_like_numpy() {
    let x = floats::<2>([[1.0, 2.5], [-3.0, 4.0]]);
    assert_eq!(x.to_string(), "[[ 1.0,  2.5],\n [-3.0,  4.0]] f32[2, 2], flex");
    assert_eq!(format!("{:.1}", floats::<1>([0.123])), "[0.1] f32[1], flex");
}
