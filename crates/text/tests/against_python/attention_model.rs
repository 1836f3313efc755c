//! A language model of one attention layer with absolute positions, whose logits PyTorch computed.

use crate::against_python::fixture;
use kiln_backends::Flex;
use kiln_nn::Param;
use kiln_nn::attention::{MhaCache, MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, StaticCache};
use kiln_tensor::{Tensor, TensorData};
use kiln_text::{KeyValueCache, LanguageModel, TokenInput};
use serde::Deserialize;
use std::cell::Cell;
use std::collections::BTreeMap;

#[derive(Deserialize)]
pub(crate) struct Fixture {
    shape: Shape,
    weights: BTreeMap<String, Vec<f32>>,
    pub(crate) prompts: Vec<Vec<u32>>,
    pub(crate) greedy: Vec<Vec<u32>>,
    pub(crate) logits: Vec<f32>,
    pub(crate) text: Vec<u32>,
    pub(crate) perplexities: Vec<Expected>,
}

#[derive(Clone, Copy, Deserialize)]
struct Shape {
    vocabulary: usize,
    width: usize,
    heads: usize,
    positions: usize,
}

#[derive(Deserialize)]
pub(crate) struct Expected {
    pub(crate) window: usize,
    pub(crate) stride: usize,
    pub(crate) count: usize,
    pub(crate) perplexity: f64,
}

/// Whether keys and values are in static caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    Static,
    Growing,
}

pub(crate) struct AttentionModel {
    shape: Shape,
    caching: Caching,
    tokens: Tensor<Flex, 2>,
    positions: Tensor<Flex, 2>,
    attention: MultiHeadAttention<Flex>,
    head: Tensor<Flex, 2>,
    /// Number of computed token positions.
    pub(crate) computed: Cell<usize>,
}

pub(crate) fn model(caching: Caching) -> (AttentionModel, Fixture) {
    let fixture: Fixture = fixture("attention_model.json");
    let Shape { width, heads, .. } = fixture.shape;
    let matrix = |name: &str| {
        let values = fixture.weights[name].clone();
        let rows = values.len() / width;
        Tensor::<Flex, 2>::from_data(TensorData::new(values, [rows, width]).unwrap(), &Default::default())
    };
    let mut attention = MultiHeadAttentionConfig::new(width, heads).init::<Flex>(&Default::default());
    let projections = ["query", "key", "value"].map(matrix).to_vec();
    attention.in_proj_weight = Some(Param::from_tensor(Tensor::cat(projections, 0)));
    attention.in_proj_bias = None;
    attention.out_proj.weight = Param::from_tensor(matrix("output"));
    attention.out_proj.bias = None;
    let model = AttentionModel {
        shape: fixture.shape,
        caching,
        tokens: matrix("tokens"),
        positions: matrix("positions"),
        attention,
        head: matrix("head"),
        computed: Cell::new(0),
    };
    (model, fixture)
}

impl AttentionModel {
    /// Rows of a table, `[batch, length, width]`.
    fn rows(&self, table: &Tensor<Flex, 2>, ids: Tensor<Flex, 2, kiln_tensor::Int>) -> Tensor<Flex, 3> {
        let [batch, length] = ids.dims();
        table.clone().select(0, ids.reshape([batch * length])).reshape([batch, length, self.shape.width])
    }
}

impl LanguageModel<Flex> for AttentionModel {
    type Cache = KeyValueCache<Flex>;

    fn new_cache(&self, batch: usize, max_length: usize) -> Self::Cache {
        let Shape { width, heads, .. } = self.shape;
        match self.caching {
            Caching::Static => {
                let shape = [batch, heads, max_length, width / heads];
                let layer = MhaCache::from(StaticCache::new(shape, &self.device()));
                KeyValueCache::of_static(vec![layer], max_length)
            }
            Caching::Growing => KeyValueCache::growing(1),
        }
    }

    fn forward(&self, input: TokenInput<Flex>, cache: &mut Self::Cache) -> Tensor<Flex, 3> {
        let new = input.new_tokens();
        self.computed.set(self.computed.get() + new * input.batch());
        let positions = input.positions(cache.positions(new, &self.device()));
        let x = self.rows(&self.tokens, input.ids.clone()) + self.rows(&self.positions, positions);
        let mut attention = MhaInput::self_attn(x.clone());
        if let Some(mask) = input.hidden_keys(cache.keys_after(new)) {
            attention = attention.mask_pad(mask);
        }
        let layer = &mut cache.layers_for(new)[0];
        let x = input.needed(x + self.attention.forward_cache(attention, layer).context);
        x.matmul(self.head.clone().transpose().unsqueeze())
    }

    fn vocabulary_size(&self) -> usize {
        self.shape.vocabulary
    }

    fn max_length(&self) -> usize {
        self.shape.positions
    }

    fn device(&self) -> <Flex as kiln_tensor::Backend>::Device {
        Default::default()
    }
}
