//! Multi-head attention with PyTorch's parameters.

use super::cache::MhaCache;
use super::input::{MhaInput, MhaOutput};
use super::scores::{HeadAttention, Reach, ScoreMask, join_heads, split_heads};
use crate::{
    Config, Dropout, DropoutConfig, ForwardModule, Initializer, Linear, LinearConfig, Module, Param,
};
use kiln_backends::Dyn;
use kiln_tensor::{Backend, Tensor, module};

/// Settings of a [`MultiHeadAttention`] layer.
#[derive(Config, Clone, Debug, PartialEq)]
pub struct MultiHeadAttentionConfig {
    /// Number of features of queries and outputs.
    pub d_model: usize,
    /// Number of heads, a divisor of `d_model`.
    pub n_heads: usize,
    /// The probability of setting an attention weight to zero in training. Default: 0.
    #[config(default = 0.0)]
    pub dropout: f64,
    /// Whether the projections add biases. Default: true.
    #[config(default = true)]
    pub bias: bool,
    /// Whether to append a learned key and value to those of the input. Default: false.
    #[config(default = false)]
    pub add_bias_kv: bool,
    /// Whether to append a key and a value of zeros. Default: false.
    #[config(default = false)]
    pub add_zero_attn: bool,
    /// Number of features of keys. Default: `d_model`.
    pub kdim: Option<usize>,
    /// Number of features of values. Default: `d_model`.
    pub vdim: Option<usize>,
    /// Number of heads of keys and values, a divisor of `n_heads` (grouped-query attention). Default: `n_heads`.
    pub n_kv_heads: Option<usize>,
    /// The scale of the scores. Default: `1 / √(d_model / n_heads)`.
    pub scale: Option<f64>,
    /// Whether the softmax has 1 added to its denominator, so that a head may attend to nothing
    /// ([Miller 2023](https://www.evanmiller.org/attention-is-off-by-one.html)). Default: false.
    #[config(default = false)]
    pub quiet_softmax: bool,
    /// The initializer of all weights. Default: PyTorch's, which is Xavier uniform for the input projections and
    /// [`Initializer::LINEAR`] for the output projection. Biases are initialized to zeros.
    pub initializer: Option<Initializer>,
}

/// Multi-head attention ([Vaswani et al. 2017](https://arxiv.org/abs/1706.03762)): each head `i` computes
/// `softmax(q_i k_iᵀ / √d + mask) v_i` of projected queries, keys and values; the output is a projection of all heads.
///
/// Fields, names and shapes are those of
/// [`torch.nn.MultiheadAttention`](https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html),
/// with `batch_first=True`. With `n_kv_heads`, which PyTorch does not have, the input projections are separate, and
/// keys and values have `n_kv_heads * d_model / n_heads` features. A query whose keys are all masked returns the output
/// projection of zeros; PyTorch returns NaN.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::attention::{MhaInput, MultiHeadAttentionConfig};
/// use kiln_tensor::Tensor;
///
/// let device = Default::default();
/// let attention = MultiHeadAttentionConfig::new(8, 2).with_kdim(Some(6)).with_vdim(Some(6)).init::<Flex>(&device);
/// let (x, memory) = (Tensor::ones([1, 3, 8], &device), Tensor::ones([1, 5, 6], &device));
/// let output = attention.forward(MhaInput::cross_attn(x, memory).need_weights());
/// assert_eq!(output.context.dims(), [1, 3, 8]);
/// assert_eq!(output.weights.unwrap().dims(), [1, 2, 3, 5]);
/// ```
#[derive(Module, Clone, Debug)]
pub struct MultiHeadAttention<B: Backend = Dyn> {
    /// The projections of queries, keys and values, `[3 d_model, d_model]`, where all have `d_model` features.
    pub in_proj_weight: Option<Param<Tensor<B, 2>>>,
    /// The projection of queries, `[d_model, d_model]`, where `in_proj_weight` is absent.
    pub q_proj_weight: Option<Param<Tensor<B, 2>>>,
    /// The projection of keys, `[d_kv, kdim]`, where `in_proj_weight` is absent.
    pub k_proj_weight: Option<Param<Tensor<B, 2>>>,
    /// The projection of values, `[d_kv, vdim]`, where `in_proj_weight` is absent.
    pub v_proj_weight: Option<Param<Tensor<B, 2>>>,
    /// The biases of queries, keys and values, `[d_model + 2 d_kv]`.
    pub in_proj_bias: Option<Param<Tensor<B, 1>>>,
    /// The key that is appended, `[1, 1, d_kv]`.
    pub bias_k: Option<Param<Tensor<B, 3>>>,
    /// The value that is appended, `[1, 1, d_kv]`.
    pub bias_v: Option<Param<Tensor<B, 3>>>,
    /// The output projection.
    pub out_proj: Linear<B>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
    /// Number of features of queries and outputs.
    pub d_model: usize,
    /// Number of heads.
    pub n_heads: usize,
    /// Number of heads of keys and values.
    pub n_kv_heads: usize,
    /// Whether a key and a value of zeros are appended.
    pub add_zero_attn: bool,
    /// The scale of the scores.
    #[module(attribute)]
    pub scale: Option<f64>,
    /// Whether the softmax has 1 added to its denominator.
    pub quiet_softmax: bool,
}

impl MultiHeadAttentionConfig {
    /// Returns a layer with initialized parameters on a device.
    ///
    /// # Panics
    /// When `n_heads` is not a divisor of `d_model`, or `n_kv_heads` not one of `n_heads`.
    #[track_caller]
    pub fn init<B: Backend>(&self, device: &B::Device) -> MultiHeadAttention<B> {
        let (d, heads) = (self.d_model, self.n_heads);
        let kv_heads = self.n_kv_heads.unwrap_or(heads);
        check_heads("MultiHeadAttention", heads, kv_heads);
        assert!(
            d.is_multiple_of(heads),
            "[MultiHeadAttention] {heads} heads cannot share {d} features (d_model)"
        );
        let d_kv = d / heads * kv_heads;
        let (kdim, vdim) = (self.kdim.unwrap_or(d), self.vdim.unwrap_or(d));
        let initializer = self.initializer.unwrap_or(Initializer::XavierUniform { gain: 1.0 });
        let packed = kdim == d && vdim == d && kv_heads == heads;
        let separate = |shape| (!packed).then(|| initializer.init(shape, device));
        let zeros = |length| self.bias.then(|| Initializer::Zeros.init([length], device));
        let appended = || {
            let normal = Initializer::XavierNormal { gain: 1.0 };
            self.add_bias_kv.then(|| normal.init([1, 1, d_kv], device))
        };
        let output = LinearConfig::new(d, d).with_bias(false);
        let output = output.with_initializer(self.initializer.unwrap_or(Initializer::LINEAR));
        MultiHeadAttention {
            in_proj_weight: packed.then(|| initializer.init([3 * d, d], device)),
            q_proj_weight: separate([d, d]),
            k_proj_weight: separate([d_kv, kdim]),
            v_proj_weight: separate([d_kv, vdim]),
            in_proj_bias: zeros(d + 2 * d_kv),
            bias_k: appended(),
            bias_v: appended(),
            out_proj: Linear { bias: zeros(d), ..output.init(device) },
            dropout: DropoutConfig::new(self.dropout).init(),
            d_model: d,
            n_heads: heads,
            n_kv_heads: kv_heads,
            add_zero_attn: self.add_zero_attn,
            scale: self.scale,
            quiet_softmax: self.quiet_softmax,
        }
    }
}

/// Keys and values of all heads, `[batch, kv_heads, keys, features]`.
pub(super) type KeysAndValues<B> = (Tensor<B, 4>, Tensor<B, 4>);

/// # Panics
/// When the number of heads is 0, or not a multiple of that of keys and values.
#[track_caller]
pub(super) fn check_heads(name: &str, heads: usize, kv_heads: usize) {
    assert!(
        kv_heads > 0 && heads > 0 && heads.is_multiple_of(kv_heads),
        "[{name}] {heads} query heads cannot share {kv_heads} heads of keys and values"
    );
}

impl<B: Backend> MultiHeadAttention<B> {
    /// Computes attention of queries `[batch, queries, d_model]` to keys `[batch, keys, kdim]` and values
    /// `[batch, keys, vdim]`. The context is `[batch, queries, d_model]`. A tensor is the input of self-attention.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask, differs.
    #[track_caller]
    pub fn forward(&self, input: impl Into<MhaInput<B>>) -> MhaOutput<B> {
        let input = input.into();
        let reach = if input.conditions.causal { Reach::Causal } else { Reach::All };
        self.attend(input, |project| {
            let (k, v) = project();
            (k, v, reach)
        })
    }

    /// Computes [`forward`](MultiHeadAttention::forward) for new tokens, `[batch, new, d_model]`, and adds their keys
    /// and values to a cache. The tokens attend to all tokens in the cache and causally to each other; `keys` in the
    /// shape of masks counts both. Masks for a [`StaticCache`](super::StaticCache) may be shorter than the cache.
    ///
    /// Burn's method of this name receives the whole sequence in each call. Pass only the new tokens here.
    ///
    /// # Panics
    /// When the number of features, or the shape of a mask or of the cache, differs, or a static cache is full.
    #[track_caller]
    pub fn forward_cache(&self, input: impl Into<MhaInput<B>>, cache: &mut MhaCache<B>) -> MhaOutput<B> {
        self.attend(input.into(), |project| cache.update(project))
    }

    /// Computes attention to the keys and values that `gather` returns; its argument projects those of the input.
    #[track_caller]
    fn attend(
        &self,
        input: MhaInput<B>,
        gather: impl FnOnce(&dyn Fn() -> KeysAndValues<B>) -> (Tensor<B, 4>, Tensor<B, 4>, Reach<B>),
    ) -> MhaOutput<B> {
        let device = input.query.device();
        let (q, (k, v, reach)) = match (&input.key, &self.in_proj_weight) {
            // The three projections of self-attention are one product.
            (None, Some(_)) => {
                let all = self.project("queries", &input.query, self.rows(&None, 0, 3 * self.d_model));
                let part = |index: usize| all.clone().narrow(2, index * self.d_model, self.d_model);
                (
                    self.rotated(part(0), self.n_heads, &input),
                    gather(&|| self.split(part(1), part(2), &input)),
                )
            }
            (Some(_), _) | (None, None) => (self.queries(&input), gather(&|| self.keys_and_values(&input))),
        };
        let ([batch, heads, queries, _], keys) = (q.dims(), k.dims()[2]);
        let shape = [batch, heads, queries, keys];
        let mask = ScoreMask::new("MultiHeadAttention", input.conditions, reach, None, shape, &device);
        let (k, v) = self.with_appended(k, v);
        let mask = match k.dims()[2] - keys {
            0 => mask,
            count => mask.with_visible_keys(count, queries, keys, &device),
        };
        let attention =
            HeadAttention { dropout: &self.dropout, scale: self.scale, quiet_softmax: self.quiet_softmax };
        let (context, weights) = attention.run(q, k, v, mask, input.need_weights);
        MhaOutput { context: self.out_proj.forward(join_heads(context)), weights }
    }

    /// Number of features of keys and values of all heads.
    fn d_kv(&self) -> usize {
        self.d_model / self.n_heads * self.n_kv_heads
    }

    /// The weight and bias of rows `start..start + count` of the input projections.
    fn rows(
        &self,
        own: &Option<Param<Tensor<B, 2>>>,
        start: usize,
        count: usize,
    ) -> (Tensor<B, 2>, Option<Tensor<B, 1>>) {
        let weight = match (&self.in_proj_weight, own) {
            (Some(packed), _) => packed.val().narrow(0, start, count),
            (None, Some(own)) => own.val(),
            (None, None) => panic!("[MultiHeadAttention] a projection of the input has no weight"),
        };
        let bias = self.in_proj_bias.as_ref();
        (weight, bias.map(|bias| bias.val().narrow(0, start, count)))
    }

    #[track_caller]
    fn project(
        &self,
        what: &str,
        x: &Tensor<B, 3>,
        (weight, bias): (Tensor<B, 2>, Option<Tensor<B, 1>>),
    ) -> Tensor<B, 3> {
        let (dims @ [_, _, features], [_, expected]) = (x.dims(), weight.dims());
        assert!(
            features == expected,
            "[MultiHeadAttention] {what} are {dims:?}, but the layer expects {expected} features"
        );
        module::linear(x.clone(), weight, bias)
    }

    #[track_caller]
    fn queries(&self, input: &MhaInput<B>) -> Tensor<B, 4> {
        let weights = self.rows(&self.q_proj_weight, 0, self.d_model);
        self.rotated(self.project("queries", &input.query, weights), self.n_heads, input)
    }

    #[track_caller]
    fn keys_and_values(&self, input: &MhaInput<B>) -> KeysAndValues<B> {
        let (d, d_kv) = (self.d_model, self.d_kv());
        let key = input.key.as_ref().unwrap_or(&input.query);
        let (k, v) = match (&input.value, &self.in_proj_weight) {
            // Keys and values of one input are one product.
            (None, Some(_)) => {
                let both = self.project("keys", key, self.rows(&None, d, 2 * d_kv));
                (both.clone().narrow(2, 0, d_kv), both.narrow(2, d_kv, d_kv))
            }
            (value, _) => {
                let value = value.as_ref().unwrap_or(key);
                let k = self.project("keys", key, self.rows(&self.k_proj_weight, d, d_kv));
                (k, self.project("values", value, self.rows(&self.v_proj_weight, d + d_kv, d_kv)))
            }
        };
        self.split(k, v, input)
    }

    #[track_caller]
    fn split(&self, k: Tensor<B, 3>, v: Tensor<B, 3>, input: &MhaInput<B>) -> KeysAndValues<B> {
        (self.rotated(k, self.n_kv_heads, input), split_heads(v, self.n_kv_heads))
    }

    #[track_caller]
    fn rotated(&self, x: Tensor<B, 3>, heads: usize, input: &MhaInput<B>) -> Tensor<B, 4> {
        let x = split_heads(x, heads);
        match &input.conditions.rotary {
            Some(rotary) => rotary.apply(x),
            None => x,
        }
    }

    /// Appends `bias_k` and `bias_v`, then zeros.
    fn with_appended(&self, mut k: Tensor<B, 4>, mut v: Tensor<B, 4>) -> KeysAndValues<B> {
        if let (Some(bias_k), Some(bias_v)) = (&self.bias_k, &self.bias_v) {
            k = self.with_row(k, bias_k);
            v = self.with_row(v, bias_v);
        }
        if self.add_zero_attn {
            let row = [(0, 0), (0, 0), (0, 1), (0, 0)];
            (k, v) = (k.pad(row, 0.0), v.pad(row, 0.0));
        }
        (k, v)
    }

    fn with_row(&self, x: Tensor<B, 4>, row: &Param<Tensor<B, 3>>) -> Tensor<B, 4> {
        let [batch, heads, _, features] = x.dims();
        let row = split_heads(row.val(), self.n_kv_heads).expand([batch, heads, 1, features]);
        Tensor::cat(alloc::vec![x, row], 2)
    }
}

/// Self-attention without masks.
impl<B: Backend> ForwardModule<Tensor<B, 3>> for MultiHeadAttention<B> {
    type Output = Tensor<B, 3>;

    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        MultiHeadAttention::forward(self, x).context
    }
}
