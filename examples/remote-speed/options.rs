//! Command-line options.

use clap::builder::RangedU64ValueParser;
use clap::{Parser, ValueEnum};
use std::fmt;

/// Measures training steps over a server on the loopback address beside local steps on the same backend.
#[derive(Parser, Clone, Debug)]
#[command(name = "remote-speed")]
pub(crate) struct Options {
    /// Model that is trained.
    #[arg(long, value_enum, default_value_t = ModelName::Mnist)]
    pub(crate) model: ModelName,

    /// Backend of the local steps and of the server.
    #[arg(long, value_enum, default_value_t = BackendName::Cpu)]
    pub(crate) backend: BackendName,

    /// Train in mixed precision.
    #[arg(long)]
    pub(crate) mixed: bool,

    /// Batch size; by default 64, and 8 for gpt2.
    #[arg(long)]
    pub(crate) batch: Option<usize>,

    /// Tokens of a sequence of gpt2.
    #[arg(long, default_value_t = 1024)]
    pub(crate) length: usize,

    /// Layers of gpt2.
    #[arg(long, default_value_t = 12)]
    pub(crate) layers: usize,

    /// Width of gpt2, a multiple of 64.
    #[arg(long, default_value_t = 768)]
    pub(crate) width: usize,

    /// Pairs of blocks.
    #[arg(long, default_value_t = 12, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) blocks: usize,

    /// Steps of a block.
    #[arg(long, default_value_t = 20, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub(crate) steps: usize,

    /// Steps before the first block. Their losses are compared.
    #[arg(long, default_value_t = 20)]
    pub(crate) warm_up: usize,

    /// Read the loss at every so many steps, and at the end of a block.
    #[arg(long, default_value_t = 1)]
    pub(crate) read_every: usize,

    /// Run the server in another process.
    #[arg(long)]
    pub(crate) separate: bool,

    /// Only serve, and print the address.
    #[arg(long, hide = true)]
    pub(crate) serve: bool,
}

impl Options {
    pub(crate) fn batch(&self) -> usize {
        self.batch.unwrap_or(match self.model {
            ModelName::Mlp | ModelName::Mnist => 64,
            ModelName::Gpt2 => 8,
        })
    }
}

/// What is measured, in a line.
impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = if self.mixed { ", mixed precision" } else { "" };
        let server = if self.separate { "another process" } else { "this process" };
        write!(f, "{:?} on {:?}{precision}, batch {}, ", self.model, self.backend, self.batch())?;
        write!(f, "the loss read every {} steps, server in {server}", self.read_every)
    }
}

/// Models.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelName {
    /// A perceptron of 784, 64 and 10 features.
    Mlp,
    /// The convolutional network of the example `mnist`.
    Mnist,
    /// GPT-2: 12 layers of 768 features, 124 million parameters.
    Gpt2,
}

/// Backends.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BackendName {
    /// CPU engine with fusion.
    Cpu,
    /// CPU engine without fusion.
    Flex,
    /// NVIDIA GPU. Requires a build with `--features cuda`.
    Cuda,
}
