//! Ops by index.

use crate::ffi::Argument::{Int, Text};
use crate::ffi::call as call_torch;
use crate::library::{Call, Native, Torch, numbers, ordered, unordered};
use crate::tensor::{Result, Tensor, TorchType, one};
use kiln_foreign::{Index, Library};
use kiln_ir::{DType, UpdateMode};

impl Index for Torch {
    fn indices(x: &Tensor, dtype: DType, length: usize) -> Native {
        // Numbers of `u64` from 2⁶³ on are negative as bits, and out of range both ways.
        let index = numbers(x, dtype)?.unwrap_or(x.clone()).to(TorchType::Long)?;
        let [least, greatest] = call_torch(c"aminmax", &[index.arg()])?;
        let is_inside = number(&least)? >= 0 && (number(&greatest)? as u64) < length as u64;
        Ok(is_inside.then_some(index))
    }

    fn index_select(x: &Tensor, index: &Tensor, axis: usize) -> Result {
        one(c"index_select", &[x.arg(), Int(axis as i64), index.arg()])
    }

    fn gather(x: &Tensor, index: &Tensor, axis: usize) -> Result {
        one(c"gather", &[x.arg(), Int(axis as i64), index.arg()])
    }

    /// On GPUs, elements that are set have no order.
    fn has_mode(call: &Call<'_>, mode: UpdateMode) -> bool {
        mode != UpdateMode::Set || call.library.0.is_processor()
    }

    fn scatter(
        base: &Tensor,
        index: &Tensor,
        source: &Tensor,
        axis: usize,
        mode: UpdateMode,
        dtype: DType,
    ) -> Result {
        let axis = Int(axis as i64);
        let reduced = |base: &Tensor, source: &Tensor, how: &str| {
            one(c"scatter_reduce.two", &[base.arg(), axis, index.arg(), source.arg(), Text(how)])
        };
        let how = match mode {
            UpdateMode::Set => return one(c"scatter.src", &[base.arg(), axis, index.arg(), source.arg()]),
            UpdateMode::Add => {
                let (base, source) = (Torch::widened(base)?, Torch::widened(source)?);
                let y = one(c"scatter_add", &[base.arg(), axis, index.arg(), source.arg()])?;
                return Torch::rounded(&y, dtype);
            }
            UpdateMode::Mul => {
                let y = reduced(&Torch::widened(base)?, &Torch::widened(source)?, "prod")?;
                return Torch::rounded(&y, dtype);
            }
            UpdateMode::Min => "amin",
            UpdateMode::Max => "amax",
        };
        unordered(&reduced(&ordered(base, dtype)?, &ordered(source, dtype)?, how)?, dtype)
    }
}

/// The number in a tensor of one `i64`.
fn number(x: &Tensor) -> Result<i64> {
    let mut bytes = [0; 8];
    x.read(&mut bytes)?;
    Ok(i64::from_ne_bytes(bytes))
}
