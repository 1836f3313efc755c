//! The C structs of DLPack 1.1.
//!
//! Source: <https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h>. Fields have the names of the C header.

use core::ffi::c_void;

use kiln_ir::DType;

/// The version that this crate writes. It reads all versions with the same major version.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };

/// The [device type](DLDevice::device_type) of host memory (`kDLCPU`).
pub const CPU: i32 = 1;

/// A flag of [`DLManagedTensorVersioned::flags`]: the importer must not write to the tensor.
pub const FLAG_READ_ONLY: u64 = 1;

/// A flag of [`DLManagedTensorVersioned::flags`]: the memory is a copy that only the importer accesses.
pub const FLAG_IS_COPIED: u64 = 1 << 1;

/// A version of the DLPack standard.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Incremented when the layout of the structs changes.
    pub major: u32,
    /// Incremented when enum values are added.
    pub minor: u32,
}

/// The device of a tensor.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// The device type: [`CPU`], 2 for CUDA, 8 for Metal, 10 for ROCm and so on.
    pub device_type: i32,
    /// The index of the device, counted from 0.
    pub device_id: i32,
}

/// The dtype of a tensor.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// The type code: 0 for signed integers, 1 for unsigned integers, 2 for IEEE floats, 4 for bfloat16, 5 for complex,
    /// 6 for `bool`.
    pub code: u8,
    /// Number of bits per lane.
    pub bits: u8,
    /// Number of lanes per element: 1 except for vector types.
    pub lanes: u16,
}

const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const BOOL: u8 = 6;

impl DLDataType {
    /// Returns the DLPack type of a dtype.
    pub fn of(dtype: DType) -> DLDataType {
        let code = match dtype {
            DType::F64 | DType::F32 | DType::F16 => FLOAT,
            DType::BF16 => BFLOAT,
            DType::I64 | DType::I32 | DType::I16 | DType::I8 => INT,
            DType::U64 | DType::U32 | DType::U16 | DType::U8 => UINT,
            DType::Bool => BOOL,
        };
        DLDataType { code, bits: 8 * dtype.size() as u8, lanes: 1 }
    }

    /// Returns the dtype, or `None` if Kiln does not support it.
    pub fn dtype(self) -> Option<DType> {
        DType::ALL.into_iter().find(|&dtype| DLDataType::of(dtype) == self)
    }
}

/// A tensor in memory that another owner manages.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// Pointer to the memory; null for an empty tensor.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DLDevice,
    /// Number of dimensions.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// Pointer to the shape, `ndim` elements.
    pub shape: *mut i64,
    /// Pointer to the strides in elements, `ndim` elements. Before DLPack 1.2, null means row-major order.
    pub strides: *mut i64,
    /// Offset of the first element from `data` in bytes.
    pub byte_offset: u64,
}

/// A tensor with a deleter and a version: the struct since DLPack 1.0.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version of the struct.
    pub version: DLPackVersion,
    /// The exporter's private data.
    pub manager_ctx: *mut c_void,
    /// Frees the struct and the memory that it refers to.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// The flags [`FLAG_READ_ONLY`] and [`FLAG_IS_COPIED`].
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// A tensor with a deleter: the struct before DLPack 1.0.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The exporter's private data.
    pub manager_ctx: *mut c_void,
    /// Frees the struct and the memory that it refers to.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}
