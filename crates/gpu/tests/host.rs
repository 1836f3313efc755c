//! The engine over a driver that runs kernels on the CPU, as C++ by `g++`. Without a GPU, hand-written kernels are
//! compared with the reference, also at sizes of more than one pass.
//!
//! `cargo test -p kiln-gpu --test gpu host -- --include-ignored` runs the whole suite that way, which takes long.

mod attention;
mod columns;
mod driver;
mod finish;
mod float8;
mod fourier;
mod in_order;
mod indices;
mod joined;
mod library;
mod orders;
mod products;
mod recover;
mod slim;
mod taken;

use driver::Host;
use kiln_gpu::Gpu;
use kiln_ir::{
    Axes, ConvPass, ConvSpec, DType, Engine, Extremum, Memory, Op, Operand, OperandType, Operands, PoolKind,
    PoolSpec, RandomKind, Reduction, ResizeMode, Scalar, TensorData, TensorType, UpdateMode, Value, Var,
    block_on, expanding, infer,
};
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::cases::Group;
use kiln_suite::compare::difference;
use kiln_suite::engines::Subject;
use kiln_suite::fill::{Random, filled};
use kiln_suite::run::{Stack, finish, values};
use std::sync::{Arc, OnceLock};

/// The engine of all tests; `None` without a compiler.
fn host() -> Option<Arc<Gpu<Host>>> {
    static ENGINE: OnceLock<Option<Arc<Gpu<Host>>>> = OnceLock::new();
    let open = || {
        let driver = Host::open();
        if driver.is_none() {
            println!("kernels are neither compiled nor run: there is no g++");
        }
        driver.map(|driver| Arc::new(Gpu::new(driver, kiln_ir::MemoryConfig::new())))
    };
    ENGINE.get_or_init(open).clone()
}

/// The engine whose device has no library, so that block kernels run instead of hand-written CUDA and the library.
fn blocks() -> Option<Arc<Gpu<Host>>> {
    static ENGINE: OnceLock<Option<Arc<Gpu<Host>>>> = OnceLock::new();
    let open = || Some(Arc::new(Gpu::new(Host::open()?.without_library(), kiln_ir::MemoryConfig::new())));
    ENGINE.get_or_init(open).clone()
}

/// Runs an op here, by both sets of kernels, and by the reference.
fn check(op: &Op, inputs: &[TensorData], tolerance: Tolerance) {
    check_with(op, inputs, None, tolerance);
}

fn check_with(op: &Op, inputs: &[TensorData], number: Option<Scalar>, tolerance: Tolerance) {
    let expected = run(&Reference::new(), op, inputs, number);
    for (engine, kernels) in [(host(), "native"), (blocks(), "block")] {
        let Some(engine) = engine else { return };
        let found = run(&*engine, op, inputs, number);
        for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let problem = difference(expected, found, tolerance).unwrap_or_default();
            let types: Vec<String> = inputs.iter().map(|data| data.ty().to_string()).collect();
            assert!(problem.is_empty(), "{op:?} of {types:?}, {kernels} kernels, result {place}: {problem}");
        }
    }
}

fn run(engine: &dyn Engine, op: &Op, inputs: &[TensorData], number: Option<Scalar>) -> Vec<TensorData> {
    let types: Vec<TensorType> = inputs.iter().map(TensorData::ty).collect();
    let of_types = types.iter().map(OperandType::Tensor).chain(number.map(OperandType::Scalar));
    let results = infer(op, &of_types.collect::<Vec<_>>()).unwrap();
    let written = inputs.iter().map(|data| Operand::Value(engine.write(data.clone())));
    let operands: Operands = written.chain(number.map(Operand::Scalar)).collect();
    let values = engine.execute(op, operands, &results);
    let read = |value: Value| block_on(engine.read(value)).unwrap_or_else(|error| panic!("{op:?}: {error}"));
    values.into_iter().map(read).collect()
}

fn data(shape: &[usize], dtype: DType, fill: Fill) -> TensorData {
    filled(TensorType::new(shape, dtype), fill, &mut Random::new("host", shape.len() as u64))
}

const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// Few distinct numbers, for many ties.
const TIES: Fill =
    Fill::Among(&[-2.0, -1.0, -0.0, 0.0, 1.0, 3.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);

const CLOSE: Tolerance = Tolerance::Near { relative: 32.0, absolute: 32.0 };

#[test]
fn random_numbers_match_the_reference() {
    for count in [1, 7, 1030] {
        for key in [Scalar::Int(42), Scalar::UInt(0xdead_beef_0123_4567)] {
            let draw = |dtype: DType, distribution: RandomKind, tolerance: Tolerance| {
                let op = Op::Random { ty: TensorType::new([count], dtype), distribution };
                check_with(&op, &[], Some(key), tolerance);
            };
            for dtype in [DType::U32, DType::I64, DType::I8, DType::U16, DType::U64] {
                draw(dtype, RandomKind::Bits, Tolerance::Bits);
            }
            for dtype in FLOATS {
                draw(dtype, RandomKind::Uniform, Tolerance::Bits);
                // The reference rounds angles of up to 2π to the dtype of 64 bits.
                let absolute = if dtype == DType::F64 { 32.0 } else { 0.0 };
                draw(dtype, RandomKind::Normal, Tolerance::Near { relative: 2.0, absolute });
            }
        }
    }
    let key = TensorData::new(vec![0x0123_4567_89ab_cdefu64], []).unwrap();
    let op = Op::Random { ty: TensorType::new([3, 5], DType::F32), distribution: RandomKind::Uniform };
    check(&op, &[key], Tolerance::Bits);
}

/// Empty results also depend on the index.
#[test]
fn an_index_out_of_range_poisons_empty_results() {
    let Some(driver) = Host::open() else { return };
    let host = Gpu::new(driver, kiln_ir::MemoryConfig::new());
    let reference = Reference::new();
    let bodies: [for<'e> fn(&Var<'e>) -> Var<'e>; 7] = [
        |x| none(x).exp(),
        |x| none(x).apply(Op::Copy, &[]),
        |x| none(x).matmul(&x.permute(&[1, 0])),
        |x| none(x).permute(&[1, 0]).matmul(&none(x)),
        |x| none(x).sum(&[1]),
        |x| none(x).apply(Op::ArgReduce { extremum: Extremum::Max, axis: 1, index: DType::I32 }, &[]),
        |x| {
            let scan = Op::Scan { reduction: Reduction::Sum, axis: 1, reverse: false, exclusive: false };
            none(x).apply(scan, &[])
        },
    ];
    for (number, body) in bodies.into_iter().enumerate() {
        for (last, is_wrong) in [(1, false), (7, true)] {
            let fails = |engine: &dyn Engine| {
                let x = Var::new(engine, engine.write(data(&[3, 4], DType::F32, Fill::Normal)));
                let index = TensorData::new(vec![0i32, 2, last], [3]).unwrap();
                let y = body(&x.take(0, &Var::new(engine, engine.write(index))));
                block_on(engine.read(y.into_value())).is_err()
            };
            assert_eq!((fails(&reference), fails(&host)), (is_wrong, is_wrong), "{number}, index {last}");
        }
    }
}

/// Indices are checked even if no element is moved.
#[test]
fn an_index_out_of_range_is_an_error_even_if_no_element_is_moved() {
    let Some(driver) = Host::open() else { return };
    let host = Gpu::new(driver, kiln_ir::MemoryConfig::new());
    let reference = Reference::new();
    let put = |mode| Op::Put { axis: 0, mode };
    let ops = [
        put(UpdateMode::Set),
        put(UpdateMode::Mul),
        Op::Take { axis: 0 },
        Op::Scatter { axis: 0, mode: UpdateMode::Add },
        Op::Gather { axis: 0 },
    ];
    for op in ops {
        let each = matches!(op, Op::Scatter { .. } | Op::Gather { .. });
        for last in [1, -1, 3] {
            let fails = |engine: &dyn Engine| {
                let write = |data: TensorData| Var::new(engine, engine.write(data));
                let empty = |shape: [usize; 2]| write(TensorData::new(Vec::<f32>::new(), shape).unwrap());
                // An index with an entry for each element has none.
                let index = if each {
                    TensorData::new(Vec::<i32>::new(), [3, 0])
                } else {
                    TensorData::new(vec![0, 2, last], [3])
                };
                let (x, index, source) = (empty([3, 0]), write(index.unwrap()), empty([3, 0]));
                let takes = matches!(op, Op::Take { .. } | Op::Gather { .. });
                let others: &[&Var<'_>] = if takes { &[&index] } else { &[&index, &source] };
                let y = x.apply(op.clone(), others);
                block_on(engine.read(y.into_value())).is_err()
            };
            let is_wrong = !each && last != 1;
            assert_eq!((fails(&reference), fails(&host)), (is_wrong, is_wrong), "{op:?}, {last}");
        }
    }
}

/// A slice without rows.
fn none<'e>(x: &Var<'e>) -> Var<'e> {
    x.slice_axis(0, kiln_ir::SliceAxis { start: 0, len: 0, step: 1 })
}

#[test]
fn an_index_out_of_range_poisons_only_dependent_values() {
    let Some(host) = host() else { return };
    let write = |data: TensorData| Var::new(&*host, host.write(data));
    let list = |indices: Vec<i32>| {
        let len = indices.len();
        write(TensorData::new(indices, [len]).unwrap())
    };
    let read = |y: &Var<'_>| block_on(host.read(y.clone().into_value()));
    for _ in 0..3 {
        let x = write(TensorData::new(vec![1.0f32, 2.0, 3.0], [3]).unwrap());
        let good = x.take(0, &list(vec![2, 0]));
        let bad = x.take(0, &list(vec![3]));
        let (after, worse) = (good.take(0, &list(vec![1])), &bad + &bad);
        for _ in 0..2 {
            assert!(read(&bad).is_err() && read(&worse).is_err());
            assert_eq!(read(&good).unwrap().to_vec::<f32>(), [3.0, 1.0]);
            assert_eq!(read(&after).unwrap().to_vec::<f32>(), [1.0]);
        }
        let one = x.put(0, UpdateMode::Set, &list(vec![1]), &after);
        assert_eq!(read(&one).unwrap().to_vec::<f32>(), [1.0, 1.0, 3.0]);
        assert!(read(&x.put(0, UpdateMode::Set, &list(vec![-1]), &after)).is_err());
    }
}

#[test]
fn sorts_are_stable_at_all_lengths() {
    let index = DType::I32;
    for (shape, axis) in [
        (&[5][..], 0),
        (&[3, 1, 2], 1),
        (&[2, 100, 3], 1),
        (&[70, 33], 1),
        (&[2049], 0),
        (&[2, 5000], 1),
        (&[4500, 2], 0),
        (&[1, 20_000], 1),
    ] {
        for descending in [false, true] {
            let sort = Op::Sort { axis, descending, index };
            check(&sort, &[data(shape, DType::F32, TIES)], Tolerance::Exact);
            let length = shape[axis];
            for k in [0, 1, length / 2, length].into_iter().chain((length > 2048).then_some(600)) {
                let op = Op::TopK { axis, k, largest: descending, index: DType::I64 };
                check(&op, &[data(shape, DType::F32, TIES)], Tolerance::Exact);
            }
        }
    }
}

#[test]
fn every_dtype_sorts() {
    let floats = FLOATS.map(|dtype| (dtype, TIES));
    let ints = [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64];
    let ints = ints.map(|dtype| (dtype, Fill::Special));
    for (dtype, fill) in floats.into_iter().chain(ints).chain([(DType::Bool, Fill::Normal)]) {
        for descending in [false, true] {
            let op = Op::Sort { axis: 1, descending, index: DType::I32 };
            check(&op, &[data(&[3, 2100], dtype, fill)], Tolerance::Exact);
        }
    }
}

/// Long lines of 8 bits are sorted by counting, in chunks of one tile and of several.
#[test]
fn bytes_use_counting_sort() {
    let dtypes = [(DType::U8, Fill::Special), (DType::I8, Fill::Special), (DType::Bool, Fill::Normal)];
    for (number, (dtype, fill)) in dtypes.into_iter().enumerate() {
        for (shape, axis, descending) in [(&[2, 5000][..], 1, number == 0), (&[2049, 2], 0, number != 0)] {
            let sort = Op::Sort { axis, descending, index: DType::I64 };
            check(&sort, &[data(shape, dtype, fill)], Tolerance::Exact);
        }
        let op = Op::TopK { axis: 0, k: 1500, largest: true, index: DType::I32 };
        check(&op, &[data(&[3000], dtype, fill)], Tolerance::Exact);
    }
    let Some(driver) = Host::open() else { return };
    let (host, length) = (Gpu::new(driver, kiln_ir::MemoryConfig::new()), (2 << 20) + 5000);
    let bytes: Vec<u8> = (0..length).map(|i: usize| (i * i / 7) as u8).collect();
    let mut expected: Vec<usize> = (0..length).collect();
    expected.sort_by_key(|&i| bytes[i]);
    let ty = TensorType::new([length], DType::U8);
    let sort = Op::Sort { axis: 0, descending: false, index: DType::I32 };
    let x = Operand::Value(host.write(TensorData::new(bytes, [length]).unwrap()));
    host.reset_peak();
    let before = host.usage().live_bytes;
    let found = host.execute(&sort, [x].into_iter().collect(), &[ty, ty.with_dtype(DType::I32)]);
    // Values and indices take 5 bytes for each element.
    let taken = host.usage().peak_live_bytes - before;
    assert!(taken < 7 * length, "{taken}");
    let indices = block_on(host.read(found[1].clone())).unwrap().to_vec::<i32>();
    assert!(indices.iter().zip(&expected).all(|(a, b)| *a as usize == *b));
}

#[test]
fn scans_longer_than_a_tile() {
    let reductions = [Reduction::Sum, Reduction::Prod, Reduction::Min, Reduction::Max];
    for (shape, axis) in
        [(&[7][..], 0), (&[2, 2048, 2], 1), (&[2049, 2], 0), (&[5, 5000, 1], 1), (&[4097, 3], 1)]
    {
        for (number, reduction) in reductions.into_iter().enumerate() {
            let op = Op::Scan { reduction, axis, reverse: number % 2 == 1, exclusive: number / 2 == 1 };
            check(&op, &[data(shape, DType::I32, Fill::Normal)], Tolerance::Bits);
            let op = Op::Scan { reduction, axis, reverse: number % 2 == 0, exclusive: number % 3 == 0 };
            check(
                &op,
                &[data(shape, DType::F64, Fill::Uniform(0.999, 1.001))],
                Tolerance::Near { relative: 1e5, absolute: 0.0 },
            );
        }
    }
    for dtype in [DType::F32, DType::F16, DType::BF16, DType::I8, DType::U8, DType::I64, DType::U64] {
        for reduction in [Reduction::Min, Reduction::Max] {
            let op = Op::Scan { reduction, axis: 0, reverse: false, exclusive: true };
            check(&op, &[data(&[2500], dtype, Fill::Special)], Tolerance::Exact);
        }
    }
    let op = Op::Scan { reduction: Reduction::Sum, axis: 0, reverse: false, exclusive: false };
    check(&op, &[data(&[40], DType::BF16, Fill::Among(&[1.0, 2.0]))], Tolerance::Exact);
    check(&op, &[data(&[5000], DType::I8, Fill::Normal)], Tolerance::Bits);
}

#[test]
fn scans_of_many_columns() {
    for (shape, axis) in [(&[2, 9, 2100][..], 1), (&[5000, 6], 1)] {
        let op = Op::Scan { reduction: Reduction::Sum, axis, reverse: true, exclusive: true };
        check(&op, &[data(shape, DType::I64, Fill::Normal)], Tolerance::Bits);
    }
}

#[test]
fn argmin_and_argmax_of_all_lengths() {
    for (shape, axis) in [
        (&[5][..], 0),
        (&[3, 40, 5], 1),
        (&[50, 70], 0),
        (&[3, 40, 70], 1),
        (&[1, 70_000], 1),
        (&[70_000, 2], 0),
        (&[3, 0, 2], 0),
        (&[3, 0, 0], 1),
    ] {
        for extremum in [Extremum::Min, Extremum::Max] {
            let op = Op::ArgReduce { extremum, axis, index: DType::I64 };
            check(&op, &[data(shape, DType::F32, TIES)], Tolerance::Exact);
            check(&op, &[data(shape, DType::F32, Fill::Normal)], Tolerance::Exact);
            check(&op, &[data(shape, DType::I8, Fill::Normal)], Tolerance::Exact);
            check(&op, &[data(shape, DType::BF16, Fill::Among(&[1.0, 2.0]))], Tolerance::Exact);
        }
    }
}

/// Specs with strides, padding, overhang and dilation, and the shapes that they pool.
fn pools(kind: PoolKind) -> Vec<(PoolSpec, Vec<usize>)> {
    let spec =
        |window: &[usize], stride: &[usize], padding: &[(usize, usize)], overhang: &[usize]| PoolSpec {
            stride: stride.to_vec(),
            padding: padding.to_vec(),
            overhang: overhang.to_vec(),
            ..PoolSpec::new(kind, window)
        };
    let mut pools = vec![
        (PoolSpec::new(kind, &[2, 2]), vec![2, 3, 8, 6]),
        (spec(&[3, 3], &[2, 2], &[(1, 1), (1, 1)], &[0, 0]), vec![2, 3, 9, 8]),
        (spec(&[3], &[2], &[(1, 0)], &[1]), vec![1, 4, 10]),
        (spec(&[2, 3, 2], &[1, 2, 3], &[(0, 1), (1, 1), (1, 0)], &[0, 1, 1]), vec![2, 1, 4, 7, 6]),
    ];
    if kind == PoolKind::Max {
        let mut dilated = spec(&[3, 2], &[1, 2], &[(1, 1), (0, 0)], &[0, 0]);
        dilated.dilation = vec![2, 3];
        pools.push((dilated, vec![2, 2, 9, 8]));
    }
    pools
}

#[test]
fn pooling_and_its_gradients() {
    let average = |include_padding| PoolKind::Average { include_padding };
    for kind in [PoolKind::Max, average(false), average(true)] {
        for (spec, shape) in pools(kind) {
            for dtype in [DType::F32, DType::F16] {
                let x = data(&shape, dtype, Fill::Among(&[1.0, 2.0, -3.0, 0.5]));
                let pool = Op::Pool(spec.clone());
                check(&pool, std::slice::from_ref(&x), CLOSE);
                let y = infer(&pool, &[OperandType::Tensor(&x.ty())]).unwrap()[0];
                let grad = data(&y.shape, dtype, Fill::Among(&[1.0, -2.0, 0.5]));
                let op = Op::PoolGrad { spec: spec.clone(), size: shape[2..].to_vec() };
                if kind == PoolKind::Max {
                    check(&op, &[grad, x], CLOSE);
                } else {
                    check(&op, &[grad], CLOSE);
                }
            }
        }
    }
    let op = Op::Pool(PoolSpec::new(PoolKind::Max, &[2]));
    check(&op, &[data(&[1, 2, 9], DType::I8, Fill::Special)], Tolerance::Bits);
    check(&op, &[data(&[1, 2, 9], DType::F32, TIES)], Tolerance::Exact);
}

/// A channels-last tensor: axis 1 is innermost in memory.
fn channels_last(host: &Gpu<Host>, data: &TensorData) -> Value {
    let order: Vec<usize> = [0].into_iter().chain(2..data.shape().len()).chain([1]).collect();
    permuted(host, data, &order)
}

/// A tensor whose memory has its axes in `order`, outermost first, as a permuted view.
fn permuted(host: &Gpu<Host>, data: &TensorData, order: &[usize]) -> Value {
    let reference = Reference::new();
    let turned = Var::new(&reference, reference.write(data.clone())).permute(order);
    let turned = block_on(reference.read(turned.into_value())).unwrap();
    let back: Vec<usize> = Axes::new(order).inverse().iter().collect();
    Var::new(host, host.write(turned)).permute(&back).into_value()
}

/// Runs an op on channels-last tensors and compares with the reference.
fn check_channels_last(op: &Op, inputs: &[TensorData], tolerance: Tolerance) {
    let Some(host) = host() else { return };
    let types: Vec<TensorType> = inputs.iter().map(TensorData::ty).collect();
    let results = infer(op, &types.iter().map(OperandType::Tensor).collect::<Vec<_>>()).unwrap();
    let operands = inputs.iter().map(|data| Operand::Value(channels_last(&host, data))).collect();
    let values = host.execute(op, operands, &results);
    let expected = run(&Reference::new(), op, inputs, None);
    for (place, (expected, value)) in expected.iter().zip(values).enumerate() {
        let found = block_on(host.read(value)).unwrap_or_else(|error| panic!("{op:?}: {error}"));
        let problem = difference(expected, &found, tolerance);
        assert!(problem.is_none(), "{op:?} of {types:?}, result {place}: {}", problem.unwrap_or_default());
    }
}

#[test]
fn channels_last_pooling() {
    let average = |include_padding| PoolKind::Average { include_padding };
    for kind in [PoolKind::Max, average(false), average(true)] {
        for (spec, mut shape) in pools(kind) {
            for (dtype, channels) in
                [(DType::F32, 3), (DType::F32, 4), (DType::BF16, 16), (DType::F16, 6), (DType::F64, 2)]
            {
                shape[1] = channels;
                let x = data(&shape, dtype, Fill::Among(&[1.0, 2.0, -3.0, 0.5]));
                let pool = Op::Pool(spec.clone());
                check_channels_last(&pool, std::slice::from_ref(&x), CLOSE);
                let y = infer(&pool, &[OperandType::Tensor(&x.ty())]).unwrap()[0];
                let grad = data(&y.shape, dtype, Fill::Among(&[1.0, -2.0, 0.5]));
                let op = Op::PoolGrad { spec: spec.clone(), size: shape[2..].to_vec() };
                let operands = if kind == PoolKind::Max { vec![grad, x] } else { vec![grad] };
                check_channels_last(&op, &operands, CLOSE);
            }
        }
    }
    let op = Op::Pool(PoolSpec::new(PoolKind::Max, &[2]));
    check_channels_last(&op, &[data(&[1, 32, 9], DType::I8, Fill::Special)], Tolerance::Bits);
    check_channels_last(&op, &[data(&[2, 8, 9], DType::F32, TIES)], Tolerance::Exact);
    check_channels_last(&op, &[data(&[0, 8, 9], DType::F32, TIES)], Tolerance::Exact);
}

#[test]
fn resize_up_and_down() {
    for mode in [ResizeMode::Nearest, ResizeMode::Linear, ResizeMode::Cubic] {
        for align_corners in [false, true] {
            for (shape, size) in
                [(&[2, 2, 5][..], &[11][..]), (&[1, 3, 6, 9], &[3, 13]), (&[1, 1, 3, 4, 5], &[5, 1, 7])]
            {
                for dtype in [DType::F32, DType::BF16] {
                    let op = Op::Resize { mode, size: size.to_vec(), align_corners };
                    check(&op, &[data(shape, dtype, Fill::Normal)], CLOSE);
                }
            }
        }
    }
}

#[test]
fn library_convolutions_keep_the_memory_layout() {
    let specs = [
        // Symmetric padding, asymmetric padding, groups, one axis, and cases that the library lacks.
        (
            ConvSpec { padding: vec![(1, 1), (0, 0)], stride: vec![2, 1], ..ConvSpec::new(2) },
            [2, 4, 6, 5],
            [3, 4, 3, 2],
        ),
        (
            ConvSpec { padding: vec![(1, 0), (0, 2)], dilation: vec![2, 1], ..ConvSpec::new(2) },
            [2, 4, 6, 5],
            [3, 4, 2, 3],
        ),
        (ConvSpec { groups: 2, ..ConvSpec::new(2) }, [1, 4, 4, 4], [6, 2, 3, 3]),
        (ConvSpec { padding: vec![(2, 1)], stride: vec![2], ..ConvSpec::new(1) }, [2, 4, 9, 0], [3, 4, 3, 0]),
        (ConvSpec::new(2), [1, 5, 4, 4], [2, 5, 3, 3]),
        // Transposed in whole tiles.
        (ConvSpec::new(2), [2, 8, 12, 8], [72, 8, 5, 1]),
        // Few channels.
        (
            ConvSpec { padding: vec![(1, 1), (1, 1)], stride: vec![2, 2], ..ConvSpec::new(2) },
            [2, 3, 9, 8],
            [4, 3, 3, 3],
        ),
        (ConvSpec { padding: vec![(1, 0)], ..ConvSpec::new(1) }, [3, 1, 9, 0], [2, 1, 4, 0]),
    ];
    for (spec, x, w) in specs {
        for dtype in [DType::F32, DType::BF16] {
            let rank = spec.stride.len() + 2;
            let fill = Fill::Among(&[1.0, -2.0, 0.5, 3.0]);
            let (x, w) = (data(&x[..rank], dtype, fill), data(&w[..rank], dtype, fill));
            let op = |pass| Op::Conv { spec: spec.clone(), pass };
            let forward = op(ConvPass::Forward);
            let types = [OperandType::Tensor(&x.ty()), OperandType::Tensor(&w.ty())];
            let y = data(&infer(&forward, &types).unwrap()[0].shape, dtype, fill);
            let input = op(ConvPass::Input { size: x.shape()[2..].to_vec() });
            let weight = op(ConvPass::Weight { size: w.shape()[2..].to_vec() });
            for (op, inputs) in [(forward, [&x, &w]), (input, [&y, &w]), (weight, [&x, &y])] {
                let inputs = inputs.map(TensorData::clone);
                check(&op, &inputs, CLOSE);
                check_channels_last(&op, &inputs, CLOSE);
            }
        }
    }
}

fn subject() -> Arc<dyn Engine> {
    match host() {
        Some(host) => expanding(host),
        None => expanding(Arc::new(Reference::new())),
    }
}

macro_rules! groups {
    ($($test:ident $group:ident,)*) => {$(
        #[test]
        #[ignore = "compiles thousands of kernels"]
        fn $test() {
            let subject = Subject { name: "gpu over the processor", open: subject, ignored: &[] };
            finish(values(&[(subject, Stack::Plain)], Group::$group));
        }
    )*};
}

groups! {
    nothing Nothing,
    unary Unary,
    binary Binary,
    view View,
    reduce Reduce,
    index Index,
    contraction Contraction,
    composite Composite,
    edge Edge,
}
