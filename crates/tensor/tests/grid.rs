//! Edge cases of grids and sampling.

use kiln_backends::{Device, Flex};
use kiln_tensor::grid::{self, GridPadding, GridSampleMode, GridSampleOptions, Indexing};
use kiln_tensor::{AnyTensor, Autodiff, DType, Int, Tensor, TensorType};

fn options(mode: GridSampleMode, padding: GridPadding) -> GridSampleOptions {
    GridSampleOptions { mode, padding, align_corners: false }
}

fn sampled(x: f32, y: f32, options: GridSampleOptions) -> f32 {
    let picture = Tensor::<Flex, 4>::from_floats([[[[1.0f32, 2.0], [3.0, 4.0]]]], &Default::default());
    let point = Tensor::<Flex, 4>::from_floats([[[[x, y]]]], &Default::default());
    picture.grid_sample_2d(point, options).into_data().to_vec::<f32>()[0]
}

#[test]
fn points_outside_the_image_and_nan() {
    use GridPadding::{Border, Reflection, Zeros};
    use GridSampleMode::{Bicubic, Bilinear, Nearest};
    for mode in [Bilinear, Nearest, Bicubic] {
        assert_eq!(sampled(9.0, -9.0, options(mode, Zeros)), 0.0, "{mode:?}");
        assert_eq!(sampled(f32::INFINITY, 0.0, options(mode, Zeros)), 0.0, "{mode:?}");
        assert_eq!(sampled(9.0, -9.0, options(mode, Border)), 2.0, "{mode:?}");
        let (nan, corner) =
            (sampled(f32::NAN, f32::NAN, options(mode, Zeros)), sampled(-1.0, -1.0, options(mode, Zeros)));
        assert_eq!(nan, corner, "NaN reads as -1, {mode:?}");
    }
    // At 1.5 the middle of the mirror image of the right half.
    assert_eq!(
        sampled(1.5, -0.5, options(Bilinear, Reflection)),
        sampled(0.5, -0.5, options(Bilinear, Reflection))
    );
    assert_eq!(sampled(0.0, -0.5, options(Nearest, Zeros)), 1.0, "halfway to the even index");
}

#[test]
fn gradients_of_points_outside_are_finite() {
    type B = Autodiff<Flex>;
    let picture: Tensor<B, 4> = Tensor::ones([1, 1, 2, 2], &Default::default()).require_grad();
    let points: Tensor<B, 4> =
        Tensor::from_floats([[[[f32::INFINITY, 0.0], [f32::NAN, 0.5], [9.0, 9.0]]]], &Default::default())
            .require_grad();
    let gradients =
        picture.clone().grid_sample_2d(points.clone(), GridSampleOptions::default()).sum().backward();
    let finite = |x: Vec<f32>| x.iter().all(|x| x.is_finite());
    assert!(finite(picture.grad(&gradients).unwrap().into_data().to_vec()));
    assert!(finite(points.grad(&gradients).unwrap().into_data().to_vec()));
}

#[test]
fn f16_samples_are_computed_in_f32() {
    let ty = TensorType::new([1, 1, 1, 4096], DType::F16);
    let device = Device::cpu();
    let ramp = AnyTensor::iota(ty.with_dtype(DType::F32), 3, &device).unwrap().cast(DType::F16).unwrap();
    let centre = AnyTensor::zeros(TensorType::new([1, 1, 1, 2], DType::F16), &device).unwrap();
    let value = ramp.grid_sample_2d(centre, GridSampleOptions::default()).unwrap();
    assert_eq!(value.dtype(), DType::F16);
    assert_eq!(value.cast(DType::F32).unwrap().into_data().unwrap().to_vec::<f32>(), [2048.0]);
}

#[test]
fn errors_of_invalid_calls() {
    let zeros =
        |shape: &[usize]| AnyTensor::zeros(TensorType::new(shape, DType::F32), &Device::cpu()).unwrap();
    let sample = |x: &[usize], grid: &[usize]| {
        let result = zeros(x).grid_sample_2d(zeros(grid), GridSampleOptions::default());
        result.unwrap_err().to_string()
    };
    assert_eq!(
        sample(&[1, 1, 2, 2], &[2, 1, 1, 2]),
        "[grid_sample_2d] batch sizes differ: f32[1, 1, 2, 2] x f32[2, 1, 1, 2]"
    );
    assert_eq!(
        sample(&[1, 1, 0, 2], &[1, 1, 1, 2]),
        "[grid_sample_2d] the input has no elements to sample: f32[1, 1, 0, 2] x f32[1, 1, 1, 2]"
    );
    assert!(sample(&[1, 1, 2, 2], &[1, 1, 1, 3]).contains("the last of the grid of length 2"));
    let cubic = options(GridSampleMode::Bicubic, GridPadding::Zeros);
    let error = zeros(&[1, 1, 2, 2, 2]).grid_sample_3d(zeros(&[1, 1, 1, 1, 3]), cubic).unwrap_err();
    assert!(error.to_string().starts_with("[grid_sample_3d] bicubic sampling is for pictures"), "{error}");
    let error = zeros(&[2, 2]).affine_grid_2d([2, 2], false).unwrap_err();
    assert!(
        error.to_string().starts_with("[affine_grid_2d] needs floats of shape [batch, 2, 3]: f32[2, 2]"),
        "{error}"
    );
    assert!(AnyTensor::meshgrid(Vec::new(), Indexing::Matrix).is_err());
}

#[test]
fn empty_combinations_and_grids() {
    let range = |n: i64| Tensor::<Flex, 1, Int>::arange(0..n, &Default::default());
    assert_eq!(grid::combinations(range(2), 3, false).dims(), [0, 3]);
    assert_eq!(grid::combinations(range(2), 3, true).dims(), [4, 3]);
    assert_eq!(grid::combinations(range(0), 2, true).dims(), [0, 2]);
    assert_eq!(grid::cartesian_prod([range(3), range(0)]).dims(), [0, 2]);
    assert_eq!(grid::cartesian_prod([range(3)]).dims(), [3, 1]);
    let [a] = grid::meshgrid([range(3)], Indexing::Cartesian);
    assert_eq!(a.dims(), [3]);
    let empty: Tensor<Flex, 4> = Tensor::ones([1, 1, 2, 2], &Default::default());
    let none =
        empty.grid_sample_2d(Tensor::ones([1, 0, 3, 2], &Default::default()), GridSampleOptions::default());
    assert_eq!(none.dims(), [1, 1, 0, 3]);
}
