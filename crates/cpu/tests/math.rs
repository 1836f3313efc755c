//! The `f32` functions against those of `libm` in `f64`, in units in the last place.

use kiln_cpu::Cpu;
use kiln_ir::number::Number;
use kiln_ir::{
    Binary, DType, Engine, Op, Operand, OperandType, Operands, TensorData, Unary, block_on, infer,
};

fn run(cpu: &Cpu, op: &Op, inputs: &[Vec<f32>]) -> Vec<f32> {
    let inputs: Operands =
        inputs.iter().map(|x| Operand::Value(cpu.write(TensorData::from(x.clone())))).collect();
    let types = infer(op, &OperandType::list(&inputs)).unwrap();
    let y = cpu.execute(op, inputs, &types).remove(0);
    block_on(cpu.read(y)).unwrap().into_vec().unwrap()
}

/// The distance of `y` from `exact`, in units in the last place of the nearest `f32`.
fn ulps(y: f32, exact: f64) -> f64 {
    let nearest = exact as f32;
    if y.is_nan() && exact.is_nan() || y == nearest {
        return 0.0;
    }
    if !y.is_finite() || !nearest.is_finite() {
        return f64::INFINITY;
    }
    let above = f32::from_bits(nearest.abs().to_bits() + 1);
    (f64::from(y) - exact).abs() / f64::from(above - nearest.abs())
}

/// Every 4,099th float, some thousand floats near zero and one, and special values.
fn samples() -> Vec<f32> {
    let spread = (0..u32::MAX / 4099).map(|i| f32::from_bits(i * 4099));
    let near = (-20_000..20_000).flat_map(|i| [i as f32 * 1e-3, i as f32 * 1e-4, 1.0 + i as f32 * 1e-6]);
    let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MIN_POSITIVE];
    spread.chain(near).chain(special).chain([f32::from_bits(1), f32::MAX, f32::MIN]).collect()
}

fn check(function: Unary, exact: fn(f64) -> f64, bound: f64) {
    let x = samples();
    let y = run(&Cpu::new(), &Op::Unary(function), std::slice::from_ref(&x));
    let mut worst = (0.0, 0.0);
    for (&x, &y) in x.iter().zip(&y) {
        let error = ulps(y, exact(f64::from(x)));
        if error > worst.0 {
            worst = (error, x);
        }
    }
    println!("{}: {:.3} units at {:e}", function.name(), worst.0, worst.1);
    assert!(worst.0 <= bound, "{}: {} units at {:e}", function.name(), worst.0, worst.1);
}

#[test]
fn functions_are_accurate() {
    check(Unary::Exp, libm::exp, 2.0);
    check(Unary::Expm1, libm::expm1, 3.0);
    check(Unary::Ln, libm::log, 2.0);
    check(Unary::Log1p, libm::log1p, 3.0);
    check(Unary::Tanh, libm::tanh, 2.0);
    check(Unary::Erf, libm::erf, 2.0);
    check(Unary::Erfcx, |x| x.unary(Unary::Erfcx, DType::F64), 5.0);
    check(Unary::Sin, libm::sin, 2.0);
    check(Unary::Cos, libm::cos, 2.0);
    check(Unary::Tan, libm::tan, 4.0);
    check(Unary::Atan, libm::atan, 2.0);
    check(Unary::Sqrt, libm::sqrt, 0.5);
    check(Unary::Rsqrt, |x| 1.0 / libm::sqrt(x), 1.5);
}

/// The scaled complementary error function, from mpmath 1.3 with 60 digits.
const ERFCX: [(f64, f64); 23] = [
    (-26.5, 1.924553162418569e+305),
    (-20.0, 1.0442939379528289e+174),
    (-8.25, 7.247665983558231e+29),
    (-3.0, 16205.988853999586),
    (-1.0, 5.008980080762283),
    (-0.1, 1.1236433541992095),
    (-1e-10, 1.000000000112838),
    (0.0, 1.0),
    (1e-10, 0.999999999887162),
    (0.1, 0.8964569799691267),
    (0.5, 0.6156903441929259),
    (1.0, 0.427583576155807),
    (2.0, 0.25539567631050575),
    (3.0, 0.17900115118138996),
    (5.5, 0.10096221839949909),
    (10.0, 0.05614099274382259),
    (24.9, 0.022639987776049506),
    (25.0, 0.02254957243264136),
    (26.0, 0.021683584850562907),
    (40.0, 0.014100335983377814),
    (1000.0, 0.0005641893014533876),
    (10000000000.0, 5.641895835477563e-11),
    (1e+200, 5.641895835477563e-201),
];

#[test]
fn erfcx_of_f64_matches_mpmath() {
    let cpu = Cpu::new();
    let special = [(-27.0, f64::INFINITY), (f64::NEG_INFINITY, f64::INFINITY), (f64::INFINITY, 0.0)];
    for (x, expected) in ERFCX.into_iter().chain(special) {
        let operands: Operands = [Operand::Value(cpu.write(TensorData::from(vec![x])))].into_iter().collect();
        let op = Op::Unary(Unary::Erfcx);
        let types = infer(&op, &OperandType::list(&operands)).unwrap();
        let y = block_on(cpu.read(cpu.execute(&op, operands, &types).remove(0))).unwrap().to_vec::<f64>()[0];
        for y in [y, x.unary(Unary::Erfcx, DType::F64)] {
            let near = y == expected || (y / expected - 1.0).abs() <= 8.0 * f64::EPSILON;
            assert!(near, "erfcx({x}) is {expected}, not {y}");
        }
    }
}

#[test]
fn atan2_is_accurate() {
    let parts = [0.0, -0.0, 1.0, -1.0, 0.3, -7.5, 1e-30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let (mut y, mut x) = (Vec::new(), Vec::new());
    for a in parts {
        for b in parts {
            y.push(a);
            x.push(b);
        }
    }
    let angles = run(&Cpu::new(), &Op::Binary(Binary::Atan2), &[y.clone(), x.clone()]);
    for i in 0..angles.len() {
        let exact = libm::atan2(f64::from(y[i]), f64::from(x[i]));
        let same_sign = angles[i].is_nan() || angles[i].is_sign_negative() == exact.is_sign_negative();
        assert!(ulps(angles[i], exact) <= 2.0 && same_sign, "atan2({}, {}) = {}", y[i], x[i], angles[i]);
    }
}

#[test]
fn float_sums_are_accurate() {
    let cpu = Cpu::new();
    let x: Vec<f32> = (0..1_000_003).map(|i| 0.1 + (i % 7) as f32 * 1e-3).collect();
    let exact: f64 = x.iter().map(|&x| f64::from(x)).sum();
    let op = Op::Reduce { reduction: kiln_ir::Reduction::Sum, axes: kiln_ir::Axes::one(0) };
    let sum = run(&cpu, &op, &[x])[0];
    assert!(ulps(sum, exact) <= 1.0, "{sum} is not {exact}");
    // A sum of ones accumulated in bf16 would stop at 256.
    let ones = cpu.write(TensorData::from(vec![1.0f32; 5000]).convert(DType::BF16));
    let ones: Operands = [Operand::Value(ones)].into_iter().collect();
    let types = infer(&op, &OperandType::list(&ones)).unwrap();
    let sum = block_on(cpu.read(cpu.execute(&op, ones, &types).remove(0))).unwrap();
    assert_eq!(sum.to_vec::<f32>(), TensorData::from([5000.0f32]).convert(DType::BF16).to_vec::<f32>());
}
