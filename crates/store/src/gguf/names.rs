//! Names of tensors in llama.cpp and in Hugging Face's checkpoints.

/// An architecture that both llama.cpp and Hugging Face have.
pub(super) struct Architecture {
    /// `general.architecture` in GGUF.
    pub(super) gguf: &'static str,
    /// `model_type` in `config.json`. The first one is the default.
    pub(super) model_types: &'static [&'static str],
    /// The class of the model in `architectures` of `config.json`.
    pub(super) class: &'static str,
    /// The prefix of most names in checkpoints of the class. Checkpoints of the base model lack it.
    base: &'static str,
    /// Names in GGUF and in checkpoints, without the last part (`weight`, `bias`). `{}` is the index of the layer.
    names: &'static [(&'static str, &'static str)],
    /// Whether llama.cpp interleaves the rows of each head of the query and key projections.
    pub(super) interleaved: bool,
    /// Whether the scales of the RMS norms have 1 added.
    pub(super) one_plus_norms: bool,
    /// Whether checkpoints store the weights of linear layers as `[inputs, outputs]`.
    pub(super) transposed: bool,
}

const LLAMA: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    ("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
    ("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
];

/// Gemma 2 and 3 have a norm before and after each of attention and feed-forward network.
const GEMMA2: &[(&str, &str)] = &[
    ("token_embd", "model.embed_tokens"),
    ("output_norm", "model.norm"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
    ("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
    ("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
    ("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
    ("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
    ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
    ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
    ("blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"),
    ("blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"),
    ("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
    ("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
    ("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
    ("blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"),
];

const GPT2: &[(&str, &str)] = &[
    ("token_embd", "transformer.wte"),
    ("position_embd", "transformer.wpe"),
    ("output_norm", "transformer.ln_f"),
    ("output", "lm_head"),
    ("blk.{}.attn_norm", "transformer.h.{}.ln_1"),
    ("blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn"),
    ("blk.{}.attn_output", "transformer.h.{}.attn.c_proj"),
    ("blk.{}.ffn_norm", "transformer.h.{}.ln_2"),
    ("blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc"),
    ("blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj"),
];

const BERT: &[(&str, &str)] = &[
    ("token_embd", "embeddings.word_embeddings"),
    ("token_embd_norm", "embeddings.LayerNorm"),
    ("token_types", "embeddings.token_type_embeddings"),
    ("position_embd", "embeddings.position_embeddings"),
    ("blk.{}.attn_q", "encoder.layer.{}.attention.self.query"),
    ("blk.{}.attn_k", "encoder.layer.{}.attention.self.key"),
    ("blk.{}.attn_v", "encoder.layer.{}.attention.self.value"),
    ("blk.{}.attn_output", "encoder.layer.{}.attention.output.dense"),
    ("blk.{}.attn_output_norm", "encoder.layer.{}.attention.output.LayerNorm"),
    ("blk.{}.ffn_up", "encoder.layer.{}.intermediate.dense"),
    ("blk.{}.ffn_down", "encoder.layer.{}.output.dense"),
    ("blk.{}.layer_output_norm", "encoder.layer.{}.output.LayerNorm"),
];

const fn llama_family(
    gguf: &'static str,
    model_types: &'static [&'static str],
    class: &'static str,
) -> Architecture {
    Architecture {
        gguf,
        model_types,
        class,
        base: "model.",
        names: LLAMA,
        interleaved: false,
        one_plus_norms: false,
        transposed: false,
    }
}

const ARCHITECTURES: &[Architecture] = &[
    // llama.cpp has no architecture of its own for Mistral.
    Architecture { interleaved: true, ..llama_family("llama", &["llama", "mistral"], "LlamaForCausalLM") },
    Architecture { interleaved: true, ..llama_family("smollm3", &["smollm3"], "SmolLM3ForCausalLM") },
    llama_family("qwen2", &["qwen2"], "Qwen2ForCausalLM"),
    llama_family("qwen3", &["qwen3"], "Qwen3ForCausalLM"),
    Architecture { one_plus_norms: true, ..llama_family("gemma", &["gemma"], "GemmaForCausalLM") },
    Architecture {
        one_plus_norms: true,
        names: GEMMA2,
        ..llama_family("gemma2", &["gemma2"], "Gemma2ForCausalLM")
    },
    Architecture {
        one_plus_norms: true,
        names: GEMMA2,
        ..llama_family("gemma3", &["gemma3_text", "gemma3"], "Gemma3ForCausalLM")
    },
    Architecture {
        base: "transformer.",
        names: GPT2,
        transposed: true,
        ..llama_family("gpt2", &["gpt2"], "GPT2LMHeadModel")
    },
    Architecture { base: "", names: BERT, ..llama_family("bert", &["bert"], "BertModel") },
];

/// Prefixes of a language model within a larger one, which GGUF files do not have.
const WRAPPERS: &[&str] = &["bert.", "language_model."];

/// The architecture of that name in GGUF.
pub(super) fn architecture(gguf: &str) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().find(|architecture| architecture.gguf == gguf)
}

/// The names in GGUF of all architectures, for messages.
pub(super) fn supported() -> String {
    let names: Vec<&str> = ARCHITECTURES.iter().map(|architecture| architecture.gguf).collect();
    names.join(", ")
}

/// Returns the name in llama.cpp of an architecture: `llama` for the `model_type` `mistral` of Hugging Face. `None` if
/// Kiln does not know the architecture.
pub fn architecture_of(model_type: &str) -> Option<&'static str> {
    let found = ARCHITECTURES.iter().find(|architecture| architecture.model_types.contains(&model_type));
    found.map(|architecture| architecture.gguf)
}

/// Returns the name of a tensor in Hugging Face's checkpoints. `architecture` is `general.architecture` of the file.
///
/// Known architectures: `llama` (also Mistral and SmolLM), `smollm3`, `qwen2`, `qwen3`, `gemma`, `gemma2`, `gemma3`,
/// `gpt2` and `bert`. `None` for other architectures, and for tensors that checkpoints do not have (`rope_freqs.weight`).
///
/// The elements may differ in order or value; see [`conversion`](super::conversion).
///
/// ```
/// use kiln_store::gguf::{gguf_name, hugging_face_name};
///
/// let name = hugging_face_name("llama", "blk.3.attn_q.weight");
/// assert_eq!(name.as_deref(), Some("model.layers.3.self_attn.q_proj.weight"));
/// assert_eq!(gguf_name("llama", &name.unwrap()).as_deref(), Some("blk.3.attn_q.weight"));
/// ```
pub fn hugging_face_name(architecture: &str, name: &str) -> Option<String> {
    let names = self::architecture(architecture)?.names;
    translate(name, names.iter().map(|&(gguf, hugging_face)| (gguf, hugging_face)))
}

/// Returns the name of a tensor in GGUF, the inverse of [`hugging_face_name`]. Names of the base model (`layers.0.…`
/// without `model.`) and of a model within another (`bert.…`, `language_model.…`) have the same result.
pub fn gguf_name(architecture: &str, name: &str) -> Option<String> {
    let architecture = self::architecture(architecture)?;
    let inner = WRAPPERS.iter().find_map(|wrapper| name.strip_prefix(wrapper)).unwrap_or(name);
    let names = || architecture.names.iter().map(|&(gguf, hugging_face)| (hugging_face, gguf));
    translate(inner, names()).or_else(|| translate(&format!("{}{inner}", architecture.base), names()))
}

/// Replaces all but the last part of a name by a table of patterns.
fn translate(name: &str, mut patterns: impl Iterator<Item = (&'static str, &'static str)>) -> Option<String> {
    let (stem, last) = name.rsplit_once('.')?;
    let found = patterns.find_map(|(from, to)| match from.split_once("{}") {
        Some((before, after)) => {
            let index = stem.strip_prefix(before)?.strip_suffix(after)?;
            let is_index = !index.is_empty() && index.bytes().all(|digit| digit.is_ascii_digit());
            is_index.then(|| to.replace("{}", index))
        }
        None => (stem == from).then(|| to.to_owned()),
    });
    Some(format!("{}.{last}", found?))
}
