//! Block kernels print as valid WGSL and C++: every statement, function, dtype and atomic operation.
//!
//! `naga` validates WGSL. If `g++` is installed, it checks C++ against a stand-in for the GPU compiler's header.

use kiln_ir::{Binary, DType, DTypeSet, Scalar, Unary};
use kiln_kernel::block::{
    Atomic, BlockKernel, Builder, Expression, LANES, MatrixRole, Type, constant, has_vectors, index, select,
};
use kiln_kernel::print::{Dialect, Entry, EntryParameter, Target, block};
use std::fmt::Write;
use std::process::Command;

const THREADS: u32 = 64;

/// Functions of the GPU compiler beside those of the stand-in for loop nests.
const CUDA: &str = "static ShimIndex gridDim;
template <typename T> T atomicAdd(T* at, T x) { const T old = *at; *at = old + x; return old; }
template <typename T> T atomicMin(T* at, T x) { const T old = *at; *at = x < old ? x : old; return old; }
template <typename T> T atomicOr(T* at, T x) { const T old = *at; *at = old | x; return old; }
template <typename T> T atomicCAS(T* at, T seen, T x) { const T old = *at; if (old == seen) *at = x; return old; }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((unsigned long long)a * b >> 32); }
";

fn printed(kernel: &BlockKernel, dialect: Dialect) -> (String, Entry) {
    block(kernel, &Target::new(dialect)).unwrap_or_else(|lacks| panic!("{}: {lacks}", kernel.name))
}

/// Checks the kernels in both languages, and returns the text of each: WGSL, then C++.
fn check(kernels: &[BlockKernel]) -> Vec<[String; 2]> {
    let texts: Vec<[String; 2]> = kernels
        .iter()
        .map(|kernel| [Dialect::Wgsl, Dialect::Cuda].map(|dialect| printed(kernel, dialect).0))
        .collect();
    for [wgsl, _] in &texts {
        validate(wgsl);
    }
    compile(&texts);
    texts
}

fn validate(text: &str) {
    let module = naga::front::wgsl::parse_str(text)
        .unwrap_or_else(|error| panic!("{}\n{text}", error.emit_to_string(text)));
    let (flags, all) = (naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all());
    if let Err(error) = naga::valid::Validator::new(flags, all).validate(&module) {
        panic!("{}\n{text}", error.emit_to_string(text));
    }
}

fn compile(texts: &[[String; 2]]) {
    if Command::new("g++").arg("--version").output().is_err() {
        println!("C++ is not compiled: there is no g++");
        return;
    }
    let mut text = format!("#include \"{}/tests/filetests/shim.hpp\"\n{CUDA}", env!("CARGO_MANIFEST_DIR"));
    for (number, [_, cpp]) in texts.iter().enumerate() {
        let _ = write!(text, "namespace n{number} {{\n{}}}\n", cpp.replace("extern \"C\" ", ""));
    }
    let name = std::thread::current().name().unwrap_or("block").replace(':', "_");
    let file = std::env::temp_dir().join(format!("kiln_block_{}_{name}.cpp", std::process::id()));
    std::fs::write(&file, &text).unwrap();
    let compiled = Command::new("g++").args(["-std=c++17", "-fsyntax-only"]).arg(&file).output().unwrap();
    let _ = std::fs::remove_file(&file);
    assert!(compiled.status.success(), "{}\n{text}", String::from_utf8_lossy(&compiled.stderr));
}

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

/// `y[p] = f(x[p], x[p])`, with a result of dtype `to`.
fn map(
    from: DType,
    to: DType,
    f: impl FnOnce(&Builder, &Expression, &Expression) -> Expression,
) -> BlockKernel {
    let k = Builder::new("map", THREADS);
    let (x, y, total) = (k.input("x", from), k.output("y", to), k.length("total"));
    k.for_points(&total, |p| {
        let value = k.bind(&x.at(&p));
        k.store(&y, &p, &f(&k, &value, &value));
    });
    k.finish()
}

#[test]
fn parameters_are_typed() {
    let k = Builder::new("typed", THREADS);
    let (x, y, flag) = (k.input("x", DType::F16), k.output("y", DType::I64), k.flag("failed"));
    let (scale, total) = (k.number("scale", DType::F64), k.length("total"));
    k.for_points(&total, |p| {
        k.store(&y, &p, &(x.at(&p).cast(DType::F64) * &scale).cast(DType::I64));
        k.fail(&flag, &p, &(&p + index(1)));
    });
    let kernel = k.finish();
    let (_, entry) = printed(&kernel, Dialect::Wgsl);
    assert_eq!((entry.name.as_ref(), entry.threads), ("kiln_typed", THREADS));
    let parameters = [
        EntryParameter::Tensor { dtype: DType::F16, is_written: false },
        EntryParameter::Tensor { dtype: DType::I64, is_written: true },
        EntryParameter::Tensor { dtype: DType::U32, is_written: true },
        EntryParameter::Word(DType::F64),
        EntryParameter::Index,
    ];
    assert_eq!(entry.parameters, parameters);
    let [wgsl, cpp] = check(&[kernel]).remove(0);
    assert_contains(
        &wgsl,
        &[
            "@binding(0) var<storage, read> x_0: array<u32>;",
            "@binding(1) var<storage, read_write> y_1: array<i64>;",
            "@binding(2) var<storage, read_write> failed_2: array<atomic<u32>>;",
            // One word for blocks, three for tensors, two for the number, one for the length.
            "@binding(3) var<uniform> launch: array<vec4<u32>, 2>;",
            "if (group.y * groups.x + group.x >= launch[0].x) { return; }",
            "kiln_fail_failed_2(",
        ],
    );
    assert_contains(
        &cpp,
        &[
            "__launch_bounds__(64) kiln_typed(const unsigned short* x_0, long long* y_1, unsigned long long* failed_2, double scale_3, kiln_index total_4)",
            "kiln_begin();",
            "kiln_fail(failed_2, ",
        ],
    );
}

/// Copies vectors by shared memory, which is also accessed by elements.
fn copied_by_vectors(dtype: DType) -> BlockKernel {
    let k = Builder::new("vectors", THREADS);
    let (x, y, total) = (k.input("x", dtype), k.output("y", dtype), k.length("total"));
    let tile = k.shared(dtype, THREADS as usize * LANES);
    let number = k.bind(&(k.block() * &index(THREADS as usize) + &k.thread()));
    let is_inside = number.lt(&total);
    let values = k.load_vector(&x, &number, &is_inside);
    k.put_vector(&tile, &k.thread(), values);
    k.barrier();
    let first = k.bind(&(k.thread() * &index(LANES)));
    k.put(&tile, &first, &tile.at(&(&first + index(1))));
    let values = k.load_shared_vector(&tile, &k.thread());
    k.when(&is_inside, || k.store_vector(&y, &number, values));
    k.finish()
}

#[test]
fn vectors_are_loaded_and_stored_by_one_access() {
    let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|dtype| has_vectors(*dtype)).collect();
    let kernels: Vec<BlockKernel> = dtypes.iter().map(|dtype| copied_by_vectors(*dtype)).collect();
    for (dtype, [wgsl, cpp]) in dtypes.iter().zip(check(&kernels)) {
        let tensor = match dtype.size() {
            2 => "x_0: array<vec2<u32>>;",
            _ => "x_0: array<vec4<",
        };
        assert_contains(&wgsl, &[tensor, "var<workgroup> s0: array<vec4<", "x_0[(x_0_first >> 2u) + "]);
        assert_contains(&cpp, &["alignas(16) __shared__", "reinterpret_cast<const kiln_pack<"]);
    }
}

#[test]
fn tensors_of_vectors_have_no_elements() {
    let k = Builder::new("mixed", THREADS);
    let (x, y) = (k.input("x", DType::F32), k.output("y", DType::F32));
    let values = k.load_vector(&x, &index(0), &index(0).eq(&index(0)));
    k.store(&y, &index(0), &(x.at(&index(3)) + &values[0]));
    let lacks = block(&k.finish(), &Target::new(Dialect::Wgsl)).unwrap_err();
    assert!(lacks.to_string().contains("both elements and vectors of `x_0`"), "{lacks}");
}

#[test]
fn atomic_tensors_have_no_vectors() {
    let k = Builder::new("atomic", THREADS);
    let y = k.atomic_output("y", DType::F32);
    k.load_vector(&y, &index(0), &index(0).eq(&index(0)));
    let lacks = block(&k.finish(), &Target::new(Dialect::Wgsl)).unwrap_err().lacks;
    assert_eq!(lacks, ["vectors of the atomic tensor `y_0`"]);
}

#[test]
#[should_panic(expected = "an operand of another type")]
fn operands_of_atomic_operations_have_the_dtype_of_the_tensor() {
    let k = Builder::new("wrong", THREADS);
    let y = k.atomic_output("y", DType::I32);
    k.atomic(&y, &index(0), Atomic::Add, &constant(1.0, DType::F32));
}

#[test]
fn every_dtype_loads_and_stores() {
    let kernels: Vec<BlockKernel> = DType::ALL
        .into_iter()
        .map(|dtype| {
            let k = Builder::new("copy", THREADS);
            let (x, y) = (k.input("x", dtype), k.output("y", dtype));
            let (number, total) = (k.number("number", dtype), k.length("total"));
            let tile = k.shared(dtype, THREADS as usize);
            k.put(&tile, &k.thread(), &number);
            k.barrier();
            k.for_points(&total, |p| {
                let one = constant(Scalar::Int(1), dtype);
                let is_same = x.at(&p).eq(&y.at(&p));
                k.store(&y, &p, &select(&is_same, &one, &tile.at(&index(3))));
            });
            k.finish()
        })
        .collect();
    check(&kernels);
}

#[test]
fn every_function_has_a_form() {
    let whole = [Unary::Abs, Unary::Sign, Unary::Not];
    let bits = [Binary::And, Binary::Or, Binary::Xor, Binary::Shl, Binary::Shr];
    let numbers = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Rem,
        Binary::Pow,
        Binary::Min,
        Binary::Max,
    ];
    let mut kernels = Vec::new();
    for dtype in DType::ALL {
        let (unary, binary): (Vec<Unary>, Vec<Binary>) = if dtype.is_float() {
            let unary = Unary::ALL.iter().copied().filter(|function| *function != Unary::Not);
            (unary.collect(), numbers.into_iter().chain([Binary::Atan2]).collect())
        } else if dtype.is_bool() {
            (vec![Unary::Not], vec![Binary::And, Binary::Or, Binary::Xor, Binary::Min, Binary::Max])
        } else {
            let negation = dtype.is_signed_int().then_some(Unary::Neg);
            (whole.into_iter().chain(negation).collect(), numbers.into_iter().chain(bits).collect())
        };
        kernels.push(map(dtype, dtype, |_, x, _| unary.iter().fold(x.clone(), |x, f| x.unary(*f))));
        kernels.push(map(dtype, dtype, |_, x, y| {
            binary.iter().fold(x.clone(), |x, f| y.binary(*f, &x.binary(*f, y)))
        }));
        kernels.push(map(dtype, DType::Bool, |_, x, y| {
            let comparisons = [x.lt(y), x.le(y), x.gt(y), x.ge(y), x.eq(y), x.ne(y)];
            comparisons.into_iter().reduce(|a, b| a & b).unwrap()
        }));
    }
    kernels.push(map(DType::U32, DType::U32, |_, x, y| x.mul_high(y).shl(3).shr(2)));
    kernels.push(map(DType::F32, DType::U32, |_, x, _| x.bitcast(DType::U32)));
    kernels.push(map(DType::I64, DType::F64, |_, x, _| x.bitcast(DType::F64)));
    check(&kernels);
}

#[test]
fn every_cast_has_a_form() {
    let mut kernels = Vec::new();
    for from in DType::ALL {
        for to in DType::ALL {
            kernels.push(map(from, to, |_, x, _| x.cast(to)));
        }
        kernels.push(map(from, from, |_, x, _| x.to_index().cast(from)));
    }
    check(&kernels);
}

#[test]
fn constants_of_every_kind() {
    let mut kernels = Vec::new();
    for (scalar, dtype) in [
        (Scalar::Float(f64::NAN), DType::F32),
        (Scalar::Float(f64::NEG_INFINITY), DType::BF16),
        (Scalar::Float(f64::INFINITY), DType::F64),
        (Scalar::Float(1e-5), DType::F16),
        (Scalar::Int(i64::MIN), DType::I64),
        (Scalar::Int(-128), DType::I8),
        (Scalar::UInt(u64::MAX), DType::U64),
        (Scalar::Bool(true), DType::Bool),
    ] {
        kernels.push(map(dtype, dtype, |_, x, _| select(&x.eq(x), &constant(scalar, dtype), x)));
    }
    check(&kernels);
}

#[test]
fn functions_of_indices() {
    let kernel = map(DType::I32, DType::I32, |k, x, _| {
        let i = x.to_index();
        let sum = (&i + index(3)) * &i - k.blocks();
        let rest = (&sum / index(5) % index(7)).max(&k.block()).min(&k.thread());
        let bits = (rest.shl(2) | i.shr(1)) ^ (!&i & -&i);
        select(&bits.lt(&i), &bits, &i).cast(DType::I32)
    });
    let [wgsl, cpp] = check(&[kernel]).remove(0);
    assert_contains(&wgsl, &["let thread = i32(local.x);", " % i32(7)"]);
    assert_contains(&cpp, &["typedef long long kiln_index;", " % 7ll"]);
}

#[test]
fn every_statement() {
    let k = Builder::new("statements", THREADS);
    let (x, y, total) = (k.input("x", DType::F32), k.output("y", DType::F32), k.length("total"));
    let (tile, places) = (k.shared(DType::F32, 64), k.shared_indices(64));
    let sums = k.array(Type::Value(DType::F32), 4);
    k.for_each(&index(4), |i| k.put(&sums, &i, &constant(0.0, DType::F32)));
    let count = k.var(&index(0));
    k.for_threads(&(&total / index(2)), |i| {
        let is_negative = x.at(&i).lt(&constant(0.0, DType::F32));
        k.when(&is_negative, || k.continue_loop());
        k.update(&count, Binary::Add, &index(1));
        k.when_else(
            &count.get().gt(&index(9)),
            || k.break_loop(),
            || k.put(&sums, &(&i % index(4)), &x.at(&i)),
        );
    });
    k.put(&tile, &k.thread(), &(sums.at(&index(0)) + sums.at(&index(3))));
    k.put(&places, &k.thread(), &count.get());
    k.barrier();
    let first = k.bind(&places.uniform_at(&index(0)));
    k.while_true(&count.get().lt(&first), || {
        k.set(&count, &(count.get() + index(1)));
        k.barrier();
    });
    k.store(&y, &k.thread(), &(tile.at(&index(0)) + y.at(&k.thread())));
    let [wgsl, cpp] = check(&[k.finish()]).remove(0);
    assert_contains(
        &wgsl,
        &[
            "var<workgroup> s0: array<f32, 64>;",
            "var<workgroup> s1: array<i32, 64>;",
            "array<f32, 4>;",
            "workgroupUniformLoad(&s1[i32(0)])",
            // Results are read.
            "workgroupBarrier(); storageBarrier();",
            "continue;",
            "} else {",
            "while (",
        ],
    );
    assert_contains(
        &cpp,
        &[
            "__shared__ float s0[64];\n  __shared__ kiln_index s1[64];\n  kiln_begin();",
            "kiln_uniform(&s1[0ll])",
        ],
    );
}

#[test]
fn loop_bounds_are_evaluated_once() {
    let k = Builder::new("bounds", THREADS);
    let (x, y) = (k.input("x", DType::I32), k.output("y", DType::I32));
    k.for_range(&index(0), &x.at(&index(0)).to_index(), &k.blocks(), |i| k.store(&y, &i, &x.at(&i)));
    let [_, cpp] = check(&[k.finish()]).remove(0);
    assert_contains(&cpp, &["const kiln_index v0_end = ", "v0 < v0_end; v0 += blocks)"]);
}

#[test]
fn every_atomic_operation() {
    let mut kernels = Vec::new();
    for dtype in [DType::I32, DType::U32, DType::F32, DType::I64, DType::U64, DType::F64] {
        for operation in [Atomic::Add, Atomic::Mul, Atomic::Min, Atomic::Max, Atomic::Or] {
            if dtype.is_float() && operation == Atomic::Or {
                continue;
            }
            let k = Builder::new("atomic", THREADS);
            let (x, y) = (k.input("x", dtype), k.atomic_output("y", dtype));
            let value = k.bind(&x.at(&k.thread()));
            k.atomic(&y, &k.thread(), operation, &value);
            let before = k.atomic_before(&y, &(k.thread() + index(1)), operation, &(&value + &value));
            k.store(&y, &index(0), &(before + y.at(&index(1))));
            if dtype.size() == 4 {
                let sums = k.shared_atomic(dtype, 16);
                k.put(&sums, &index(0), &value);
                k.barrier();
                let before = k.atomic_shared(&sums, &(k.thread() % index(16)), operation, &value);
                k.atomic(&y, &index(2), operation, &(before + sums.at(&index(1))));
            }
            kernels.push(k.finish());
        }
    }
    let texts = check(&kernels);
    // `i32` sums are native, `f32` sums are native in C++ only.
    let [wgsl, cpp] = &texts[0];
    assert_contains(
        wgsl,
        &["array<atomic<i32>>", "atomicAdd(&y_1[y_1_first + thread], v0);", "atomicAdd(&s0["],
    );
    assert_contains(cpp, &["atomicAdd(&y_1[thread], v0);"]);
    let [wgsl, cpp] = &texts[10];
    assert_contains(wgsl, &["y_1: array<atomic<u32>>", "fn kiln_atomic_add_y_1(", "fn kiln_atomic_add_s0("]);
    assert_contains(
        cpp,
        &["atomicAdd(&y_1[thread], v0);", "reinterpret_cast<const volatile float*>(y_1)[1ll]"],
    );
    let [_, cpp] = &texts[11];
    assert_contains(cpp, &["kiln_atomic_mul_f32(float* place, float x)", "atomicCAS(word, expected, next)"]);
}

#[test]
fn lacking_features_are_errors() {
    let narrow = DTypeSet::of(&[DType::F32, DType::I32, DType::U32]);
    let target = Target { dtypes: narrow, atomics_64: false, ..Target::new(Dialect::Wgsl) };
    let lacks = |kernel: BlockKernel| block(&kernel, &target).unwrap_err().lacks;
    assert_eq!(lacks(map(DType::I64, DType::I64, |_, x, _| x.clone())), ["i64"]);
    let atomic = |dtype: DType, operation: Atomic| {
        let k = Builder::new("atomic", THREADS);
        let (x, y) = (k.input("x", dtype), k.atomic_output("y", dtype));
        k.atomic(&y, &k.thread(), operation, &x.at(&k.thread()));
        k.finish()
    };
    assert_eq!(lacks(atomic(DType::F32, Atomic::Or)), ["atomic or of f32"]);
    assert_eq!(lacks(atomic(DType::U64, Atomic::Max)), ["u64", "atomic max of u64"]);
    assert_eq!(lacks(atomic(DType::F16, Atomic::Add)), ["atomic add of f16"]);
    let kernel = map(DType::I32, DType::I32, |_, x, _| x.to_index().unary(Unary::Sqrt).cast(DType::I32));
    assert_eq!(lacks(kernel), ["sqrt of an index"]);
    let kernel = map(DType::F16, DType::U16, |_, x, _| x.bitcast(DType::U16));
    assert_eq!(lacks(kernel), ["bitcast of f16 to u16"]);
    let narrow = map(DType::BF16, DType::I8, |_, x, _| x.cast(DType::I8));
    assert!(block(&narrow, &target).is_ok(), "dtypes of fewer than 32 bits are packed");
}

/// `y += a b` for one matrix of each factor, in one subgroup.
fn product(dtype: DType, size: usize, count: usize) -> BlockKernel {
    let k = Builder::new("product", 32);
    let (a, y) = (k.input("a", dtype), k.output("y", DType::F16));
    let total = k.length("total");
    let (tile, sums) = (k.factor_tile(dtype, size * size), k.shared(DType::F32, size * size));
    let registers = k.packed(dtype, count);
    let at = k.bind(&(k.thread() * index(count)));
    k.fetch(&registers, &a, &at, &at.lt(&total));
    k.unpack(&registers, &tile, &at);
    k.put(&sums, &k.thread(), &constant(0.0, DType::F32));
    k.barrier();
    let first = k.bind(&(k.subgroup() * index(size)));
    let left = k.load_factor(MatrixRole::Left, size, &tile, &first, size, false);
    let right = k.load_factor(MatrixRole::Right, size, &tile, &first, size, true);
    let sum = k.load_sums(size, &sums, &first, size);
    k.multiply_add(&left, &right, &sum);
    k.store_sums(&sum, &sums, &first, size);
    k.barrier();
    let pair = [0, 1].map(|number| sums.at(&(k.thread() * index(2) + index(number))));
    k.store_pair(&y, &(k.thread() * index(2)), pair);
    k.finish()
}

#[test]
fn cooperative_matrices_are_printed_as_wgsl_only() {
    for (dtype, size, count) in [(DType::F16, 16, 2), (DType::F16, 8, 1), (DType::F32, 8, 1)] {
        let kernel = product(dtype, size, count);
        let (text, _) = printed(&kernel, Dialect::Wgsl);
        validate(&text);
        let (element, matrix) = (dtype.name(), format!("coop_mat{size}x{size}"));
        let parts = [
            String::from("enable wgpu_cooperative_matrix;"),
            format!("var<workgroup> t0: array<{element}, {}>;", size * size),
            format!("coopLoadT<{matrix}<{element}, A>>(&t0["),
            format!("coopLoad<{matrix}<{element}, B>>(&t0["),
            format!("coopLoadT<{matrix}<f32, C>>(&s0["),
            String::from("@builtin(subgroup_id) subgroup: u32"),
        ];
        assert_contains(&text, &parts.each_ref().map(String::as_str));
        assert_eq!(text.starts_with("enable f16;"), dtype == DType::F16, "{text}");
        for dialect in [Dialect::Cuda, Dialect::Hip] {
            let lacks = block(&kernel, &Target::new(dialect)).unwrap_err().lacks;
            assert_eq!(lacks, ["cooperative matrices"]);
        }
    }
}

#[test]
fn matrices_are_fetched_from_inputs() {
    let k = Builder::new("wrong", 32);
    let y = k.output("y", DType::F16);
    let registers = k.packed(DType::F16, 2);
    k.fetch(&registers, &y, &index(0), &index(0).eq(&index(0)));
    let lacks = block(&k.finish(), &Target::new(Dialect::Wgsl)).unwrap_err().lacks;
    assert_eq!(lacks, ["cooperative fetch of the written tensor `y_0`"]);
}

#[test]
fn arrays_of_matrices_have_no_vectors() {
    let k = Builder::new("wrong", 32);
    let sums = k.shared(DType::F32, 64);
    k.load_sums(8, &sums, &index(0), 8);
    k.load_shared_vector(&sums, &index(0));
    let lacks = block(&k.finish(), &Target::new(Dialect::Wgsl)).unwrap_err().lacks;
    assert_eq!(lacks, ["both elements and vectors of `s0`"]);
}

#[test]
fn other_kernels_need_no_extension_of_the_language() {
    let (text, _) = printed(&map(DType::F16, DType::F16, |_, a, _| a.clone()), Dialect::Wgsl);
    assert!(!text.contains("enable") && !text.contains("subgroup"), "{text}");
}

#[test]
#[should_panic(expected = "no cooperative matrices of bf16")]
fn factors_of_matrices_are_f16_or_f32() {
    Builder::new("wrong", 32).factor_tile(DType::BF16, 256);
}

#[test]
#[should_panic(expected = "no product")]
fn factors_of_products_have_roles() {
    let k = Builder::new("wrong", 32);
    let (tile, sums) = (k.factor_tile(DType::F16, 256), k.shared(DType::F32, 256));
    let left = k.load_factor(MatrixRole::Left, 16, &tile, &index(0), 16, false);
    let sum = k.load_sums(16, &sums, &index(0), 16);
    k.multiply_add(&left, &left, &sum);
}
