//! Kernels of custom ops, written by users in the language of a GPU.
//!
//! A registry has one function for each op name and language. It returns the source of a kernel for the types of one
//! call. Where a language has none, the op runs by its expansion, or on the host.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{Argument, Arguments, Driver, Grid};
use crate::kernels::Source;
use crate::region::number_bytes;
use crate::strided::begins_aligned;
use crate::trace::Label;
use kiln_ir::{Custom, DType, Error, Operand, Operands, Result, Scalar, TensorType, Value, Values};
use kiln_kernel::print::{Dialect, Entry, EntryParameter, with_prelude};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// A kernel for one call of a custom op: its source, and the size of its launch.
///
/// The parameters of the entry point are the operands in order, the results in order, then [`numbers`](Self::numbers).
/// Tensors are contiguous and begin at element 0. A plain number among the operands is a tensor of rank 0. Results are
/// not initialized: the kernel writes every element. No result shares memory with an operand.
///
/// * **CUDA**: `extern "C" __global__ void entry(const float* x, float* y, ..)`. Elements have the types of memory:
///   `unsigned short` for `f16` and `bf16`, `unsigned char` for `bool`. The kernel calls `kiln_begin();` before it reads
///   or writes tensors, because it may start before the previous kernel has ended.
/// * **WGSL**: tensors are `@group(0) @binding(i) var<storage, read> x: array<f32>`, results `read_write`. Elements of 8
///   and 16 bits are packed in words of `u32`. After the `n` tensors, binding `n` is
///   `var<uniform> launch: array<vec4<u32>, ..>`. Its words are the number of blocks, `n` zeros, then the numbers, two
///   words for each of 64 bits. A kernel with more than 65,535 blocks has them along `y` too: the number of a block is
///   `group.y * groups.x + group.x`, of `@builtin(workgroup_id)` and `@builtin(num_workgroups)`. There may be more blocks
///   than `launch[0].x`, the number that the kernel needs.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomKernel {
    /// The source of one module. Equal sources are compiled once.
    pub source: String,
    /// The name of the entry point.
    pub entry: String,
    /// The number of thread blocks (WGSL: workgroups).
    pub blocks: usize,
    /// Threads per block: in WGSL the `@workgroup_size`.
    pub threads: u32,
    /// Numbers that are passed with each launch, with their dtypes. 16-bit floats are passed as `f32`.
    pub numbers: Vec<(Scalar, DType)>,
}

/// Returns the kernel for one call: of the op, for operands and results of these types.
pub type MakeKernel = dyn Fn(&Custom, &[TensorType], &[TensorType]) -> Result<CustomKernel> + Send + Sync;

/// An array with its type.
type TypedArray<D> = (Array<D>, TensorType);

type Registry = HashMap<(String, Dialect), Arc<MakeKernel>>;

static REGISTRY: RwLock<Option<Registry>> = RwLock::new(None);

/// Registers the GPU kernel of the custom ops of a name in one language, for all devices of the process. It replaces an
/// earlier one.
///
/// ```
/// use kiln_gpu::{CustomKernel, register_kernel};
/// use kiln_kernel::print::Dialect;
///
/// register_kernel("twice", Dialect::Wgsl, |_, inputs, _| {
///     let count = inputs[0].num_elements();
///     let source = format!(
///         "@group(0) @binding(0) var<storage, read> x: array<f32>;
///          @group(0) @binding(1) var<storage, read_write> y: array<f32>;
///          @compute @workgroup_size(64)
///          fn twice(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
///                   @builtin(local_invocation_index) thread: u32) {{
///            let i = (group.y * groups.x + group.x) * 64u + thread;
///            if (i < {count}u) {{ y[i] = 2.0 * x[i]; }}
///          }}"
///     );
///     let blocks = count.div_ceil(64);
///     Ok(CustomKernel { source, entry: "twice".into(), blocks, threads: 64, numbers: Vec::new() })
/// });
/// ```
pub fn register_kernel(
    name: &str,
    dialect: Dialect,
    make: impl Fn(&Custom, &[TensorType], &[TensorType]) -> Result<CustomKernel> + Send + Sync + 'static,
) {
    let mut registry = REGISTRY.write().unwrap_or_else(PoisonError::into_inner);
    registry.get_or_insert_default().insert((name.to_owned(), dialect), Arc::new(make));
}

/// The registered kernel of a custom op in a language.
pub(crate) fn registered(name: &str, dialect: Dialect) -> Option<Arc<MakeKernel>> {
    let registry = REGISTRY.read().unwrap_or_else(PoisonError::into_inner);
    registry.as_ref()?.get(&(name.to_owned(), dialect)).cloned()
}

impl<D: Driver> Gpu<D> {
    /// Runs a custom op by its registered kernel.
    pub(crate) fn custom(&self, op: &Custom, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let dialect = self.driver.info().language.dialect;
        let Some(make) = registered(op.name(), dialect) else {
            let problem = format!("no kernel in {dialect:?} is registered for the custom op `{}`", op.name());
            return Err(Error::unsupported(&self.driver.info().name, problem));
        };
        let operands = self.aligned_operands(&inputs)?;
        let types: Vec<TensorType> = operands.iter().map(|(_, ty)| *ty).collect();
        let kernel = make(op, &types, results)?;
        let all = suspicions::<D>(&inputs);
        let found: Vec<Array<D>> = results.iter().map(|ty| self.uninit(ty)).collect::<Result<_>>()?;
        let tensors = operands.iter().map(|(array, ty)| array.place(ty.dtype));
        let outputs = found.iter().zip(results).map(|(array, ty)| array.place(ty.dtype));
        let numbers =
            kernel.numbers.iter().map(|&(number, dtype)| Argument::Word(number_bytes(number, dtype)));
        let arguments: Arguments<D::Memory> = tensors.chain(outputs).chain(numbers).collect();
        self.launch_custom(op, kernel, &types, results, arguments)?;
        let value =
            |(array, ty): (Array<D>, &TensorType)| Array { suspicions: all.clone(), ..array }.into_value(*ty);
        Ok(found.into_iter().zip(results).map(value).collect())
    }

    fn launch_custom(
        &self,
        op: &Custom,
        kernel: CustomKernel,
        inputs: &[TensorType],
        results: &[TensorType],
        arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        let CustomKernel { source, entry, blocks, threads, numbers } = kernel;
        let info = self.driver.info();
        let stores_nothing = blocks == 0 && results.iter().any(|ty| ty.num_elements() > 0);
        let fits = (1..=info.block_threads).contains(&(threads as usize)) && i32::try_from(blocks).is_ok();
        if stores_nothing || !fits {
            let problem = format!("its kernel has {blocks} blocks of {threads} threads");
            let hint = format!(
                "{} has blocks of up to {} threads, fewer than 2³¹ of them",
                info.name, info.block_threads
            );
            return Err(Error::value(op.name(), problem).hint(hint));
        }
        let text = match info.language.dialect {
            Dialect::Wgsl => source,
            Dialect::Cuda | Dialect::Hip => {
                if !source.contains("kiln_begin()") {
                    let problem = "its kernel does not wait for the previous one";
                    return Err(Error::value(op.name(), problem)
                        .hint("call `kiln_begin();` first in the entry point"));
                }
                with_prelude(&source)
            }
        };
        let tensor =
            |is_written: bool| move |ty: &TensorType| EntryParameter::Tensor { dtype: ty.dtype, is_written };
        let tensors = inputs.iter().map(tensor(false)).chain(results.iter().map(tensor(true)));
        let words = numbers.iter().map(|&(_, dtype)| EntryParameter::Word(dtype));
        let parameters = tensors.chain(words).collect();
        let entry = Entry { name: entry.into(), threads, parameters, is_guarded: true };
        let function = self.kernels.function(&Source { text: text.into(), entries: vec![entry] }, 0)?;
        let grid = Grid { blocks, threads };
        self.launch(&function, grid, arguments, || Label { name: op.name().to_owned(), read: 0, written: 0 })
    }

    /// The operands as contiguous arrays at aligned addresses, with their types.
    fn aligned_operands(&self, inputs: &[Operand]) -> Result<SmallVec<[TypedArray<D>; 4]>> {
        let beside = inputs.iter().find_map(Operand::value).map(Value::dtype);
        let array = |operand: &Operand| match operand {
            Operand::Value(value) => {
                let (ty, array) = (*value.ty(), Array::<D>::of(value)?);
                let is_first = array.layout.offset == 0 || self.driver.info().binding_bytes.is_none();
                let array =
                    match array.layout.is_contiguous() && begins_aligned(&array.layout, ty.dtype) && is_first
                    {
                        true => array.clone(),
                        false => {
                            let fresh = self.uninit(&ty)?;
                            self.copy_elements(array, &fresh, ty.dtype)?;
                            fresh
                        }
                    };
                Ok((array, ty))
            }
            Operand::Scalar(scalar) => {
                let dtype = beside.filter(|&dtype| scalar.fits(dtype)).unwrap_or(scalar.default_dtype());
                let ty = TensorType::new([], dtype);
                Ok((self.full(&ty, *scalar)?, ty))
            }
        };
        inputs.iter().map(array).collect()
    }
}
