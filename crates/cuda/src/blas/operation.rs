//! The description of a matmul for cuBLASLt: layouts of the factors, and the epilogue.

use super::{Descriptor, Types};
use crate::driver::{CudaMemory, address};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{self, cublasLtEpilogue_t as Name, cublasLtMatmulDescAttributes_t as Attribute};
use kiln_gpu::driver::{Activation, EpilogueForm, Products};

type Outcome<T> = core::result::Result<T, CublasError>;

/// The descriptor of matmuls. It contains the addresses of a bias and of scales, so such matmuls need a new descriptor
/// for each call.
pub(super) fn operation(types: Types, products: &Products<CudaMemory>) -> Outcome<Descriptor> {
    let operation = Descriptor(result::create_matmul_desc(types.compute, types.scale)?);
    let [a, b] = &products.factors;
    // CUBLAS_OP_T is 1.
    set(&operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(b.transposed))?;
    set(&operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(a.transposed))?;
    set(&operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, name(products.epilogue.form()))?;
    if let Some(bias) = &products.epilogue.bias {
        set(&operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, address(bias))?;
    }
    if let Some(float8) = &products.float8 {
        let [a, b] = &float8.scales;
        set(&operation, Attribute::CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, address(b))?;
        set(&operation, Attribute::CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, address(a))?;
    }
    Ok(operation)
}

/// The library's name of an epilogue.
fn name(form: EpilogueForm) -> Name {
    match (form.activation, form.has_bias) {
        (None, false) => Name::CUBLASLT_EPILOGUE_DEFAULT,
        (None, true) => Name::CUBLASLT_EPILOGUE_BIAS,
        (Some(Activation::Relu), false) => Name::CUBLASLT_EPILOGUE_RELU,
        (Some(Activation::Relu), true) => Name::CUBLASLT_EPILOGUE_RELU_BIAS,
        (Some(Activation::Gelu), false) => Name::CUBLASLT_EPILOGUE_GELU,
        (Some(Activation::Gelu), true) => Name::CUBLASLT_EPILOGUE_GELU_BIAS,
    }
}

/// Sets an attribute; `T` must be its type in the library.
fn set<T>(operation: &Descriptor, attribute: sys::cublasLtMatmulDescAttributes_t, value: T) -> Outcome<()> {
    // SAFETY: the descriptor is alive, and the value has the size of the attribute.
    unsafe {
        result::set_matmul_desc_attribute(operation.0, attribute, (&raw const value).cast(), size_of::<T>())
    }
}
