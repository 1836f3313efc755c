//! Ops of each kind with hostile attributes, and the types of operands that they may accept.

use crate::generate::case_of;
use crate::random::Random;
use kiln_ir::{
    AttentionSpec, Axes, Binary, BlockFormat, Comparison, ConvPass, ConvSpec, DType, Extremum, FftKind,
    Float8, IndexUser, NormKind, Op, OpClass, OpKind, OperandType, PadAxis, PoolKind, PoolSpec, RandomKind,
    Real, Reduction, ResizeMode, ResultTypes, Scalar, Shape, SliceAxis, TensorType, Unary, UpdateMode, infer,
};
use kiln_suite::case::OperandKind;

/// Lengths at which products of bytes or elements wrap, or over which no loop ends.
const HUGE: &[usize] = &[
    1 << 16,
    1 << 20,
    1 << 31,
    (1 << 31) + 1,
    1 << 32,
    1 << 40,
    1 << 60,
    1 << 62,
    isize::MAX as usize,
    1 << 63,
    usize::MAX,
];

const SMALL: &[usize] = &[0, 0, 1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64];

const FLOATS: &[DType] = &[DType::F32, DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16];
const INDICES: &[DType] = &[DType::I64, DType::I32, DType::U8, DType::U64, DType::I8, DType::U32];

/// An operand before it has a source.
#[derive(Clone, Copy)]
pub(super) enum Wanted {
    Tensor(TensorType),
    Number(Scalar),
}

impl Wanted {
    pub(super) fn ty(&self) -> OperandType<'_> {
        match self {
            Wanted::Tensor(ty) => OperandType::Tensor(ty),
            Wanted::Number(number) => OperandType::Scalar(*number),
        }
    }
}

type Call = (Op, Vec<Wanted>);

/// A random op of a kind, with the operands that it may accept. `None` for the kinds that clients never send.
pub(super) fn op(random: &mut Random, kind: OpKind) -> Option<Call> {
    let mut maker = Maker(random);
    Some(match kind.info().class {
        OpClass::Creation => maker.creation(kind),
        OpClass::View if kind == OpKind::Bitcast => maker.elementwise(kind),
        OpClass::Elementwise => maker.elementwise(kind),
        OpClass::View | OpClass::Movement => maker.view(kind),
        OpClass::Reduction | OpClass::Sorting => maker.reduction(kind),
        OpClass::Indexing | OpClass::Validity => maker.index(kind),
        OpClass::Contraction if kind == OpKind::Conv => maker.conv(),
        OpClass::Contraction => maker.product(kind),
        OpClass::Pooling if kind == OpKind::Pool => maker.pool(),
        OpClass::Pooling => maker.pool_grad(),
        OpClass::Composite if kind == OpKind::DequantizeBlocks => maker.product(kind),
        OpClass::Composite if kind == OpKind::Attention => maker.attention(),
        OpClass::Composite if kind == OpKind::AttentionGrad => maker.attention_grad(),
        OpClass::Composite if COMPOSITES.contains(&kind) => maker.composite(kind),
        OpClass::Composite => return maker.of_case(kind),
        OpClass::Collective | OpClass::Opaque => return None,
    })
}

/// The kinds of [`Maker::composite`].
const COMPOSITES: &[OpKind] = &[
    OpKind::Softmax,
    OpKind::LogSumExp,
    OpKind::Norm,
    OpKind::Resize,
    OpKind::Fft,
    OpKind::Quantize,
    OpKind::Dequantize,
];

struct Maker<'r>(&'r mut Random);

impl Maker<'_> {
    /// A length of an axis.
    fn length(&mut self) -> usize {
        if self.0.chance(12) { self.0.pick(HUGE) } else { self.0.pick(SMALL) }
    }

    /// A number for an attribute: a window, a step, some padding.
    fn number(&mut self) -> usize {
        if self.0.chance(25) { self.0.pick(HUGE) } else { self.0.pick(&[0, 1, 1, 1, 2, 2, 3, 4, 7]) }
    }

    fn at_least_one(&mut self) -> usize {
        self.number().max(1)
    }

    /// A shape. One with a huge length often has no elements, so that it is accepted.
    fn shape(&mut self, rank: usize) -> Shape {
        let mut shape: Shape = (0..rank).map(|_| self.length()).collect();
        if rank > 1 && shape.iter().any(|length| HUGE.contains(length)) && self.0.chance(70) {
            let axis = self.0.below(rank);
            shape[axis] = 0;
        }
        shape
    }

    fn float(&mut self, rank: usize) -> TensorType {
        TensorType::new(self.shape(rank), self.0.pick(FLOATS))
    }

    fn any(&mut self, rank: usize) -> TensorType {
        TensorType::new(self.shape(rank), self.0.pick(&DType::ALL))
    }

    fn rank(&mut self) -> usize {
        self.0.between(0, 4)
    }

    /// An axis of a tensor of that rank, rarely one that is out of range.
    fn axis(&mut self, rank: usize) -> usize {
        if self.0.chance(3) { rank + self.0.below(2) } else { self.0.below(rank.max(1)) }
    }

    fn scalar(&mut self, dtype: DType) -> Scalar {
        if dtype.is_bool() {
            Scalar::Bool(true)
        } else if dtype.is_float() {
            Scalar::Float(self.0.pick(&[0.0, 1.0, -1.5, f64::NAN]))
        } else {
            Scalar::Int(self.0.pick(&[0, 1, 3]))
        }
    }

    fn creation(&mut self, kind: OpKind) -> Call {
        let rank = self.rank().max(1);
        let ty = self.any(rank);
        if kind == OpKind::Full {
            (Op::Full(ty), vec![Wanted::Number(self.scalar(ty.dtype))])
        } else if kind == OpKind::Iota {
            (Op::Iota { ty, axis: self.axis(rank) }, vec![])
        } else {
            let distribution = self.0.pick(RandomKind::ALL);
            let dtypes = if distribution == RandomKind::Bits { INDICES } else { FLOATS };
            let ty = ty.with_dtype(self.0.pick(dtypes));
            (Op::Random { ty, distribution }, vec![Wanted::Number(Scalar::Int(7))])
        }
    }

    fn elementwise(&mut self, kind: OpKind) -> Call {
        let rank = self.rank();
        let ty = if self.0.chance(60) { self.float(rank) } else { self.any(rank) };
        let mut pair = [Wanted::Tensor(ty); 2];
        if self.0.chance(30) {
            let place = self.0.below(2);
            pair[place] = Wanted::Number(self.scalar(ty.dtype));
        }
        if kind == OpKind::Unary {
            (Op::Unary(self.0.pick(Unary::ALL)), vec![Wanted::Tensor(ty)])
        } else if kind == OpKind::Binary {
            (Op::Binary(self.0.pick(Binary::ALL)), pair.to_vec())
        } else if kind == OpKind::Compare {
            (Op::Compare(self.0.pick(Comparison::ALL)), pair.to_vec())
        } else if kind == OpKind::Cast {
            (Op::Cast(self.0.pick(&DType::ALL)), vec![Wanted::Tensor(ty)])
        } else if kind == OpKind::Bitcast {
            (Op::Bitcast(self.0.pick(&DType::ALL)), vec![Wanted::Tensor(ty)])
        } else {
            (Op::Select, [vec![Wanted::Tensor(ty.with_dtype(DType::Bool))], pair.to_vec()].concat())
        }
    }

    fn view(&mut self, kind: OpKind) -> Call {
        let rank = self.rank();
        let mut ty = self.any(rank);
        let op = if kind == OpKind::Reshape {
            let other = self.0.between(0, 5);
            Op::Reshape(if self.0.chance(50) {
                self.0.permutation(rank).into_iter().map(|axis| ty.shape[axis]).collect()
            } else {
                self.shape(other)
            })
        } else if kind == OpKind::Permute {
            Op::Permute(Axes::new(&self.0.permutation(rank)))
        } else if kind == OpKind::Broadcast {
            let mut shape = ty.shape;
            for axis in 0..rank {
                if self.0.chance(50) {
                    ty.shape[axis] = 1;
                    shape[axis] = self.length();
                }
            }
            let added = if self.0.chance(30) { Some(self.length()) } else { None };
            Op::Broadcast(added.into_iter().chain(shape.iter().copied()).collect())
        } else if kind == OpKind::Slice {
            Op::Slice(self.slices(&ty.shape))
        } else if kind == OpKind::Pad {
            let pads = (0..rank).map(|_| PadAxis {
                low: self.number(),
                high: self.number(),
                interior: self.number(),
            });
            let op = Op::Pad(pads.collect());
            return (op, vec![Wanted::Tensor(ty), Wanted::Number(self.scalar(ty.dtype))]);
        } else if kind == OpKind::Concat {
            let axis = self.axis(rank);
            let mut operands = vec![];
            for _ in 0..self.0.between(1, 3) {
                let length = self.length();
                let shape = if axis < rank { ty.shape.with(axis, length) } else { ty.shape };
                operands.push(Wanted::Tensor(ty.with_shape(shape)));
            }
            return (Op::Concat { axis }, operands);
        } else if kind == OpKind::Windows {
            Op::Windows {
                axis: self.axis(rank),
                size: self.number(),
                step: self.number(),
                dilation: self.number(),
            }
        } else {
            Op::Copy
        };
        (op, vec![Wanted::Tensor(ty)])
    }

    fn slices(&mut self, shape: &Shape) -> Vec<SliceAxis> {
        let mut slices = Vec::new();
        for &length in shape.iter() {
            let step = self.0.pick(&[1, 1, 1, 2, -1, -2, isize::MAX, isize::MIN, 1 << 40]);
            let count =
                if length > 1 << 32 { self.0.pick(&[0, 1, length]) } else { self.0.between(0, length) };
            let count = if step.unsigned_abs() > 2 { count.min(1) } else { count / step.unsigned_abs() };
            let last = length.saturating_sub(1);
            let start = if step < 0 { last } else { self.0.below(length.min(4)) };
            slices.push(SliceAxis { start, len: count, step });
        }
        slices
    }

    fn reduction(&mut self, kind: OpKind) -> Call {
        let rank = self.rank();
        let ty = if self.0.chance(60) { self.float(rank) } else { self.any(rank) };
        let (axis, index) = (self.axis(rank), self.0.pick(INDICES));
        let reduction = self.0.pick(Reduction::ALL);
        let length = ty.shape.get(axis).copied().unwrap_or(0);
        let op = if kind == OpKind::Reduce {
            let axes: Vec<usize> = (0..rank).filter(|_| self.0.chance(50)).collect();
            Op::Reduce { reduction, axes: Axes::new(&axes) }
        } else if kind == OpKind::ArgReduce {
            Op::ArgReduce { extremum: self.0.pick(Extremum::ALL), axis, index }
        } else if kind == OpKind::Scan {
            Op::Scan { reduction, axis, reverse: self.0.chance(50), exclusive: self.0.chance(50) }
        } else if kind == OpKind::Sort {
            Op::Sort { axis, descending: self.0.chance(50), index }
        } else {
            let k = self.0.pick(&[0, 1, 2, length, length / 2]);
            Op::TopK { axis, k, largest: self.0.chance(50), index }
        };
        (op, vec![Wanted::Tensor(ty)])
    }

    fn index(&mut self, kind: OpKind) -> Call {
        let rank = self.rank().max(1);
        let x = self.any(rank);
        let (axis, dtype, mode) = (self.axis(rank), self.0.pick(INDICES), self.0.pick(UpdateMode::ALL));
        let list = {
            let rank = self.0.between(0, 2);
            TensorType::new(self.shape(rank), dtype)
        };
        let beside = {
            let length = self.length();
            let shape = if axis < rank { x.shape.with(axis, length) } else { x.shape };
            TensorType::new(shape, dtype)
        };
        let tensors = |types: &[TensorType]| types.iter().copied().map(Wanted::Tensor).collect();
        if kind == OpKind::Take {
            (Op::Take { axis }, tensors(&[x, list]))
        } else if kind == OpKind::Gather {
            (Op::Gather { axis }, tensors(&[x, beside]))
        } else if kind == OpKind::Put {
            let source = first_result(&Op::Take { axis }, &[x, list]).unwrap_or(x);
            (Op::Put { axis, mode }, tensors(&[x, list, source]))
        } else if kind == OpKind::Scatter {
            (Op::Scatter { axis, mode }, tensors(&[x, beside, x.with_shape(beside.shape)]))
        } else if kind == OpKind::SliceUpdate {
            let slices = self.slices(&x.shape);
            let source = x.with_shape(slices.iter().map(|slice| slice.len).collect::<Shape>());
            (Op::SliceUpdate { slices, mode }, tensors(&[x, source]))
        } else if kind == OpKind::NonZero {
            (Op::NonZero { index: dtype }, tensors(&[x]))
        } else if kind == OpKind::CheckIndex {
            let user = self.0.pick(&[IndexUser::OneHot, IndexUser::Embedding, IndexUser::Multinomial]);
            (Op::CheckIndex { length: self.length(), user }, tensors(&[list]))
        } else {
            (Op::Recover { watched: self.0.below(3) }, tensors(&[x, list]))
        }
    }

    fn product(&mut self, kind: OpKind) -> Call {
        let [b, m, n, k] = [(); 4].map(|()| self.length());
        let tensors = |types: &[TensorType]| types.iter().copied().map(Wanted::Tensor).collect();
        let format = self.0.pick(BlockFormat::ALL);
        let blocks = self.0.pick(&[0, 0, 1, 1, 2, 3, 1 << 32, 1 << 50, 1 << 60]);
        let w = TensorType::new([n, format.bytes().saturating_mul(blocks)], DType::U8);
        let float = self.0.pick(FLOATS);
        if kind == OpKind::MatMul {
            let dtype = self.0.pick(&DType::ALL);
            (Op::MatMul, tensors(&[TensorType::new([b, m, k], dtype), TensorType::new([b, k, n], dtype)]))
        } else if kind == OpKind::MatMulFloat8 {
            let formats = [self.0.pick(Float8::ALL), self.0.pick(Float8::ALL)];
            let scale = TensorType::new([], DType::F32);
            let (x, y) = (TensorType::new([m, k], DType::U8), TensorType::new([k, n], DType::U8));
            (Op::MatMulFloat8 { formats, dtype: float }, tensors(&[x, y, scale, scale]))
        } else if kind == OpKind::MatMulBlocks {
            let x = TensorType::new([b, m, format.len().saturating_mul(blocks)], float);
            (Op::MatMulBlocks { format }, tensors(&[x, w]))
        } else {
            (Op::DequantizeBlocks { format, dtype: float }, tensors(&[w]))
        }
    }

    fn conv(&mut self) -> Call {
        let axes = self.0.between(1, 3);
        let groups = self.0.pick(&[1, 1, 1, 2, 3, 0, 1 << 32, usize::MAX]);
        let spec = ConvSpec {
            stride: (0..axes).map(|_| self.at_least_one()).collect(),
            padding: (0..axes).map(|_| (self.number(), self.number())).collect(),
            dilation: (0..axes).map(|_| self.at_least_one()).collect(),
            groups,
        };
        let dtype = self.0.pick(FLOATS);
        let [batch, channels, outputs] = [(); 3].map(|()| self.length());
        let (space, kernel) = (self.shape(axes), self.shape(axes));
        let joined = |a: usize, b: usize, rest: &Shape| {
            TensorType::new([a, b].iter().chain(rest.iter()).copied().collect::<Shape>(), dtype)
        };
        let few = groups.clamp(1, 4);
        let x = joined(batch, channels.saturating_mul(few), &space);
        let w = joined(outputs.saturating_mul(few), channels, &kernel);
        let forward = Op::Conv { spec: spec.clone(), pass: ConvPass::Forward };
        let y = first_result(&forward, &[x, w]).unwrap_or(x);
        let (pass, operands) = match self.0.below(3) {
            0 => (ConvPass::Forward, [x, w]),
            1 => (ConvPass::Input { size: space.to_vec() }, [y, w]),
            _ => (ConvPass::Weight { size: kernel.to_vec() }, [x, y]),
        };
        (Op::Conv { spec, pass }, operands.map(Wanted::Tensor).to_vec())
    }

    fn pool_spec(&mut self) -> (PoolSpec, TensorType) {
        let axes = self.0.between(1, 3);
        let is_max = self.0.chance(50);
        let kind = match is_max {
            true => PoolKind::Max,
            false => PoolKind::Average { include_padding: self.0.chance(50) },
        };
        let spec = PoolSpec {
            kind,
            window: (0..axes).map(|_| self.at_least_one()).collect(),
            stride: (0..axes).map(|_| self.at_least_one()).collect(),
            padding: (0..axes).map(|_| (self.number(), self.number())).collect(),
            overhang: (0..axes).map(|_| if self.0.chance(20) { self.number() } else { 0 }).collect(),
            dilation: (0..axes).map(|_| if is_max { self.at_least_one() } else { 1 }).collect(),
        };
        (spec, self.float(axes + 2))
    }

    fn pool(&mut self) -> Call {
        let (spec, x) = self.pool_spec();
        (Op::Pool(spec), vec![Wanted::Tensor(x)])
    }

    fn pool_grad(&mut self) -> Call {
        let (spec, x) = self.pool_spec();
        let grad = first_result(&Op::Pool(spec.clone()), &[x]).unwrap_or(x);
        let second = (spec.kind == PoolKind::Max).then_some(x);
        let operands = [Some(grad), second].into_iter().flatten().map(Wanted::Tensor).collect();
        (Op::PoolGrad { spec, size: x.shape[2..].to_vec() }, operands)
    }

    fn composite(&mut self, kind: OpKind) -> Call {
        let rank = self.rank().max(1);
        let x = self.float(rank);
        let axis = self.axis(rank);
        let tensors = |types: &[TensorType]| types.iter().copied().map(Wanted::Tensor).collect();
        if kind == OpKind::Softmax {
            (Op::Softmax { axis, log: self.0.chance(50) }, tensors(&[x]))
        } else if kind == OpKind::LogSumExp {
            (Op::LogSumExp { axis }, tensors(&[x]))
        } else if kind == OpKind::Norm {
            let axes = self.0.between(0, rank);
            let row = x.with_shape(&x.shape[rank - axes..]);
            let count = self.0.between(1, 3);
            let kind = self.0.pick(NormKind::ALL);
            (Op::Norm { kind, axes, epsilon: Real(1e-5) }, tensors(&[x, row, row][..count]))
        } else if kind == OpKind::Resize {
            let axes = self.0.between(1, 3);
            let x = self.float(axes + 2);
            let size = (0..axes).map(|_| self.length()).collect();
            let op =
                Op::Resize { mode: self.0.pick(ResizeMode::ALL), size, align_corners: self.0.chance(50) };
            (op, tensors(&[x]))
        } else if kind == OpKind::Fft {
            let length = x.shape.get(axis).copied().unwrap_or(1);
            let points = length.saturating_sub(1).saturating_mul(2).saturating_add(self.0.below(2));
            let kind = self.0.pick(&[FftKind::Complex, FftKind::FromReal, FftKind::ToReal { points }]);
            let count = if kind == FftKind::FromReal { 1 } else { 2 };
            (Op::Fft { kind, axis, inverse: self.0.chance(50) }, tensors(&[x, x][..count]))
        } else {
            let dtype = self.0.pick(&[DType::I8, DType::U8, DType::I16, DType::U16, DType::I32]);
            let blocks = |_: &usize| if self.0.chance(50) { 1 } else { self.length() };
            let lengths: Vec<usize> = x.shape.iter().map(blocks).collect();
            let exact = x.shape.iter().zip(lengths);
            let fits = |(&length, blocks): (&usize, usize)| {
                if blocks != 0 && length.is_multiple_of(blocks) { blocks } else { length }
            };
            let scale = x.with_shape(exact.map(fits).collect::<Shape>());
            let count = self.0.between(2, 3);
            let zero = scale.with_dtype(dtype);
            if kind == OpKind::Quantize {
                (Op::Quantize { dtype }, tensors(&[x, scale, zero][..count]))
            } else {
                (Op::Dequantize, tensors(&[x.with_dtype(dtype), scale, zero][..count]))
            }
        }
    }

    /// The op of one of the suite's cases, with some lengths of its operands replaced.
    fn of_case(&mut self, kind: OpKind) -> Option<Call> {
        let case = case_of(self.0, kind)?;
        let wanted = case.operand_types().into_iter().map(|operand| match operand {
            OperandKind::Scalar(scalar) => Wanted::Number(scalar),
            OperandKind::Tensor(mut ty) => {
                if ty.rank() > 0 && self.0.chance(30) {
                    let axis = self.0.below(ty.rank());
                    ty.shape[axis] = self.length();
                }
                Wanted::Tensor(ty)
            }
        });
        Some((case.op.clone(), wanted.collect()))
    }

    fn attention_types(&mut self) -> (AttentionSpec, Vec<TensorType>) {
        let [batch, heads, queries, keys, dim, values] = [(); 6].map(|()| self.length());
        let groups = self.0.pick(&[1, 1, 2, 3]);
        let dtype = self.0.pick(FLOATS);
        let ty = |lengths: [usize; 4]| TensorType::new(lengths, dtype);
        let mut types = vec![
            ty([batch, heads.saturating_mul(groups), queries, dim]),
            ty([batch, heads, keys, dim]),
            ty([batch, heads, keys, values]),
        ];
        if self.0.chance(40) {
            let mask = [batch, heads.saturating_mul(groups), queries, keys];
            let mask = mask.map(|length| if self.0.chance(40) { 1 } else { length });
            types.push(if self.0.chance(50) { TensorType::new(mask, DType::Bool) } else { ty(mask) });
        }
        let causal = [None, Some(0), Some(i64::MAX), Some(i64::MIN), Some(-1), Some(3)];
        let spec = AttentionSpec { scale: Real(0.5), causal: self.0.pick(&causal) };
        (spec, types)
    }

    fn attention(&mut self) -> Call {
        let (spec, types) = self.attention_types();
        (Op::Attention(spec), types.into_iter().map(Wanted::Tensor).collect())
    }

    fn attention_grad(&mut self) -> Call {
        let (spec, types) = self.attention_types();
        let results = results(&Op::Attention(spec), &types).unwrap_or_default();
        let [y, lse] = [0, 1].map(|place| results.get(place).copied().unwrap_or(types[0]));
        let mut all = vec![y, types[0], types[1], types[2], y, lse];
        all.extend(types.get(3));
        (Op::AttentionGrad(spec), all.into_iter().map(Wanted::Tensor).collect())
    }
}

fn results(op: &Op, operands: &[TensorType]) -> Option<ResultTypes> {
    let operands: Vec<OperandType<'_>> = operands.iter().map(OperandType::Tensor).collect();
    infer(op, &operands).ok()
}

fn first_result(op: &Op, operands: &[TensorType]) -> Option<TensorType> {
    results(op, operands)?.first().copied()
}
