//! Horizontal fusion: launches of one elementwise kernel over different tensors become one.

use crate::host::{FLOATS, data, driver::Host};
use kiln_gpu::Gpu;
use kiln_ir::{DType, Engine, TensorData, Var, block_on};
use kiln_reference::Reference;
use kiln_suite::case::{Fill, Tolerance};
use kiln_suite::compare::difference;

/// Lengths for vector access, of one block and of several, and for scalar access.
const LENGTHS: [[usize; 5]; 2] = [[24, 4096, 8, 1000, 2560], [7, 35, 4097, 3, 777]];

/// An optimizer step: each of its ops for all parameters.
fn trained(engine: &dyn Engine, parameters: &[TensorData], gradients: &[TensorData]) -> Vec<TensorData> {
    let write = |list: &[TensorData]| -> Vec<_> {
        list.iter().map(|data| Var::new(engine, engine.write(data.clone()))).collect()
    };
    let (weights, gradients) = (write(parameters), write(gradients));
    let decays: Vec<_> = weights.iter().map(|weight| weight * weight.scalar(0.25)).collect();
    let decayed: Vec<_> = gradients.iter().zip(decays).map(|(gradient, decay)| gradient + decay).collect();
    let updated: Vec<_> = weights.into_iter().zip(decayed).map(|(weight, step)| weight - step).collect();
    updated.into_iter().map(|weight| block_on(engine.read(weight.into_value())).unwrap()).collect()
}

#[test]
fn horizontally_fused_updates_match_separate_updates() {
    let Some(host) = Host::open() else { return };
    let host = Gpu::new(host, kiln_ir::MemoryConfig::new());
    for (dtype, lengths) in FLOATS.into_iter().flat_map(|dtype| LENGTHS.map(|lengths| (dtype, lengths))) {
        for count in [4, 9, 40] {
            let list = || -> Vec<TensorData> {
                (0..count).map(|i| data(&[lengths[i % lengths.len()]], dtype, Fill::Normal)).collect()
            };
            let (parameters, gradients) = (list(), list());
            let expected = trained(&Reference::new(), &parameters, &gradients);
            host.trace(true);
            let found = trained(&host, &parameters, &gradients);
            let steps = host.traced();
            host.trace(false);
            for (place, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let tolerance = Tolerance::Near { relative: 8.0, absolute: 8.0 };
                let problem = difference(expected, found, tolerance).unwrap_or_default();
                assert!(problem.is_empty(), "{dtype}, {count} of {lengths:?}, {place}: {problem}");
            }
            let most =
                if count < 16 { format!("{count} launches as one") } else { "16 launches as one".into() };
            let joined = steps.iter().filter(|step| step.name.starts_with(&most)).count();
            assert!(joined >= 3, "{dtype}, {count} of {lengths:?}: {steps:?}");
        }
    }
}

/// Each launch reads the previous one's result.
#[test]
fn dependent_chains_run_in_order() {
    let Some(host) = Host::open() else { return };
    let host = Gpu::new(host, kiln_ir::MemoryConfig::new());
    let mut x = Var::new(&host, host.write(TensorData::from([1.0f32, -3.0])));
    for _ in 0..20 {
        x = &x * x.scalar(2.0);
    }
    assert_eq!(x.dtype(), DType::F32);
    let found = block_on(host.read(x.into_value())).unwrap().to_vec::<f32>();
    assert_eq!(found, [1048576.0, -3145728.0]);
}
