//! Programs in the form in which Burn's users write them: the paths and names of Burn 0.19 to 0.21 under the crate's other
//! name. The page "Coming from Burn" of the book lists the differences.

mod autoencoder;
mod backends;
mod datasets;
mod elements;
mod generic;
mod inference;
mod lstm;
mod masked_loss;
mod metrics;
mod mnist;
mod optimizers;
mod padding;
mod readme;
mod records;
mod regression;
mod schedules;
mod tensors;
mod training_loop;
mod transformer;
