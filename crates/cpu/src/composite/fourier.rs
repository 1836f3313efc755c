//! The discrete Fourier transform of any length, in `f64`.
//!
//! Lengths with small prime factors go through Stockham's self-sorting form of the mixed-radix algorithm, others
//! through Bluestein's ([1970](https://doi.org/10.1109/TAU.1970.1162132)): a convolution of a length that is a power of
//! two. Several lines are transformed side by side, which is what the loops are vectorised over.

use crate::Cpu;
use crate::array::Array;
use crate::contraction::scratch::Scratch;
use crate::contraction::simd::Float;
use crate::copy::Shared;
use crate::isa::{Level, Widest, multiversion};
use alloc::vec;
use alloc::vec::Vec;
use core::f64::consts::PI;
use kiln_ir::{Result, TensorType};

/// Lines that are transformed side by side.
const SIDE: usize = 8;

/// The greatest prime factor of the mixed-radix algorithm: a factor costs its square.
const GREATEST_RADIX: usize = 31;

/// Elements worth waking another thread for.
const GRAIN: usize = 1 << 12;

/// Both parts of the transform along an axis.
///
/// # Errors
/// When there is not enough memory.
pub(super) fn fft<T: Float>(
    cpu: &Cpu,
    [re, im]: [&Array; 2],
    ty: &TensorType,
    axis: usize,
    inverse: bool,
) -> Result<[Array; 2]> {
    let outputs = [Array::uninit(ty)?, Array::uninit(ty)?];
    if ty.num_elements() == 0 {
        return Ok(outputs);
    }
    let (re, im) = (cpu.contiguous(re, ty)?, cpu.contiguous(im, ty)?);
    let length = ty.shape[axis];
    let inner: usize = ty.shape[axis + 1..].iter().product();
    let lines = ty.num_elements() / length;
    let plan = Plan::new(cpu.level, length, inverse);
    let from = [Shared::new(re.as_mut_ptr::<T>()), Shared::new(im.as_mut_ptr::<T>())];
    let to = [Shared::new(outputs[0].as_mut_ptr::<T>()), Shared::new(outputs[1].as_mut_ptr::<T>())];
    let side = SIDE.min(lines);
    cpu.pool.parallel_for(lines.div_ceil(side), GRAIN.div_ceil(length * side), |blocks| {
        let mut memory = Scratch::<f64>::new(plan.memory() * side);
        for block in blocks {
            let some = block * side..((block + 1) * side).min(lines);
            let start = |line: usize| line / inner * length * inner + line % inner;
            let memory = memory.as_mut_slice();
            let (re, rest) = memory.split_at_mut(length * side);
            let (im, rest) = rest.split_at_mut(length * side);
            for (lane, line) in some.clone().enumerate() {
                for i in 0..length {
                    // SAFETY: elements of the line.
                    unsafe {
                        re[i * side + lane] = (*from[0].get().add(start(line) + i * inner)).to_f64();
                        im[i * side + lane] = (*from[1].get().add(start(line) + i * inner)).to_f64();
                    }
                }
            }
            for lane in some.len()..side {
                for i in 0..length {
                    (re[i * side + lane], im[i * side + lane]) = (0.0, 0.0);
                }
            }
            plan.run(cpu.level, side, re, im, rest);
            for (lane, line) in some.enumerate() {
                for i in 0..length {
                    // SAFETY: elements of the line, which only this task writes.
                    unsafe {
                        *to[0].get().add(start(line) + i * inner) = T::from_f64(re[i * side + lane]);
                        *to[1].get().add(start(line) + i * inner) = T::from_f64(im[i * side + lane]);
                    }
                }
            }
        }
    });
    Ok(outputs)
}

/// How to transform lines of one length.
struct Plan {
    length: usize,
    method: Method,
}

enum Method {
    Radices(Radices),
    Bluestein(Bluestein),
}

/// Prime factors (4 for pairs of 2), and the roots of unity.
struct Radices {
    radices: Vec<usize>,
    /// `exp(∓2πi k / length)`.
    roots: Vec<(f64, f64)>,
}

/// `Y[k] = c[k] Σ (x[n] c[n]) conj(c[k - n])` with the chirp `c[k] = exp(∓πi k² / length)`.
struct Bluestein {
    chirp: Vec<(f64, f64)>,
    /// The transform of the conjugate chirp, divided by the length of the convolution.
    filter: (Vec<f64>, Vec<f64>),
    size: usize,
    forward: Radices,
    inverse: Radices,
}

impl Plan {
    fn new(level: Level, length: usize, inverse: bool) -> Plan {
        let method = match radices(length) {
            Some(radices) => Method::Radices(Radices::new(length, radices, inverse)),
            None => Method::Bluestein(Bluestein::new(level, length, inverse)),
        };
        Plan { length, method }
    }

    /// Numbers needed per line: the line in two parts, and room to work.
    fn memory(&self) -> usize {
        2 * self.length
            + match &self.method {
                Method::Radices(_) => 2 * self.length,
                Method::Bluestein(bluestein) => 4 * bluestein.size,
            }
    }

    /// Transforms `side` lines in place; element `i` of line `lane` is at `i * side + lane`.
    fn run(&self, level: Level, side: usize, re: &mut [f64], im: &mut [f64], room: &mut [f64]) {
        match &self.method {
            Method::Radices(radices) => radices.run(level, side, re, im, room),
            Method::Bluestein(bluestein) => bluestein.run(level, side, re, im, room),
        }
    }
}

/// The factors of a length, or `None` where one is too great.
fn radices(length: usize) -> Option<Vec<usize>> {
    let mut rest = length;
    let mut radices = Vec::new();
    while rest.is_multiple_of(4) {
        radices.push(4);
        rest /= 4;
    }
    for radix in 2..=GREATEST_RADIX {
        while rest.is_multiple_of(radix) && rest > 1 {
            radices.push(radix);
            rest /= radix;
        }
    }
    (rest == 1).then_some(radices)
}

/// `exp(∓2πi turn / length)`.
fn root(turn: usize, length: usize, inverse: bool) -> (f64, f64) {
    let angle = 2.0 * PI * turn as f64 / length as f64;
    (libm::cos(angle), if inverse { libm::sin(angle) } else { -libm::sin(angle) })
}

impl Radices {
    fn new(length: usize, radices: Vec<usize>, inverse: bool) -> Radices {
        Radices { radices, roots: (0..length).map(|turn| root(turn, length, inverse)).collect() }
    }

    fn run(&self, level: Level, side: usize, re: &mut [f64], im: &mut [f64], room: &mut [f64]) {
        let size = re.len();
        let (other_re, rest) = room.split_at_mut(size);
        let other_im = &mut rest[..size];
        let mut left = self.roots.len();
        let mut done = 1;
        let mut swapped = false;
        for &radix in &self.radices {
            left /= radix;
            let pass = Pass { radix, left, done, side, roots: &self.roots };
            if swapped {
                pass_of(level, &pass, other_re, other_im, re, im);
            } else {
                pass_of(level, &pass, re, im, other_re, other_im);
            }
            swapped = !swapped;
            done *= radix;
        }
        if swapped {
            re.copy_from_slice(other_re);
            im.copy_from_slice(other_im);
        }
    }
}

/// One factor: `done` transforms of what came before are joined `radix` at a time.
struct Pass<'a> {
    radix: usize,
    /// The product of the factors still to come.
    left: usize,
    /// The product of the factors before.
    done: usize,
    side: usize,
    roots: &'a [(f64, f64)],
}

multiversion! {
    fn pass_of[]<> in { Widest::Avx512 } (pass: &Pass<'_>, x_re: &[f64], x_im: &[f64], y_re: &mut [f64], y_im: &mut [f64]) {
        let &Pass { radix, left, done, side, roots } = pass;
        let wide = done * side;
        let length = roots.len();
        for p in 0..left {
            let twiddle = |v: usize| roots[p * v * done % length];
            let source = |u: usize| (p + u * left) * wide..(p + u * left + 1) * wide;
            let target = p * radix * wide;
            let (out_re, out_im) = (&mut y_re[target..][..radix * wide], &mut y_im[target..][..radix * wide]);
            match radix {
                2 => {
                    let (a_re, a_im) = (&x_re[source(0)], &x_im[source(0)]);
                    let (b_re, b_im) = (&x_re[source(1)], &x_im[source(1)]);
                    let (sum_re, diff_re) = out_re.split_at_mut(wide);
                    let (sum_im, diff_im) = out_im.split_at_mut(wide);
                    let w = twiddle(1);
                    for i in 0..wide {
                        sum_re[i] = a_re[i] + b_re[i];
                        sum_im[i] = a_im[i] + b_im[i];
                        let (re, im) = (a_re[i] - b_re[i], a_im[i] - b_im[i]);
                        diff_re[i] = re * w.0 - im * w.1;
                        diff_im[i] = re * w.1 + im * w.0;
                    }
                }
                4 => {
                    let x = |u: usize| (&x_re[source(u)], &x_im[source(u)]);
                    let (a, b, c, d) = (x(0), x(1), x(2), x(3));
                    // A quarter turn is -i forward and i inverse.
                    let turn = roots[length / 4].1;
                    let (w1, w2, w3) = (twiddle(1), twiddle(2), twiddle(3));
                    let (r0, rest) = out_re.split_at_mut(wide);
                    let (r1, rest) = rest.split_at_mut(wide);
                    let (r2, r3) = rest.split_at_mut(wide);
                    let (i0, rest) = out_im.split_at_mut(wide);
                    let (i1, rest) = rest.split_at_mut(wide);
                    let (i2, i3) = rest.split_at_mut(wide);
                    for i in 0..wide {
                        let (s_re, s_im) = (a.0[i] + c.0[i], a.1[i] + c.1[i]);
                        let (t_re, t_im) = (a.0[i] - c.0[i], a.1[i] - c.1[i]);
                        let (u_re, u_im) = (b.0[i] + d.0[i], b.1[i] + d.1[i]);
                        let (v_re, v_im) = (b.0[i] - d.0[i], b.1[i] - d.1[i]);
                        let (q_re, q_im) = (-turn * v_im, turn * v_re);
                        r0[i] = s_re + u_re;
                        i0[i] = s_im + u_im;
                        let (re, im) = (t_re + q_re, t_im + q_im);
                        r1[i] = re * w1.0 - im * w1.1;
                        i1[i] = re * w1.1 + im * w1.0;
                        let (re, im) = (s_re - u_re, s_im - u_im);
                        r2[i] = re * w2.0 - im * w2.1;
                        i2[i] = re * w2.1 + im * w2.0;
                        let (re, im) = (t_re - q_re, t_im - q_im);
                        r3[i] = re * w3.0 - im * w3.1;
                        i3[i] = re * w3.1 + im * w3.0;
                    }
                }
                _ => {
                    for v in 0..radix {
                        let (re, im) = (&mut out_re[v * wide..][..wide], &mut out_im[v * wide..][..wide]);
                        re.copy_from_slice(&x_re[source(0)]);
                        im.copy_from_slice(&x_im[source(0)]);
                        for u in 1..radix {
                            let w = roots[u * v % radix * (length / radix)];
                            let (a_re, a_im) = (&x_re[source(u)], &x_im[source(u)]);
                            for i in 0..wide {
                                re[i] += a_re[i] * w.0 - a_im[i] * w.1;
                                im[i] += a_re[i] * w.1 + a_im[i] * w.0;
                            }
                        }
                        let w = twiddle(v);
                        for i in 0..wide {
                            (re[i], im[i]) = (re[i] * w.0 - im[i] * w.1, re[i] * w.1 + im[i] * w.0);
                        }
                    }
                }
            }
        }
    }
}

impl Bluestein {
    fn new(level: Level, length: usize, inverse: bool) -> Bluestein {
        let size = (2 * length - 1).next_power_of_two();
        let plan = |inverse: bool| Radices::new(size, radices(size).unwrap_or_default(), inverse);
        let (forward, backward) = (plan(false), plan(true));
        // k² modulo twice the length keeps the angle exact for great k.
        let square = |k: usize| (k as u128 * k as u128 % (2 * length) as u128) as usize;
        let chirp: Vec<(f64, f64)> = (0..length).map(|k| root(square(k), 2 * length, inverse)).collect();
        let (mut re, mut im) = (vec![0.0; size], vec![0.0; size]);
        for (k, &(c, s)) in chirp.iter().enumerate() {
            for place in [k, (size - k) % size] {
                (re[place], im[place]) = (c, -s);
            }
        }
        forward.run(level, 1, &mut re, &mut im, &mut vec![0.0; 2 * size]);
        re.iter_mut().chain(&mut im).for_each(|x| *x /= size as f64);
        Bluestein { chirp, filter: (re, im), size, forward, inverse: backward }
    }

    fn run(&self, level: Level, side: usize, re: &mut [f64], im: &mut [f64], room: &mut [f64]) {
        let wide = self.size * side;
        let (a_re, rest) = room.split_at_mut(wide);
        let (a_im, room) = rest.split_at_mut(wide);
        a_re[re.len()..].fill(0.0);
        a_im[im.len()..].fill(0.0);
        a_re[..re.len()].copy_from_slice(re);
        a_im[..im.len()].copy_from_slice(im);
        turn(side, &mut a_re[..re.len()], &mut a_im[..im.len()], |i| self.chirp[i]);
        self.forward.run(level, side, a_re, a_im, room);
        turn(side, a_re, a_im, |i| (self.filter.0[i], self.filter.1[i]));
        self.inverse.run(level, side, a_re, a_im, room);
        re.copy_from_slice(&a_re[..re.len()]);
        im.copy_from_slice(&a_im[..im.len()]);
        turn(side, re, im, |i| self.chirp[i]);
    }
}

/// Multiplies element `i` of every line with a complex number.
fn turn(side: usize, re: &mut [f64], im: &mut [f64], factor: impl Fn(usize) -> (f64, f64)) {
    for (i, (re, im)) in re.chunks_exact_mut(side).zip(im.chunks_exact_mut(side)).enumerate() {
        let w = factor(i);
        for (re, im) in re.iter_mut().zip(im) {
            (*re, *im) = (*re * w.0 - *im * w.1, *re * w.1 + *im * w.0);
        }
    }
}
