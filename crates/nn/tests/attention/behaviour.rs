//! Options, masks, modes, errors, and attention modules in other modules.

use super::B;
use super::{assert_near, message, random};
use kiln_backends::Flex;
use kiln_nn::attention::{
    CrossAttentionConfig, GroupedQueryAttentionConfig, MhaInput, MultiHeadAttention,
    MultiHeadAttentionConfig, PositionalEncodingConfig, SeqLengthOption, generate_padding_mask,
    sliding_window_mask,
};
use kiln_nn::transformer::{
    DecoderBlockConfig, PositionWiseFeedForwardConfig, TransformerConfig, TransformerEncoderConfig,
    TransformerEncoderInput,
};
use kiln_nn::{
    AutodiffModule, BoxedModule, Config, ForwardModule, LinearConfig, Module, NamedTensors, Param,
    trainable_parameters, with_parameters,
};
use kiln_tensor::transform::grad;
use kiln_tensor::{Autodiff, Bool, Tensor};

fn attention(config: MultiHeadAttentionConfig) -> MultiHeadAttention<Flex> {
    config.init(&Default::default())
}

fn names(module: &impl Module) -> Vec<String> {
    module.named_parameters().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn grouped_queries_equal_repeated_heads() {
    let grouped = attention(MultiHeadAttentionConfig::new(8, 4).with_n_kv_heads(Some(2)));
    assert_eq!(names(&grouped)[..3], ["q_proj_weight", "k_proj_weight", "v_proj_weight"]);
    let whole = attention(MultiHeadAttentionConfig::new(8, 4));
    // `[2 heads * 2, 8]` becomes `[4 heads * 2, 8]`.
    let repeated = |weight: &Option<Param<Tensor<Flex, 2>>>| {
        let weight = weight.as_ref().unwrap().val().reshape([2, 1, 2, 8]);
        weight.expand([2, 2, 2, 8]).reshape([8, 8])
    };
    let packed = Tensor::cat(
        vec![
            grouped.q_proj_weight.as_ref().unwrap().val(),
            repeated(&grouped.k_proj_weight),
            repeated(&grouped.v_proj_weight),
        ],
        0,
    );
    let whole = MultiHeadAttention {
        in_proj_weight: Some(Param::from_tensor(packed)),
        out_proj: grouped.out_proj.clone(),
        ..whole
    };
    let x = random([2, 5, 8]);
    let input = || MhaInput::self_attn(x.clone()).causal();
    assert_near(grouped.forward(input()).context, whole.forward(input()).context);
    let (a, b) = (grouped.forward(input().need_weights()), whole.forward(input().need_weights()));
    assert_near(a.context, b.context);
    assert_near(a.weights.unwrap(), b.weights.unwrap());
}

#[test]
fn quiet_softmax_equals_a_key_of_zeros() {
    let quiet = attention(MultiHeadAttentionConfig::new(8, 2).with_quiet_softmax(true));
    let zero = MultiHeadAttention { quiet_softmax: false, add_zero_attn: true, ..quiet.clone() };
    let x = random([2, 4, 8]);
    let input = || MhaInput::self_attn(x.clone()).causal();
    assert_near(quiet.forward(input()).context, zero.forward(input()).context);
}

#[test]
fn a_query_without_visible_keys_returns_the_bias() {
    let mut layer = attention(MultiHeadAttentionConfig::new(8, 2));
    layer.out_proj = LinearConfig::new(8, 8).init(&Default::default());
    let hidden = Tensor::<Flex, 2, Bool>::from_bools([[true, true], [false, false]], &Default::default());
    let input = || MhaInput::self_attn(random([2, 2, 8])).mask_pad(hidden.clone());
    for input in
        [input(), input().need_weights(), input().attn_bias(Tensor::zeros([1, 1, 2, 2], &Default::default()))]
    {
        let y = layer.forward(input).context.narrow(0, 0, 1);
        assert_near(y, layer.out_proj.bias.as_ref().unwrap().val().expand([1, 2, 8]));
    }
}

#[test]
fn scale_replaces_the_default() {
    let layer = attention(MultiHeadAttentionConfig::new(8, 2));
    let same = MultiHeadAttention { scale: Some(0.5), ..layer.clone() };
    let x = random([1, 3, 8]);
    assert_near(same.forward(x.clone()).context, layer.forward(x.clone()).context);
    let input = MhaInput::self_attn(x.clone()).need_weights();
    let flat = MultiHeadAttention { scale: Some(0.0), ..layer }.forward(input).weights.unwrap();
    assert_near(flat, Tensor::full([1, 2, 3, 3], 1.0 / 3.0, &Default::default()));
}

#[test]
fn cross_attention_is_multi_head_attention_of_another_width() {
    let device = Default::default();
    let cross = CrossAttentionConfig::new(8, 6, 4, 2, 2).init::<Flex>(&device);
    assert_eq!(names(&cross)[..2], ["query.weight", "query.bias"]);
    let config = MultiHeadAttentionConfig::new(8, 4).with_n_kv_heads(Some(2));
    let layer = attention(config.with_kdim(Some(6)).with_vdim(Some(6)));
    let biases = [&cross.query, &cross.key, &cross.value].map(|linear| linear.bias.as_ref().unwrap().val());
    let layer = MultiHeadAttention {
        q_proj_weight: Some(cross.query.weight.clone()),
        k_proj_weight: Some(cross.key.weight.clone()),
        v_proj_weight: Some(cross.value.weight.clone()),
        in_proj_bias: Some(Param::from_tensor(Tensor::cat(biases.into(), 0))),
        out_proj: cross.output.clone(),
        ..layer
    };
    let (x, context) = (random([2, 3, 8]), random([2, 4, 6]));
    let mask = [[false, true, false, true], [false, false, false, true]];
    let mask = Tensor::<Flex, 2, Bool>::from_bools(mask, &device);
    let expected =
        layer.forward(MhaInput::cross_attn(x.clone(), context.clone()).mask_pad(mask.clone())).context;
    assert_near(cross.forward(x.clone(), context.clone(), Some(mask.clone())), expected.clone());
    let mut cache = kiln_nn::cache::MhaCache::autoregressive_cross_attention();
    assert_near(cross.forward_cache(x, context, Some(mask), &mut cache), expected);
}

#[test]
fn a_window_is_its_mask() {
    let device = Default::default();
    let layer = GroupedQueryAttentionConfig::new(8, 2, 1).init::<Flex>(&device);
    let x = random([1, 6, 8]);
    let mask = sliding_window_mask(6, 6, 2, &device);
    let expected = layer.forward(MhaInput::self_attn(x.clone()).mask_attn(mask)).context;
    let layer = kiln_nn::attention::GroupedQueryAttention { sliding_window: Some(2), ..layer };
    assert_near(ForwardModule::forward(&layer, x), expected);
}

#[test]
fn padding_masks_pad_and_truncate() {
    let padded = |option: SeqLengthOption| {
        generate_padding_mask::<Flex>(9, vec![vec![1, 2, 3], vec![4]], option, &Default::default())
    };
    let longest = padded(SeqLengthOption::NoMax);
    assert_eq!(longest.tensor.into_data().to_vec::<i32>(), [1, 2, 3, 4, 9, 9]);
    assert_eq!(longest.mask.into_data().to_vec::<bool>(), [false, false, false, false, true, true]);
    assert_eq!(padded(SeqLengthOption::Max(2)).tensor.into_data().to_vec::<i32>(), [1, 2, 4, 9]);
    assert_eq!(padded(SeqLengthOption::Max(5)).tensor.dims(), [2, 3]);
    assert_eq!(
        padded(SeqLengthOption::Fixed(4)).tensor.into_data().to_vec::<i32>(),
        [1, 2, 3, 9, 4, 9, 9, 9]
    );
}

#[test]
fn dropout_follows_the_mode() {
    let device = Default::default();
    let layer = MultiHeadAttentionConfig::new(8, 2).with_dropout(0.5).init::<B>(&device);
    let x = Tensor::<B, 3>::from_inner(random([2, 6, 8]));
    let run = |layer: &MultiHeadAttention<B>| layer.forward(x.clone()).context.inner();
    let difference = |a: Tensor<Flex, 3>, b: Tensor<Flex, 3>| (a - b).abs().max().into_scalar::<f32>();
    assert!(difference(run(&layer), run(&layer)) > 0.0);
    let calm = layer.clone().eval();
    assert_eq!(difference(run(&calm), run(&calm)), 0.0);
    let valid = layer.valid();
    assert_near(valid.forward(x.clone().inner()).context, run(&calm));
    let random = valid.train();
    let again = || random.forward(x.clone().inner()).context;
    assert!(difference(again(), again()) > 0.0);
    // Weights are those before dropout.
    let weights = layer.forward(MhaInput::self_attn(x.clone()).need_weights()).weights.unwrap();
    let sums = weights.sum_dim(3).inner();
    assert_near(sums.clone(), sums.ones_like());
}

#[test]
fn models_differentiate_and_validate() {
    let device = Default::default();
    let config = TransformerEncoderConfig::new(8, 12, 2, 2).with_final_norm(true);
    let encoder = config.init::<B>(&device);
    let x = Tensor::<B, 3>::from_inner(random([2, 4, 8]));
    let gradients = encoder.forward(x.clone()).square().sum().backward();
    for (name, parameter) in encoder.named_parameters() {
        assert!(gradients.get(&parameter.value).is_some(), "no gradient of {name}");
    }
    let y = encoder.clone().eval().forward(x.clone()).inner();
    assert_near(encoder.valid().forward(x.inner()), y);
    assert!(encoder.to_string().contains("self_attn"), "{encoder}");
}

#[test]
fn modules_are_functions_of_their_parameters() {
    let device = Default::default();
    let encoding = PositionalEncodingConfig::new(8).with_max_sequence_size(4).init::<Flex>(&device);
    let model = (encoding, DecoderBlockConfig::new(8, 8, 2, 1).init::<Flex>(&device));
    let x = random([1, 4, 8]);
    let loss = |parameters: NamedTensors| {
        let model: (kiln_nn::PositionalEncoding<Autodiff<Flex>>, _) = with_parameters(&model, parameters);
        ForwardModule::forward(&model, Tensor::from_inner(x.clone())).square().sum()
    };
    let gradients = grad(loss)(trainable_parameters(&model));
    assert_eq!(gradients.len(), 9);
    assert!(gradients.contains_key("1.self_attn.q_proj.weight"));
}

#[test]
fn boxed_chains_of_encoders() {
    let device = Default::default();
    let encoder = TransformerEncoderConfig::new(8, 12, 2, 1).init::<Flex>(&device);
    let encoding = PositionalEncodingConfig::new(8).init::<Flex>(&device);
    let pwff = PositionWiseFeedForwardConfig::new(8, 16).init::<Flex>(&device);
    let x = random([1, 4, 8]);
    let expected = pwff.forward(encoder.forward(encoding.forward(x.clone())));
    type Boxed = BoxedModule<Flex, Tensor<Flex, 3>, Tensor<Flex, 3>>;
    let chain: [Boxed; 3] = [BoxedModule::new(encoding), BoxedModule::new(encoder), BoxedModule::new(pwff)];
    assert_near(chain.iter().fold(x, |x, module| module.forward(x)), expected);
}

#[test]
fn parameters_have_the_names_of_hugging_face() {
    let block = DecoderBlockConfig::new(8, 12, 4, 2).with_qkv_bias(true).with_qk_norm(true);
    let block = block.init::<Flex>(&Default::default());
    let expected = [
        "self_attn.q_proj.weight",
        "self_attn.q_proj.bias",
        "self_attn.k_proj.weight",
        "self_attn.k_proj.bias",
        "self_attn.v_proj.weight",
        "self_attn.v_proj.bias",
        "self_attn.o_proj.weight",
        "self_attn.q_norm.weight",
        "self_attn.k_norm.weight",
        "mlp.gate_proj.weight",
        "mlp.up_proj.weight",
        "mlp.down_proj.weight",
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
    ];
    assert_eq!(names(&block), expected);
}

#[test]
fn configurations_are_json() {
    let config = TransformerConfig::new().with_d_model(64).with_n_heads(4);
    assert_eq!(TransformerConfig::from_json(&config.to_json()).unwrap(), config);
    let config = MultiHeadAttentionConfig::new(8, 2).with_kdim(Some(4));
    assert_eq!(MultiHeadAttentionConfig::from_json(&config.to_json()).unwrap(), config);
}

#[test]
fn wrong_shapes_are_reported() {
    let device = Default::default();
    let layer = attention(MultiHeadAttentionConfig::new(8, 2));
    let x = || random([2, 3, 8]);
    let check = |input: MhaInput<Flex>, expected: &str| {
        let text = message(|| drop(layer.forward(input)));
        assert!(text.contains(expected), "{text}");
    };
    check(random([2, 3, 6]).into(), "queries are [2, 3, 6], but the layer expects 8 features");
    check(MhaInput::cross_attn(x(), random([2, 3, 6])), "keys are [2, 3, 6], but the layer expects 8");
    let pad = |shape: [usize; 2]| Tensor::<Flex, 2, Bool>::zeros(shape, &device);
    check(
        MhaInput::self_attn(x()).mask_pad(pad([2, 4])),
        "the padding mask is [2, 4], not [batch, keys] = [2, 3]",
    );
    let mask = Tensor::<Flex, 3, Bool>::zeros([2, 3, 4], &device);
    check(MhaInput::self_attn(x()).mask_attn(mask), "the attention mask is [2, 3, 4]");
    check(MhaInput::self_attn(x()).attn_bias(random([1, 3, 3, 3])), "the bias is [1, 3, 3, 3]");

    let text = message(|| drop(attention(MultiHeadAttentionConfig::new(8, 3))));
    assert!(text.contains("3 heads cannot share 8 features"), "{text}");
    let text = message(|| drop(attention(MultiHeadAttentionConfig::new(8, 4).with_n_kv_heads(Some(3)))));
    assert!(text.contains("4 query heads cannot share 3 heads"), "{text}");
    let grouped = GroupedQueryAttentionConfig::new(8, 2, 1).init::<Flex>(&device);
    let text = message(|| drop(grouped.forward(MhaInput::cross_attn(x(), x()))));
    assert!(text.contains("the layer is self-attention"), "{text}");
    let encoder = TransformerEncoderConfig::new(8, 12, 2, 1).init::<Flex>(&device);
    let text = message(|| drop(encoder.forward(TransformerEncoderInput::new(x()).mask_pad(pad([3, 3])))));
    assert!(text.contains("the padding mask is [3, 3]"), "{text}");
}
