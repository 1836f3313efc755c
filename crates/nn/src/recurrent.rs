//! Recurrent networks with PyTorch's parameters.
//!
//! `rnn.rs`, `gru.rs` and `lstm.rs` define one step of each kind, as a `Unit`. `layers.rs` and `cell.rs` are the modules of
//! any unit. `run.rs` computes layers and directions: the input product of all steps is one matmul before the steps.
//! `scan.rs` iterates over the steps.

mod cell;
mod gru;
mod layers;
mod lengths;
mod lstm;
mod options;
mod rnn;
mod run;
mod scan;
mod unit;
mod weights;

pub use cell::RecurrentCell;
pub use gru::{BiGru, BiGruConfig, Gru, GruCell, GruCellConfig, GruConfig, GruOptions};
pub use layers::Recurrent;
pub use lengths::{SequenceLengths, pad_sequence, unpad_sequence};
pub use lstm::{BiLstm, BiLstmConfig, Lstm, LstmCell, LstmCellConfig, LstmConfig, LstmOptions, LstmState};
pub use rnn::{BiRnn, BiRnnConfig, Nonlinearity, Rnn, RnnCell, RnnCellConfig, RnnConfig, RnnOptions};
pub use weights::{RecurrentLayers, RecurrentWeights};
