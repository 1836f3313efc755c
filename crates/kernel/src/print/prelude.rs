//! The helper functions that printed kernels call.

use super::{Dialect, cpp, wgsl};
use alloc::string::String;
use alloc::vec::Vec;

/// The name and the definition of a helper function.
pub(super) type Helper = (&'static str, &'static str);

/// The names and definitions of a language's helper functions, each before its users. A printed kernel begins with the
/// definitions of those that it calls.
///
/// ```
/// use kiln_kernel::print::{Dialect, helpers};
///
/// assert!(helpers(Dialect::Wgsl).iter().any(|(name, _)| *name == "kiln_div"));
/// ```
pub fn helpers(dialect: Dialect) -> Vec<(&'static str, &'static str)> {
    match dialect {
        Dialect::Cuda | Dialect::Hip => cpp::prelude::FUNCTIONS.to_vec(),
        Dialect::Wgsl => wgsl::prelude::functions(),
    }
}

/// The definitions of the helper functions that a text calls, directly or indirectly.
pub(super) fn used_helpers(dialect: Dialect, text: &str) -> String {
    let functions = helpers(dialect);
    let mut needed = alloc::vec![false; functions.len()];
    for number in (0..functions.len()).rev() {
        let (name, _) = functions[number];
        let calls = |text: &str| {
            text.match_indices(name).any(|(at, _)| text[at + name.len()..].starts_with(['(', '<']))
        };
        let later = functions.iter().zip(&needed).skip(number + 1);
        needed[number] =
            calls(text) || later.filter(|(_, needed)| **needed).any(|((_, body), _)| calls(body));
    }
    functions.iter().zip(needed).filter(|(_, needed)| *needed).map(|((_, body), _)| *body).collect()
}
