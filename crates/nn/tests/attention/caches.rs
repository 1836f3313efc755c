//! Cached decoding equals the forward pass of the whole sequence.

use super::{assert_near, message, random};
use kiln_backends::{Cpu, Flex};
use kiln_nn::attention::{
    AlibiConfig, CachePosition, MhaCache, MhaInput, MultiHeadAttentionConfig, RotaryEncodingConfig,
    StaticCache,
};
use kiln_nn::transformer::{
    DecoderBlockConfig, DecoderBlockInput, TransformerDecoderConfig, TransformerDecoderInput,
    TransformerEncoderConfig, TransformerEncoderInput,
};
use kiln_tensor::{Bool, Distribution, Tensor};

/// The numbers of tokens of the calls: a prompt, single tokens, and several at once.
const STEPS: [usize; 5] = [3, 1, 1, 2, 1];
const LENGTH: usize = 8;

/// A growing cache, and static caches with positions on the host and on the device.
fn caches(shape: [usize; 4]) -> [MhaCache<Flex>; 3] {
    let device = Default::default();
    let on_device = CachePosition::Device(Tensor::from_ints([0], &device));
    [
        MhaCache::autoregressive(),
        StaticCache::new(shape, &device).into(),
        StaticCache::new(shape, &device).with_position(on_device).into(),
    ]
}

/// Applies `step` to the parts of a sequence and joins the results.
fn in_steps(
    x: &Tensor<Flex, 3>,
    mut step: impl FnMut(Tensor<Flex, 3>, usize) -> Tensor<Flex, 3>,
) -> Tensor<Flex, 3> {
    let mut start = 0;
    let parts = STEPS.iter().map(|&count| {
        start += count;
        step(x.clone().narrow(1, start - count, count), start - count)
    });
    let parts = parts.collect();
    Tensor::cat(parts, 1)
}

#[test]
fn attention_with_rotary_and_grouped_queries() {
    let device = Default::default();
    for (kv_heads, interleaved) in [(4, true), (2, false), (1, true)] {
        let config = MultiHeadAttentionConfig::new(16, 4).with_n_kv_heads(Some(kv_heads));
        let layer = config.init::<Flex>(&device);
        let rotary = RotaryEncodingConfig::new(12, 4).with_interleaved(interleaved).init::<Flex>(&device);
        let x = random([2, LENGTH, 16]);
        let input = MhaInput::self_attn(x.clone()).rotary(rotary.angles(0, LENGTH)).causal();
        let whole = layer.forward(input).context;
        for mut cache in caches([2, kv_heads, 12, 4]) {
            let steps = in_steps(&x, |x, start| {
                assert!(cache.len().is_none_or(|length| length == start));
                let angles = rotary.angles_after(&cache, x.dims()[1]);
                layer.forward_cache(MhaInput::self_attn(x).rotary(angles), &mut cache).context
            });
            assert_near(steps, whole.clone());
        }
    }
}

#[test]
fn caches_are_reset() {
    let layer = MultiHeadAttentionConfig::new(8, 2).init::<Flex>(&Default::default());
    let x = random([1, 2, 8]);
    for mut cache in caches([1, 2, 4, 4]) {
        let first = layer.forward_cache(x.clone(), &mut cache).context;
        cache.reset();
        assert_near(layer.forward_cache(x.clone(), &mut cache).context, first);
    }
    let mut memory = MhaCache::autoregressive_cross_attention();
    layer.forward_cache(MhaInput::cross_attn(x.clone(), x), &mut memory);
    memory.reset();
    assert!(memory.is_empty());
}

#[test]
fn caches_with_fusion() {
    let device = Default::default();
    let block = DecoderBlockConfig::new(16, 24, 4, 2).init::<Cpu>(&device);
    let rotary = RotaryEncodingConfig::new(12, 4).init::<Cpu>(&device);
    let x = Tensor::<Cpu, 3>::random([2, LENGTH, 16], Distribution::Normal(0.0, 1.0), &device);
    let whole = block.forward(DecoderBlockInput::new(x.clone()).rotary(rotary.angles(0, LENGTH)));
    let shape = [2, 2, 12, 4];
    let on_device = CachePosition::Device(Tensor::from_ints([0], &device));
    let on_device = StaticCache::new(shape, &device).with_position(on_device);
    for mut cache in [MhaCache::autoregressive(), block.new_static_cache(2, 12, &device), on_device.into()] {
        for token in 0..LENGTH {
            let input = DecoderBlockInput::new(x.clone().narrow(1, token, 1));
            let y = block.forward_cache(input.rotary(rotary.angles_after(&cache, 1)), &mut cache);
            assert_near(y, whole.clone().narrow(1, token, 1));
        }
    }
}

#[test]
fn attention_with_appended_keys_and_weights() {
    let config = MultiHeadAttentionConfig::new(8, 2).with_add_bias_kv(true).with_add_zero_attn(true);
    let layer = config.init::<Flex>(&Default::default());
    let x = random([2, LENGTH, 8]);
    let whole = layer.forward(MhaInput::self_attn(x.clone()).causal()).context;
    for mut cache in caches([2, 2, 8, 4]) {
        let steps = in_steps(&x, |x, _| {
            layer.forward_cache(MhaInput::self_attn(x).need_weights(), &mut cache).context
        });
        assert_near(steps, whole.clone());
    }
}

#[test]
fn masks_and_biases_cover_cached_keys() {
    let device = Default::default();
    let layer = MultiHeadAttentionConfig::new(8, 2).init::<Flex>(&device);
    let alibi = AlibiConfig::new(2).init();
    let x = random([2, LENGTH, 8]);
    let hidden = |length| {
        let row = |hidden: [usize; 2]| (0..length).map(|key| hidden.contains(&key)).collect::<Vec<_>>();
        let rows = [row([0, 4]), row([2, 5])].concat();
        Tensor::<Flex, 1, Bool>::from_bools(&rows[..], &device).reshape([2, length])
    };
    let input = MhaInput::self_attn(x.clone()).causal().mask_pad(hidden(LENGTH));
    let whole = layer.forward(input.attn_bias(alibi.bias(LENGTH, LENGTH, &device))).context;
    for (kind, mut cache) in caches([2, 2, 10, 4]).into_iter().enumerate() {
        let steps = in_steps(&x, |x, start| {
            let count = x.dims()[1];
            let bias = match kind {
                0 => alibi.bias(count, start + count, &device),
                _ => alibi.bias_at(cache.positions(count), 10),
            };
            let input = MhaInput::self_attn(x).mask_pad(hidden(start + count)).attn_bias(bias);
            layer.forward_cache(input, &mut cache).context
        });
        assert_near(steps, whole.clone());
    }
}

#[test]
fn decoder_blocks() {
    let device = Default::default();
    let configs = [
        DecoderBlockConfig::new(16, 24, 4, 2),
        DecoderBlockConfig::new(16, 24, 4, 2).with_sliding_window(Some(3)),
        DecoderBlockConfig::new(12, 24, 4, 1).with_head_dim(Some(4)).with_qk_norm(true).with_qkv_bias(true),
    ];
    for config in configs {
        let blocks = [0, 1].map(|_| config.init::<Flex>(&device));
        let rotary = RotaryEncodingConfig::new(12, 4).with_interleaved(false).init::<Flex>(&device);
        let x = random([2, LENGTH, config.d_model]);
        let mut input = DecoderBlockInput::new(x.clone()).rotary(rotary.angles(0, LENGTH));
        let mut whole = x.clone();
        for block in &blocks {
            whole = block.forward(input.clone());
            input = input.with_tensor(whole.clone());
        }
        let shape = [2, config.n_kv_heads, 12, 4];
        for kind in 0..3 {
            let mut caches = [0, 1].map(|_| caches(shape)[kind].clone());
            let steps = in_steps(&x, |x, _| {
                let angles = rotary.angles_after(&caches[0], x.dims()[1]);
                let mut y = x;
                for (block, cache) in blocks.iter().zip(&mut caches) {
                    y = block.forward_cache(DecoderBlockInput::new(y).rotary(angles.clone()), cache);
                }
                y
            });
            assert_near(steps, whole.clone());
        }
    }
}

#[test]
fn decoder() {
    let device = Default::default();
    for norm_first in [false, true] {
        let config =
            TransformerDecoderConfig::new(8, 12, 2, 2).with_norm_first(norm_first).with_final_norm(true);
        let decoder = config.init::<Flex>(&device);
        let (x, memory) = (random([2, LENGTH, 8]), random([2, 5, 8]));
        let padding = [[false, false, false, true, true], [false, false, false, false, true]];
        let padding = Tensor::<Flex, 2, Bool>::from_bools(padding, &device);
        let input = |x| TransformerDecoderInput::new(x, memory.clone()).memory_mask_pad(padding.clone());
        let whole = decoder.forward(input(x.clone()).causal());
        for fixed in [false, true] {
            let new = || match fixed {
                false => decoder.new_autoregressive_cache(),
                true => decoder.new_static_cache(2, 8, &device),
            };
            let mut cache = new();
            assert_near(in_steps(&x, |x, _| decoder.forward_cache(input(x), &mut cache)), whole.clone());

            let mut cache = new();
            for end in [3, 4, 4, 6, 8] {
                let y =
                    decoder.forward_autoregressive_inference(input(x.clone().narrow(1, 0, end)), &mut cache);
                assert_near(y, whole.clone().narrow(1, 0, end));
            }
            let text = message(|| {
                drop(decoder.forward_autoregressive_inference(input(x.clone().narrow(1, 0, 2)), &mut cache));
            });
            assert!(text.contains("the sequence has 2 tokens, the cache 8"), "{text}");
        }
    }
}

#[test]
fn encoder() {
    let device = Default::default();
    let encoder = TransformerEncoderConfig::new(8, 12, 2, 2).with_norm_first(true).init::<Flex>(&device);
    let rotary = RotaryEncodingConfig::new(8, 4).init::<Flex>(&device);
    let x = random([2, LENGTH, 8]);
    let mask = kiln_nn::attention::sliding_window_mask::<Flex>(LENGTH, LENGTH, 3, &device);
    let part = |end| {
        let input = TransformerEncoderInput::new(x.clone().narrow(1, 0, end)).rotary(rotary.angles(0, end));
        input.mask_attn(mask.clone().narrow(1, 0, end).narrow(2, 0, end))
    };
    let whole = encoder.forward(part(LENGTH).causal());
    for mut cache in [encoder.new_autoregressive_cache(), encoder.new_static_cache(2, 8, &device)] {
        for end in [3, 4, 6, 8] {
            let y = encoder.forward_autoregressive_inference(part(end), &mut cache);
            assert_near(y, whole.clone().narrow(1, 0, end));
        }
    }
    let mut cache = encoder.new_autoregressive_cache();
    encoder.forward_cache(x.clone(), &mut cache);
    let text = message(|| drop(encoder.forward_autoregressive_inference(x.clone(), &mut cache)));
    assert!(text.contains("the cache has tokens without outputs"), "{text}");
    let other = TransformerEncoderConfig::new(8, 12, 2, 1).init::<Flex>(&device);
    let text = message(|| drop(encoder.forward_cache(x, &mut other.new_autoregressive_cache())));
    assert!(text.contains("the cache has 1 layers, the module 2"), "{text}");
}

#[test]
fn cross_attention_computes_the_memory_once() {
    let layer = MultiHeadAttentionConfig::new(8, 2).init::<Flex>(&Default::default());
    let (x, memory) = (random([2, 3, 8]), random([2, 5, 8]));
    let whole = layer.forward(MhaInput::cross_attn(x.clone(), memory.clone())).context;
    let mut cache = MhaCache::autoregressive_cross_attention();
    assert!(cache.is_empty());
    for (token, memory) in [memory, random([2, 5, 8]), random([2, 5, 8])].into_iter().enumerate() {
        let input = MhaInput::cross_attn(x.clone().narrow(1, token, 1), memory);
        assert_near(layer.forward_cache(input, &mut cache).context, whole.clone().narrow(1, token, 1));
    }
}

#[test]
fn static_caches_report_wrong_shapes_and_overflow() {
    let device = Default::default();
    let layer = MultiHeadAttentionConfig::new(8, 2).init::<Flex>(&device);
    let mut cache = MhaCache::from(StaticCache::new([2, 2, 4, 4], &device));
    layer.forward_cache(random([2, 3, 8]), &mut cache);
    let text = message(|| drop(layer.forward_cache(random([2, 2, 8]), &mut cache)));
    assert!(text.contains("positions 3..5 do not fit: max_length is 4"), "{text}");
    // The failed call did not change the cache.
    layer.forward_cache(random([2, 1, 8]), &mut cache);
    assert_eq!(cache.len(), Some(4));
    let mut cache = MhaCache::from(StaticCache::new([1, 2, 4, 4], &device));
    let text = message(|| drop(layer.forward_cache(random([2, 1, 8]), &mut cache)));
    assert!(text.contains("new keys are [2, 2, 1, 4], the cache is [1, 2, 4, 4]"), "{text}");
}

#[test]
fn a_position_beyond_a_cache_is_an_error_of_the_result() {
    let device = Default::default();
    let layer = MultiHeadAttentionConfig::new(8, 2).init::<Flex>(&device);
    let position = CachePosition::Device(Tensor::from_ints([4], &device));
    let mut cache = MhaCache::from(StaticCache::new([1, 2, 4, 4], &device).with_position(position));
    let y = layer.forward_cache(random([1, 1, 8]), &mut cache).context;
    assert!(y.try_into_data().is_err());
}
