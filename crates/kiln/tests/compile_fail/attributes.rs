use kiln::nn::{Config, Module, Relu};

#[derive(Module, Debug)]
struct Unknown {
    #[module(skipped)]
    relu: Relu,
}

#[derive(Module, Debug)]
struct Contradiction {
    #[module(skip, attribute)]
    width: usize,
}

#[derive(Module, Debug)]
struct Dotted {
    #[module(rename = "a.b")]
    relu: Relu,
}

#[derive(Module, Debug)]
#[module(display)]
struct Container {
    relu: Relu,
}

#[derive(Config)]
struct Settings {
    #[config(defualt = 3)]
    width: usize,
}

#[derive(Config)]
struct NoValue {
    #[config(default)]
    width: usize,
}

fn main() {}
