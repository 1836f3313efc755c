//! Matmuls with a bias and an activation: by a library with epilogues, by one without, and without a library.

use crate::host::data;
use crate::host::driver::{Host, Multiplies};
use crate::host::orders::{fused, read, run_region};
use kiln_gpu::Gpu;
use kiln_ir::{
    DType, Engine, FusedOp, Operand, Pattern, Program, Recorder, Scalar, Shape, TensorData, TensorType,
    Value, Var, block_on,
};
use kiln_kernel::match_epilogue;
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::compare::difference;
use std::sync::{LazyLock, Mutex, MutexGuard};

type Engines = Vec<(Multiplies, Gpu<Host>)>;

/// An engine over each kind of library; none without a compiler. The lock serializes tests, which trace steps.
fn engines() -> MutexGuard<'static, Engines> {
    static ENGINES: LazyLock<Mutex<Engines>> = LazyLock::new(|| {
        let kinds = [Multiplies::Never, Multiplies::Plain, Multiplies::Finished];
        let open = |kind| {
            let driver = Host::open()?.multiplying(kind);
            Some((kind, Gpu::new(driver, kiln_ir::MemoryConfig::new())))
        };
        Mutex::new(kinds.into_iter().filter_map(open).collect())
    });
    ENGINES.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    Nothing,
    /// `max(x, number)`.
    Max(f64),
    Gelu,
}

/// `[batch, rows, inner]` by `[batch, inner, columns]`, and the epilogue.
#[derive(Clone, Copy, Debug)]
struct Case {
    sizes: [usize; 4],
    dtype: DType,
    transposed: [bool; 2],
    has_bias: bool,
    after: After,
    /// Whether the epilogue is computed in `f32`, with an `f32` bias.
    widens: bool,
}

impl Case {
    /// The dtype of the ops after the matmul.
    fn computed(&self) -> DType {
        if self.widens { DType::F32 } else { self.dtype }
    }

    fn shape(&self, factor: usize) -> [usize; 3] {
        let [batch, rows, inner, columns] = self.sizes;
        if factor == 0 { [batch, rows, inner] } else { [batch, inner, columns] }
    }

    /// The program of the region: factors, a bias, and scalars.
    fn program(&self) -> Program {
        let [batch, rows, _, columns] = self.sizes;
        let all = Shape::from([batch, rows, columns]);
        let tensor = |shape: Shape| TensorType::new(shape, self.dtype);
        let types = [
            tensor(self.shape(0).into()),
            tensor(self.shape(1).into()),
            TensorType::new(all, self.computed()),
            TensorType::new([], self.computed()),
        ];
        Recorder::trace(&types, |inputs| {
            let mut y = inputs[0].matmul(&inputs[1]);
            if self.widens {
                y = y.cast(DType::F32);
            }
            if self.has_bias {
                y = y + &inputs[2];
            }
            // Layers use other shapes of the rows.
            y = y.reshape([1, batch * rows, columns]);
            let y = match self.after {
                After::Nothing => y,
                After::Max(_) => y.max(&inputs[3].broadcast(y.shape())),
                After::Gelu => gelu(&y),
            };
            vec![if self.widens { y.cast(self.dtype) } else { y }]
        })
    }

    fn number(&self) -> f64 {
        if let After::Max(number) = self.after { number } else { 0.0 }
    }

    /// The region with the pattern of the planner.
    fn region(&self) -> FusedOp {
        let pattern = match_epilogue(&self.program()).map_or(Pattern::Loop, Pattern::Epilogue);
        FusedOp::with_pattern(self.program(), pattern).unwrap()
    }

    /// Its result with a bias.
    fn run(&self, engine: &Gpu<Host>, bias: Value) -> TensorData {
        self.run_as(self.region(), engine, bias)
    }

    /// The result of a region.
    fn run_as(&self, region: FusedOp, engine: &Gpu<Host>, bias: Value) -> TensorData {
        let factor = |place: usize| {
            let [batch, down, across] = self.shape(place);
            let numbers = data(&[batch, down, across], self.dtype, Fill::Normal);
            if !self.transposed[place] {
                return engine.write(numbers);
            }
            let turned = Var::new(engine, engine.write(numbers)).permute(&[0, 2, 1]);
            let turned = turned + 0.0;
            turned.permute(&[0, 2, 1]).into_value()
        };
        let operands = [factor(0), factor(1), bias].map(Operand::Value).into_iter();
        let operands = operands.chain([Operand::Scalar(Scalar::Float(self.number()))]).collect();
        read(engine, run_region(engine, region, operands).remove(0))
    }

    /// The expected result by the reference, in `f64`.
    fn expected(&self, bias: &TensorData) -> TensorData {
        let wide = Case { dtype: DType::F64, widens: false, ..*self };
        let engine = Reference::new();
        let write = |data: &TensorData| engine.write(data.clone().convert(DType::F64));
        let factors = [0, 1].map(|place| write(&data(&self.shape(place), self.dtype, Fill::Normal)));
        let all = Shape::from([self.sizes[0], self.sizes[1], self.sizes[3]]);
        let bias = Var::new(&engine, write(bias)).broadcast(all).into_value();
        let number = engine.write(TensorData::new(vec![self.number()], []).unwrap());
        let inputs = factors.into_iter().chain([bias, number]).collect();
        read(&engine, wide.program().run(&engine, inputs).remove(0)).convert(self.dtype)
    }
}

fn gelu<'e>(x: &Var<'e>) -> Var<'e> {
    let near = x.max(&x.scalar(-30.0));
    let inner = &near + near.square() * &near * 0.044715;
    &near * (((inner * (2.0 / std::f64::consts::PI).sqrt()).tanh() + 1.0) * 0.5)
}

fn row(case: &Case) -> TensorData {
    data(&[case.sizes[3]], case.computed(), Fill::Normal)
}

/// A bias row, broadcast as in regions.
fn seen<'e>(engine: &'e Gpu<Host>, case: &Case, row: &TensorData) -> Var<'e> {
    let [batch, rows, _, columns] = case.sizes;
    Var::new(engine, engine.write(row.clone())).broadcast([batch, rows, columns])
}

/// Compares with the reference; returns the queued steps, without those for operands.
fn check(engine: &Gpu<Host>, case: &Case) -> Vec<String> {
    check_as(case.region(), engine, case)
}

/// Like [`check`], for a region.
fn check_as(region: FusedOp, engine: &Gpu<Host>, case: &Case) -> Vec<String> {
    let row = row(case);
    let bias = seen(engine, case, &row).into_value();
    engine.trace(true);
    let found = case.run_as(region, engine, bias);
    let steps = engine.traced().into_iter().map(|step| step.name);
    engine.trace(false);
    // Stored matmul results have one more rounding.
    let tolerance = Tolerance::Near { relative: 64.0, absolute: 64.0 };
    let problem = difference(&case.expected(&row), &found, tolerance);
    assert!(problem.is_none(), "{case:?}: {}", problem.unwrap_or_default());
    let is_product = |name: &String| ["matmul", "kiln_slim"].iter().any(|it| name.starts_with(it));
    steps.skip_while(|name| !is_product(name)).collect()
}

const SIZES: [[usize; 4]; 5] = [[1, 6, 7, 8], [1, 33, 17, 29], [3, 5, 4, 6], [1, 9, 1, 1], [2, 1, 5, 8]];

const PLAIN: Case = Case {
    sizes: SIZES[0],
    dtype: DType::F32,
    transposed: [false; 2],
    has_bias: true,
    after: After::Max(0.0),
    widens: false,
};

#[test]
fn results_match_the_reference_with_any_library() {
    for (kind, engine) in &*engines() {
        for dtype in [DType::F32, DType::BF16, DType::F16] {
            for after in [After::Nothing, After::Max(0.0), After::Gelu] {
                // Libraries are not exact enough for an `f32` GELU, which runs as a kernel.
                if dtype == DType::F32 && after == After::Gelu {
                    continue;
                }
                for has_bias in [true, after == After::Nothing] {
                    let steps = check(engine, &Case { dtype, has_bias, after, ..PLAIN });
                    let is_one = *kind == Multiplies::Finished;
                    assert_eq!(steps.len() == 1, is_one, "{kind:?} {dtype} {after:?} {has_bias}: {steps:?}");
                }
            }
        }
    }
}

/// As mixed precision records layers. Kernels handle values that may overflow `bf16`.
#[test]
fn an_f32_bias_is_rounded_for_a_bf16_matmul() {
    for (kind, engine) in &*engines() {
        for after in [After::Nothing, After::Max(0.0), After::Gelu] {
            for dtype in [DType::BF16, DType::F16] {
                let steps = check(engine, &Case { dtype, after, widens: true, ..PLAIN });
                let is_one = *kind == Multiplies::Finished && dtype == DType::BF16;
                let becomes = match after {
                    After::Nothing => "-> bf16 + bias",
                    After::Max(_) => "-> bf16 + bias, relu",
                    After::Gelu => "-> bf16 + bias, gelu",
                };
                let is_finished = matches!(&steps[..], [one] if one.ends_with(becomes));
                assert_eq!(is_finished, is_one, "{kind:?} {dtype} {after:?}: {steps:?}");
            }
        }
        check(engine, &Case { dtype: DType::BF16, sizes: SIZES[1], widens: true, ..PLAIN });
        check(engine, &Case { dtype: DType::BF16, sizes: SIZES[3], widens: true, ..PLAIN });
    }
}

#[test]
fn matrices_of_any_layout_and_shape() {
    for (_, engine) in &*engines() {
        for sizes in SIZES {
            for transposed in [[false, false], [true, false], [false, true], [true, true]] {
                check(engine, &Case { sizes, transposed, ..PLAIN });
                check(engine, &Case { sizes, transposed, dtype: DType::BF16, after: After::Gelu, ..PLAIN });
            }
        }
    }
}

/// Factors that no library can read in place: their copies have no alias until the matmul is queued, which the engine
/// asserts of every step.
#[test]
fn non_adjacent_matrices_are_copied() {
    let seen = [[3, 3, 2, 4], [3, 3, 4, 2]];
    let factors = |engine: &dyn Engine| {
        [([3, 1, 2, 4], seen[0]), ([1, 3, 4, 2], seen[1])].map(|(shape, all): ([usize; 4], [usize; 4])| {
            let numbers = engine.write(data(&shape, DType::F32, Fill::Normal));
            Var::new(engine, numbers).broadcast(all).into_value()
        })
    };
    let types = [TensorType::new(seen[0], DType::F32), TensorType::new(seen[1], DType::F32)];
    let number = TensorType::new([], DType::F32);
    let program = Recorder::trace(&[types[0], types[1], number], |inputs| {
        let y = inputs[0].matmul(&inputs[1]);
        vec![y.max(&inputs[2].broadcast(y.shape()))]
    });
    let reference = Reference::new();
    let [a, b] = factors(&reference).map(|value| Var::new(&reference, value));
    let product = a.matmul(&b);
    let positive = read(&reference, product.max(&product.scalar(0.0)).into_value());
    let product = read(&reference, product.into_value());
    let close = |expected: &TensorData, found: Value, engine: &Gpu<Host>| {
        let near = Tolerance::Near { relative: 16.0, absolute: 16.0 };
        let problem = difference(expected, &read(engine, found), near);
        assert!(problem.is_none(), "{}", problem.unwrap_or_default());
    };
    for (_, engine) in &*engines() {
        let [a, b] = factors(engine).map(|value| Var::new(engine, value));
        close(&product, a.matmul(&b).into_value(), engine);
        let operands =
            factors(engine).map(Operand::Value).into_iter().chain([Operand::Scalar(Scalar::Float(0.0))]);
        close(&positive, fused(engine, &program, operands.collect()).remove(0), engine);
    }
}

#[test]
fn traced_steps_name_matmul_epilogues() {
    for (_, engine) in engines().iter().filter(|(kind, _)| *kind == Multiplies::Finished) {
        let steps = check(engine, &PLAIN);
        assert!(matches!(&steps[..], [one] if one.ends_with("-> f32 + bias, relu")), "{steps:?}");
    }
}

/// The engine checks at run time whether the scalar is 0 and the bias a row.
#[test]
fn unsupported_scalars_and_biases_run_as_kernels() {
    for (_, engine) in &*engines() {
        let steps = check(engine, &Case { after: After::Max(0.5), ..PLAIN });
        assert_ne!(steps.len(), 1, "{steps:?}");
        // A bias of the shape of the result, and a column.
        let [_, rows, _, columns] = PLAIN.sizes;
        for shape in [[1, rows, columns], [1, rows, 1]] {
            let numbers = data(&shape, PLAIN.dtype, Fill::Normal);
            let bias = Var::new(engine, engine.write(numbers.clone())).broadcast([1, rows, columns]);
            let found = PLAIN.run(engine, bias.into_value());
            let problem = difference(
                &PLAIN.expected(&numbers),
                &found,
                Tolerance::Near { relative: 64.0, absolute: 64.0 },
            );
            assert!(problem.is_none(), "{}", problem.unwrap_or_default());
        }
    }
}

/// Regions are not searched for patterns: without one, the region runs by kernels, to the same results.
#[test]
fn regions_without_their_pattern_run_by_kernels() {
    for (_, engine) in &*engines() {
        for case in [PLAIN, Case { dtype: DType::BF16, after: After::Gelu, widens: true, ..PLAIN }] {
            let steps = check_as(FusedOp::new(case.program()), engine, &case);
            assert!(steps.iter().all(|step| !step.contains("+ bias")), "{steps:?}");
        }
    }
}

#[test]
fn gemv_like_matmuls_use_the_gemv_kernel() {
    for (_, engine) in &*engines() {
        let steps = check(engine, &Case { sizes: [1, 2, 16, 32], ..PLAIN });
        assert!(steps[0].starts_with("kiln_slim") && steps.len() == 2, "{steps:?}");
    }
}

#[test]
fn empty_matmuls_return_the_bias() {
    for (_, engine) in &*engines() {
        check(engine, &Case { sizes: [1, 6, 0, 8], ..PLAIN });
        check(engine, &Case { sizes: [1, 0, 5, 8], ..PLAIN });
    }
}

#[test]
fn errors_of_a_bias_propagate_to_the_result() {
    for (_, engine) in &*engines() {
        let index =
            |index: i32| Var::new(engine, engine.write(TensorData::new(vec![index; 8], [8]).unwrap()));
        for (at, is_wrong) in [(3, false), (9, true)] {
            let bias = Var::new(engine, engine.write(row(&PLAIN))).take(0, &index(at)).broadcast([1, 6, 8]);
            let factors =
                [0, 1].map(|place| engine.write(data(&PLAIN.shape(place), PLAIN.dtype, Fill::Normal)));
            let operands = factors.into_iter().chain([bias.into_value()]).map(Operand::Value);
            let operands = operands.chain([Operand::Scalar(Scalar::Float(0.0))]).collect();
            let value = fused(engine, &PLAIN.program(), operands).remove(0);
            assert_eq!(block_on(engine.read(value)).is_err(), is_wrong, "{at}");
        }
    }
}
