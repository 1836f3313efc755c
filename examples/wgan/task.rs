//! The training step: the critic several times, then the generator.

use crate::mnist::MnistBatch;
use crate::model::{Critic, Generator, WganConfig};
use kiln::nn::{AutodiffModule, NamedTensors, trainable_parameters, with_parameters};
use kiln::optim::lr_scheduler::Linear;
use kiln::optim::{Adam, AdamConfig};
use kiln::train::{Result, StateVisitor, Step, Task, Trainable, Validation};
use kiln::transform::grad;
use kiln::{AnyTensor, Device, Distribution, Dyn, Tensor};

/// Weight of the gradient penalty, as in the paper.
const PENALTY: f64 = 10.0;

/// A Wasserstein GAN ([Arjovsky et al. 2017](https://arxiv.org/abs/1701.07875)) with gradient penalty
/// ([Gulrajani et al. 2017](https://arxiv.org/abs/1704.00028)).
#[derive(Debug)]
pub(crate) struct Wgan {
    generator: Trainable<Generator<Dyn>>,
    critic: Trainable<Critic<Dyn>>,
    config: WganConfig,
    plan: Plan,
}

/// The updates of a training run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Number of updates of the critic in each step.
    pub(crate) critic_steps: usize,
    /// Number of steps of the run.
    pub(crate) steps: u64,
    /// Initial learning rate of both optimizers. It decays linearly to 0.
    pub(crate) learning_rate: f64,
}

impl Wgan {
    /// Creates both networks on a device with autodiff.
    pub(crate) fn new(
        config: &WganConfig,
        plan: Plan,
        device: &Device,
    ) -> std::result::Result<Wgan, Box<dyn std::error::Error>> {
        let rate = |updates| Linear::new(plan.learning_rate, 0.0, updates);
        let generator = Trainable::new(config.generator(device), adam(), rate(plan.steps)?);
        let critic_updates = plan.steps * plan.critic_steps as u64;
        let critic = Trainable::new(config.critic(device), adam(), rate(critic_updates)?);
        Ok(Wgan {
            generator: generator.named("generator"),
            critic: critic.named("critic"),
            config: config.clone(),
            plan,
        })
    }

    /// The generator without autodiff, in evaluation mode.
    pub(crate) fn generator(&self) -> Generator<Dyn> {
        self.generator.model().valid()
    }

    fn generate(&self, count: usize, device: &Device) -> Tensor<Dyn, 4> {
        self.generator.forward(self.config.noise(count, device))
    }

    fn train_critic(&mut self, real: Tensor<Dyn, 4>, step: &mut Step<'_>) -> Result<()> {
        let fake = self.generate(real.dims()[0], &real.device()).detach();
        let distance = distance(&self.critic, real.clone(), fake.clone());
        let penalty = gradient_penalty(&self.critic, real, fake);
        step.log("wasserstein distance", distance.clone());
        step.log("gradient penalty", penalty.clone());
        step.backward(penalty * PENALTY - distance, &mut self.critic)?;
        Ok(())
    }

    fn train_generator(&mut self, count: usize, device: &Device, step: &mut Step<'_>) -> Result<()> {
        let loss = -self.critic.forward(self.generate(count, device)).mean();
        step.backward(loss, &mut self.generator)?;
        Ok(())
    }
}

impl Task for Wgan {
    type Batch = MnistBatch<Dyn>;
    type ValidBatch = MnistBatch<Dyn>;

    /// A batch holds the real images of all updates of the critic.
    fn train(&mut self, batch: MnistBatch<Dyn>, step: &mut Step<'_>) -> Result<()> {
        let device = batch.images.device();
        let count = batch.images.dims()[0] / self.plan.critic_steps;
        for real in batch.images.split(count, 0) {
            self.train_critic(real, step)?;
        }
        self.train_generator(count, &device, step)
    }

    fn validate(&mut self, batch: MnistBatch<Dyn>, validation: &mut Validation<'_>) -> Result<()> {
        let [count, ..] = batch.images.dims();
        let noise = self.config.noise(count, &batch.images.device());
        let fake = self.generator().forward(noise);
        validation.log("wasserstein distance", distance(&self.critic.model().valid(), batch.images, fake));
        Ok(())
    }

    fn state(&mut self, visitor: &mut dyn StateVisitor) -> Result<()> {
        self.generator.state(visitor)?;
        self.critic.state(visitor)
    }

    fn description(&self) -> String {
        format!("{}\n{}", self.generator.model(), self.critic.model())
    }
}

fn adam() -> Adam {
    AdamConfig::new().with_beta_1(0.5).with_beta_2(0.9).init()
}

/// The estimate of the Wasserstein distance between real and generated images.
fn distance(critic: &Critic<Dyn>, real: Tensor<Dyn, 4>, fake: Tensor<Dyn, 4>) -> Tensor<Dyn, 1> {
    critic.forward(real).mean() - critic.forward(fake).mean()
}

/// The mean of `(‖∇ critic(x)‖ - 1)²` over points `x` between real and generated images. It keeps the critic close to
/// 1-Lipschitz. Its gradient by the weights is a second derivative.
fn gradient_penalty(critic: &Critic<Dyn>, real: Tensor<Dyn, 4>, fake: Tensor<Dyn, 4>) -> Tensor<Dyn, 1> {
    let [count, ..] = real.dims();
    let weight = Tensor::random([count, 1, 1, 1], Distribution::Uniform(0.0, 1.0), &real.device());
    let between = &fake + weight * (real - &fake);
    let scores = |x: Tensor<Dyn, 4>| {
        let lifted =
            |tensor: AnyTensor| tensor.lift_to(x.engine_stack()).expect("the critic is on this device");
        let parameters: NamedTensors =
            trainable_parameters(critic).into_iter().map(|(name, tensor)| (name, lifted(tensor))).collect();
        let critic: Critic<Dyn> = with_parameters(critic, parameters);
        critic.forward(x).sum()
    };
    let gradients = grad::<Dyn, Tensor<Dyn, 4>, _, 1>(scores)(between);
    let norms = (gradients.flatten::<2>(1, 3).square().sum_dim(1) + 1e-12).sqrt();
    (norms - 1.0).square().mean()
}
