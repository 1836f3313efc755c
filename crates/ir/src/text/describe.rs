//! Printing of ops: from an op to its name and attributes.

use super::attribute::Attribute;
use crate::{
    Axes, BlockFormat, CollectiveKind, ConvPass, ConvSpec, DType, Epilogue, FftKind, Float8, LoopAttributes,
    Op, PadAxis, Pattern, PoolKind, PoolSpec, QuantizedMatMul, Scalar, Shape, SliceAxis, TensorType,
    UpdateMode,
};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

type List = Vec<(&'static str, Attribute)>;

/// The op's name in text.
pub(super) fn word(op: &Op) -> &str {
    if let Op::Custom(_) = op { "custom" } else { op.name() }
}

/// The attributes of an op, except the ones that `result`, the type of the first result, repeats.
pub(super) fn attributes(op: &Op, result: Option<&TensorType>) -> List {
    let ty = |ty: &TensorType| unless(result == Some(ty), "type", || Attribute::Type(*ty));
    let shape = |shape: &Shape| unless(result.is_some_and(|r| r.shape == *shape), "shape", || list(shape));
    let dtype = |dtype: &DType| unless(result.is_some_and(|r| r.dtype == *dtype), "dtype", || name(dtype));
    match op {
        Op::Unary(_)
        | Op::Binary(_)
        | Op::Compare(_)
        | Op::Select
        | Op::Copy
        | Op::MatMul
        | Op::Dequantize => List::new(),
        Op::Full(t) => ty(t),
        Op::Iota { ty: t, axis } => with(ty(t), [("axis", int(*axis))]),
        Op::Random { ty: t, distribution: _ } => ty(t),
        Op::Cast(d) | Op::Bitcast(d) | Op::Quantize { dtype: d } => dtype(d),
        Op::MatMulFloat8 { formats: [left, right], dtype: d } => {
            let format = |format: &Float8| Attribute::Word(format.name().into());
            with(dtype(d), [("left", format(left)), ("right", format(right))])
        }
        Op::MatMulBlocks { format } => [("format", block_format(*format))].into(),
        Op::DequantizeBlocks { format, dtype: d } => with(dtype(d), [("format", block_format(*format))]),
        Op::Reshape(s) | Op::Broadcast(s) => shape(s),
        Op::Permute(a) => [("axes", axes(a))].into(),
        Op::Slice(slices) => slice(slices),
        Op::Pad(pads) => pad(pads),
        Op::Concat { axis } | Op::Take { axis } | Op::Gather { axis } => [("axis", int(*axis))].into(),
        Op::Windows { axis, size, step, dilation } => {
            [("axis", *axis), ("size", *size), ("step", *step), ("dilation", *dilation)]
                .map(|(key, n)| (key, int(n)))
                .into()
        }
        Op::Reduce { axes: a, reduction: _ } => [("axes", axes(a))].into(),
        Op::ArgReduce { axis, index, extremum: _ } => [("axis", int(*axis)), ("index", name(index))].into(),
        Op::Scan { axis, reverse, exclusive, reduction: _ } => {
            [("axis", int(*axis)), ("reverse", flag(*reverse)), ("exclusive", flag(*exclusive))].into()
        }
        Op::Sort { axis, descending, index } => {
            [("axis", int(*axis)), ("descending", flag(*descending)), ("index", name(index))].into()
        }
        Op::TopK { axis, k, largest, index } => {
            [("axis", int(*axis)), ("k", int(*k)), ("largest", flag(*largest)), ("index", name(index))].into()
        }
        Op::Put { axis, mode: m } | Op::Scatter { axis, mode: m } => [("axis", int(*axis)), mode(*m)].into(),
        Op::SliceUpdate { slices, mode: m } => with(slice(slices), [mode(*m)]),
        Op::NonZero { index } => [("index", name(index))].into(),
        Op::CheckIndex { length, user } => {
            [("length", int(*length)), ("user", Attribute::Word(user.name().into()))].into()
        }
        Op::Recover { watched } => [("watched", int(*watched))].into(),
        Op::Conv { spec, pass } => conv(spec, pass),
        Op::Pool(spec) => pool(spec),
        Op::PoolGrad { spec, size } => with(pool(spec), [("size", list(size))]),
        Op::Softmax { axis, log: _ } => [("axis", int(*axis))].into(),
        Op::LogSumExp { axis } => [("axis", int(*axis))].into(),
        Op::Norm { axes, epsilon, kind: _ } => [("axes", int(*axes)), ("epsilon", real(epsilon.0))].into(),
        Op::Attention(spec) | Op::AttentionGrad(spec) => {
            let causal = spec.causal.map(|n| ("causal", Attribute::Number(Scalar::Int(n))));
            with([("scale", real(spec.scale.0))].into(), causal)
        }
        Op::Resize { mode, size, align_corners } => [
            ("mode", Attribute::Word(mode.name().into())),
            ("size", list(size)),
            ("align_corners", flag(*align_corners)),
        ]
        .into(),
        Op::Fft { kind, axis, inverse } => {
            let points = match kind {
                FftKind::Complex | FftKind::FromReal => None,
                FftKind::ToReal { points } => Some(("points", int(*points))),
            };
            with([("axis", int(*axis)), ("inverse", flag(*inverse))].into(), points)
        }
        Op::Collective(c) => {
            let group = Attribute::Number(unsigned(c.group));
            with(
                collective(&c.kind, result),
                [("group", group), ("rank", int(c.rank)), ("size", int(c.size))],
            )
        }
        Op::Custom(op) => {
            let text = op.attributes();
            let attributes = (!text.is_empty()).then_some(("attributes", Attribute::Text(text)));
            with([("name", Attribute::Text(String::from(op.name())))].into(), attributes)
        }
        Op::Loop(looped) => {
            let LoopAttributes { carried, scanned, steps, reverse } = looped.attributes();
            [
                ("carried", int(carried)),
                ("scanned", int(scanned)),
                ("steps", int(steps)),
                ("reverse", flag(reverse)),
                ("body", Attribute::Program(looped.shared().clone())),
            ]
            .into()
        }
        Op::Fused(fused) => {
            with([("program", Attribute::Program(fused.shared().clone()))].into(), pattern(fused.pattern()))
        }
    }
}

fn unless(repeated: bool, key: &'static str, value: impl FnOnce() -> Attribute) -> List {
    if repeated { List::new() } else { [(key, value())].into() }
}

fn with(mut list: List, more: impl IntoIterator<Item = (&'static str, Attribute)>) -> List {
    list.extend(more);
    list
}

fn block_format(format: BlockFormat) -> Attribute {
    Attribute::Word(format.name().into())
}

fn int(n: usize) -> Attribute {
    Attribute::Number(unsigned(n as u64))
}

/// Small numbers are printed as plain integers.
fn unsigned(n: u64) -> Scalar {
    i64::try_from(n).map_or(Scalar::UInt(n), Scalar::Int)
}

fn real(x: f64) -> Attribute {
    Attribute::Number(Scalar::Float(x))
}

fn flag(x: bool) -> Attribute {
    Attribute::Number(Scalar::Bool(x))
}

fn name(dtype: &DType) -> Attribute {
    Attribute::Word(dtype.to_string())
}

fn mode(mode: UpdateMode) -> (&'static str, Attribute) {
    ("mode", Attribute::Word(mode.name().into()))
}

fn list(numbers: &[usize]) -> Attribute {
    Attribute::List(numbers.iter().map(|&n| int(n)).collect())
}

fn axes(axes: &Axes) -> Attribute {
    list(&axes.to_vec())
}

fn slice(slices: &[SliceAxis]) -> List {
    let column = |get: fn(&SliceAxis) -> usize| list(&slices.iter().map(get).collect::<Vec<_>>());
    let steps = || {
        let step = |slice: &SliceAxis| Attribute::Number(Scalar::Int(slice.step as i64));
        Attribute::List(slices.iter().map(step).collect())
    };
    let list = [("start", column(|s| s.start)), ("len", column(|s| s.len))].into();
    with(list, unless(slices.iter().all(|slice| slice.step == 1), "step", steps))
}

fn pad(pads: &[PadAxis]) -> List {
    let column = |get: fn(&PadAxis) -> usize| list(&pads.iter().map(get).collect::<Vec<_>>());
    let list = [("low", column(|pad| pad.low)), ("high", column(|pad| pad.high))].into();
    let plain = pads.iter().all(|pad| pad.interior == 0);
    with(list, unless(plain, "interior", || column(|pad| pad.interior)))
}

fn padding(padding: &[(usize, usize)]) -> Attribute {
    Attribute::List(padding.iter().map(|&(low, high)| list(&[low, high])).collect())
}

fn conv(spec: &ConvSpec, pass: &ConvPass) -> List {
    let size = match pass {
        ConvPass::Forward => None,
        ConvPass::Input { size } | ConvPass::Weight { size } => Some(("size", list(size))),
    };
    let attributes = [
        ("stride", list(&spec.stride)),
        ("padding", padding(&spec.padding)),
        ("dilation", list(&spec.dilation)),
        ("groups", int(spec.groups)),
    ];
    with(attributes.into(), size)
}

fn pool(spec: &PoolSpec) -> List {
    let included = match spec.kind {
        PoolKind::Max => None,
        PoolKind::Average { include_padding } => Some(("include_padding", flag(include_padding))),
    };
    let attributes = [
        ("window", list(&spec.window)),
        ("stride", list(&spec.stride)),
        ("padding", padding(&spec.padding)),
        ("overhang", list(&spec.overhang)),
        ("dilation", list(&spec.dilation)),
    ];
    with(attributes.into(), included)
}

fn pattern(pattern: &Pattern) -> List {
    let parts = match pattern {
        Pattern::Loop => return List::new(),
        Pattern::Epilogue(Epilogue { product, factors, bias, activation, numbers }) => {
            let bias = bias.map(|bias| ("bias", int(bias)));
            let activation =
                activation.map(|activation| ("activation", Attribute::Word(activation.name().into())));
            let number = |&(input, number): &(usize, Scalar)| {
                Attribute::List([int(input), Attribute::Number(number)].into())
            };
            let listed = || Attribute::List(numbers.iter().map(number).collect());
            let parts = [("product", int(*product)), ("factors", list(factors))];
            let parts = with(with(parts.into(), bias), activation);
            with(parts, unless(numbers.is_empty(), "numbers", listed))
        }
        Pattern::QuantizedMatMul(QuantizedMatMul { product, x, dequantized, values, scale, zero }) => {
            let parts = [
                ("product", *product),
                ("x", *x),
                ("dequantized", *dequantized),
                ("values", *values),
                ("scale", *scale),
            ];
            with(parts.map(|(key, slot)| (key, int(slot))).into(), zero.map(|zero| ("zero", int(zero))))
        }
    };
    with([("pattern", Attribute::Word(pattern.name().into()))].into(), parts)
}

fn collective(kind: &CollectiveKind, result: Option<&TensorType>) -> List {
    let word = |reduction: &crate::Reduction| ("reduction", Attribute::Word(reduction.name().into()));
    match kind {
        CollectiveKind::AllReduce(reduction) => [word(reduction)].into(),
        CollectiveKind::AllGather { axis } => [("axis", int(*axis))].into(),
        CollectiveKind::ReduceScatter { reduction, axis } => [word(reduction), ("axis", int(*axis))].into(),
        CollectiveKind::Broadcast { root } => [("root", int(*root))].into(),
        CollectiveKind::Send { to, tag } => [("to", int(*to)), ("tag", int(*tag as usize))].into(),
        CollectiveKind::Recv { from, tag, ty } => {
            let list = [("from", int(*from)), ("tag", int(*tag as usize))].into();
            with(list, unless(result == Some(ty), "type", || Attribute::Type(*ty)))
        }
    }
}
