//! Accuracy of elementary functions, measured with tables from third parties.
//!
//! `accuracy/tables.safetensors` contains them: NumPy's validation sets, tables of Boost, transforms by FFTW, streams
//! of Philox; the `README.md` there names the source of each. [`measure`] runs every [`function`] over its tables on
//! every [`engine`] and returns one [`Row`] for each function, dtype and table. 16-bit floats need no table: all 65,536
//! values are tested.
//!
//! The unit of error is the *unit in the last place*: how many floats of the dtype lie between the result and
//! the nearest float to the true value, as in NumPy's own
//! [`assert_array_max_ulp`](https://numpy.org/doc/stable/reference/generated/numpy.testing.assert_array_max_ulp.html).
//! For Fourier transforms it is the greatest difference divided by the greatest value.
//!
//! The committed [`record`] bounds later measurements; [`page`] prints it as `docs/accuracy.md`. `cargo xtask accuracy`
//! regenerates both.

pub mod engine;
pub mod fourier;
pub mod function;
pub mod page;
pub mod record;
pub mod table;
pub mod ulp;

use engine::Subject;
use function::Function;
use kiln_ir::{DType, Engine, Shape, TensorData, TensorType};
use std::sync::Arc;
use table::{Points, Tables};

/// The errors of one function in one dtype over one table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the tensor method.
    pub function: String,
    /// The dtype of argument and result.
    pub dtype: DType,
    /// The source of the true values: `numpy`, `boost`, `fftw`, or `all` for every 16-bit float.
    pub table: String,
    /// Number of compared values.
    pub points: usize,
    /// The error that the table's authors allow their own implementation, in units in the last place.
    pub allowed: Option<u32>,
    /// The greatest error of each engine measured, by its name.
    pub worst: Vec<(String, Worst)>,
}

/// The maximum error of an engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Worst {
    /// In units in the last place, or relative for `fftw`. Infinite if only one of result and true value is NaN.
    pub error: f64,
    /// The first argument, or transform length, with this error.
    pub at: f64,
}

impl Row {
    /// Returns the error of an engine, if it was measured.
    pub fn worst(&self, engine: &str) -> Option<Worst> {
        self.worst.iter().find(|(name, _)| name == engine).map(|(_, worst)| *worst)
    }

    /// Returns whether both rows have the same function, dtype and table.
    pub fn same_subject(&self, other: &Row) -> bool {
        (&self.function, self.dtype, &self.table) == (&other.function, other.dtype, &other.table)
    }
}

/// Measures all functions on every engine that this machine supports.
pub fn measure() -> Vec<Row> {
    let tables = Tables::read();
    let engines: Vec<(&Subject, Arc<dyn Engine>)> =
        engine::SUBJECTS.iter().filter_map(|subject| Some((subject, (subject.open)()?))).collect();
    let mut rows = Vec::new();
    for function in function::FUNCTIONS {
        for points in tables.points(function) {
            rows.push(compare(function, &points, &engines));
        }
        for dtype in [DType::F16, DType::BF16] {
            rows.push(compare(function, &every_value(function, dtype), &engines));
        }
    }
    rows.extend(fourier::measure(&tables, &engines));
    rows
}

fn compare(function: &Function, points: &Points, engines: &[(&Subject, Arc<dyn Engine>)]) -> Row {
    let worst = engines.iter().map(|(subject, engine)| {
        let y = function.run(engine, points.x.clone());
        (subject.name.to_owned(), ulp::worst(&points.x, &points.y, &y))
    });
    Row {
        function: function.name.to_owned(),
        dtype: points.x.dtype(),
        table: points.table.to_owned(),
        points: points.x.num_elements(),
        allowed: points.allowed,
        worst: worst.collect(),
    }
}

/// All 65,536 values of a 16-bit float. The true value is the reference's `f64` result, rounded once.
fn every_value(function: &Function, dtype: DType) -> Points {
    let bytes: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let ty = TensorType::new(Shape::new([1 << 16]), dtype);
    let x = TensorData::from_bytes(&bytes, ty).expect("all values of two bytes");
    let reference: Arc<dyn Engine> = Arc::new(crate::engines::reference());
    let exact = function.run(&reference, x.clone().convert(DType::F64));
    Points { table: "all", x, y: exact.convert(dtype), allowed: None }
}
