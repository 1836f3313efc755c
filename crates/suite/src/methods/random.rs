//! Random tensors, with fixed keys: every engine draws the same numbers.

use super::{Method, floats, ints, normal, one, positive, uniform};
use crate::case::Fill;
use kiln_ir::{DType, TensorType};
use kiln_tensor::random::Key;
use kiln_tensor::{AnyTensor, Distribution};

const NONE: &str = "samples have no gradient for their parameters";
const COARSE: &str = "a count or class jumps where engines differ in the last place";

const KEY: Key = Key::new(11);

/// Every distribution, with parameters.
const DISTRIBUTIONS: [(&str, Distribution); 13] = [
    ("default", Distribution::Default),
    ("bernoulli", Distribution::Bernoulli(0.3)),
    ("uniform", Distribution::Uniform(-1.0, 2.0)),
    ("normal", Distribution::Normal(1.0, 2.0)),
    ("truncated normal", Distribution::TruncatedNormal { mean: 0.5, deviation: 1.0, low: -1.0, high: 1.0 }),
    ("log normal", Distribution::LogNormal(0.0, 0.5)),
    ("exponential", Distribution::Exponential(2.0)),
    ("gamma", Distribution::Gamma(2.5, 1.0)),
    ("gamma below 1", Distribution::Gamma(0.5, 1.0)),
    ("beta", Distribution::Beta(2.0, 3.0)),
    ("poisson", Distribution::Poisson(3.0)),
    ("gumbel", Distribution::Gumbel(0.0, 1.0)),
    ("laplace", Distribution::Laplace(0.0, 1.0)),
];

/// A row for a distribution. Row functions are `fn` pointers without captures, so the index in the list is a const
/// generic.
fn drawn<const PLACE: usize>() -> Method {
    let call = |x: &[AnyTensor]| {
        let ty = TensorType::new([3, 5], x[0].dtype());
        one(AnyTensor::random_with_key(ty, DISTRIBUTIONS[PLACE].1, KEY, x[0].stack()))
    };
    Method::new("random_with_key", call).variant(DISTRIBUTIONS[PLACE].0).on(&[normal(&[1])]).within(256.0)
}

pub(super) fn rows() -> Vec<Method> {
    let mut rows = vec![
        drawn::<0>(),
        drawn::<1>(),
        drawn::<2>(),
        drawn::<3>(),
        drawn::<4>(),
        drawn::<5>(),
        drawn::<6>(),
        drawn::<7>(),
        drawn::<8>(),
        drawn::<9>(),
        drawn::<10>(),
        drawn::<11>(),
        drawn::<12>(),
    ];
    rows.extend([
        Method::new("randint", |x| {
            one(AnyTensor::randint(TensorType::new([4, 5], DType::I32), -3..9, KEY, x[0].stack()))
        })
        .on(&[normal(&[1])]),
        Method::new("randperm", |x| one(AnyTensor::randperm(9, KEY, x[0].stack()))).on(&[normal(&[1])]),
        Method::new("shuffle", |x| one(x[0].clone().shuffle(-1, KEY))).on(&[ints(-9, 9, &[2, 6])]),
        Method::new("bernoulli", |x| one(x[0].clone().bernoulli(KEY))).elementwise(Fill::Uniform(0.1, 0.9)),
        Method::new("poisson", |x| one(x[0].clone().poisson(KEY)))
            .on(&[uniform(0.1, 9.0, &[2, 3])])
            .on(&[uniform(11.0, 99.0, &[2, 3])])
            .on(&[floats(&[2, 0], Fill::Positive)])
            .no_half(COARSE),
        Method::new("standard_gamma", |x| one(x[0].clone().standard_gamma(KEY)))
            .elementwise(Fill::Positive)
            .within(256.0),
        Method::new("dirichlet", |x| one(x[0].clone().dirichlet(KEY)))
            .on(&[positive(&[3])])
            .on(&[positive(&[2, 4])])
            .within(256.0),
        Method::new("multinomial", |x| one(x[0].clone().multinomial(2, false, KEY)))
            .on(&[positive(&[4])])
            .on(&[positive(&[3, 4])])
            .no_half(COARSE),
        Method::new("multinomial", |x| one(x[0].clone().multinomial(5, true, KEY)))
            .variant("replacement")
            .on(&[positive(&[4])])
            .on(&[positive(&[3, 4])])
            .no_half(COARSE),
        Method::new("categorical", |x| one(x[0].clone().categorical(3, KEY)))
            .on(&[positive(&[2, 4])])
            .no_half(COARSE),
    ]);
    rows.into_iter().map(|method| method.no_gradient(NONE)).collect()
}
