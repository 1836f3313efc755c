//! Saving and loading the parameters of modules.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kiln_nn::{Module, Parameter, VisitorMut};
use kiln_tensor::{DType, TensorType};

use crate::error::{Mismatch, Result, StoreError, TypeMismatch};
use crate::file::{Contents, NamedSources, Source, TensorFile, write_tensors};
use crate::names::closest;

/// Writes all parameters and buffers of a module to a safetensors file under their dotted names. On an error the file
/// does not change.
///
/// The metadata contains `format: pt`, which programs that share weights with PyTorch expect.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.safetensors");
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_store::{load_module, save_module};
///
/// let model: Linear<Flex> = LinearConfig::new(4, 2).init(&Default::default());
/// save_module(&model, &path)?;
///
/// let other: Linear<Flex> = LinearConfig::new(4, 2).init(&Default::default());
/// let other = load_module(other, &path)?;
/// assert_eq!(other.weight.to_vec::<f32>(), model.weight.to_vec::<f32>());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the file cannot be written, or a device failed.
#[doc(alias = "save_file")]
#[doc(alias = "state_dict")]
pub fn save_module(module: &dyn Module, path: impl AsRef<Path>) -> Result<()> {
    save_module_with(module, path, &BTreeMap::new())
}

/// Writes a module like [`save_module`], with metadata. A `format` in `metadata` replaces the default.
///
/// # Errors
/// When the file cannot be written, or a device failed.
pub fn save_module_with(
    module: &dyn Module,
    path: impl AsRef<Path>,
    metadata: &BTreeMap<String, String>,
) -> Result<()> {
    let (tensors, mut all) = module_tensors(module);
    all.extend(metadata.clone());
    write_tensors(path.as_ref(), tensors, &all)
}

/// All parameters and buffers of a module, and the metadata of the file.
pub(crate) fn module_tensors(module: &dyn Module) -> (NamedSources, BTreeMap<String, String>) {
    let mut tensors = Vec::new();
    for_each(module, |name, parameter| tensors.push((name.to_owned(), Source::Device(parameter.value))));
    (tensors, BTreeMap::from([("format".to_owned(), "pt".to_owned())]))
}

/// Loads the parameters and buffers of a module from a safetensors file.
///
/// On the CPU, parameters from a file of at least 1 MiB use the memory-mapped file ([`TensorFile`]), except on Windows.
/// Replacing or deleting the file is safe, and Kiln always replaces files. If another program writes the file in place,
/// the parameters change. If it truncates the file, the next access to the missing part raises `SIGBUS`, which ends
/// this process. To prevent this, copy:
///
/// ```no_run
/// # use kiln_backends::Flex;
/// # use kiln_nn::{Linear, LinearConfig};
/// # use kiln_store::{LoadOptions, load_module_with};
/// # let model: Linear<Flex> = LinearConfig::new(2, 2).init(&Default::default());
/// let (model, _) = load_module_with(model, "shared.safetensors", &LoadOptions::new().copy(true))?;
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
///
/// # Errors
/// When the file cannot be read or is damaged, or its tensors do not match the module's parameters exactly in name and
/// type. The error lists the differences and suggests similar names. Only the counters `num_batches_tracked` of PyTorch's
/// batch normalisation are skipped.
#[doc(alias = "load_file")]
#[doc(alias = "load_state_dict")]
pub fn load_module<M: Module>(module: M, path: impl AsRef<Path>) -> Result<M> {
    Ok(load_module_with(module, path, &LoadOptions::new())?.0)
}

/// Loads a module like [`load_module`], with options, and returns a report.
///
/// # Errors
/// See [`load_module`]; differences that the options permit are not errors.
pub fn load_module_with<M: Module>(
    mut module: M,
    path: impl AsRef<Path>,
    options: &LoadOptions,
) -> Result<(M, LoadReport)> {
    let report = load_module_into(&mut module, path, options)?;
    Ok((module, report))
}

/// Loads a module in place, like [`load_module_with`]. On an error the module does not change.
///
/// # Errors
/// See [`load_module_with`].
pub fn load_module_into(
    module: &mut dyn Module,
    path: impl AsRef<Path>,
    options: &LoadOptions,
) -> Result<LoadReport> {
    let file = match options.copy {
        true => TensorFile::open_unmapped(path)?,
        false => TensorFile::open(path)?,
    };
    load_module_from(module, &file, options)
}

/// Loads a module in place from a file that is already open.
pub(crate) fn load_module_from(
    module: &mut dyn Module,
    file: &TensorFile,
    options: &LoadOptions,
) -> Result<LoadReport> {
    let plan = Plan::new(module, file, options)?;
    let mut loaded = plan.read(file)?;
    module.visit_mut(&mut kiln_nn::Path::new(), &mut Placer(&mut loaded));
    Ok(plan.report)
}

/// Options of [`load_module_with`]. The default is strict: every difference is an error.
///
/// ```
/// use kiln_store::{DTypePolicy, LoadOptions};
///
/// let options = LoadOptions::new()
///     .rename_prefix("module.", "")
///     .rename(|name| (!name.ends_with("position_ids")).then(|| name.to_string()))
///     .dtype(DTypePolicy::Cast);
/// ```
#[derive(Clone, Default)]
pub struct LoadOptions {
    allow_missing: bool,
    allow_unexpected: bool,
    dtype: DTypePolicy,
    copy: bool,
    renames: Vec<Rename>,
}

type Rename = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The policy for a tensor whose dtype differs from that of its parameter.
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

    /// Sets the policy for tensors whose dtype differs from that of their parameter. Default: an error.
    #[must_use]
    pub fn dtype(mut self, policy: DTypePolicy) -> LoadOptions {
        self.dtype = policy;
        self
    }

    /// Sets whether to copy parameters out of the file instead of memory-mapping it. Use it for files that other
    /// processes write while the module is in use; see [`TensorFile`]. Default: no.
    #[must_use]
    pub fn copy(mut self, copy: bool) -> LoadOptions {
        self.copy = copy;
        self
    }

    /// Adds a function that maps each name in the file to the name in the module; `None` skips the tensor. Several
    /// functions are applied in sequence.
    #[must_use]
    pub fn rename(mut self, rename: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> LoadOptions {
        self.renames.push(Arc::new(rename));
        self
    }

    /// Replaces the prefix `from` of names by `to`. Other names do not change.
    #[must_use]
    pub fn rename_prefix(self, from: impl Into<String>, to: impl Into<String>) -> LoadOptions {
        let (from, to) = (from.into(), to.into());
        self.rename(move |name| match name.strip_prefix(from.as_str()) {
            Some(rest) => Some(format!("{to}{rest}")),
            None => Some(name.to_owned()),
        })
    }

    fn renamed(&self, name: &str) -> Option<String> {
        self.renames.iter().try_fold(name.to_owned(), |name, rename| rename(&name))
    }
}

impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadOptions")
            .field("allow_missing", &self.allow_missing)
            .field("allow_unexpected", &self.allow_unexpected)
            .field("dtype", &self.dtype)
            .field("copy", &self.copy)
            .field("renames", &self.renames.len())
            .finish()
    }
}

/// The report of [`load_module_with`]. Names are those in the module, except in `unexpected`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadReport {
    /// Parameters and buffers that were loaded.
    pub loaded: Vec<String>,
    /// Parameters and buffers that the file does not contain.
    pub missing: Vec<String>,
    /// Tensors in the file that were skipped, by their names in the file.
    pub unexpected: Vec<String>,
    /// The names in `loaded` whose dtype in the file differs.
    pub cast: Vec<String>,
}

/// Maps the file's tensors to parameters.
struct Plan {
    /// Keys are the names in the module.
    wanted: BTreeMap<String, Wanted>,
    report: LoadReport,
}

struct Wanted {
    name_in_file: String,
    dtype: DType,
}

impl Plan {
    fn new(module: &dyn Module, file: &TensorFile, options: &LoadOptions) -> Result<Plan> {
        let mut report = LoadReport::default();
        let mut available = available(file, options, &mut report)?;
        let (mut wanted, mut mismatch) = (BTreeMap::new(), Mismatch::default());
        for (name, expected) in parameter_types(module, file.path())? {
            let Some(name_in_file) = available.remove(&name) else {
                report.missing.push(name);
                continue;
            };
            let found = file.ty(&name_in_file)?;
            match options.dtype.resolve(expected, found) {
                Some(dtype) => {
                    if expected.dtype != found.dtype {
                        report.cast.push(name.clone());
                    }
                    report.loaded.push(name.clone());
                    wanted.insert(name, Wanted { name_in_file, dtype });
                }
                None => mismatch.types.push(TypeMismatch { name, expected, found }),
            }
        }
        if !options.allow_missing {
            let close =
                |name: &String| closest(name, available.keys().map(String::as_str)).map(str::to_owned);
            mismatch.missing = report.missing.iter().map(|name| (name.clone(), close(name))).collect();
        }
        if !options.allow_unexpected {
            let refused = available.iter().filter(|(name, _)| !is_batch_counter(name));
            mismatch.unexpected = refused.map(|(_, name_in_file)| name_in_file.clone()).collect();
        }
        report.unexpected.extend(available.into_values());
        if !mismatch.is_empty() {
            let file = file.path().to_owned();
            return Err(StoreError::Mismatch { file, mismatch: Box::new(mismatch) });
        }
        Ok(Plan { wanted, report })
    }

    /// Reads all tensors before anything changes.
    fn read(&self, file: &TensorFile) -> Result<BTreeMap<String, Contents>> {
        let read = |(name, wanted): (&String, &Wanted)| {
            let contents = match file.ty(&wanted.name_in_file)?.dtype == wanted.dtype {
                true => file.contents(&wanted.name_in_file)?,
                false => Contents::Host(file.read(&wanted.name_in_file)?.convert(wanted.dtype)),
            };
            Ok((name.clone(), contents))
        };
        self.wanted.iter().map(read).collect()
    }
}

impl DTypePolicy {
    /// The new dtype of the parameter; `None` if its type and the tensor's are incompatible.
    fn resolve(self, expected: TensorType, found: TensorType) -> Option<DType> {
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

/// Whether PyTorch wrote a counter of batches under this name. Its batch normalisation reads it only where the momentum
/// is `None`.
fn is_batch_counter(name: &str) -> bool {
    name.rsplit('.').next() == Some("num_batches_tracked")
}

fn same_kind(a: DType, b: DType) -> bool {
    (a.is_float(), a.is_int()) == (b.is_float(), b.is_int())
}

/// The names in the file, by the names in the module.
fn available(
    file: &TensorFile,
    options: &LoadOptions,
    report: &mut LoadReport,
) -> Result<BTreeMap<String, String>> {
    let mut available = BTreeMap::new();
    for name in file.names() {
        let Some(renamed) = options.renamed(name) else {
            report.unexpected.push(name.to_owned());
            continue;
        };
        if available.insert(renamed.clone(), name.to_owned()).is_some() {
            return Err(StoreError::Duplicate { file: file.path().to_owned(), name: renamed });
        }
    }
    Ok(available)
}

fn parameter_types(module: &dyn Module, path: &Path) -> Result<BTreeMap<String, TensorType>> {
    let (mut types, mut duplicate) = (BTreeMap::new(), None);
    for_each(module, |name, parameter| {
        if types.insert(name.to_owned(), *parameter.value.ty()).is_some() {
            duplicate = Some(name.to_owned());
        }
    });
    match duplicate {
        Some(name) => Err(StoreError::Duplicate { file: path.to_owned(), name }),
        None => Ok(types),
    }
}

/// A visitor that moves loaded tensors into a module.
struct Placer<'a>(&'a mut BTreeMap<String, Contents>);

impl VisitorMut for Placer<'_> {
    fn parameter(&mut self, path: &kiln_nn::Path, parameter: Parameter) -> Parameter {
        let Some(contents) = self.0.remove(path.as_str()) else { return parameter };
        parameter.map(|value| contents.into_tensor(value.stack()))
    }
}

pub(crate) fn for_each(module: &dyn Module, f: impl FnMut(&str, Parameter)) {
    struct Reader<F>(F);
    impl<F: FnMut(&str, Parameter)> kiln_nn::Visitor for Reader<F> {
        fn parameter(&mut self, path: &kiln_nn::Path, parameter: Parameter) {
            (self.0)(path.as_str(), parameter);
        }
    }
    module.visit(&mut kiln_nn::Path::new(), &mut Reader(f));
}
