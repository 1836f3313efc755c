//! Kernels whose tensors exceed the limit of a binding: such a tensor takes several bindings, of which a kernel has few.

use crate::Gpu;
use crate::array::Array;
use crate::driver::{Driver, Window, parts};
use kiln_ir::{Error, Layout, Op, Operand, Operands, TensorType};
use std::ops::Range;

impl<D: Driver> Gpu<D> {
    /// The error for an op whose operands and results need more bindings than a kernel has; `None` if they do not.
    pub(crate) fn unbound(&self, op: &Op, inputs: &Operands, results: &[TensorType]) -> Option<Error> {
        let info = self.driver.info();
        let (most, limit) = (info.bindings?, info.binding_bytes?);
        let values = || inputs.iter().filter_map(Operand::value);
        let of_inputs = values()
            .map(|value| Array::<D>::of(value).map_or(1, |array| array.bindings(value.dtype().size())));
        let of_results = results.iter().map(|ty| parts(ty.num_bytes(), limit));
        let needed: usize = of_inputs.chain(of_results).sum();
        if needed <= most {
            return None;
        }
        let types = values().map(|value| *value.ty()).chain(results.iter().copied());
        let bytes: Vec<String> = types.map(|ty| ty.num_bytes().to_string()).collect();
        let problem = format!(
            "`{}` has tensors of {} bytes, which need {needed} bindings of up to {limit} bytes, and a kernel has at most \
             {most}",
            op.name(),
            bytes.join(", ")
        );
        Some(Error::unsupported(&info.name, problem).hint("run it on slices of the tensors"))
    }
}

impl<D: Driver> Array<D> {
    /// The number of bindings of the array in a kernel; `size` is the element size in bytes.
    pub(crate) fn bindings(&self, size: usize) -> usize {
        match self.block.exceeded_limit() {
            Some(limit) => Window::of(&self.at(size), self.block.len(), limit).parts(),
            None => 1,
        }
    }
}

/// The bytes of a block between the first and the last element of a layout; `size` is the element size in bytes.
pub(crate) fn reach(layout: &Layout, size: usize) -> Range<usize> {
    let (mut first, mut last) = (layout.offset, layout.offset);
    for (&len, &stride) in layout.shape.iter().zip(layout.strides()) {
        let distance = len.saturating_sub(1) * stride.unsigned_abs();
        if stride < 0 {
            first = first.saturating_sub(distance);
        } else {
            last += distance;
        }
    }
    first * size..(last + 1) * size
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceInfo, DryDriver};
    use kiln_ir::{Axes, Binary, DType, Engine, MemoryConfig, SliceAxis, Value};

    fn gpu(bindings: usize, limit: usize) -> Gpu<DryDriver> {
        let info =
            DeviceInfo { bindings: Some(bindings), binding_bytes: Some(limit), ..DeviceInfo::absent("dry") };
        Gpu::new(DryDriver::new(info, |_| Ok(Vec::new())), MemoryConfig::new())
    }

    #[test]
    fn the_reach_of_a_layout_contains_all_its_elements() {
        let whole = Layout::contiguous([4, 6].into());
        assert_eq!(reach(&whole, 4), 0..96);
        let rows =
            whole.slice(&[SliceAxis { start: 1, len: 2, step: 1 }, SliceAxis { start: 5, len: 3, step: -2 }]);
        assert_eq!(reach(&rows, 4), 7 * 4..18 * 4);
        assert_eq!(reach(&rows.permute(&Axes::new(&[1, 0])), 2), 7 * 2..18 * 2);
        assert_eq!(reach(&Layout::contiguous([0, 6].into()), 4), 0..24);
    }

    #[test]
    fn a_slice_of_a_large_block_is_one_binding() {
        let gpu = gpu(8, 4096);
        let ty = TensorType::new([8, 1024], DType::F32);
        let whole = gpu.uninit(&ty).unwrap();
        assert_eq!(whole.bindings(4), 8);
        let row =
            whole.with_layout(whole.layout.slice(&[
                SliceAxis { start: 3, len: 1, step: 1 },
                SliceAxis { start: 0, len: 1024, step: 1 },
            ]));
        assert_eq!(row.bindings(4), 1);
        assert_eq!((row.at(4).offset, row.at(4).reach.bytes()), (3 * 4096, 3 * 4096..4 * 4096));
    }

    #[test]
    fn an_op_with_too_many_bindings_is_an_error_with_the_numbers() {
        let gpu = gpu(8, 4096);
        let add = |shape: &[usize]| {
            let ty = TensorType::new(shape, DType::F32);
            let given: [Value; 2] = [(); 2].map(|()| gpu.uninit(&ty).unwrap().into_value(ty));
            // Operands that are still held give no memory to the result.
            let inputs: Operands = given.iter().cloned().map(Operand::Value).collect();
            gpu.execute(&Op::Binary(Binary::Add), inputs, &[ty]).remove(0)
        };
        assert!(add(&[2, 1024]).error().is_none());
        let failed = add(&[4, 1024]);
        let error = failed.error().unwrap().to_string();
        for part in ["`add`", "16384, 16384, 16384 bytes", "12 bindings of up to 4096", "at most 8"] {
            assert!(error.contains(part), "{error}");
        }
    }
}
