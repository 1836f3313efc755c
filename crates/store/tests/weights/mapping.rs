//! Mappings of names and layouts, partial loads and reports.

use kiln_backends::Flex;
use kiln_nn::attention::{MultiHeadAttention, MultiHeadAttentionConfig};
use kiln_nn::{Linear, LinearConfig, Module, Param};
use kiln_store::gguf::{self, GgufTensor, Metadata};
use kiln_store::{DTypePolicy, LoadOptions, Mapping, StoreError, TypeMismatch, Weights, load_module_from};
use kiln_tensor::{Backend, BlockFormat, DType, Int, Tensor, TensorData};

use crate::weights::{ramp, values, weights};

fn names(weights: &Weights, mapping: &Mapping) -> Vec<String> {
    weights.mapped(mapping).unwrap().names().into_iter().map(str::to_owned).collect()
}

#[test]
fn renames_and_filters_apply_in_order() {
    let weights = weights(["a.0.x", "a.1.x", "a.1.y", "b.x", "c"].map(|name| (name, ramp(0.0, &[2]))));
    let mapping = Mapping::new().rename("a.*.**", "blocks.${1}_$2").unwrap();
    assert_eq!(names(&weights, &mapping), ["blocks.0_x", "blocks.1_x", "blocks.1_y", "b.x", "c"]);
    let mapping = mapping.include("blocks.**").unwrap().include("c").unwrap().exclude("**.*y").unwrap();
    assert_eq!(names(&weights, &mapping), ["blocks.0_x", "blocks.1_x", "c"]);
    let mapping =
        mapping.rename_prefix("blocks.", "").rename_with(|name| (name != "c").then(|| name.to_uppercase()));
    assert_eq!(names(&weights, &mapping), ["0_X", "1_X"]);
    let error = weights.mapped(&Mapping::new().rename("a.*.x", "a.x").unwrap()).unwrap_err();
    assert!(matches!(error, StoreError::Duplicate { name, .. } if name == "a.x"));
}

/// Patterns are those of parameter groups and of LoRA's targets.
#[test]
fn regular_expressions_are_refused_with_the_remedy() {
    for mapping in [
        Mapping::new().rename(r"^encoder\.", "layers."),
        Mapping::new().include(r"\.bias$"),
        Mapping::new().tie("(lm_head|head)", "x"),
    ] {
        let error = mapping.unwrap_err().to_string();
        assert!(error.contains("no regular expression") && error.contains("`encoder.**`"), "{error}");
    }
    for mapping in [
        Mapping::new().rename("encoder.**", "layers.$2"),
        Mapping::new().split("qkv.*", 0, &["q.$1", "k.$2"]),
        Mapping::new().concat("q.*", 0, &["k.$1"], "qk.$name"),
        Mapping::new().tie("head", "$1"),
    ] {
        let error = mapping.unwrap_err().to_string();
        assert!(error.contains("`$1` is the text of the first"), "{error}");
    }
}

#[test]
fn tensors_are_transposed_split_and_joined() {
    let weights = weights([
        ("fused", ramp(0.0, &[6, 2])),
        ("bias", ramp(0.0, &[6])),
        ("m", ramp(0.0, &[2, 3])),
        ("left", ramp(0.0, &[2, 2])),
        ("right", ramp(10.0, &[2, 1])),
    ]);
    let mapping = Mapping::new()
        .transpose("{m,bias}")
        .and_then(|mapping| mapping.split("{fused,bias}", 0, &["q.$1", "k.$1", "v.$1"]))
        .and_then(|mapping| mapping.concat("left", 1, &["right"], "both"))
        .unwrap();
    let mapped = weights.mapped(&mapping).unwrap();
    let read = |name: &str| mapped.read(name).unwrap();
    let expected = ["q.bias", "k.bias", "v.bias", "q.fused", "k.fused", "v.fused", "both", "m"];
    assert_eq!(mapped.names(), expected);
    assert_eq!(read("k.fused"), ramp(4.0, &[2, 2]));
    assert_eq!(read("v.bias"), ramp(4.0, &[2]));
    assert_eq!(read("m"), TensorData::from([[0.0f32, 3.0], [1.0, 4.0], [2.0, 5.0]]));
    assert_eq!(read("both"), TensorData::from([[0.0f32, 1.0, 10.0], [2.0, 3.0, 11.0]]));
    assert_eq!(mapped.info("both").unwrap().shape.to_vec(), [2, 3]);

    let error = weights.mapped(&Mapping::new().split("m", 1, &["a", "b"]).unwrap()).unwrap_err().to_string();
    assert!(error.contains("mapping of `m`: axis 1 of the shape [2, 3] has no 2 equal parts"), "{error}");
    let error = weights.mapped(&Mapping::new().concat("m", 0, &["n"], "x").unwrap()).unwrap_err();
    assert!(matches!(error, StoreError::NotFound { name, .. } if name == "n"));
    let error = weights.mapped(&Mapping::new().concat("m", 1, &["fused"], "x").unwrap()).unwrap_err();
    assert!(error.to_string().contains("cannot be joined"), "{error}");
}

/// A large matrix crosses the tiles of the transposition.
#[test]
fn every_element_of_a_transposition_is_in_its_place() {
    let (rows, columns) = (70, 45);
    for dtype in [DType::F64, DType::F32, DType::F16, DType::U8] {
        let data = TensorData::new(
            (0..rows * columns).map(|i| (i % 251) as f32).collect::<Vec<f32>>(),
            [rows, columns],
        );
        let data = data.unwrap().convert(dtype);
        let weights = weights([("m", data.clone())]).mapped(&Mapping::new().transpose("m").unwrap()).unwrap();
        let (from, to) = (data.convert(DType::F32), weights.read("m").unwrap().convert(DType::F32));
        let (from, to) = (from.to_vec::<f32>(), to.to_vec::<f32>());
        for row in 0..rows {
            for column in 0..columns {
                assert_eq!(to[column * rows + row], from[row * columns + column]);
            }
        }
    }
}

#[derive(Debug, Module)]
struct Attention<B: Backend> {
    q_proj: Linear<B>,
    k_proj: Linear<B>,
    v_proj: Linear<B>,
    c_proj: Linear<B>,
}

#[derive(Debug, Module)]
struct Gpt<B: Backend> {
    wte: Param<Tensor<B, 2>>,
    h: Vec<Attention<B>>,
    lm_head: Linear<B>,
}

fn gpt() -> Gpt<Flex> {
    let device = Default::default();
    let linear = |bias| LinearConfig::new(2, 2).with_bias(bias).init(&device);
    let block =
        Attention { q_proj: linear(true), k_proj: linear(true), v_proj: linear(true), c_proj: linear(true) };
    let head = LinearConfig::new(2, 3).with_bias(false).init(&device);
    Gpt { wte: Param::from_tensor(Tensor::zeros([3, 2], &device)), h: vec![block], lm_head: head }
}

fn load(
    module: &mut dyn Module,
    weights: &Weights,
    mapping: Mapping,
) -> kiln_store::Result<kiln_store::LoadReport> {
    load_module_from(module, weights.source(), &LoadOptions::new().mapping(mapping))
}

/// Names, shapes and buffers of GPT-2 in `transformers`: `Conv1D` weights are `[in, out]`.
#[test]
fn gpt2_of_hugging_face() {
    let weights = weights([
        ("transformer.wte.weight", ramp(0.0, &[3, 2])),
        ("transformer.h.0.attn.bias", ramp(0.0, &[1, 1, 4, 4])),
        ("transformer.h.0.attn.masked_bias", TensorData::scalar(-1e4f32)),
        ("transformer.h.0.attn.c_attn.weight", ramp(0.0, &[2, 6])),
        ("transformer.h.0.attn.c_attn.bias", ramp(0.0, &[6])),
        ("transformer.h.0.attn.c_proj.weight", ramp(20.0, &[2, 2])),
        ("transformer.h.0.attn.c_proj.bias", ramp(0.0, &[2])),
    ]);
    let mapping = Mapping::new()
        .rename("**.attn.c_*.**", "$1.c_$2.$3")
        .and_then(|mapping| mapping.rename("**.wte.weight", "$1.wte"))
        .map(|mapping| mapping.then(Mapping::hugging_face()))
        .and_then(|mapping| mapping.tie("lm_head.weight", "wte"))
        .unwrap();
    let mut gpt = gpt();
    let report = load(&mut gpt, &weights, mapping).unwrap();
    assert!(report.missing.is_empty(), "{report}");
    assert_eq!(report.unexpected, ["transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"]);
    let values = values(&gpt);
    assert_eq!(values["h.0.q_proj.weight"], TensorData::from([[0.0f32, 6.0], [1.0, 7.0]]));
    assert_eq!(values["h.0.v_proj.weight"], TensorData::from([[4.0f32, 10.0], [5.0, 11.0]]));
    assert_eq!(values["h.0.k_proj.bias"], TensorData::from([2.0f32, 3.0]));
    assert_eq!(values["h.0.c_proj.weight"], TensorData::from([[20.0f32, 22.0], [21.0, 23.0]]));
    assert_eq!(values["lm_head.weight"], values["wte"]);
}

/// A `c_proj` that is a linear layer, as in GPT-BigCode, is not transposed.
#[test]
fn only_files_with_conv1d_are_transposed() {
    let weights = weights([("a.c_attn.weight", ramp(0.0, &[6, 2])), ("a.c_proj.weight", ramp(0.0, &[2, 2]))]);
    let mapped = weights.mapped(&Mapping::hugging_face()).unwrap();
    assert_eq!(mapped.read("a.c_proj.weight").unwrap(), ramp(0.0, &[2, 2]));
}

#[test]
fn prefixes_that_most_names_have_are_stripped() {
    let plain = |names: &[&'static str]| weights(names.iter().map(|&name| (name, ramp(0.0, &[2]))));
    let parallel = plain(&["module._orig_mod.fc.weight", "module._orig_mod.fc.bias"]);
    assert_eq!(names(&parallel, &Mapping::pytorch()), ["fc.bias", "fc.weight"]);
    let few = plain(&["model.x", "y", "z"]);
    assert_eq!(names(&few, &Mapping::hugging_face()), ["model.x", "y", "z"]);
    let head = plain(&["bert.a", "bert.LayerNorm.gamma", "bert.LayerNorm.beta", "cls.bias"]);
    let expected = ["LayerNorm.bias", "LayerNorm.weight", "a", "cls.bias"];
    assert_eq!(names(&head, &Mapping::hugging_face()), expected);
    // The names of the module decide.
    #[derive(Debug, Module)]
    struct Wrapped<B: Backend> {
        model: Linear<B>,
    }
    let weights = weights([("model.weight", ramp(0.0, &[2, 2])), ("model.bias", ramp(0.0, &[2]))]);
    let mut wrapped = Wrapped { model: LinearConfig::new(2, 2).init::<Flex>(&Default::default()) };
    assert_eq!(
        load(&mut wrapped, &weights, Mapping::hugging_face()).unwrap().loaded,
        ["model.bias", "model.weight"]
    );
    let mut linear = LinearConfig::new(2, 2).init::<Flex>(&Default::default());
    assert_eq!(load(&mut linear, &weights, Mapping::hugging_face()).unwrap().loaded, ["bias", "weight"]);
}

#[test]
fn projections_are_joined_for_attention_with_one_matrix() {
    let attention =
        || -> MultiHeadAttention<Flex> { MultiHeadAttentionConfig::new(2, 1).init(&Default::default()) };
    let part = |start| ramp(start, &[2, 2]);
    let separate = weights([
        ("q_proj.weight", part(0.0)),
        ("k_proj.weight", part(10.0)),
        ("v_proj.weight", part(20.0)),
        ("q_proj.bias", ramp(0.0, &[2])),
        ("k_proj.bias", ramp(2.0, &[2])),
        ("v_proj.bias", ramp(4.0, &[2])),
        ("out_proj.weight", part(30.0)),
        ("out_proj.bias", ramp(0.0, &[2])),
    ]);
    let mut module = attention();
    load(&mut module, &separate, Mapping::pytorch()).unwrap();
    let joined = [0.0f32, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 13.0, 20.0, 21.0, 22.0, 23.0];
    assert_eq!(values(&module)["in_proj_weight"].to_vec::<f32>(), joined);
    assert_eq!(values(&module)["in_proj_bias"], ramp(0.0, &[6]));

    let burn = weights([
        ("query.weight", part(0.0)),
        ("key.weight", part(10.0)),
        ("value.weight", part(20.0)),
        ("query.bias", ramp(0.0, &[2])),
        ("key.bias", ramp(2.0, &[2])),
        ("value.bias", ramp(4.0, &[2])),
        ("output.weight", part(30.0)),
        ("output.bias", ramp(0.0, &[2])),
    ]);
    let mut module = attention();
    load(&mut module, &burn, Mapping::burn()).unwrap();
    let joined = [0.0f32, 2.0, 1.0, 3.0, 10.0, 12.0, 11.0, 13.0, 20.0, 22.0, 21.0, 23.0];
    assert_eq!(values(&module)["in_proj_weight"].to_vec::<f32>(), joined);
    assert_eq!(values(&module)["out_proj.weight"].to_vec::<f32>(), [30.0, 32.0, 31.0, 33.0]);
}

#[test]
fn a_partial_load_reports_all_differences() {
    let weights = weights([
        ("weight", ramp(0.0, &[2, 2])),
        ("bais", ramp(0.0, &[2])),
        ("other", ramp(0.0, &[1])),
        ("ignored", ramp(0.0, &[1])),
    ]);
    let mut linear = LinearConfig::new(2, 2).init::<Flex>(&Default::default());
    let mapping = Mapping::new().exclude("ignored").unwrap();
    let options = LoadOptions::new().mapping(mapping).partial();
    let report = load_module_from(&mut linear, weights.source(), &options).unwrap();
    assert_eq!(report.loaded, ["weight"]);
    assert_eq!(report.missing, ["bias"]);
    assert_eq!(report.unexpected, ["ignored", "bais", "other"]);
    assert_eq!(
        report.to_string(),
        "loaded 1 of 2 parameters and buffers\n  missing in the file:\n    `bias` (there is `bais`)\n  \
         unused:\n    `ignored`\n    `bais`\n    `other`"
    );
    let mut wide = LinearConfig::new(3, 2).init::<Flex>(&Default::default());
    let before = values(&wide);
    let report = load_module_from(&mut wide, weights.source(), &options).unwrap();
    let [TypeMismatch { name, expected, found }] = report.mismatched.as_slice() else { panic!("{report}") };
    assert_eq!(
        (name.as_str(), expected.shape.to_vec(), found.shape.to_vec()),
        ("weight", vec![2, 3], vec![2, 2])
    );
    assert!(
        report.to_string().contains("`weight` is f32[2, 3] in the module, f32[2, 2] in the file"),
        "{report}"
    );
    assert_eq!(values(&wide), before);
    let strict = load_module_from(
        &mut wide,
        weights.source(),
        &LoadOptions::new().allow_missing(true).allow_unexpected(true),
    );
    assert!(matches!(strict, Err(StoreError::Mismatch { .. })));
}

/// The names of the module and of the file are told apart, also after a rename.
#[test]
fn a_mismatch_names_both_sides() {
    let load = |names: [&'static str; 2], mapping: Mapping| {
        let weights =
            weights(names.map(|name| (name, ramp(0.0, if name.ends_with("bias") { &[2] } else { &[2, 2] }))));
        let mut linear = LinearConfig::new(2, 2).init::<Flex>(&Default::default());
        load_module_from(&mut linear, weights.source(), &LoadOptions::new().mapping(mapping))
            .unwrap_err()
            .to_string()
    };
    let error = load(["weight", "bais"], Mapping::new());
    let expected = "missing in the file:\n    `bias` (there is `bais`)\n  \
                    unknown to the module:\n    `bais` (the module has `bias`)\n  hint";
    assert!(error.contains(expected), "{error}");
    let error = load(["weight", "bias"], Mapping::new().rename("bias", "bais").unwrap());
    let expected = "missing in the file:\n    `bias` (there is `bais`)\n  \
                    unknown to the module:\n    `bais`, which is `bias` in the file (the module has `bias`)\n  hint";
    assert!(error.contains(expected), "{error}");
    let error = load(["weight", "bais"], Mapping::new().rename("baiz", "bias").unwrap());
    let expected = "rules of the mapping that match no tensor:\n    rename `baiz` to `bias`\n  hint";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn rules_that_match_nothing_are_reported() {
    let weights = weights([("weight", ramp(0.0, &[2, 2])), ("bias", ramp(0.0, &[2]))]);
    let mut linear = LinearConfig::new(2, 2).init::<Flex>(&Default::default());
    let mapping = Mapping::hugging_face()
        .then(Mapping::pytorch().then(Mapping::burn()).then(Mapping::flax()))
        .rename_with(|name| Some(name.to_owned()))
        .transpose_conv1d()
        .rename("wait", "weight")
        .and_then(|mapping| mapping.rename("weight", "w")?.rename("w", "weight")?.exclude("head.**"))
        .and_then(|mapping| mapping.include("weight")?.include("bias")?.include("norm.**"))
        .and_then(|mapping| {
            mapping.transpose("**.kernel")?.split("qkv", 0, &["q", "k"])?.concat("q", 0, &["k"], "qk")
        })
        .and_then(|mapping| mapping.tie("bias", "weight")?.tie("lm_head", "weight"))
        .unwrap()
        .rename_prefix("module.", "");
    let report =
        load_module_from(&mut linear, weights.source(), &LoadOptions::new().mapping(mapping.clone()))
            .unwrap();
    let expected = [
        "rename `wait` to `weight`",
        "exclude `head.**`",
        "include `norm.**`",
        "transpose `**.kernel`",
        "split `qkv` along 0 into [\"q\", \"k\"]",
        "join `q` and [\"k\"] along 0 to `qk`",
        "tie `lm_head` to `weight`",
        "rename the prefix `module.` to ``",
    ];
    assert_eq!(report.unmatched, expected);
    assert!(
        report.to_string().contains("rules of the mapping that match no tensor:\n    rename `wait`"),
        "{report}"
    );
    // Without a module, a tie has nothing to match.
    let without_ties: Vec<&str> = expected.into_iter().filter(|rule| !rule.starts_with("tie")).collect();
    assert_eq!(mapping.unmatched(&weights).unwrap(), without_ties);

    let optional = mapping.optional().include("bias").and_then(|mapping| mapping.exclude("none")).unwrap();
    assert_eq!(optional.unmatched(&weights).unwrap(), ["exclude `none`"]);
    // A pattern after `optional` is in the same list as those before.
    let mapping =
        Mapping::new().include("a").unwrap().optional().include("b*").unwrap().include("c").unwrap();
    assert_eq!(mapping.unmatched(&weights).unwrap(), ["include `c`"]);
    assert_eq!(names(&weights, &mapping), ["bias"]);
}

/// A layer of quantised blocks.
#[derive(Debug, Module)]
struct Blocks<B: Backend> {
    weight: Param<Tensor<B, 2, Int>>,
    #[module(attribute)]
    format: BlockFormat,
}

fn blocks(format: BlockFormat) -> Blocks<Flex> {
    let zeros = TensorData::new(vec![0u8; 2 * 36], [2, 36]).unwrap();
    Blocks { weight: Param::buffer(Tensor::from_data_dtype(zeros, DType::U8, &Default::default())), format }
}

#[test]
fn blocks_are_loaded_as_they_are_or_dequantised() {
    let format = BlockFormat::Q4_0;
    let values_of = |row: usize| (0..64).map(move |i| ((i + row * 7) as f32 * 0.2).sin());
    let plain: Vec<f32> = values_of(0).chain(values_of(1)).collect();
    let mut bytes = vec![0; 72];
    format.encode(&plain, &mut bytes);
    let file = |name: &str| {
        let tensor = GgufTensor::blocks(bytes.clone(), format, [2, 64]);
        Weights::from_bytes(gguf::to_bytes(&Metadata::new(), [(name.to_owned(), tensor)]).unwrap()).unwrap()
    };
    let mut module = blocks(format);
    let report = load(&mut module, &file("weight"), Mapping::new()).unwrap();
    assert_eq!((report.loaded.as_slice(), report.cast.len()), (&["weight".to_owned()][..], 0));
    assert_eq!(values(&module)["weight"].to_vec::<u8>(), bytes);
    // IQ4_NL has blocks of the same size.
    let error =
        load(&mut blocks(BlockFormat::IQ4_NL), &file("weight"), Mapping::new()).unwrap_err().to_string();
    assert!(error.contains("has blocks of q4_0, but the layer is for iq4_nl"), "{error}");

    let mut linear = LinearConfig::new(64, 2).with_bias(false).init::<Flex>(&Default::default());
    load(&mut linear, &file("weight"), Mapping::new()).unwrap();
    let mut expected = vec![0.0; 128];
    format.decode(&bytes, &mut expected);
    assert_eq!(values(&linear)["weight"].to_vec::<f32>(), expected);
    let options = LoadOptions::new().dtype(DTypePolicy::Cast).copy(true);
    load_module_from(&mut linear, file("weight").source(), &options).unwrap();

    // Rows of blocks stay blocks in slices; a transposition dequantises.
    let parts = file("w").mapped(&Mapping::new().split("w", 0, &["a", "b"]).unwrap()).unwrap();
    assert_eq!(parts.info("b").unwrap().blocks, Some(format));
    assert_eq!(parts.read("b").unwrap().to_vec::<f32>(), expected[64..]);
    let joined = parts.mapped(&Mapping::new().concat("a", 0, &["b"], "c").unwrap()).unwrap();
    assert_eq!(joined.info("c").unwrap().blocks, Some(format));
    assert_eq!(joined.read("c").unwrap().to_vec::<f32>(), expected);
    let transposed = file("w").mapped(&Mapping::new().transpose("w").unwrap()).unwrap();
    let info = transposed.info("w").unwrap();
    assert_eq!((info.blocks, info.dtype, info.shape.to_vec()), (None, Some(DType::F32), vec![64, 2]));
    assert_eq!(transposed.read("w").unwrap().to_vec::<f32>()[..2], [expected[0], expected[64]]);
}
