//! Blocks of quantised weights, as the bytes in `u8` tensors.
//!
//! The formats are those of [GGUF](https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). Each block holds a fixed
//! number of consecutive elements of a row in a fixed number of bytes: small integers, with their scales and minima.

mod decode;
mod encode;

use crate::op::variant_names;

variant_names! {
    /// The format of a block of quantised weights.
    ///
    /// ```
    /// use kiln_ir::BlockFormat;
    ///
    /// let format = BlockFormat::Q4_1;
    /// assert_eq!((format.len(), format.bytes()), (32, 20));
    /// assert_eq!(BlockFormat::from_name("q4_1"), Some(format));
    /// ```
    #[allow(non_camel_case_types, reason = "the names of the formats")]
    BlockFormat {
        /// 32 signed 4-bit integers and a scale: 4.5 bits an element.
        Q4_0 = "q4_0",
        /// 32 unsigned 4-bit integers, a scale and a minimum: 5 bits an element.
        Q4_1 = "q4_1",
        /// 32 signed 5-bit integers and a scale: 5.5 bits an element.
        Q5_0 = "q5_0",
        /// 32 unsigned 5-bit integers, a scale and a minimum: 6 bits an element.
        Q5_1 = "q5_1",
        /// 32 signed bytes and a scale: 8.5 bits an element.
        Q8_0 = "q8_0",
        /// 256 2-bit integers in 16 groups with 4-bit scales and minima: 2.625 bits an element.
        Q2_K = "q2_k",
        /// 256 3-bit integers in 16 groups with 6-bit scales: 3.4375 bits an element.
        Q3_K = "q3_k",
        /// 256 4-bit integers in 8 groups with 6-bit scales and minima: 4.5 bits an element.
        Q4_K = "q4_k",
        /// 256 5-bit integers in 8 groups with 6-bit scales and minima: 5.5 bits an element.
        Q5_K = "q5_k",
        /// 256 6-bit integers in 16 groups with 8-bit scales: 6.5625 bits an element.
        Q6_K = "q6_k",
        /// 256 signed bytes, a scale in `f32` and sums of 16 elements: 9.125 bits an element.
        Q8_K = "q8_k",
        /// 32 indices into a table of 16 values, and a scale: 4.5 bits an element.
        IQ4_NL = "iq4_nl",
        /// 256 indices into that table, in 8 groups with 6-bit scales: 4.25 bits an element.
        IQ4_XS = "iq4_xs",
    }
}

impl BlockFormat {
    /// Parses a format [`name`](BlockFormat::name), in lower or upper case.
    pub fn from_name(name: &str) -> Option<BlockFormat> {
        BlockFormat::ALL.iter().copied().find(|format| format.name().eq_ignore_ascii_case(name))
    }

    /// The row of the format: elements and bytes of a block, and the format of 32 elements with the next more bits.
    const fn row(self) -> (usize, usize, BlockFormat) {
        match self {
            Self::Q4_0 => (32, 18, self),
            Self::Q4_1 => (32, 20, self),
            Self::Q5_0 => (32, 22, self),
            Self::Q5_1 => (32, 24, self),
            Self::Q8_0 => (32, 34, self),
            Self::Q2_K => (256, 84, Self::IQ4_NL),
            Self::Q3_K => (256, 110, Self::IQ4_NL),
            Self::Q4_K => (256, 144, Self::Q5_0),
            Self::Q5_K => (256, 176, Self::Q5_1),
            Self::Q6_K => (256, 210, Self::Q8_0),
            Self::Q8_K => (256, 292, Self::Q8_0),
            Self::IQ4_NL => (32, 18, self),
            Self::IQ4_XS => (256, 136, Self::IQ4_NL),
        }
    }

    /// Returns the number of elements of a block.
    #[allow(clippy::len_without_is_empty, reason = "a block is never empty")]
    pub const fn len(self) -> usize {
        self.row().0
    }

    /// Returns the number of bytes of a block.
    pub const fn bytes(self) -> usize {
        self.row().1
    }

    /// Returns the format for rows of `elements`: this one if they are whole blocks, else the format of blocks of 32
    /// elements with the next more bits. `None` if rows are not a multiple of 32.
    ///
    /// ```
    /// use kiln_ir::BlockFormat;
    ///
    /// assert_eq!(BlockFormat::Q4_K.fitting(512), Some(BlockFormat::Q4_K));
    /// assert_eq!(BlockFormat::Q4_K.fitting(576), Some(BlockFormat::Q5_0));
    /// assert_eq!(BlockFormat::Q4_K.fitting(100), None);
    /// ```
    pub const fn fitting(self, elements: usize) -> Option<BlockFormat> {
        if elements.is_multiple_of(self.len()) {
            return Some(self);
        }
        let format = self.row().2;
        if elements.is_multiple_of(format.len()) { Some(format) } else { None }
    }

    /// Returns the number of bytes of a row of `elements`; `None` unless it consists of whole blocks.
    pub const fn row_bytes(self, elements: usize) -> Option<usize> {
        if elements.is_multiple_of(self.len()) {
            (elements / self.len()).checked_mul(self.bytes())
        } else {
            None
        }
    }

    /// Returns the number of elements in `bytes` of a row; `None` unless these are whole blocks.
    pub const fn row_len(self, bytes: usize) -> Option<usize> {
        if bytes.is_multiple_of(self.bytes()) { (bytes / self.bytes()).checked_mul(self.len()) } else { None }
    }
}
