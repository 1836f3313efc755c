//! Recurrent and attention modules.

use super::training::Training;
use super::{first, normal};
use bench_protocol::shapes::{CAUSAL, ENCODER, RECURRENT};
use bench_protocol::{Prepared, Result};
use kiln::nn::attention::{MhaInput, MultiHeadAttentionConfig};
use kiln::nn::transformer::{TransformerEncoderConfig, TransformerEncoderLayer};
use kiln::nn::{GruConfig, LstmConfig};
use kiln::optim::AdamWConfig;
use kiln::{Autodiff, Backend, loss};

pub(crate) fn lstm<B: Backend>(device: &B::Device) -> Prepared {
    let (width, layers, sequences, steps) = RECURRENT;
    let model = LstmConfig::new(width, width, true).with_num_layers(layers).init::<B>(device);
    let x = normal::<B, 3>([sequences, steps, width], device);
    Prepared::new(move || first(&model.forward(x.clone(), None).0))
}

pub(crate) fn gru<B: Backend>(device: &B::Device) -> Prepared {
    let (width, layers, sequences, steps) = RECURRENT;
    let model = GruConfig::new(width, width, true).with_num_layers(layers).init::<B>(device);
    let x = normal::<B, 3>([sequences, steps, width], device);
    Prepared::new(move || first(&model.forward(x.clone(), None).0))
}

pub(crate) fn causal_attention<B: Backend>(device: &B::Device) -> Prepared {
    let (sequences, length, width, heads) = CAUSAL;
    let model = MultiHeadAttentionConfig::new(width, heads).init::<B>(device);
    let x = normal::<B, 3>([sequences, length, width], device);
    Prepared::new(move || first(&model.forward(MhaInput::self_attn(x.clone()).causal()).context))
}

pub(crate) fn encoder_layer<B: Backend>(device: &B::Device) -> Result<Prepared> {
    let (sequences, length, width, heads, feed_forward) = ENCODER;
    let config = TransformerEncoderConfig::new(width, feed_forward, heads, 1).with_dropout(0.0);
    let model: TransformerEncoderLayer<Autodiff<B>> = TransformerEncoderLayer::new(&config, device);
    let x = normal::<Autodiff<B>, 3>([sequences, length, width], device);
    let targets = normal::<Autodiff<B>, 3>([sequences, length, width], device);
    let mut training = Training::new(model, AdamWConfig::new().init(), 1e-4);
    let device = device.clone();
    Ok(Prepared::new(move || {
        training.step(&device, |model| {
            loss::mse(model.forward(x.clone()), targets.clone(), loss::Reduction::Mean)
        })
    }))
}
