//! Containers of modules: chains, lists and dictionaries.

mod boxed;
mod dict;
mod sequential;

pub use boxed::BoxedModule;
pub use dict::ModuleDict;
pub use sequential::Sequential;

/// A list of modules of one type, named by their indices: `layers.0`, `layers.1`. It is a `Vec`; modules of different
/// types are [`BoxedModule`]s of one input and output type.
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig, Module, ModuleList};
///
/// let device = Default::default();
/// let layers: ModuleList<Linear<Flex>> = (0..3).map(|_| LinearConfig::new(4, 4).init(&device)).collect();
/// assert_eq!(layers.num_parameters(), 3 * (4 * 4 + 4));
/// ```
pub type ModuleList<M> = alloc::vec::Vec<M>;
