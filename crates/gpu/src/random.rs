//! Random number kernels (Philox).

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::driver::{Argument, Driver};
use crate::native::{Native, length};
use kiln_ir::{DType, Operand, Operands, RandomKind, Result, TensorType, Values};
use smallvec::smallvec;

const SOURCE: &str = include_str!("native/random.cu");

impl<D: Driver> Gpu<D> {
    /// [`Op::Random`](kiln_ir::Op::Random), by the generator and layout of [`philox`](kiln_ir::philox).
    pub(crate) fn random(
        &self,
        kind: RandomKind,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let ty = results[0];
        let result = self.uninit(&ty)?;
        let each = if kind != RandomKind::Normal && ty.dtype.size() == 8 { 2 } else { 4 };
        let (key_type, key_read, key) = match &inputs[0] {
            Operand::Scalar(scalar) => {
                ("unsigned long long", "(x)", Argument::Word(scalar.to_u64().to_le_bytes()))
            }
            Operand::Value(value) => {
                ("const unsigned long long*", "(*(x))", Array::<D>::of(value)?.place(DType::U64))
            }
        };
        let mut native = Native::new(SOURCE, "kiln_random")
            .name("KEY", key_type)
            .name("KEY_READ(x)", key_read)
            .name("EACH", if each == 2 { "2" } else { "4" })
            .dtype("E", ty.dtype);
        native = match kind {
            RandomKind::Bits => native.name("DRAW_BITS", ""),
            RandomKind::Uniform => uniform(native, ty.dtype),
            RandomKind::Normal => native.name("DRAW_NORMAL", "").name("ROUNDED(x)", rounded(ty.dtype)),
        };
        let total = ty.num_elements();
        let arguments = smallvec![key, result.place(ty.dtype), length(total)];
        self.native(native, total.div_ceil(each), arguments)?;
        Ok(smallvec![Array { suspicions: suspicions::<D>(inputs), ..result }.into_value(ty)])
    }
}

/// Uniform floats: as many of the topmost bits of a word as the dtype represents exactly, as a fraction.
fn uniform(native: Native, dtype: DType) -> Native {
    let (shift, scale) = match dtype {
        DType::F64 => ("11", "0x1p-53"),
        DType::F16 => ("21", "0x1p-11f"),
        DType::BF16 => ("24", "0x1p-8f"),
        // Inference rejects all other dtypes.
        DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => ("8", "0x1p-24f"),
    };
    let native = native.name("DRAW_UNIFORM", "").name("SHIFT", shift).name("SCALE", scale);
    native.name("ROUNDED(x)", "E_WRITTEN(x)")
}

/// Source text: converts a double, rounded once.
fn rounded(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "(x)",
        DType::F16 => "kiln_to_f16(kiln_odd(x))",
        DType::BF16 => "kiln_to_bf16(kiln_odd(x))",
        DType::F32
        | DType::I64
        | DType::I32
        | DType::I16
        | DType::I8
        | DType::U64
        | DType::U32
        | DType::U16
        | DType::U8
        | DType::Bool => "((float)(x))",
    }
}
