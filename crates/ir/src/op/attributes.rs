//! The attributes of ops.

use crate::{Binary, DType, MAX_RANK, Real, TensorType};
use alloc::format;
use alloc::vec::Vec;
use core::fmt;
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A list of axes, stored inline.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Axes {
    len: u8,
    axes: [u8; MAX_RANK],
}

impl Axes {
    /// Returns the list of these axes, in this order.
    ///
    /// # Panics
    /// With more than [`MAX_RANK`] axes, or with an axis above 255.
    #[track_caller]
    pub fn new(axes: &[usize]) -> Axes {
        assert!(axes.len() <= MAX_RANK, "[axes] {} axes are more than {MAX_RANK}", axes.len());
        let mut list = Axes { len: axes.len() as u8, ..Axes::default() };
        for (slot, &axis) in list.axes.iter_mut().zip(axes) {
            *slot = u8::try_from(axis).expect("[axes] an axis above 255");
        }
        list
    }

    /// Returns the single axis.
    #[track_caller]
    pub fn one(axis: usize) -> Axes {
        Axes::new(&[axis])
    }

    /// Returns all axes of that rank, ascending.
    #[track_caller]
    pub fn all(rank: usize) -> Axes {
        Axes::new(&(0..rank).collect::<Vec<_>>())
    }

    /// Returns the number of axes in the list.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the axes, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + '_ {
        self.axes[..self.len()].iter().map(|&axis| axis as usize)
    }

    /// Returns the axis at an index of the list.
    ///
    /// # Panics
    /// When the index is out of range.
    pub fn get(&self, place: usize) -> usize {
        self.axes[..self.len()][place] as usize
    }

    /// Returns whether the axis is in the list.
    pub fn contains(&self, axis: usize) -> bool {
        self.iter().any(|a| a == axis)
    }

    /// Returns the axes as a vector.
    pub fn to_vec(&self) -> Vec<usize> {
        self.iter().collect()
    }

    /// Returns the inverse permutation.
    #[must_use]
    pub fn inverse(&self) -> Axes {
        let mut inverse = *self;
        for (to, from) in self.iter().enumerate() {
            inverse.axes[from] = to as u8;
        }
        inverse
    }
}

impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Serialize for Axes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_newtype_struct("axes", &self.to_vec())
    }
}

impl<'de> Deserialize<'de> for Axes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Axes, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename = "axes")]
        struct List(Vec<usize>);

        let List(axes) = List::deserialize(deserializer)?;
        if axes.len() > MAX_RANK || axes.iter().any(|&axis| axis >= MAX_RANK) {
            let wanted = format!("a list of at most {MAX_RANK} axes below it");
            return Err(D::Error::invalid_value(Unexpected::Seq, &wanted.as_str()));
        }
        Ok(Axes::new(&axes))
    }
}

/// An enum whose variants have names: those of messages, of the text form and of serde.
macro_rules! variant_names {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
        )]
        $(#[$meta])*
        pub enum $name { $($(#[$doc])* #[serde(rename = $text)] $variant,)* }

        impl $name {
            /// Every variant, in declaration order.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// Returns the name used in messages and in the text form.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }
        }
    };
}
pub(crate) use variant_names;

macro_rules! named_enum {
    ($(#[$meta:meta])* $name:ident $variants:tt) => {
        $crate::op::variant_names! { $(#[$meta])* $name $variants }

        impl $name {
            /// Parses a [`name`](Self::name).
            pub fn from_name(name: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|variant| variant.name() == name)
            }
        }
    };
}
pub(crate) use named_enum;

named_enum! {
    /// A comparison. With NaN every comparison but `Ne` is false; `false < true`.
    Comparison {
        /// Equal.
        Eq = "eq",
        /// Different.
        Ne = "ne",
        /// `a < b`.
        Lt = "lt",
        /// `a <= b`.
        Le = "le",
    }
}

named_enum! {
    /// The reduction operator. For numbers; `Min` and `Max` also for `bool` (all and any).
    #[serde(rename = "reduction")]
    Reduction {
        /// Sum; identity 0. Integers wrap.
        Sum = "sum",
        /// Product; identity 1. Integers wrap.
        Prod = "prod",
        /// Minimum; identity: the greatest value of the dtype (`inf` for floats).
        Min = "min",
        /// Maximum; identity: the least value of the dtype (`-inf` for floats).
        Max = "max",
    }
}

named_enum! {
    /// The kind of an extreme element.
    Extremum {
        /// The minimum.
        Min = "min",
        /// The maximum.
        Max = "max",
    }
}

named_enum! {
    /// The combination of written and existing elements.
    UpdateMode {
        /// The written element replaces the existing one.
        Set = "set",
        /// Their sum.
        Add = "add",
        /// Their product.
        Mul = "mul",
        /// The minimum; NaN if either is NaN.
        Min = "min",
        /// The maximum; NaN if either is NaN.
        Max = "max",
    }
}

named_enum! {
    /// The distribution of [`Op::Random`](super::Op::Random).
    RandomKind {
        /// Uniform bits; integers.
        Bits = "bits",
        /// Uniform in `[0, 1)`; floats.
        Uniform = "uniform",
        /// Normal with mean 0 and variance 1; floats.
        Normal = "normal",
    }
}

named_enum! {
    /// The kind of normalization.
    NormKind {
        /// `(x - mean) / sqrt(variance + ε)`, with the biased variance
        /// ([Ba et al. 2016](https://arxiv.org/abs/1607.06450)).
        Layer = "layer",
        /// `x / sqrt(mean(x²) + ε)` ([Zhang and Sennrich 2019](https://arxiv.org/abs/1910.07467)).
        Rms = "rms",
    }
}

named_enum! {
    /// The interpolation mode of [`Op::Resize`](super::Op::Resize).
    ResizeMode {
        /// The sample at `floor(i * in / out)`; `align_corners` does not apply.
        Nearest = "nearest",
        /// Linear along each axis (bilinear, trilinear).
        Linear = "linear",
        /// Cubic convolution along each axis, with `a = -0.75`
        /// ([Keys 1981](https://doi.org/10.1109/TASSP.1981.1163711)).
        Cubic = "cubic",
    }
}

/// The real side of [`Op::Fft`](super::Op::Fft), if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FftKind {
    /// `(re, im) -> (re, im)`, as many elements as points.
    Complex,
    /// `(x) -> (re, im)`: a real operand of at least one point. Of `N` points the first `N / 2 + 1` frequencies are
    /// computed; the others are their conjugates.
    FromReal,
    /// `(re, im) -> (x)`: from the first `points / 2 + 1` frequencies of a spectrum whose others are their conjugates.
    /// The imaginary parts at 0 and, for an even number of points, at the last frequency are ignored.
    ToReal {
        /// The number of points of the result: at least 1.
        points: usize,
    },
}

impl FftKind {
    /// Returns the number of points of a transform along an axis of that length.
    pub fn points(self, length: usize) -> usize {
        match self {
            FftKind::Complex | FftKind::FromReal => length,
            FftKind::ToReal { points } => points,
        }
    }
}

named_enum! {
    /// The user's function that reads an index: errors name it.
    IndexUser {
        /// The labels of a cross-entropy.
        CrossEntropy = "cross_entropy",
        /// The labels of a negative log-likelihood.
        Nll = "nll",
        /// The rows of an embedding table.
        Embedding = "embedding",
        /// The classes of a one-hot encoding.
        OneHot = "one_hot",
        /// Rows of weights by which classes are drawn: 0 for a row by which that is possible, any other number otherwise.
        Multinomial = "multinomial",
    }
}

impl IndexUser {
    /// Returns the error of an index that is not in `0..length`, at a position of the index tensor if that is known.
    pub fn out_of_range(
        self,
        index: Option<(&dyn core::fmt::Display, &crate::Shape)>,
        length: usize,
    ) -> crate::Error {
        let (one, all, places) = match self {
            IndexUser::CrossEntropy | IndexUser::Nll => ("label", "labels", "classes"),
            IndexUser::Embedding => ("index", "indices", "rows"),
            IndexUser::OneHot => ("class", "classes", "classes"),
            IndexUser::Multinomial => {
                let row = index.map_or("a row".into(), |(_, position)| alloc::format!("row {position}"));
                let problem = alloc::format!("no class can be drawn by the weights of {row}");
                return crate::Error::value(self.name(), problem).hint(
                    "weights are finite and not negative, and every class that is drawn needs one above 0",
                );
            }
        };
        let place = match index {
            Some((index, position)) => alloc::format!("{one} {index} at position {position}"),
            None => alloc::format!("a {one}"),
        };
        let problem = alloc::format!("{place} is out of range for {length} {places}");
        let hint = match length {
            0 => alloc::format!("there are no {places} to select"),
            _ => alloc::format!("{all} range from 0 to {}", length - 1),
        };
        crate::Error::value(self.name(), problem).hint(hint)
    }
}

/// A strided range of one axis: elements `start`, `start + step`, …, `len` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SliceAxis {
    /// The first element.
    pub start: usize,
    /// The number of elements.
    pub len: usize,
    /// The distance to the next element; negative reverses. Not 0.
    pub step: isize,
}

impl SliceAxis {
    /// Returns the full range of an axis of that length.
    pub fn all(len: usize) -> SliceAxis {
        SliceAxis { start: 0, len, step: 1 }
    }

    /// Returns the elements `start..end`.
    pub fn range(range: core::ops::Range<usize>) -> SliceAxis {
        SliceAxis { start: range.start, len: range.len(), step: 1 }
    }
}

/// The padding of one axis: its new length is `low + high + length + interior * (length - 1)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PadAxis {
    /// Elements inserted before the first.
    pub low: usize,
    /// Elements inserted after the last.
    pub high: usize,
    /// Elements inserted between neighbours.
    pub interior: usize,
}

impl PadAxis {
    /// Returns padding by `low` elements before and `high` after.
    pub fn new(low: usize, high: usize) -> PadAxis {
        PadAxis { low, high, interior: 0 }
    }

    /// Returns the distance in the padded tensor between neighbours of an axis of that length; 1 without neighbours,
    /// where the interior padding can be any number.
    pub fn step(&self, length: usize) -> isize {
        if length > 1 { self.interior as isize + 1 } else { 1 }
    }
}

/// The pass of a convolution: forward or one of the gradients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConvPass {
    /// `(x, w) -> y`.
    Forward,
    /// `(y, w) -> x`; several sizes of `x` lead to the same `y`, so the size is an attribute.
    Input {
        /// The lengths of the spatial dimensions of `x`.
        size: Vec<usize>,
    },
    /// `(x, y) -> w`; several sizes of `w` lead to the same `y`, so the size is an attribute.
    Weight {
        /// The lengths of the spatial dimensions of `w`.
        size: Vec<usize>,
    },
}

/// The attributes of attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttentionSpec {
    /// The factor of the scores; usually `1 / sqrt(dim)`.
    pub scale: Real,
    /// With `Some(offset)`, query `i` attends to key `j` only if `j <= i + offset`. With as many queries as keys the
    /// offset is 0; if queries continue `n` cached keys it is `n`.
    pub causal: Option<i64>,
}

/// A collective operation: its kind and its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Collective {
    /// The kind of communication.
    pub kind: CollectiveKind,
    /// Identifies the group among those of the process.
    pub group: u64,
    /// This member's rank, from 0.
    pub rank: usize,
    /// The number of members.
    pub size: usize,
}

/// The kinds of [`Collective`] operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CollectiveKind {
    /// `(x) -> y`: reduces the operands of all members; each member receives the result.
    AllReduce(Reduction),
    /// `(x) -> y`: concatenates the operands of all members along the axis; each member receives the result.
    AllGather {
        /// The axis along which lengths add up.
        axis: usize,
    },
    /// `(x) -> y`: reduces the operands of all members; each receives its own equal part along the axis.
    ReduceScatter {
        /// The reduction operator.
        reduction: Reduction,
        /// The axis that is split.
        axis: usize,
    },
    /// `(x) -> y`: each member receives the root's operand.
    Broadcast {
        /// The member whose operand is sent.
        root: usize,
    },
    /// `(x) -> x`: sends to another member, and returns the operand so that later ops can depend on it.
    Send {
        /// The receiver.
        to: usize,
        /// Distinguishes messages between the same two members.
        tag: u32,
    },
    /// `() -> y`: receives from another member.
    Recv {
        /// The sender.
        from: usize,
        /// Distinguishes messages between the same two members.
        tag: u32,
        /// The type of the received tensor.
        #[serde(rename = "type")]
        ty: TensorType,
    },
}

/// The least value of a dtype, as the identity of `Max`: `-inf` for floats.
pub(crate) fn least(dtype: DType) -> crate::Scalar {
    use crate::Scalar;
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Scalar::Float(f64::NEG_INFINITY),
        DType::I64 => Scalar::Int(i64::MIN),
        DType::I32 => Scalar::Int(i32::MIN as i64),
        DType::I16 => Scalar::Int(i16::MIN as i64),
        DType::I8 => Scalar::Int(i8::MIN as i64),
        DType::U64 | DType::U32 | DType::U16 | DType::U8 => Scalar::Int(0),
        DType::Bool => Scalar::Bool(false),
    }
}

/// The greatest value of a dtype, as the identity of `Min`: `inf` for floats.
pub(crate) fn greatest(dtype: DType) -> crate::Scalar {
    use crate::Scalar;
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::BF16 => Scalar::Float(f64::INFINITY),
        DType::I64 => Scalar::Int(i64::MAX),
        DType::I32 => Scalar::Int(i32::MAX as i64),
        DType::I16 => Scalar::Int(i16::MAX as i64),
        DType::I8 => Scalar::Int(i8::MAX as i64),
        DType::U64 => Scalar::UInt(u64::MAX),
        DType::U32 => Scalar::Int(u32::MAX as i64),
        DType::U16 => Scalar::Int(u16::MAX as i64),
        DType::U8 => Scalar::Int(u8::MAX as i64),
        DType::Bool => Scalar::Bool(true),
    }
}

impl Comparison {
    /// Rewrites a comparison so that the dtype can represent the number, with the same result for every element of
    /// `dtype`. A number outside an integer dtype's range becomes the nearest bound: on `u8`, `x < 300` becomes
    /// `x <= 255`, and `x == 300` becomes `x < 0`. Otherwise both are unchanged. `number_first`: the number is the left
    /// operand.
    ///
    /// ```
    /// use kiln_ir::{Comparison, DType, Scalar};
    /// let (comparison, number) = Comparison::Lt.bounded(Scalar::Int(300), DType::U8, false);
    /// assert_eq!((comparison, number), (Comparison::Le, Scalar::Int(255)));
    /// ```
    pub fn bounded(
        self,
        number: crate::Scalar,
        dtype: DType,
        number_first: bool,
    ) -> (Comparison, crate::Scalar) {
        let Some(side) = number.beyond(dtype) else { return (self, number) };
        let holds = match self {
            Comparison::Eq => false,
            Comparison::Ne => true,
            Comparison::Lt | Comparison::Le => side.is_gt() != number_first,
        };
        let comparison = if holds { Comparison::Le } else { Comparison::Lt };
        (comparison, if holds != number_first { greatest(dtype) } else { least(dtype) })
    }
}

impl Reduction {
    /// Returns the identity of the reduction, which is also the result over no elements.
    pub fn identity(self, dtype: DType) -> crate::Scalar {
        use crate::Scalar;
        match (self, dtype.is_float()) {
            (Reduction::Sum, true) => Scalar::Float(0.0),
            (Reduction::Sum, false) => Scalar::Int(0),
            (Reduction::Prod, true) => Scalar::Float(1.0),
            (Reduction::Prod, false) => Scalar::Int(1),
            (Reduction::Min, _) => greatest(dtype),
            (Reduction::Max, _) => least(dtype),
        }
    }

    /// Returns the binary function that combines two elements.
    pub fn binary(self) -> Binary {
        match self {
            Reduction::Sum => Binary::Add,
            Reduction::Prod => Binary::Mul,
            Reduction::Min => Binary::Min,
            Reduction::Max => Binary::Max,
        }
    }
}

impl UpdateMode {
    /// Returns the binary function that combines existing and written elements; `None` for `Set`.
    pub fn binary(self) -> Option<Binary> {
        match self {
            UpdateMode::Set => None,
            UpdateMode::Add => Some(Binary::Add),
            UpdateMode::Mul => Some(Binary::Mul),
            UpdateMode::Min => Some(Binary::Min),
            UpdateMode::Max => Some(Binary::Max),
        }
    }
}
