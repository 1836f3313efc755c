use std::collections::HashMap;

use kiln::nn::{Linear, Module, Param};
use kiln::{Backend, Tensor};

#[derive(Clone, Debug)]
struct Plain;

/// A module that cannot be on another backend.
#[derive(Debug)]
struct Fixed;

impl Module for Fixed {
    fn visit(&self, _: &mut kiln::nn::Path, _: &mut dyn kiln::nn::Visitor) {}
    fn visit_mut(&mut self, _: &mut kiln::nn::Path, _: &mut dyn kiln::nn::VisitorMut) {}
}

#[derive(Module, Debug)]
struct Net<B: Backend> {
    linear: Linear<B>,
    weight: Param<Tensor<B, 2>>,
    plain: Plain,                        // ERROR
    bare: Tensor<B, 2>,                  // ERROR
    option: Option<Tensor<B, 1>>,        // ERROR
    list: Vec<Plain>,                    // ERROR
    map: HashMap<String, Linear<B>>,     // ERROR
    pair: (Plain, Linear<B>),            // ERROR
    array: [Tensor<B, 2>; 2],            // ERROR
    #[module(skip)]
    skipped: Plain,
}

#[derive(Module, Debug)]
enum Choice<B: Backend> {
    Linear(Linear<B>),
    Plain(Plain),                        // ERROR
    Named { bare: Tensor<B, 2> },        // ERROR
}

#[derive(Module, Debug)]
struct OnDyn {
    linear: Linear,
    plain: Plain,                        // ERROR
    bare: Tensor<kiln::Dyn, 2>,          // ERROR
}

#[derive(Module, Debug)]
struct Other<B: Backend> {
    linear: Linear<B>,
    fixed: Fixed,                        // ERROR
}

fn main() {}
