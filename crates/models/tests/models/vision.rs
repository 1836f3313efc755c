//! Image classifiers and the preprocessing of images.

use kiln_models::{
    EfficientNetLiteConfig, ImagePreprocessor, Interpolation, ResNet, ResNetBlockKind, ResNetConfig, cast,
};
use kiln_nn::Module;
use kiln_tensor::{DType, Tensor};

use crate::models::B;
use crate::models::fixture::{assert_close, expected, folder};

fn check(name: &str, config: &ResNetConfig) {
    let (path, expected) = (folder(name).join("model.safetensors"), expected(name));
    let model: ResNet<B> = ResNet::from_pretrained(config, path, &Default::default()).unwrap();
    let logits = cast(model, DType::F32).forward(expected.floats("images"));
    assert_close(logits, expected.floats("logits"), 1e-4);
}

#[test]
fn resnets_have_the_logits_of_pytorch() {
    let config =
        |block, layers, width| ResNetConfig::new(block, layers).with_width(width).with_num_classes(5);
    check("resnet_basic", &config(ResNetBlockKind::Basic, [1, 2, 1, 1], 2));
    check("resnet_bottleneck", &config(ResNetBlockKind::Bottleneck, [1, 1, 1, 1], 1).with_widen(2));
}

/// The numbers of parameters of the published models.
#[test]
fn numbers_of_parameters() {
    let device = Default::default();
    let resnet = |config: ResNetConfig| config.init::<B>(&device).num_parameters();
    assert_eq!(resnet(ResNetConfig::resnet18()), 11_689_512);
    assert_eq!(resnet(ResNetConfig::resnet50()), 25_557_032);
    let lite = |config: EfficientNetLiteConfig| config.init::<B>(&device).num_parameters();
    assert_eq!(lite(EfficientNetLiteConfig::lite0()), 4_652_008);
    assert_eq!(lite(EfficientNetLiteConfig::lite1()), 5_416_680);
    assert_eq!(lite(EfficientNetLiteConfig::lite2()), 6_092_072);
    assert_eq!(lite(EfficientNetLiteConfig::lite3()), 8_197_096);
    assert_eq!(lite(EfficientNetLiteConfig::lite4()), 13_006_568);
}

/// Pillow computes in fixed point: a pixel may differ by 1.
#[test]
fn preprocessing_is_that_of_pillow() {
    let expected = expected("preprocessing");
    let data = expected.data("pixels");
    let dims = data.shape().to_vec();
    let pixels = data.to_vec::<u8>();
    let cases = [
        (Interpolation::Bilinear, "bilinear", 20, 16),
        (Interpolation::Bicubic, "bicubic", 20, 15),
        (Interpolation::Bicubic, "bicubic", 48, 31),
    ];
    for (interpolation, name, resize, crop) in cases {
        let preprocessor = ImagePreprocessor { resize, crop, interpolation, mean: [0.0; 3], std: [1.0; 3] };
        let image =
            preprocessor.forward_pixels::<B>(&pixels, [dims[0], dims[1]], &Default::default()).unwrap();
        let expected: Tensor<B, 3> = expected.floats(&format!("{name}_{resize}_{crop}"));
        let expected = expected.permute([2, 0, 1]).unsqueeze::<4>();
        let differing = (image.clone() - expected.clone()).abs().greater_elem(0.5).float().mean();
        assert!(differing.into_scalar::<f32>() < 0.01);
        assert_close(image, expected, 1.0);
    }
}

#[test]
fn pixels_of_the_wrong_length_are_refused() {
    let preprocessor = ResNetConfig::resnet18().preprocessor();
    let prepare = |length, sides| {
        preprocessor.forward_pixels::<B>(&vec![0; length], sides, &Default::default()).unwrap_err()
    };
    assert!(prepare(11, [2, 2]).to_string().contains("11 values"));
    assert!(prepare(0, [0, 2]).to_string().contains("at least 1"));
    assert!(prepare(1, [usize::MAX, 2]).to_string().contains("1 values"));
}
