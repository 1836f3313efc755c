//! Pooling and its gradients, over any number of axes.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{Argument, Arguments, Driver};
use crate::index::combined_in;
use crate::native::{Native, length};
use crate::view::tensor;
use kiln_ir::{DType, Op, Operands, PoolKind, PoolSpec, Result, TensorType, Values};
use kiln_kernel::print::{held_type, memory_type};
use smallvec::smallvec;

const SOURCE: &str = include_str!("native/pool.cu");

impl<D: Driver> Gpu<D> {
    /// [`Op::Pool`].
    pub(crate) fn pool(
        &self,
        op: &Op,
        spec: &PoolSpec,
        inputs: Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        if too_large(spec) {
            return self.expanded(op, inputs, results);
        }
        let (x, ty) = tensor::<D>(&inputs, 0)?;
        let x = self.contiguous(x, ty.dtype)?;
        let result = self.uninit(&results[0])?;
        let (size, counts) = (&ty.shape[2..], &results[0].shape[2..]);
        let native = match spec.kind {
            PoolKind::Max => {
                named(spec, "kiln_pool_max", "KILN_POOL_MAX", ty.dtype).name("W", memory_type(ty.dtype))
            }
            PoolKind::Average { .. } => named(spec, "kiln_pool_average", "KILN_POOL_AVERAGE", ty.dtype),
        };
        let mut arguments: Arguments<D::Memory> = smallvec![x.place(ty.dtype), result.place(ty.dtype)];
        push_lengths(&mut arguments, results[0].num_elements(), size, counts);
        self.native(native, results[0].num_elements(), arguments)?;
        Ok(smallvec![Array { suspicions: x.suspicions, ..result }.into_value(results[0])])
    }

    /// [`Op::PoolGrad`]: each element adds up what the windows that hold it send, always in the same order.
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
        if too_large(spec) || i32::try_from(space).is_err() {
            return self.expanded(op, inputs, results);
        }
        let grad = self.contiguous(grad, ty.dtype)?;
        let result = self.uninit(&ty)?;
        let (size, counts) = (&ty.shape[2..], &grad_ty.shape[2..]);
        let total = ty.num_elements();
        match spec.kind {
            PoolKind::Max => {
                let (x, _) = tensor::<D>(&inputs, 1)?;
                let x = self.contiguous(x, ty.dtype)?;
                let windows = grad_ty.num_elements();
                let winners = self.block(windows.saturating_mul(4))?;
                let winners = || Argument::Place(winners.at(0));
                let native = named(spec, "kiln_pool_max", "KILN_POOL_MAX", ty.dtype)
                    .name("W", memory_type(DType::I32))
                    .name("WINNERS", "");
                let mut arguments: Arguments<D::Memory> = smallvec![x.place(ty.dtype), winners()];
                push_lengths(&mut arguments, windows, size, counts);
                self.native(native, windows, arguments)?;
                let native = named(spec, "kiln_pool_max_grad", "KILN_POOL_MAX_GRAD", ty.dtype);
                let mut arguments: Arguments<D::Memory> =
                    smallvec![grad.place(ty.dtype), winners(), result.place(ty.dtype)];
                push_lengths(&mut arguments, total, size, counts);
                self.native(native, total, arguments)?;
            }
            PoolKind::Average { .. } => {
                let native = named(spec, "kiln_pool_average_grad", "KILN_POOL_AVERAGE_GRAD", ty.dtype);
                let mut arguments: Arguments<D::Memory> =
                    smallvec![grad.place(ty.dtype), result.place(ty.dtype)];
                push_lengths(&mut arguments, total, size, counts);
                self.native(native, total, arguments)?;
            }
        }
        Ok(smallvec![Array { suspicions: suspicions::<D>(&inputs), ..result }.into_value(ty)])
    }
}

/// Whether a number of the spec is longer than what kernels may multiply without overflow.
fn too_large(spec: &PoolSpec) -> bool {
    let lists = [&spec.window, &spec.stride, &spec.dilation, &spec.overhang];
    let numbers = lists.into_iter().flatten().chain(spec.padding.iter().flat_map(|(low, high)| [low, high]));
    numbers.into_iter().any(|&number| i32::try_from(number).is_err())
}

/// Adds the number of points, and the lengths of the axes of operand and result.
fn push_lengths<M: 'static>(arguments: &mut Arguments<M>, total: usize, size: &[usize], counts: &[usize]) {
    arguments.push(length(total));
    for (&before, &after) in size.iter().zip(counts) {
        arguments.extend([length(before), length(after)]);
    }
}

/// The parameters of `axes` axes.
pub(crate) fn parameters(axes: usize) -> String {
    (0..axes).map(|axis| format!(", long long x{axis}, long long y{axis}")).collect()
}

/// `rest` split into the row and a place along each axis of these lengths, called by another letter.
pub(crate) fn split(axes: usize, lengths: char, places: char) -> String {
    let part =
        |axis| format!("const long long {places}{axis} = rest % {lengths}{axis}; rest /= {lengths}{axis}; ");
    (0..axes).rev().map(part).collect()
}

/// The product of the lengths of all axes.
pub(crate) fn product(axes: usize, lengths: char) -> String {
    (0..axes).map(|axis| format!("{lengths}{axis}")).collect::<Vec<_>>().join(" * ")
}

fn named(spec: &PoolSpec, entry: &'static str, part: &str, dtype: DType) -> Native {
    let axes = spec.window.len();
    let computed = combined_in(dtype);
    let ends = format!("(void)0; {}", "}".repeat(2 * axes));
    Native::new(SOURCE, entry)
        .name(part, "")
        .name("A", held_type(computed))
        .name("LENGTHS", &parameters(axes))
        .name("SPACE", &product(axes, 'x'))
        .name("PLACES", &product(axes, 'y'))
        .name("OF_RESULT", &split(axes, 'y', 'o'))
        .name("OF_OPERAND", &split(axes, 'x', 'i'))
        .name("EACH_IN_WINDOW", &each_in_window(spec))
        .name("EACH_WINDOW", &each_window(spec))
        .name("END", &ends)
        .name("COUNT", &count(spec))
        .dtype("T", dtype)
}

/// Loops over the elements of a window; padding is passed over.
fn each_in_window(spec: &PoolSpec) -> String {
    let mut text = String::new();
    let mut at = "0".to_owned();
    for axis in 0..spec.window.len() {
        let (window, stride, dilation) = (spec.window[axis], spec.stride[axis], spec.dilation[axis]);
        let low = spec.padding[axis].0;
        text += &format!(
            "for (int k{axis} = 0; k{axis} < {window}; ++k{axis}) {{ \
             const long long i{axis} = o{axis} * {stride} + k{axis} * {dilation}LL - {low}; \
             if (i{axis} < 0 || i{axis} >= x{axis}) continue; {{ "
        );
        at = if axis == 0 { "i0".to_owned() } else { format!("({at}) * x{axis} + i{axis}") };
    }
    text + &format!("const long long at = {at};")
}

/// Loops over the windows whose reach an element is in.
fn each_window(spec: &PoolSpec) -> String {
    let mut text = String::new();
    let mut window = "0".to_owned();
    for axis in 0..spec.window.len() {
        let (stride, low) = (spec.stride[axis], spec.padding[axis].0);
        let reach = (spec.window[axis] - 1) * spec.dilation[axis];
        text += &format!(
            "const long long s{axis} = i{axis} + {low} - {reach}LL; \
             const long long f{axis} = s{axis} > 0 ? (s{axis} + {stride} - 1) / {stride} : 0; "
        );
        window = if axis == 0 { "o0".to_owned() } else { format!("({window}) * y{axis} + o{axis}") };
    }
    for axis in 0..spec.window.len() {
        let (stride, low) = (spec.stride[axis], spec.padding[axis].0);
        text += &format!(
            "for (long long o{axis} = f{axis}; o{axis} < y{axis} && o{axis} * {stride} <= i{axis} + {low}; ++o{axis}) {{ {{ "
        );
    }
    text + &format!("const long long window = {window};")
}

/// How many elements count in a window of an average.
fn count(spec: &PoolSpec) -> String {
    let PoolKind::Average { include_padding } = spec.kind else { return "1".to_owned() };
    let along = |axis: usize| {
        let (window, stride, (low, high)) = (spec.window[axis], spec.stride[axis], spec.padding[axis]);
        if include_padding {
            format!(
                "(kiln_least(o{axis} * {stride} + {window}, x{axis} + {low} + {high}) - o{axis} * {stride})"
            )
        } else {
            // The greater of two is the least of both turned round.
            format!(
                "(kiln_least(o{axis} * {stride} - {low} + {window}, x{axis}) + kiln_least({low} - o{axis} * {stride}, 0))"
            )
        }
    };
    (0..spec.window.len()).map(along).collect::<Vec<_>>().join(" * ")
}
