//! Options of loading.

use kiln_tensor::{DType, TensorType};

use crate::mapping::Mapping;

/// Options of [`load_module_with`](crate::load_module_with). The default is strict: every difference is an error.
///
/// ```
/// use kiln_store::{DTypePolicy, LoadOptions};
///
/// let options = LoadOptions::new()
///     .rename_prefix("module.", "")
///     .rename(|name| (!name.ends_with("position_ids")).then(|| name.to_string()))
///     .dtype(DTypePolicy::Cast);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LoadOptions {
    allow_missing: bool,
    allow_unexpected: bool,
    allow_mismatched: bool,
    dtype: DTypePolicy,
    copy: bool,
    mapping: Mapping,
}

/// The policy for a tensor whose dtype differs from that of its parameter.
///
/// 8-bit floats of a file (`F8_E4M3`, `F8_E5M2` and their variants without -0) become the float dtype of their parameter
/// under every policy: each of their values is exact in all float dtypes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DTypePolicy {
    /// Returns an error.
    #[default]
    Exact,
    /// Casts the tensor to the parameter's dtype.
    Cast,
    /// The parameter changes to the tensor's dtype, within its kind (float, integer, `bool`).
    Keep,
}

impl LoadOptions {
    /// Returns strict options.
    pub fn new() -> LoadOptions {
        LoadOptions::default()
    }

    /// Sets whether parameters that the file does not contain keep their values. Default: no, they are an error.
    #[must_use]
    pub fn allow_missing(mut self, allow: bool) -> LoadOptions {
        self.allow_missing = allow;
        self
    }

    /// Sets whether tensors that the module does not have are skipped. Default: no, they are an error.
    #[must_use]
    pub fn allow_unexpected(mut self, allow: bool) -> LoadOptions {
        self.allow_unexpected = allow;
        self
    }

    /// Sets whether parameters whose type in the file differs keep their values: of another shape, or of a dtype that
    /// the [policy](LoadOptions::dtype) refuses. Use it for a model with another head. Default: no, they are an error.
    #[must_use]
    pub fn allow_mismatched(mut self, allow: bool) -> LoadOptions {
        self.allow_mismatched = allow;
        self
    }

    /// Permits all differences: loads the parameters that match, and the [report](crate::LoadReport) lists the others.
    #[must_use]
    #[doc(alias = "strict")]
    pub fn partial(self) -> LoadOptions {
        self.allow_missing(true).allow_unexpected(true).allow_mismatched(true)
    }

    /// Sets the policy for tensors whose dtype differs from that of their parameter. Default: an error.
    #[must_use]
    pub fn dtype(mut self, policy: DTypePolicy) -> LoadOptions {
        self.dtype = policy;
        self
    }

    /// Sets whether to copy parameters out of the file instead of memory-mapping it. Use it for files that other
    /// processes write while the module is in use; see [`TensorFile`](crate::TensorFile). Default: no.
    #[must_use]
    pub fn copy(mut self, copy: bool) -> LoadOptions {
        self.copy = copy;
        self
    }

    /// Adds the rules of a mapping, after the rules before this call.
    ///
    /// ```
    /// use kiln_store::{LoadOptions, Mapping};
    ///
    /// let options = LoadOptions::new().mapping(Mapping::hugging_face().exclude("classifier.**")?).partial();
    /// # Ok::<(), kiln_store::StoreError>(())
    /// ```
    #[must_use]
    pub fn mapping(mut self, mapping: Mapping) -> LoadOptions {
        self.mapping = self.mapping.then(mapping);
        self
    }

    /// Adds a function that maps each name in the file to the name in the module; `None` skips the tensor. Several
    /// functions are applied in sequence.
    #[must_use]
    pub fn rename(self, rename: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> LoadOptions {
        self.mapping(Mapping::new().rename_with(rename))
    }

    /// Replaces the prefix `from` of names by `to`. Other names do not change.
    #[must_use]
    pub fn rename_prefix(self, from: impl Into<String>, to: impl Into<String>) -> LoadOptions {
        self.mapping(Mapping::new().rename_prefix(from, to))
    }

    pub(super) fn permits_missing(&self) -> bool {
        self.allow_missing
    }

    pub(super) fn permits_unexpected(&self) -> bool {
        self.allow_unexpected
    }

    pub(super) fn permits_mismatched(&self) -> bool {
        self.allow_mismatched
    }

    pub(super) fn policy(&self) -> DTypePolicy {
        self.dtype
    }

    pub(super) fn copies(&self) -> bool {
        self.copy
    }

    pub(super) fn rules(&self) -> &Mapping {
        &self.mapping
    }
}

impl DTypePolicy {
    /// The new dtype of the parameter; `None` if its type and the tensor's are incompatible.
    pub(super) fn resolve(self, expected: TensorType, found: TensorType) -> Option<DType> {
        if expected.shape != found.shape {
            return None;
        }
        let (expected, found) = (expected.dtype, found.dtype);
        match self {
            DTypePolicy::Cast => Some(expected),
            DTypePolicy::Keep if same_kind(expected, found) => Some(found),
            DTypePolicy::Exact | DTypePolicy::Keep => (expected == found).then_some(found),
        }
    }
}

fn same_kind(a: DType, b: DType) -> bool {
    (a.is_float(), a.is_int()) == (b.is_float(), b.is_int())
}
