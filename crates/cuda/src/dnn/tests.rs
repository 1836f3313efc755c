//! Tests of the graphs that cuDNN supports, for a described GPU: they need the library and CUDA's driver, but no GPU.

use super::*;
use cudarc::cudnn::sys::{cudnnBackendAttributeName_t as Name, cudnnBackendDescriptorType_t as Kind};
use graph::{Descriptor, Graph};
use kiln_gpu::driver::{AttentionPass, Pass};
use kiln_ir::{Real, Shape};

/// The device properties of an H200, as serialized by the library.
const H200: &str = r#"{"deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0, "totalGlobalMem": 150000000000,
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "multiProcessorCount": 132, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
    "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32, "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "smClockRateKHz": 1980000,
    "memClockRateKHz": 3201000, "l2CacheSize": 52428800, "deviceName": "NVIDIA H200"}"#;

fn h200() -> Descriptor {
    library::load(library::DNN, "cuda").unwrap_or_else(|error| panic!("{error}"));
    let properties = Descriptor::new(Kind::CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR).unwrap();
    properties.set(Name::CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, H200.as_bytes()).unwrap();
    properties.finish("a device").unwrap()
}

fn taken(graph: Outcome<Graph>) -> bool {
    let device = h200();
    graph
        .and_then(|graph| graph.configurations(Machine::Described(&device)))
        .is_ok_and(|found| !found.is_empty())
}

/// `sizes` are batch, heads, key heads, queries, keys, head dim, and head dim of values.
fn attention(pass: AttentionPass, dtype: DType, sizes: [usize; 7], causal: Option<i64>) -> Attention {
    let [batch, heads, kv_heads, queries, keys, dim, dim_v] = sizes;
    let strides =
        |heads: usize, rows: usize, columns: usize| [heads * rows * columns, columns, heads * columns];
    let [q, k] = [strides(heads, queries, dim), strides(kv_heads, keys, dim)];
    let [v, y] = [strides(kv_heads, keys, dim_v), strides(heads, queries, dim_v)];
    let steps = match pass {
        AttentionPass::Forward => vec![q, k, v, y],
        AttentionPass::Backward => vec![y, q, k, v, y, q, k, v],
    };
    let scale = Real(0.125);
    Attention {
        pass,
        dtype,
        batch,
        heads,
        kv_heads,
        queries,
        keys,
        dim,
        dim_v,
        scale,
        causal,
        bias: None,
        steps,
    }
}

#[test]
#[ignore = "needs cuDNN and CUDA's driver"]
fn attention_is_one_kernel() {
    let version = {
        drop(h200());
        result::get_version()
    };
    for pass in [AttentionPass::Forward, AttentionPass::Backward] {
        for dtype in [DType::BF16, DType::F16] {
            for (sizes, causal) in [
                ([4, 16, 16, 4096, 4096, 128, 128], Some(0)),
                ([16, 12, 12, 1024, 1024, 64, 64], Some(0)),
                ([2, 8, 8, 777, 777, 64, 64], None),
                ([2, 8, 2, 100, 1024, 64, 64], Some(924)),
                ([2, 8, 1, 512, 512, 256, 256], None),
                ([1, 2, 2, 3, 5, 40, 24], Some(1)),
            ] {
                let mut attention = attention(pass, dtype, sizes, causal);
                for bias in [None, Some([sizes[0], 1, sizes[3], sizes[4]]), Some([1, 1, 1, sizes[4]])] {
                    attention.bias = bias;
                    let keys = attention.keys;
                    let is_refused = attention.pass == AttentionPass::Backward
                        && attention::takes_whole_tiles_only(version, keys);
                    assert_eq!(
                        taken(attention::graph(&attention, version)),
                        !is_refused,
                        "{version}, {attention:?}"
                    );
                }
            }
        }
    }
}

#[test]
#[ignore = "needs cuDNN"]
fn convolutions_have_engines() {
    for pass in [Pass::Forward, Pass::Input, Pass::Weight] {
        for dtype in [DType::BF16, DType::F16, DType::F32, DType::F64] {
            for channels_last in [false, true] {
                let convolution = Convolution {
                    pass,
                    dtype,
                    x: Shape::from([4, 16, 30, 30]),
                    w: Shape::from([32, 8, 3, 3]),
                    y: Shape::from([4, 32, 15, 15]),
                    channels_last,
                    stride: vec![2, 2],
                    padding: vec![1, 1],
                    dilation: vec![1, 1],
                    groups: 2,
                };
                drop(h200());
                assert!(taken(convolution::graph(&convolution)), "{convolution:?}");
            }
        }
    }
}
