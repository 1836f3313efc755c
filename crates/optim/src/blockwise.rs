//! Optimizer state in 8 bits: blockwise quantization with a dynamic code
//! ([Dettmers et al. 2022](https://arxiv.org/abs/2110.02861)).

use crate::error::Result;
use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::{PadAxis, Reduction};
use kiln_tensor::{AnyTensor, DType, TensorData, TensorType};

/// Elements per block.
pub(crate) const BLOCK: usize = 256;

/// Tensors with fewer elements stay in full precision.
pub(crate) const MIN_ELEMENTS: usize = 4096;

/// Whether a tensor is large enough for 8 bits.
pub(crate) fn is_eligible(ty: TensorType) -> bool {
    ty.dtype.is_float() && ty.num_elements() >= MIN_ELEMENTS
}

/// A tensor in 8 bits: each element is a code times the largest magnitude of its block.
#[derive(Clone, Debug)]
pub(crate) struct Blockwise {
    /// Indices into the code table, `u8[blocks, 256]`.
    pub(crate) codes: AnyTensor,
    /// The largest magnitude of each block, `f32[blocks, 1]`.
    pub(crate) scales: AnyTensor,
    /// The type of the tensor.
    pub(crate) ty: TensorType,
    /// Whether no element is negative.
    pub(crate) is_nonnegative: bool,
}

/// The types of codes and scales for a tensor.
pub(crate) fn types(ty: TensorType) -> (TensorType, TensorType) {
    let blocks = ty.num_elements().div_ceil(BLOCK);
    (TensorType::new([blocks, BLOCK], DType::U8), TensorType::new([blocks, 1], DType::F32))
}

impl Blockwise {
    /// Quantizes a float tensor. Each element becomes the nearest code of its block. In a nonnegative tensor, positive
    /// numbers stay positive: a second moment of 0 would be divided by.
    pub(crate) fn encode(tensor: AnyTensor, is_nonnegative: bool) -> Result<Blockwise> {
        let ty = *tensor.ty();
        let blocks = ty.num_elements().div_ceil(BLOCK);
        let padding = blocks * BLOCK - ty.num_elements();
        let flat = tensor.cast(DType::F32)?.reshape([ty.num_elements()])?;
        let flat = if padding == 0 { flat } else { flat.pad_axes(vec![PadAxis::new(0, padding)], 0.0)? };
        let rows = flat.reshape([blocks, BLOCK])?;
        let scales = rows.clone().abs()?.reduce(Reduction::Max, &[1])?;
        let divisor = scales.clone().compare_scalar(kiln_ir::Comparison::Eq, 0.0)?;
        let divisor = divisor.if_else_number(1.0, scales.clone())?;
        let table = table(is_nonnegative);
        let midpoints: Vec<f32> = table.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
        let midpoints = AnyTensor::from_data(vector(midpoints)?, rows.stack());
        let is_positive = rows.clone().scalar_compare(0.0, kiln_ir::Comparison::Lt)?;
        let mut codes = rows.div(divisor)?.bucketize(midpoints, false)?;
        if is_nonnegative {
            codes = codes.clone().maximum(is_positive.cast(codes.dtype())?)?;
        }
        Ok(Blockwise { codes: codes.cast(DType::U8)?, scales, ty, is_nonnegative })
    }

    /// Returns the tensor.
    pub(crate) fn decode(self) -> Result<AnyTensor> {
        let Blockwise { codes, scales, ty, is_nonnegative } = self;
        let stack = codes.stack().clone();
        let table = AnyTensor::from_data(vector(table(is_nonnegative))?, &stack);
        let shape = *codes.shape();
        let indices = codes.cast(stack.int_dtype())?.reshape([shape.num_elements()])?;
        let rows = table.select(0, indices)?.reshape(shape)?.mul(scales)?;
        let flat = rows.reshape([shape.num_elements()])?.narrow(0, 0, ty.num_elements())?;
        Ok(flat.reshape(ty.shape)?.cast(ty.dtype)?)
    }
}

fn vector(numbers: Vec<f32>) -> Result<TensorData> {
    let length = numbers.len();
    Ok(TensorData::new(numbers, [length])?)
}

/// The 256 numbers of the dynamic code, ascending, in `[-1, 1]` or `[0, 1]`. Each decade from `1e-6` to 1 has twice as
/// many numbers as the previous one.
fn table(is_nonnegative: bool) -> Vec<f32> {
    const DECADES: u32 = 7;
    let mut numbers = vec![0.0, 1.0];
    for decade in 0..DECADES {
        let count = if is_nonnegative { 2 << decade } else { 1 << decade };
        let power = libm::pow(10.0, f64::from(decade) - f64::from(DECADES - 1));
        for place in 0..count {
            let middle = 0.1 + 0.9 * (f64::from(place) + 0.5) / f64::from(count);
            numbers.push((power * middle) as f32);
            if !is_nonnegative {
                numbers.push(-(power * middle) as f32);
            }
        }
    }
    numbers.sort_by(f32::total_cmp);
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_backends::Flex;
    use kiln_tensor::Tensor;

    #[test]
    fn tables_have_256_ascending_numbers() {
        for is_nonnegative in [false, true] {
            let table = table(is_nonnegative);
            assert_eq!(table.len(), 256);
            assert!(table.is_sorted_by(|a, b| a < b) && table.contains(&0.0));
            assert_eq!(table[255], 1.0);
            assert_eq!(table[0] < 0.0, !is_nonnegative);
        }
    }

    #[test]
    fn a_tensor_keeps_its_shape_and_its_digits() {
        let numbers: Vec<f32> =
            (0..5000).map(|i| libm::sinf(i as f32) * libm::expf((i % 7) as f32)).collect();
        let data = TensorData::new(numbers.clone(), [50, 100]).unwrap();
        let tensor = Tensor::<Flex, 2>::from_data(data, &Default::default()).into_any();
        let encoded = Blockwise::encode(tensor, false).unwrap();
        assert_eq!(*encoded.codes.ty(), types(encoded.ty).0);
        let decoded = encoded.clone().decode().unwrap();
        assert_eq!(decoded.shape()[..], [50, 100]);
        let found = decoded.to_vec::<f32>().unwrap();
        for (block, found) in numbers.chunks(BLOCK).zip(found.chunks(BLOCK)) {
            let largest = block.iter().fold(0f32, |largest, x| largest.max(x.abs()));
            let error = |(a, b): (&f32, &f32)| (a - b).abs();
            // Half the distance of two codes in the last decade.
            assert!(block.iter().zip(found).map(error).fold(0f32, f32::max) <= largest * 0.008);
        }
    }

    #[test]
    fn nonnegative_tensors_encode_to_themselves_again() {
        let numbers: Vec<f32> = (0..600).map(|i| libm::sinf(i as f32).abs()).collect();
        let data = TensorData::new(numbers, [600]).unwrap();
        let tensor = Tensor::<Flex, 1>::from_data(data, &Default::default()).into_any();
        let encoded = Blockwise::encode(tensor, true).unwrap();
        let again = Blockwise::encode(encoded.clone().decode().unwrap(), true).unwrap();
        assert_eq!(again.codes.to_data().unwrap(), encoded.codes.to_data().unwrap());
        assert_eq!(again.scales.to_data().unwrap(), encoded.scales.to_data().unwrap());
    }

    #[test]
    fn small_second_moments_stay_positive() {
        let data = TensorData::new(vec![1.0f32, 1e-20, 0.0, 0.5], [4]).unwrap();
        let tensor = Tensor::<Flex, 1>::from_data(data, &Default::default()).into_any();
        let found = Blockwise::encode(tensor, true).unwrap().decode().unwrap().to_vec::<f32>().unwrap();
        assert!(found[1] > 0.0 && found[1] < 1e-6 && found[2] == 0.0, "{found:?}");
    }

    #[test]
    fn a_zero_tensor_stays_zero() {
        let zeros = Tensor::<Flex, 1>::zeros([4096], &Default::default()).into_any();
        let decoded = Blockwise::encode(zeros, true).unwrap().decode().unwrap();
        assert_eq!(decoded.to_vec::<f32>().unwrap(), [0.0; 4096]);
    }
}
