//! Strided matrices in memory.

/// A strided matrix: the pointer to the first element, the row stride and the column stride. Strides may be negative,
/// or 0 to broadcast.
pub(crate) struct Matrix<T> {
    pub(crate) start: *mut T,
    pub(crate) row: isize,
    pub(crate) column: isize,
}

// SAFETY: an address and two numbers; accesses through it are unsafe.
unsafe impl<T> Send for Matrix<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Matrix<T> {}

impl<T> Clone for Matrix<T> {
    #[inline(always)]
    fn clone(&self) -> Matrix<T> {
        *self
    }
}

impl<T> Copy for Matrix<T> {}

impl<T> Matrix<T> {
    #[inline(always)]
    pub(crate) fn new(start: *const T, row: isize, column: isize) -> Matrix<T> {
        Matrix { start: start.cast_mut(), row, column }
    }

    #[inline(always)]
    pub(crate) fn transposed(self) -> Matrix<T> {
        Matrix { row: self.column, column: self.row, ..self }
    }

    /// The submatrix that starts at that row and column.
    #[inline(always)]
    pub(crate) fn at(self, row: usize, column: usize) -> Matrix<T> {
        let offset = row as isize * self.row + column as isize * self.column;
        Matrix { start: self.start.wrapping_offset(offset), ..self }
    }
}
