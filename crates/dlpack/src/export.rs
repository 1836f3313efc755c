//! Creating managed tensors.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ffi::c_void;
use core::ptr::{self, NonNull};

use kiln_ir::{Elements, MAX_RANK, TensorData};

use crate::abi::{CPU, DLDataType, DLDevice, DLTensor};
use crate::managed::Form;

/// The elements that a managed tensor keeps alive.
pub(crate) enum Source {
    Owned(TensorData),
    Shared(Arc<TensorData>),
}

impl Source {
    fn data(&self) -> &TensorData {
        match self {
            Source::Owned(data) => data,
            Source::Shared(data) => data,
        }
    }

    /// Returns the address of the elements. Shared elements are read-only.
    fn address(&mut self) -> *mut c_void {
        match self {
            Source::Owned(data) => mutable_address(data.elements_mut()),
            Source::Shared(data) => data.bytes().as_ptr().cast_mut().cast(),
        }
    }
}

fn mutable_address(elements: &mut Elements) -> *mut c_void {
    match elements {
        Elements::F64(elements) => elements.as_mut_ptr().cast(),
        Elements::F32(elements) => elements.as_mut_ptr().cast(),
        Elements::F16(elements) => elements.as_mut_ptr().cast(),
        Elements::BF16(elements) => elements.as_mut_ptr().cast(),
        Elements::I64(elements) => elements.as_mut_ptr().cast(),
        Elements::I32(elements) => elements.as_mut_ptr().cast(),
        Elements::I16(elements) => elements.as_mut_ptr().cast(),
        Elements::I8(elements) => elements.as_mut_ptr().cast(),
        Elements::U64(elements) => elements.as_mut_ptr().cast(),
        Elements::U32(elements) => elements.as_mut_ptr().cast(),
        Elements::U16(elements) => elements.as_mut_ptr().cast(),
        Elements::U8(elements) => elements.as_mut_ptr().cast(),
        Elements::Bool(elements) => elements.as_mut_ptr().cast(),
    }
}

/// A managed tensor with its shape and strides in one allocation; the elements are separate.
struct Exported<F> {
    managed: F,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
    /// Owns the memory of the elements.
    _source: Source,
}

/// Creates a managed tensor of these elements with these flags.
pub(crate) fn export<F: Form>(mut source: Source, flags: u64) -> NonNull<F> {
    let ty = source.data().ty();
    // A length fits into `i64`, since a slice has at most `isize::MAX` bytes. That of an empty tensor may not fit and
    // is clamped.
    let signed = |length: usize| i64::try_from(length).unwrap_or(i64::MAX);
    let lengths: [i64; MAX_RANK] = core::array::from_fn(|axis| ty.shape.get(axis).copied().map_or(0, signed));
    let strides =
        if ty.num_elements() == 0 { [1; MAX_RANK] } else { ty.shape.row_major_strides().map(signed) };
    let tensor = DLTensor {
        data: if ty.num_elements() == 0 { ptr::null_mut() } else { source.address() },
        device: DLDevice { device_type: CPU, device_id: 0 },
        ndim: ty.shape.rank() as i32,
        dtype: DLDataType::of(ty.dtype),
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = F::new(tensor, ptr::null_mut(), delete::<F>, flags);
    let exported = Box::into_raw(Box::new(Exported { managed, shape: lengths, strides, _source: source }));
    // SAFETY: the pointer is that of the box, which is leaked until `delete` takes it back; nothing else points to it
    // yet.
    unsafe {
        let shape = (&raw mut (*exported).shape).cast::<i64>();
        let strides = (&raw mut (*exported).strides).cast::<i64>();
        let tensor = DLTensor { shape, strides, ..tensor };
        (*exported).managed = F::new(tensor, exported.cast(), delete::<F>, flags);
        NonNull::new_unchecked(&raw mut (*exported).managed)
    }
}

/// The deleter of structs that [`export`] created.
///
/// # Safety
/// `managed` must come from [`export`] with the same form, and must not be used afterwards.
unsafe extern "C" fn delete<F: Form>(managed: *mut F) {
    // SAFETY: `export` stored the address of the whole allocation there, and only this function frees it.
    unsafe {
        let exported = (*managed).context().cast::<Exported<F>>();
        drop(Box::from_raw(exported));
    }
}
