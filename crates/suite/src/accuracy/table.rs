//! Reads `accuracy/tables.safetensors`.

use super::function::Function;
use kiln_ir::{DType, Shape, TensorData, TensorType};
use safetensors::SafeTensors;
use std::path::PathBuf;

/// The bytes of the file.
pub struct Tables(Vec<u8>);

/// Arguments with the true values of a function, rounded to the dtype.
pub struct Points {
    /// The source of the table.
    pub table: &'static str,
    /// The arguments.
    pub x: TensorData,
    /// The values.
    pub y: TensorData,
    /// The error that the table allows.
    pub allowed: Option<u32>,
}

impl Tables {
    /// Reads the file.
    ///
    /// # Panics
    /// When it is missing.
    pub fn read() -> Tables {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("accuracy/tables.safetensors");
        Tables(std::fs::read(&path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display())))
    }

    /// Returns every table of a function.
    pub fn points(&self, function: &Function) -> Vec<Points> {
        let mut found = Vec::new();
        if let Some(name) = function.numpy {
            for dtype in [DType::F32, DType::F64] {
                let folder = format!("numpy/{name}/{dtype}");
                let (x, y) =
                    (self.floats(&format!("{folder}/x"), dtype), self.floats(&format!("{folder}/y"), dtype));
                let bound = self.bytes(&format!("{folder}/bound"));
                let allowed = bound.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
                found.push(Points { table: "numpy", x, y, allowed });
            }
        }
        if function.boost {
            let folder = format!("boost/{}/f64", function.name);
            let x = self.floats(&format!("{folder}/x"), DType::F64);
            let y = self.floats(&format!("{folder}/y"), DType::F64);
            found.extend(Some(in_f32(&x, &y)).filter(|points| points.x.num_elements() > 0));
            found.push(Points { table: "boost", x, y, allowed: None });
        }
        found
    }

    /// Returns a tensor of `f64`.
    pub fn reals(&self, name: &str) -> Vec<f64> {
        self.floats(name, DType::F64).to_vec()
    }

    /// Returns a tensor of 64-bit words.
    pub fn words(&self, name: &str) -> Vec<u64> {
        let chunks = self.bytes(name).as_chunks().0.iter();
        chunks.map(|bytes| u64::from_le_bytes(*bytes)).collect()
    }

    /// Returns the names of all tensors.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.file().names().into_iter().map(|name| name.to_owned()).collect();
        names.sort();
        names
    }

    /// Bit patterns as floats.
    fn floats(&self, name: &str, dtype: DType) -> TensorData {
        let bytes = self.bytes(name);
        let ty = TensorType::new(Shape::new([bytes.len() / dtype.size()]), dtype);
        TensorData::from_bytes(bytes, ty).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn bytes(&self, name: &str) -> &[u8] {
        self.file().tensor(name).unwrap_or_else(|error| panic!("{name}: {error}")).data()
    }

    fn file(&self) -> SafeTensors<'_> {
        SafeTensors::deserialize(&self.0).unwrap_or_else(|error| panic!("the tables: {error}"))
    }
}

/// The points whose argument `f32` represents exactly, with the value rounded to it.
fn in_f32(x: &TensorData, y: &TensorData) -> Points {
    let pairs = x.to_vec::<f64>().into_iter().zip(y.to_vec::<f64>());
    let exact = pairs.filter(|(x, _)| f64::from(*x as f32) == *x);
    let (x, y): (Vec<f32>, Vec<f32>) = exact.map(|(x, y)| (x as f32, y as f32)).unzip();
    Points { table: "boost", x: TensorData::from(x), y: TensorData::from(y), allowed: None }
}
