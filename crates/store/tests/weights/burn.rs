//! Files of Burn.

use kiln_backends::Flex;
use kiln_nn::{LayerNorm, LayerNormConfig, Linear, LinearConfig, Module};
use kiln_store::burn::{BurnRecordFile, BurnpackFile};
use kiln_store::{LoadOptions, Mapping, StoreError, TensorSource, WeightFormat, load_module_with};
use kiln_tensor::{Backend, DType, TensorData};

use crate::weights::{fixture, ramp, values};

#[test]
fn a_burnpack_is_read_with_and_without_padding() {
    for name in ["burn/linear.bpk", "burn/unpadded.bpk"] {
        let file = BurnpackFile::open(fixture(name)).unwrap();
        assert_eq!(file.format(), WeightFormat::Burnpack);
        assert_eq!(file.names(), ["linear.weight", "linear.bias", "mask", "quantized", "steps"]);
        let read = |name: &str| file.contents(name).unwrap().into_data().unwrap();
        assert_eq!(read("linear.weight"), ramp(0.0, &[3, 2]));
        assert_eq!(read("linear.bias").convert(DType::F32), TensorData::from([0.5f32, -1.0]));
        assert_eq!(read("mask"), TensorData::from([true, false, true]));
        assert_eq!(read("steps"), TensorData::scalar(-3i64));
        assert_eq!(file.info("quantized").unwrap().dtype, None);
        assert!(matches!(file.contents("quantized"), Err(StoreError::UnsupportedDType { .. })));
        assert_eq!(file.metadata()["producer"], "test");
    }
}

const RECORDS: [&str; 5] =
    ["record-15.mpk", "record-15-f16.mpk.gz", "record-14.mpk", "record-13.mpk", "record-13-f16.mpk"];

#[test]
fn records_of_each_version_have_the_same_tensors() {
    for name in RECORDS {
        let file = BurnRecordFile::open(fixture(&format!("burn/{name}"))).unwrap();
        assert_eq!(file.format(), WeightFormat::BurnRecord);
        let names = [
            "layers.0.weight",
            "layers.0.bias",
            "layers.1.weight",
            "layers.1.bias",
            "head.Narrow.weight",
            "head.Narrow.bias",
            "norm.gamma",
        ];
        assert_eq!(file.names(), names, "{name}");
        let dtype = if name.contains("f16") { DType::F16 } else { DType::F32 };
        assert_eq!(file.info("layers.0.bias").unwrap().dtype, Some(dtype), "{name}");
        let read = |tensor: &str| file.contents(tensor).unwrap().into_data().unwrap().convert(DType::F32);
        assert_eq!(read("layers.1.weight"), ramp(10.0, &[3, 2]), "{name}");
        assert_eq!(read("layers.1.bias"), TensorData::from([0.25f32, -0.5]), "{name}");
        assert_eq!(file.metadata()["version"], "0.15.0");
        assert_eq!(file.metadata()["item.width"], "6");
    }
}

#[derive(Debug, Module)]
struct Net<B: Backend> {
    layers: Vec<Linear<B>>,
    head: Linear<B>,
    norm: LayerNorm<B>,
}

#[test]
fn the_preset_transposes_linear_layers_and_renames_norms() {
    let device = Default::default();
    let linear = || LinearConfig::new(3, 2).init::<Flex>(&device);
    let net =
        Net { layers: vec![linear(), linear()], head: linear(), norm: LayerNormConfig::new(2).init(&device) };
    let options = LoadOptions::new().mapping(Mapping::burn()).allow_missing(true);
    let (net, report) = load_module_with(net, fixture("burn/record-15.mpk"), &options).unwrap();
    assert_eq!(report.missing, ["norm.bias"]);
    assert!(report.unexpected.is_empty(), "{report}");
    let values = values(&net);
    assert_eq!(values["layers.0.weight"], TensorData::from([[0.0f32, 2.0, 4.0], [1.0, 3.0, 5.0]]));
    assert_eq!(values["head.weight"], TensorData::from([[20.0f32, 22.0, 24.0], [21.0, 23.0, 25.0]]));
    assert_eq!(values["norm.weight"], TensorData::from([1.5f32, 2.0]));
}

/// Without a module, the layers are unknown: names are converted, and `transpose` names the matrices.
#[test]
fn the_preset_without_a_module() {
    let weights = kiln_store::Weights::open(fixture("burn/record-15.mpk")).unwrap();
    let mapping =
        Mapping::burn().transpose("layers.*.weight").and_then(|mapping| mapping.transpose("head.weight"));
    let mapping = mapping.unwrap();
    let mapped = weights.mapped(&mapping).unwrap();
    assert_eq!(mapped.names()[4..], ["head.weight", "head.bias", "norm.weight"]);
    assert_eq!(mapped.info("head.weight").unwrap().shape.to_vec(), [2, 3]);
    assert_eq!(mapped.read("head.weight").unwrap().to_vec::<f32>(), [20.0, 22.0, 24.0, 21.0, 23.0, 25.0]);
}
