//! Averages of weights, and recomputed running statistics.

use super::call::{Call, Outputs};
use kiln_backends::Dyn;
use kiln_nn::{BatchNormConfig, Module, Param, RunningState};
use kiln_optim::{EmaConfig, ModelAverage, SwaConfig, update_batch_norm};
use kiln_tensor::{AnyTensor, Backend, Tensor};

/// A parameter and a buffer.
#[derive(Clone, Debug, Module)]
struct Layer<B: Backend> {
    weight: Param<Tensor<B, 2>>,
    mean: RunningState<Tensor<B, 1>>,
}

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    match &*call.op {
        "ema" => {
            let config = EmaConfig::new().with_decay(call.real("decay"));
            Ok(averages(call, config.with_use_buffers(call.flag("use_buffers")).init()))
        }
        "swa" => Ok(averages(call, SwaConfig::new().with_use_buffers(call.flag("use_buffers")).init())),
        "batch_norm" => Ok(running_statistics(call)),
        op => panic!("unknown op {op}"),
    }
}

fn averages(call: &Call<'_>, mut average: ModelAverage) -> Vec<Option<AnyTensor>> {
    let (weights, means) = (call.tensor::<3>("weights"), call.tensor::<2>("means"));
    let weight = |update: usize| weights.clone().narrow(0, update, 1).squeeze_dim::<2>(0);
    let mean = |update: usize| means.clone().narrow(0, update, 1).squeeze_dim::<1>(0);
    let mut layer = Layer::<Dyn> { weight: Param::from_tensor(weight(0)), mean: RunningState::new(mean(0)) };
    let (mut average_weights, mut average_means) = (Vec::new(), Vec::new());
    for update in 0..weights.dims()[0] {
        layer.weight.set(weight(update));
        layer.mean.update(|_| mean(update));
        average.update(&layer).expect("the average has the parameters of the layer");
        let averaged = average.averaged(layer.clone());
        assert_eq!(layer.weight.to_data(), weight(update).to_data(), "the model itself changed");
        average_weights.push(averaged.weight.val().detach().unsqueeze_dim::<3>(0));
        average_means.push(averaged.mean.value().unsqueeze_dim::<2>(0));
    }
    vec![Some(Tensor::cat(average_weights, 0).into_any()), Some(Tensor::cat(average_means, 0).into_any())]
}

fn running_statistics(call: &Call<'_>) -> Vec<Option<AnyTensor>> {
    let batches = call.tensor::<3>("batches");
    let [count, _, features] = batches.dims();
    let config = BatchNormConfig::new(features).with_momentum(call.real("momentum"));
    let mut layer = config.init::<Dyn>(&call.device).train();
    let batches = (0..count).map(|batch| batches.clone().narrow(0, batch, 1).squeeze_dim::<2>(0));
    let updated = update_batch_norm(&mut layer, batches, |layer, batch| drop(layer.forward(batch)));
    updated.expect("the layer runs in training mode");
    [layer.running_mean, layer.running_var].map(|state| Some(state.value().into_any())).into()
}
