//! Memory-mapped tensors.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kiln_backends::{Device, Flex};
use kiln_nn::{Module, Param};
use kiln_store::{
    LoadOptions, StoreError, TensorFile, load_module, load_module_with, save_module, save_tensors,
};
use kiln_tensor::{AnyTensor, Autodiff, Backend, DType, Tensor, TensorData, UpdateMode};
use tempfile::TempDir;

/// More elements than the minimum for mapping.
const ELEMENTS: usize = 300_000;

fn numbers() -> Vec<f32> {
    (0..ELEMENTS).map(|i| i as f32 * 0.5).collect()
}

fn written(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("large.safetensors");
    let small = TensorData::from([true, false, true]);
    save_tensors(&path, [("x".into(), numbers().into()), ("flags".into(), small)], &Default::default())
        .unwrap();
    path
}

/// Writes a file with one tensor by hand.
fn made(path: &Path, dtype: &str, elements: usize, padding: usize, data: &[u8]) {
    let header = format!(
        r#"{{"x":{{"dtype":"{dtype}","shape":[{elements}],"data_offsets":[0,{}]}}}}{}"#,
        data.len(),
        " ".repeat(padding)
    );
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    fs::write(path, bytes).unwrap();
}

fn bytes_of(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn cpu_tensors_are_memory_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let file = TensorFile::open(written(&folder)).unwrap();
    assert_eq!(file.is_mapped(), cfg!(unix));
    for device in [Device::cpu(), Device::cpu().autodiff()] {
        let x = file.load("x", &device).unwrap();
        assert_eq!(x.clone().into_data().unwrap(), numbers().into());
        let sum: f64 = x.cast(DType::F64).unwrap().sum().unwrap().into_scalar().unwrap();
        assert_eq!(sum, numbers().iter().map(|&x| f64::from(x)).sum::<f64>());
        let flags = file.load("flags", &device).unwrap();
        assert_eq!(flags.into_data().unwrap(), TensorData::from([true, false, true]));
    }
}

#[test]
fn no_op_writes_to_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder);
    let before = fs::read(&path).unwrap();
    let file = TensorFile::open(&path).unwrap();
    let device = Device::cpu();
    let load = || file.load("x", &device).unwrap();
    let zeros = || AnyTensor::from_data(vec![0.0f32; 10], &device);
    let index = || AnyTensor::from_data((0..10).collect::<Vec<i32>>(), &device);

    let one = || AnyTensor::from_data(vec![1.0f32], &device);
    let more: Vec<f32> = numbers().iter().map(|x| x + 1.0).collect();
    assert_eq!(load().add(one()).unwrap().into_data().unwrap(), more.clone().into());
    assert_eq!(load().exp().unwrap().shape()[0], ELEMENTS);
    let written = load().scatter_mode(0, index(), zeros(), UpdateMode::Set).unwrap();
    assert_eq!(
        written.into_data().unwrap().to_vec::<f32>()[..12],
        [0., 0., 0., 0., 0., 0., 0., 0., 0., 0., 5., 5.5]
    );
    assert_eq!(load().cumsum(0).unwrap().shape()[0], ELEMENTS);

    assert_eq!(load().into_data().unwrap(), numbers().into());
    assert!(fs::read(&path).unwrap() == before);
}

#[test]
fn unaligned_tensors_are_copied() {
    let folder = tempfile::tempdir().unwrap();
    for padding in 0..8 {
        let path = folder.path().join(format!("{padding}.safetensors"));
        made(&path, "F32", ELEMENTS, padding, &bytes_of(&numbers()));
        let x = TensorFile::open(&path).unwrap().load("x", &Device::cpu()).unwrap();
        assert_eq!(x.into_data().unwrap(), numbers().into(), "{padding} more bytes in front");
    }
}

#[test]
fn damaged_files_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder);
    let whole = fs::read(&path).unwrap();
    for length in [1, 7, 100, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(TensorFile::open(&path), Err(StoreError::Length { .. })), "{length} bytes");
    }
    let path = folder.path().join("flags.safetensors");
    let mut flags = vec![1; 2 << 20];
    flags[1 << 20] = 2;
    made(&path, "BOOL", flags.len(), 0, &flags);
    let file = TensorFile::open(&path).unwrap();
    assert!(file.load("x", &Device::cpu()).unwrap_err().to_string().contains("`x`"));
}

#[test]
fn the_file_may_be_replaced_and_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder);
    let x = TensorFile::open(&path).unwrap().load("x", &Device::cpu()).unwrap();
    save_tensors(&path, [("x".into(), vec![7.0f32; ELEMENTS].into())], &Default::default()).unwrap();
    assert_eq!(x.to_data().unwrap(), numbers().into());
    fs::remove_file(&path).unwrap();
    assert_eq!(x.into_data().unwrap(), numbers().into());
}

#[test]
fn small_and_unmapped_files_are_not_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = written(&folder);
    let file = TensorFile::open_unmapped(&path).unwrap();
    assert!(!file.is_mapped());
    let x = file.load("x", &Device::cpu()).unwrap();
    // Written in place, which a mapped file would show.
    fs::write(&path, vec![0; fs::metadata(&path).unwrap().len() as usize]).unwrap();
    assert_eq!(x.into_data().unwrap(), numbers().into());

    save_tensors(&path, [("x".into(), vec![1.0f32; 10].into())], &Default::default()).unwrap();
    assert!(!TensorFile::open(&path).unwrap().is_mapped());
}

#[test]
fn other_engines_copy_tensors() {
    let folder = tempfile::tempdir().unwrap();
    let device = Device::from_engine(Arc::new(kiln_reference::Reference::new()), "reference");
    let x = TensorFile::open(written(&folder)).unwrap().load("x", &device).unwrap();
    assert_eq!(x.into_data().unwrap(), numbers().into());
}

#[derive(Debug, Module)]
struct Weights<B: Backend> {
    weight: Param<Tensor<B, 1>>,
}

fn weights(numbers: Vec<f32>) -> Weights<Autodiff<Flex>> {
    Weights { weight: Param::from_tensor(Tensor::from_data(numbers, &Default::default())) }
}

#[test]
fn modules_load_and_train_from_a_mapped_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    save_module(&weights(numbers()), &path).unwrap();
    let copying = LoadOptions::new().copy(true);
    for loaded in [
        load_module(weights(vec![0.0; ELEMENTS]), &path).unwrap(),
        load_module_with(weights(vec![0.0; ELEMENTS]), &path, &copying).unwrap().0,
    ] {
        let gradients = loaded.weight.val().powi_scalar(2).sum().backward();
        let gradient = loaded.weight.val().grad(&gradients).unwrap();
        let doubled: Vec<f32> = numbers().iter().map(|x| 2.0 * x).collect();
        assert_eq!(gradient.into_data().to_vec::<f32>(), doubled);
        // Saves over the file of the mapped weights.
        save_module(&loaded, &path).unwrap();
        assert_eq!(loaded.weight.val().into_data().to_vec::<f32>(), numbers());
    }
}
