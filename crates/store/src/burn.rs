//! Files of the framework [Burn](https://burn.dev), for models that come from there.
//!
//! | file | reader |
//! |---|---|
//! | `.bpk`, a Burnpack of `BurnpackStore` | [`BurnpackFile`] |
//! | `.mpk`, `.mpk.gz`: a record of `NamedMpkFileRecorder` or `NamedMpkGzFileRecorder` | [`BurnRecordFile`] |
//!
//! Names are those of Burn's fields. [`Mapping::burn`](crate::Mapping::burn) converts names and layouts to those of
//! Kiln's layers:
//!
//! ```no_run
//! use kiln_backends::Flex;
//! use kiln_nn::{Linear, LinearConfig};
//! use kiln_store::{LoadOptions, Mapping, load_module_with};
//!
//! let model: Linear<Flex> = LinearConfig::new(4, 2).init(&Default::default());
//! let (model, report) = load_module_with(model, "model.mpk", &LoadOptions::new().mapping(Mapping::burn()))?;
//! # Ok::<(), kiln_store::StoreError>(())
//! ```
//!
//! Records in `bincode` (`.bin`) have no names and cannot be read. Quantised tensors of Burn are listed, but reading
//! one is an error.

mod burnpack;
mod record;

use kiln_tensor::DType;

pub use burnpack::BurnpackFile;
pub use record::BurnRecordFile;

pub(crate) use burnpack::MAGIC as BURNPACK_MAGIC;
pub(crate) use record::{GZIP_MAGIC, is_record};

/// The dtype of a variant of Burn's `DType`, and of the variant inside it: `F32`, or `Bool` with `Native`. `None` of
/// those that Kiln does not support.
fn dtype_of(variant: &str, inner: Option<&str>) -> Option<DType> {
    Some(match (variant, inner) {
        ("F64", None) => DType::F64,
        // Elements of `Flex32` are stored as `f32`.
        ("F32" | "Flex32", None) => DType::F32,
        ("F16", None) => DType::F16,
        ("BF16", None) => DType::BF16,
        ("I64", None) => DType::I64,
        ("I32", None) => DType::I32,
        ("I16", None) => DType::I16,
        ("I8", None) => DType::I8,
        ("U64", None) => DType::U64,
        ("U32", None) => DType::U32,
        ("U16", None) => DType::U16,
        ("U8", None) => DType::U8,
        ("Bool", None | Some("Native" | "U8")) => DType::Bool,
        _ => return None,
    })
}

/// The name of a dtype in messages.
fn dtype_name(variant: &str, inner: Option<&str>) -> String {
    match inner {
        Some(inner) => format!("{variant}({inner})"),
        None => variant.to_owned(),
    }
}
