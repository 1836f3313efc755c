//! Command-line options.

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use kiln_examples::backend::BackendName;
use std::path::PathBuf;

/// Trains a Wasserstein GAN with gradient penalty on MNIST and draws digits.
///
/// The MNIST files are searched for in KILN_DATA_DIR, in the platform's cache folder and in this repository. Built with
/// `--features download`, the example downloads missing files.
#[derive(Parser, Clone, Debug)]
#[command(name = "wgan")]
pub(crate) struct Options {
    /// Number of epochs.
    #[arg(long, default_value_t = 10, value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub(crate) epochs: u64,

    /// Stop after STEPS steps in total, where the epochs have more. A step updates the generator once.
    #[arg(long, value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub(crate) steps: Option<u64>,

    /// Number of images of each update.
    #[arg(long, default_value_t = 64, value_parser = RangedU64ValueParser::<usize>::new().range(2..=4096))]
    pub(crate) batch_size: usize,

    /// Number of updates of the critic before each update of the generator.
    #[arg(long, default_value_t = 3, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100))]
    pub(crate) critic_steps: usize,

    /// Initial learning rate of both optimizers, which decays linearly to 0.
    #[arg(long, default_value_t = 5e-4, allow_negative_numbers = true)]
    pub(crate) learning_rate: f64,

    /// Seed of weight initialization, noise and shuffling. Runs with the same options and seed have the same losses, bit
    /// for bit.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,

    /// Number of CPU threads, at most 1024; 0 means one per core.
    #[arg(long, default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(0..=1024))]
    pub(crate) threads: usize,

    /// Backend that runs the networks.
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    pub(crate) backend: BackendName,

    /// Output folder for `samples.png`, `samples-STEP.png`, `generator.safetensors`, `config.json` and `checkpoint`;
    /// created if missing.
    #[arg(long, default_value = "out/wgan")]
    pub(crate) output: PathBuf,

    /// Write a grid of samples after each EVERY steps.
    #[arg(long, default_value_t = 500, value_name = "EVERY", value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub(crate) samples_every: u64,

    /// Resume training from the checkpoint in the output folder. Pass the same options as for the interrupted run.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Skip training: load the generator from the output folder and draw samples.
    #[arg(long)]
    pub(crate) evaluate: bool,

    /// Classify 1,000 samples by the model in FOLDER, the output folder of the example `mnist`. Prints the mean
    /// probability of the predicted digits, and the number of different digits among them.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) judge: Option<PathBuf>,

    /// Train and validate only on the first LIMIT images of each set.
    #[arg(long)]
    pub(crate) limit: Option<usize>,
}
