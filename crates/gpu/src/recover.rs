//! `Op::Recover` and bounds checks of indices, whose errors name the function that the user called.

use crate::Gpu;
use crate::array::{Array, suspicions};
use crate::block::{self, BlockKey};
use crate::driver::{Argument, Driver, Step};
use crate::index::SOURCE;
use crate::native::{Native, length};
use crate::suspicion::{Suspicions, WORDS, Wrong};
use crate::view::tensor;
use kiln_ir::{
    Engine, Error, IndexUser, Operand, Operands, Result, TensorData, TensorType, Value, Values, poison_of,
};
use smallvec::smallvec;

impl<D: Driver> Gpu<D> {
    /// The values of the first operands without bounds-check flags, and whether no operand is poisoned. The device
    /// computes that flag, so no thread waits.
    pub(crate) fn recover(&self, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let poison = poison_of(&inputs);
        let all = suspicions::<D>(&inputs);
        let [kept @ .., flag_ty, _] = results else {
            return Err(Error::unsupported("gpu", "`recover` has two results or more"));
        };
        let mut values = Values::new();
        for (operand, ty) in inputs.into_iter().zip(kept) {
            let Operand::Value(value) = operand else {
                return Err(Error::unsupported("gpu", "a tensor operand is missing"));
            };
            values.push(match Array::<D>::of(&value) {
                Ok(array) if array.suspicions.is_empty() => value,
                Ok(array) => Array { suspicions: Suspicions::new(), ..array.clone() }.into_value(*ty),
                Err(_) => self.write(TensorData::zeros(*ty)),
            });
        }
        let flag = self.uninit(flag_ty)?;
        self.queue.push(Step::Fill { to: flag.at(1), bytes: 1, value: u8::from(poison.is_none()) })?;
        for (words, marks) in all.places() {
            let mut arguments = smallvec![Argument::Pointer(words), Argument::Pointer(flag.at(1))];
            if self.has_native() {
                arguments.extend(marks.map(|bits| Argument::Word(bits.to_le_bytes())));
                arguments.push(length(WORDS));
                let native = Native::new(SOURCE, "kiln_recover").name("KILN_RECOVER", "");
                self.native(native, WORDS, arguments)?;
            } else {
                let halves = marks.into_iter().flat_map(|bits| [bits & u64::from(u32::MAX), bits >> 32]);
                arguments.extend(halves.map(|bits| Argument::Word(bits.to_le_bytes())));
                arguments.push(length(WORDS));
                self.run_points(BlockKey::new("recover"), block::index::recover, WORDS, arguments)?;
            }
        }
        let cause = match poison {
            Some(error) => Value::poisoned(*flag_ty, error),
            None => Array { suspicions: all, ..flag.clone() }.into_value(*flag_ty),
        };
        values.extend([flag.into_value(*flag_ty), cause]);
        Ok(values)
    }

    /// The index itself, with a deferred bounds check of its entries.
    pub(crate) fn check_user_index(
        &self,
        places: usize,
        user: IndexUser,
        inputs: &Operands,
    ) -> Result<Values> {
        let (array, ty) = tensor::<D>(inputs, 0)?;
        let suspicion = self.suspicion(Wrong::User { user, length: places, indices: ty.shape })?;
        let index = self.contiguous(array, ty.dtype)?;
        self.check_index((&index, ty), places, &suspicion)?;
        let mut all = suspicions::<D>(inputs);
        all.push(&suspicion);
        Ok(smallvec![Array { suspicions: all, ..array.clone() }.into_value(*ty)])
    }
}
