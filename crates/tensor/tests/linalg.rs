//! Edge cases of vector and matrix products and norms.

mod halves;

use kiln_backends::{Device, Flex};
use kiln_tensor::linalg::{self, Norm};
use kiln_tensor::{AnyTensor, Autodiff, DType, Shape, Tensor, TensorData, TensorType};

type B = Autodiff<Flex>;

fn any(data: impl Into<TensorData>) -> AnyTensor {
    AnyTensor::from_data(data, &Device::cpu())
}

fn zeros(shape: &[usize]) -> AnyTensor {
    AnyTensor::zeros(TensorType::new(Shape::new(shape), DType::F32), &Device::cpu()).unwrap()
}

fn numbers(x: AnyTensor) -> Vec<f32> {
    x.into_data().unwrap().to_vec()
}

#[test]
fn matmul_of_vectors() {
    let (v, m) = (any([1.0f32, 2.0]), any([[1.0f32, 2.0], [3.0, 4.0]]));
    let dot = v.clone().matmul(v.clone()).unwrap();
    assert_eq!((dot.rank(), numbers(dot)), (0, vec![5.0]));
    assert_eq!(numbers(v.clone().matmul(m.clone()).unwrap()), [7.0, 10.0]);
    assert_eq!(numbers(m.matmul(v).unwrap()), [5.0, 11.0]);
    assert_eq!(zeros(&[3]).matmul(zeros(&[4, 3, 2])).unwrap().shape().to_vec(), [4, 2]);
    assert_eq!(zeros(&[5, 4, 3]).matmul(zeros(&[3])).unwrap().shape().to_vec(), [5, 4]);
    let error = zeros(&[3]).matmul(zeros(&[2, 3])).unwrap_err().to_string();
    assert!(error.starts_with("[matmul] inner sizes differ: f32[3] x f32[2, 3]"), "{error}");
    assert!(zeros(&[]).matmul(zeros(&[3])).is_err());
}

#[test]
fn norms_of_empty_and_zero_vectors() {
    let norm = |x: AnyTensor, norm: Norm| x.vector_norm(norm, -1);
    for order in [Norm::L0, Norm::L1, Norm::L2, Norm::Lp(3.0)] {
        assert_eq!(numbers(norm(zeros(&[2, 0]), order).unwrap()), [0.0, 0.0], "{order:?}");
    }
    let error = norm(zeros(&[2, 0]), Norm::MaxAbs).unwrap_err().to_string();
    assert!(error.starts_with("[vector_norm] no elements have no extreme: f32[2, 0]"), "{error}");
    assert_eq!(numbers(norm(any([0.0f32, 0.0]), Norm::Lp(-1.0)).unwrap()), [0.0]);
    assert_eq!(numbers(norm(any([2.0f32, 2.0]), Norm::Lp(-1.0)).unwrap()), [1.0]);
}

#[test]
fn norms_of_infinities_and_nan() {
    let x = || any([f32::INFINITY, -1.0]);
    for order in [1.0, 2.0, 3.0, f64::INFINITY] {
        assert_eq!(numbers(x().vector_norm(order, 0).unwrap()), [f32::INFINITY], "{order}");
    }
    assert_eq!(numbers(x().vector_norm(f64::NEG_INFINITY, 0).unwrap()), [1.0]);
    for order in [1.0, 2.0, 3.0, f64::INFINITY, f64::NEG_INFINITY] {
        let found = any([f32::NAN, 1.0]).vector_norm(order, 0).unwrap();
        assert!(numbers(found)[0].is_nan(), "{order}");
    }
}

#[test]
fn gradients_of_norms_are_finite_at_zero() {
    for order in [Norm::L1, Norm::L2, Norm::Lp(1.5), Norm::Lp(3.0), Norm::MaxAbs] {
        let x: Tensor<B, 1> = Tensor::zeros([3], &Default::default()).require_grad();
        let gradients = linalg::vector_norm(x.clone(), order, 0).sum().backward();
        assert_eq!(x.grad(&gradients).unwrap().into_data().to_vec::<f32>(), [0.0; 3], "{order:?}");
    }
}

#[test]
fn cosine_similarity_of_zero_vectors_is_zero() {
    let x: Tensor<B, 2> = Tensor::zeros([1, 3], &Default::default()).require_grad();
    let y: Tensor<B, 2> = Tensor::ones([1, 3], &Default::default());
    let cosine = linalg::cosine_similarity(x.clone(), y, -1, None);
    assert_eq!(cosine.clone().into_data().to_vec::<f32>(), [0.0]);
    let gradient = x.grad(&cosine.sum().backward()).unwrap().into_data().to_vec::<f32>();
    assert!(gradient.iter().all(|x| x.is_finite()));
}

/// The values are those of `torch.nn.functional.cosine_similarity`, which broadcasts before it computes norms.
#[test]
fn cosine_similarity_of_a_broadcast_vector_is_at_most_one() {
    let x: Tensor<B, 2> = Tensor::from([[2.0], [-0.5]]).require_grad();
    let y: Tensor<B, 2> = Tensor::from([[1.0, 1.0, 1.0], [1.0, 2.0, -4.0]]).require_grad();
    let expected = [1.0, 0.125_988_16];
    for cosine in [
        linalg::cosine_similarity(x.clone(), y.clone(), 1, None),
        linalg::cosine_similarity(y.clone(), x.clone(), -1, None),
    ] {
        assert_eq!(cosine.dims(), [2, 1]);
        for (found, expected) in cosine.into_data().to_vec::<f64>().into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found} {expected}");
        }
    }
    let gradients = linalg::cosine_similarity(x.clone(), y, 1, None).sum().backward();
    // The length of the vector of equal elements does not matter.
    let gradient = x.grad(&gradients).unwrap().into_data().to_vec::<f64>();
    assert!(gradient.iter().all(|x| x.abs() < 1e-6), "{gradient:?}");
}

#[test]
fn errors_of_invalid_calls() {
    let table = [
        (zeros(&[2, 3]).outer(zeros(&[3])), "[outer] needs two tensors of one axis: f32[2, 3] x f32[3]"),
        (zeros(&[2]).dot(zeros(&[3])), "[dot] lengths differ: f32[2] x f32[3]"),
        (
            zeros(&[2, 3]).tensordot(zeros(&[2, 3]), 1),
            "[tensordot] axis 1 of the left and axis 0 of the right differ in length: f32[2, 3] x f32[2, 3]\n  \
             hint: axes that are summed over pair up in order and have equal lengths",
        ),
        (
            zeros(&[2, 3]).tensordot(zeros(&[2, 3]), ([0, 1], [0])),
            "[tensordot] 2 axes of the left, 1 of the right: f32[2, 3] x f32[2, 3]\n  \
             hint: axes that are summed over pair up in order and have equal lengths",
        ),
        (
            zeros(&[2, 4]).cross(zeros(&[2, 4]), 1),
            "[cross] axis 1 must have length 3 in both: f32[2, 4] x f32[2, 4]\n  \
             hint: cross products are of vectors in three dimensions",
        ),
        (zeros(&[3]).trace(), "[trace] needs at least 2 axes: f32[3]"),
        (
            zeros(&[3]).matvec(zeros(&[3])),
            "[matvec] needs a matrix and a vector: f32[3] x f32[3]\n  hint: the matrix comes first: `[.., m, n] x [.., n]`",
        ),
    ];
    for (result, expected) in table {
        let message = result.unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn kron_of_many_dims() {
    let ones =
        |axes: usize| AnyTensor::ones(TensorType::new(vec![1; axes], DType::F32), &Device::cpu()).unwrap();
    assert_eq!(ones(12).kron(ones(12)).unwrap().rank(), 12);
    assert_eq!(zeros(&[2, 0]).kron(zeros(&[3, 2])).unwrap().shape().to_vec(), [6, 0]);
}

/// The example of <https://docs.pytorch.org/docs/stable/generated/torch.renorm.html>.
#[test]
fn renorm_matches_pytorch() {
    let device = Default::default();
    let x = Tensor::<Flex, 2>::from_floats([[1.0f32; 3], [2.0; 3], [3.0; 3]], &device);
    let y = linalg::renorm(x, 1.0, 0, 5.0);
    let wanted = Tensor::from_floats([[1.0f32; 3], [5.0 / 3.0; 3], [5.0 / 3.0; 3]], &device);
    assert!(y.all_close(wanted, None, Some(1e-6)));
}

#[test]
fn addmm_with_beta_zero_ignores_nan() {
    let device = Default::default();
    let nan = Tensor::<Flex, 2>::full([2, 2], f32::NAN, &device);
    let a = Tensor::<Flex, 2>::ones([2, 2], &device);
    assert_eq!(linalg::addmm(nan, a.clone(), a, 0, 1).into_data().to_vec::<f32>(), [2.0; 4]);
}

#[test]
fn errors_of_addmm_and_addbmm_name_their_operands() {
    let device = Device::flex();
    let any = |shape: &[usize]| AnyTensor::zeros(TensorType::new(shape, DType::F32), &device).unwrap();
    let error = any(&[3, 3]).addmm(any(&[2, 3]), any(&[3, 4]), 1, 1).unwrap_err().to_string();
    assert!(error.contains("[addmm]") && error.contains("f32[3, 3]"), "{error}");
    let error = any(&[2, 2]).addbmm(any(&[2, 2, 2]), any(&[3, 2, 2]), 1, 1).unwrap_err().to_string();
    assert!(error.contains("[addbmm]") && error.contains("batches"), "{error}");
    let error = any(&[2, 2]).renorm(0.0, 0, 1.0).unwrap_err().to_string();
    assert!(error.contains("[renorm]"), "{error}");
}
