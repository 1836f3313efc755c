//! FFTs: by the vendor's library (cuFFT), or by kernels that transform lines in shared memory.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::block::fourier::MAX_RADIX;
use crate::driver::{Argument, Arguments, DevicePtr, Driver};
use crate::memory::Block;
use crate::native::{Native, THREADS, length};
use crate::view::tensor;
use kiln_ir::{DType, Engine, FftKind, Op, Operands, Result, TensorType, Value, Values};
use kiln_kernel::print::memory_type;
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

mod blocks;
mod library;

const SOURCE: &str = include_str!("native/fft.cu");

/// Complex `f32` elements that a block holds in shared memory.
const BLOCK: usize = 2048;

/// The maximum number of lines per block.
const MOST_LINES: usize = 64;

/// The maximum length of a cached list of roots, and the maximum number of lists.
const MOST_KEPT: (usize, usize) = (1 << 16, 64);

/// The cache of roots of unity on the device, shared by transforms of equal length.
pub(crate) struct Roots<D: Driver>(Mutex<Lists<D>>);

/// Lists by their contents.
type Lists<D> = HashMap<List, Arc<Block<D>>>;

/// A list of complex numbers: the first `count` roots of unity of order `points`, or the chirp of a line of `points`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct List {
    dtype: DType,
    count: usize,
    points: usize,
    is_chirp: bool,
}

impl<D: Driver> Default for Roots<D> {
    fn default() -> Self {
        Roots(Mutex::default())
    }
}

/// The kind of a transform's lines: complex to complex, real to complex, complex to real. The number is the source's
/// `FORM`.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Complex = 0,
    FromReal = 1,
    ToReal = 2,
}

/// A batch of contiguous complex lines.
#[derive(Clone, Copy)]
struct Lines {
    dtype: DType,
    count: usize,
    length: usize,
}

/// Pointers to the real and the imaginary parts.
struct Parts<D: Driver> {
    re: DevicePtr<D::Memory>,
    im: DevicePtr<D::Memory>,
}

impl<D: Driver> Parts<D> {
    /// Exchanges real and imaginary parts. Done on both sides of a transform, this flips the sign of its exponent.
    fn exchanged(&self) -> Parts<D> {
        Parts { re: self.im.clone(), im: self.re.clone() }
    }
}

/// The strides of a kernel's lines. `inner` lines are adjacent; the next group of lines is `jump` elements on; `step`
/// is the element stride.
#[derive(Clone, Copy)]
struct LineLayout {
    inner: usize,
    jump: usize,
    step: usize,
}

/// The pre- or post-processing step of a transform. The number is the source's `KILN_MAP`.
#[derive(Clone, Copy)]
enum Map {
    Pack = 0,
    Split = 1,
    Join = 2,
    Unpack = 3,
    Pad = 4,
    Filtered = 5,
    Cut = 6,
    Filter = 7,
    Interleave = 8,
    InterleaveHalf = 9,
    Separate = 10,
    Transpose = 11,
}

/// Real lines stored as complex lines.
#[derive(Clone, Copy)]
struct Packed {
    points: usize,
    length: usize,
    is_even: bool,
    /// Whether the exponent has the usual sign: minus from real, plus to real.
    usual: bool,
}

impl Packed {
    fn new(points: usize, usual: bool) -> Packed {
        let is_even = points.is_multiple_of(2);
        Packed { points, length: if is_even { points / 2 } else { points }, is_even, usual }
    }

    /// The factor of the spectrum's imaginary parts, as source text.
    fn sign(&self) -> &'static str {
        if self.usual { "((T)1)" } else { "((T)-1)" }
    }

    /// Whether a block of hand-written CUDA can hold such lines in shared memory.
    fn fits(&self, dtype: DType) -> bool {
        self.length <= capacity(dtype) && is_smooth(self.length)
    }
}

impl<D: Driver> Gpu<D> {
    /// [`Op::Fft`].
    pub(crate) fn fourier(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let Op::Fft { kind, axis, inverse } = *op else {
            return Err(kiln_ir::Error::unsupported("gpu", format!("`{}` is not a transform", op.name())));
        };
        let all = suspicions::<D>(&inputs);
        let dtype = results[0].dtype;
        if dtype.size() == 2 {
            return self.fourier_of_16_bits(op, inputs, results);
        }
        let mut outputs: SmallVec<[Array<D>; 2]> =
            results.iter().map(|ty| self.uninit(ty)).collect::<Result<_>>()?;
        if results[0].num_elements() > 0 {
            let operands = (0..inputs.len()).map(|place| {
                let (x, ty) = tensor::<D>(&inputs, place)?;
                let mut lines = self.lines(x, ty.dtype, axis)?;
                lines.array = self.contiguous_aligned(&lines.array, ty.dtype)?;
                Ok(lines)
            });
            let operands: SmallVec<[_; 2]> = operands.collect::<Result<_>>()?;
            let (first, last) = (&operands[0], &operands[operands.len() - 1]);
            let parts =
                |re: &Array<D>, im: &Array<D>| Parts { re: re.at(dtype.size()), im: im.at(dtype.size()) };
            let from = parts(&first.array, &last.array);
            let to = parts(&outputs[0], &outputs[outputs.len() - 1]);
            let points = kind.points(first.length);
            let lines = Lines { dtype, count: first.count, length: points };
            let done = self.fourier_by_library(kind, inverse, lines, &from, &to)?;
            match kind {
                FftKind::Complex | FftKind::FromReal | FftKind::ToReal { .. } if done => {}
                FftKind::Complex if inverse => self.complex(lines, &from.exchanged(), &to.exchanged())?,
                FftKind::Complex => self.complex(lines, &from, &to)?,
                FftKind::FromReal => {
                    self.spectrum_of_real(lines, Packed::new(points, !inverse), &from, &to)?
                }
                FftKind::ToReal { .. } => {
                    self.real_of_spectrum(lines, Packed::new(points, inverse), &from, &to)?
                }
            }
            let placed = outputs.into_iter().zip(results);
            outputs = placed.map(|(output, ty)| first.result(output, &ty.shape)).collect();
        }
        let values = outputs.into_iter().zip(results).map(|(mut output, ty)| {
            output.suspicions.join(&all);
            output.into_value(*ty)
        });
        Ok(values.collect())
    }

    /// Transforms 16-bit floats in `f32`.
    fn fourier_of_16_bits(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let cast = |value: Value, dtype: DType| {
            let ty = value.ty().with_dtype(dtype);
            self.execute(&Op::Cast(dtype), smallvec![value.into()], &[ty]).remove(0)
        };
        let widened = inputs.iter().filter_map(|operand| operand.value().cloned());
        let widened: Operands = widened.map(|value| cast(value, DType::F32).into()).collect();
        let wide: Vec<TensorType> = results.iter().map(|ty| ty.with_dtype(DType::F32)).collect();
        let found = self.execute(op, widened, &wide);
        Ok(found.into_iter().zip(results).map(|(value, ty)| cast(value, ty.dtype)).collect())
    }

    /// Complex transforms with a negative exponent.
    fn complex(&self, lines: Lines, from: &Parts<D>, to: &Parts<D>) -> Result<()> {
        let Lines { dtype, count, length: points } = lines;
        if !is_smooth(points) {
            return self.by_convolution(lines, from, to);
        }
        let capacity = self.line_capacity(dtype);
        let along = LineLayout { inner: 1, jump: points, step: 1 };
        if points <= capacity {
            return self.transform_lines(lines, from, to, None, [along, along], None);
        }
        // The four-step algorithm: point `a * columns + b` is at row `a`, column `b`; frequency `c + d * rows` at row
        // `c`, column `d`.
        let divisors = (1..=capacity).filter(|&divisor| points.is_multiple_of(divisor));
        let rows = divisors.min_by_key(|&rows| (rows * rows).abs_diff(points)).unwrap_or(1);
        let columns = points / rows;
        let twiddles = self.roots(dtype, points, points)?;
        let (_middle, middle) = self.scratch(lines)?;
        let across = LineLayout { inner: columns, jump: points, step: columns };
        let first = Lines { count: count * columns, length: rows, ..lines };
        self.transform_lines(first, from, &middle, None, [across, across], Some((twiddles.at(0), columns)))?;
        let second = Lines { count: count * rows, length: columns, ..lines };
        if columns <= capacity {
            let from = LineLayout { inner: 1, jump: columns, step: 1 };
            let transposed = LineLayout { inner: rows, jump: points, step: rows };
            return self.transform_lines(second, &middle, to, None, [from, transposed], None);
        }
        let (_last, last) = self.scratch(lines)?;
        self.complex(second, &middle, &last)?;
        let packed = Packed { points, length: rows, is_even: false, usual: true };
        self.map(Map::Transpose, second, packed, [&last, &last, to], &twiddles, count * points)
    }

    /// The first `count` roots of unity of order `points`.
    fn roots(&self, dtype: DType, count: usize, points: usize) -> Result<Arc<Block<D>>> {
        self.list(List { dtype, count, points, is_chirp: false })
    }

    /// The list from which the kernels of Bluestein's algorithm read the chirp. Hand-written CUDA reads the roots of twice
    /// the order.
    fn chirp(&self, dtype: DType, points: usize) -> Result<Arc<Block<D>>> {
        if self.has_native() {
            return self.roots(dtype, 2 * points, 2 * points);
        }
        self.list(List { dtype, count: points, points, is_chirp: true })
    }

    fn list(&self, list: List) -> Result<Arc<Block<D>>> {
        let kept = || self.fourier_roots.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(block) = kept().get(&list) {
            return Ok(block.clone());
        }
        let List { dtype, count, points, .. } = list;
        let block = self.block(2 * count * dtype.size())?;
        if self.has_native() {
            let native =
                Native::new(SOURCE, "kiln_fft_roots").name("KILN_ROOTS", "").name("T", memory_type(dtype));
            let arguments = smallvec![Argument::Pointer(block.at(0)), length(count), length(points)];
            self.native(native, count, arguments)?;
        } else {
            self.queue.write(&block.at(0), &list.bytes())?;
        }
        let block = Arc::new(block);
        let mut kept = kept();
        if count <= MOST_KEPT.0 && kept.len() < MOST_KEPT.1 {
            kept.insert(list, block.clone());
        }
        Ok(block)
    }

    /// Scratch memory for complex lines.
    fn scratch(&self, lines: Lines) -> Result<([Block<D>; 2], Parts<D>)> {
        let bytes = lines.count.saturating_mul(lines.length).saturating_mul(lines.dtype.size());
        // One launch must not bind a buffer to two tensors if it writes one of them.
        let blocks = [self.block(bytes)?, self.block(bytes)?];
        let parts = Parts { re: blocks[0].at(0), im: blocks[1].at(0) };
        Ok((blocks, parts))
    }

    /// Transforms lines that fit shared memory; `packed` describes them if one side is real.
    fn transform_lines(
        &self,
        lines: Lines,
        from: &Parts<D>,
        to: &Parts<D>,
        packed: Option<(Form, Packed)>,
        [source, target]: [LineLayout; 2],
        twiddles: Option<(DevicePtr<D::Memory>, usize)>,
    ) -> Result<()> {
        if !self.has_native() {
            return self.transform_lines_by_blocks(lines, [from, to], [source, target], twiddles);
        }
        let Lines { dtype, count, length: points } = lines;
        let of_block = (capacity(dtype) / points).clamp(1, MOST_LINES).min(count.next_power_of_two());
        let plain = Packed { points, length: points, is_even: false, usual: true };
        let (form, packed) = packed.unwrap_or((Form::Complex, plain));
        let roots = self.roots(dtype, packed.points, packed.points)?;
        // A line of one element has no pass that could load it.
        let is_in_order = points > 1 && (form == Form::FromReal || form == Form::Complex && source.step == 1);
        let native = Native::new(SOURCE, "kiln_fft")
            .name("KILN_LINES", "")
            .name("T", memory_type(dtype))
            .name("LENGTH", points)
            .name("POINTS", packed.points)
            .name("LINES", of_block)
            .name("FORM", form as usize)
            .name("SIGN", packed.sign())
            .name("THREADS", THREADS as usize)
            .name("PASSES", passes(points))
            .name("IN_ORDER", is_in_order)
            .name("FROM_NEAR", source.step == 1)
            .name("TO_NEAR", target.step == 1)
            .name("TWIDDLE", twiddles.is_some());
        let (twiddles, columns) = twiddles.unwrap_or((roots.at(0), 1));
        let mut arguments: Arguments<D::Memory> = [&from.re, &from.im, &to.re, &to.im]
            .map(|place| Argument::Pointer(place.clone()))
            .into_iter()
            .collect();
        arguments.extend([
            Argument::Pointer(roots.at(0)),
            Argument::Pointer(twiddles),
            length(count),
            length(columns),
        ]);
        for layout in [source, target] {
            arguments.extend([length(layout.inner), length(layout.jump), length(layout.step)]);
        }
        self.native_blocks(native, count.div_ceil(of_block), arguments)
    }

    fn spectrum_of_real(&self, lines: Lines, packed: Packed, from: &Parts<D>, to: &Parts<D>) -> Result<()> {
        let complex = Lines { length: packed.length, ..lines };
        if self.has_native() && packed.fits(lines.dtype) {
            let along = LineLayout { inner: 1, jump: packed.length, step: 1 };
            return self.transform_lines(
                complex,
                from,
                to,
                Some((Form::FromReal, packed)),
                [along, along],
                None,
            );
        }
        let roots = self.roots(lines.dtype, packed.points, packed.points)?;
        let (_before, before) = self.scratch(complex)?;
        let (_after, after) = self.scratch(complex)?;
        let bins = packed.points / 2 + 1;
        self.map(Map::Pack, complex, packed, [from, from, &before], &roots, lines.count * packed.length)?;
        self.complex(complex, &before, &after)?;
        self.map(Map::Split, complex, packed, [&after, &after, to], &roots, lines.count * bins)
    }

    fn real_of_spectrum(&self, lines: Lines, packed: Packed, from: &Parts<D>, to: &Parts<D>) -> Result<()> {
        let complex = Lines { length: packed.length, ..lines };
        if self.has_native() && packed.fits(lines.dtype) {
            let along = LineLayout { inner: 1, jump: packed.length, step: 1 };
            return self.transform_lines(
                complex,
                from,
                to,
                Some((Form::ToReal, packed)),
                [along, along],
                None,
            );
        }
        let roots = self.roots(lines.dtype, packed.points, packed.points)?;
        let (_before, before) = self.scratch(complex)?;
        let (_after, after) = self.scratch(complex)?;
        let total = lines.count * packed.length;
        self.map(Map::Join, complex, packed, [from, from, &before], &roots, total)?;
        self.complex(complex, &before, &after)?;
        self.map(Map::Unpack, complex, packed, [&after, &after, to], &roots, total)
    }

    /// Bluestein's algorithm: `Y[k] = c[k] Σ (x[n] c[n]) conj(c[k - n])` with the chirp `c[k] = exp(-πi k² / points)`
    /// ([Bluestein 1970](https://doi.org/10.1109/TAU.1970.1162132)), a convolution whose length is a power of two.
    fn by_convolution(&self, lines: Lines, from: &Parts<D>, to: &Parts<D>) -> Result<()> {
        let points = lines.length;
        let size = (2 * points - 1).next_power_of_two();
        let roots = self.chirp(lines.dtype, points)?;
        let chirp = Packed { points, length: size, is_even: false, usual: true };
        let one = Lines { count: 1, length: size, ..lines };
        let (_plain, plain) = self.scratch(one)?;
        let (_filter, filter) = self.scratch(one)?;
        self.map(Map::Filter, one, chirp, [&plain, &plain, &plain], &roots, size)?;
        self.complex(one, &plain, &filter)?;
        let padded = Lines { length: size, ..lines };
        let (_before, before) = self.scratch(padded)?;
        let (_after, after) = self.scratch(padded)?;
        let total = lines.count * size;
        self.map(Map::Pad, padded, chirp, [from, from, &before], &roots, total)?;
        self.complex(padded, &before, &after)?;
        self.map(Map::Filtered, padded, chirp, [&after, &filter, &before], &roots, total)?;
        self.complex(padded, &before.exchanged(), &after.exchanged())?;
        self.map(Map::Cut, padded, chirp, [&after, &after, to], &roots, lines.count * points)
    }

    /// Runs the elementwise pre- or post-processing of a transform for `total` elements: reads two tensors, writes a
    /// third.
    fn map(
        &self,
        map: Map,
        lines: Lines,
        packed: Packed,
        parts: [&Parts<D>; 3],
        roots: &Block<D>,
        total: usize,
    ) -> Result<()> {
        if !self.has_native() {
            return self.map_by_blocks(map, lines.dtype, packed, parts, roots, total);
        }
        let native = Native::new(SOURCE, "kiln_fft_map")
            .name("KILN_MAP", map as usize)
            .name("T", memory_type(lines.dtype))
            .name("EVEN", packed.is_even)
            .name("SIGN", packed.sign());
        let places = parts.into_iter().flat_map(|parts| [&parts.re, &parts.im]);
        let mut arguments: Arguments<D::Memory> =
            places.map(|place| Argument::Pointer(place.clone())).collect();
        arguments.push(Argument::Pointer(roots.at(0)));
        arguments.extend([length(total), length(packed.points), length(packed.length)]);
        self.native(native, total, arguments)
    }
}

/// The maximum line length that fits the shared memory of a block.
fn capacity(dtype: DType) -> usize {
    BLOCK * DType::F32.size() / dtype.size()
}

/// Whether all prime factors of a length have radix passes.
fn is_smooth(length: usize) -> bool {
    let mut rest = length;
    for prime in 2..=MAX_RADIX {
        while rest > 1 && rest.is_multiple_of(prime) {
            rest /= prime;
        }
    }
    rest == 1
}

/// The radix passes of a length, as source text.
fn passes(length: usize) -> String {
    let (mut left, mut done) = (length, 1);
    let mut text = String::new();
    for radix in [8, 4].into_iter().chain(2..=MAX_RADIX) {
        while left > 1 && left.is_multiple_of(radix) {
            left /= radix;
            text += &format!("kiln_pass<{radix}, {left}, {done}>(a, roots, load); ");
            done *= radix;
        }
    }
    text
}
