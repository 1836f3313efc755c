//! Whole modules, as compositions of ops, since `kiln_nn` does not have them yet. Like real models, their gradients
//! have many steps, slices of weights, and masks.

use super::call::{Call, Outputs};
use kiln_ir::{NormKind, Op, Real, SliceAxis, Var};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let outputs = match &*call.op {
        "lstm" | "gru" | "rnn" => recurrent(call),
        "multi_head_attention" => multi_head_attention(call),
        "transformer_encoder_layer" => vec![encoder_layer(call)],
        op => panic!("unknown op {op}"),
    };
    Ok(outputs.into_iter().map(|var| Some(call.done(var))).collect())
}

/// Sigmoid by `tanh`, which does not overflow.
pub(crate) fn sigmoid<'e>(x: &Var<'e>) -> Var<'e> {
    ((x * 0.5).tanh() + x.scalar(1.0)) * 0.5
}

fn linear<'c>(x: &Var<'c>, weight: &Var<'c>, bias: Option<&Var<'c>>) -> Var<'c> {
    let y = x.matmul(&weight.transpose());
    match bias {
        Some(bias) => y + bias,
        None => y,
    }
}

fn cut<'e>(x: &Var<'e>, axis: usize, start: usize, len: usize) -> Var<'e> {
    x.slice_axis(axis, SliceAxis { start, len, step: 1 })
}

/// One direction of a recurrent module.
struct Direction<'c> {
    weight_ih: Var<'c>,
    weight_hh: Var<'c>,
    bias_ih: Option<Var<'c>>,
    bias_hh: Option<Var<'c>>,
}

fn recurrent<'c>(call: &'c Call<'_>) -> Vec<Var<'c>> {
    let x = call.var("x");
    let suffixes: &[&str] = if call.flag("bidirectional") { &["", "_reverse"] } else { &[""] };
    let mut sides = (Vec::new(), Vec::new(), Vec::new());
    for (number, suffix) in suffixes.iter().enumerate() {
        let direction = Direction {
            weight_ih: call.var(&format!("weight_ih{suffix}")),
            weight_hh: call.var(&format!("weight_hh{suffix}")),
            bias_ih: call.optional_var(&format!("bias_ih{suffix}")),
            bias_hh: call.optional_var(&format!("bias_hh{suffix}")),
        };
        let (y, hidden, cell) = direction.run(call, &x, number);
        sides.0.push(y);
        sides.1.push(hidden);
        sides.2.push(cell);
    }
    let mut outputs = vec![Var::concat(&sides.0, 2), Var::concat(&sides.1, 0)];
    if call.op == "lstm" {
        outputs.push(Var::concat(&sides.2, 0));
    }
    outputs
}

impl<'c> Direction<'c> {
    /// All outputs `[n, time, h]`, and the last states `[1, n, h]`.
    fn run(&self, call: &'c Call<'_>, x: &Var<'c>, number: usize) -> (Var<'c>, Var<'c>, Var<'c>) {
        let (n, time, width) = (x.shape()[0], x.shape()[1], self.weight_hh.shape()[1]);
        let start = |name: &str| match call.optional_var(name) {
            Some(state) => cut(&state, 0, number, 1).reshape([n, width]),
            None => call.full([n, width], x.dtype(), 0.0),
        };
        let (mut hidden, mut cell) = (start("hidden"), start("cell"));
        let mut outputs = vec![None; time];
        for step in 0..time {
            let at = if number == 0 { step } else { time - 1 - step };
            let input = cut(x, 1, at, 1).reshape([n, x.shape()[2]]);
            (hidden, cell) = self.step(call, &input, &hidden, &cell);
            outputs[at] = Some(hidden.reshape([n, 1, width]));
        }
        let outputs: Vec<Var<'c>> = outputs.into_iter().flatten().collect();
        (Var::concat(&outputs, 1), hidden.reshape([1, n, width]), cell.reshape([1, n, width]))
    }

    fn step(&self, call: &Call<'_>, x: &Var<'c>, hidden: &Var<'c>, cell: &Var<'c>) -> (Var<'c>, Var<'c>) {
        let width = hidden.shape()[1];
        let input = linear(x, &self.weight_ih, self.bias_ih.as_ref());
        let state = linear(hidden, &self.weight_hh, self.bias_hh.as_ref());
        let gate = |gates: &Var<'c>, i: usize| cut(gates, 1, i * width, width);
        match &*call.op {
            "lstm" => {
                let gates = input + state;
                let (keep, new) = (sigmoid(&gate(&gates, 1)), gate(&gates, 2).tanh());
                let cell = keep * cell + sigmoid(&gate(&gates, 0)) * new;
                (sigmoid(&gate(&gates, 3)) * cell.tanh(), cell)
            }
            "gru" => {
                let sum = |i: usize| sigmoid(&(gate(&input, i) + gate(&state, i)));
                let (reset, update) = (sum(0), sum(1));
                let new = (gate(&input, 2) + reset * gate(&state, 2)).tanh();
                ((1.0 - &update) * new + update * hidden, cell.clone())
            }
            _ if call.text("nonlinearity") == "relu" => {
                let sum = input + state;
                (sum.max(&sum.scalar(0.0)), cell.clone())
            }
            _ => ((input + state).tanh(), cell.clone()),
        }
    }
}

/// The weights of multi-head attention.
struct Heads<'c> {
    heads: usize,
    in_weight: Var<'c>,
    in_bias: Option<Var<'c>>,
    out_weight: Var<'c>,
    out_bias: Option<Var<'c>>,
}

impl<'c> Heads<'c> {
    /// The output `[n, q, d]` and the attention of each head `[n, heads, q, k]`; `mask` is added to the scores.
    fn attend(
        &self,
        call: &'c Call<'_>,
        [query, key, value]: [&Var<'c>; 3],
        mask: Option<&Var<'c>>,
    ) -> (Var<'c>, Var<'c>) {
        let width = query.shape()[2];
        let project = |x: &Var<'c>, i: usize| {
            let bias = self.in_bias.as_ref().map(|bias| cut(bias, 0, i * width, width));
            let y = linear(x, &cut(&self.in_weight, 0, i * width, width), bias.as_ref());
            let (n, time) = (y.shape()[0], y.shape()[1]);
            y.reshape([n, time, self.heads, width / self.heads]).permute(&[0, 2, 1, 3])
        };
        let (q, k, v) = (project(query, 0), project(key, 1), project(value, 2));
        let mut scores = q.matmul(&k.transpose()) / ((width / self.heads) as f64).sqrt();
        if let Some(mask) = mask {
            scores = scores + mask;
        }
        let attention = super::loss::softmax(call, &scores);
        let mixed = attention.matmul(&v).permute(&[0, 2, 1, 3]).reshape(query.shape());
        (linear(&mixed, &self.out_weight, self.out_bias.as_ref()), attention)
    }
}

fn multi_head_attention<'c>(call: &'c Call<'_>) -> Vec<Var<'c>> {
    let heads = Heads {
        heads: call.count("heads"),
        in_weight: call.var("in_proj_weight"),
        in_bias: call.optional_var("in_proj_bias"),
        out_weight: call.var("out_proj.weight"),
        out_bias: call.optional_var("out_proj.bias"),
    };
    let (query, key, value) = (call.var("query"), call.var("key"), call.var("value"));
    let hidden = |mask: Var<'c>, shape: [usize; 4]| {
        let zeros = call.full(shape, query.dtype(), 0.0);
        let mask = mask.reshape(shape);
        if mask.dtype().is_bool() { mask.select(&mask.scalar(f64::NEG_INFINITY), &zeros) } else { mask }
    };
    let (n, q, k) = (query.shape()[0], query.shape()[1], key.shape()[1]);
    let pairs = call.optional_var("mask").map(|mask| hidden(mask, [1, 1, q, k]));
    let padding = call.optional_var("key_padding_mask").map(|mask| hidden(mask, [n, 1, 1, k]));
    let mask = match (pairs, padding) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    let (y, attention) = heads.attend(call, [&query, &key, &value], mask.as_ref());
    vec![y, attention.mean(&[1]).reshape([n, q, k])]
}

fn encoder_layer<'c>(call: &'c Call<'_>) -> Var<'c> {
    let heads = Heads {
        heads: call.count("heads"),
        in_weight: call.var("self_attn.in_proj_weight"),
        in_bias: call.optional_var("self_attn.in_proj_bias"),
        out_weight: call.var("self_attn.out_proj.weight"),
        out_bias: call.optional_var("self_attn.out_proj.bias"),
    };
    let norm = |x: &Var<'c>, name: &str| {
        let op = Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(call.real("epsilon")) };
        let (weight, bias) = (call.var(&format!("{name}.weight")), call.var(&format!("{name}.bias")));
        call.emit(op, &[x, &weight, &bias]).remove(0)
    };
    let layer = |x: &Var<'c>, name: &str| {
        linear(x, &call.var(&format!("{name}.weight")), Some(&call.var(&format!("{name}.bias"))))
    };
    let activation = |x: Var<'c>| match call.text("activation") {
        "relu" => x.max(&x.scalar(0.0)),
        _ => &x * 0.5 * ((&x * std::f64::consts::FRAC_1_SQRT_2).erf() + x.scalar(1.0)),
    };
    let attend = |x: &Var<'c>| heads.attend(call, [x, x, x], None).0;
    let feed = |x: &Var<'c>| layer(&activation(layer(x, "linear1")), "linear2");
    let x = call.var("x");
    if call.flag("norm_first") {
        let x = &x + attend(&norm(&x, "norm1"));
        return &x + feed(&norm(&x, "norm2"));
    }
    let x = norm(&(&x + attend(&x)), "norm1");
    norm(&(&x + feed(&x)), "norm2")
}
