//! Saving and loading the parameters of modules.

mod options;
mod plan;
mod report;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use kiln_nn::{Module, ParamId, Parameter, Visitor, VisitorMut};

use crate::error::Result;
use crate::file::{NamedSources, Source, write_tensors};
use crate::source::{TensorContents, TensorSource};
use crate::version;
use crate::weights::Weights;
use plan::Plan;

pub use options::{DTypePolicy, LoadOptions};
pub use report::LoadReport;

/// Writes all parameters and buffers of a module to a safetensors file under their dotted names. On an error the file
/// does not change.
///
/// The metadata contains `format: pt`, which programs that share weights with PyTorch expect, and the version of the
/// format as `kiln.format`. Later releases of Kiln read all earlier versions.
///
/// A [tied](kiln_nn::Param#tied-parameters) parameter is written once, under the name of its first place. The metadata
/// contains its other names, each with the first one, as `safetensors.torch.save_model` writes them.
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

/// Writes a module like [`save_module`], with metadata. A `format` in `metadata` replaces the default; `kiln.format` is
/// always the version that is written.
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
    version::insert(&mut all);
    write_tensors(path.as_ref(), tensors, &all)
}

/// All parameters and buffers of a module, and the metadata of the file.
pub(crate) fn module_tensors(module: &dyn Module) -> (NamedSources, BTreeMap<String, String>) {
    let mut collect = Collect::default();
    module.visit(&mut kiln_nn::Path::new(), &mut collect);
    let Collect { tensors, mut metadata, .. } = collect;
    metadata.insert("format".to_owned(), "pt".to_owned());
    (tensors, metadata)
}

#[derive(Default)]
struct Collect {
    tensors: NamedSources,
    /// The first names of tied parameters by their other names.
    metadata: BTreeMap<String, String>,
    /// The names of parameters; `None` of several with one id.
    names: BTreeMap<ParamId, Option<String>>,
}

impl Visitor for Collect {
    fn parameter(&mut self, path: &kiln_nn::Path, parameter: Parameter) {
        let name = path.as_str().to_owned();
        match self.names.entry(parameter.id) {
            Entry::Vacant(entry) => drop(entry.insert(Some(name.clone()))),
            Entry::Occupied(mut entry) => drop(entry.insert(None)),
        }
        self.tensors.push((name, Source::Device(parameter.value)));
    }

    fn tied(&mut self, path: &kiln_nn::Path, parameter: Parameter) {
        let name = path.as_str().to_owned();
        match self.names.get(&parameter.id) {
            Some(Some(first)) => drop(self.metadata.insert(name, first.clone())),
            // The id does not tell which tensor it is.
            Some(None) | None => self.tensors.push((name, Source::Device(parameter.value))),
        }
    }
}

/// Loads the parameters and buffers of a module from a file of any format that [`Weights`] opens, or from a folder.
///
/// The names in the file must be those of the module. [`LoadOptions::mapping`] converts the names and layouts of other
/// frameworks:
///
/// ```no_run
/// # use kiln_backends::Flex;
/// # use kiln_nn::{Linear, LinearConfig};
/// # use kiln_store::{DTypePolicy, LoadOptions, Mapping, load_module_with};
/// # let model: Linear<Flex> = LinearConfig::new(2, 2).init(&Default::default());
/// let options = LoadOptions::new().mapping(Mapping::hugging_face()).dtype(DTypePolicy::Cast);
/// let (model, report) = load_module_with(model, "bert-base-uncased", &options)?;
/// println!("{report}");
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
///
/// Quantised blocks of GGUF are loaded as they are if the parameter is `u8` of the shape of the blocks, and are
/// dequantised to `f32` otherwise.
///
/// A [tied](kiln_nn::Param#tied-parameters) parameter is loaded once, from any one of its names, and stays tied. If the
/// file has several of them, their tensors must be equal.
///
/// On the CPU, parameters from a file of at least 1 MiB use the memory-mapped file
/// ([`TensorFile`](crate::TensorFile)), except on Windows. Replacing or deleting the file is safe, and Kiln always replaces files. If another program writes the file in place,
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
/// When the file cannot be read, is damaged or of no known format, or its tensors do not match the module's parameters exactly in name and
/// type. The error lists the differences and suggests similar names. Only the counters `num_batches_tracked` of PyTorch's
/// batch normalisation are skipped. [`StoreError::Tied`](crate::StoreError::Tied) when the file has different tensors for
/// a tied parameter.
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
    let weights = match options.copies() {
        true => Weights::open_unmapped(path)?,
        false => Weights::open(path)?,
    };
    load_module_from(module, weights.source(), options)
}

/// Loads a module in place from a file that is already open, like [`load_module_into`].
///
/// ```
/// use kiln_backends::Flex;
/// use kiln_nn::{Linear, LinearConfig};
/// use kiln_store::{LoadOptions, Weights, load_module_from, save_module};
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.safetensors");
/// # let saved: Linear<Flex> = LinearConfig::new(4, 2).init(&Default::default());
/// # save_module(&saved, &path)?;
/// let weights = Weights::from_bytes(std::fs::read(&path)?)?;
/// let mut model: Linear<Flex> = LinearConfig::new(4, 2).init(&Default::default());
/// let report = load_module_from(&mut model, weights.source(), &LoadOptions::new())?;
/// assert_eq!(report.loaded, ["bias", "weight"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// See [`load_module_with`].
pub fn load_module_from(
    module: &mut dyn Module,
    source: &dyn TensorSource,
    options: &LoadOptions,
) -> Result<LoadReport> {
    let plan = Plan::new(module, source, options)?;
    let mut loaded = plan.read(source)?;
    module.visit_mut(&mut kiln_nn::Path::new(), &mut Placer(&mut loaded));
    Ok(plan.report)
}

/// A visitor that moves loaded tensors into a module.
struct Placer<'a>(&'a mut BTreeMap<String, TensorContents>);

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
