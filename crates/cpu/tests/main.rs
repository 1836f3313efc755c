//! The tests of the crate, in one program.

mod against;
mod blocks;
mod composite;
mod contraction;
mod convolution;
mod differential;
mod engine;
mod groups;
mod in_place;
mod index;
mod math;
mod memory_layouts;
mod order;
mod programs;
mod settings;
mod threads;
mod tile;
mod view;
