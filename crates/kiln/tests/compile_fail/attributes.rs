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

#[derive(Config)]
struct Malformed {
    #[config(range = "0 to 1", default = 0.5)]
    share: f64,
}

#[derive(Config)]
struct EmptyRange {
    #[config(range = "[1, 0]", default = 0.5)]
    share: f64,
}

fn main() {}
