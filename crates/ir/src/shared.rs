//! Immutable bytes with shared ownership.

use crate::{Error, Result};
use alloc::format;
use alloc::sync::Arc;
use core::fmt;
use core::ops::Range;

/// A range of bytes in host memory, with a shared reference to their owner: a mapped file, a vector.
///
/// ```
/// use kiln_ir::SharedBytes;
/// use std::sync::Arc;
///
/// let bytes = SharedBytes::new(Arc::new(vec![1u8, 2, 3, 4]), 1..3)?;
/// assert_eq!(bytes.as_slice(), [2, 3]);
/// # Ok::<(), kiln_ir::Error>(())
/// ```
#[derive(Clone)]
pub struct SharedBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl SharedBytes {
    /// Creates a range of the bytes of `owner`.
    ///
    /// # Errors
    /// When the range is out of bounds.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Result<SharedBytes> {
        let length = (*owner).as_ref().len();
        if range.start > range.end || range.end > length {
            let problem =
                format!("bytes {}..{} are out of bounds for {length} bytes", range.start, range.end);
            return Err(Error::value("data", problem));
        }
        Ok(SharedBytes { owner, range })
    }

    /// Returns the bytes.
    pub fn as_slice(&self) -> &[u8] {
        // The owner may return fewer bytes by now, which is its bug; an empty slice avoids a panic here.
        (*self.owner).as_ref().get(self.range.clone()).unwrap_or_default()
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({} bytes)", self.range.len())
    }
}
