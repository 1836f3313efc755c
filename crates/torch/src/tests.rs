//! Kiln's semantics where LibTorch alone differs. `kiln-foreign` has the tests that all libraries share.

use crate::{LibTorch, LibTorchDevice, version};
use kiln_ir::{Engine, NormKind, Op, Operand, OperandType, Operands, Real, TensorData, block_on, infer};

/// The engine of the processor. Prints why it is missing: tests are skipped then.
fn engine() -> Option<LibTorch> {
    LibTorch::open(LibTorchDevice::Cpu).map_err(|error| println!("skipped: {error}")).ok()
}

#[test]
fn a_layer_norm_keeps_the_digits_that_the_mean_leaves() {
    let Some(engine) = engine() else { return };
    let norm = |elements: &[f64], epsilon: f64| {
        let x = TensorData::new(elements.to_vec(), [1, elements.len()]).expect("the lengths fit");
        let operands: Operands = [Operand::Value(engine.write(x))].into_iter().collect();
        let op = Op::Norm { kind: NormKind::Layer, axes: 1, epsilon: Real(epsilon) };
        let types = infer(&op, &OperandType::list(&operands)).expect("the op takes the operand");
        let value = engine.execute(&op, operands, &types).remove(0);
        block_on(engine.read(value)).expect("the op runs").to_vec::<f64>()
    };
    assert_eq!(norm(&[1e8 + 1.0, 1e8 - 1.0], 0.0), [1.0, -1.0]);
    assert_eq!(norm(&[1.767_470_222_266_878_8], 1e-3), [0.0]);
}

#[test]
fn a_missing_device_is_an_error() {
    if engine().is_none() {
        return;
    }
    for device in [LibTorchDevice::Cuda(100), LibTorchDevice::Mps] {
        let Err(error) = LibTorch::open(device) else { continue };
        let error = error.to_string();
        assert!(error.contains(&device.to_string()) && error.contains("hint"), "{error}");
    }
}

#[test]
fn a_missing_library_is_an_error_with_the_line_to_run() {
    let Err(error) = version() else { return };
    let error = error.to_string();
    assert!(error.contains("apt-get install libtorch-dev") && error.contains("LIBTORCH"), "{error}");
}
