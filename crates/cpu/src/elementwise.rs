//! Unary, Binary, Compare, Select and Cast: one loop over contiguous tiles, for operands with any strides.

use crate::Cpu;
use crate::array::{Array, is_reusable};
use crate::buffer::Buffer;
use crate::copy::{Shared, copy_row};
use crate::isa::Level;
use crate::kernels::{self, Conversion, Loop1};
use crate::scalar::scalar_bytes;
use crate::walk::{Cursor, Walk};
use core::mem::MaybeUninit;
use kiln_ir::{
    Binary, Comparison, DType, Effort, FunctionInfo, Layout, Operand, Operands, Result, Scalar, TensorType,
    Unary, Value, Values, poison_of, select_unpoisoned,
};
use smallvec::smallvec;

/// Elements per tile. Strided operands are gathered, and overwritten ones copied, in tiles that stay in the L1 cache.
const TILE: usize = 512;

/// A tile of an operand.
type Tile = [MaybeUninit<u64>; TILE];

/// The minimum elements per task: for functions as cheap as an addition, and as expensive as a logarithm.
const CHEAP: usize = 1 << 15;
const COSTLY: usize = 1 << 13;
/// The minimum elements per task of functions that call into the math library for each element.
const CALLING: usize = 1 << 11;

pub(crate) fn unary(cpu: &Cpu, function: Unary, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    let dtype = results[0].dtype;
    let widths = Widths::of(dtype, dtype);
    let function_loop = kernels::unary(function, widths.computed);
    let grain = grain(function.info(), dtype);
    apply(cpu, inputs, &results[0], [dtype], grain, |x, y, n| {
        // SAFETY: `apply` passes ranges of `n` elements that do not overlap.
        widths.run(cpu.level, x, y, n, |[x], y, n| unsafe { function_loop(cpu.level, x, y, n) });
    })
}

pub(crate) fn binary(
    cpu: &Cpu,
    function: Binary,
    mut inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let dtype = results[0].dtype;
    if function == Binary::Pow && dtype.is_float() && is_number(&inputs[1], 2.0) {
        // By far the most frequent power, and exactly rounded either way.
        return unary_square(cpu, inputs.remove(0), results);
    }
    let widths = Widths::of(dtype, dtype);
    let function_loop = kernels::binary(function, widths.computed);
    let grain = grain(function.info(), dtype);
    apply(cpu, inputs, &results[0], [dtype; 2], grain, |x, y, n| {
        // SAFETY: as in `unary`.
        widths.run(cpu.level, x, y, n, |[a, b], y, n| unsafe { function_loop(cpu.level, a, b, y, n) });
    })
}

fn is_number(operand: &Operand, number: f64) -> bool {
    match operand {
        Operand::Scalar(scalar) => scalar.to_f64() == number,
        Operand::Value(_) => false,
    }
}

fn unary_square(cpu: &Cpu, x: Operand, results: &[TensorType]) -> Result<Values> {
    let dtype = results[0].dtype;
    let widths = Widths::of(dtype, dtype);
    let multiply = kernels::binary(Binary::Mul, widths.computed);
    apply(cpu, smallvec![x], &results[0], [dtype], CHEAP, |x, y, n| {
        // SAFETY: as in `unary`; the loop only reads `x`.
        widths.run(cpu.level, x, y, n, |[x], y, n| unsafe { multiply(cpu.level, x, x, y, n) });
    })
}

/// The minimum elements per task of a function.
fn grain(function: &FunctionInfo, dtype: DType) -> usize {
    match function.effort {
        Effort::Arithmetic | Effort::Division => CHEAP,
        Effort::Elementary if dtype == DType::F64 => CALLING,
        Effort::Elementary => COSTLY,
        Effort::Library => CALLING,
    }
}

pub(crate) fn compare(
    cpu: &Cpu,
    comparison: Comparison,
    inputs: Operands,
    results: &[TensorType],
) -> Result<Values> {
    let operand = inputs.iter().find_map(|operand| operand.value());
    let dtype = operand.map_or(results[0].dtype, |value| value.dtype());
    let widths = Widths::of(dtype, results[0].dtype);
    let function_loop = kernels::compare(comparison, widths.computed);
    apply(cpu, inputs, &results[0], [dtype; 2], CHEAP, |x, y, n| {
        // SAFETY: as in `unary`.
        widths.run(cpu.level, x, y, n, |[a, b], y, n| unsafe { function_loop(cpu.level, a, b, y, n) });
    })
}

pub(crate) fn select(cpu: &Cpu, inputs: Operands, results: &[TensorType]) -> Result<Values> {
    let dtype = results[0].dtype;
    if let Some(error) = poison_of(&inputs) {
        return match select_unpoisoned(&inputs, |condition| holds(cpu, condition)) {
            Some(Operand::Value(value)) => Ok(smallvec![value.clone()]),
            Some(Operand::Scalar(scalar)) => {
                crate::fill::full(cpu, &results[0], &smallvec![(*scalar).into()])
            }
            None => Err(error),
        };
    }
    let function_loop = kernels::select(dtype.size());
    let dtypes = [DType::Bool, dtype, dtype];
    apply(cpu, inputs, &results[0], dtypes, CHEAP, |[condition, a, b], y, n| {
        // SAFETY: as in `unary`.
        unsafe { function_loop(cpu.level, condition, a, b, y, n) }
    })
}

/// Whether a condition is true everywhere or false everywhere; `None` if mixed.
#[cold]
fn holds(cpu: &Cpu, condition: &Value) -> Option<bool> {
    let array = cpu.contiguous(Array::of(condition).ok()?, condition.ty()).ok()?;
    let (first, rest) = array.data::<bool>().split_first()?;
    rest.iter().all(|other| other == first).then_some(*first)
}

pub(crate) fn cast(cpu: &Cpu, mut inputs: Operands, results: &[TensorType]) -> Result<Values> {
    let ty = &results[0];
    let from = inputs[0].value().map_or(ty.dtype, |value| value.dtype());
    if from == ty.dtype
        && let Operand::Value(value) = inputs.remove(0)
    {
        return Ok(smallvec![value]);
    }
    match kernels::conversion(from, ty.dtype) {
        Conversion::Direct(convert) => apply(cpu, inputs, ty, [from], CHEAP, |[x], y, n| {
            // SAFETY: as in `unary`.
            unsafe { convert(cpu.level, x, y, n) }
        }),
        Conversion::Through(widen, narrow) => apply(cpu, inputs, ty, [from], CHEAP, |[x], y, n| {
            convert_through(cpu, (widen, from.size()), (narrow, ty.dtype.size()), x, y, n);
        }),
    }
}

/// The dtype in which a function is computed, and the loops that convert operands to it and results from it, if it is
/// not their own.
#[derive(Clone, Copy)]
struct Widths {
    computed: DType,
    widen: Option<Loop1>,
    narrow: Option<Loop1>,
}

impl Widths {
    /// 16-bit floats are computed in `f32`.
    #[inline]
    fn of(operands: DType, result: DType) -> Widths {
        match kernels::half_loops(operands) {
            Some((widen, narrow)) => {
                let narrow = (result == operands).then_some(narrow);
                Widths { computed: DType::F32, widen: Some(widen), narrow }
            }
            None => Widths { computed: operands, widen: None, narrow: None },
        }
    }

    /// Calls `call`, tile by tile if operands are converted.
    #[inline]
    fn run<const N: usize>(
        self,
        level: Level,
        x: [*const u8; N],
        y: *mut u8,
        n: usize,
        call: impl Fn([*const u8; N], *mut u8, usize),
    ) {
        match self.widen {
            None => call(x, y, n),
            Some(widen) => run_widened(level, (widen, self.narrow), x, y, n, &call),
        }
    }
}

/// Widens operands of 2 bytes to 4. Results are narrowed again if there is a loop for that; otherwise they have 1 byte.
fn run_widened<const N: usize>(
    level: Level,
    (widen, narrow): (Loop1, Option<Loop1>),
    x: [*const u8; N],
    y: *mut u8,
    n: usize,
    call: &dyn Fn([*const u8; N], *mut u8, usize),
) {
    let mut tiles = [[MaybeUninit::<f32>::uninit(); TILE]; N];
    let mut result = [MaybeUninit::<f32>::uninit(); TILE];
    let result = result.as_mut_ptr().cast::<u8>();
    for start in (0..n).step_by(TILE) {
        let len = TILE.min(n - start);
        let mut wide = [core::ptr::null(); N];
        for place in 0..N {
            let tile = tiles[place].as_mut_ptr().cast::<u8>();
            // SAFETY: a range of the operand; the tile has room for `TILE` elements.
            unsafe { widen(level, x[place].add(2 * start), tile, len) };
            wide[place] = tile.cast_const();
        }
        match narrow {
            Some(narrow) => {
                call(wide, result, len);
                // SAFETY: `call` has written the tile; a range of the result.
                unsafe { narrow(level, result, y.add(2 * start), len) };
            }
            None => call(wide, y.wrapping_add(start), len),
        }
    }
}

/// Converts tile by tile through 8-byte elements.
fn convert_through(
    cpu: &Cpu,
    (widen, from): (Loop1, usize),
    (narrow, to): (Loop1, usize),
    x: *const u8,
    y: *mut u8,
    n: usize,
) {
    let mut wide: Tile = [MaybeUninit::uninit(); TILE];
    let wide = wide.as_mut_ptr().cast::<u8>();
    for start in (0..n).step_by(TILE) {
        let len = TILE.min(n - start);
        // SAFETY: as in `unary`; the tile has room for `TILE` elements of 8 bytes.
        unsafe {
            widen(cpu.level, x.add(start * from), wide, len);
            narrow(cpu.level, wide, y.add(start * to), len);
        }
    }
}

/// The source of an operand's elements.
enum Source {
    /// Contiguous memory in the order of the result.
    Flat(*const u8),
    /// Contiguous memory in the order of the result, which overwrites it.
    Overwritten(*const u8),
    Strided(*const u8, Walk<1>),
    Number([u8; 8]),
}

// SAFETY: sources are only read, except `Overwritten` ones, of which each thread has its own part.
unsafe impl Sync for Source {}

/// Applies a function of `N` operands of these dtypes elementwise. `call` receives the pointers to `N` contiguous
/// ranges and to one of the result, and the number of elements; none overlaps the result's.
///
/// The result reuses the memory of an operand without other owners (in-place).
#[inline]
fn apply<const N: usize>(
    cpu: &Cpu,
    inputs: Operands,
    ty: &TensorType,
    dtypes: [DType; N],
    grain: usize,
    call: impl Fn([*const u8; N], *mut u8, usize) + Sync,
) -> Result<Values> {
    let n = ty.num_elements();
    if n <= TILE
        && let Some(few) = SmallOperands::gather(&inputs, ty, dtypes)
    {
        return if n <= MIN_TILE {
            few.run::<MIN_TILE>(inputs, ty, dtypes, n, &call)
        } else {
            few.run::<TILE>(inputs, ty, dtypes, n, &call)
        };
    }
    apply_any(cpu, inputs, ty, dtypes, (n, grain), &call)
}

/// As [`apply`], for any number of elements and any strides.
#[inline(never)]
fn apply_any<const N: usize>(
    cpu: &Cpu,
    mut inputs: Operands,
    ty: &TensorType,
    dtypes: [DType; N],
    (n, grain): (usize, usize),
    call: &(impl Fn([*const u8; N], *mut u8, usize) + Sync),
) -> Result<Values> {
    let size = ty.dtype.size();
    let reused = inputs.iter().position(|operand| match operand {
        Operand::Value(value) => value.dtype().size() == size && is_reusable(value),
        Operand::Scalar(_) => false,
    });
    let Some(place) = reused else {
        let result = Array::uninit(ty)?;
        write_any(cpu, &inputs, (result.as_mut_ptr(), usize::MAX), dtypes, (n, size, grain), call)?;
        return Ok(smallvec![result.into_value(*ty)]);
    };
    let target = match &inputs[place] {
        Operand::Value(value) => Array::of(value)?.as_mut_ptr::<u8>(),
        Operand::Scalar(_) => return Ok(Values::new()),
    };
    write_any(cpu, &inputs, (target, place), dtypes, (n, size, grain), call)?;
    overwritten(&mut inputs[place], ty)
}

/// The overwritten operand as the result.
#[inline]
fn overwritten(operand: &mut Operand, ty: &TensorType) -> Result<Values> {
    let Operand::Value(value) = core::mem::replace(operand, Operand::Scalar(Scalar::Bool(false))) else {
        return Ok(Values::new());
    };
    if value.dtype() == ty.dtype {
        return Ok(Values::from_buf([value]));
    }
    let buffer = Array::of(&value)?.buffer.clone();
    Ok(smallvec![Array { buffer, layout: Layout::contiguous(ty.shape) }.into_value(*ty)])
}

/// Operands of at most a tile of elements, either plain numbers or contiguous tensors: the common case of small eager
/// ops. The time of such an op is instruction overhead, so each operand is inspected once.
struct SmallOperands<const N: usize> {
    /// The pointers to tensors; `null` for plain numbers.
    stretches: [*const u8; N],
    /// The operand whose memory the result reuses; `N` if there is none.
    reused: usize,
}

/// The tile length for which a tile takes one or two cache lines.
const MIN_TILE: usize = 16;

impl<const N: usize> SmallOperands<N> {
    /// Collects the operands; `None` if one is strided, poisoned, or of another engine.
    #[inline]
    fn gather(inputs: &[Operand], ty: &TensorType, dtypes: [DType; N]) -> Option<SmallOperands<N>> {
        let inputs: &[Operand; N] = inputs.try_into().ok()?;
        let mut few = SmallOperands { stretches: [core::ptr::null(); N], reused: N };
        for place in 0..N {
            if let Operand::Value(value) = &inputs[place] {
                let array = value.payload::<Array>().filter(|array| array.is_contiguous())?;
                let size = dtypes[place].size();
                few.stretches[place] = array.address(size);
                if few.reused == N && size == ty.dtype.size() && array.is_reusable_in(value) {
                    few.reused = place;
                }
            }
        }
        Some(few)
    }

    #[inline]
    fn run<const LEN: usize>(
        self,
        mut inputs: Operands,
        ty: &TensorType,
        dtypes: [DType; N],
        n: usize,
        call: &impl Fn([*const u8; N], *mut u8, usize),
    ) -> Result<Values> {
        let SmallOperands { stretches, reused } = self;
        if reused < N {
            let target = stretches[reused].cast_mut();
            SmallOperands { stretches, reused }.write::<LEN>(&inputs, target, dtypes, n, call);
            return overwritten(&mut inputs[reused], ty);
        }
        let buffer = Buffer::uninit(ty.num_bytes())?;
        SmallOperands { stretches, reused }.write::<LEN>(&inputs, buffer.as_ptr(), dtypes, n, call);
        Ok(Values::from_buf([Value::new(*ty, Array { buffer, layout: Layout::contiguous(ty.shape) })]))
    }

    /// Computes the result. Plain numbers are broadcast to tiles, and the overwritten operand is copied first.
    #[inline]
    fn write<const LEN: usize>(
        mut self,
        inputs: &[Operand],
        target: *mut u8,
        dtypes: [DType; N],
        n: usize,
        call: &impl Fn([*const u8; N], *mut u8, usize),
    ) {
        let mut tiles = [const { [const { MaybeUninit::<u64>::uninit() }; LEN] }; N];
        for place in 0..N {
            let (tile, size) = (&mut tiles[place], dtypes[place].size());
            if let Operand::Scalar(scalar) = &inputs[place] {
                fill(tile, scalar_bytes(*scalar, dtypes[place]), size, n);
            } else if place == self.reused {
                // SAFETY: the operand's `n` elements; a tile has room for as many of 8 bytes.
                unsafe { set_aside(self.stretches[place], tile.as_mut_ptr().cast(), n * size) };
            } else {
                continue;
            }
            self.stretches[place] = tile.as_ptr().cast();
        }
        call(self.stretches, target, n);
    }
}

/// Copies bytes, without a call for the few bytes of a single number.
///
/// # Safety
/// That many bytes may be read and written, and do not overlap.
#[inline(always)]
unsafe fn set_aside(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        match bytes {
            4 => to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()),
            8 => to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()),
            _ => to.copy_from_nonoverlapping(from, bytes),
        }
    }
}

/// Computes a result from operands of any size and strides. The target names the operand that it overwrites, if any.
fn write_any<const N: usize>(
    cpu: &Cpu,
    inputs: &Operands,
    (target, overwritten): (*mut u8, usize),
    dtypes: [DType; N],
    (n, size, grain): (usize, usize, usize),
    call: &(impl Fn([*const u8; N], *mut u8, usize) + Sync),
) -> Result<()> {
    let mut copies: [Option<Array>; N] = [const { None }; N];
    let mut sources: [Source; N] = [const { Source::Number([0; 8]) }; N];
    for place in 0..N {
        sources[place] = match &inputs[place] {
            Operand::Scalar(scalar) => Source::Number(scalar_bytes(*scalar, dtypes[place])),
            Operand::Value(value) => {
                source(cpu, Array::of(value)?, value.ty(), overwritten == place, &mut copies[place])?
            }
        };
    }
    run(cpu, &sources, dtypes.map(DType::size), (target, size), n, grain, call);
    Ok(())
}

fn source(
    cpu: &Cpu,
    array: &Array,
    ty: &TensorType,
    overwritten: bool,
    copy: &mut Option<Array>,
) -> Result<Source> {
    if overwritten {
        return Ok(Source::Overwritten(array.as_ptr()));
    }
    let first = array.address(ty.dtype.size()).cast_const();
    if array.is_contiguous() {
        return Ok(Source::Flat(first));
    }
    let walk = Walk::new(&ty.shape, [array.strides()]);
    if is_scattered(&walk, ty) {
        let array = copy.insert(cpu.copied(array, ty)?);
        return Ok(Source::Flat(array.as_ptr()));
    }
    Ok(Source::Strided(first, walk))
}

/// Whether reading in row-major order would fetch a cache line for almost every element, where a blocked copy would
/// not.
fn is_scattered(walk: &Walk<1>, ty: &TensorType) -> bool {
    const LARGE: usize = 1 << 14;
    let Some(last) = walk.rank.checked_sub(1) else { return false };
    let step = |axis: usize| walk.strides[axis][0].unsigned_abs();
    let nearer = (0..last).any(|axis| step(axis) != 0 && step(axis) < step(last));
    nearer && ty.num_elements() >= LARGE && step(last) * ty.dtype.size() >= 64
}

fn run<const N: usize>(
    cpu: &Cpu,
    sources: &[Source; N],
    sizes: [usize; N],
    (target, size): (*mut u8, usize),
    n: usize,
    grain: usize,
    call: &(impl Fn([*const u8; N], *mut u8, usize) + Sync),
) {
    let mut flat = [core::ptr::null(); N];
    let mut is_flat = true;
    for place in 0..N {
        match sources[place] {
            Source::Flat(pointer) => flat[place] = pointer,
            Source::Overwritten(_) | Source::Strided(..) | Source::Number(_) => is_flat = false,
        }
    }
    if is_flat && n <= grain {
        return call(flat, target, n);
    }
    let target = Shared::new(target);
    if is_flat {
        let flat = flat.map(|pointer| Shared::new(pointer.cast_mut()));
        return cpu.pool.parallel_for(n, grain, |range| {
            let stretches =
                core::array::from_fn(|i| flat[i].get().wrapping_add(range.start * sizes[i]).cast_const());
            call(stretches, target.get().wrapping_add(range.start * size), range.len());
        });
    }
    cpu.pool.parallel_for(n, grain, |range| {
        let mut tiles: [Tile; N] = [const { [MaybeUninit::uninit(); TILE] }; N];
        let mut places: [Cursor<1>; N] = core::array::from_fn(|i| match &sources[i] {
            Source::Strided(_, walk) => walk.at(range.start),
            Source::Flat(_) | Source::Overwritten(_) | Source::Number(_) => Cursor::default(),
        });
        for i in 0..N {
            if let Source::Number(bytes) = &sources[i] {
                fill(&mut tiles[i], *bytes, sizes[i], TILE.min(range.len()));
            }
        }
        for start in range.clone().step_by(TILE) {
            let len = TILE.min(range.end - start);
            let stretches = core::array::from_fn(|i| {
                let tile = tiles[i].as_mut_ptr().cast::<u8>();
                match &sources[i] {
                    Source::Flat(pointer) => pointer.wrapping_add(start * sizes[i]),
                    Source::Overwritten(pointer) => {
                        let from = pointer.wrapping_add(start * sizes[i]);
                        // SAFETY: a range of the operand, copied before the result overwrites it.
                        unsafe { tile.copy_from_nonoverlapping(from, len * sizes[i]) };
                        tile.cast_const()
                    }
                    Source::Strided(pointer, walk) => {
                        // SAFETY: the walk stays within the operand.
                        unsafe { gather(walk, &mut places[i], *pointer, sizes[i], tile, len) };
                        tile.cast_const()
                    }
                    Source::Number(_) => tile.cast_const(),
                }
            });
            call(stretches, target.get().wrapping_add(start * size), len);
        }
    });
}

#[inline]
fn fill(tile: &mut [MaybeUninit<u64>], bytes: [u8; 8], size: usize, n: usize) {
    let word = u64::from_ne_bytes(bytes);
    let repeated = match size {
        1 => u64::from_ne_bytes([bytes[0]; 8]),
        2 => u64::from_ne_bytes([
            bytes[0], bytes[1], bytes[0], bytes[1], bytes[0], bytes[1], bytes[0], bytes[1],
        ]),
        4 => u64::from_ne_bytes([
            bytes[0], bytes[1], bytes[2], bytes[3], bytes[0], bytes[1], bytes[2], bytes[3],
        ]),
        _ => word,
    };
    tile[..(n * size).div_ceil(8)].fill(MaybeUninit::new(repeated));
}

/// Copies the next `n` elements of a walk, of `size` bytes each, and advances the cursor.
///
/// # Safety
/// The walk has that many elements left and stays within its memory; `to` has room for them.
unsafe fn gather(walk: &Walk<1>, place: &mut Cursor<1>, from: *const u8, size: usize, to: *mut u8, n: usize) {
    // SAFETY: as the caller promises.
    unsafe {
        match size {
            1 => gather_elements::<u8>(walk, place, from, to, n),
            2 => gather_elements::<u16>(walk, place, from.cast(), to.cast(), n),
            4 => gather_elements::<u32>(walk, place, from.cast(), to.cast(), n),
            _ => gather_elements::<u64>(walk, place, from.cast(), to.cast(), n),
        }
    }
}

/// # Safety
/// As [`gather`].
unsafe fn gather_elements<T: Copy>(
    walk: &Walk<1>,
    place: &mut Cursor<1>,
    from: *const T,
    mut to: *mut T,
    mut n: usize,
) {
    let Some(inner) = walk.rank.checked_sub(1) else {
        if n > 0 {
            // SAFETY: one element.
            unsafe { *to = *from };
        }
        return;
    };
    while n > 0 {
        let len = n.min(walk.lengths[inner] - place.along(inner));
        // SAFETY: the rest of a row.
        unsafe {
            copy_row(len, from.offset(place.offsets[0]), to, [walk.strides[inner][0], 1]);
            to = to.add(len);
        }
        place.advance(walk, len);
        n -= len;
    }
}
