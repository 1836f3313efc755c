//! Copies of a source into the layout of [`Lines`].

use super::lines::Lines;
use crate::Cpu;
use crate::array::Array;
use crate::contraction::simd::{Float, Kernel, Simd};
use crate::copy::Shared;
use crate::isa::{Widest, multiversion};

/// Copies one channel of a source into the layout.
///
/// # Safety
/// The array has such a channel; `to` has room for a plane.
pub(super) unsafe fn lay_out<T: Float>(
    cpu: &Cpu,
    lines: &Lines,
    source: &Array,
    n: usize,
    channel: usize,
    to: *mut T,
) {
    let strides = source.strides();
    let offset = n as isize * strides[0] + channel as isize * strides[1];
    let from = source.as_mut_ptr::<T>().wrapping_offset(offset);
    if let Some(rows) = Rows::new(lines, &strides[2..], from, to) {
        // SAFETY: as the caller promises.
        return unsafe { T::dispatch(cpu.level, rows) };
    }
    let from = Shared::new(from);
    spread(cpu.level, lines, from, &strides[2..], Shared::new(to));
}

/// A channel of two axes whose rows are copied contiguously, with zeros between them: the common case.
struct Rows<T> {
    from: *const T,
    /// The row stride, in the source and in the layout.
    from_row: isize,
    pitch: usize,
    rows: usize,
    /// Elements of a row.
    width: usize,
    /// Zeros before the first element.
    before: usize,
    plane: usize,
    to: *mut T,
}

impl<T> Rows<T> {
    fn new(lines: &Lines, strides: &[isize], from: *const T, to: *mut T) -> Option<Rows<T>> {
        let ([down, along], &[from_row, 1]) = (lines.axes.as_slice(), strides) else { return None };
        let whole = lines.axes.iter().all(|axis| axis.step == 1 && axis.remainders == [0] && axis.stride > 0);
        whole.then(|| Rows {
            from,
            from_row,
            pitch: down.stride,
            rows: down.kept(0),
            width: along.kept(0),
            before: down.zeros * down.stride + along.zeros,
            plane: lines.plane,
            to,
        })
    }
}

impl<T: Float> Kernel<T> for Rows<T> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Simd<T>>(self) {
        let Rows { from, from_row, pitch, rows, width, before, plane, to } = self;
        // SAFETY: rows of the channel; the plane has room for each, and the zeros are the padding between them.
        unsafe {
            to.write_bytes(0, before);
            for row in 0..rows {
                let from = from.offset(row as isize * from_row);
                let to = to.add(before + row * pitch);
                let mut i = 0;
                while i + S::LANES <= width {
                    S::store(to.add(i), S::load(from.add(i)));
                    i += S::LANES;
                }
                if i < width {
                    if width >= S::LANES {
                        i = width - S::LANES;
                        S::store(to.add(i), S::load(from.add(i)));
                    } else {
                        S::store_some(to, S::load_some(from, width), width);
                    }
                }
                if row + 1 < rows {
                    (width..pitch).for_each(|i| *to.add(i) = T::ZERO);
                }
            }
            let end = if rows > 0 { before + (rows - 1) * pitch + width } else { before };
            to.add(end).write_bytes(0, plane - end);
        }
    }
}

multiversion! {
    /// Copies a channel into its positions among zeros. The caller guarantees both addresses.
    fn spread[T: Float]<T> in { Widest::Avx512 } (lines: &Lines, from: Shared<T>, strides: &[isize], to: Shared<T>) {
        let (last, outer) = match lines.axes.split_last() {
            Some(split) => split,
            None => return,
        };
        let rows: usize = outer.iter().map(|axis| axis.length).product();
        // SAFETY: every line of the channel has its position in the plane.
        unsafe {
            to.get().write_bytes(0, lines.plane);
            'rows: for number in 0..rows {
                let (mut rest, mut source, mut target, mut part, mut parts) = (number, 0isize, 0, 0, 1);
                for (axis, &stride) in outer.iter().zip(strides).rev() {
                    let i = rest % axis.length;
                    rest /= axis.length;
                    source += i as isize * stride;
                    let (remainder, line) = (i % axis.step, i / axis.step);
                    match axis.remainders.iter().position(|&kept| kept == remainder) {
                        Some(place) if line < axis.width => part += place * parts,
                        Some(_) | None => continue 'rows,
                    }
                    parts *= axis.remainders.len();
                    target += (axis.zeros + line) * axis.stride;
                }
                let stride = strides[outer.len()];
                for (place, &remainder) in last.remainders.iter().enumerate() {
                    let part = part * last.remainders.len() + place;
                    let target = to.get().add(part * lines.part + target + last.zeros);
                    let source = from.get().offset(source + remainder as isize * stride);
                    let (count, step) = (last.kept(remainder), last.step as isize * stride);
                    if step == 1 {
                        target.copy_from_nonoverlapping(source, count);
                    } else if step == 2 {
                        (0..count).for_each(|i| *target.add(i) = *source.add(2 * i));
                    } else {
                        (0..count).for_each(|i| *target.add(i) = *source.offset(i as isize * step));
                    }
                }
            }
        }
    }
}
