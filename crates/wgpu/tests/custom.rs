//! Kernels of custom ops in WGSL. On a machine without an adapter, the tests print the reason and pass.

use kiln_gpu::{CustomKernel, register_kernel};
use kiln_ir::{
    Custom, CustomOp, DType, Engine, Expand, Op, Operand, OperandType, Result, ResultTypes, Scalar,
    SliceAxis, TensorData, TensorType, Value, Var, block_on, infer,
};
use kiln_kernel::print::Dialect;
use kiln_wgpu::{Api, WgpuDevice};

/// The elements times a factor, plus one by the kernel, so that a test sees which form ran.
#[derive(Debug)]
struct Scaled {
    name: &'static str,
    factor: f64,
}

impl CustomOp for Scaled {
    fn name(&self) -> &str {
        self.name
    }

    fn attributes(&self) -> String {
        self.factor.to_string()
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        match inputs {
            [OperandType::Tensor(ty)] => Ok([**ty].into_iter().collect()),
            _ => Err(kiln_ir::Error::type_error(self.name(), "takes one tensor", inputs)),
        }
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(vec![&inputs[0] * self.factor])
    }
}

fn engine() -> Option<Expand> {
    match kiln_wgpu::shared(WgpuDevice::Default, Api::Auto) {
        Ok(engine) => Some(Expand::around(engine)),
        Err(reason) => {
            println!("skipped: no adapter: {reason}");
            None
        }
    }
}

/// The kernel, whose last word is the factor.
fn kernel(op: &Custom, inputs: &[TensorType], _: &[TensorType]) -> Result<CustomKernel> {
    let factor = op.downcast::<Scaled>().map_or(0.0, |op| op.factor);
    let count = inputs[0].num_elements();
    let source = format!(
        "@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<uniform> launch: array<vec4<u32>, 1>;
@compute @workgroup_size(64)
fn scaled(@builtin(global_invocation_id) id: vec3<u32>) {{
  if (id.x < {count}u) {{ y[id.x] = bitcast<f32>(launch[0].w) * x[id.x] + 1.0; }}
}}
"
    );
    let numbers = vec![(Scalar::Float(factor), DType::F32)];
    Ok(CustomKernel { source, entry: "scaled".into(), blocks: count.div_ceil(64), threads: 64, numbers })
}

fn run(engine: &Expand, op: impl CustomOp, x: Value) -> Result<Vec<f32>> {
    let op = Op::Custom(Custom::new(op));
    let types = infer(&op, &[OperandType::Tensor(x.ty())])?;
    let y = engine.execute(&op, [Operand::Value(x)].into_iter().collect(), &types).remove(0);
    block_on(engine.read(y)).map(|data| data.to_vec::<f32>())
}

fn counted(engine: &Expand, count: usize) -> Value {
    let values: Vec<f32> = (0..count).map(|i| i as f32).collect();
    engine.write(TensorData::new(values, [count]).unwrap())
}

#[test]
fn a_registered_kernel_runs_instead_of_the_expansion() {
    let Some(engine) = engine() else { return };
    let op = |name| Scaled { name, factor: 3.0 };
    register_kernel("scaled_by_kernel", Dialect::Wgsl, kernel);
    let expected: Vec<f32> = (0..1000).map(|i| 3.0 * i as f32).collect();
    assert_eq!(run(&engine, op("scaled_by_ops"), counted(&engine, 1000)).unwrap(), expected);
    let found = run(&engine, op("scaled_by_kernel"), counted(&engine, 1000)).unwrap();
    let by_kernel: Vec<f32> = expected.iter().map(|x| x + 1.0).collect();
    assert_eq!(found, by_kernel);
}

/// Views reach the kernel as contiguous tensors that begin at element 0.
#[test]
fn a_kernel_gets_contiguous_operands() {
    let Some(engine) = engine() else { return };
    register_kernel("scaled_view", Dialect::Wgsl, kernel);
    let x = counted(&engine, 100);
    let slice = Op::Slice(vec![SliceAxis { start: 99, len: 10, step: -7 }]);
    let ty = TensorType::new([10], DType::F32);
    let view = engine.execute(&slice, [Operand::Value(x)].into_iter().collect(), &[ty]).remove(0);
    let expected: Vec<f32> = (0..10).map(|i| 2.0 * (99 - 7 * i) as f32 + 1.0).collect();
    assert_eq!(run(&engine, Scaled { name: "scaled_view", factor: 2.0 }, view).unwrap(), expected);
}

/// WGSL specifies zeros; kernels of the engine do without them.
#[test]
fn shared_memory_of_a_registered_kernel_starts_as_zeros() {
    let Some(engine) = engine() else { return };
    register_kernel("shared_zeros", Dialect::Wgsl, |op, inputs, results| {
        let kernel = kernel(op, inputs, results)?;
        let source = kernel
            .source
            .replace("@compute", "var<workgroup> unwritten: array<f32, 256>;\n@compute")
            .replace("+ 1.0", "+ unwritten[255u - id.x % 256u]");
        Ok(CustomKernel { source, ..kernel })
    });
    let expected: Vec<f32> = (0..1000).map(|i| 2.0 * i as f32).collect();
    let op = Scaled { name: "shared_zeros", factor: 2.0 };
    assert_eq!(run(&engine, op, counted(&engine, 1000)).unwrap(), expected);
}

#[test]
fn a_kernel_that_does_not_compile_or_fit_is_an_error_with_its_name() {
    let Some(engine) = engine() else { return };
    register_kernel("scaled_wrongly", Dialect::Wgsl, |op, inputs, results| {
        let kernel = kernel(op, inputs, results)?;
        Ok(CustomKernel { source: kernel.source.replace("bitcast", "bitcats"), ..kernel })
    });
    let wrong = Scaled { name: "scaled_wrongly", factor: 2.0 };
    let error = run(&engine, wrong, counted(&engine, 10)).unwrap_err().to_string();
    assert!(error.contains("bitcats"), "{error}");
    register_kernel("scaled_widely", Dialect::Wgsl, |op, inputs, results| {
        Ok(CustomKernel { threads: 1 << 20, ..kernel(op, inputs, results)? })
    });
    let wide = Scaled { name: "scaled_widely", factor: 2.0 };
    let error = run(&engine, wide, counted(&engine, 10)).unwrap_err().to_string();
    assert!(error.contains("scaled_widely") && error.contains("threads"), "{error}");
}
