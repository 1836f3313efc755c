//! Generates composite ops.

use super::{Generator, Wanted};
use kiln_ir::{
    AttentionSpec, BlockFormat, DType, FftKind, NormKind, Op, Real, ResizeMode, Shape, TensorType,
};
use kiln_suite::case::Fill;

/// Operands of an attention.
struct AttentionOperands {
    spec: AttentionSpec,
    q: usize,
    k: usize,
    v: usize,
    mask: Option<usize>,
}

impl Generator<'_> {
    pub(super) fn softmax(&mut self) -> Option<()> {
        let x = self.tensor(1, 5, DType::is_float);
        let (axis, log) = (self.random.below(self.ty(x).rank()), self.random.chance(50));
        self.emit_on(Op::Softmax { axis, log }, &[x]).map(drop)
    }

    pub(super) fn log_sum_exp(&mut self) -> Option<()> {
        let x = self.tensor(1, 5, DType::is_float);
        let axis = self.random.below(self.ty(x).rank());
        self.emit_on(Op::LogSumExp { axis }, &[x]).map(drop)
    }

    pub(super) fn norm(&mut self) -> Option<()> {
        let kind = self.random.pick(NormKind::ALL);
        let x = self.tensor(1, 5, DType::is_float);
        let ty = self.ty(x);
        let axes = self.random.between(1, ty.rank());
        let row = ty.with_shape(&ty.shape[ty.rank() - axes..]);
        let mut operands = vec![x];
        for _ in 0..self.random.below(3) {
            operands.push(self.exact(row, Wanted::Free));
        }
        let epsilon = Real(self.random.pick(&[1e-5, 1e-3, 0.1]));
        self.emit_on(Op::Norm { kind, axes, epsilon }, &operands).map(drop)
    }

    pub(super) fn attention(&mut self) -> Option<()> {
        let attended = self.attention_operands();
        self.emit_attention(&attended).map(drop)
    }

    /// Output and log-sum-exp are results of the attention, as its gradient requires.
    pub(super) fn attention_grad(&mut self) -> Option<()> {
        let attended = self.attention_operands();
        let [y, lse] = self.emit_attention(&attended)?[..] else { return None };
        let gradient = self.exact(self.ty(y), Wanted::Free);
        let mut operands = vec![gradient, attended.q, attended.k, attended.v, y, lse];
        operands.extend(attended.mask);
        self.emit_on(Op::AttentionGrad(attended.spec), &operands).map(drop)
    }

    fn emit_attention(&mut self, attended: &AttentionOperands) -> Option<Vec<usize>> {
        let mut operands = vec![attended.q, attended.k, attended.v];
        operands.extend(attended.mask);
        self.emit_on(Op::Attention(attended.spec), &operands)
    }

    fn attention_operands(&mut self) -> AttentionOperands {
        let dtype = self.dtype(DType::is_float);
        let (batch, kv_heads) = (self.short(2), self.random.pick(&[1, 1, 2]));
        let heads = kv_heads * self.random.pick(&[1, 1, 2]);
        let (queries, keys) = (self.short(5), self.short(6));
        let (dim, dim_v) = (self.short(4), self.short(4));
        let of = |shape: [usize; 4]| TensorType::new(shape, dtype);
        let spec = AttentionSpec {
            scale: Real(self.random.pick(&[1.0, 0.5, 0.25, -0.5])),
            causal: if self.random.chance(40) { Some(self.random.below(5) as i64 - 1) } else { None },
        };
        let q = self.exact(of([batch, heads, queries, dim]), Wanted::Free);
        let k = self.exact(of([batch, kv_heads, keys, dim]), Wanted::Free);
        let v = self.exact(of([batch, kv_heads, keys, dim_v]), Wanted::Free);
        let mask = self.random.chance(50).then(|| {
            let mut shape: Shape = [batch, heads, queries, keys].into();
            for axis in 0..4 {
                if self.random.chance(35) {
                    shape[axis] = 1;
                }
            }
            let dtype = if self.random.chance(50) { DType::Bool } else { dtype };
            self.exact(TensorType::new(shape, dtype), Wanted::Free)
        });
        AttentionOperands { spec, q, k, v, mask }
    }

    pub(super) fn resize(&mut self) -> Option<()> {
        let mode = self.random.pick(ResizeMode::ALL);
        let x = self.tensor(3, 5, DType::is_float);
        let size: Vec<usize> = (2..self.ty(x).rank()).map(|_| self.short(9)).collect();
        let align_corners = self.random.chance(50);
        self.emit_on(Op::Resize { mode, size, align_corners }, &[x]).map(drop)
    }

    pub(super) fn fft(&mut self) -> Option<()> {
        let re = self.tensor(1, 4, DType::is_float);
        let (axis, inverse) = (self.random.below(self.ty(re).rank()), self.random.chance(50));
        let length = self.ty(re).shape[axis];
        let kind = match self.random.below(3) {
            1 if length > 0 => FftKind::FromReal,
            2 if length > 1 => FftKind::ToReal { points: 2 * length - 2 + self.random.below(2) },
            _ => FftKind::Complex,
        };
        let mut operands = vec![re];
        if kind != FftKind::FromReal {
            operands.push(self.exact(self.ty(re), Wanted::Free));
        }
        self.emit_on(Op::Fft { kind, axis, inverse }, &operands).map(drop)
    }

    pub(super) fn quantize(&mut self) -> Option<()> {
        let x = self.tensor(0, 4, DType::is_float);
        let dtype = self.random.pick(&[DType::I8, DType::U8, DType::I16, DType::U16, DType::I32]);
        let mut operands = vec![x];
        self.scales(self.ty(x), dtype, &mut operands);
        self.emit_on(Op::Quantize { dtype }, &operands).map(drop)
    }

    pub(super) fn dequantize(&mut self) -> Option<()> {
        let stored = |dtype| matches!(dtype, DType::I8 | DType::U8 | DType::I16 | DType::U16 | DType::I32);
        let q = self.tensor(0, 4, stored);
        let ty = self.ty(q);
        let mut operands = vec![q];
        let dtype = self.dtype(DType::is_float);
        self.scales(ty.with_dtype(dtype), ty.dtype, &mut operands);
        self.emit_on(Op::Dequantize, &operands).map(drop)
    }

    pub(super) fn dequantize_blocks(&mut self) -> Option<()> {
        let (format, dtype) = (self.random.pick(BlockFormat::ALL), self.dtype(DType::is_float));
        let shape = [self.short(3), self.random.between(1, 2) * format.bytes()];
        // Not behind a view, whose source may not consist of whole blocks.
        let blocks = self.input(TensorType::new(shape, DType::U8), Wanted::Filled(Fill::Blocks(format)));
        self.emit_on(Op::DequantizeBlocks { format, dtype }, &[blocks]).map(drop)
    }

    /// Scales for the blocks of a tensor, and optionally zero points of the stored integer dtype.
    fn scales(&mut self, x: TensorType, stored: DType, operands: &mut Vec<usize>) {
        let mut shape = x.shape;
        for length in shape.iter_mut() {
            let divisors: Vec<usize> = (1..=*length).filter(|d| length.is_multiple_of(*d)).collect();
            *length = if divisors.is_empty() { *length } else { self.random.pick(&divisors) };
        }
        let wild = self.style.special && self.random.chance(30);
        let wanted = if wild { Wanted::Free } else { Wanted::Filled(Fill::Positive) };
        operands.push(self.exact(x.with_shape(shape), wanted));
        if self.random.chance(50) {
            operands.push(self.exact(TensorType::new(shape, stored), Wanted::Free));
        }
    }
}
