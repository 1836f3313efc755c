//! The structs of DLPack 1.1, as C lays them out.
//!
//! Source: <https://github.com/dmlc/dlpack/blob/main/include/dlpack/dlpack.h>. Fields have the names of the C header.

use core::ffi::c_void;

use kiln_ir::DType;

/// The version that this crate writes. It reads every version with the same major number.
pub const VERSION: DLPackVersion = DLPackVersion { major: 1, minor: 1 };

/// The [device type](DLDevice::device_type) of the host's memory (`kDLCPU`).
pub const CPU: i32 = 1;

/// In [`DLManagedTensorVersioned::flags`]: who takes the tensor may not write to it.
pub const FLAG_READ_ONLY: u64 = 1;

/// In [`DLManagedTensorVersioned::flags`]: the memory is a copy that only the importer accesses.
pub const FLAG_IS_COPIED: u64 = 1 << 1;

/// A version of the standard.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    /// Changes with the layout of the structs.
    pub major: u32,
    /// Changes with new values of enums.
    pub minor: u32,
}

/// The device of a tensor.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    /// The kind of device: [`CPU`], 2 for CUDA, 8 for Metal, 10 for ROCm and so on.
    pub device_type: i32,
    /// Which one of them, from 0.
    pub device_id: i32,
}

/// The type of the elements.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    /// 0 for signed integers, 1 for unsigned ones, 2 for IEEE floats, 4 for bfloat16, 5 for complex numbers, 6 for truth
    /// values.
    pub code: u8,
    /// Bits per number.
    pub bits: u8,
    /// Numbers per element; 1 but for the vectors of some devices.
    pub lanes: u16,
}

const INT: u8 = 0;
const UINT: u8 = 1;
const FLOAT: u8 = 2;
const BFLOAT: u8 = 4;
const BOOL: u8 = 6;

impl DLDataType {
    /// How DLPack calls a dtype.
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

    /// The dtype, if Kiln has it.
    pub fn dtype(self) -> Option<DType> {
        DType::ALL.into_iter().find(|&dtype| DLDataType::of(dtype) == self)
    }
}

/// A tensor in memory that another owner manages.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    /// The memory; null where there are no elements.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DLDevice,
    /// The number of axes.
    pub ndim: i32,
    /// The type of the elements.
    pub dtype: DLDataType,
    /// The lengths of the axes, `ndim` of them.
    pub shape: *mut i64,
    /// The stride of each axis, in elements. Null, before DLPack 1.2, for row-major order.
    pub strides: *mut i64,
    /// The byte offset of the first element from `data`.
    pub byte_offset: u64,
}

/// A tensor with the function that frees it: the form since DLPack 1.0.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    /// The version that the struct has.
    pub version: DLPackVersion,
    /// The exporter's private data.
    pub manager_ctx: *mut c_void,
    /// Frees the struct and the memory that it points at.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// [`FLAG_READ_ONLY`], [`FLAG_IS_COPIED`].
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

/// A tensor with the function that frees it: the form before DLPack 1.0.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// The exporter's private data.
    pub manager_ctx: *mut c_void,
    /// Frees the struct and the memory that it points at.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}
