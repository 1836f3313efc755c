//! What the library is asked for: factors as they lie, and what it does with products before it stores them.

use super::{Descriptor, Key, Types};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys::{self, cublasLtEpilogue_t as Name, cublasLtMatmulDescAttributes_t as Attribute};
use kiln_gpu::driver::{Activation, EpilogueForm};

type Outcome<T> = core::result::Result<T, CublasError>;

/// The descriptor of products with a bias at that address. Descriptors hold the address, so that products with a bias need one of their
/// own for each call.
pub(super) fn operation(key: &Key, types: Types, bias: Option<u64>) -> Outcome<Descriptor> {
    let operation = Descriptor(result::create_matmul_desc(types.compute, types.scale)?);
    // The library's number for "transposed" is 1.
    set(&operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSA, i32::from(key.factors[1].0))?;
    set(&operation, Attribute::CUBLASLT_MATMUL_DESC_TRANSB, i32::from(key.factors[0].0))?;
    set(&operation, Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, name(key.epilogue))?;
    if let Some(address) = bias {
        set(&operation, Attribute::CUBLASLT_MATMUL_DESC_BIAS_POINTER, address)?;
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

/// Sets an attribute, whose type at the library is `T`.
fn set<T>(operation: &Descriptor, attribute: sys::cublasLtMatmulDescAttributes_t, value: T) -> Outcome<()> {
    // SAFETY: the descriptor is alive, and the value of the attribute's size.
    unsafe {
        result::set_matmul_desc_attribute(operation.0, attribute, (&raw const value).cast(), size_of::<T>())
    }
}
