//! Functions of neural network layers. The typed functions are in [`module`](crate::module).

mod adaptive;
mod attention;
mod conv;
mod deform;
mod dropout;
mod embedding;
mod fractional;
mod interpolate;
mod linear;
mod norm;
mod patches;
mod pool;
mod position;
mod shuffle;

pub use attention::{AttentionOptions, Causal};
pub use deform::DeformConvSpec;
pub use embedding::{BagMode, EmbeddingOptions};
pub use interpolate::{InterpolateMode, InterpolateOptions, InterpolateSize};
pub use norm::{BatchNormOptions, BatchStatistics};
pub use position::RotaryLayout;

use crate::{AnyTensor, Result, Shape};
use alloc::format;
use kiln_ir::Binary;

impl AnyTensor {
    /// Adds or multiplies by one value per channel, axis 1.
    fn by_channel(self, op: &str, function: Binary, numbers: Option<AnyTensor>) -> Result<AnyTensor> {
        let Some(numbers) = numbers else { return Ok(self) };
        let numbers = self.channels(op, numbers)?;
        self.binary(function, numbers)
    }

    /// Reshapes `[channels]` to `[1, channels, 1, ..]`.
    fn channels(&self, op: &str, numbers: AnyTensor) -> Result<AnyTensor> {
        self.check_alike(op, &numbers)?;
        let channels = self.shape()[1];
        if numbers.rank() != 1 || numbers.shape()[0] != channels {
            let problem = format!("expected one number for each of {channels} channels");
            return Err(self.unlike(op, problem, &numbers).hint("channels are axis 1"));
        }
        let shape: Shape = (0..self.rank()).map(|axis| if axis == 1 { channels } else { 1 }).collect();
        numbers.reshape(shape)
    }

    /// Returns an error unless the tensor has this rank.
    fn check_rank_is(&self, op: &str, rank: usize, axes: &str) -> Result<()> {
        if self.rank() == rank {
            return Ok(());
        }
        Err(self.wrong(op, format!("needs {rank} axes")).hint(format!("the axes are {axes}")))
    }
}

/// Returns an error unless a list has one entry per spatial dimension.
fn check_entries(any: &AnyTensor, op: &str, name: &str, entries: usize, axes: usize) -> Result<()> {
    if entries == axes {
        return Ok(());
    }
    Err(any.wrong(op, format!("{name} has {entries} entries for {axes} spatial dimensions")))
}
