//! WGSL of kernels with every function of every dtype, validated by naga.

use kiln_ir::{Binary, Comparison, DType, DTypeSet, Reduction, Scalar, Unary};
use kiln_kernel::print::{Dialect, EntryParameter, GpuArgument, Printed, Target, print, split_tensors};
use kiln_kernel::{
    Axis, Compute, GpuSchedule, Instruction, Kernel, KernelKind, Launch, Param, ParamKind, StrideClass,
};

/// Validates a module, and its form with all tensors in parts.
fn validate(printed: &Printed) {
    let text = &printed.text;
    validate_text(text);
    let split = split_tensors(text, &[2, 3, 4, 5, 2, 3, 4, 5], 1 << 27);
    validate_text(&split.unwrap_or_else(|lack| panic!("{lack}\n{text}")));
}

fn validate_text(text: &str) {
    let module = naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|error| panic!("{}\n{text}", error.emit_to_string(text)));
    let flags = naga::valid::ValidationFlags::all();
    let mut validator = naga::valid::Validator::new(flags, naga::valid::Capabilities::all());
    if let Err(error) = validator.validate(&module) {
        panic!("{}\n{text}", error.emit_to_string(text));
    }
}

/// A map of one input to one output, with these instructions between load and store.
fn map(from: DType, to: DType, instructions: &[Instruction]) -> Kernel {
    let param = |kind, dtype| Param { kind, dtype, strides: vec![StrideClass::One] };
    let mut body = vec![Instruction { compute: Compute::Load(0), dtype: from }];
    body.extend(instructions);
    let last = body.len() as u32 - 1;
    body.push(Instruction { compute: Compute::Store(1, last), dtype: to });
    let params = vec![param(ParamKind::Input, from), param(ParamKind::Output, to)];
    Kernel { kind: KernelKind::Map, axes: vec![Axis::Parallel], params, body }
}

fn printed(kernel: &Kernel, aliases: &[(u32, u32)]) -> Printed {
    kiln_kernel::verify(kernel).unwrap_or_else(|error| panic!("{error}\n{kernel}"));
    let launch: Launch = "launch [4096] (%0: 0 [1], %1: 0 [1])".parse().unwrap();
    let schedule = GpuSchedule::choose(kernel, &launch);
    print(kernel, &schedule, &Target::new(Dialect::Wgsl), aliases).unwrap()
}

fn check(kernel: &Kernel) {
    validate(&printed(kernel, &[]));
    let [from, to] = [kernel.params[0].dtype, kernel.params[1].dtype];
    if from.size() == to.size() {
        let aliased = printed(kernel, &[(0, 1)]);
        assert!(!aliased.arguments.contains(&GpuArgument::Tensor(0)), "{}", aliased.text);
        validate(&aliased);
    }
}

#[test]
fn casts_are_valid() {
    for from in DType::ALL {
        for to in DType::ALL {
            check(&map(from, to, &[Instruction { compute: Compute::Cast(0), dtype: to }]));
        }
    }
}

#[test]
fn functions_are_valid() {
    for dtype in DType::ALL {
        for function in Unary::ALL.iter().copied().filter(|function| function.info().domain.contains(dtype)) {
            check(&map(dtype, dtype, &[Instruction { compute: Compute::Unary(function, 0), dtype }]));
        }
        for function in Binary::ALL.iter().copied().filter(|function| function.info().domain.contains(dtype))
        {
            check(&map(dtype, dtype, &[Instruction { compute: Compute::Binary(function, 0, 0), dtype }]));
        }
        for comparison in [Comparison::Eq, Comparison::Ne, Comparison::Lt, Comparison::Le] {
            let compute = Compute::Compare(comparison, 0, 0);
            check(&map(dtype, DType::Bool, &[Instruction { compute, dtype: DType::Bool }]));
        }
    }
}

#[test]
fn floats_do_not_depend_on_the_functions_of_drivers() {
    let f32_of = |compute| map(DType::F32, DType::F32, &[Instruction { compute, dtype: DType::F32 }]);
    for function in [Unary::Sin, Unary::Cos, Unary::Tan, Unary::Sqrt] {
        let text = printed(&f32_of(Compute::Unary(function, 0)), &[]).text;
        assert!(text.contains(&format!("= kiln_{}(v0);", function.info().name)), "{text}");
    }
    let text = printed(&f32_of(Compute::Unary(Unary::Rsqrt, 0)), &[]).text;
    assert!(text.contains("= kiln_div(1.0f, kiln_sqrt(v0));"), "{text}");
    let text = printed(&f32_of(Compute::Binary(Binary::Div, 0, 0)), &[]).text;
    assert!(text.contains("= kiln_div(v0, v0);"), "{text}");
    let text = printed(&f32_of(Compute::Binary(Binary::Sub, 0, 0)), &[]).text;
    assert!(text.contains("= kiln_minus_itself(v0);"), "{text}");
    let to_bool = Instruction { compute: Compute::Cast(0), dtype: DType::Bool };
    let text = printed(&map(DType::F32, DType::Bool, &[to_bool]), &[]).text;
    assert!(text.contains("= (bitcast<u32>(v0) & 0x7fffffffu) != 0u;"), "{text}");
}

#[test]
fn constants_are_valid() {
    let floats = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e-310, -1.5, 1e300];
    let ints = [i64::MIN, i64::MAX, -1, 0];
    for dtype in DType::ALL {
        let floats = floats.map(Scalar::Float).into_iter().filter(|_| dtype.is_float());
        let ints = ints.map(Scalar::Int).into_iter().filter(|int| !dtype.is_float() && int.fits(dtype));
        for scalar in floats.chain(ints) {
            let constant = Instruction { compute: Compute::Constant(scalar), dtype };
            let greater = Instruction { compute: Compute::Binary(Binary::Max, 0, 1), dtype };
            check(&map(dtype, dtype, &[constant, greater]));
        }
    }
}

#[test]
fn reductions_are_valid() {
    let rows = [Axis::Parallel, Axis::Reduce];
    let columns = [Axis::Reduce, Axis::Parallel];
    for dtype in DType::ALL.into_iter().filter(|dtype| !matches!(dtype, DType::F16 | DType::BF16)) {
        let reduction = if dtype.is_bool() { Reduction::Max } else { Reduction::Sum };
        for (kind, axes) in [(KernelKind::RowReduce, rows), (KernelKind::ColReduce, columns)] {
            let strides = vec![StrideClass::Any, StrideClass::One];
            let kept = |axis: Axis| if axis == Axis::Reduce { StrideClass::Zero } else { StrideClass::One };
            let params = vec![
                Param { kind: ParamKind::Input, dtype, strides },
                Param { kind: ParamKind::Output, dtype, strides: axes.map(kept).to_vec() },
            ];
            let body = vec![
                Instruction { compute: Compute::Load(0), dtype },
                Instruction { compute: Compute::Reduce(reduction, 0), dtype },
                Instruction { compute: Compute::Store(1, 1), dtype },
            ];
            let kernel = Kernel { kind, axes: axes.to_vec(), params, body };
            let strides = if kind == KernelKind::RowReduce { "1, 0" } else { "0, 1" };
            let launch = format!("launch [64, 65536] (%0: 0 [65536, 1], %1: 0 [{strides}])");
            let launch: Launch = launch.parse().unwrap();
            let chosen = GpuSchedule::choose(&kernel, &launch);
            let limited = chosen.limited(&kernel, &launch, 256, 16 << 10, Some(8)).unwrap();
            assert!(limited.suits(&kernel, &launch), "{limited}\n{kernel}");
            for schedule in [chosen, limited] {
                let printed = print(&kernel, &schedule, &Target::new(Dialect::Wgsl), &[]).unwrap();
                validate(&printed);
                // Drivers read arrays of bool in shared memory wrongly.
                assert!(!printed.text.contains("array<bool"), "{}", printed.text);
            }
            let bound = chosen.limited(&kernel, &launch, 256, 16 << 10, Some(2)).unwrap();
            assert_eq!(bound.splits, 1);
        }
    }
}

#[test]
fn a_target_without_64_bits_names_the_dtype() {
    let kernel = map(DType::F64, DType::F32, &[Instruction { compute: Compute::Cast(0), dtype: DType::F32 }]);
    let launch: Launch = "launch [4096] (%0: 0 [1], %1: 0 [1])".parse().unwrap();
    let schedule = GpuSchedule::choose(&kernel, &launch);
    let target = Target { dtypes: DTypeSet::of(&[DType::F32]), ..Target::new(Dialect::Wgsl) };
    let error = print(&kernel, &schedule, &target, &[]).unwrap_err();
    assert_eq!(error.lacks, ["f64"]);
}

#[test]
fn parts_of_tensors_are_bindings_of_their_own() {
    let cast = Instruction { compute: Compute::Cast(0), dtype: DType::F32 };
    let text = printed(&map(DType::U8, DType::F32, &[cast]), &[]).text;
    assert_eq!(split_tensors(&text, &[], 1 << 27).unwrap().matches("@binding(").count(), 3);
    let split = split_tensors(&text, &[2, 3], 1 << 27).unwrap();
    assert_eq!(split.matches("var<storage, read> p0_part").count(), 2);
    assert_eq!(split.matches("var<storage, read_write> p1_part").count(), 3);
    assert!(split.contains("@group(0) @binding(5) var<uniform> launch"), "{split}");
    // Elements are words of four `u8`, and vectors of four `f32`.
    assert_eq!((split.matches("at >> 25u").count(), split.matches("at >> 23u").count()), (1, 2), "{split}");
}

#[test]
fn entries_have_typed_parameters() {
    let kernel = map(DType::F16, DType::F16, &[]);
    let printed = printed(&kernel, &[]);
    let tensor = |is_written| EntryParameter::Tensor { dtype: DType::F16, is_written };
    assert_eq!(printed.entries[0].parameters, [tensor(false), tensor(true), EntryParameter::Index]);
}
