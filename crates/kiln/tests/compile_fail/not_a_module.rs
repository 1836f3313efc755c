use kiln::nn::{Linear, Module};
use kiln::{Backend, Tensor};

#[derive(Clone, Debug)]
struct Plain;

#[derive(Module, Debug)]
struct Net<B: Backend> {
    linear: Linear<B>,
    plain: Plain,
}

#[derive(Module, Debug)]
struct Bare<B: Backend> {
    weight: Tensor<B, 2>,
}

fn main() {}
