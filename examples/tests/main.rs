//! The tests of the crate, in one program.

mod guide;
mod mnist;
mod pretrained;
mod wgan;
