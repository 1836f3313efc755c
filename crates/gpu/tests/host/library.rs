//! Reference attention and matmul in place of a vendor's library, computed by definition in `f64`.

use half::{bf16, f16};
use kiln_gpu::driver::{Activation, Attention, AttentionPass, DevicePtr, Fourier, FourierKind, Products};
use kiln_ir::{DType, Float8};
use std::f64::consts::TAU;

/// Supported attention: one float dtype, so that the kernels are tested with the others.
pub(crate) fn takes(attention: &Attention) -> bool {
    attention.dtype == DType::F16 && attention.dim_v.is_multiple_of(8)
}

/// Tensors of an attention in memory.
struct Memory<'a> {
    attention: &'a Attention,
    tensors: &'a [*mut u8],
}

impl Memory<'_> {
    /// The offset of an element of a strided tensor: index `place` among the strides, index `tensor` among all tensors.
    fn at(&self, tensor: usize, place: usize, [batch, head, row, column]: [usize; 4]) -> *mut f16 {
        let [per_batch, per_head, per_row] = self.attention.steps[place];
        let at = batch * per_batch + head * per_head + row * per_row + column;
        self.tensors[tensor].cast::<f16>().wrapping_add(at)
    }

    fn get(&self, tensor: usize, place: usize, index: [usize; 4]) -> f64 {
        // SAFETY: the caller of `attended` vouches for the memory.
        unsafe { self.at(tensor, place, index).read() }.to_f64()
    }

    fn add(&self, tensor: usize, place: usize, index: [usize; 4], number: f64) {
        let sum = self.get(tensor, place, index) + number;
        // SAFETY: as above.
        unsafe { self.at(tensor, place, index).write(f16::from_f64(sum)) };
    }

    fn log(&self, tensor: usize, [batch, head, row]: [usize; 3]) -> *mut f32 {
        let Attention { heads, queries, .. } = *self.attention;
        self.tensors[tensor].cast::<f32>().wrapping_add((batch * heads + head) * queries + row)
    }

    fn bias(&self, tensor: usize, index: [usize; 4]) -> f64 {
        let Some(lengths) = self.attention.bias else { return 0.0 };
        let at = (0..4).fold(0, |at, axis| at * lengths[axis] + index[axis].min(lengths[axis] - 1));
        // SAFETY: as above.
        f64::from(unsafe { self.tensors[tensor].cast::<f32>().wrapping_add(at).read() })
    }

    fn score(&self, first: usize, bias: usize, [batch, head, row, key]: [usize; 4]) -> f64 {
        let Attention { heads, kv_heads, dim, scale, causal, .. } = *self.attention;
        if causal.is_some_and(|offset| key as i64 > row as i64 + offset) {
            return f64::NEG_INFINITY;
        }
        let of_key = [batch, head / (heads / kv_heads), key];
        let product = |c| {
            let [b, h, r] = of_key;
            self.get(first, first, [batch, head, row, c]) * self.get(first + 1, first + 1, [b, h, r, c])
        };
        (0..dim).map(product).sum::<f64>() * scale.0 + self.bias(bias, [batch, head, row, key])
    }

    fn forward(&self, [batch, head, row]: [usize; 3]) {
        let Attention { heads, kv_heads, keys, dim_v, .. } = *self.attention;
        let y = 3 + usize::from(self.attention.bias.is_some());
        let scores: Vec<f64> = (0..keys).map(|key| self.score(0, 3, [batch, head, row, key])).collect();
        let greatest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - greatest).exp()).sum();
        for c in 0..dim_v {
            let of_key = |key: usize| {
                (scores[key] - greatest).exp() * self.get(2, 2, [batch, head / (heads / kv_heads), key, c])
            };
            let number = (0..keys).map(of_key).sum::<f64>() / sum;
            // SAFETY: as above.
            unsafe { self.at(y, 3, [batch, head, row, c]).write(f16::from_f64(number)) };
        }
        // SAFETY: as above.
        unsafe { self.log(y + 1, [batch, head, row]).write((greatest + sum.ln()) as f32) };
    }

    fn backward(&self, [batch, head, row]: [usize; 3]) {
        let Attention { heads, kv_heads, keys, dim, dim_v, scale, .. } = *self.attention;
        let (kv_head, results) = (head / (heads / kv_heads), 6 + usize::from(self.attention.bias.is_some()));
        // SAFETY: as above.
        let log = f64::from(unsafe { self.log(5, [batch, head, row]).read() });
        let grad = |c: usize| self.get(0, 0, [batch, head, row, c]);
        let delta: f64 = (0..dim_v).map(|c| grad(c) * self.get(4, 4, [batch, head, row, c])).sum();
        for key in 0..keys {
            let weight = (self.score(1, 6, [batch, head, row, key]) - log).exp();
            let of_weight: f64 = (0..dim_v).map(|c| grad(c) * self.get(3, 3, [batch, kv_head, key, c])).sum();
            let of_score = weight * (of_weight - delta) * scale.0;
            for c in 0..dim {
                let (q, k) =
                    (self.get(1, 1, [batch, head, row, c]), self.get(2, 2, [batch, kv_head, key, c]));
                self.add(results, 5, [batch, head, row, c], of_score * k);
                self.add(results + 1, 6, [batch, kv_head, key, c], of_score * q);
            }
            for c in 0..dim_v {
                self.add(results + 2, 7, [batch, kv_head, key, c], weight * grad(c));
            }
        }
    }
}

/// Computes an attention.
///
/// # Safety
/// The tensors must hold the elements that the attention's sizes and steps reach.
pub(crate) unsafe fn attended(attention: &Attention, tensors: &[*mut u8]) {
    let memory = Memory { attention, tensors };
    let Attention { batch, heads, kv_heads, queries, keys, dim, dim_v, .. } = *attention;
    if attention.pass == AttentionPass::Backward {
        let results = tensors.len() - 3;
        for (place, [heads, rows, columns]) in
            [[heads, queries, dim], [kv_heads, keys, dim], [kv_heads, keys, dim_v]].into_iter().enumerate()
        {
            for at in 0..batch * heads * rows * columns {
                let index = [
                    at / columns / rows / heads,
                    at / columns / rows % heads,
                    at / columns % rows,
                    at % columns,
                ];
                // SAFETY: as the caller says.
                unsafe { memory.at(results + place, 5 + place, index).write(f16::ZERO) };
            }
        }
    }
    for at in 0..batch * heads * queries {
        let row = [at / queries / heads, at / queries % heads, at % queries];
        match attention.pass {
            AttentionPass::Forward => memory.forward(row),
            AttentionPass::Backward => memory.backward(row),
        }
    }
}

/// Whether the library supports a matmul; for 8-bit floats like cuBLASLt.
pub(crate) fn multiplies<M>(products: &Products<M>) -> bool {
    let are_floats = |dtype| matches!(dtype, DType::F32 | DType::F16 | DType::BF16);
    let Some(float8) = &products.float8 else {
        return are_floats(products.dtype) && products.dtype == products.result;
    };
    let [a, b] = &products.factors;
    let lengths = [
        products.inner,
        products.columns,
        a.leading_dim,
        b.leading_dim,
        a.step,
        b.step,
        a.at.offset,
        b.at.offset,
    ];
    let lies = !a.transposed && b.transposed && lengths.iter().all(|length| length.is_multiple_of(16));
    assert!(lies, "not as the library wants factors: {lengths:?}");
    let are_aligned = float8.scales.iter().all(|scale| scale.offset.is_multiple_of(16));
    assert!(are_aligned, "a scale does not lie where the library reads it");
    float8.formats != [Float8::E5M2; 2] && are_floats(products.result)
}

/// Computes matmuls, with memory at the addresses that `address` returns.
///
/// # Safety
/// All elements that the products read and write must be within the memory.
pub(crate) unsafe fn multiplied<M>(products: &Products<M>, address: impl Fn(&DevicePtr<M>) -> *mut u8) {
    let Products { count, rows, columns, inner, dtype, result: stored, float8, factors, to, epilogue } =
        products;
    let element = |which: usize, matrix: usize, [row, column]: [usize; 2]| {
        let factor = &factors[which];
        let (down, across) = if factor.transposed { (column, row) } else { (row, column) };
        let place = matrix * factor.step + down * factor.leading_dim + across;
        let Some(float8) = float8 else {
            // SAFETY: as the caller says.
            return unsafe { get(address(&factor.at), place, *dtype) };
        };
        // SAFETY: as the caller says.
        let bits = unsafe { address(&factor.at).add(place).read() };
        f64::from(float8.formats[which].decode(bits))
    };
    // SAFETY: as above.
    let scale = |place| unsafe { get(address(place), 0, DType::F32) };
    let scale: f64 = float8.iter().flat_map(|float8| &float8.scales).map(scale).product();
    for at in 0..count * rows * columns {
        let (matrix, row, column) = (at / columns / rows, at / columns % rows, at % columns);
        let terms = (0..*inner).map(|k| element(0, matrix, [row, k]) * element(1, matrix, [k, column]));
        // SAFETY: as above.
        let bias = |place| unsafe { get(address(place), column, *dtype) };
        let argument = terms.sum::<f64>() * scale + epilogue.bias.as_ref().map_or(0.0, bias);
        let result = match epilogue.activation {
            None => argument,
            Some(Activation::Relu) if argument.is_nan() => argument,
            Some(Activation::Relu) => argument.max(0.0),
            Some(Activation::Gelu) => {
                let inner = (2.0 / std::f64::consts::PI).sqrt() * (argument + 0.044715 * argument.powi(3));
                argument * (inner.tanh() + 1.0) * 0.5
            }
        };
        // SAFETY: as above.
        unsafe { set(address(to), at, *stored, result) };
    }
}

/// # Safety
/// The element must lie within the memory.
unsafe fn get(from: *mut u8, at: usize, dtype: DType) -> f64 {
    // SAFETY: as the caller says.
    unsafe {
        if dtype == DType::F32 {
            f64::from(from.cast::<f32>().add(at).read())
        } else if dtype == DType::F16 {
            from.cast::<f16>().add(at).read().to_f64()
        } else {
            from.cast::<bf16>().add(at).read().to_f64()
        }
    }
}

/// # Safety
/// As [`get`].
unsafe fn set(to: *mut u8, at: usize, dtype: DType, number: f64) {
    // SAFETY: as the caller says.
    unsafe {
        if dtype == DType::F32 {
            to.cast::<f32>().add(at).write(number as f32);
        } else if dtype == DType::F16 {
            to.cast::<f16>().add(at).write(f16::from_f64(number));
        } else {
            to.cast::<bf16>().add(at).write(bf16::from_f64(number));
        }
    }
}

/// FFTs by their definition, in `f64`.
///
/// # Safety
/// The tensors must hold all lines.
pub(crate) unsafe fn transformed(fourier: &Fourier, [x, y]: [*mut u8; 2]) {
    let Fourier { kind, dtype, points, count } = *fourier;
    let half = points / 2 + 1;
    let inverse = matches!(kind, FourierKind::Complex { inverse: true } | FourierKind::ToReal);
    // SAFETY: as the caller says.
    let read = |at: usize| unsafe {
        if dtype == DType::F64 { *x.cast::<f64>().add(at) } else { f64::from(*x.cast::<f32>().add(at)) }
    };
    // SAFETY: as the caller says.
    let write = |at: usize, number: f64| unsafe {
        if dtype == DType::F64 {
            *y.cast::<f64>().add(at) = number;
        } else {
            *y.cast::<f32>().add(at) = number as f32;
        }
    };
    let angle = if inverse { TAU } else { -TAU } / points as f64;
    let roots: Vec<(f64, f64)> = (0..points).map(|turn| (angle * turn as f64).sin_cos()).collect();
    for line in 0..count {
        let complex = |length: usize, k: usize| {
            let at = 2 * (line * length + k);
            (read(at), read(at + 1))
        };
        let number = |n: usize| match kind {
            FourierKind::Complex { .. } => complex(points, n),
            FourierKind::FromReal => (read(line * points + n), 0.0),
            FourierKind::ToReal if n < half => complex(half, n),
            FourierKind::ToReal => {
                let (re, im) = complex(half, points - n);
                (re, -im)
            }
        };
        let numbers: Vec<(f64, f64)> = (0..points).map(number).collect();
        for k in 0..if kind == FourierKind::FromReal { half } else { points } {
            let (mut re, mut im) = (0.0, 0.0);
            for (n, (a, b)) in numbers.iter().enumerate() {
                let (sin, cos) = roots[n * k % points];
                re += a * cos - b * sin;
                im += a * sin + b * cos;
            }
            match kind {
                FourierKind::ToReal => write(line * points + k, re),
                FourierKind::Complex { .. } | FourierKind::FromReal => {
                    let length = if kind == FourierKind::FromReal { half } else { points };
                    write(2 * (line * length + k), re);
                    write(2 * (line * length + k) + 1, im);
                }
            }
        }
    }
}
