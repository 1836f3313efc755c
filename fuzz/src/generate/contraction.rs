//! Generates matmul, convolution and pooling.

use super::{Generator, Wanted};
use kiln_ir::{
    ConvPass, ConvSpec, DType, Float8, Op, OperandType, PoolKind, PoolSpec, Shape, TensorType, infer,
};
use kiln_suite::case::Fill;

impl Generator<'_> {
    pub(super) fn matmul(&mut self) -> Option<()> {
        let a = self.tensor(2, 5, |dtype| !dtype.is_bool());
        let ty = self.ty(a);
        let (rank, columns) = (ty.rank(), self.length());
        if self.random.chance(50) {
            let shape = ty.shape.with(rank - 2, ty.shape[rank - 1]).with(rank - 1, columns);
            let b = self.exact(ty.with_shape(shape), Wanted::Free);
            return self.emit_on(Op::MatMul, &[a, b]).map(drop);
        }
        let shape = ty.shape.with(rank - 1, ty.shape[rank - 2]).with(rank - 2, columns);
        let b = self.exact(ty.with_shape(shape), Wanted::Free);
        self.emit_on(Op::MatMul, &[b, a]).map(drop)
    }

    /// Operands have exactly summable products: tensor cores round small products beside large ones.
    pub(super) fn matmul_float8(&mut self) -> Option<()> {
        let formats = [self.random.pick(Float8::ALL), self.random.pick(Float8::ALL)];
        let dtype = self.random.pick(&[DType::F32, DType::F16, DType::BF16]);
        let batch: Vec<usize> = (0..self.random.below(3)).map(|_| self.short(3)).collect();
        let (rows, inner, columns) = (self.length(), self.random.pick(&[1, 3, 16, 17]), self.length());
        let mut bits = |format: Float8, last: [usize; 2]| {
            let shape: Shape = batch.iter().chain(&last).copied().collect();
            self.exact(TensorType::new(shape, DType::U8), Wanted::Filled(Fill::halves(format)))
        };
        let (a, b) = (bits(formats[0], [rows, inner]), bits(formats[1], [inner, columns]));
        let mut scale = || self.exact(TensorType::new([], DType::F32), Wanted::Filled(Fill::Positive));
        let (scale_a, scale_b) = (scale(), scale());
        self.emit_on(Op::MatMulFloat8 { formats, dtype }, &[a, b, scale_a, scale_b]).map(drop)
    }

    pub(super) fn conv(&mut self) -> Option<()> {
        let dtype = self.dtype(DType::is_float);
        let axes = self.random.pick(&[1, 1, 2, 2, 3]);
        let spec = self.conv_spec(axes);
        let (batch, inside, outside) = (self.short(3), self.random.between(1, 3), self.random.between(1, 3));
        let (channels, out) = (inside * spec.groups, outside * spec.groups);
        let most = [0, 17, 7, 4][axes];
        let kernel: Vec<usize> = (0..axes).map(|_| self.random.pick(&[1, 2, 3, 3])).collect();
        let mut space: Vec<usize> = (0..axes).map(|_| self.short(most)).collect();
        // The kernel usually fits.
        for axis in 0..axes {
            let reach = spec.dilation[axis] * (kernel[axis] - 1) + 1;
            let padded = spec.padding[axis].0 + spec.padding[axis].1;
            space[axis] = space[axis].max(reach.saturating_sub(padded)).max(1);
        }
        let x = TensorType::new(joined(batch, channels, &space), dtype);
        let w = TensorType::new(joined(out, inside, &kernel), dtype);
        let forward = Op::Conv { spec: spec.clone(), pass: ConvPass::Forward };
        let y = *infer(&forward, &[OperandType::Tensor(&x), OperandType::Tensor(&w)]).ok()?.first()?;
        let (op, [a, b]) = match self.random.below(3) {
            0 => (forward, [x, w]),
            1 => (Op::Conv { spec, pass: ConvPass::Input { size: space } }, [y, w]),
            _ => (Op::Conv { spec, pass: ConvPass::Weight { size: kernel } }, [x, y]),
        };
        let (a, b) = (self.exact(a, Wanted::Free), self.exact(b, Wanted::Free));
        self.emit_on(op, &[a, b]).map(drop)
    }

    fn conv_spec(&mut self, axes: usize) -> ConvSpec {
        ConvSpec {
            stride: (0..axes).map(|_| self.random.pick(&[1, 1, 2, 3])).collect(),
            padding: (0..axes)
                .map(|_| (self.random.pick(&[0, 1, 2]), self.random.pick(&[0, 1, 2])))
                .collect(),
            dilation: (0..axes).map(|_| self.random.pick(&[1, 1, 2, 3])).collect(),
            groups: self.random.pick(&[1, 1, 2, 3]),
        }
    }

    pub(super) fn pool(&mut self) -> Option<()> {
        let (spec, x) = self.pooling();
        let x = self.exact(x, Wanted::Free);
        self.emit_on(Op::Pool(spec), &[x]).map(drop)
    }

    pub(super) fn pool_grad(&mut self) -> Option<()> {
        let (spec, x) = self.pooling();
        let size = x.shape[2..].to_vec();
        let forward = Op::Pool(spec.clone());
        let y = *infer(&forward, &[OperandType::Tensor(&x)]).ok()?.first()?;
        let mut operands = vec![self.exact(y, Wanted::Free)];
        if spec.kind == PoolKind::Max {
            operands.push(self.exact(x, Wanted::Free));
        }
        self.emit_on(Op::PoolGrad { spec, size }, &operands).map(drop)
    }

    /// A pooling, possibly invalid, and the type of its operand.
    fn pooling(&mut self) -> (PoolSpec, TensorType) {
        let kinds = [
            PoolKind::Max,
            PoolKind::Average { include_padding: true },
            PoolKind::Average { include_padding: false },
        ];
        let kind = self.random.pick(&kinds);
        let dtype = match kind {
            PoolKind::Max => self.dtype(|dtype| !dtype.is_bool()),
            PoolKind::Average { .. } => self.dtype(DType::is_float),
        };
        let axes = self.random.pick(&[1, 2, 2, 3]);
        let window: Vec<usize> = (0..axes).map(|_| self.random.pick(&[1, 2, 2, 3])).collect();
        let dilates = kind == PoolKind::Max;
        let mut spec = PoolSpec::new(kind, &window);
        for axis in 0..axes {
            spec.stride[axis] = self.random.pick(&[1, 2, 2, 3]);
            let half = window[axis] / 2;
            spec.padding[axis] = (self.random.between(0, half), self.random.between(0, half));
            spec.overhang[axis] = self.random.pick(&[0, 0, 0, 1]);
            spec.dilation[axis] = if dilates { self.random.pick(&[1, 1, 1, 2]) } else { 1 };
        }
        let (batch, channels) = (self.short(3), self.short(3));
        let most = [0, 17, 7, 4][axes];
        let space: Vec<usize> = (0..axes).map(|axis| self.short(most).max(window[axis])).collect();
        (spec, TensorType::new(joined(batch, channels, &space), dtype))
    }
}

fn joined(first: usize, second: usize, rest: &[usize]) -> Shape {
    [first, second].iter().chain(rest).copied().collect()
}
