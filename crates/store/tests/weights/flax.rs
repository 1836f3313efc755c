//! Files of `flax.serialization`.

use kiln_backends::Flex;
use kiln_nn::conv::{Conv2d, Conv2dConfig};
use kiln_nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig, Module};
use kiln_store::flax::FlaxFile;
use kiln_store::{
    DTypePolicy, LoadOptions, Mapping, StoreError, TensorContents, TensorSource, WeightFormat,
    load_module_with,
};
use kiln_tensor::{Backend, DType, TensorData};

use crate::weights::{fixture, values};

fn quarters(count: usize) -> Vec<f32> {
    (0..count).map(|i| i as f32 / 4.0 - 1.0).collect()
}

fn read(file: &FlaxFile, name: &str) -> TensorData {
    file.contents(name).unwrap().into_data().unwrap()
}

#[test]
fn arrays_have_dotted_names() {
    let file = FlaxFile::open(fixture("flax/net.msgpack")).unwrap();
    assert_eq!(file.format(), WeightFormat::Flax);
    let expected = [
        ("params.Conv_0.kernel", vec![2, 2, 1, 3], DType::F32),
        ("params.Conv_0.bias", vec![3], DType::F32),
        ("params.BatchNorm_0.scale", vec![3], DType::F32),
        ("params.BatchNorm_0.bias", vec![3], DType::F16),
        ("params.Dense_0.kernel", vec![3, 2], DType::F32),
        ("params.Dense_0.bias", vec![2], DType::BF16),
        ("params.Embed_0.embedding", vec![4, 2], DType::F64),
        ("batch_stats.BatchNorm_0.mean", vec![3], DType::F32),
        ("batch_stats.BatchNorm_0.var", vec![3], DType::F32),
        ("rate", vec![], DType::F32),
        ("mask", vec![2], DType::Bool),
        ("layers.0", vec![2], DType::F32),
        ("layers.1", vec![1], DType::I8),
        ("empty", vec![0, 3], DType::F32),
    ];
    assert_eq!(file.names(), expected.clone().map(|(name, ..)| name));
    for (name, shape, dtype) in expected {
        let info = file.info(name).unwrap();
        assert_eq!((info.shape.to_vec(), info.dtype), (shape, Some(dtype)), "{name}");
        let data = read(&file, name);
        assert_eq!(data.dtype(), dtype, "{name}");
        if dtype.is_float() && !["batch_stats.BatchNorm_0.var", "rate"].contains(&name) {
            let values: Vec<f32> = data.convert(DType::F32).to_vec();
            assert_eq!(values, quarters(values.len()), "{name}");
        }
    }
    assert_eq!(read(&file, "rate"), TensorData::scalar(0.5f32));
    assert_eq!(read(&file, "mask"), TensorData::from([true, false]));
    assert_eq!(read(&file, "layers.1"), TensorData::from([-1i8]));
    assert_eq!(read(&file, "batch_stats.BatchNorm_0.var").to_vec::<f32>(), [1.0, 1.25, 1.5]);
    assert!(matches!(file.contents("params.Dense_0.kernel").unwrap(), TensorContents::Shared(..)));
    let metadata = file.metadata();
    assert_eq!((metadata["step"].as_str(), metadata["phase"].as_str()), ("7", "1 + 2i"));
}

#[test]
fn arrays_in_parts_are_joined() {
    let file = FlaxFile::open(fixture("flax/chunked.msgpack")).unwrap();
    assert_eq!(file.names(), ["weight", "small"]);
    let weight = read(&file, "weight");
    assert_eq!(weight.shape().to_vec(), [3, 3]);
    assert_eq!(weight.to_vec::<f32>(), quarters(9));
}

#[test]
fn an_unsupported_dtype_is_an_error_only_when_it_is_read() {
    let file = FlaxFile::open(fixture("flax/complex.msgpack")).unwrap();
    let info = file.info("signal").unwrap();
    assert_eq!((info.dtype, info.dtype_name.as_str()), (None, "complex64"));
    assert!(
        matches!(file.contents("signal"), Err(StoreError::UnsupportedDType { dtype, .. }) if dtype == "complex64")
    );
    assert_eq!(read(&file, "x").to_vec::<f32>(), [-1.0]);
}

#[derive(Debug, Module)]
struct Net<B: Backend> {
    conv: Conv2d<B>,
    norm: BatchNorm<B>,
    dense: Linear<B>,
    embed: Embedding<B>,
}

#[test]
fn the_preset_converts_names_and_layouts() {
    let device = Default::default();
    let net = Net::<Flex> {
        conv: Conv2dConfig::new([1, 3], [2, 2]).init(&device),
        norm: BatchNormConfig::new(3).init(&device),
        dense: LinearConfig::new(3, 2).init(&device),
        embed: EmbeddingConfig::new(4, 2).init(&device),
    };
    let mapping = Mapping::flax()
        .exclude("{rate,mask,empty,layers}.**")
        .and_then(|mapping| mapping.rename("Conv_0.**", "conv.$1")?.rename("BatchNorm_0.**", "norm.$1"))
        .and_then(|mapping| mapping.rename("Dense_0.**", "dense.$1")?.rename("Embed_0.**", "embed.$1"))
        .unwrap();
    let options = LoadOptions::new().mapping(mapping).dtype(DTypePolicy::Cast);
    let (net, report) = load_module_with(net, fixture("flax/net.msgpack"), &options).unwrap();
    assert!(report.missing.is_empty(), "{report}");
    let values = values(&net);
    assert_eq!(values["dense.weight"].to_vec::<f32>(), [-1.0, -0.5, 0.0, -0.75, -0.25, 0.25]);
    // Flax: kernel[height][width][in][out].
    let kernel = quarters(12);
    let expected: Vec<f32> = (0..12).map(|i| kernel[i % 4 * 3 + i / 4]).collect();
    assert_eq!(values["conv.weight"].to_vec::<f32>(), expected);
    assert_eq!(values["norm.running_var"].to_vec::<f32>(), [1.0, 1.25, 1.5]);
    assert_eq!(values["embed.weight"].to_vec::<f32>(), quarters(8));
}
