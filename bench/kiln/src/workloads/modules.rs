//! Recurrent and attention modules.

use super::training::train;
use super::{input, normal, repeated};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::nn::attention::{MhaInput, MultiHeadAttentionConfig};
use kiln::nn::transformer::{TransformerEncoderConfig, TransformerEncoderLayer};
use kiln::nn::{GruConfig, LstmConfig};
use kiln::optim::AdamWConfig;
use kiln::{Autodiff, Backend, DType, Tensor, loss};

pub(crate) fn lstm<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let (width, layers) = (row.size("width")?, row.size("layers")?);
    let model = LstmConfig::new(width, width, true).with_num_layers(layers).init::<B>(device);
    let x = sequences::<B>(row, device)?;
    repeated(row, move || model.forward(x.clone(), None).0)
}

pub(crate) fn gru<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let (width, layers) = (row.size("width")?, row.size("layers")?);
    let model = GruConfig::new(width, width, true).with_num_layers(layers).init::<B>(device);
    let x = sequences::<B>(row, device)?;
    repeated(row, move || model.forward(x.clone(), None).0)
}

fn sequences<B: Backend>(row: &Row, device: &B::Device) -> Result<Tensor<B, 3>> {
    let shape = [row.size("sequences")?, row.size("steps")?, row.size("width")?];
    Ok(normal(shape, DType::F32, device))
}

pub(crate) fn causal_attention<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let [_, _, width] = row.sizes("x")?;
    let model = MultiHeadAttentionConfig::new(width, row.size("heads")?).init::<B>(device);
    let x = input::<B, 3>(row, "x", device)?;
    repeated(row, move || model.forward(MhaInput::self_attn(x.clone()).causal()).context)
}

pub(crate) fn encoder_layer<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let [_, _, width] = row.sizes("x")?;
    let config = TransformerEncoderConfig::new(width, row.size("feed_forward")?, row.size("heads")?, 1);
    let model: TransformerEncoderLayer<Autodiff<B>> =
        TransformerEncoderLayer::new(&config.with_dropout(0.0), device);
    let (x, targets) =
        (input::<Autodiff<B>, 3>(row, "x", device)?, input::<Autodiff<B>, 3>(row, "x", device)?);
    let rate = row.number("learning_rate")?;
    Ok(train(model, AdamWConfig::new().init(), rate, device, move |model| {
        loss::mse(model.forward(x.clone()), targets.clone(), loss::Reduction::Mean)
    }))
}
