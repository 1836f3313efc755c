//! Random tensors, with fixed keys: every engine draws the same numbers.

use super::{Method, floats, ints, normal, one, positive, uniform};
use crate::case::Fill;
use kiln_ir::{Comparison, DType, Reduction, TensorType};
use kiln_tensor::random::Key;
use kiln_tensor::{AnyTensor, Distribution, Result};

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

/// A uniform tensor of a dtype.
fn uniform_of(dtype: DType, low: f64, high: f64, x: &AnyTensor) -> Result<AnyTensor> {
    AnyTensor::random_with_key(
        TensorType::new([256], dtype),
        Distribution::Uniform(low, high),
        KEY,
        x.stack(),
    )
}

/// The number of elements that fulfil a comparison with a number, `i32[1]`.
fn count(x: AnyTensor, comparison: Comparison, number: f64) -> Result<AnyTensor> {
    x.compare_scalar(comparison, number)?.cast(DType::I32)?.reduce_all(Reduction::Sum)
}

/// Many numbers in the dtype of the operand.
fn many(x: &[AnyTensor], distribution: Distribution) -> Result<AnyTensor> {
    let ty = TensorType::new([1 << 16], x[0].dtype());
    AnyTensor::random_with_key(ty, distribution, KEY, x[0].stack())
}

/// Many numbers beside the bounds of their distributions.
fn rims() -> Vec<Method> {
    let below = |x: &[AnyTensor]| {
        let drawn = many(x, Distribution::Uniform(1.0, 2.0))?;
        Ok(vec![count(drawn.clone(), Comparison::Lt, 2.0)?, count(drawn, Comparison::Lt, 1.0)?])
    };
    let rare = |x: &[AnyTensor]| one(count(many(x, Distribution::Bernoulli(0.0002))?, Comparison::Eq, 1.0));
    let dropped = |x: &[AnyTensor]| {
        let ones = AnyTensor::ones(TensorType::new([1 << 16], x[0].dtype()), x[0].stack())?;
        one(count(ones.dropout(0.001, true)?, Comparison::Eq, 0.0))
    };
    let classes = |x: &[AnyTensor]| {
        let weights = x[0].clone().repeat_dim(1, 500)?;
        one(weights.multinomial(64, true, KEY))
    };
    vec![
        Method::new("random_with_key", below).variant("uniform below its bound").on(&[normal(&[1])]),
        Method::new("random_with_key", rare).variant("rare bernoulli").on(&[normal(&[1])]),
        Method::new("dropout", dropped).variant("rare").on(&[normal(&[1])]),
        Method::new("random_with_key", |x| one(uniform_of(DType::I32, -7.0, 1e9, &x[0])))
            .variant("uniform i32")
            .on(&[ints(0, 1, &[1])]),
        Method::new("random_with_key", |x| one(uniform_of(DType::U8, 3.0, 256.0, &x[0])))
            .variant("uniform u8")
            .on(&[ints(0, 1, &[1])]),
        Method::new("random_with_key", |x| one(uniform_of(DType::I64, -1e18, 9e18, &x[0])))
            .variant("uniform i64")
            .on(&[ints(0, 1, &[1])]),
        Method::new("multinomial", classes)
            .variant("many classes")
            .on(&[floats(&[2, 20], Fill::Among(&[0.0, 0.5, 1.0]))]),
    ]
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
            .on(&[positive(&[3, 4])]),
        Method::new("categorical", |x| one(x[0].clone().categorical(3, KEY))).on(&[positive(&[2, 4])]),
    ]);
    rows.extend(rims());
    rows.into_iter().map(|method| method.no_gradient(NONE)).collect()
}
