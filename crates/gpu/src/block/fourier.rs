//! Block kernels of Fourier transforms. Complex tensors store real and imaginary parts separately; lists of roots of
//! unity interleave them.

use kiln_ir::DType;
use kiln_kernel::block::{Array, BlockKernel, Buffer, Builder, Expression, constant, index, select};

/// Threads per block.
const THREADS: u32 = 256;

/// The greatest radix of a pass. Lengths with a greater prime factor have no passes.
pub(crate) const MAX_RADIX: usize = 31;

/// Arrays of a line in shared memory: both parts, before and after a pass.
pub(crate) const ARRAYS: usize = 4;

/// Transforms of complex lines that fit shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LineTransform {
    pub(crate) dtype: DType,
    /// The length of a line.
    pub(crate) length: usize,
    /// Lines per block.
    pub(crate) lines: usize,
    /// Whether elements of a line are adjacent in the source and in the result.
    pub(crate) is_near: [bool; 2],
    /// Whether element k of line n is multiplied by root `n % columns * k` of a list.
    pub(crate) is_turned: bool,
}

/// A complex number.
#[derive(Clone, Debug)]
struct Complex {
    re: Expression,
    im: Expression,
}

impl Complex {
    fn new(re: Expression, im: Expression) -> Complex {
        Complex { re, im }
    }

    /// An element of a list of roots.
    fn listed(list: &Buffer, at: &Expression) -> Complex {
        let first = at * &index(2);
        Complex::new(list.at(&first), list.at(&(&first + &index(1))))
    }

    /// An element of a tensor.
    fn at([re, im]: &[Buffer; 2], at: &Expression) -> Complex {
        Complex::new(re.at(at), im.at(at))
    }

    fn bound(&self, k: &Builder) -> Complex {
        Complex::new(k.bind(&self.re), k.bind(&self.im))
    }

    fn plus(&self, other: &Complex) -> Complex {
        Complex::new(&self.re + &other.re, &self.im + &other.im)
    }

    fn minus(&self, other: &Complex) -> Complex {
        Complex::new(&self.re - &other.re, &self.im - &other.im)
    }

    fn times(&self, other: &Complex) -> Complex {
        let re = &self.re * &other.re - &self.im * &other.im;
        Complex::new(re, &self.re * &other.im + &self.im * &other.re)
    }

    /// The product with -i.
    fn turned_back(&self) -> Complex {
        Complex::new(self.im.clone(), -&self.re)
    }

    fn conjugate(&self) -> Complex {
        Complex::new(self.re.clone(), -&self.im)
    }

    fn scaled(&self, factor: &Expression) -> Complex {
        Complex::new(&self.re * factor, &self.im * factor)
    }

    fn store(&self, k: &Builder, [re, im]: &[Buffer; 2], at: &Expression) {
        k.store(re, at, &self.re);
        k.store(im, at, &self.im);
    }
}

/// Both parts of lines in shared memory.
#[derive(Clone, Copy)]
struct Shared([Array; 2]);

impl Shared {
    fn new(k: &Builder, dtype: DType, len: usize) -> Shared {
        Shared([k.shared(dtype, len), k.shared(dtype, len)])
    }

    fn at(&self, k: &Builder, at: &Expression) -> Complex {
        let at = k.bind(at);
        Complex::new(self.0[0].at(&at), self.0[1].at(&at)).bound(k)
    }

    fn put(&self, k: &Builder, at: &Expression, value: &Complex) {
        let at = k.bind(at);
        k.put(&self.0[0], &at, &value.re);
        k.put(&self.0[1], &at, &value.im);
    }
}

/// The radix passes of a length, in order.
fn radices(length: usize) -> Vec<usize> {
    let mut left = length;
    let mut all = Vec::new();
    for radix in core::iter::once(4).chain(2..=MAX_RADIX) {
        while left > 1 && left.is_multiple_of(radix) {
            left /= radix;
            all.push(radix);
        }
    }
    all
}

/// Transforms with a negative exponent, by Stockham's algorithm in shared memory.
///
/// Parameters: both parts of the lines and of the results; the roots of unity whose order is the length; the list of
/// twiddle factors, if results are turned; the number of lines; the columns of a matrix whose rows are lines; and the
/// layouts of both sides: the number of adjacent lines, the distance of groups of adjacent lines, and the distance of
/// elements.
pub(crate) fn lines(transform: &LineTransform) -> BlockKernel {
    let LineTransform { dtype, length, lines, is_near, is_turned } = *transform;
    let k = Builder::new("fft", THREADS);
    let x = [k.input("x_re", dtype), k.input("x_im", dtype)];
    let y = [k.output("y_re", dtype), k.output("y_im", dtype)];
    let roots = k.input("roots", dtype);
    let twiddles = is_turned.then(|| k.input("twiddles", dtype));
    let [count, columns] = k.lengths(["lines", "columns"]);
    let from = k.lengths(["from_inner", "from_jump", "from_step"]);
    let to = k.lengths(["to_inner", "to_jump", "to_step"]);
    let all = index(length * lines);
    let (mut here, mut there) =
        (Shared::new(&k, dtype, length * lines), Shared::new(&k, dtype, length * lines));
    let first = k.bind(&(k.block() * index(lines)));
    k.for_threads(&all, |e| {
        let (line, i) = element(&k, transform, is_near[0], &e);
        let number = k.bind(&(&first + &line));
        k.when(&number.lt(&count), || {
            let at = k.bind(&place(&from, &number, &i));
            here.put(&k, &(&line * &index(length) + &i), &Complex::at(&x, &at));
        });
    });
    k.barrier();
    let mut done = 1;
    for radix in radices(length) {
        let pass = Pass { radix, done, length, lines, roots };
        pass.run(&k, here, there);
        k.barrier();
        done *= radix;
        core::mem::swap(&mut here, &mut there);
    }
    k.for_threads(&all, |e| {
        let (line, i) = element(&k, transform, is_near[1], &e);
        let number = k.bind(&(&first + &line));
        k.when(&number.lt(&count), || {
            let mut z = here.at(&k, &(&line * &index(length) + &i));
            if let Some(twiddles) = &twiddles {
                z = z.times(&Complex::listed(twiddles, &(&number % &columns * &i)).bound(&k));
            }
            z.store(&k, &y, &k.bind(&place(&to, &number, &i)));
        });
    });
    k.finish()
}

/// The line and the element of a number below the elements of a block, so that neighbouring threads access
/// neighbouring memory.
fn element(
    k: &Builder,
    transform: &LineTransform,
    is_near: bool,
    e: &Expression,
) -> (Expression, Expression) {
    let inner = index(if is_near { transform.length } else { transform.lines });
    let (outer, inner) = (k.bind(&(e / &inner)), k.bind(&(e % &inner)));
    if is_near { (outer, inner) } else { (inner, outer) }
}

/// The index in memory of an element of a line.
fn place([inner, jump, step]: &[Expression; 3], line: &Expression, i: &Expression) -> Expression {
    line / inner * jump + line % inner + i * step
}

/// A pass over lines in shared memory, which combines `radix` transforms of `done` points each.
struct Pass {
    radix: usize,
    done: usize,
    length: usize,
    lines: usize,
    roots: Buffer,
}

impl Pass {
    fn left(&self) -> usize {
        self.length / self.radix / self.done
    }

    /// A root of unity whose order is the length.
    fn root(&self, k: &Builder, turn: &Expression) -> Complex {
        Complex::listed(&self.roots, &k.bind(turn)).bound(k)
    }

    fn run(&self, k: &Builder, from: Shared, to: Shared) {
        match self.radix {
            2 | 4 => self.butterflies(k, from, to),
            _ => self.sums(k, from, to),
        }
    }

    /// Each thread computes all outputs of a butterfly of 2 or 4 inputs.
    fn butterflies(&self, k: &Builder, from: Shared, to: Shared) {
        let Pass { radix, done, length, lines, .. } = *self;
        let each = length / radix;
        k.for_threads(&index(lines * each), |t| {
            let start = k.bind(&(&t / &index(each) * index(length)));
            let within = k.bind(&(&t % &index(each)));
            let (p, q) = (k.bind(&(&within / &index(done))), k.bind(&(&within % &index(done))));
            let read =
                |u: usize| from.at(k, &(&start + &((&p + &index(u * self.left())) * index(done) + &q)));
            let inputs: Vec<Complex> = (0..radix).map(read).collect();
            for (v, output) in butterfly(k, &inputs).iter().enumerate() {
                let output = if v == 0 || self.left() == 1 {
                    output.clone()
                } else {
                    output.times(&self.root(k, &(&p * &index(v * done))))
                };
                let at = &start + &((&p * &index(radix) + index(v)) * index(done) + &q);
                to.put(k, &at, &output);
            }
        });
    }

    /// Each thread computes one output as a sum over `radix` inputs.
    fn sums(&self, k: &Builder, from: Shared, to: Shared) {
        let Pass { radix, done, length, lines, .. } = *self;
        k.for_threads(&index(lines * length), |e| {
            let within = k.bind(&(&e % &index(length)));
            let start = k.bind(&(&e - &within));
            let q = k.bind(&(&within % &index(done)));
            let rest = k.bind(&(&within / &index(done)));
            let (p, v) = (k.bind(&(&rest / &index(radix))), k.bind(&(&rest % &index(radix))));
            let read = |u: &Expression| {
                from.at(k, &(&start + &((&p + &(u * &index(self.left()))) * index(done) + &q)))
            };
            let none = read(&index(0));
            let (re, im) = (k.var(&none.re), k.var(&none.im));
            k.for_range(&index(1), &index(radix), &index(1), |u| {
                let turn = &u * &v % index(radix) * index(length / radix);
                let turned = read(&u).times(&self.root(k, &turn));
                k.set(&re, &(re.get() + &turned.re));
                k.set(&im, &(im.get() + &turned.im));
            });
            let sum = Complex::new(re.get(), im.get());
            to.put(k, &e, &sum.times(&self.root(k, &(&p * &v * index(done)))));
        });
    }
}

/// Transforms of 2 or 4 numbers.
fn butterfly(k: &Builder, z: &[Complex]) -> Vec<Complex> {
    if let [a, b] = z {
        return vec![a.plus(b), a.minus(b)];
    }
    let [a, b, c, d] = z else { return z.to_vec() };
    let (s, t) = (a.plus(c).bound(k), a.minus(c).bound(k));
    let (u, v) = (b.plus(d).bound(k), b.minus(d).turned_back().bound(k));
    vec![s.plus(&u), t.plus(&v), s.minus(&u), t.minus(&v)]
}

/// The elementwise pre- or post-processing of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Real lines as complex lines.
    Pack,
    /// Half the spectrum of real lines from the transform of their packed form.
    Split,
    /// Packs half a spectrum. The transform in reverse order is the packed real line.
    Join,
    /// Real lines from packed complex lines.
    Unpack,
    /// Multiplies by the chirp and pads with zeros.
    Pad,
    /// Multiplies by the spectrum of the filter.
    Filtered,
    /// Removes the padding and multiplies by the chirp.
    Cut,
    /// The conjugate chirp on both sides of 0, divided by the length.
    Filter,
    /// Transposes the columns of each line's matrix into rows of `length` elements.
    Transpose,
}

impl Step {
    /// The tensors that a kernel reads.
    pub(crate) fn reads(self) -> Reads {
        let [lines, imaginary, filter, roots] = match self {
            Step::Pack => [true, false, false, false],
            Step::Split | Step::Join | Step::Pad | Step::Cut => [true, true, false, true],
            Step::Unpack | Step::Transpose => [true, true, false, false],
            Step::Filtered => [true, true, true, false],
            Step::Filter => [false, false, false, true],
        };
        Reads { lines, imaginary, filter, roots }
    }

    /// Whether the result has imaginary parts.
    pub(crate) fn writes_imaginary(self) -> bool {
        self != Step::Unpack
    }
}

/// The tensors that a step reads, in the order of parameters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// The real parts of lines.
    pub(crate) lines: bool,
    /// The imaginary parts of lines.
    pub(crate) imaginary: bool,
    /// Both parts of the filter.
    pub(crate) filter: bool,
    /// The list of roots or of the chirp.
    pub(crate) roots: bool,
}

/// Pre- or post-processing of lines in one dtype.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Processing {
    pub(crate) step: Step,
    pub(crate) dtype: DType,
    /// Whether each complex number packs two real ones.
    pub(crate) is_even: bool,
    /// Whether the imaginary parts of spectra have their sign, or the opposite one.
    pub(crate) is_usual: bool,
}

/// A kernel of pre- or post-processing. Parameters: the tensors that the step [reads](Step::reads), those that it
/// writes, the number of elements, the length of a real or unpadded line, and that of a complex line.
pub(crate) fn processing(processing: &Processing) -> BlockKernel {
    let Processing { step, dtype, .. } = *processing;
    let k = Builder::new("fft_step", THREADS);
    let reads = step.reads();
    // Parameters that a step lacks stand for others, which it does not access.
    let x_re = reads.lines.then(|| k.input("x_re", dtype));
    let x_im = if reads.imaginary { Some(k.input("x_im", dtype)) } else { x_re };
    let filter = reads.filter.then(|| [k.input("z_re", dtype), k.input("z_im", dtype)]);
    let roots = reads.roots.then(|| k.input("roots", dtype));
    let y_re = k.output("y_re", dtype);
    let y_im = if step.writes_imaginary() { k.output("y_im", dtype) } else { y_re };
    let [total, points, length] = k.lengths(["total", "points", "length"]);
    let tensors = Tensors {
        x: [x_re.unwrap_or(y_re), x_im.unwrap_or(y_re)],
        filter: filter.unwrap_or([y_re, y_re]),
        roots: roots.unwrap_or(y_re),
        y: [y_re, y_im],
        points,
        length,
    };
    k.for_points(&total, |e| tensors.process(&k, processing, &e));
    k.finish()
}

struct Tensors {
    x: [Buffer; 2],
    filter: [Buffer; 2],
    roots: Buffer,
    y: [Buffer; 2],
    points: Expression,
    length: Expression,
}

impl Tensors {
    fn process(&self, k: &Builder, processing: &Processing, e: &Expression) {
        let Tensors { x, filter, roots, y, points, length } = self;
        let zero = constant(0.0, processing.dtype);
        match processing.step {
            Step::Pack if processing.is_even => {
                let first = k.bind(&(e / length * points + e % length * index(2)));
                let z = Complex::new(x[0].at(&first), x[0].at(&(&first + &index(1))));
                z.store(k, y, e);
            }
            Step::Pack => Complex::new(x[0].at(e), zero).store(k, y, e),
            Step::Split => self.split(k, processing, e),
            Step::Join => self.join(k, processing, e),
            Step::Unpack if processing.is_even => {
                let first = k.bind(&(e / length * points + e % length * index(2)));
                k.store(&y[0], &first, &x[0].at(e));
                k.store(&y[0], &(&first + &index(1)), &x[1].at(e));
            }
            Step::Unpack => k.store(&y[0], e, &x[0].at(e)),
            Step::Pad => {
                let i = k.bind(&(e % length));
                let (re, im) = (k.var(&zero), k.var(&zero));
                k.when(&i.lt(points), || {
                    let from = k.bind(&(e / length * points + &i));
                    let z = Complex::at(x, &from).bound(k).times(&Complex::listed(roots, &i).bound(k));
                    k.set(&re, &z.re);
                    k.set(&im, &z.im);
                });
                Complex::new(re.get(), im.get()).store(k, y, e);
            }
            Step::Filtered => {
                let factor = Complex::at(filter, &k.bind(&(e % length))).bound(k);
                Complex::at(x, e).bound(k).times(&factor).store(k, y, e);
            }
            Step::Cut => {
                let i = k.bind(&(e % points));
                let from = k.bind(&(e / points * length + &i));
                let chirp = Complex::listed(roots, &i).bound(k);
                Complex::at(x, &from).bound(k).times(&chirp).store(k, y, e);
            }
            Step::Filter => {
                let at = k.bind(&select(&e.lt(points), e, &(length - e)));
                let (re, im) = (k.var(&zero), k.var(&zero));
                k.when(&at.lt(points), || {
                    let z = Complex::listed(roots, &at).conjugate();
                    let size = length.cast(processing.dtype);
                    k.set(&re, &(&z.re / &size));
                    k.set(&im, &(&z.im / &size));
                });
                Complex::new(re.get(), im.get()).store(k, y, e);
            }
            Step::Transpose => {
                let at = k.bind(&(e % points));
                let rows = points / length;
                let from = k.bind(&(e - &at + &at % length * rows + &at / length));
                Complex::at(x, &from).store(k, y, e);
            }
        }
    }

    /// Recovers the spectrum X of real lines from the spectrum of complex lines that pack two real elements each. With
    /// the transforms `even` and `odd` of both halves, `X[k] = even[k] + root[k] odd[k]`.
    fn split(&self, k: &Builder, processing: &Processing, e: &Expression) {
        let Tensors { x, roots, y, points, length, .. } = self;
        let bins = k.bind(&(points / &index(2) + index(1)));
        let (start, bin) = (k.bind(&(e / &bins * length)), k.bind(&(e % &bins)));
        let own = k.bind(&(&bin % length));
        let mut z = Complex::at(x, &(&start + &own)).bound(k);
        if processing.is_even {
            let mirrored = k.bind(&(&start + &((length - &own) % length)));
            let mirrored = Complex::at(x, &mirrored).bound(k).conjugate();
            let half = constant(0.5, processing.dtype);
            let even = z.plus(&mirrored).scaled(&half);
            let odd = z.minus(&mirrored).turned_back().scaled(&half).bound(k);
            z = even.plus(&odd.times(&Complex::listed(roots, &bin).bound(k)));
        }
        if !processing.is_usual {
            z = z.conjugate();
        }
        // The imaginary parts of self-conjugate elements are 0.
        let im = select(&self.is_self_conjugate(&bin), &constant(0.0, processing.dtype), &z.im);
        Complex::new(z.re, im).store(k, y, e);
    }

    /// The inverse of [`split`](Tensors::split).
    fn join(&self, k: &Builder, processing: &Processing, e: &Expression) {
        let Tensors { roots, y, points, length, .. } = self;
        let bins = k.bind(&(points / &index(2) + index(1)));
        let (line, bin) = (k.bind(&(e / length)), k.bind(&(e % length)));
        let start = k.bind(&(&line * &bins));
        let z = if processing.is_even {
            let here = self.frequency(k, processing, &start, &bin);
            let there = self.frequency(k, processing, &start, &k.bind(&(length - &bin))).conjugate();
            let odd = here.minus(&there).times(&Complex::listed(roots, &bin).bound(k).conjugate()).bound(k);
            // i times the odd half.
            here.plus(&there).plus(&Complex::new(-&odd.im, odd.re))
        } else {
            let is_upper = k.bind(&bin.ge(&bins));
            let at = k.bind(&select(&is_upper, &(points - &bin), &bin));
            let found = self.frequency(k, processing, &start, &at);
            let im = select(&is_upper, &-&found.im, &found.im);
            Complex::new(found.re, im)
        };
        let at = k.bind(&(&line * length + (length - &bin) % length));
        z.store(k, y, &at);
    }

    /// An element of half a spectrum. The imaginary part of self-conjugate elements is ignored.
    fn frequency(
        &self,
        k: &Builder,
        processing: &Processing,
        start: &Expression,
        bin: &Expression,
    ) -> Complex {
        let read = Complex::at(&self.x, &k.bind(&(start + bin))).bound(k);
        let signed = if processing.is_usual { read } else { read.conjugate() };
        let zero = constant(0.0, processing.dtype);
        Complex::new(signed.re, select(&self.is_self_conjugate(bin), &zero, &signed.im)).bound(k)
    }

    fn is_self_conjugate(&self, bin: &Expression) -> Expression {
        (bin * &index(2) % &self.points).eq(&index(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::printed::assert_printed;

    const FLOATS: [DType; 2] = [DType::F32, DType::F64];

    #[test]
    fn lines_are_printed() {
        for dtype in FLOATS {
            for (length, lines) in [(1, 64), (2, 64), (30, 17), (31, 16), (512, 1)] {
                for (is_near, is_turned) in [([true; 2], false), ([false, true], true), ([false; 2], false)] {
                    assert_printed(&super::lines(&LineTransform {
                        dtype,
                        length,
                        lines,
                        is_near,
                        is_turned,
                    }));
                }
            }
        }
    }

    #[test]
    fn steps_are_printed() {
        let steps = [
            Step::Pack,
            Step::Split,
            Step::Join,
            Step::Unpack,
            Step::Pad,
            Step::Filtered,
            Step::Cut,
            Step::Filter,
            Step::Transpose,
        ];
        for step in steps {
            for dtype in FLOATS {
                for (is_even, is_usual) in [(false, false), (false, true), (true, false), (true, true)] {
                    assert_printed(&processing(&Processing { step, dtype, is_even, is_usual }));
                }
            }
        }
    }

    #[test]
    fn the_radices_of_a_length_multiply_to_it() {
        assert_eq!(radices(1), Vec::<usize>::new());
        assert_eq!(radices(1024), [4; 5]);
        assert_eq!(radices(2 * 3 * 31), [2, 3, 31]);
    }
}
