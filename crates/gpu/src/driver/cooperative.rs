//! The cooperative matrices of a device.

use kiln_ir::DType;

/// A product of small matrices, `sums += left * right`, that the threads of one subgroup compute together by tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CooperativeMatrix {
    /// Rows of the left factor and of the sums.
    pub rows: usize,
    /// Columns of the right factor and of the sums.
    pub columns: usize,
    /// Columns of the left factor, and rows of the right one.
    pub inner: usize,
    /// The dtype of both factors.
    pub factors: DType,
    /// The dtype of the sums.
    pub sums: DType,
    /// The threads of a subgroup. All kernels have subgroups of this size.
    pub threads: usize,
}
