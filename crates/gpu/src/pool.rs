//! Pooling and its gradients, over any number of axes.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::block::{self, BlockKey};
use crate::convolve::channels_last;
use crate::driver::{Argument, Arguments, Driver};
use crate::index::combined_in;
use crate::native::{Native, length};
use crate::strided::ALIGNMENT;
use crate::view::tensor;
use kiln_ir::{DType, Layout, Op, Operands, PoolKind, PoolSpec, Result, TensorType, Values};
use kiln_kernel::block::BlockKernel;
use kiln_kernel::print::{held_type, memory_type};
use smallvec::smallvec;

const SOURCE: &str = include_str!("native/pool.cu");

/// The memory layout that a pooling kernel reads: channels first, or channels last in packs of neighbouring channels.
struct PoolLayout {
    channels_last: bool,
    /// Channels per pack.
    pack: usize,
    /// The number of packs if channels are last, else 1.
    packs: usize,
    /// Whether all indices fit into 32 bits.
    narrow: bool,
}

impl PoolLayout {
    /// The layout of the operand; `others` are the lengths of the other pooled tensors.
    fn of<D: Driver>(x: &Array<D>, ty: &TensorType, spec: &PoolSpec, others: &[usize]) -> PoolLayout {
        /// The bound on spec attributes and indices for which sums and products stay within 31 bits.
        const FEW: usize = 1 << 14;
        const MANY: usize = 1 << 30;
        let channels_last = !x.layout.is_contiguous() && in_channels(&x.layout).is_contiguous();
        let channels = ty.shape[1];
        let pack = if channels_last { pack(ty.dtype, channels) } else { 1 };
        let places = others.iter().all(|&places| places < MANY) && ty.num_elements() < MANY;
        let narrow = places && numbers(spec).all(|number| number < FEW);
        PoolLayout { channels_last, pack, packs: if channels_last { channels / pack } else { 1 }, narrow }
    }

    /// The layout in the kernel's axis order, which is row-major in memory.
    fn seen(&self, layout: &Layout) -> Layout {
        if self.channels_last { in_channels(layout) } else { *layout }
    }
}

/// The number of channels that one access reads, if the channels divide into such packs.
fn pack(dtype: DType, channels: usize) -> usize {
    let mut pack = (ALIGNMENT / dtype.size()).min(8);
    while !channels.is_multiple_of(pack) {
        pack /= 2;
    }
    pack
}

/// The layout with channels as the last axis.
fn in_channels(layout: &Layout) -> Layout {
    layout.permute(&channels_last(layout.rank()))
}

impl<D: Driver> Gpu<D> {
    /// [`Op::Pool`].
    pub(crate) fn pool(
        &self,
        op: &Op,
        spec: &PoolSpec,
        inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let (x, ty) = tensor::<D>(&inputs, 0)?;
        if self.has_too_large(spec) {
            return self.expanded(op, inputs, results);
        }
        if !self.has_native() {
            return self.pool_by_blocks(spec, (x, ty), &results[0]);
        }
        let pooled = PoolLayout::of(x, ty, spec, &[results[0].num_elements()]);
        let x = self.as_pooled(x, &pooled, ty.dtype)?;
        let result = self.uninit_channels(&results[0], pooled.channels_last)?;
        let (size, counts) = (&ty.shape[2..], &results[0].shape[2..]);
        let native = match spec.kind {
            PoolKind::Max => named(spec, &pooled, "kiln_pool_max", "KILN_POOL_MAX", ty.dtype)
                .name("W", memory_type(ty.dtype)),
            PoolKind::Average { .. } => {
                named(spec, &pooled, "kiln_pool_average", "KILN_POOL_AVERAGE", ty.dtype)
            }
        };
        let arguments = smallvec![x.place(ty.dtype), result.place(ty.dtype)];
        self.pooled(native, &pooled, results[0].num_elements(), arguments, [size, counts])?;
        Ok(smallvec![Array { suspicions: x.suspicions, ..result }.into_value(results[0])])
    }

    /// [`Op::PoolGrad`]: each element sums the contributions of the windows that contain it, always in the same order.
    pub(crate) fn pool_grad(
        &self,
        op: &Op,
        spec: &PoolSpec,
        inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let ty = results[0];
        let (grad, grad_ty) = tensor::<D>(&inputs, 0)?;
        let space: usize = ty.shape[2..].iter().product();
        if self.has_too_large(spec) || i32::try_from(space).is_err() {
            return self.expanded(op, inputs, results);
        }
        if !self.has_native() {
            return self.pool_grad_by_blocks(spec, &inputs, ty);
        }
        let windows = grad_ty.num_elements();
        let (size, counts) = (&ty.shape[2..], &grad_ty.shape[2..]);
        let (total, lengths) = (ty.num_elements(), [size, counts]);
        let result = match spec.kind {
            PoolKind::Max => {
                let (x, _) = tensor::<D>(&inputs, 1)?;
                let pooled = PoolLayout::of(x, &ty, spec, &[windows]);
                let (x, grad) =
                    (self.as_pooled(x, &pooled, ty.dtype)?, self.as_pooled(grad, &pooled, ty.dtype)?);
                let winners = self.block(windows.saturating_mul(4))?;
                let winners = || Argument::Pointer(winners.at(0));
                let native = named(spec, &pooled, "kiln_pool_max", "KILN_POOL_MAX", ty.dtype)
                    .name("W", memory_type(DType::I32))
                    .name("WINNERS", "");
                self.pooled(native, &pooled, windows, smallvec![x.place(ty.dtype), winners()], lengths)?;
                let native = named(spec, &pooled, "kiln_pool_max_grad", "KILN_POOL_MAX_GRAD", ty.dtype);
                let result = self.uninit_channels(&ty, pooled.channels_last)?;
                let arguments = smallvec![grad.place(ty.dtype), winners(), result.place(ty.dtype)];
                self.pooled(native, &pooled, total, arguments, lengths)?;
                result
            }
            PoolKind::Average { .. } => {
                let pooled = PoolLayout::of(grad, grad_ty, spec, &[total]);
                let grad = self.as_pooled(grad, &pooled, ty.dtype)?;
                let native =
                    named(spec, &pooled, "kiln_pool_average_grad", "KILN_POOL_AVERAGE_GRAD", ty.dtype);
                let result = self.uninit_channels(&ty, pooled.channels_last)?;
                let arguments = smallvec![grad.place(ty.dtype), result.place(ty.dtype)];
                self.pooled(native, &pooled, total, arguments, lengths)?;
                result
            }
        };
        Ok(smallvec![Array { suspicions: suspicions::<D>(&inputs), ..result }.into_value(ty)])
    }

    /// Whether an attribute of the spec is so large that the kernels' index arithmetic may overflow.
    fn has_too_large(&self, spec: &PoolSpec) -> bool {
        /// The bound for which sums with indices below 2³⁰ stay within 31 bits.
        const BOUND: usize = 1 << 28;
        let most = if self.has_native() { i32::MAX as usize } else { BOUND };
        numbers(spec).any(|number| number > most)
    }

    fn pool_by_blocks(
        &self,
        spec: &PoolSpec,
        (x, ty): (&Array<D>, &TensorType),
        result_ty: &TensorType,
    ) -> Result<Values> {
        let x = self.contiguous(x, ty.dtype)?;
        let result = self.uninit(result_ty)?;
        let arguments = smallvec![x.place(ty.dtype), result.place(ty.dtype)];
        let (dtype, lengths) = (ty.dtype, [&ty.shape[2..], &result_ty.shape[2..]]);
        let points = result_ty.num_elements();
        match spec.kind {
            PoolKind::Max => {
                let build = || block::pool::max(spec, dtype, false);
                self.pooled_by_blocks(key("pool_max", spec, dtype), build, points, arguments, lengths)?;
            }
            PoolKind::Average { .. } => {
                let build = || block::pool::average(spec, dtype);
                self.pooled_by_blocks(key("pool_average", spec, dtype), build, points, arguments, lengths)?;
            }
        }
        Ok(smallvec![Array { suspicions: x.suspicions, ..result }.into_value(*result_ty)])
    }

    fn pool_grad_by_blocks(&self, spec: &PoolSpec, inputs: &Operands, ty: TensorType) -> Result<Values> {
        let (grad, grad_ty) = tensor::<D>(inputs, 0)?;
        let (dtype, points) = (ty.dtype, ty.num_elements());
        let lengths = [&ty.shape[2..], &grad_ty.shape[2..]];
        let grad = self.contiguous(grad, dtype)?;
        let result = self.uninit(&ty)?;
        match spec.kind {
            PoolKind::Max => {
                let (x, _) = tensor::<D>(inputs, 1)?;
                let x = self.contiguous(x, dtype)?;
                let windows = grad_ty.num_elements();
                let winners = self.block(windows.saturating_mul(4))?;
                let winners = || Argument::Pointer(winners.at(0));
                let build = || block::pool::max(spec, dtype, true);
                let arguments = smallvec![x.place(dtype), winners()];
                self.pooled_by_blocks(key("pool_winners", spec, dtype), build, windows, arguments, lengths)?;
                let build = || block::pool::max_grad(spec, dtype);
                let arguments = smallvec![grad.place(dtype), winners(), result.place(dtype)];
                self.pooled_by_blocks(key("pool_max_grad", spec, dtype), build, points, arguments, lengths)?;
            }
            PoolKind::Average { .. } => {
                let build = || block::pool::average_grad(spec, dtype);
                let arguments = smallvec![grad.place(dtype), result.place(dtype)];
                let key = key("pool_average_grad", spec, dtype);
                self.pooled_by_blocks(key, build, points, arguments, lengths)?;
            }
        }
        Ok(smallvec![Array { suspicions: suspicions::<D>(inputs), ..result }.into_value(ty)])
    }

    /// Queues a block kernel of pooling.
    fn pooled_by_blocks(
        &self,
        key: BlockKey,
        build: impl FnOnce() -> BlockKernel,
        points: usize,
        mut arguments: Arguments<D::Memory>,
        [size, counts]: [&[usize]; 2],
    ) -> Result<()> {
        arguments.push(length(points));
        for (&before, &after) in size.iter().zip(counts) {
            arguments.extend([length(before), length(after)]);
        }
        self.run_points(key, build, points, arguments)
    }

    /// Queues a pooling kernel for a number of elements, in packs.
    fn pooled(
        &self,
        native: Native,
        pooled: &PoolLayout,
        elements: usize,
        mut arguments: Arguments<D::Memory>,
        [size, counts]: [&[usize]; 2],
    ) -> Result<()> {
        let points = elements / pooled.pack;
        arguments.extend([length(points), length(pooled.packs)]);
        for (&before, &after) in size.iter().zip(counts) {
            arguments.extend([length(before), length(after)]);
        }
        self.native(native, points, arguments)
    }

    /// The array made contiguous in the kernel's axis order.
    fn as_pooled(&self, array: &Array<D>, pooled: &PoolLayout, dtype: DType) -> Result<Array<D>> {
        self.contiguous_aligned(&array.with_layout(pooled.seen(&array.layout)), dtype)
    }
}

/// The key of a block kernel, which depends on all attributes except the overhang.
fn key(name: &'static str, spec: &PoolSpec, dtype: DType) -> BlockKey {
    let includes_padding = spec.kind == PoolKind::Average { include_padding: true };
    let mut key = BlockKey::new(name).dtype(dtype).with(includes_padding);
    for axis in 0..spec.window.len() {
        let (low, high) = spec.padding[axis];
        key = key
            .with(spec.window[axis])
            .with(spec.stride[axis])
            .with(spec.dilation[axis])
            .with(low)
            .with(high);
    }
    key
}

fn numbers(spec: &PoolSpec) -> impl Iterator<Item = usize> {
    let lists = [&spec.window, &spec.stride, &spec.dilation, &spec.overhang];
    let padding = spec.padding.iter().flat_map(|(low, high)| [low, high]);
    lists.into_iter().flatten().chain(padding).copied()
}

/// The kernel parameters for `axes` axes, of type `INDEX`, as source text.
pub(crate) fn parameters(axes: usize) -> String {
    (0..axes).map(|axis| format!(", INDEX x{axis}, INDEX y{axis}")).collect()
}

/// Source text that splits `rest` into the row and an index along each axis. `lengths` and `places` are the letters of
/// the variables.
pub(crate) fn split(axes: usize, lengths: char, places: char) -> String {
    let part =
        |axis| format!("const INDEX {places}{axis} = rest % {lengths}{axis}; rest /= {lengths}{axis}; ");
    (0..axes).rev().map(part).collect()
}

/// Source text: the product of the lengths of all axes.
pub(crate) fn product(axes: usize, lengths: char) -> String {
    (0..axes).map(|axis| format!("{lengths}{axis}")).collect::<Vec<_>>().join(" * ")
}

fn named(
    spec: &PoolSpec,
    pooled: &PoolLayout,
    entry: &'static str,
    part: &'static str,
    dtype: DType,
) -> Native {
    let axes = spec.window.len();
    let computed = combined_in(dtype);
    let ends = format!("(void)0; {}", "}".repeat(2 * axes));
    let native = Native::new(SOURCE, entry);
    let native = if pooled.channels_last { native.name("CHANNELS_LAST", "") } else { native };
    native
        .name(part, "")
        .name("V", pooled.pack)
        .name("INDEX", if pooled.narrow { "int" } else { "long long" })
        .name("A", held_type(computed))
        .name("LENGTHS", parameters(axes))
        .name("SPACE", product(axes, 'x'))
        .name("PLACES", product(axes, 'y'))
        .name("OF_RESULT", split(axes, 'y', 'o'))
        .name("OF_OPERAND", split(axes, 'x', 'i'))
        .name("EACH_IN_WINDOW", each_in_window(spec))
        .name("EACH_WINDOW", each_window(spec))
        .name("END", ends)
        .name("COUNT", count(spec))
        .dtype("T", dtype)
}

/// Source text: loops over the elements of a window, without padding.
fn each_in_window(spec: &PoolSpec) -> String {
    let mut text = String::new();
    let mut at = "0".to_owned();
    for axis in 0..spec.window.len() {
        let (window, stride, dilation) = (spec.window[axis], spec.stride[axis], spec.dilation[axis]);
        let low = spec.padding[axis].0;
        text += &format!(
            "for (int k{axis} = 0; k{axis} < {window}; ++k{axis}) {{ \
             const INDEX i{axis} = o{axis} * {stride} + k{axis} * (INDEX){dilation} - {low}; \
             if (i{axis} < 0 || i{axis} >= x{axis}) continue; {{ "
        );
        at = if axis == 0 { "i0".to_owned() } else { format!("({at}) * x{axis} + i{axis}") };
    }
    text + &format!("const INDEX at = {at};")
}

/// Source text: loops over the windows that contain an element.
fn each_window(spec: &PoolSpec) -> String {
    let mut text = String::new();
    let mut window = "0".to_owned();
    for axis in 0..spec.window.len() {
        let (stride, low) = (spec.stride[axis], spec.padding[axis].0);
        let reach = (spec.window[axis] - 1) * spec.dilation[axis];
        text += &format!(
            "const INDEX s{axis} = i{axis} + {low} - (INDEX){reach}; \
             const INDEX f{axis} = s{axis} > 0 ? (s{axis} + {stride} - 1) / {stride} : 0; "
        );
        window = if axis == 0 { "o0".to_owned() } else { format!("({window}) * y{axis} + o{axis}") };
    }
    for axis in 0..spec.window.len() {
        let (stride, low) = (spec.stride[axis], spec.padding[axis].0);
        text += &format!(
            "for (INDEX o{axis} = f{axis}; o{axis} < y{axis} && o{axis} * {stride} <= i{axis} + {low}; ++o{axis}) {{ {{ "
        );
    }
    text + &format!("const INDEX window = {window};")
}

/// Source text: the divisor of an average window.
fn count(spec: &PoolSpec) -> String {
    let PoolKind::Average { include_padding } = spec.kind else { return "1".to_owned() };
    let along = |axis: usize| {
        let (window, stride, (low, high)) = (spec.window[axis], spec.stride[axis], spec.padding[axis]);
        if include_padding {
            format!(
                "(kiln_least(o{axis} * {stride} + {window}, x{axis} + {low} + {high}) - o{axis} * {stride})"
            )
        } else {
            // The maximum of two as the minimum of their negatives.
            format!(
                "(kiln_least(o{axis} * {stride} - {low} + {window}, x{axis}) + kiln_least({low} - o{axis} * {stride}, 0))"
            )
        }
    };
    (0..spec.window.len()).map(along).collect::<Vec<_>>().join(" * ")
}
