//! Random number kernels (Philox).

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::block::BlockKey;
use crate::block::random::{Draw, random};
use crate::driver::{Argument, Arguments, Driver};
use crate::native::length;
use kiln_ir::{DType, Operand, Operands, RandomKind, Result, TensorType, Values};
use smallvec::smallvec;

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
        self.draw(kind, &inputs[0], &ty, &result)?;
        Ok(smallvec![Array { suspicions: suspicions::<D>(inputs), ..result }.into_value(ty)])
    }

    /// Fills an array. The kernel computes with words of 32 bits.
    fn draw(&self, kind: RandomKind, key: &Operand, ty: &TensorType, result: &Array<D>) -> Result<()> {
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
