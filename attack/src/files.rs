//! The attacks by files: templates, tokenizers, configurations, archives.

use std::fmt::Display;
use std::path::PathBuf;

use kiln_models::{BertConfig, Gpt2Config, LlamaConfig};
use kiln_store::numpy::{self, Archive, Compression};
use kiln_tensor::TensorData;
use kiln_text::{ChatTemplate, Message, RenderOptions, Tokenizer};

use crate::attack::Attack;

pub(crate) fn attacks() -> Vec<Attack> {
    let short = |name, seconds, megabytes, run| Attack { name, seconds, megabytes, short: true, run };
    let long = |name, seconds, megabytes, run| Attack { name, seconds, megabytes, short: false, run };
    vec![
        short("files/template_of_nots", 5, 200, template_of_nots),
        short("files/template_of_sums", 5, 200, template_of_sums),
        short("files/template_of_filters", 5, 200, template_of_filters),
        short("files/template_of_items_and_branches", 5, 200, template_of_items_and_branches),
        short("files/template_with_doubled_lists", 20, 400, template_with_doubled_lists),
        short("files/template_compares_shared_nesting", 20, 400, template_compares_shared_nesting),
        short("files/template_nests_deeply", 5, 200, template_nests_deeply),
        short("files/template_makes_long_text", 20, 600, template_makes_long_text),
        long("files/template_of_endless_loops", 60, 600, template_of_endless_loops),
        short("files/tokenizer_with_unknown_special_token", 5, 200, tokenizer_with_unknown_special_token),
        short("files/tokenizer_with_bad_charsmap", 5, 200, tokenizer_with_bad_charsmap),
        short("files/tokenizer_that_grows_text", 10, 200, tokenizer_that_grows_text),
        short("files/tokenizer_of_endless_words", 5, 200, tokenizer_of_endless_words),
        short("files/tokenizer_of_long_tokens", 5, 400, tokenizer_of_long_tokens),
        long("files/tokenizer_at_its_limits", 60, 600, tokenizer_at_its_limits),
        short("files/tokenizer_without_end", 5, 100, tokenizer_without_end),
        short("files/archive_of_zeros", 20, 300, archive_of_zeros),
        short("files/configurations_out_of_range", 5, 100, configurations_out_of_range),
    ]
}

/// An attack resists if it ends in an error whose text has one of these words.
fn refused<T>(result: Result<T, impl Display>, expected: &[&str]) -> Result<(), String> {
    match result {
        Ok(_) => Err("there was no error".to_owned()),
        Err(error) => {
            let message = error.to_string();
            match expected.iter().any(|text| message.contains(text)) {
                true => Ok(()),
                false => Err(format!("the error does not name the limit: {message}")),
            }
        }
    }
}

/// The words of errors that name a limit of templates.
const LIMITS: [&str; 4] = ["allowed", "limit", "too many", "nested"];

fn render(source: impl Into<String>) -> Result<(), String> {
    let rendered = ChatTemplate::new(source)
        .and_then(|template| template.render(&[Message::user("x")], &RenderOptions::default()));
    refused(rendered, &LIMITS)
}

/// At the longest that the limit of the source allows, and beyond.
fn template_of_nots() -> Result<(), String> {
    [60_000, 100_000].into_iter().try_for_each(|count| render(format!("{{{{ {}1 }}}}", "not ".repeat(count))))
}

fn template_of_sums() -> Result<(), String> {
    [120_000, 500_000].into_iter().try_for_each(|count| render(format!("{{{{ {}1 }}}}", "1+".repeat(count))))
}

fn template_of_filters() -> Result<(), String> {
    [40_000, 200_000]
        .into_iter()
        .try_for_each(|count| render(format!("{{{{ 1{} }}}}", "|upper".repeat(count))))
}

fn template_of_items_and_branches() -> Result<(), String> {
    for after in ["[0]", "()", ".a"] {
        render(format!("{{{{ a{} }}}}", after.repeat(60_000)))?;
    }
    render(format!("{{{{ {}1{} }}}}", "[".repeat(60_000), "]".repeat(60_000)))?;
    render(format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(20_000)))?;
    render("{% for a in b %}".repeat(10_000))
}

fn template_with_doubled_lists() -> Result<(), String> {
    let lists = "{% set x = [0] %}".to_owned() + &"{% set x = [x, x] %}".repeat(60) + "{{ x }}";
    render(lists)?;
    let grow = |step: &str| {
        format!(
            "{{% set ns = namespace(s=[1]) %}}{{% for a in range(99) %}}{{% set ns.s = {step} %}}{{% endfor %}}"
        )
    };
    ["ns.s + ns.s", "ns.s * 2", "[ns.s, ns.s]", "ns.s ~ ns.s"]
        .into_iter()
        .try_for_each(|step| render(grow(step)))
}

/// Two equal lists of 2^60 numbers, each a few lists that contain the next twice.
fn template_compares_shared_nesting() -> Result<(), String> {
    let uses = [
        "{{ x == y }}",
        "{{ x in [y] }}",
        "{{ {x: 1}[y] }}",
        "{{ [x, y]|sort }}",
        "{{ x|upper }}",
        "{{ [x].count(y) }}",
    ];
    uses.into_iter().try_for_each(|use_them| {
        render(format!(
            "{{% macro f(n, x, y) %}}{{% if n %}}{{{{ f(n - 1, [x, x], [y, y]) }}}}{{% else %}}{use_them}{{% endif %}}\
             {{% endmacro %}}{{{{ f(60, 0, 0) }}}}"
        ))
    })
}

fn template_nests_deeply() -> Result<(), String> {
    for step in ["[ns.s]", "{'a': ns.s}", "namespace(s=ns.s)"] {
        render(format!(
            "{{% set ns = namespace(s=[]) %}}{{% for a in range(99999) %}}{{% set ns.s = {step} %}}{{% endfor %}}"
        ))?;
    }
    refused(
        ChatTemplate::new("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")
            .and_then(|template| template.render(&[], &RenderOptions::default())),
        &LIMITS,
    )
}

fn template_makes_long_text() -> Result<(), String> {
    let sources = [
        "{{ 'x' * 10000000000 }}",
        "{{ ('x' * 100000)|replace('', 'y' * 100000) }}",
        "{{ ('x' * 100000).replace('', 'y' * 100000) }}",
        "{{ '{:>1000000000000}'.format(1) }}",
        "{{ '%1000000000000s' % 1 }}",
        "{{ [1]|batch(1000000000000, 0)|list }}",
        "{{ range(100000)|join('x' * 100000) }}",
    ];
    sources.into_iter().try_for_each(render)
}

fn template_of_endless_loops() -> Result<(), String> {
    let body = "{% for a in range(99999) %}{% for b in range(99999) %}BODY{% endfor %}{% endfor %}";
    ["", "x", "{{ messages|tojson }}", "{{ [a, b]|sort }}"]
        .into_iter()
        .try_for_each(|text| render(body.replace("BODY", text)))
}

/// A `tokenizer.json` of WordPiece, with fields after those that every file has.
fn tokenizer(fields: &str) -> kiln_text::Result<Tokenizer> {
    let model = match fields.contains("\"model\"") {
        true => "",
        false => {
            r###""model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100, "vocab": {"[UNK]": 0, "a": 1, "##a": 2}},"###
        }
    };
    Tokenizer::from_bytes(format!(r#"{{{model} "version": "1.0", "added_tokens": [], {fields}}}"#))
}

fn tokenizer_with_unknown_special_token() -> Result<(), String> {
    let template = r#""post_processor": {"type": "TemplateProcessing", "pair": [],
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}], "special_tokens": {}}"#;
    refused(tokenizer(template), &["invalid tokenizer"])
}

fn tokenizer_with_bad_charsmap() -> Result<(), String> {
    for charsmap in ["/////w==", "BAAAAP////8=", "AAAAAA==", "AAAA"] {
        let step =
            format!(r#""normalizer": {{"type": "Precompiled", "precompiled_charsmap": "{charsmap}"}}"#);
        refused(tokenizer(&step), &["invalid tokenizer"])?;
    }
    Ok(())
}

fn tokenizer_that_grows_text() -> Result<(), String> {
    let step = r#"{"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}"#;
    let steps = vec![step; 60].join(",");
    let sequence = format!(r#""normalizer": {{"type": "Sequence", "normalizers": [{steps}]}}"#);
    refused(tokenizer(&sequence), &["allowed"])?;
    let long = "b".repeat(1 << 20);
    let step =
        format!(r#""normalizer": {{"type": "Replace", "pattern": {{"String": "a"}}, "content": "{long}"}}"#);
    refused(tokenizer(&step), &["allowed"])
}

fn tokenizer_of_endless_words() -> Result<(), String> {
    let model = r###""model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
        "max_input_chars_per_word": 4611686018427387904, "vocab": {"[UNK]": 0, "a": 1, "##a": 2}}"###;
    refused(tokenizer(model), &["max_input_chars_per_word"])
}

fn unigram(lengths: impl Iterator<Item = usize>) -> kiln_text::Result<Tokenizer> {
    let tokens: Vec<String> = lengths.map(|length| format!(r#"["{}", -1.0]"#, "a".repeat(length))).collect();
    let tokens = tokens.join(",");
    tokenizer(&format!(r#""model": {{"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], {tokens}]}}"#))
}

fn tokenizer_of_long_tokens() -> Result<(), String> {
    refused(unigram(1..=3000), &["allowed"])?;
    refused(unigram(1..=256), &["allowed"])?;
    // The library would drop a node for each byte, one inside the other.
    refused(unigram(std::iter::once(1 << 22)), &["allowed"])
}

/// The slowest tokenizer that is accepted, with 1 MB of text.
fn tokenizer_at_its_limits() -> Result<(), String> {
    let text = "a".repeat(1_000_000);
    let tokenizer = unigram(1..=89).map_err(|error| error.to_string())?;
    tokenizer.encode(&text, true).map(drop).map_err(|error| error.to_string())
}

fn tokenizer_without_end() -> Result<(), String> {
    refused(Tokenizer::from_file(PathBuf::from("/dev/zero")), &["no regular file"])
}

/// An archive of 1 MiB whose arrays are a hundred times as big as its limit.
fn archive_of_zeros() -> Result<(), String> {
    let named = (0..8).map(|index| (format!("x{index}"), TensorData::from(vec![0u8; 16 << 20])));
    let bytes = numpy::archive_to_bytes(named, Compression::Deflated).map_err(|error| error.to_string())?;
    let archive = Archive::from_bytes(bytes).map_err(|error| error.to_string())?.with_max_bytes(64 << 20);
    refused(archive.read("x0"), &["more than the 67108864 allowed"])
}

fn configurations_out_of_range() -> Result<(), String> {
    let llama = r#"{"model_type": "llama", "vocab_size": 8, "hidden_size": 8, "intermediate_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2, "FIELD": VALUE}"#;
    let of = |config: &str, field: &str, value: &str| config.replace("FIELD", field).replace("VALUE", value);
    for (field, value) in
        [("rope_theta", "0"), ("rope_theta", "-1"), ("rms_norm_eps", "-1"), ("head_dim", "0")]
    {
        refused(LlamaConfig::from_hugging_face(&of(llama, field, value)), &[field])?;
    }
    let scaling = r#"{"rope_type": "linear", "factor": 0}"#;
    refused(LlamaConfig::from_hugging_face(&of(llama, "rope_scaling", scaling)), &["factor"])?;
    let gpt2 = r#"{"vocab_size": 8, "n_embd": 8, "n_layer": 1, "n_head": 2, "FIELD": VALUE}"#;
    refused(Gpt2Config::from_hugging_face(&of(gpt2, "layer_norm_epsilon", "-1")), &["layer_norm_epsilon"])?;
    let bert = llama.replace("llama", "bert");
    refused(BertConfig::from_hugging_face(&of(&bert, "layer_norm_eps", "-1")), &["layer_norm_eps"])
}
