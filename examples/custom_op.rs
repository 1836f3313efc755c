//! An operation with a gradient of its own: rounding that lets gradients through as if it were not there (the
//! straight-through estimator, [Bengio et al. 2013](https://arxiv.org/abs/1308.3432)), used to train a network whose
//! hidden units are whole numbers.
//!
//! Run with `cargo run --release --example custom_op`.

use kiln::nn::{GradientsParams, Linear, LinearConfig, Module};
use kiln::optim::{AdamConfig, Optimizer};
use kiln::tensor::{OperandType, ResultTypes};
use kiln::{Autodiff, Backend, CustomOp, Distribution, Flex, Tensor, Var, loss, module};
use std::error::Error;

type B = Autodiff<Flex>;

#[derive(Debug)]
struct StraightThroughRound;

impl CustomOp for StraightThroughRound {
    fn name(&self) -> &str {
        "straight_through_round"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> kiln::Result<ResultTypes> {
        match inputs {
            [OperandType::Tensor(ty)] if ty.dtype.is_float() => Ok([**ty].into_iter().collect()),
            _ => Err(kiln::Error::type_error(self.name(), "takes one float tensor", inputs)),
        }
    }

    /// In Kiln's own ops, so that every engine can run it.
    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(vec![inputs[0].round()])
    }

    fn vjp<'e>(
        &self,
        _inputs: &[Var<'e>],
        _outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<kiln::Result<Vec<Option<Var<'e>>>>> {
        Some(Ok(gradients.to_vec()))
    }
}

#[derive(Module, Clone, Debug)]
struct Net<B: Backend> {
    hidden: Linear<B>,
    output: Linear<B>,
}

impl<B: Backend> Net<B> {
    fn forward(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let hidden = module::custom(StraightThroughRound, vec![self.hidden.forward(x) * 4]);
        self.output.forward(hidden)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    kiln_examples::exit_on_closed_pipe();
    let device = Default::default();
    B::seed(&device, 1);
    let mut model = Net::<B> {
        hidden: LinearConfig::new(2, 16).init(&device),
        output: LinearConfig::new(16, 1).init(&device),
    };
    let mut optimizer = AdamConfig::new().init();
    for step in 0..=500 {
        let x = Tensor::<B, 2>::random([256, 2], Distribution::Uniform(-1.0, 1.0), &device);
        let y = x.clone().sum_dim(1);
        let loss = loss::mse(model.forward(x), y, loss::Reduction::Mean);
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(5e-3, model, gradients);
        if step % 100 == 0 {
            println!("step {step:3}   loss {:.5}", loss.try_into_scalar::<f32>()?);
        }
    }
    Ok(())
}
