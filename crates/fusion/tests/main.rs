//! The tests of the crate, in one program.

mod casts;
mod changed;
mod columns;
mod complexity;
mod constants;
mod filetests;
mod finish;
mod layer;
mod lengths;
mod modes;
mod products;
mod recover;
mod recurrent;
mod speculative_run;
mod supports;
mod trouble;
