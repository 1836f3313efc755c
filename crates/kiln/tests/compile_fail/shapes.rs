use kiln::nn::{Config, Linear, Module};
use kiln::Backend;

#[derive(Module, Debug)]
enum Never {}

#[derive(Module, Debug)]
struct TwoBackends<A: Backend, B: Backend> {
    a: Linear<A>,
    b: Linear<B>,
}

#[derive(Config)]
struct Unnamed(usize);

#[derive(Config)]
enum Choice {
    A {
        #[config(default = 1)]
        width: usize,
    },
}

fn main() {}
