//! Positional encodings.

mod alibi;
mod frequencies;
mod learned;
mod relative;
mod rotary;
mod sinusoidal;
mod table;

pub use alibi::{Alibi, AlibiConfig, alibi_slopes};
pub use frequencies::RotaryScaling;
pub use learned::{LearnedPositionalEncoding, LearnedPositionalEncodingConfig};
pub use relative::{RelativePositionBias, RelativePositionBiasConfig};
pub use rotary::{RotaryAngles, RotaryEncoding, RotaryEncodingConfig};
pub use sinusoidal::{PositionalEncoding, PositionalEncodingConfig};
