//! Attention, transformers and positional encodings. State dicts of PyTorch's modules load by name.

use super::call::{Call, Outputs, one};
use super::module::with_state_dict;
use kiln_backends::Dyn;
use kiln_nn::attention::{
    MhaInput, MultiHeadAttentionConfig, RelativePositionBiasConfig, RotaryEncodingConfig, RotaryScaling,
    alibi_slopes, generate_autoregressive_mask,
};
use kiln_nn::transformer::{
    FeedForwardActivation, TransformerConfig, TransformerDecoderConfig, TransformerDecoderInput,
    TransformerDecoderLayer, TransformerEncoderConfig, TransformerEncoderInput, TransformerEncoderLayer,
    TransformerInput,
};
use kiln_tensor::{AnyTensor, Bool, Tensor, TensorData};

/// The number of features in the cases.
const WIDTH: usize = 4;
/// The number of features between the linear layers of a transformer layer in the cases.
const INNER: usize = 5;

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    match &*call.op {
        "multi_head_attention" => multi_head_attention(call),
        "transformer_encoder_layer" => one(encoder_layer(call)),
        "encoder" => one(encoder(call)),
        "decoder_layer" => one(decoder_layer(call)),
        "transformer" => one(transformer(call)),
        "rotary" => one(rotary(call)),
        "alibi_slopes" => one(slopes(call)),
        "t5_buckets" => one(buckets(call)),
        op => panic!("unknown op {op}"),
    }
}

/// The number of ways in which the modules compute an op; all have the stored results. [`Call::way`] selects one.
pub(crate) fn ways(op: &str) -> usize {
    match op {
        // Without and with weights; with a causal option and a mask; at positions on the host and on the device.
        "multi_head_attention" | "encoder" | "rotary" => 2,
        _ => 1,
    }
}

fn bools<const D: usize>(call: &Call<'_>, name: &str) -> Option<Tensor<Dyn, D, Bool>> {
    let tensor = call.optional(name)?.clone();
    Some(tensor.try_into_tensor().unwrap_or_else(|error| panic!("{error}")))
}

fn multi_head_attention(call: &Call<'_>) -> Outputs {
    let features = |name: &str| Some(call.input(name).shape()[2]);
    let config = MultiHeadAttentionConfig::new(WIDTH, call.count("heads"))
        .with_bias(call.optional("in_proj_bias").is_some())
        .with_kdim(features("key"))
        .with_vdim(features("value"))
        .with_add_bias_kv(call.optional("bias_k").is_some())
        .with_add_zero_attn(call.attributes["add_zero_attn"].as_bool().unwrap_or(false));
    let others = ["query", "key", "value", "mask", "key_padding_mask"];
    let layer = with_state_dict(call, config.init::<Dyn>(&call.device), &others);
    if call.way == 0 {
        return Ok(vec![Some(layer.forward(attention_input(call)).context.into_any()), None]);
    }
    let output = layer.forward(attention_input(call).need_weights());
    let weights = output.weights.expect("the weights were requested");
    let [batch, _, queries, keys] = weights.dims();
    let weights = match call.outputs[1].as_str() {
        "mean_attention" => weights.mean_dim(1).reshape([batch, queries, keys]).into_any(),
        _ => weights.into_any(),
    };
    Ok(vec![Some(output.context.into_any()), Some(weights)])
}

fn attention_input(call: &Call<'_>) -> MhaInput<Dyn> {
    let mut input = MhaInput::new(call.tensor("query"), call.tensor("key"), call.tensor("value"));
    match call.optional("mask") {
        Some(mask) if mask.dtype().is_bool() => {
            input = input.mask_attn(bools::<2>(call, "mask").expect("a mask").unsqueeze());
        }
        Some(_) => {
            let mask = call.tensor::<3>("mask");
            let [rows, queries, keys] = mask.dims();
            // PyTorch's mask is `[batch * heads, queries, keys]`.
            let heads = call.count("heads");
            input = input.attn_bias(mask.reshape([rows / heads, heads, queries, keys]));
        }
        None => {}
    }
    match bools(call, "key_padding_mask") {
        Some(mask) => input.mask_pad(mask),
        None => input,
    }
}

fn activation(call: &Call<'_>) -> FeedForwardActivation {
    match call.text("activation") {
        "relu" => FeedForwardActivation::Relu,
        "gelu" => FeedForwardActivation::Gelu,
        other => panic!("unknown activation {other}"),
    }
}

fn encoder_config(call: &Call<'_>, layers: usize) -> TransformerEncoderConfig {
    TransformerEncoderConfig::new(WIDTH, INNER, call.count("heads"), layers)
        .with_dropout(0.0)
        .with_activation(activation(call))
        .with_norm_first(call.flag("norm_first"))
        .with_final_norm(call.optional("norm.weight").is_some())
}

fn encoder_layer(call: &Call<'_>) -> AnyTensor {
    let layer = TransformerEncoderLayer::<Dyn>::new(&encoder_config(call, 1), &call.device);
    with_state_dict(call, layer, &["x"]).forward(call.tensor("x")).into_any()
}

fn encoder(call: &Call<'_>) -> AnyTensor {
    let encoder = encoder_config(call, call.count("layers")).init::<Dyn>(&call.device);
    let encoder = with_state_dict(call, encoder, &["x", "padding"]);
    let x = call.tensor::<3>("x");
    let [batch, length, _] = x.dims();
    let mut input = TransformerEncoderInput::new(x);
    if let Some(padding) = bools(call, "padding") {
        input = input.mask_pad(padding);
    }
    if call.flag("causal") {
        input = match call.way {
            0 => input.causal(),
            _ => input.mask_attn(generate_autoregressive_mask(batch, length, &call.device)),
        };
    }
    encoder.forward(input).into_any()
}

fn decoder_layer(call: &Call<'_>) -> AnyTensor {
    let config = TransformerDecoderConfig::new(WIDTH, INNER, call.count("heads"), 1)
        .with_dropout(0.0)
        .with_activation(activation(call))
        .with_norm_first(call.flag("norm_first"));
    let layer = TransformerDecoderLayer::<Dyn>::new(&config, &call.device);
    let layer = with_state_dict(call, layer, &["target", "memory", "memory_mask", "memory_padding"]);
    let mut input = TransformerDecoderInput::new(call.tensor("target"), call.tensor("memory"));
    if call.flag("causal") {
        input = input.causal();
    }
    if let Some(mask) = bools::<2>(call, "memory_mask") {
        input = input.memory_mask_attn(mask.unsqueeze());
    }
    if let Some(mask) = bools(call, "memory_padding") {
        input = input.memory_mask_pad(mask);
    }
    layer.forward(input).into_any()
}

fn transformer(call: &Call<'_>) -> AnyTensor {
    let config = TransformerConfig::new()
        .with_d_model(WIDTH)
        .with_d_ff(INNER)
        .with_n_heads(call.count("heads"))
        .with_n_encoder_layers(1)
        .with_n_decoder_layers(1)
        .with_dropout(0.0)
        .with_activation(activation(call))
        .with_norm_first(call.flag("norm_first"));
    let model = with_state_dict(call, config.init::<Dyn>(&call.device), &["source", "target"]);
    model.forward(TransformerInput::new(call.tensor("source"), call.tensor("target")).causal()).into_any()
}

fn rotary(call: &Call<'_>) -> AnyTensor {
    let x = call.tensor::<4>("x");
    let [_, _, length, dim] = x.dims();
    let start = call.count("start");
    let config = RotaryEncodingConfig::new(start + length, dim)
        .with_theta(call.real("theta"))
        .with_interleaved(call.flag("interleaved"))
        .with_scaling(scaling(call));
    let rotary = config.init::<Dyn>(&call.device);
    // Dynamic scaling needs positions on the host.
    let on_host = call.way == 0 || matches!(config.scaling, RotaryScaling::DynamicNtk { .. });
    if on_host {
        return rotary.apply(x, start).into_any();
    }
    let positions = Tensor::arange(start as i64..(start + length) as i64, &call.device);
    rotary.apply_at(x, positions).into_any()
}

fn scaling(call: &Call<'_>) -> RotaryScaling {
    let scaling = &call.attributes["scaling"];
    let number = |name: &str| scaling[name].as_f64().unwrap_or_else(|| panic!("no `{name}`"));
    let original = || number("original") as usize;
    match scaling["kind"].as_str() {
        Some("none") => RotaryScaling::None,
        Some("linear") => RotaryScaling::Linear { factor: number("factor") },
        Some("ntk") => RotaryScaling::Ntk { factor: number("factor") },
        Some("dynamic") => RotaryScaling::DynamicNtk { factor: number("factor"), original_max: original() },
        Some("yarn") => {
            let yarn = RotaryScaling::yarn(number("factor"), original());
            assert!(matches!(yarn, RotaryScaling::Yarn { beta_fast: 32.0, beta_slow: 1.0, .. }));
            yarn
        }
        Some("llama3") => RotaryScaling::Llama3 {
            factor: number("factor"),
            low_freq_factor: number("low"),
            high_freq_factor: number("high"),
            original_max: original(),
        },
        kind => panic!("unknown scaling {kind:?}"),
    }
}

fn slopes(call: &Call<'_>) -> AnyTensor {
    let slopes: Vec<f32> = alibi_slopes(call.count("heads")).into_iter().map(|slope| slope as f32).collect();
    call.place(&TensorData::from(slopes.as_slice()))
}

fn buckets(call: &Call<'_>) -> AnyTensor {
    let config = RelativePositionBiasConfig::new(1)
        .with_n_buckets(call.count("buckets"))
        .with_max_distance(call.count("max_distance"))
        .with_bidirectional(call.flag("bidirectional"));
    let bias = config.init::<Dyn>(&call.device);
    let distances: Vec<i64> = call.golden_tensor("relative").to_vec();
    let buckets: Vec<i32> = distances.iter().map(|&distance| bias.bucket(distance) as i32).collect();
    call.place(&TensorData::from(buckets.as_slice()))
}
