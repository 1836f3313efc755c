//! Attention, positions, transformers and recurrent modules. Dropout is off: its row is that of `Dropout`.

use super::{ModuleRow, Twin, one, row, t};
use crate::methods::{Method, normal};
use kiln_backends::Dyn;
use kiln_nn::attention::*;
use kiln_nn::transformer::*;
use kiln_nn::*;
use kiln_tensor::Tensor;

const PARTS: &str = "a composition of modules with rows";
const TABLE: &str = "adds a table; the formula of the table is tested";
const KINK: &str = "the feed-forward network has ReLU";

fn golden(op: &'static str) -> Twin {
    Twin::Golden("transformer", op)
}

fn once(method: Method) -> Method {
    method.once(KINK).within(64.0)
}

fn wide(method: Method) -> Method {
    method.within(64.0)
}

pub(super) fn rows() -> Vec<ModuleRow> {
    let mut rows = attention();
    rows.extend(positions());
    rows.extend(transformers());
    rows.extend(recurrent());
    rows
}

fn recurrent() -> Vec<ModuleRow> {
    let golden = |op| Twin::Golden("recurrent", op);
    vec![
        row!(
            "Rnn",
            golden("rnn"),
            |d| RnnConfig::new(3, 2, true).with_num_layers(2).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]), None).0),
            [normal(&[2, 4, 3])]
        )
        .with(wide),
        row!(
            "Gru",
            golden("gru"),
            |d| GruConfig::new(3, 2, true).with_bidirectional(true).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]), None).0),
            [normal(&[2, 4, 3])]
        )
        .with(wide),
        row!(
            "Lstm",
            golden("lstm"),
            |d| LstmConfig::new(3, 4, true).with_num_layers(2).with_projection(Some(2)).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]), None).0),
            [normal(&[2, 4, 3])]
        )
        .with(wide),
        row!(
            "RnnCell",
            golden("rnn_cell"),
            |d| RnnCellConfig::new(3, 2, true).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]), Some(t(&x[1])))),
            [normal(&[2, 3]), normal(&[2, 2])]
        )
        .with(wide),
        row!(
            "GruCell",
            golden("gru_cell"),
            |d| GruCellConfig::new(3, 2, true).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]), Some(t(&x[1])))),
            [normal(&[2, 3]), normal(&[2, 2])]
        )
        .with(wide),
        row!(
            "LstmCell",
            golden("lstm_cell"),
            |d| LstmCellConfig::new(3, 2, true).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]), Some(LstmState::new(t(&x[1]), t(&x[2])))).hidden),
            [normal(&[2, 3]), normal(&[2, 2]), normal(&[2, 2])]
        )
        .with(wide),
    ]
}

fn attention() -> Vec<ModuleRow> {
    vec![
        row!(
            "MultiHeadAttention",
            Twin::Golden("module", "multi_head_attention"),
            |d| MultiHeadAttentionConfig::new(4, 2).init::<Dyn>(d).eval(),
            |m, x| one(m.forward(MhaInput::self_attn(t(&x[0])).causal()).context),
            [normal(&[2, 3, 4])]
        )
        .with(wide),
        row!(
            "GroupedQueryAttention",
            Twin::None(PARTS),
            |d| GroupedQueryAttentionConfig::new(8, 4, 2).init::<Dyn>(d).eval(),
            |m, x| one(m.forward(MhaInput::self_attn(t(&x[0])).causal()).context),
            [normal(&[2, 3, 8])]
        )
        .with(wide),
        row!(
            "CrossAttention",
            Twin::None(PARTS),
            |d| CrossAttentionConfig::new(4, 6, 2, 1, 2).init::<Dyn>(d).eval(),
            |m, x| one(m.forward(t(&x[0]), t(&x[1]), None)),
            [normal(&[2, 3, 4]), normal(&[2, 5, 6])]
        )
        .with(wide),
    ]
}

fn positions() -> Vec<ModuleRow> {
    vec![
        row!(
            "RotaryEncoding",
            golden("rotary"),
            |d| RotaryEncodingConfig::new(8, 4).init::<Dyn>(d),
            4,
            normal(&[1, 2, 3, 4])
        ),
        row!(
            "PositionalEncoding",
            Twin::None(TABLE),
            |d| PositionalEncodingConfig::new(4).init::<Dyn>(d).eval(),
            |m, x| { one(m.forward(t(&x[0]))) },
            [normal(&[2, 3, 4])]
        ),
        row!(
            "LearnedPositionalEncoding",
            Twin::None(TABLE),
            |d| LearnedPositionalEncodingConfig::new(5, 4).init::<Dyn>(d),
            |m, x| one(m.forward(t(&x[0]))),
            [normal(&[2, 3, 4])]
        ),
        row!(
            "RelativePositionBias",
            Twin::Values("transformer", "t5_buckets", TABLE),
            |d| RelativePositionBiasConfig::new(2).init::<Dyn>(d),
            |m, x| {
                let scores: Tensor<Dyn, 4> = t(&x[0]);
                one(scores + m.forward(3, 4))
            },
            [normal(&[1, 2, 3, 4])]
        ),
        row!(
            "Alibi",
            Twin::Values("transformer", "alibi_slopes", TABLE),
            |_| AlibiConfig::new(2).init(),
            |m, x| {
                let scores: Tensor<Dyn, 4> = t(&x[0]);
                let bias = m.bias(3, 4, &scores.device()).cast(scores.dtype());
                one(scores + bias)
            },
            [normal(&[1, 2, 3, 4])]
        ),
    ]
}

fn transformers() -> Vec<ModuleRow> {
    vec![
        row!(
            "PositionWiseFeedForward",
            Twin::None(PARTS),
            |d| PositionWiseFeedForwardConfig::new(4, 6).init::<Dyn>(d).eval(),
            |m, x| one(m.forward(t::<3, _>(&x[0]))),
            [normal(&[2, 3, 4])]
        )
        .with(wide),
        row!(
            "GatedFeedForward",
            Twin::None(PARTS),
            |d| GatedFeedForwardConfig::new(4, 6).init::<Dyn>(d).eval(),
            |m, x| one(m.forward(t::<3, _>(&x[0]))),
            [normal(&[2, 3, 4])]
        )
        .with(wide),
        row!(
            "TransformerEncoderLayer",
            Twin::Golden("module", "transformer_encoder_layer"),
            |d| TransformerEncoderLayer::<Dyn>::new(&TransformerEncoderConfig::new(4, 6, 2, 1), d).eval(),
            |m, x| one(m.forward(t(&x[0]))),
            [normal(&[2, 3, 4])]
        )
        .with(once),
        row!(
            "TransformerEncoder",
            golden("encoder"),
            |d| TransformerEncoderConfig::new(4, 6, 2, 2).init::<Dyn>(d).eval(),
            |m, x| one(m.forward(t(&x[0]))),
            [normal(&[2, 3, 4])]
        )
        .with(once),
        row!(
            "TransformerDecoderLayer",
            golden("decoder_layer"),
            |d| TransformerDecoderLayer::<Dyn>::new(&TransformerDecoderConfig::new(4, 6, 2, 1), d).eval(),
            |m, x| one(m.forward(TransformerDecoderInput::new(t(&x[0]), t(&x[1])))),
            [normal(&[2, 3, 4]), normal(&[2, 5, 4])]
        )
        .with(once),
        row!(
            "TransformerDecoder",
            golden("transformer"),
            |d| TransformerDecoderConfig::new(4, 6, 2, 1).init::<Dyn>(d).eval(),
            |m, x| one(m.forward(TransformerDecoderInput::new(t(&x[0]), t(&x[1])))),
            [normal(&[2, 3, 4]), normal(&[2, 5, 4])]
        )
        .with(once),
        row!(
            "Transformer",
            golden("transformer"),
            |d| {
                let config = TransformerConfig::new().with_d_model(4).with_n_heads(2).with_d_ff(6);
                config.with_n_encoder_layers(1).with_n_decoder_layers(1).init::<Dyn>(d).eval()
            },
            |m, x| one(m.forward(TransformerInput::new(t::<3, kiln_tensor::Float>(&x[0]), t(&x[1])))),
            [normal(&[2, 5, 4]), normal(&[2, 3, 4])]
        )
        .with(once),
        row!(
            "DecoderBlock",
            Twin::None(PARTS),
            |d| DecoderBlockConfig::new(8, 6, 4, 2).init::<Dyn>(d).eval(),
            |m, x| one(m.forward(t::<3, kiln_tensor::Float>(&x[0]))),
            [normal(&[2, 3, 8])]
        )
        .with(wide),
    ]
}
