//! Recurrent networks with PyTorch's parameters.
//!
//! `unit.rs` defines one step of each kind. `run.rs` computes layers and directions: the input product of all steps is
//! one matmul before the steps. `scan.rs` iterates over the steps.

mod gru;
mod lengths;
mod lstm;
mod options;
mod rnn;
mod run;
mod scan;
mod unit;
mod weights;

pub use gru::{BiGru, BiGruConfig, Gru, GruCell, GruCellConfig, GruConfig};
pub use lengths::{SequenceLengths, pad_sequence, unpad_sequence};
pub use lstm::{BiLstm, BiLstmConfig, Lstm, LstmCell, LstmCellConfig, LstmConfig, LstmState};
pub use options::{GruOptions, LstmOptions};
pub use rnn::{BiRnn, BiRnnConfig, Rnn, RnnCell, RnnCellConfig, RnnConfig};
pub use unit::Nonlinearity;
pub use weights::{RecurrentLayers, RecurrentWeights};
