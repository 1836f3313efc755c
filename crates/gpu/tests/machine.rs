//! The facts of a device that an engine states in its `Caps`.

use kiln_gpu::{DeviceInfo, DryDriver, Gpu, Missing};
use kiln_ir::{Engine, Error, Machine};

fn machine(info: DeviceInfo) -> Machine {
    Gpu::new(DryDriver::new(info, |_| Ok(Vec::new())), kiln_ir::MemoryConfig::new()).caps().machine
}

/// The typical GPU is a device like the absent one, but for its memory: plans for one are plans for the other.
#[test]
fn a_device_is_the_typical_gpu() {
    let info = DeviceInfo { memory: 80 << 30, ..DeviceInfo::absent("") };
    assert_eq!(machine(info), Machine::gpu());
}

#[test]
fn facts_are_those_of_the_driver() {
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

/// Every value of a missing device is an error at once.
#[test]
fn a_missing_device_has_its_errors_on_the_host() {
    let missing = Missing::new("gpu:0", Error::device("gpu:0", "is not there"));
    assert!(missing.caps().machine.host_errors);
}
