use kiln::nn::{Config, Module};

#[derive(Module)]
union Network {
    a: u32,
    b: f32,
}

#[derive(Config)]
union Settings {
    a: u32,
    b: f32,
}

fn main() {}
