//! Shapes, and the type of a tensor.

use crate::DType;
use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// The greatest number of axes of a tensor.
pub const MAX_RANK: usize = 12;

/// The lengths of a tensor's axes, outermost first. Stored inline; dereferences to `[usize]`.
#[derive(Clone, Copy)]
pub struct Shape {
    rank: u8,
    lengths: [usize; MAX_RANK],
}

impl Shape {
    /// Returns the shape with these lengths: an array, a slice or a `Vec`.
    ///
    /// ```
    /// use kiln_ir::Shape;
    ///
    /// assert_eq!(Shape::new([2, 3]), Shape::from([2, 3]));
    /// assert_eq!(Shape::new(&[2, 3]).num_elements(), 6);
    /// ```
    ///
    /// # Panics
    /// With more than [`MAX_RANK`] axes.
    #[inline]
    #[track_caller]
    pub fn new(lengths: impl AsRef<[usize]>) -> Shape {
        Shape::of(lengths.as_ref())
    }

    #[track_caller]
    fn of(lengths: &[usize]) -> Shape {
        assert!(
            lengths.len() <= MAX_RANK,
            "[shape] {} axes are more than the {MAX_RANK} that a tensor may have\n  hint: join some of them",
            lengths.len()
        );
        let mut shape = Shape { rank: lengths.len() as u8, lengths: [0; MAX_RANK] };
        shape.lengths[..lengths.len()].copy_from_slice(lengths);
        shape
    }

    /// Returns the number of axes.
    #[inline]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// Returns the lengths as an array.
    ///
    /// ```
    /// use kiln_ir::Shape;
    ///
    /// let [rows, columns] = Shape::new([2, 3]).dims();
    /// assert_eq!((rows, columns), (2, 3));
    /// ```
    ///
    /// # Panics
    /// When the number of axes is not `D`.
    #[track_caller]
    pub fn dims<const D: usize>(&self) -> [usize; D] {
        (**self).try_into().unwrap_or_else(|_| panic!("[shape] {self} has {} axes, not {D}", self.rank))
    }

    /// Returns the number of elements: the product of the lengths, 1 for rank 0. Saturates at `usize::MAX`, which no
    /// tensor has.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.iter().fold(1, |product, &length| product.saturating_mul(length))
    }

    /// Returns the number of elements, or `None` if the product of the lengths overflows `usize`. A length of 0 counts
    /// as 1 in that product, as in NumPy: then the product over any axes fits too, whatever their order.
    ///
    /// ```
    /// use kiln_ir::Shape;
    ///
    /// assert_eq!(Shape::new([1 << 40, 0]).checked_num_elements(), Some(0));
    /// assert_eq!(Shape::new([1 << 40, 0, 1 << 40]).checked_num_elements(), None);
    /// ```
    pub fn checked_num_elements(&self) -> Option<usize> {
        let most = self.iter().try_fold(1usize, |product, &length| product.checked_mul(length.max(1)))?;
        Some(if self.has_no_elements() { 0 } else { most })
    }

    /// Returns whether a tensor of this shape has no elements: an axis has length 0.
    #[inline]
    pub fn has_no_elements(&self) -> bool {
        self.contains(&0)
    }

    /// Returns the same shape with the length of `axis` replaced.
    #[must_use]
    pub fn with(mut self, axis: usize, length: usize) -> Shape {
        self[axis] = length;
        self
    }

    /// Returns the same shape without `axis`.
    #[must_use]
    pub fn without(self, axis: usize) -> Shape {
        let mut rest = self;
        rest.lengths.copy_within(axis + 1.., axis);
        rest.rank -= 1;
        rest
    }

    /// Returns the same shape with an axis of `length` inserted before `axis`.
    #[must_use]
    #[track_caller]
    pub fn inserted(self, axis: usize, length: usize) -> Shape {
        let mut lengths: Vec<usize> = self.to_vec();
        lengths.insert(axis, length);
        Shape::new(&lengths)
    }

    /// Returns the strides, in elements, of a contiguous row-major tensor of this shape.
    pub fn row_major_strides(&self) -> [usize; MAX_RANK] {
        let mut strides = [1usize; MAX_RANK];
        for axis in (0..self.rank().saturating_sub(1)).rev() {
            strides[axis] = strides[axis + 1].saturating_mul(self[axis + 1].max(1));
        }
        strides
    }
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { rank: 0, lengths: [0; MAX_RANK] }
    }
}

impl Deref for Shape {
    type Target = [usize];
    #[inline]
    fn deref(&self) -> &[usize] {
        &self.lengths[..self.rank as usize]
    }
}

impl DerefMut for Shape {
    #[inline]
    fn deref_mut(&mut self) -> &mut [usize] {
        &mut self.lengths[..self.rank as usize]
    }
}

impl PartialEq for Shape {
    #[inline]
    fn eq(&self, other: &Shape) -> bool {
        // A plain loop: for so few lengths, a call of `memcmp` takes longer than the comparison.
        self.rank == other.rank && self.iter().zip(other.iter()).all(|(a, b)| a == b)
    }
}

impl Eq for Shape {}

impl core::hash::Hash for Shape {
    fn hash<H: core::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl<const D: usize> From<[usize; D]> for Shape {
    #[track_caller]
    fn from(lengths: [usize; D]) -> Shape {
        Shape::new(lengths)
    }
}

impl From<&[usize]> for Shape {
    #[track_caller]
    fn from(lengths: &[usize]) -> Shape {
        Shape::new(lengths)
    }
}

impl From<Vec<usize>> for Shape {
    #[track_caller]
    fn from(lengths: Vec<usize>) -> Shape {
        Shape::new(&lengths)
    }
}

impl From<&Vec<usize>> for Shape {
    #[track_caller]
    fn from(lengths: &Vec<usize>) -> Shape {
        Shape::new(lengths)
    }
}

impl FromIterator<usize> for Shape {
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = usize>>(lengths: I) -> Shape {
        let mut shape = Shape::default();
        for length in lengths {
            let rank = shape.rank as usize;
            assert!(rank < MAX_RANK, "[shape] more axes than the {MAX_RANK} that a tensor may have");
            shape.lengths[rank] = length;
            shape.rank += 1;
        }
        shape
    }
}

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct("shape", &**self)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Shape, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "shape")]
        struct Lengths(Vec<usize>);

        let Lengths(lengths) = Lengths::deserialize(deserializer)?;
        if lengths.len() > MAX_RANK {
            let wanted = alloc::format!("a list of at most {MAX_RANK} lengths");
            return Err(D::Error::invalid_length(lengths.len(), &wanted.as_str()));
        }
        Ok(Shape::new(&lengths))
    }
}

/// The type of a tensor: its shape and the type of its elements. Displays as `f32[2, 3]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename = "type")]
pub struct TensorType {
    /// The lengths of the axes.
    pub shape: Shape,
    /// The type of the elements.
    pub dtype: DType,
}

impl TensorType {
    /// Returns the type with this shape and dtype.
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> TensorType {
        TensorType { shape: shape.into(), dtype }
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// Returns the number of elements.
    #[inline]
    pub fn num_elements(&self) -> usize {
        self.shape.num_elements()
    }

    /// Returns the bytes of a contiguous tensor of this type. Saturates at `usize::MAX`, which no allocation has.
    #[inline]
    pub fn num_bytes(&self) -> usize {
        self.num_elements().saturating_mul(self.dtype.size())
    }

    /// Returns the bytes of a contiguous tensor of this type, or `None` if there cannot be such a tensor: the product
    /// of the lengths, of which 0 [counts as 1](Shape::checked_num_elements), takes more than `isize::MAX` bytes. Then
    /// strides and offsets in bytes fit `isize`. [`infer`](mod@crate::infer) accepts no other type.
    ///
    /// ```
    /// use kiln_ir::{DType, TensorType};
    ///
    /// assert_eq!(TensorType::new([1 << 40, 0], DType::F32).checked_num_bytes(), Some(0));
    /// assert_eq!(TensorType::new([1 << 62, 0], DType::F32).checked_num_bytes(), None);
    /// ```
    pub fn checked_num_bytes(&self) -> Option<usize> {
        let lengths = self.shape.iter().map(|&length| length.max(1));
        let most = lengths.fold(self.dtype.size(), usize::saturating_mul);
        (most <= isize::MAX as usize).then(|| self.num_bytes())
    }

    /// Returns the same dtype with another shape.
    #[must_use]
    pub fn with_shape(&self, shape: impl Into<Shape>) -> TensorType {
        TensorType::new(shape, self.dtype)
    }

    /// Returns the same shape with another dtype.
    #[must_use]
    pub fn with_dtype(&self, dtype: DType) -> TensorType {
        TensorType { shape: self.shape, dtype }
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}
