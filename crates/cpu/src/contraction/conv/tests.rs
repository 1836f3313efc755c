use super::{Finished, forward};
use crate::Cpu;
use crate::array::Array;
use alloc::vec;
use alloc::vec::Vec;
use kiln_ir::{ConvSpec, DType, TensorType};

/// The forward pass of ones and twos, with every element of the result doubled and one more per channel by the epilogue.
#[test]
fn epilogues_see_every_element_once() {
    let cases: [([usize; 4], [usize; 4], usize, usize); 5] = [
        // Tiles of 3 × 3 by block and by phase, strips of a copy, of groups, of the source itself, few positions.
        ([2, 16, 41, 39], [18, 16, 3, 3], 1, 1),
        ([1, 16, 14, 13], [18, 16, 3, 3], 1, 1),
        ([20, 3, 12, 12], [10, 3, 5, 5], 2, 1),
        ([2, 12, 11, 10], [9, 12, 1, 1], 1, 0),
        ([5, 20, 2, 2], [34, 20, 3, 3], 1, 1),
    ];
    let cpu = Cpu::with_threads(2);
    for (x, w, stride, padding) in cases {
        let spec = ConvSpec {
            stride: vec![stride; 2],
            padding: vec![(padding, padding); 2],
            dilation: vec![1; 2],
            groups: 1,
        };
        let out = |axis: usize| (x[axis] + 2 * padding - w[axis]) / stride + 1;
        let types =
            [&x[..], &w, &[x[0], w[0], out(2), out(3)]].map(|shape| TensorType::new(shape, DType::F32));
        let arrays = types.map(|ty| Array::uninit(&ty).unwrap());
        for (place, array) in arrays.iter().enumerate() {
            for i in 0..array.num_elements() {
                // SAFETY: a fresh array of that many elements.
                unsafe { *array.as_mut_ptr::<f32>().add(i) = (i * (place + 3) % 7) as f32 - 3.0 };
            }
        }
        let [a, b, y] = &arrays;
        let plain = {
            forward::<f32>(&cpu, &spec, (a, types[0]), (b, types[1]), y, None).unwrap();
            y.data::<f32>().to_vec()
        };
        let finish = |part: Finished<f32>| {
            for (i, channel) in part.channels.clone().enumerate() {
                for element in 0..part.elements.len() {
                    // SAFETY: an element of the part.
                    unsafe {
                        let y = part.start.add(i * part.stride + element);
                        *y = 2.0 * *y + channel as f32 + 1.0;
                    }
                }
            }
        };
        forward(&cpu, &spec, (a, types[0]), (b, types[1]), y, Some(&finish)).unwrap();
        let plane = out(2) * out(3);
        let channel = |i: usize| (i / plane % w[0]) as f32 + 1.0;
        let wanted: Vec<f32> = plain.iter().enumerate().map(|(i, y)| 2.0 * y + channel(i)).collect();
        assert_eq!(y.data::<f32>(), wanted, "{x:?} {w:?}");
    }
}
