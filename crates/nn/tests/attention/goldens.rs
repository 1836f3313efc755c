//! State dicts of PyTorch's modules load by name, and results and gradients are PyTorch's.

use super::harness::{B, Case, each_case};
use kiln_nn::attention::{MhaInput, MultiHeadAttentionConfig, generate_autoregressive_mask};
use kiln_nn::transformer::{
    FeedForwardActivation, TransformerConfig, TransformerDecoderConfig, TransformerDecoderInput,
    TransformerDecoderLayer, TransformerEncoderConfig, TransformerEncoderInput, TransformerEncoderLayer,
    TransformerInput,
};
use kiln_tensor::{DType, Tensor};

const ATTENTION_INPUTS: [&str; 5] = ["query", "key", "value", "mask", "key_padding_mask"];

fn attention_input(case: &Case, inputs: [Tensor<B, 3>; 3]) -> MhaInput<B> {
    let [query, key, value] = inputs;
    let mut input = MhaInput::new(query, key, value);
    if case.has("mask") && case.data("mask").dtype() == DType::Bool {
        input = input.mask_attn(case.tensor::<2, _>("mask").unsqueeze());
    } else if case.has("mask") {
        let mask: Tensor<B, 3> = case.tensor("mask");
        let [rows, queries, keys] = mask.dims();
        // PyTorch's mask is `[batch * heads, queries, keys]`.
        let heads = case.number("heads");
        input = input.attn_bias(mask.reshape([rows / heads, heads, queries, keys]));
    }
    match case.optional::<2, _>("key_padding_mask") {
        Some(mask) => input.mask_pad(mask),
        None => input,
    }
}

fn check_attention(case: &Case, config: MultiHeadAttentionConfig) {
    let layer = case.load(config.init::<B>(&Default::default()), &ATTENTION_INPUTS);
    let inputs = ["query", "key", "value"].map(|name| case.input::<3>(name));
    let named = [("query", &inputs[0]), ("key", &inputs[1]), ("value", &inputs[2])];
    let fused = layer.forward(attention_input(case, inputs.clone()));
    assert!(fused.weights.is_none());
    case.check(fused.context, &named, &layer);

    let explicit = layer.forward(attention_input(case, inputs.clone()).need_weights());
    case.check(explicit.context, &named, &layer);
    let weights = explicit.weights.unwrap();
    let [batch, _, queries, keys] = weights.dims();
    if case.has_output("mean_attention") {
        let mean = weights.mean_dim(1).reshape([batch, queries, keys]);
        case.compare("mean_attention", mean.into_data());
    } else {
        case.compare("weights", weights.into_data());
    }
}

#[test]
fn multi_head_attention() {
    each_case("module", "multi_head_attention", 6, |case| {
        let config = MultiHeadAttentionConfig::new(4, case.number("heads"));
        check_attention(case, config.with_bias(case.has("in_proj_bias")));
    });
}

#[test]
fn multi_head_attention_with_all_options() {
    each_case("transformer", "multi_head_attention", 6, |case| {
        let features = |name| Some(case.data(name).shape()[2]);
        let config = MultiHeadAttentionConfig::new(4, case.number("heads"))
            .with_bias(case.has("in_proj_bias"))
            .with_kdim(features("key"))
            .with_vdim(features("value"))
            .with_add_bias_kv(case.has("bias_k"))
            .with_add_zero_attn(case.flag("add_zero_attn"));
        check_attention(case, config);
    });
}

fn activation(case: &Case) -> FeedForwardActivation {
    match case.attribute("activation").as_str().unwrap() {
        "relu" => FeedForwardActivation::Relu,
        "gelu" => FeedForwardActivation::Gelu,
        other => panic!("{other}"),
    }
}

fn encoder_config(case: &Case, layers: usize) -> TransformerEncoderConfig {
    TransformerEncoderConfig::new(4, 5, case.number("heads"), layers)
        .with_dropout(0.0)
        .with_activation(activation(case))
        .with_norm_first(case.flag("norm_first"))
        .with_final_norm(case.has("norm.weight"))
}

#[test]
fn encoder_layer() {
    each_case("module", "transformer_encoder_layer", 2, |case| {
        let layer = TransformerEncoderLayer::<B>::new(&encoder_config(case, 1), &Default::default());
        let layer = case.load(layer, &["x"]);
        let x = case.input::<3>("x");
        case.check(layer.forward(x.clone()), &[("x", &x)], &layer);
    });
}

#[test]
fn encoder() {
    each_case("transformer", "encoder", 4, |case| {
        let encoder = encoder_config(case, case.number("layers")).init::<B>(&Default::default());
        let encoder = case.load(encoder, &["x", "padding"]);
        let x = case.input::<3>("x");
        let mut input = TransformerEncoderInput::new(x.clone());
        if let Some(padding) = case.optional::<2, _>("padding") {
            input = input.mask_pad(padding);
        }
        if case.flag("causal") {
            let [batch, length, _] = x.dims();
            let mask = generate_autoregressive_mask(batch, length, &Default::default());
            case.compare("y", encoder.forward(input.clone().mask_attn(mask)).into_data());
            input = input.causal();
        }
        case.check(encoder.forward(input), &[("x", &x)], &encoder);
    });
}

#[test]
fn decoder_layer() {
    each_case("transformer", "decoder_layer", 4, |case| {
        let config = TransformerDecoderConfig::new(4, 5, case.number("heads"), 1)
            .with_dropout(0.0)
            .with_activation(activation(case))
            .with_norm_first(case.flag("norm_first"));
        let layer = TransformerDecoderLayer::<B>::new(&config, &Default::default());
        let layer = case.load(layer, &["target", "memory", "memory_mask", "memory_padding"]);
        let (target, memory) = (case.input::<3>("target"), case.input::<3>("memory"));
        let mut input = TransformerDecoderInput::new(target.clone(), memory.clone());
        if case.flag("causal") {
            input = input.causal();
        }
        if let Some(mask) = case.optional::<2, _>("memory_mask") {
            input = input.memory_mask_attn(mask.unsqueeze());
        }
        if let Some(mask) = case.optional::<2, _>("memory_padding") {
            input = input.memory_mask_pad(mask);
        }
        case.check(layer.forward(input), &[("target", &target), ("memory", &memory)], &layer);
    });
}

#[test]
fn transformer() {
    each_case("transformer", "transformer", 2, |case| {
        let config = TransformerConfig::new()
            .with_d_model(4)
            .with_d_ff(5)
            .with_n_heads(case.number("heads"))
            .with_n_encoder_layers(1)
            .with_n_decoder_layers(1)
            .with_dropout(0.0)
            .with_activation(activation(case))
            .with_norm_first(case.flag("norm_first"));
        let model = case.load(config.init::<B>(&Default::default()), &["source", "target"]);
        let (source, target) = (case.input::<3>("source"), case.input::<3>("target"));
        let y = model.forward(TransformerInput::new(source.clone(), target.clone()).causal());
        case.check(y, &[("source", &source), ("target", &target)], &model);
    });
}
