//! Checks of the source code of block kernels.

use kiln_ir::{DType, DTypeSet};
use kiln_kernel::block::{BlockKernel, Type};
use kiln_kernel::print::{Dialect, Target, block, split_tensors};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// Asserts that a kernel prints as CUDA, HIP and valid WGSL; without dtypes of 64 bits also as WGSL for devices that lack
/// them.
///
/// # Panics
/// When it does not.
pub(crate) fn assert_printed(kernel: &BlockKernel) {
    for dialect in [Dialect::Cuda, Dialect::Hip] {
        printed(kernel, &Target::new(dialect));
    }
    let native = Target { dialect: Dialect::Wgsl, dtypes: DTypeSet::ALL, atomics_64: false };
    assert_valid(&printed(kernel, &native));
    if !has_wide(kernel) {
        let narrow: Vec<DType> = DType::ALL.into_iter().filter(|dtype| dtype.size() < 8).collect();
        let browser = Target { dtypes: DTypeSet::of(&narrow), ..native };
        assert_valid(&printed(kernel, &browser));
    }
}

fn has_wide(kernel: &BlockKernel) -> bool {
    let shared = kernel.shared.iter().filter_map(|array| match array.ty {
        Type::Value(dtype) => Some(dtype),
        Type::Index => None,
    });
    kernel.params.iter().map(|param| param.dtype).chain(shared).any(|dtype| dtype.size() == 8)
}

fn printed(kernel: &BlockKernel, target: &Target) -> String {
    match block(kernel, target) {
        Ok((text, entry)) => {
            assert_eq!(entry.parameters.len(), kernel.params.len(), "{}", kernel.name);
            text
        }
        Err(lack) => panic!("`{}` is not printed for {target:?}: {lack}", kernel.name),
    }
}

/// Asserts that a module is valid, also with all tensors in parts.
fn assert_valid(source: &str) {
    assert_valid_text(source);
    let split = split_tensors(source, &[3; 16], 1 << 27);
    assert_valid_text(&split.unwrap_or_else(|lack| panic!("is not split: {lack}\n{source}")));
}

fn assert_valid_text(source: &str) {
    let module = naga::front::wgsl::parse_str(source)
        .unwrap_or_else(|error| panic!("is no WGSL: {}\n{source}", error.emit_to_string(source)));
    Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .unwrap_or_else(|error| panic!("is no valid WGSL: {}\n{source}", error.emit_to_string(source)));
}
