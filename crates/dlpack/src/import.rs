//! Reading managed tensors.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use kiln_ir::{DType, Element, Elements, Error, MAX_RANK, Result, Shape, TensorData, TensorType};

use crate::abi::{CPU, DLDevice, DLTensor};

/// The validated shape, dtype and layout of a managed tensor.
pub(crate) struct Described {
    pub(crate) ty: TensorType,
    /// The address of the first element; dangling for an empty tensor.
    start: *const u8,
    /// Strides in elements.
    strides: [isize; MAX_RANK],
}

fn wrong(problem: String) -> Error {
    Error::value("dlpack", problem)
}

/// Validates a tensor without accessing its memory.
///
/// # Safety
/// `shape` and `strides` must each be null or point to `ndim` integers.
pub(crate) unsafe fn describe(tensor: &DLTensor) -> Result<Described> {
    check_device(tensor.device)?;
    let dtype = dtype(tensor)?;
    let rank = usize::try_from(tensor.ndim)
        .ok()
        .filter(|rank| *rank <= MAX_RANK)
        .ok_or_else(|| wrong(format!("rank {} is not between 0 and {MAX_RANK}", tensor.ndim)))?;
    // SAFETY: the caller passes pointers that are null or point to `ndim` integers.
    let (lengths, strides) = unsafe { (numbers(tensor.shape, rank), numbers(tensor.strides, rank)) };
    let lengths = lengths.ok_or_else(|| wrong("the shape is a null pointer".into()))?;
    let shape = shape(&lengths[..rank])?;
    let bytes = shape.checked_num_elements().and_then(|n| n.checked_mul(dtype.size()));
    if bytes.is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(wrong(format!("{dtype}{shape} is larger than any memory")));
    }
    let ty = TensorType { shape, dtype };
    if bytes == Some(0) {
        return Ok(Described { ty, start: core::ptr::dangling(), strides: [0; MAX_RANK] });
    }
    if tensor.data.is_null() {
        return Err(wrong(format!("the memory of {ty} is a null pointer")));
    }
    let strides = strides.unwrap_or_else(|| shape.row_major_strides().map(|stride| stride as i64));
    check_extent(tensor, &ty, &strides)?;
    // The extent was checked: first element and strides fit the address space.
    let start = tensor.data.cast_const().cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    Ok(Described { ty, start, strides: strides.map(|stride| stride as isize) })
}

fn check_device(device: DLDevice) -> Result<()> {
    if device.device_type == CPU {
        return Ok(());
    }
    let name = match device.device_type {
        2 => "CUDA",
        3 => "CUDA's pinned memory",
        4 => "OpenCL",
        7 => "Vulkan",
        8 => "Metal",
        10 => "ROCm",
        11 => "ROCm's pinned memory",
        13 => "CUDA's managed memory",
        14 => "oneAPI",
        15 => "WebGPU",
        _ => "unknown",
    };
    let DLDevice { device_type, device_id } = device;
    let problem = format!(
        "the tensor is on device {device_id} of type {device_type} ({name}), not in the host's memory"
    );
    Err(Error::unsupported("dlpack", problem).hint("move it to the CPU first: `tensor.cpu()` in PyTorch"))
}

fn dtype(tensor: &DLTensor) -> Result<DType> {
    tensor.dtype.dtype().ok_or_else(|| {
        let (code, bits, lanes) = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
        let problem =
            format!("elements of type code {code} with {bits} bits and {lanes} lanes are not supported");
        let hint = match code {
            5 => "share the real and the imaginary part as two tensors",
            _ => "convert the tensor before it is shared: to `float32`, for instance",
        };
        Error::unsupported("dlpack", problem).hint(hint)
    })
}

/// Reads the first `count` integers at a pointer, followed by zeros. Returns `None` if `count` is not 0 and the pointer
/// is null.
///
/// # Safety
/// The pointer must be null or point to `count` integers.
unsafe fn numbers(pointer: *const i64, count: usize) -> Option<[i64; MAX_RANK]> {
    let mut numbers = [0; MAX_RANK];
    if pointer.is_null() {
        return (count == 0).then_some(numbers);
    }
    for (place, number) in numbers[..count].iter_mut().enumerate() {
        // SAFETY: the caller passes a pointer to `count` integers; C code may not have aligned them.
        *number = unsafe { pointer.add(place).read_unaligned() };
    }
    Some(numbers)
}

fn shape(lengths: &[i64]) -> Result<Shape> {
    let mut shape = Shape::new(&[0; MAX_RANK][..lengths.len()]);
    for (axis, &length) in lengths.iter().enumerate() {
        let problem = || wrong(format!("dimension {axis} has length {length}"));
        shape[axis] = usize::try_from(length).map_err(|_| problem())?;
    }
    Ok(shape)
}

/// Checks that every element has an address, so that no address arithmetic overflows.
fn check_extent(tensor: &DLTensor, ty: &TensorType, strides: &[i64; MAX_RANK]) -> Result<()> {
    let size = ty.dtype.size() as i128;
    // The product of all lengths and the element size is below 2^63, so all products are below 2^126.
    let steps = ty
        .shape
        .iter()
        .zip(strides)
        .map(|(&length, &stride)| (length as i128 - 1) * i128::from(stride) * size);
    let (mut lowest, mut highest) = (0i128, 0i128);
    for step in steps {
        lowest += step.min(0);
        highest += step.max(0);
    }
    let first = tensor.data.addr() as i128 + i128::from(tensor.byte_offset);
    let in_memory = first + lowest > 0 && first + highest + size <= isize::MAX as i128 + 1;
    // Rust allows no object larger than `isize::MAX` bytes, nor offsets beyond it.
    let in_object =
        highest - lowest + size <= isize::MAX as i128 && strides.iter().all(|&s| isize::try_from(s).is_ok());
    if in_memory && in_object {
        return Ok(());
    }
    let problem = format!(
        "{ty} with strides {:?} and byte offset {} is out of bounds of the memory",
        &strides[..ty.shape.rank()],
        tensor.byte_offset
    );
    Err(wrong(problem))
}

/// Copies the elements.
///
/// # Safety
/// The described memory must be allocated, and no other code may write to it during the call.
pub(crate) unsafe fn read(described: &Described) -> Result<TensorData> {
    // SAFETY: the caller passes memory with elements of this dtype. Every bit pattern is valid for each type that is
    // read.
    let elements = unsafe {
        match described.ty.dtype {
            DType::F64 => f64::wrap(gather(described)?),
            DType::F32 => f32::wrap(gather(described)?),
            DType::F16 => Elements::F16(gather(described)?),
            DType::BF16 => Elements::BF16(gather(described)?),
            DType::I64 => i64::wrap(gather(described)?),
            DType::I32 => i32::wrap(gather(described)?),
            DType::I16 => i16::wrap(gather(described)?),
            DType::I8 => i8::wrap(gather(described)?),
            DType::U64 => u64::wrap(gather(described)?),
            DType::U32 => u32::wrap(gather(described)?),
            DType::U16 => u16::wrap(gather(described)?),
            DType::U8 => u8::wrap(gather(described)?),
            // Not every byte is a valid `bool`: they are read as bytes and checked.
            DType::Bool => Elements::from_bytes(&gather::<u8>(described)?, DType::Bool)?,
        }
    };
    TensorData::from_elements(elements, described.ty.shape)
}

/// Copies the elements in row-major order.
///
/// # Safety
/// As for [`read`]. The elements must have the size of `E`, and every bit pattern must be a valid `E`.
unsafe fn gather<E: Copy>(described: &Described) -> Result<Vec<E>> {
    let Described { ty, start, strides } = described;
    let count = ty.num_elements();
    let mut elements: Vec<E> = Vec::new();
    elements
        .try_reserve_exact(count)
        .map_err(|_| Error::device("dlpack", format!("cannot allocate memory for {ty}")))?;
    if count == 0 {
        return Ok(elements);
    }
    if is_row_major(&ty.shape, strides) {
        // SAFETY: the caller passes memory with `count` contiguous elements; the vector is new and has capacity for
        // them. They are copied as bytes, since the memory need not be aligned.
        unsafe {
            core::ptr::copy_nonoverlapping(*start, elements.as_mut_ptr().cast(), count * size_of::<E>());
            elements.set_len(count);
        }
        return Ok(elements);
    }
    let outer = ty.shape.rank() - 1;
    let mut position = [0; MAX_RANK];
    for _ in 0..count / ty.shape[outer] {
        let row: isize =
            position[..outer].iter().zip(strides).map(|(&index, stride)| index as isize * stride).sum();
        elements.extend((0..ty.shape[outer]).map(|index| {
            let offset = (row + index as isize * strides[outer]) * size_of::<E>() as isize;
            // SAFETY: `describe` checked that offsets within the shape fit, and the caller passes memory that contains
            // them.
            unsafe { start.offset(offset).cast::<E>().read_unaligned() }
        }));
        for axis in (0..outer).rev() {
            position[axis] += 1;
            if position[axis] < ty.shape[axis] {
                break;
            }
            position[axis] = 0;
        }
    }
    Ok(elements)
}

/// Whether the layout is row-major. Dimensions of length 1 may have any stride.
fn is_row_major(shape: &Shape, strides: &[isize; MAX_RANK]) -> bool {
    let expected = shape.row_major_strides();
    shape.iter().enumerate().all(|(axis, &length)| length == 1 || strides[axis] == expected[axis] as isize)
}
