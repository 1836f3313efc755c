//! Tests that destroy a shared device or choose its options, in a process of their own. After a loss, every call returns
//! an error, and none ends the program. On a machine without an adapter, the tests print the reason and pass.

use kiln::{Tensor, Wgpu, WgpuDevice};
use kiln_gpu::Driver;
use kiln_gpu::driver::DevicePtr;
use kiln_ir::{Engine, TensorData, block_on};
use kiln_wgpu::{Api, Profile, WgpuOptions, init_async, shared};
use std::sync::Arc;

/// A device that the test opens as a program does, unless this machine has no adapter. Its errors would end the program.
fn own_device() -> Option<(wgpu::Device, wgpu::Queue)> {
    let backends = wgpu::Backends::PRIMARY;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let Some(adapter) = block_on(instance.enumerate_adapters(backends)).into_iter().next() else {
        println!("skipped: no adapter");
        return None;
    };
    let described = wgpu::DeviceDescriptor {
        required_features: adapter.features() & wgpu::Features::PIPELINE_CACHE,
        required_limits: adapter.limits(),
        ..wgpu::DeviceDescriptor::default()
    };
    Some(block_on(adapter.request_device(&described)).unwrap())
}

fn numbers() -> TensorData {
    TensorData::new(vec![1.0f32, 2.0, 3.0], [3]).unwrap()
}

#[test]
fn tensors_of_a_destroyed_device_of_the_program_return_the_error() {
    let Some((device, queue)) = own_device() else { return };
    let number = kiln_wgpu::from_existing(device.clone(), queue).unwrap();
    let x = Tensor::<Wgpu, 1>::from_data(numbers(), &number);
    let doubled = x.clone() * 2;
    assert_eq!(doubled.clone().into_data().to_vec::<f32>(), [2.0, 4.0, 6.0]);
    // One is computed by a kernel that was compiled, the other one by a new kernel.
    let recorded = [doubled.clone() * 2, doubled.clone().exp()];
    device.destroy();
    for tensor in recorded.into_iter().chain([x.sin(), doubled.cos()]) {
        let error = tensor.try_into_data().unwrap_err().to_string();
        assert!(error.contains(&format!("[wgpu {number}]")) && error.contains("lost"), "{error}");
    }
    let new = Tensor::<Wgpu, 1>::from_data(numbers(), &number) + 1;
    assert!(new.try_into_data().is_err());
}

#[test]
fn a_driver_of_a_destroyed_device_returns_errors() {
    let Some((device, queue)) = own_device() else { return };
    let number = kiln_wgpu::from_existing(device.clone(), queue).unwrap();
    let engine = kiln_wgpu::shared(number, Api::Auto).unwrap();
    let driver = engine.driver();
    let at = DevicePtr::new(Arc::new(driver.allocate(64).unwrap()), 0);
    driver.write(&at, &[7; 64]).unwrap();
    driver.fill(&at, 3, 1).unwrap();
    let pending = driver.read(&at, 4);
    driver.fill(&at, 64, 0).unwrap();
    device.destroy();
    // The read was submitted before: it may still end.
    if let Ok(bytes) = block_on(pending) {
        assert_eq!(bytes, [1, 1, 1, 7]);
    }
    assert!(block_on(driver.read(&at, 4)).is_err());
    assert!(block_on(driver.synchronize()).is_err());
    // The loss is known from here on.
    assert!(driver.flush().is_err());
    assert!(driver.allocate(64).is_err());
    assert!(driver.write(&at, &[7; 64]).is_err());
    assert!(driver.fill(&at, 64, 0).is_err());
    assert!(driver.fill(&at, 3, 1).is_err());
    assert!(!driver.save_pipelines());
}

#[test]
fn an_engine_whose_device_is_destroyed_returns_errors() {
    // No other test of this program opens the default device with this profile.
    let options = WgpuOptions::default().with_profile(Profile::WebGpu);
    let engine = match kiln_wgpu::shared_with(WgpuDevice::Default, Api::Auto, &options) {
        Ok(engine) => engine,
        Err(reason) => return println!("skipped: no adapter: {reason}"),
    };
    let value = engine.write(numbers());
    assert_eq!(block_on(engine.read(value.clone())).unwrap(), numbers());
    engine.driver().device().destroy();
    let error = block_on(engine.read(value.clone())).unwrap_err().to_string();
    assert!(error.contains("lost"), "{error}");
    assert!(block_on(engine.read(value)).is_err());
    assert!(block_on(engine.sync()).is_err());
    assert!(block_on(engine.read(engine.write(numbers()))).is_err());
    assert!(engine.driver().allocate(64).is_err());
}

/// No other test of this program opens the device by `shared`.
#[test]
fn the_options_of_init_async_are_those_of_the_backend() {
    let bytes = 1 << 16;
    let options = WgpuOptions::default().with_binding_bytes(bytes);
    let engine = match block_on(init_async(WgpuDevice::Default, Api::Auto, &options)) {
        Ok(engine) => engine,
        Err(reason) => return println!("skipped: no adapter: {reason}"),
    };
    assert_eq!(engine.driver().info().binding_bytes, Some(bytes as usize));
    assert!(Arc::ptr_eq(&engine, &shared(WgpuDevice::Default, Api::Auto).unwrap()));
    let pipelines = engine.driver().compiled_pipelines();
    let x = Tensor::<Wgpu, 1>::from_floats([1.0, 2.0], &WgpuDevice::Default);
    assert_eq!((x * 2).into_data().to_vec::<f32>(), [2.0, 4.0]);
    assert!(engine.driver().compiled_pipelines() > pipelines);
}
