//! Modules with weights in quantized blocks.

use kiln_backends::Flex;
use kiln_nn::attention::RotaryEncodingConfig;
use kiln_nn::transformer::{DecoderBlock, DecoderBlockConfig, DecoderBlockInput};
use kiln_nn::{
    BlockLinear, EmbeddingConfig, GradientsParams, Linear, LinearConfig, Module, ParameterRole, Projection,
    TokenEmbedding,
};
use kiln_tensor::blocks::BlockFormat;
use kiln_tensor::{Autodiff, DType, Distribution, Int, Tensor};

fn random<const D: usize>(shape: [usize; D]) -> Tensor<Flex, D> {
    Tensor::random(shape, Distribution::Normal(0.0, 1.0), &Default::default())
}

fn worst<const D: usize>(a: Tensor<Flex, D>, b: Tensor<Flex, D>) -> f32 {
    (a - b).abs().max().into_scalar()
}

#[test]
fn quantized_layers_are_near_their_float_layers() {
    let linear: Linear<Flex> = LinearConfig::new(256, 12).init(&Default::default());
    let x = random([2, 3, 256]);
    let expected = linear.forward(x.clone());
    for &format in BlockFormat::ALL {
        let quantized = BlockLinear::quantize(&linear, format).unwrap();
        let bound = if format == BlockFormat::Q2_K { 1.2 } else { 0.5 };
        assert!(worst(quantized.forward(x.clone()), expected.clone()) < bound, "{}", format.name());
        assert!(worst(quantized.dequantize().forward(x.clone()), expected.clone()) < bound);
    }
    let vector = random([256]);
    let quantized = BlockLinear::quantize(&linear, BlockFormat::Q8_0).unwrap();
    assert!(worst(quantized.forward(vector.clone()), linear.forward(vector)) < 0.1);
}

#[test]
fn names_and_roles() {
    let block: DecoderBlock<Flex> = DecoderBlockConfig::new(64, 96, 4, 2).init(&Default::default());
    let names = |block: &DecoderBlock<Flex>| -> Vec<String> {
        block.named_parameters().into_iter().map(|(name, _)| name).collect()
    };
    let before = names(&block);
    let block = block.quantize(BlockFormat::Q4_0).unwrap();
    assert_eq!(names(&block), before);
    for (name, parameter) in block.named_parameters() {
        let is_weight = name.ends_with("_proj.weight");
        assert_eq!(is_weight, parameter.value.dtype() == DType::U8, "{name}");
        let role = if is_weight { ParameterRole::Buffer } else { ParameterRole::Trainable };
        assert_eq!(parameter.role, role, "{name}");
    }
    assert!(block.to_string().contains("Q4_0"), "{block}");
    assert_eq!(block.unfreeze().num_trainable_parameters(), 2 * 64);
}

#[test]
fn a_quantized_decoder_block_with_its_cache() {
    let device = Default::default();
    let float: DecoderBlock<Flex> = DecoderBlockConfig::new(64, 96, 4, 2).init(&device);
    let block = float.clone().quantize(BlockFormat::Q8_0).unwrap();
    let rotary = RotaryEncodingConfig::new(64, 16).with_interleaved(false).init::<Flex>(&device);
    let x = random([1, 6, 64]);
    let input = || DecoderBlockInput::new(x.clone()).rotary(rotary.angles(0, 6));
    let whole = block.forward(input());
    assert!(worst(whole.clone(), float.forward(input())) < 0.1);
    let mut cache = block.new_static_cache(1, 16, &device);
    for i in 0..6 {
        let token = x.clone().slice([0..1, i..i + 1]);
        let angles = rotary.angles_after(&cache, 1);
        let y = block.forward_cache(DecoderBlockInput::new(token).rotary(angles), &mut cache);
        assert!(worst(y, whole.clone().slice([0..1, i..i + 1])) < 1e-2);
    }
}

#[test]
fn projections_convert_between_formats() {
    let linear: Linear<Flex> = LinearConfig::new(64, 8).init(&Default::default());
    let x = random([5, 64]);
    let expected = linear.forward(x.clone());
    let projection = Projection::from(linear);
    assert_eq!((projection.format(), projection.d_input(), projection.d_output()), (None, 64, 8));
    let projection = projection.quantize(BlockFormat::Q8_0).unwrap().quantize(BlockFormat::Q5_1).unwrap();
    assert_eq!((projection.d_input(), projection.d_output()), (64, 8));
    assert!(projection.linear().is_none() && projection.bias().is_some());
    assert!(worst(projection.forward(x), expected) < 0.2);
    let error = projection.quantize(BlockFormat::Q4_K).unwrap_err().to_string();
    assert!(error.contains("rows of 64 elements are not whole q4_k blocks of 256"), "{error}");
    assert_eq!(BlockFormat::Q4_K.fitting(64), Some(BlockFormat::Q5_0));
}

#[test]
fn the_gradient_flows_through_blocks() {
    type B = Autodiff<Flex>;
    let device = Default::default();
    let first: Linear<B> = LinearConfig::new(16, 32).init(&device);
    let second = Projection::from(LinearConfig::new(32, 4).init::<B>(&device));
    let model = (first, second.quantize(BlockFormat::Q8_0).unwrap());
    let x = Tensor::<B, 2>::ones([3, 16], &device);
    let gradients = model.1.forward(model.0.forward(x)).sum().backward();
    let gradients = GradientsParams::from_grads(gradients, &model);
    assert_eq!(gradients.len(), 3, "weight and bias of the first layer, bias of the second");
}

#[test]
fn token_embeddings_look_up_and_project() {
    let device = Default::default();
    let float = EmbeddingConfig::new(20, 64).init::<Flex>(&device);
    let embedding = TokenEmbedding::from(float.clone()).quantize(BlockFormat::Q8_0).unwrap();
    assert_eq!((embedding.n_embedding(), embedding.d_model()), (20, 64));
    let ids = Tensor::<Flex, 2, Int>::from_data([[3, 19], [0, 3]], &device);
    let x = embedding.forward(ids.clone());
    assert!(worst(x.clone(), float.forward(ids)) < 0.05);
    let logits = TokenEmbedding::from(float).project(x.clone());
    assert!(worst(embedding.project(x.clone()), logits) < 0.7);
    assert_eq!(embedding.project(x).argmax(2).into_data().to_vec::<i64>(), [3, 19, 0, 3]);
}
