//! Fourier transforms against FFTW: its cosine and sine transforms are complex transforms of a symmetric sequence.

use super::engine::Subject;
use super::table::Tables;
use super::{Row, Worst};
use kiln_ir::{DType, Engine, FftKind, Op, TensorData, Var, block_on};
use smallvec::smallvec;
use std::sync::Arc;

/// The lengths in FFTW's tables.
const LENGTHS: [usize; 14] = [2, 3, 4, 8, 12, 15, 16, 17, 32, 64, 128, 256, 512, 1024];

/// A type of the real transforms that
/// [FFTW defines](https://www.fftw.org/fftw3_doc/1d-Real_002deven-DFTs-_0028DCTs_0029.html).
#[derive(Clone, Copy)]
struct Transform {
    is_sine: bool,
    /// From 1 to 4.
    number: usize,
}

impl Transform {
    fn name(self) -> String {
        format!("{}{}", if self.is_sine { "dst" } else { "dct" }, self.number)
    }

    /// Whether samples are halfway between grid points.
    fn halves_time(self) -> bool {
        matches!(self.number, 2 | 4)
    }

    fn halves_frequency(self) -> bool {
        matches!(self.number, 3 | 4)
    }

    /// The length of the complex transform.
    fn extended(self, n: usize) -> usize {
        match (self.number, self.is_sine) {
            (1, false) => 2 * (n - 1),
            (1, true) => 2 * (n + 1),
            (2 | 3, _) => 4 * n,
            (_, _) => 8 * n,
        }
    }

    /// The index of sample `j` in the sequence.
    fn place(self, j: usize) -> usize {
        if self.halves_time() { 2 * j + 1 } else { j + usize::from(self.is_sine) }
    }

    /// The index of result `k` in the complex transform.
    fn frequency(self, k: usize) -> usize {
        if self.halves_frequency() { 2 * k + 1 } else { k + usize::from(self.is_sine) }
    }

    /// The symmetric sequence: each sample at its index and, with the sign of the symmetry, at the mirrored index. A
    /// sample whose indices coincide counts once, and so does the middle sample of type 3.
    fn sequence(self, n: usize) -> Vec<f64> {
        let length = self.extended(n);
        let mut sequence = vec![0.0; length];
        for j in 0..n {
            let (place, x) = (self.place(j), j as f64);
            let mirrored = (length - place) % length;
            let is_middle = self.number == 3 && place == n;
            let x = if is_middle { x / 2.0 } else { x };
            sequence[place] = x;
            if mirrored != place {
                sequence[mirrored] = if self.is_sine { -x } else { x };
            }
        }
        sequence
    }
}

/// The errors of each transform, over all lengths.
pub(super) fn measure(tables: &Tables, engines: &[(&Subject, Arc<dyn Engine>)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for is_sine in [false, true] {
        for number in 1..=4 {
            for dtype in [DType::F32, DType::F64] {
                rows.push(row(tables, engines, Transform { is_sine, number }, dtype));
            }
        }
    }
    rows
}

fn row(tables: &Tables, engines: &[(&Subject, Arc<dyn Engine>)], transform: Transform, dtype: DType) -> Row {
    let name = transform.name();
    let expected: Vec<Vec<f64>> = LENGTHS.iter().map(|n| tables.reals(&format!("fftw/{name}/{n}"))).collect();
    let worst = engines.iter().map(|(subject, engine)| {
        let mut worst = Worst { error: 0.0, at: LENGTHS[0] as f64 };
        for (n, expected) in LENGTHS.into_iter().zip(&expected) {
            let error = relative(expected, &run(&**engine, transform, n, dtype));
            if error > worst.error {
                worst = Worst { error, at: n as f64 };
            }
        }
        (subject.name.to_owned(), worst)
    });
    Row {
        worst: worst.collect(),
        function: format!("fft as {name}"),
        dtype,
        table: "fftw".to_owned(),
        points: LENGTHS.iter().sum(),
        allowed: None,
    }
}

fn run(engine: &dyn Engine, transform: Transform, n: usize, dtype: DType) -> Vec<f64> {
    let sequence = TensorData::from(transform.sequence(n)).convert(dtype);
    let re = Var::new(engine, engine.write(sequence));
    let im = Var::zeros(engine, re.ty());
    let inputs = smallvec![re.into_operand(), im.into_operand()];
    let mut results = Var::emit(engine, &Op::Fft { kind: FftKind::Complex, axis: 0, inverse: false }, inputs);
    let (im, re) = (results.remove(1), results.remove(0));
    let part = if transform.is_sine { im.neg() } else { re };
    let part = block_on(engine.read(part.into_value())).expect("a transform").to_vec::<f64>();
    (0..n).map(|k| part[transform.frequency(k)]).collect()
}

/// The greatest difference, divided by the greatest expected value.
fn relative(expected: &[f64], actual: &[f64]) -> f64 {
    let differences = expected.iter().zip(actual).map(|(e, a)| (e - a).abs());
    let scale = expected.iter().fold(0.0, |greatest: f64, e| greatest.max(e.abs()));
    // A NaN must not vanish in `max`.
    differences.fold(0.0, |worst: f64, d| if d.is_nan() { f64::INFINITY } else { worst.max(d) }) / scale
}
