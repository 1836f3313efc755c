//! The machine description in the `Caps` of a GPU engine.

use kiln_gpu::{DeviceInfo, DryDriver, Gpu};
use kiln_ir::{Engine, Machine};
use kiln_kernel::print::{Dialect, Target};

fn machine(info: DeviceInfo) -> Machine {
    let driver = DryDriver::new(info, |_| Ok(Vec::new())).with_libraries();
    Gpu::new(driver, kiln_ir::MemoryConfig::new()).caps().machine
}

/// The typical GPU equals the absent device, except for its memory, so that plans for one are valid for the other.
#[test]
fn the_default_device_has_the_typical_machine_description() {
    let info = DeviceInfo { memory: 80 << 30, ..DeviceInfo::absent("") };
    assert_eq!(machine(info), Machine::gpu());
}

#[test]
fn machine_facts_come_from_the_driver() {
    let info = DeviceInfo {
        memory: 3 << 30,
        multiprocessors: 7,
        multiprocessor_threads: 1536,
        block_threads: 512,
        warp_threads: 64,
        shared_bytes: 64 << 10,
        ..DeviceInfo::absent("")
    };
    let expected = Machine {
        threads: 7 * 1536,
        workgroup: 512,
        subgroup: 64,
        shared_bytes: 64 << 10,
        memory_bytes: Some(3 << 30),
        ..Machine::gpu()
    };
    assert_eq!(machine(info), expected);
}

/// Devices without hand-written kernels fuse reads by index.
#[test]
fn reads_by_index_fuse_without_hand_written_kernels() {
    for (dialect, fuses) in [(Dialect::Cuda, false), (Dialect::Hip, true), (Dialect::Wgsl, true)] {
        let info = DeviceInfo { language: Target::new(dialect), ..DeviceInfo::absent("") };
        assert_eq!(machine(info).indexed_loads, fuses);
    }
}
