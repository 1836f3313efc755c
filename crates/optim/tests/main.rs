//! The tests of the crate, in one program.

mod averages;
mod every;
mod lora;
mod momentum;
mod optimizer;
mod pipeline;
mod refused;
mod rules;
mod schedules;
mod tied;
