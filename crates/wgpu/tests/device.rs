//! The driver on an adapter of this machine; without one, each test prints `skipped: no adapter`.

use kiln_gpu::Driver;
use kiln_gpu::driver::{Argument, DevicePtr, Grid};
use kiln_ir::{DType, Engine, Op, Operand, TensorData, TensorType, UpdateMode, block_on};
use kiln_kernel::print::{Dialect, Entry, EntryParameter};
use kiln_wgpu::{Api, Profile, Wgpu, WgpuDevice, WgpuDriver, WgpuFunction, WgpuMemory, WgpuOptions};
use std::sync::Arc;

/// A number of words: each element of `y` becomes that of `x`, times a factor.
const SCALE: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@group(0) @binding(2) var<uniform> launch: array<vec4<u32>, 2>;

@compute @workgroup_size(64)
fn scale(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let block = group.y * groups.x + group.x;
    if block >= launch[0].x {
        return;
    }
    let i = block * 64u + thread;
    if i < launch[1].x {
        y[launch[0].z + i] = x[launch[0].y + i] * launch[0].w;
    }
}
";

/// Opens the default device, unless this machine has no adapter.
fn opened() -> Option<Arc<Wgpu>> {
    match kiln_wgpu::shared(WgpuDevice::Default, Api::Auto) {
        Ok(engine) => Some(engine),
        Err(error) => {
            println!("skipped: no adapter: {error}");
            None
        }
    }
}

fn block(driver: &WgpuDriver, bytes: usize) -> Arc<WgpuMemory> {
    Arc::new(driver.allocate(bytes).unwrap())
}

fn at(memory: &Arc<WgpuMemory>, offset: usize) -> DevicePtr<WgpuMemory> {
    DevicePtr::new(memory.clone(), offset)
}

fn read(driver: &WgpuDriver, memory: &Arc<WgpuMemory>, offset: usize, bytes: usize) -> Vec<u8> {
    block_on(driver.read(&at(memory, offset), bytes)).unwrap()
}

/// The entry point of [`SCALE`]: `x`, `y`, the factor and the number of elements.
fn entry() -> Entry {
    let tensor = |is_written| EntryParameter::Tensor { dtype: DType::U32, is_written };
    let parameters =
        vec![tensor(false), tensor(true), EntryParameter::Word(DType::U32), EntryParameter::Index];
    Entry { name: "scale".into(), threads: 64, parameters, is_guarded: false }
}

fn scale(driver: &WgpuDriver) -> WgpuFunction {
    let binary = driver.compile(SCALE).unwrap();
    driver.load(&binary, &[&entry()]).unwrap().remove(0).unwrap()
}

fn number(value: u32) -> Argument<WgpuMemory> {
    let mut word = [0; 8];
    word[..4].copy_from_slice(&value.to_ne_bytes());
    Argument::Word(word)
}

/// Queues [`SCALE`].
fn launch(
    driver: &WgpuDriver,
    function: &WgpuFunction,
    tensors: [DevicePtr<WgpuMemory>; 2],
    factor: u32,
    elements: usize,
) -> kiln_ir::Result<()> {
    let [x, y] = tensors.map(Argument::Pointer);
    let arguments = [x, y, number(factor), number(elements as u32)];
    let grid = Grid { blocks: elements.div_ceil(64), threads: 64 };
    // SAFETY: the tensors of the tests hold that many elements.
    unsafe { driver.launch(function, grid, &arguments) }
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

#[test]
fn bytes_are_written_and_read_at_any_offset() {
    let Some(gpu) = opened() else { return };
    let driver = gpu.driver();
    let memory = block(driver, 64);
    let mut expected = vec![0; 64];
    assert_eq!(read(driver, &memory, 0, 64), expected, "memory is initially zero");
    for offset in 0..6 {
        for len in 0..11 {
            let data: Vec<u8> = (0..len).map(|i| (16 * offset + i + 1) as u8).collect();
            driver.write(&at(&memory, offset), &data).unwrap();
            expected[offset..offset + len].copy_from_slice(&data);
            assert_eq!(read(driver, &memory, offset, len), data);
        }
        assert_eq!(read(driver, &memory, 0, 64), expected);
    }
}

#[test]
fn fills_write_any_range() {
    let Some(gpu) = opened() else { return };
    let driver = gpu.driver();
    let memory = block(driver, 4096);
    let mut expected = vec![0; 4096];
    let cases = [
        (0, 4096, 7),
        (1, 2, 8),
        (3, 9, 9),
        (16, 64, 0),
        (17, 3001, 0),
        (4092, 4, 5),
        (4095, 1, 6),
        (8, 0, 1),
    ];
    for (offset, len, value) in cases {
        driver.fill(&at(&memory, offset), len, value).unwrap();
        expected[offset..offset + len].fill(value);
    }
    assert_eq!(read(driver, &memory, 0, 4096), expected);
}

#[test]
fn launches_run_in_order_with_writes_and_reads() {
    let Some(gpu) = opened() else { return };
    let driver = gpu.driver();
    let function = scale(driver);
    let words: Vec<u32> = (0..1000).collect();
    let (x, y) = (block(driver, 4096), block(driver, 8192));
    driver.write(&at(&x, 8), &bytes_of(&words)).unwrap();
    launch(driver, &function, [at(&x, 8), at(&y, 1028)], 3, 1000).unwrap();
    // Work queued before reads the old bytes.
    driver.write(&at(&x, 8), &bytes_of(&[100, 200])).unwrap();
    launch(driver, &function, [at(&x, 8), at(&y, 12)], 5, 2).unwrap();
    let ends = driver.read(&at(&y, 12), 8);
    // Work queued later does not change what a read returns.
    driver.fill(&at(&y, 0), 64, 0).unwrap();
    assert_eq!(block_on(ends).unwrap(), bytes_of(&[500, 1000]));
    let tripled: Vec<u32> = words.iter().map(|word| 3 * word).collect();
    assert_eq!(read(driver, &y, 1028, 4000), bytes_of(&tripled));
    assert_eq!(read(driver, &y, 12, 8), [0; 8]);
    block_on(driver.synchronize()).unwrap();
}

#[test]
fn a_read_copies_several_ranges() {
    let Some(gpu) = opened() else { return };
    let driver = gpu.driver();
    let (x, y) = (block(driver, 64), block(driver, 64));
    let bytes: Vec<u8> = (0..64).collect();
    driver.write(&at(&x, 0), &bytes).unwrap();
    driver.write(&at(&y, 0), &bytes).unwrap();
    let ranges = [(at(&x, 5), 6), (at(&y, 64), 0), (at(&y, 0), 64), (at(&x, 63), 1)];
    let read = driver.read_all(&ranges);
    driver.fill(&at(&x, 0), 64, 0).unwrap();
    let expected: [&[u8]; 4] = [&bytes[5..11], &[], &bytes, &bytes[63..]];
    assert_eq!(block_on(read).unwrap(), expected);
    assert!(block_on(driver.read_all(&[(at(&x, 0), 4), (at(&x, 60), 8)])).is_err());
    assert!(block_on(driver.read_all(&[])).unwrap().is_empty());
}

#[test]
fn many_launches_are_submitted_in_several_parts() {
    let Some(gpu) = opened() else { return };
    let driver = gpu.driver();
    let function = scale(driver);
    let (x, y) = (block(driver, 16), block(driver, 16));
    driver.write(&at(&x, 0), &bytes_of(&[1, 2, 3, 4])).unwrap();
    for _ in 0..150 {
        launch(driver, &function, [at(&x, 0), at(&y, 0)], 3, 4).unwrap();
        launch(driver, &function, [at(&y, 0), at(&x, 0)], 1, 4).unwrap();
    }
    let factor = (0..150).fold(1u32, |factor, _| factor.wrapping_mul(3));
    assert_eq!(read(driver, &x, 0, 16), bytes_of(&[1, 2, 3, 4].map(|word: u32| word.wrapping_mul(factor))));
}

#[test]
fn kernels_that_do_not_compile_are_errors_with_the_log() {
    let Some(gpu) = opened() else { return };
    let driver = gpu.driver();
    let broken = SCALE.replace("launch[0].w", "nothing");
    let error = driver.load(broken.as_bytes(), &[&entry()]).err().unwrap().to_string();
    assert!(error.contains("`scale`") && error.contains("nothing"), "{error}");
    let mut other = entry();
    other.parameters.remove(0);
    let error = driver.load(SCALE.as_bytes(), &[&other]).err().unwrap().to_string();
    assert!(error.contains("`scale`"), "bindings differ from the entry point's: {error}");
    let absent = Entry { name: "absent".into(), ..entry() };
    let loaded = driver.load(SCALE.as_bytes(), &[&absent, &entry()]).unwrap();
    assert!(loaded[0].is_none() && loaded[1].is_some());
    // The device still works.
    assert!(block_on(driver.synchronize()).is_ok());
}

#[test]
fn arguments_that_do_not_match_are_errors() {
    let Some(gpu) = opened() else { return };
    let driver = gpu.driver();
    let function = scale(driver);
    let memory = block(driver, 64);
    let error = launch(driver, &function, [at(&memory, 0), at(&memory, 32)], 1, 4).unwrap_err().to_string();
    assert!(error.contains("are in one buffer") && error.contains("`scale`"), "{error}");
    let grid = Grid { blocks: 1, threads: 64 };
    // SAFETY: the launch is refused.
    let error = unsafe { driver.launch(&function, grid, &[]) }.unwrap_err().to_string();
    assert!(error.contains("0 arguments for 4 parameters"), "{error}");
    let error = driver.write(&at(&memory, 60), &[0; 8]).unwrap_err().to_string();
    assert!(error.contains("not within a block of 64 bytes"), "{error}");
    assert!(block_on(driver.synchronize()).is_ok());
}

#[test]
fn a_buffer_over_the_limit_is_out_of_memory() {
    let Some(gpu) = opened() else { return };
    let error = gpu.driver().allocate(usize::MAX / 2).err().unwrap();
    assert!(error.is_out_of_memory(), "{error}");
    assert!(block_on(gpu.driver().synchronize()).is_ok());
}

#[test]
fn a_missing_adapter_is_an_error_that_lists_the_adapters() {
    let adapters = kiln_wgpu::adapters(Api::Auto);
    let error = kiln_wgpu::shared(WgpuDevice::DiscreteGpu(4096), Api::Auto).err().unwrap().to_string();
    match adapters.first() {
        Some(first) => {
            assert!(error.contains("discrete-gpu:4096") && error.contains(&first.to_string()), "{error}")
        }
        None => assert!(error.contains("no adapter was found") || error.contains("no support"), "{error}"),
    }
    let error = kiln_wgpu::shared(WgpuDevice::Existing(4096), Api::Auto).err().unwrap().to_string();
    assert!(error.contains("existing:4096"), "{error}");
}

#[test]
fn an_api_of_another_platform_is_an_error() {
    let other = if cfg!(target_vendor = "apple") { Api::Vulkan } else { Api::Metal };
    let error = kiln_wgpu::shared(WgpuDevice::Default, other).err().unwrap().to_string();
    assert!(error.contains("no support for"), "{error}");
}

#[test]
fn names_of_one_adapter_share_its_engine() {
    let Some(gpu) = opened() else { return };
    let first = kiln_wgpu::adapters(Api::Auto).remove(0);
    let same = kiln_wgpu::shared(first.device, first.api).unwrap();
    assert!(Arc::ptr_eq(&gpu, &same));
    let info = gpu.driver().info();
    assert_eq!(info.model, first.model);
    assert_eq!(info.language.dialect, Dialect::Wgsl);
    assert!(
        info.block_threads >= 256 && info.shared_bytes >= 16 << 10 && info.bindings >= Some(8),
        "{info:?}"
    );
}

#[test]
fn the_profile_of_browsers_has_its_limits_on_every_adapter() {
    let options = WgpuOptions::default().with_profile(Profile::WebGpu);
    let Ok(gpu) = kiln_wgpu::shared_with(WgpuDevice::Default, Api::Auto, &options) else {
        return println!("skipped: no adapter");
    };
    let info = gpu.driver().info();
    assert_eq!((info.bindings, info.binding_bytes), (Some(8), Some(128 << 20)));
    assert_eq!((info.block_threads, info.shared_bytes, info.warp_threads), (256, 16 << 10, 1));
    assert!(![DType::F64, DType::I64, DType::U64].iter().any(|dtype| info.language.dtypes.contains(*dtype)));
    assert!(!info.language.atomics_64);
}

#[test]
fn values_are_written_and_read() {
    let Some(gpu) = opened() else { return };
    let data = TensorData::new(vec![true, false, true, true, false], [5]).unwrap();
    assert_eq!(block_on(gpu.read(gpu.write(data.clone()))).unwrap(), data);
    assert_eq!(block_on(gpu.sync()), Ok(()));
}

#[test]
fn a_device_of_the_program_becomes_a_device() {
    let Some(gpu) = opened() else { return };
    let (device, queue) = (gpu.driver().device().clone(), gpu.driver().queue().clone());
    let number = kiln_wgpu::from_existing(device, queue).unwrap();
    let engine = kiln_wgpu::shared(number, Api::Auto).unwrap();
    assert!(!Arc::ptr_eq(&engine, &gpu));
    assert_eq!(engine.driver().info().name, format!("wgpu {number}"));
    let data = TensorData::new(vec![1.0f32, 2.0], [2]).unwrap();
    assert_eq!(block_on(engine.read(engine.write(data.clone()))).unwrap(), data);
}

/// Engines with and without the switch are separate. The sums of many entries with one target depend on their order.
#[test]
fn a_deterministic_device_adds_by_index_in_the_order_of_the_entries() {
    if opened().is_none() {
        return;
    }
    let options = |on| WgpuOptions::default().with_deterministic(on);
    let open = |on| kiln_wgpu::shared_with(WgpuDevice::Default, Api::Auto, &options(on)).unwrap();
    let gpu = open(true);
    assert!(gpu.caps().machine.exact_regions && !open(false).caps().machine.exact_regions);
    let (rows, targets) = (3000usize, 7);
    let numbers: Vec<f32> = (0..rows).map(|i| (i as f32 * 0.37).sin() * 10f32.powi(i as i32 % 9)).collect();
    let index: Vec<i32> = (0..rows).map(|i| (i * i % targets) as i32).collect();
    let mut expected = vec![0.0f32; targets];
    index.iter().zip(&numbers).for_each(|(&at, number)| expected[at as usize] += number);
    let ty = TensorType::new([targets], DType::F32);
    let data = [
        TensorData::zeros(ty),
        TensorData::new(index, [rows]).unwrap(),
        TensorData::new(numbers, [rows]).unwrap(),
    ];
    let op = Op::Put { axis: 0, mode: UpdateMode::Add };
    let operands = data.into_iter().map(|data| Operand::Value(gpu.write(data))).collect();
    let sums = gpu.execute(&op, operands, &[ty]).remove(0);
    let found = block_on(gpu.read(sums)).unwrap().to_vec::<f32>();
    let bits = |numbers: &[f32]| numbers.iter().map(|number| number.to_bits()).collect::<Vec<u32>>();
    assert_eq!(bits(&found), bits(&expected));
}
