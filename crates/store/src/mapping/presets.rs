//! The conventions of frameworks.

use kiln_nn::Pattern;

use super::Mapping;
use super::rule::Rule;

/// Prefixes of `torch.nn.DataParallel`, `torch.compile` and Lightning.
const PYTORCH_PREFIXES: &[&str] = &["module.", "_orig_mod.", "model."];

/// Prefixes of the base model in models with a head, in `transformers`.
const HUGGING_FACE_PREFIXES: &[&str] = &[
    "module.",
    "_orig_mod.",
    "model.",
    "transformer.",
    "bert.",
    "roberta.",
    "distilbert.",
    "electra.",
    "gpt_neox.",
    "resnet.",
    "vit.",
];

/// Buffers of `transformers` that models compute: position ids, rotary frequencies, causal masks.
const HUGGING_FACE_BUFFERS: &str = "**.{position_ids,token_type_ids,inv_freq,masked_bias,attn.bias,attention.bias,\
                                    num_batches_tracked}";

/// Fused projections, whose rows are the rows of the parts in order. `query_key_value` of GPT-NeoX and BLOOM is not
/// here: it interleaves the heads.
const FUSED_QKV: &str = "**.*{c_attn.,in_proj.,in_proj_,qkv.,qkv_proj.,Wqkv.}{weight,bias}";

/// Names of the parts of [`FUSED_QKV`].
const QKV_PARTS: &[[&str; 3]] = &[
    ["$1.$2q_proj.$4", "$1.$2k_proj.$4", "$1.$2v_proj.$4"],
    ["$1.$2query.$4", "$1.$2key.$4", "$1.$2value.$4"],
    ["$1.$2q.$4", "$1.$2k.$4", "$1.$2v.$4"],
    ["$1.$2q_lin.$4", "$1.$2k_lin.$4", "$1.$2v_lin.$4"],
    ["$1.$2query_proj.$4", "$1.$2key_proj.$4", "$1.$2value_proj.$4"],
];

/// Fused gate and up projections of a gated feed-forward block.
const FUSED_GATE: &str = "**.gate_up_proj.{weight,bias}";
const GATE_PARTS: &[&str] = &["$1.gate_proj.$2", "$1.up_proj.$2"];

/// Tied weights: the missing parameter, and the tensor that has its values.
const TIED: &[(&str, &str)] = &[
    ("{model.,transformer.,}lm_head.weight", "$1embed_tokens.weight"),
    ("lm_head.weight", "model.embed_tokens.weight"),
    ("lm_head.weight", "wte.weight"),
    ("lm_head.weight", "transformer.wte.weight"),
    ("lm_head.weight", "shared.weight"),
    ("{encoder,decoder}.embed_tokens.weight", "shared.weight"),
    ("**.cls.predictions.decoder.weight", "$1.embeddings.word_embeddings.weight"),
    ("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
    ("**.cls.predictions.decoder.bias", "$1.cls.predictions.bias"),
];

/// The layers of Kiln whose weight is `[out, in]` where Burn has `[in, out]`.
const LINEAR_LAYERS: &[&str] = &["Linear"];

impl Mapping {
    /// Returns the conventions of PyTorch:
    ///
    /// * strips the prefixes `module.` (`DataParallel`), `_orig_mod.` (`torch.compile`) and `model.` (Lightning) if most
    ///   names have them;
    /// * skips the counters `num_batches_tracked`;
    /// * splits and joins fused projections of attention (`in_proj_weight` and `q_proj.weight`, ...) as the module needs.
    ///
    /// Kiln's layers have the names and layouts of PyTorch's, so files often need no mapping.
    #[must_use]
    pub fn pytorch() -> Mapping {
        Mapping::new()
            .with(Rule::StripPrefixes(PYTORCH_PREFIXES))
            .with(skip("**.num_batches_tracked"))
            .with_fused_projections()
            .optional()
    }

    /// Returns the conventions of Hugging Face's `transformers`, in addition to those of [`pytorch`](Mapping::pytorch):
    ///
    /// * strips the prefix of the base model if most names have it: `model.`, `transformer.`, `bert.` and others;
    /// * renames `gamma` and `beta` of old BERT and ResNet files to `weight` and `bias`;
    /// * skips buffers that models compute, such as `position_ids` and causal masks;
    /// * transposes the weights of `Conv1D` layers (GPT-2) to `[out, in]`
    ///   ([`transpose_conv1d`](Mapping::transpose_conv1d));
    /// * splits and joins `c_attn`, `qkv_proj` and `gate_up_proj` as the module needs. `query_key_value` of GPT-NeoX and
    ///   BLOOM interleaves the heads and is not split;
    /// * takes tied weights that the file stores once from their other name: `lm_head.weight` from
    ///   `embed_tokens.weight`, `wte.weight` or `shared.weight`.
    #[must_use]
    pub fn hugging_face() -> Mapping {
        let mapping = Mapping::new()
            .with(Rule::StripPrefixes(HUGGING_FACE_PREFIXES))
            .with(skip(HUGGING_FACE_BUFFERS))
            .with_norms_of("gamma", "beta")
            .transpose_conv1d()
            .with_fused_projections();
        let mapping = TIED.iter().fold(mapping, |mapping, (missing, replacement)| {
            mapping.with(Rule::Tie { missing: known(missing), replacement: (*replacement).to_owned() })
        });
        mapping.optional()
    }

    /// Transposes the weights of `Conv1D` layers (GPT-2) to `[out, in]`, if the file has such layers: if a `c_attn.weight`
    /// is `[width, 3 * width]`.
    #[must_use]
    pub fn transpose_conv1d(self) -> Mapping {
        self.with(Rule::TransposeConv1d {
            fused: known("**.c_attn.weight"),
            weights: known("**.{c_attn,q_attn,c_proj,c_fc}.weight"),
        })
    }

    /// Returns the conventions of Burn:
    ///
    /// * renames `gamma` and `beta` of norms to `weight` and `bias`;
    /// * omits the names of enum variants, which Burn's records contain and Kiln's names do not;
    /// * transposes the weights of `Linear` layers, `[in, out]` in Burn, to `[out, in]`;
    /// * joins `query`, `key` and `value` of attention to `in_proj_weight`, and renames `output` to `out_proj`, if the
    ///   module has these names.
    ///
    /// Convolutions, embeddings and running statistics are equal. Whether a matrix is the weight of a linear layer is
    /// known from the module that is loaded, by the type of the layer that owns the parameter.
    /// [`Weights::mapped`](crate::Weights::mapped) knows no module and does not transpose: add
    /// [`transpose`](Mapping::transpose) with the names of the linear layers.
    ///
    /// Recurrent layers of Burn have a linear layer for each gate and need their own rules.
    #[must_use]
    pub fn burn() -> Mapping {
        Mapping::new()
            .with(Rule::OmitVariants)
            .with_norms_of("gamma", "beta")
            .with(Rule::BurnAttention)
            .with_fused_projections()
            .with(Rule::TransposeLayers(LINEAR_LAYERS))
            .optional()
    }

    /// Returns the conventions of Flax:
    ///
    /// * strips the prefixes `params.` and `batch_stats.`;
    /// * moves the axes of `kernel` from `[.., in, out]` to `[out, in, ..]`, and renames it to `weight`;
    /// * renames `embedding` and `scale` to `weight`, and `mean` and `var` to `running_mean` and `running_var`.
    #[must_use]
    pub fn flax() -> Mapping {
        Mapping::new()
            .with(rename("{params,batch_stats}.**", "$2"))
            .with(Rule::OutputsFirst(known("**.kernel")))
            .with(rename("**.{kernel,embedding,scale}", "$1.weight"))
            .with(rename("**.{mean,var}", "$1.running_$2"))
            .optional()
    }

    /// Renames the parameters of norms.
    fn with_norms_of(self, weight: &str, bias: &str) -> Mapping {
        self.with(rename(&format!("**.{weight}"), "$1.weight")).with(rename(&format!("**.{bias}"), "$1.bias"))
    }

    fn with_fused_projections(self) -> Mapping {
        let mapping = QKV_PARTS.iter().fold(self, |mapping, parts| {
            mapping.with(Rule::Fused { fused: known(FUSED_QKV), parts: parts.map(str::to_owned).to_vec() })
        });
        let parts = GATE_PARTS.iter().map(|&part| part.to_owned()).collect();
        mapping.with(Rule::Fused { fused: known(FUSED_GATE), parts })
    }
}

fn rename(pattern: &str, replacement: &str) -> Rule {
    Rule::Rename { pattern: known(pattern), replacement: replacement.to_owned(), unless_wanted: true }
}

fn skip(pattern: &str) -> Rule {
    Rule::Exclude { pattern: known(pattern), unless_wanted: true }
}

/// A pattern of this file.
///
/// # Panics
/// When it is invalid, which the tests exclude.
fn known(pattern: &str) -> Pattern {
    Pattern::new(pattern).unwrap_or_else(|error| panic!("[Mapping] {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_patterns_are_valid() {
        for mapping in [Mapping::pytorch(), Mapping::hugging_face(), Mapping::burn(), Mapping::flax()] {
            assert!(!mapping.rules.is_empty(), "{mapping:?}");
        }
    }
}
