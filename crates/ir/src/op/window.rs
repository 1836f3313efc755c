//! The attributes of convolutions and pooling.
//!
//! Ops, untyped methods and typed functions share one type each. They differ in how they store the entries per spatial
//! dimension: ops use vectors, functions of `N` dimensions arrays.

use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The attributes of a convolution: `Lengths` and `Sides` are lists of one entry per spatial dimension.
///
/// Its forms are [`ConvSpec`] and [`ConvOptions`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvAttributes<Lengths, Sides> {
    /// Distance between neighbouring positions of the kernel. At least 1. Default 1.
    pub stride: Lengths,
    /// Zeros before and after each dimension. Default none.
    pub padding: Sides,
    /// Distance between neighbouring elements of the kernel. At least 1. Default 1.
    pub dilation: Lengths,
    /// Number of independent groups of channels. At least 1. Default 1.
    pub groups: usize,
}

/// The attributes of a convolution over any number of spatial dimensions.
pub type ConvSpec = ConvAttributes<Vec<usize>, Vec<(usize, usize)>>;

/// The attributes of a convolution over `N` spatial dimensions.
///
/// ```
/// use kiln_ir::ConvOptions;
///
/// let options = ConvOptions::<2>::default().with_stride([2, 2]).with_groups(4);
/// assert_eq!(options, ConvOptions::new([2, 2], [0, 0], [1, 1], 4));
/// assert_eq!(options.spec().stride, [2, 2]);
/// ```
pub type ConvOptions<const N: usize> = ConvAttributes<[usize; N], [(usize, usize); N]>;

impl ConvSpec {
    /// Returns stride 1, no padding, dilation 1, one group, over `axes` spatial dimensions.
    pub fn new(axes: usize) -> ConvSpec {
        ConvSpec {
            stride: alloc::vec![1; axes],
            padding: alloc::vec![(0, 0); axes],
            dilation: alloc::vec![1; axes],
            groups: 1,
        }
    }
}

impl<const N: usize> Default for ConvOptions<N> {
    fn default() -> ConvOptions<N> {
        ConvOptions { stride: [1; N], padding: [(0, 0); N], dilation: [1; N], groups: 1 }
    }
}

impl<const N: usize> ConvOptions<N> {
    /// Returns options with the same number of zeros on both sides of each dimension.
    pub fn new(
        stride: [usize; N],
        padding: [usize; N],
        dilation: [usize; N],
        groups: usize,
    ) -> ConvOptions<N> {
        ConvOptions { stride, padding: padding.map(|p| (p, p)), dilation, groups }
    }

    /// Returns the same attributes for a number of dimensions known at run time.
    pub fn spec(&self) -> ConvSpec {
        ConvSpec {
            stride: self.stride.to_vec(),
            padding: self.padding.to_vec(),
            dilation: self.dilation.to_vec(),
            groups: self.groups,
        }
    }
}

impl<Lengths, Sides> ConvAttributes<Lengths, Sides> {
    crate::setters! {
        /// Sets [`stride`](Self::stride).
        with_stride(stride: Lengths) => stride = stride;

        /// Sets [`padding`](Self::padding).
        with_padding(padding: Sides) => padding = padding;

        /// Sets [`dilation`](Self::dilation).
        with_dilation(dilation: Lengths) => dilation = dilation;

        /// Sets [`groups`](Self::groups).
        with_groups(groups: usize) => groups = groups;
    }
}

/// The operation that pooling applies to each window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PoolKind {
    /// The maximum; padding is never selected. NaN propagates.
    Max,
    /// The mean.
    Average {
        /// Whether padding counts in the divisor.
        include_padding: bool,
    },
}

/// The attributes of the pooling ops on operands of known lengths; each list has one entry per pooled axis.
///
/// The output has `(length + low + high + overhang - dilation * (window - 1) - 1) / stride + 1` elements along an
/// axis. Every window must contain at least one element of the operand.
///
/// [`PoolAttributes`] has no such form. An op's result must follow from its attributes without a rounding rule, so this
/// type stores the overhang of each axis, which depends on lengths. [`Pooling::spec`] computes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolSpec {
    /// Elements per window.
    pub window: Vec<usize>,
    /// Distance between neighbouring windows. At least 1.
    pub stride: Vec<usize>,
    /// Elements before and after each axis.
    pub padding: Vec<(usize, usize)>,
    /// Additional elements after each axis, as rounding up the number of windows (`ceil_mode`) requires. They never
    /// count in the divisor of an average.
    pub overhang: Vec<usize>,
    /// Distance between neighbouring elements of a window. At least 1; 1 for averages.
    pub dilation: Vec<usize>,
    /// The pooling function.
    pub kind: PoolKind,
}

impl PoolSpec {
    /// Returns adjacent windows without padding: the stride equals the window.
    pub fn new(kind: PoolKind, window: &[usize]) -> PoolSpec {
        Pooling::new(window).spec(kind, window)
    }
}

/// The windows of pooling: `Lengths` and `Sides` are lists of one entry per spatial dimension.
///
/// Its forms are [`Pooling`] and [`PoolOptions`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolAttributes<Lengths, Sides> {
    /// Elements per window.
    pub window: Lengths,
    /// Distance between neighbouring windows. Default: the window.
    pub stride: Lengths,
    /// Elements before and after each dimension; never selected as a maximum. Each must be smaller than a window with
    /// its dilation. Default none.
    pub padding: Sides,
    /// Distance between neighbouring elements of a window; 1 for averages. Default 1.
    pub dilation: Lengths,
    /// Whether a last window that exceeds the end counts (the number of windows is rounded up). Default no.
    pub ceil_mode: bool,
}

/// The windows of pooling over any number of spatial dimensions.
pub type Pooling = PoolAttributes<Vec<usize>, Vec<(usize, usize)>>;

/// The windows of pooling over `N` spatial dimensions.
///
/// ```
/// use kiln_ir::PoolOptions;
///
/// let options = PoolOptions::new([3, 3]).with_stride([2, 2]).with_padding([(1, 1), (0, 1)]);
/// assert_eq!((options.window, options.stride, options.ceil_mode), ([3, 3], [2, 2], false));
/// ```
pub type PoolOptions<const N: usize> = PoolAttributes<[usize; N], [(usize, usize); N]>;

impl<const N: usize> PoolOptions<N> {
    /// Returns adjacent windows, without padding.
    pub fn new(window: [usize; N]) -> PoolOptions<N> {
        PoolOptions { window, stride: window, padding: [(0, 0); N], dilation: [1; N], ceil_mode: false }
    }

    /// Returns the same attributes for a number of dimensions known at run time.
    pub fn pooling(&self) -> Pooling {
        Pooling {
            window: self.window.to_vec(),
            stride: self.stride.to_vec(),
            padding: self.padding.to_vec(),
            dilation: self.dilation.to_vec(),
            ceil_mode: self.ceil_mode,
        }
    }
}

impl<Lengths, Sides> PoolAttributes<Lengths, Sides> {
    crate::setters! {
        /// Sets [`stride`](Self::stride).
        with_stride(stride: Lengths) => stride = stride;

        /// Sets [`padding`](Self::padding).
        with_padding(padding: Sides) => padding = padding;

        /// Sets [`dilation`](Self::dilation).
        with_dilation(dilation: Lengths) => dilation = dilation;

        /// Sets [`ceil_mode`](Self::ceil_mode).
        with_ceil_mode(ceil_mode: bool) => ceil_mode = ceil_mode;
    }
}

impl Pooling {
    /// Returns adjacent windows, without padding.
    pub fn new(window: &[usize]) -> Pooling {
        Pooling {
            window: window.to_vec(),
            stride: window.to_vec(),
            padding: alloc::vec![(0, 0); window.len()],
            dilation: alloc::vec![1; window.len()],
            ceil_mode: false,
        }
    }

    /// Returns the attributes of the op on dimensions of these lengths.
    ///
    /// # Panics
    /// When a list has fewer entries than there are lengths.
    pub fn spec(&self, kind: PoolKind, lengths: &[usize]) -> PoolSpec {
        PoolSpec {
            kind,
            window: self.window.clone(),
            stride: self.stride.clone(),
            padding: self.padding.clone(),
            overhang: lengths.iter().enumerate().map(|(axis, &len)| self.overhang(axis, len)).collect(),
            dilation: self.dilation.clone(),
        }
    }

    /// The number of additional elements that `ceil_mode` requires. The last window must still start within the tensor
    /// or the padding before it.
    fn overhang(&self, axis: usize, length: usize) -> usize {
        let stride = self.stride[axis].max(1);
        // Sizes saturate: inference rejects sizes that are too large.
        let reach = self.dilation[axis].saturating_mul(self.window[axis].saturating_sub(1)).saturating_add(1);
        let (before, after) = self.padding[axis];
        let padded = length.saturating_add(before).saturating_add(after);
        if !self.ceil_mode || padded < reach || (padded - reach).is_multiple_of(stride) {
            return 0;
        }
        let last_start = (padded - reach).div_ceil(stride).saturating_mul(stride);
        let ends = length.saturating_add(before);
        if last_start >= ends { 0 } else { last_start.saturating_add(reach) - padded }
    }

    /// Returns the divisor of each window's mean along a dimension, with the padding counted; elements beyond the
    /// padding do not count.
    pub fn counts(&self, axis: usize, length: usize, windows: usize) -> Vec<usize> {
        let (before, after) = self.padding[axis];
        let end = length.saturating_add(before).saturating_add(after);
        let count = |window: usize| self.window[axis].min(end.saturating_sub(window * self.stride[axis]));
        (0..windows).map(count).collect()
    }
}
