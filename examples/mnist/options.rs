//! Command-line options.

use clap::Parser;
use clap::builder::RangedU64ValueParser;
use kiln_examples::backend::BackendName;
use std::path::PathBuf;

/// Trains a convolutional network on MNIST, saves it, loads it and prints predictions for a few images.
///
/// The MNIST files are searched for in KILN_DATA_DIR, in the platform's cache folder and in this repository. Built with
/// `--features download`, the example downloads missing files.
#[derive(Parser, Clone, Debug)]
#[command(name = "mnist")]
pub(crate) struct Options {
    /// Number of epochs.
    #[arg(long, default_value_t = 2)]
    pub(crate) epochs: usize,

    /// Batch size.
    #[arg(long, default_value_t = 64)]
    pub(crate) batch_size: usize,

    /// Peak learning rate, after linear warm-up over the first tenth of the steps and before cosine decay to zero.
    #[arg(long, default_value_t = 2e-3, allow_negative_numbers = true)]
    pub(crate) learning_rate: f64,

    /// Seed of weight initialization, dropout and shuffling. Runs with the same options and seed have the same losses,
    /// bit for bit.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,

    /// Number of CPU threads, at most 1024; 0 means one per core.
    #[arg(long, default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(0..=1024))]
    pub(crate) threads: usize,

    /// Backend that runs the network.
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    pub(crate) backend: BackendName,

    /// Output folder for `model.safetensors`, `config.json`, `losses.csv`, `checkpoint` and the logs in `runs`; created if
    /// missing. `kiln runs report mnist --root out/mnist/runs` plots the logs.
    #[arg(long, default_value = "out/mnist")]
    pub(crate) output: PathBuf,

    /// Resume training from the checkpoint in the output folder. Pass the same options as for the interrupted run.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Skip training: load the model from the output folder, evaluate it and print predictions.
    #[arg(long)]
    pub(crate) evaluate: bool,

    /// Train only on the first LIMIT images.
    #[arg(long)]
    pub(crate) limit: Option<usize>,

    /// Evaluate only on the first TEST_LIMIT test images.
    #[arg(long)]
    pub(crate) test_limit: Option<usize>,
}
