//! Axis names, and lists of them, as types.

use alloc::string::String;

/// The name of an axis: a type declared by [`axes!`](crate::axes).
pub trait AxisName {
    /// The name with its module path, which distinguishes names of the same identifier.
    const NAME: &'static str;
}

/// Names of the axes of a tensor: a tuple of up to eight [`AxisName`]s.
pub trait AxisNames {
    /// The names, in order.
    const NAMES: &'static [&'static str];
}

/// A list of names that contains `N`. The compiler infers the index `I`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no axis `{N}`",
    label = "no axis has this name",
    note = "the names of the axes are in the type of the tensor"
)]
pub trait Has<N: AxisName, I>: AxisNames {
    /// The index of the axis.
    const PLACE: usize;
    /// The list without the name.
    type Without: AxisNames;
    /// The list with another name at its index.
    type Renamed<New: AxisName>: AxisNames;
}

/// The index of a name in a list; inferred by the compiler.
#[derive(Clone, Copy, Debug)]
pub struct At<const PLACE: usize>;

/// Declares axis names for [`NamedTensor`](crate::NamedTensor).
///
/// ```
/// use kiln_tensor::axes;
///
/// axes!(pub Batch, Seq, Model);
/// ```
#[macro_export]
macro_rules! axes {
    ($visibility:vis $($name:ident),+ $(,)?) => {$(
        #[doc = concat!("The name of the axis `", stringify!($name), "`.")]
        #[derive(Clone, Copy, Debug)]
        #[allow(dead_code, reason = "some names are only used as types")]
        $visibility struct $name;

        impl $crate::AxisName for $name {
            const NAME: &'static str = concat!(module_path!(), "::", stringify!($name));
        }
    )+};
}

macro_rules! one {
    ($name:ident) => {
        1
    };
}

macro_rules! places {
    ([$($before:ident)*]) => {
        impl<$($before: AxisName),*> AxisNames for ($($before,)*) {
            const NAMES: &'static [&'static str] = &[$($before::NAME),*];
        }
    };
    ([$($before:ident)*] $here:ident $($after:ident)*) => {
        impl<$($before: AxisName,)* $here: AxisName $(, $after: AxisName)*> Has<$here, At<{ 0 $(+ one!($before))* }>>
            for ($($before,)* $here, $($after,)*)
        {
            const PLACE: usize = 0 $(+ one!($before))*;
            type Without = ($($before,)* $($after,)*);
            type Renamed<New: AxisName> = ($($before,)* New, $($after,)*);
        }
        places!([$($before)* $here] $($after)*);
    };
}

places!([]);
places!([] A);
places!([] A B);
places!([] A B C);
places!([] A B C D);
places!([] A B C D E);
places!([] A B C D E F);
places!([] A B C D E F G);
places!([] A B C D E F G H);

pub(super) const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut i = 0;
    while i < a.len() && i < b.len() && a[i] == b[i] {
        i += 1;
    }
    i == a.len() && i == b.len()
}

pub(super) const fn contains(names: &[&str], name: &str) -> bool {
    let mut i = 0;
    while i < names.len() {
        if same(names[i], name) {
            return true;
        }
        i += 1;
    }
    false
}

/// Returns whether each name of the first list is in the second.
pub(super) const fn subset(part: &[&str], whole: &[&str]) -> bool {
    let mut i = 0;
    while i < part.len() {
        if !contains(whole, part[i]) {
            return false;
        }
        i += 1;
    }
    true
}

pub(super) const fn distinct(names: &[&str]) -> bool {
    let mut i = 0;
    while i < names.len() {
        let mut j = i + 1;
        while j < names.len() {
            if same(names[i], names[j]) {
                return false;
            }
            j += 1;
        }
        i += 1;
    }
    true
}

/// Returns whether each name of a list is in one of two others.
pub(super) const fn covered(names: &[&str], a: &[&str], b: &[&str]) -> bool {
    let mut i = 0;
    while i < names.len() {
        if !contains(a, names[i]) && !contains(b, names[i]) {
            return false;
        }
        i += 1;
    }
    true
}

/// Returns the name without its path.
pub(super) fn short(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Formats the names for messages.
pub(super) fn list<S: AxisNames>() -> String {
    let names: alloc::vec::Vec<&str> = S::NAMES.iter().map(|name| short(name)).collect();
    alloc::format!("({})", names.join(", "))
}
