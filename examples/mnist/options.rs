//! The command line.

use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use std::path::PathBuf;

/// Trains a convolutional network on MNIST, saves it, loads it back and shows a few digits with its predictions.
///
/// The images are searched for in KILN_DATA_DIR, in the platform's cache folder and in this repository. Built with
/// `--features download`, the example fetches missing files.
#[derive(Parser, Clone, Debug)]
#[command(name = "mnist")]
pub(crate) struct Options {
    /// Passes over the training images.
    #[arg(long, default_value_t = 2)]
    pub(crate) epochs: usize,

    /// Images per training step.
    #[arg(long, default_value_t = 64)]
    pub(crate) batch_size: usize,

    /// Greatest learning rate: it rises over the first tenth of the steps and then falls to zero along a cosine.
    #[arg(long, default_value_t = 2e-3, allow_negative_numbers = true)]
    pub(crate) learning_rate: f64,

    /// Seed of the weights, of dropout and of the order of the images. The same seed gives the same
    /// losses, bit for bit, at the same number of threads.
    #[arg(long, default_value_t = 42)]
    pub(crate) seed: u64,

    /// Threads that compute, 1024 at most; 0 means one per core.
    #[arg(long, default_value_t = 0, value_parser = RangedU64ValueParser::<usize>::new().range(0..=1024))]
    pub(crate) threads: usize,

    /// Where to compute.
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    pub(crate) backend: BackendName,

    /// Folder for `model.safetensors`, `config.json`, `losses.csv` and `checkpoint`; made if missing.
    #[arg(long, default_value = "out/mnist")]
    pub(crate) output: PathBuf,

    /// Go on from the checkpoint in the output folder, with the options with which that training began.
    #[arg(long)]
    pub(crate) resume: bool,

    /// Do not train: load the model from the output folder, evaluate it and show its predictions.
    #[arg(long)]
    pub(crate) evaluate: bool,

    /// Train on the first images only, for a quick look.
    #[arg(long)]
    pub(crate) limit: Option<usize>,
}

/// The engines that can train.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendName {
    /// The CPU engine with fusion: the fastest.
    Cpu,
    /// The CPU engine op by op.
    Flex,
    /// An NVIDIA GPU; needs the example to be built with `--features cuda`.
    Cuda,
    /// The definition of every op, plain and slow: to compare with.
    Reference,
}
