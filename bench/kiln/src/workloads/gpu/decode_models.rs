//! Tokens one by one as in `decode.rs`, from `Llama` of `kiln_models` in place of layers that are written out.

use super::{Gpu, GpuDevice};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::{Backend, DType, Int, Tensor};
use kiln_models::{DecoderCache, Llama, LlamaConfig, cast};
use kiln_text::{LanguageModel, TokenInput};

pub(crate) fn tokens(row: &Row, device: &GpuDevice) -> Result<Prepared> {
    let device = *device;
    let (length, count) = (row.size("cache")?, row.size("tokens")?);
    let [vocabulary, width, feed_forward] =
        [row.size("vocabulary")?, row.size("width")?, row.size("feed_forward")?];
    let [layers, heads, key_heads] = [row.size("layers")?, row.size("heads")?, row.size("key_heads")?];
    let config = LlamaConfig::new(vocabulary, width, feed_forward, layers, heads, key_heads)
        .with_max_position_embeddings(length)
        .with_rope_theta(row.number("rotary_base")?);
    let model: Llama<Gpu> = cast(config.init(&device), DType::BF16);
    let mut cache = model.new_cache(1, length);
    let repeat = move || {
        cache.set_len(length / 2);
        let mut token = Tensor::<Gpu, 1, Int>::from_ints([1], &device);
        let mut sum = Tensor::<Gpu, 1, Int>::from_ints([0], &device);
        for _ in 0..count {
            token = next(&model, token, &mut cache);
            sum = sum + &token;
            Gpu::stack(&device).engine().submit();
        }
        let sum = sum.try_into_scalar::<f64>()?;
        Gpu::sync(&device)?;
        Ok(sum)
    };
    Ok(Prepared::new(repeat).with_operations(count))
}

/// The likeliest token after the given one.
fn next(
    model: &Llama<Gpu>,
    token: Tensor<Gpu, 1, Int>,
    cache: &mut DecoderCache<Gpu>,
) -> Tensor<Gpu, 1, Int> {
    let logits = model.forward_cache(TokenInput::new(token.reshape([1, 1])), cache);
    logits.argmax(2).reshape([1])
}
