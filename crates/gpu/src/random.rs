//! Random number kernels (Philox).

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::block::BlockKey;
use crate::block::random::{Draw, random};
use crate::driver::{Argument, Arguments, Driver};
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
        if !self.has_native() {
            self.random_by_blocks(kind, &inputs[0], &ty, &result)?;
            return Ok(smallvec![Array { suspicions: suspicions::<D>(inputs), ..result }.into_value(ty)]);
        }
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

    /// Fills an array by the block kernel, whose words have 32 bits.
    fn random_by_blocks(
        &self,
        kind: RandomKind,
        key: &Operand,
        ty: &TensorType,
        result: &Array<D>,
    ) -> Result<()> {
        let has_f64 = self.driver.info().language.dtypes.contains(DType::F64);
        let computed = if has_f64 { DType::F64 } else { DType::F32 };
        let draw = Draw { kind, dtype: ty.dtype, computed, has_key_tensor: key.value().is_some() };
        let arguments: Arguments<D::Memory> = match key {
            // The kernel reads the halves of the key as two words.
            Operand::Value(value) => {
                smallvec![Array::<D>::of(value)?.place(DType::U64), result.place(ty.dtype)]
            }
            Operand::Scalar(scalar) => {
                let key = scalar.to_u64();
                let word = |half: u64| Argument::Word((half & u64::from(u32::MAX)).to_le_bytes());
                smallvec![result.place(ty.dtype), word(key), word(key >> 32)]
            }
        };
        let total = ty.num_elements();
        let blocks = total.div_ceil(draw.each());
        let lengths = [length(blocks), length(total)];
        let arguments = arguments.into_iter().chain(lengths).collect();
        let key = BlockKey::new("random").with(kind as usize).dtype(ty.dtype).with(draw.has_key_tensor);
        self.run_points(key, || random(&draw), blocks, arguments)
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
