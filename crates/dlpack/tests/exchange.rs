//! Export and import, against a hand-written C-style counterpart.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use half::{bf16, f16};
use kiln_backends::{Device, Flex};
use kiln_dlpack::{
    CPU, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
    FLAG_IS_COPIED, FLAG_READ_ONLY, Managed,
};
use kiln_tensor::{DType, Shape, Tensor, TensorData, TensorType};

/// One tensor of every dtype, of several ranks, some empty.
fn every_dtype() -> Vec<TensorData> {
    let mut all: Vec<TensorData> = DType::ALL
        .into_iter()
        .map(|dtype| TensorData::from([[0i64, 1, 2], [1, 0, 77]]).convert(dtype))
        .collect();
    all.push(TensorData::from([f16::from_f32(1.5), f16::INFINITY]));
    all.push(TensorData::from([bf16::from_f32(-2.0), bf16::INFINITY]));
    all.push(TensorData::scalar(-0.0f64));
    all.push(TensorData::zeros(TensorType::new([0, 3], DType::U8)));
    all.push(TensorData::zeros(TensorType::new([2, 1, 2, 1, 1, 2, 1, 1, 1, 1, 1, 2], DType::I16)));
    all
}

#[test]
fn every_dtype_round_trips() {
    for data in every_dtype() {
        let versioned = Managed::<DLManagedTensorVersioned>::export(data.clone());
        assert_eq!(versioned.ty().unwrap(), data.ty());
        assert_eq!(versioned.to_data().unwrap(), data);
        assert!(!versioned.is_read_only().unwrap());
        let legacy: Managed<DLManagedTensor> = data.clone().into();
        // SAFETY: the pointer was just given up.
        let legacy = unsafe { Managed::from_raw(legacy.into_raw()) }.unwrap();
        assert_eq!(legacy.to_data().unwrap(), data);
        assert!(!legacy.is_read_only().unwrap());
        assert_eq!(format!("{legacy:?}"), format!("Managed({})", data.ty()));
        let shared = Managed::share(Arc::new(data.clone()));
        assert!(shared.is_read_only().unwrap());
        assert_eq!(shared.to_data().unwrap(), data);
    }
}

/// Reads a tensor from Kiln as a consumer in C does.
#[test]
fn a_consumer_reads_and_writes_in_place() {
    let numbers = vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let address = numbers.as_ptr();
    let x = Tensor::<Flex, 2>::from_data(TensorData::new(numbers, [2, 3]).unwrap(), &Default::default());
    let managed: *mut DLManagedTensorVersioned = Managed::from_tensor(x.into_any()).unwrap().into_raw();
    // SAFETY: the struct is valid until its deleter is called, at the end.
    unsafe {
        let tensor = (*managed).dl_tensor;
        assert_eq!(((*managed).version.major, (*managed).flags), (1, FLAG_IS_COPIED));
        assert_eq!((tensor.ndim, tensor.byte_offset), (2, 0));
        assert_eq!(tensor.device, DLDevice { device_type: CPU, device_id: 0 });
        assert_eq!(tensor.dtype, DLDataType { code: 2, bits: 32, lanes: 1 });
        assert_eq!(std::slice::from_raw_parts(tensor.shape, 2), [2, 3]);
        assert_eq!(std::slice::from_raw_parts(tensor.strides, 2), [3, 1]);
        assert_eq!(tensor.data.cast_const().cast(), address, "nothing is copied");
        *tensor.data.cast::<f32>().add(5) = 60.0;
        assert_eq!(std::slice::from_raw_parts(tensor.data.cast::<f32>(), 6), [1.0, 2.0, 3.0, 4.0, 5.0, 60.0]);
        ((*managed).deleter.unwrap())(managed);
    }
}

#[test]
fn an_empty_tensor_has_no_memory() {
    let managed = Managed::<DLManagedTensor>::export(TensorData::zeros(TensorType::new([3, 0], DType::F64)));
    // SAFETY: the struct is owned by `managed`.
    let tensor = unsafe { (*managed.as_ptr()).dl_tensor };
    assert!(tensor.data.is_null() && !tensor.strides.is_null());
}

#[test]
fn shared_data_lives_until_the_deleter_is_called() {
    let data = Arc::new(TensorData::from([1u8, 2, 3]));
    let managed = Managed::share(data.clone()).into_raw();
    assert_eq!(Arc::strong_count(&data), 2);
    // SAFETY: the struct is valid until its deleter is called, which is the last thing done with it.
    unsafe {
        assert_eq!((*managed).flags, FLAG_READ_ONLY);
        assert_eq!((*managed).dl_tensor.data.cast_const().cast(), data.bytes().as_ptr());
        ((*managed).deleter.unwrap())(managed);
    }
    assert_eq!(Arc::strong_count(&data), 1);
}

/// A tensor of another framework: one box, freed by its deleter.
struct Foreign {
    managed: DLManagedTensorVersioned,
    memory: Vec<u8>,
    shape: Vec<i64>,
    strides: Vec<i64>,
    freed: &'static AtomicUsize,
}

unsafe extern "C" fn free(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: `Foreign::managed` put the box there, and the deleter is called once.
    let foreign = unsafe { Box::from_raw((*managed).manager_ctx.cast::<Foreign>()) };
    foreign.freed.fetch_add(1, Ordering::Relaxed);
}

impl Foreign {
    /// A valid tensor, which `change` may invalidate. `freed` counts the called deleters.
    fn managed(
        memory: Vec<u8>,
        dtype: DType,
        shape: &[i64],
        strides: &[i64],
        freed: &'static AtomicUsize,
        change: impl FnOnce(&mut DLManagedTensorVersioned),
    ) -> Managed<DLManagedTensorVersioned> {
        let tensor = DLTensor {
            data: ptr::null_mut(),
            device: DLDevice { device_type: CPU, device_id: 0 },
            ndim: shape.len() as i32,
            dtype: DLDataType::of(dtype),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let managed = DLManagedTensorVersioned {
            version: DLPackVersion { major: 1, minor: 3 },
            manager_ctx: ptr::null_mut(),
            deleter: Some(free),
            flags: 0,
            dl_tensor: tensor,
        };
        let (shape, strides) = (shape.to_vec(), strides.to_vec());
        let foreign = Box::into_raw(Box::new(Foreign { managed, memory, shape, strides, freed }));
        // SAFETY: the box is leaked until `free` takes it back; `change` leaves pointers valid or null.
        unsafe {
            let managed = &raw mut (*foreign).managed;
            (*managed).manager_ctx = foreign.cast();
            (*managed).dl_tensor.data = (*foreign).memory.as_mut_ptr().cast::<c_void>();
            (*managed).dl_tensor.shape = (*foreign).shape.as_mut_ptr();
            (*managed).dl_tensor.strides = (*foreign).strides.as_mut_ptr();
            change(&mut *managed);
            Managed::from_raw(managed).unwrap()
        }
    }
}

fn bytes(numbers: std::ops::Range<i16>) -> Vec<u8> {
    numbers.flat_map(i16::to_ne_bytes).collect()
}

#[test]
fn strides_and_offsets_are_followed() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let read = |shape: &[i64], strides: &[i64], first: u64| {
        let offset = |managed: &mut DLManagedTensorVersioned| managed.dl_tensor.byte_offset = 2 * first;
        let managed = Foreign::managed(bytes(0..24), DType::I16, shape, strides, &FREED, offset);
        let data = managed.to_data().unwrap();
        assert_eq!(data.shape(), &Shape::new(shape.iter().map(|&x| x as usize).collect::<Vec<_>>()));
        data.into_vec::<i16>().unwrap()
    };
    assert_eq!(read(&[2, 3], &[3, 1], 0), [0, 1, 2, 3, 4, 5]);
    assert_eq!(read(&[2, 3], &[3, 1], 18), [18, 19, 20, 21, 22, 23]);
    assert_eq!(read(&[3, 2], &[1, 3], 0), [0, 3, 1, 4, 2, 5]);
    assert_eq!(read(&[4], &[-2], 7), [7, 5, 3, 1]);
    assert_eq!(read(&[2, 2], &[0, 5], 1), [1, 6, 1, 6]);
    assert_eq!(read(&[2, 1, 2], &[12, i64::MAX, 4], 3), [3, 7, 15, 19]);
    assert_eq!(read(&[2, 3, 2], &[-12, -4, -1], 23), [23, 22, 19, 18, 15, 14, 11, 10, 7, 6, 3, 2]);
    assert_eq!(read(&[], &[], 9), [9]);
    assert_eq!(read(&[1, 1], &[77, -77], 9), [9]);
    assert_eq!(read(&[3, 0], &[1, 1], 0), Vec::<i16>::new());
    assert_eq!(FREED.load(Ordering::Relaxed), 10);
}

#[test]
fn null_strides_are_row_major_and_memory_may_be_unaligned() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let memory: Vec<u8> = std::iter::once(9).chain(bytes(1..7)).collect();
    let managed = Foreign::managed(memory.clone(), DType::I16, &[3, 2], &[], &FREED, |managed| {
        (managed.dl_tensor.strides, managed.dl_tensor.byte_offset) = (ptr::null_mut(), 1);
    });
    assert_eq!(managed.to_data().unwrap(), TensorData::from([[1i16, 2], [3, 4], [5, 6]]));
    let managed = Foreign::managed(memory, DType::I16, &[2, 3], &[1, 2], &FREED, |managed| {
        managed.dl_tensor.byte_offset = 1;
    });
    assert_eq!(managed.to_data().unwrap(), TensorData::from([[1i16, 3, 5], [2, 4, 6]]));
    let x = managed.to_tensor(&Device::cpu()).unwrap();
    assert_eq!(x.into_data().unwrap().to_vec::<i64>(), [1, 3, 5, 2, 4, 6]);
}

#[test]
fn invalid_tensors_are_refused_and_freed() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let mut count = 0;
    let mut says = |expected: &str, change: &dyn Fn(&mut DLManagedTensorVersioned)| {
        let managed = Foreign::managed(bytes(0..6), DType::I16, &[2, 3], &[3, 1], &FREED, change);
        let error = managed.to_data().unwrap_err().to_string();
        assert_eq!(error, expected);
        assert_eq!(managed.ty().unwrap_err().to_string(), expected);
        drop(managed);
        count += 1;
        assert_eq!(FREED.load(Ordering::Relaxed), count);
    };
    static NEGATIVE: [i64; 2] = [2, -3];
    static LARGE: [i64; 2] = [i64::MAX, 2];
    static FAR: [i64; 2] = [i64::MAX, 1];
    static BEFORE: [i64; 2] = [i64::MIN / 4, 1];
    says(
        "[dlpack] the tensor is on device 1 of type 2 (CUDA), not in the host's memory\n  hint: move it to the CPU \
         first: `tensor.cpu()` in PyTorch",
        &|managed| managed.dl_tensor.device = DLDevice { device_type: 2, device_id: 1 },
    );
    says(
        "[dlpack] elements of type code 5 with 64 bits and 1 lanes are not supported\n  hint: share the real and the \
         imaginary part as two tensors",
        &|managed| managed.dl_tensor.dtype = DLDataType { code: 5, bits: 64, lanes: 1 },
    );
    says(
        "[dlpack] elements of type code 2 with 32 bits and 4 lanes are not supported\n  hint: convert the tensor before \
         it is shared: to `float32`, for instance",
        &|managed| managed.dl_tensor.dtype = DLDataType { code: 2, bits: 32, lanes: 4 },
    );
    says(
        "[dlpack] the tensor is of DLPack version 2; only version 1 is known\n  hint: request version 1 from the \
         other framework: `max_version=(1, 1)`",
        &|managed| managed.version.major = 2,
    );
    says("[dlpack] rank -1 is not between 0 and 12", &|managed| managed.dl_tensor.ndim = -1);
    says("[dlpack] rank 13 is not between 0 and 12", &|managed| managed.dl_tensor.ndim = 13);
    says("[dlpack] the shape is a null pointer", &|managed| managed.dl_tensor.shape = ptr::null_mut());
    says("[dlpack] the memory of i16[2, 3] is a null pointer", &|managed| {
        managed.dl_tensor.data = ptr::null_mut();
    });
    says("[dlpack] dimension 1 has length -3", &|managed| {
        managed.dl_tensor.shape = NEGATIVE.as_ptr().cast_mut();
    });
    says("[dlpack] i16[9223372036854775807, 2] is larger than any memory", &|managed| {
        managed.dl_tensor.shape = LARGE.as_ptr().cast_mut();
    });
    says(
        "[dlpack] i16[2, 3] with strides [9223372036854775807, 1] and byte offset 0 is out of bounds of the memory",
        &|managed| managed.dl_tensor.strides = FAR.as_ptr().cast_mut(),
    );
    says(
        "[dlpack] i16[2, 3] with strides [-2305843009213693952, 1] and byte offset 0 is out of bounds of the memory",
        &|managed| managed.dl_tensor.strides = BEFORE.as_ptr().cast_mut(),
    );
    says(
        "[dlpack] i16[2, 3] with strides [3, 1] and byte offset 18446744073709551615 is out of bounds of the memory",
        &|managed| managed.dl_tensor.byte_offset = u64::MAX,
    );
}

#[test]
fn bool_bytes_are_validated() {
    static FREED: AtomicUsize = AtomicUsize::new(0);
    let managed = Foreign::managed(vec![1, 0, 1], DType::Bool, &[3], &[1], &FREED, |_| {});
    assert_eq!(managed.to_data().unwrap(), TensorData::from([true, false, true]));
    let managed = Foreign::managed(vec![1, 0, 2], DType::Bool, &[3], &[1], &FREED, |_| {});
    assert_eq!(
        managed.to_data().unwrap_err().to_string(),
        "[data] byte 2 at 2 is not a bool (0 or 1)\n  hint: compare with 0 to convert other numbers to bool"
    );
}

#[test]
fn null_pointers_and_missing_deleters() {
    // SAFETY: a null pointer is allowed.
    let error = unsafe { Managed::<DLManagedTensor>::from_raw(ptr::null_mut()) }.unwrap_err().to_string();
    assert!(error.starts_with("[dlpack] the managed tensor is a null pointer\n  hint: "), "{error}");
    let mut number = 7i32;
    let mut managed = DLManagedTensor {
        dl_tensor: DLTensor {
            data: (&raw mut number).cast(),
            device: DLDevice { device_type: CPU, device_id: 0 },
            ndim: 0,
            dtype: DLDataType::of(DType::I32),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            byte_offset: 0,
        },
        manager_ctx: ptr::null_mut(),
        deleter: None,
    };
    // SAFETY: the struct outlives the `Managed`, and has nothing to free.
    let taken = unsafe { Managed::from_raw(&raw mut managed) }.unwrap();
    assert_eq!(taken.to_data().unwrap(), TensorData::scalar(7i32));
}
