//! The gradient-check cases.

use kiln_ir::{
    AttentionSpec, Axes, Binary, Collective, CollectiveKind, ConvPass, ConvSpec, Custom, CustomOp, DType,
    Engine, FftKind, FusedOp, NormKind, Op, Operand, OperandType, PadAxis, PoolKind, PoolSpec, Real,
    Recorder, Reduction, ResizeMode, Result, ResultTypes, Scalar, Shape, SliceAxis, TensorData, TensorType,
    Unary, UpdateMode, Var, infer,
};

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Input>,
}

#[derive(Clone)]
pub(crate) enum Input {
    /// Differentiated.
    Float(TensorData),
    /// Indices, conditions.
    Fixed(TensorData),
    Scalar(Scalar),
}

impl Case {
    fn new(op: Op, inputs: Vec<Input>) -> Case {
        Case { name: format!("{op:?}"), op, inputs }
    }

    pub(crate) fn floats(&self) -> Vec<usize> {
        (0..self.inputs.len()).filter(|&place| matches!(self.inputs[place], Input::Float(_))).collect()
    }
}

impl Input {
    pub(crate) fn data(&self) -> &TensorData {
        match self {
            Input::Float(data) | Input::Fixed(data) => data,
            Input::Scalar(_) => panic!("a number has no data"),
        }
    }

    pub(crate) fn write(&self, engine: &dyn Engine) -> Operand {
        match self {
            Input::Float(data) | Input::Fixed(data) => engine.write(data.clone()).into(),
            Input::Scalar(scalar) => (*scalar).into(),
        }
    }
}

/// Distinct numbers in `low..high`.
fn between(low: f64, high: f64, shape: impl Into<Shape>, seed: usize) -> Input {
    let shape = shape.into();
    let number = |i: usize| low + (high - low) * ((i * 7919 + seed * 104_729 + 17) % 1009) as f64 / 1009.0;
    Input::Float(TensorData::new((0..shape.num_elements()).map(number).collect(), shape).unwrap())
}

fn x(shape: impl Into<Shape>, seed: usize) -> Input {
    between(-1.5, 1.5, shape, seed)
}

fn given(elements: &[f64], shape: impl Into<Shape>) -> Input {
    Input::Float(TensorData::new(elements.to_vec(), shape).unwrap())
}

fn indices(elements: &[i32], shape: impl Into<Shape>) -> Input {
    Input::Fixed(TensorData::new(elements.to_vec(), shape).unwrap())
}

fn number(n: f64) -> Input {
    Input::Scalar(Scalar::Float(n))
}

pub(crate) fn elementwise() -> Vec<Case> {
    let mut cases = Vec::new();
    for &function in Unary::ALL {
        let positive =
            matches!(function, Unary::Sqrt | Unary::Rsqrt | Unary::Ln | Unary::Log1p | Unary::Recip);
        if function != Unary::Not {
            let input = if positive { between(0.3, 2.0, [5], 1) } else { x([5], 1) };
            cases.push(Case::new(Op::Unary(function), vec![input]));
        }
    }
    let functions = [
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Rem,
        Binary::Pow,
        Binary::Min,
        Binary::Max,
        Binary::Atan2,
    ];
    for function in functions {
        let (a, b) = (between(0.4, 2.0, [2, 3], 1), between(0.5, 1.7, [2, 3], 5));
        cases.push(Case::new(Op::Binary(function), vec![a.clone(), b.clone()]));
        cases.push(Case::new(Op::Binary(function), vec![a, number(0.8)]));
        cases.push(Case::new(Op::Binary(function), vec![number(1.3), b]));
    }
    cases.push(Case::new(Op::Binary(Binary::Rem), vec![x([4], 3), between(0.5, 0.9, [4], 2)]));
    for exponent in [0.0, 1.0, 2.0, 3.0, -2.0] {
        cases.push(Case::new(Op::Binary(Binary::Pow), vec![x([4], 3), number(exponent)]));
    }
    let condition = Input::Fixed(TensorData::from([true, false, true]));
    cases.push(Case::new(Op::Select, vec![condition.clone(), x([3], 1), x([3], 2)]));
    cases.push(Case::new(Op::Select, vec![condition, number(2.0), x([3], 2)]));
    cases
}

pub(crate) fn views() -> Vec<Case> {
    let mut cases = vec![
        Case::new(Op::Reshape([3, 2].into()), vec![x([2, 3], 1)]),
        Case::new(Op::Permute(Axes::new(&[2, 0, 1])), vec![x([2, 3, 4], 1)]),
        Case::new(Op::Broadcast([2, 3, 4].into()), vec![x([3, 1], 1)]),
        Case::new(Op::Broadcast([2, 1, 4].into()), vec![x([1, 1], 1)]),
        Case::new(Op::Copy, vec![x([2, 3], 1)]),
        Case::new(Op::Concat { axis: 1 }, vec![x([2, 1], 1), x([2, 3], 2), x([2, 0], 4), x([2, 2], 3)]),
    ];
    let slices = [
        vec![SliceAxis { start: 1, len: 3, step: 2 }, SliceAxis { start: 2, len: 2, step: -1 }],
        vec![SliceAxis { start: 6, len: 3, step: -3 }, SliceAxis::all(3)],
        vec![SliceAxis { start: 2, len: 1, step: -4 }, SliceAxis { start: 0, len: 2, step: 2 }],
        vec![SliceAxis { start: 0, len: 0, step: 1 }, SliceAxis::all(3)],
    ];
    cases.extend(slices.map(|slices| Case::new(Op::Slice(slices), vec![x([7, 3], 2)])));
    let pads = vec![PadAxis { low: 1, high: 2, interior: 2 }, PadAxis { low: 0, high: 1, interior: 0 }];
    cases.push(Case::new(Op::Pad(pads), vec![x([3, 2], 2), number(0.5)]));
    for (size, step, dilation) in [(3, 1, 1), (2, 3, 1), (3, 2, 2), (1, 1, 1), (17, 2, 1)] {
        let op = Op::Windows { axis: 1, size, step, dilation };
        cases.push(Case::new(op, vec![x([2, 19, 2], 2)]));
    }
    cases
}

pub(crate) fn reductions() -> Vec<Case> {
    let mut cases = Vec::new();
    for &reduction in Reduction::ALL {
        for axes in [vec![], vec![1], vec![0, 2], vec![0, 1, 2]] {
            let op = Op::Reduce { reduction, axes: Axes::new(&axes) };
            cases.push(Case::new(op, vec![x([2, 3, 2], 4)]));
        }
        for (reverse, exclusive) in [(false, false), (true, false), (false, true), (true, true)] {
            for len in [1, 2, 5] {
                let op = Op::Scan { reduction, axis: 1, reverse, exclusive };
                // The identity of min and max is infinite, which has no finite differences.
                let infinite = exclusive && matches!(reduction, Reduction::Min | Reduction::Max);
                if !infinite {
                    cases.push(Case::new(op, vec![x([2, len, 2], 3)]));
                }
            }
        }
    }
    let zeros = given(&[0.5, 0.0, 2.0, 0.0, -1.5, 0.0, 1.2, 0.7, 0.9], [3, 3]);
    for axes in [vec![1], vec![0], vec![0, 1]] {
        let op = Op::Reduce { reduction: Reduction::Prod, axes: Axes::new(&axes) };
        cases.push(Case::new(op, vec![zeros.clone()]));
    }
    for (reverse, exclusive) in [(false, false), (true, false), (false, true), (true, true)] {
        let op = Op::Scan { reduction: Reduction::Prod, axis: 1, reverse, exclusive };
        cases.push(Case::new(op, vec![zeros.clone()]));
    }
    for flag in [false, true] {
        cases.push(Case::new(Op::Sort { axis: 0, descending: flag, index: DType::I32 }, vec![x([5, 2], 3)]));
        let op = Op::TopK { axis: 1, k: 2, largest: flag, index: DType::I64 };
        cases.push(Case::new(op, vec![x([2, 5], 3)]));
    }
    cases
}

pub(crate) fn index() -> Vec<Case> {
    let twice = indices(&[2, 0, 2, 1], [2, 2]);
    let beside = indices(&[1, 0, 2, 1, 1, 1], [3, 2]);
    let mut cases = vec![
        Case::new(Op::Take { axis: 1 }, vec![x([2, 3, 2], 1), twice.clone()]),
        Case::new(Op::Take { axis: 0 }, vec![x([3], 1), indices(&[1], [])]),
        Case::new(Op::Gather { axis: 0 }, vec![x([4, 2], 1), beside.clone()]),
    ];
    for &mode in UpdateMode::ALL {
        let put = Op::Put { axis: 1, mode };
        cases.push(Case::new(put, vec![x([2, 3, 2], 1), twice.clone(), x([2, 2, 2, 2], 9)]));
        let scatter = Op::Scatter { axis: 0, mode };
        cases.push(Case::new(scatter, vec![x([4, 2], 1), beside.clone(), x([3, 2], 9)]));
        let slices = vec![SliceAxis { start: 3, len: 2, step: -2 }, SliceAxis::range(0..1)];
        cases.push(Case::new(Op::SliceUpdate { slices, mode }, vec![x([4, 2], 1), x([2, 1], 9)]));
    }
    let same = indices(&[1, 1, 1, 0, 0], [5]);
    for source in [[0.0, 2.0, 3.0, 0.5, 0.7], [0.0, 2.0, 0.0, 0.0, 1.5]] {
        let op = Op::Scatter { axis: 0, mode: UpdateMode::Mul };
        cases.push(Case::new(op, vec![x([3], 2), same.clone(), given(&source, [5])]));
    }
    cases
}

pub(crate) fn contractions() -> Vec<Case> {
    let mut cases = vec![
        Case::new(Op::MatMul, vec![x([2, 3], 1), x([3, 4], 2)]),
        Case::new(Op::MatMul, vec![x([2, 2, 3], 1), x([2, 3, 1], 2)]),
    ];
    let plain = ConvSpec::new(1);
    let strided = ConvSpec { stride: vec![2], padding: vec![(1, 2)], dilation: vec![2], groups: 2 };
    let flat =
        ConvSpec { stride: vec![1, 2], padding: vec![(1, 1), (0, 1)], dilation: vec![1, 1], groups: 1 };
    cases.extend(conv(plain, &[2, 2, 5], &[3, 2, 2]));
    cases.extend(conv(strided, &[1, 4, 7], &[2, 2, 3]));
    cases.extend(conv(flat, &[1, 2, 3, 4], &[2, 2, 2, 3]));
    let spec = |kind, dilation| PoolSpec {
        kind,
        window: vec![3, 2],
        stride: vec![2, 1],
        padding: vec![(1, 1), (0, 0)],
        overhang: vec![1, 0],
        dilation: vec![dilation, 1],
    };
    let averages = [true, false].map(|include_padding| spec(PoolKind::Average { include_padding }, 1));
    for spec in averages.into_iter().chain([spec(PoolKind::Max, 1), spec(PoolKind::Max, 2)]) {
        let input = x([1, 2, 6, 4], 3);
        let pool = Op::Pool(spec.clone());
        let ty = TensorType::new(*input.data().shape(), DType::F64);
        let pooled = infer(&pool, &[OperandType::Tensor(&ty)]).unwrap()[0];
        let mut operands = vec![x(pooled.shape, 4)];
        if spec.kind == PoolKind::Max {
            operands.push(input.clone());
        }
        cases.push(Case::new(pool, vec![input]));
        cases.push(Case::new(Op::PoolGrad { spec, size: vec![6, 4] }, operands));
    }
    cases
}

fn conv(spec: ConvSpec, input: &[usize], weight: &[usize]) -> [Case; 3] {
    let op = |pass: ConvPass| Op::Conv { spec: spec.clone(), pass };
    let types = [input, weight].map(|shape| TensorType::new(shape, DType::F64));
    let forward = op(ConvPass::Forward);
    let y = infer(&forward, &[(&types[0]).into(), (&types[1]).into()]).unwrap()[0].shape;
    let (image, kernel, output) = (x(input, 1), x(weight, 2), x(y, 3));
    [
        Case::new(forward, vec![image.clone(), kernel.clone()]),
        Case::new(op(ConvPass::Input { size: input[2..].to_vec() }), vec![output.clone(), kernel]),
        Case::new(op(ConvPass::Weight { size: weight[2..].to_vec() }), vec![image, output]),
    ]
}

pub(crate) fn composites() -> Vec<Case> {
    let mut cases = Vec::new();
    for log in [false, true] {
        cases.push(Case::new(Op::Softmax { axis: 1, log }, vec![x([2, 3, 2], 1)]));
    }
    for &kind in NormKind::ALL {
        let op = Op::Norm { kind, axes: 2, epsilon: Real(1e-3) };
        let all = [x([2, 2, 3], 1), x([2, 3], 2), x([2, 3], 3)];
        cases.extend((1..=3).map(|count| Case::new(op.clone(), all[..count].to_vec())));
    }
    cases.extend(attention());
    for mode in ResizeMode::ALL {
        for align_corners in [false, true] {
            let op = Op::Resize { mode: *mode, size: vec![5, 2], align_corners };
            cases.push(Case::new(op, vec![x([1, 1, 3, 4], 2)]));
        }
    }
    for inverse in [false, true] {
        let fft = |kind| Op::Fft { kind, axis: 1, inverse };
        cases.push(Case::new(fft(FftKind::Complex), vec![x([2, 5], 1), x([2, 5], 2)]));
        for points in [1, 2, 5, 6] {
            cases.push(Case::new(fft(FftKind::FromReal), vec![x([2, points], 1)]));
            let half = [2, points / 2 + 1];
            cases.push(Case::new(fft(FftKind::ToReal { points }), vec![x(half, 1), x(half, 2)]));
        }
    }
    let quantised = Input::Fixed(TensorData::new(vec![-3i8, 5, 7, 100, -100, 9, 1, 0], [2, 4]).unwrap());
    let zero = Input::Fixed(TensorData::new(vec![1i8, -2], [1, 2]).unwrap());
    cases.push(Case::new(Op::Dequantize, vec![quantised.clone(), between(0.5, 1.5, [1, 2], 1), zero]));
    cases.push(Case::new(Op::Dequantize, vec![quantised, between(0.5, 1.5, [2, 4], 1)]));
    cases.extend(collectives());
    cases.push(Case::new(Op::Fused(fused()), vec![x([2, 3], 1), x([3], 2)]));
    cases.push(Case::new(Op::Custom(Custom::new(Cube { with_rule: true })), vec![x([3], 1)]));
    cases.push(Case::new(Op::Custom(Custom::new(Cube { with_rule: false })), vec![x([3], 1)]));
    cases
}

fn attention() -> Vec<Case> {
    let spec = |causal| AttentionSpec { scale: Real(0.6), causal };
    let qkv = vec![x([1, 2, 3, 2], 1), x([1, 1, 4, 2], 2), x([1, 1, 4, 3], 3)];
    let with = |mask: Input| qkv.iter().cloned().chain([mask]).collect::<Vec<_>>();
    let seen = [true, false, true, true, true, true, false, true, false, false, true, true];
    let visible = Input::Fixed(TensorData::new(seen.to_vec(), [1, 1, 3, 4]).unwrap());
    let mut cases = vec![
        Case::new(Op::Attention(spec(None)), qkv.clone()),
        Case::new(Op::Attention(spec(Some(1))), qkv.clone()),
        Case::new(Op::Attention(spec(None)), with(visible)),
        Case::new(Op::Attention(spec(Some(1))), with(x([1, 2, 1, 4], 4))),
    ];
    let mut grad = vec![x([1, 2, 3, 3], 5)];
    grad.extend(qkv);
    grad.extend([x([1, 2, 3, 3], 6), between(1.0, 2.0, [1, 2, 3], 7)]);
    cases.push(Case::new(Op::AttentionGrad(spec(Some(1))), grad));
    cases
}

fn collectives() -> Vec<Case> {
    let kinds = Reduction::ALL.iter().flat_map(|&reduction| {
        [CollectiveKind::AllReduce(reduction), CollectiveKind::ReduceScatter { reduction, axis: 0 }]
    });
    let others = [CollectiveKind::AllGather { axis: 1 }, CollectiveKind::Broadcast { root: 0 }];
    let case = |kind| Op::Collective(Collective { kind, group: 0, rank: 0, size: 1 });
    kinds.chain(others).map(|kind| Case::new(case(kind), vec![x([2, 2], 1)])).collect()
}

fn fused() -> FusedOp {
    let types = [TensorType::new([2, 3], DType::F64), TensorType::new([3], DType::F64)];
    FusedOp::new(Recorder::trace(&types, |inputs| vec![(&inputs[0] * &inputs[1]).tanh() * 2.0 + &inputs[1]]))
}

/// `x³`, with a rule or with an expansion only.
#[derive(Debug)]
struct Cube {
    with_rule: bool,
}

impl CustomOp for Cube {
    fn name(&self) -> &str {
        "cube"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok([*inputs[0].tensor().expect("a tensor")].into_iter().collect())
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(vec![inputs[0].square() * &inputs[0]])
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        _outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        let gradient = gradients[0].as_ref().map(|g| inputs[0].square() * 3.0 * g);
        self.with_rule.then(|| Ok(vec![gradient]))
    }
}
