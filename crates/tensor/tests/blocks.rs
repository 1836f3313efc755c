//! Quantized blocks: quantisation, products, rows, gradients, batches and errors.

use kiln_backends::{Cpu, Device, Flex};
use kiln_tensor::blocks::{BlockFormat, BlockTensor};
use kiln_tensor::transform::vmap;
use kiln_tensor::{AnyTensor, Autodiff, DType, Distribution, Int, Tensor, TensorData, Vmap};

fn random<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
}

fn worst<const D: usize>(a: Tensor<Flex, D>, b: Tensor<Flex, D>) -> f32 {
    (a - b).abs().max().into_scalar()
}

/// The bytes decoded on the host.
fn decoded(q: &BlockTensor<Flex>) -> Vec<f32> {
    let bytes = q.blocks.to_data().to_vec::<u8>();
    let mut values = vec![0.0; q.rows() * q.columns()];
    q.format.decode(&bytes, &mut values);
    values
}

#[test]
fn all_formats_dequantise_and_multiply() {
    for &format in BlockFormat::ALL {
        let weight = random([5, 512]);
        let q = BlockTensor::quantize(weight, format);
        assert_eq!((q.rows(), q.columns()), (5, 512));
        let dequantized = q.clone().dequantize();
        let expected =
            Tensor::from_data(TensorData::new(decoded(&q), [5, 512]).unwrap(), &Default::default());
        assert!(worst(dequantized.clone(), expected) < 1e-5, "{}", format.name());
        let x = random([3, 512]);
        let y = q.linear(x.clone());
        // 8 bits of `x`: the standard deviation of the error of a sum is below 0.01 √512.
        assert!(worst(y, x.matmul(dequantized.transpose())) < 1.4, "{}", format.name());
    }
}

#[test]
fn products_of_any_rank() {
    let q = BlockTensor::quantize(random([7, 64]), BlockFormat::Q8_0);
    let x = random([2, 3, 64]);
    let all = q.linear(x.clone());
    assert_eq!(all.dims(), [2, 3, 7]);
    let rows = q.linear(x.clone().reshape([6, 64]));
    assert!(worst(all.reshape([6, 7]), rows.clone()) < 1e-3);
    let one = q.linear(x.reshape([6, 64]).narrow(0, 0, 1).reshape([64]));
    assert!(worst(one, rows.narrow(0, 0, 1).reshape([7])) < 1e-3);
    assert_eq!(q.linear(Tensor::<Flex, 2>::zeros([0, 64], &Default::default())).dims(), [0, 7]);
}

#[test]
fn rows_are_those_of_the_dequantised_matrix() {
    for format in [BlockFormat::Q4_0, BlockFormat::Q6_K] {
        let q = BlockTensor::quantize(random([9, 256]), format);
        let ids = Tensor::<Flex, 1, Int>::from_data([8, 0, 8], &Default::default());
        let rows = q.clone().select(ids.clone());
        assert_eq!(worst(rows, q.dequantize().select(0, ids)), 0.0);
    }
    let q = BlockTensor::quantize(random([9, 32]), BlockFormat::Q4_0);
    let outside = q.select(Tensor::from_data([9], &Default::default()));
    assert!(outside.try_into_data().is_err());
}

#[test]
fn the_gradient_flows_to_x() {
    type B = Autodiff<Flex>;
    let device = Default::default();
    let weight = Tensor::<B, 2>::random([4, 32], Distribution::Normal(0.0, 1.0), &device);
    let q = BlockTensor::quantize(weight, BlockFormat::Q5_1);
    let x = Tensor::<B, 2>::ones([3, 32], &device).require_grad();
    let g = Tensor::<B, 2>::random([3, 4], Distribution::Normal(0.0, 1.0), &device);
    let gradients = (q.linear(x.clone()) * g.clone()).sum().backward();
    let expected = g.matmul(q.dequantize()).inner();
    assert!(worst(x.grad(&gradients).unwrap(), expected) < 1e-4);
}

#[test]
fn batches_of_x_and_of_blocks() {
    type B = Vmap<Flex>;
    let format = BlockFormat::Q4_1;
    let weights: Vec<BlockTensor<Flex>> =
        (0..3).map(|_| BlockTensor::quantize(random([5, 32]), format)).collect();
    let blocks = Tensor::stack::<3>(weights.iter().map(|q| q.blocks.clone()).collect::<Vec<_>>(), 0);
    let x = random([3, 2, 32]);
    let example = |(x, blocks): (Tensor<B, 2>, Tensor<B, 2, Int>)| BlockTensor::new(blocks, format).linear(x);
    let y: Tensor<Flex, 3> = vmap(example)((x.clone(), blocks));
    for (i, q) in weights.iter().enumerate() {
        let one = x.clone().narrow(0, i, 1).reshape([2, 32]);
        let expected = one.matmul(q.clone().dequantize().transpose());
        assert!(worst(y.clone().narrow(0, i, 1).reshape([2, 5]), expected) < 0.4);
    }
}

#[test]
fn other_dtypes_and_engines() {
    let q = BlockTensor::quantize(random([5, 64]), BlockFormat::Q8_0);
    let (bytes, x) = (q.blocks.to_data(), random([2, 64]));
    let expected = x.clone().matmul(q.dequantize().transpose()).into_data().to_vec::<f32>();
    for device in [Device::flex(), Device::cpu()] {
        for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
            let x = AnyTensor::from_data(x.to_data().convert(dtype), &device);
            let weight = AnyTensor::from_data(bytes.clone(), &device);
            let y = x.matmul_blocks(weight, BlockFormat::Q8_0).unwrap();
            assert_eq!(y.dtype(), dtype);
            let y = y.into_data_dtype(DType::F32).unwrap().to_vec::<f32>();
            assert!(y.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 0.5), "{dtype}: {y:?} {expected:?}");
        }
    }
}

#[test]
fn errors_name_the_format_and_the_bytes() {
    let device = Device::flex();
    let x = || AnyTensor::from_data(TensorData::from([[0.0f32; 40]]), &device);
    let error = x().quantize_blocks(BlockFormat::Q4_0).unwrap_err().to_string();
    assert!(error.contains("rows of 40 elements are not whole q4_0 blocks of 32"), "{error}");
    let bytes = AnyTensor::from_data(TensorData::from([[0u8; 19]]), &device);
    let error = bytes.clone().dequantize_blocks(BlockFormat::Q4_0, DType::F32).unwrap_err().to_string();
    assert!(error.contains("19 bytes is not a whole number of q4_0 blocks of 18 bytes"), "{error}");
    let error = x().dequantize_blocks(BlockFormat::Q4_0, DType::F32).unwrap_err().to_string();
    assert!(error.contains("needs the bytes of q4_0 blocks in u8, not f32"), "{error}");
    let weight = AnyTensor::from_data(TensorData::from([[0u8; 18]]), &device);
    let error = x().matmul_blocks(weight, BlockFormat::Q4_0).unwrap_err().to_string();
    assert!(error.contains("rows of x have 40 elements, rows of blocks 32"), "{error}");
}

#[test]
fn fused_and_immediate_engines_agree() {
    let device = Default::default();
    for &format in BlockFormat::ALL {
        let q = BlockTensor::quantize(random([3, 256]), format);
        let blocks = Tensor::<Cpu, 2, Int>::from_data_dtype(q.blocks.to_data(), DType::U8, &device);
        let fused = BlockTensor::new(blocks, format).dequantize().into_data().to_vec::<f32>();
        let expected = decoded(&q);
        assert!(fused.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-5), "{}", format.name());
    }
}
