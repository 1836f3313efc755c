//! The assignment of a file's tensors to the parameters of a module.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::path::Path;

use kiln_nn::{Module, ParamId, Parameter, Visitor};
use kiln_tensor::{BlockFormat, DType, TensorType};

use super::options::{DTypePolicy, LoadOptions};
use super::report::LoadReport;
use crate::error::{Mismatch, Result, StoreError, TypeMismatch, Unexpected};
use crate::float8::Float8;
use crate::mapping::{Mapping, Origin, Target, Targets};
use crate::names::closest;
use crate::source::{TensorContents, TensorInfo, TensorSource};
use crate::version;
use crate::weights::host_data;

/// Maps the file's tensors to parameters.
pub(super) struct Plan {
    /// Keys are the names in the module.
    wanted: BTreeMap<String, Wanted>,
    /// The tensors of further names of tied parameters, which must be equal to those in `wanted`.
    duplicates: Vec<Duplicate>,
    copies: bool,
    pub(super) report: LoadReport,
}

struct Wanted {
    origin: Origin,
    info: TensorInfo,
    load: Load,
}

struct Duplicate {
    name: String,
    /// The first name of the parameter.
    of: String,
    wanted: Wanted,
}

/// What a parameter receives.
#[derive(Clone, Copy)]
enum Load {
    /// The elements, as this dtype.
    Elements(DType),
    /// The bytes of quantised blocks.
    Blocks,
}

impl Plan {
    pub(super) fn new(module: &dyn Module, source: &dyn TensorSource, options: &LoadOptions) -> Result<Plan> {
        let parameters = Parameters::of(module, source.path())?;
        let mapped = mapping(source, options)?.apply(source, Some(&parameters.targets))?;
        let report = LoadReport {
            unexpected: mapped.skipped,
            unmatched: mapped.unmatched.clone(),
            ..LoadReport::default()
        };
        let mut plan =
            Plan { wanted: BTreeMap::new(), duplicates: Vec::new(), copies: options.copies(), report };
        let mut available: BTreeMap<String, Origin> = mapped.tensors.into_iter().collect();
        let mut mismatch = Mismatch { unmatched: mapped.unmatched, ..Mismatch::default() };
        let assignment = Assignment { parameters: &parameters, source, options };
        for name in parameters.targets.keys().filter(|name| !parameters.aliases.contains_key(*name)) {
            plan.assign(name, &assignment, &mut available, &mut mismatch)?;
        }
        plan.report_missing(&available, options, &mut mismatch);
        plan.report_unused(available, options, &mut mismatch);
        plan.check_scales(source)?;
        if !mismatch.is_empty() {
            let file = source.path().to_owned();
            return Err(StoreError::Mismatch { file, mismatch: Box::new(mismatch) });
        }
        Ok(plan)
    }

    /// Finds the tensor of a parameter under any of its names.
    fn assign(
        &mut self,
        first: &str,
        assignment: &Assignment<'_>,
        available: &mut BTreeMap<String, Origin>,
        mismatch: &mut Mismatch,
    ) -> Result<()> {
        let mut is_missing = true;
        for name in assignment.parameters.names(first) {
            let Some(origin) = available.remove(name) else { continue };
            is_missing = false;
            let (wanted, types) = assignment.of(name, origin)?;
            match (wanted, self.wanted.get(first)) {
                (Some(wanted), None) => {
                    if types.expected.dtype != types.found.dtype {
                        self.report.cast.push(first.to_owned());
                    }
                    self.report.loaded.push(first.to_owned());
                    self.wanted.insert(first.to_owned(), wanted);
                }
                // A mapping may take both from one tensor.
                (Some(wanted), Some(other)) if wanted.origin == other.origin => {}
                (Some(wanted), Some(_)) => {
                    self.duplicates.push(Duplicate { name: name.to_owned(), of: first.to_owned(), wanted });
                }
                (None, _) if assignment.options.permits_mismatched() => self.report.mismatched.push(types),
                (None, _) => mismatch.types.push(types),
            }
        }
        if is_missing {
            self.report.missing.push(first.to_owned());
        }
        Ok(())
    }

    fn report_missing(
        &mut self,
        unused: &BTreeMap<String, Origin>,
        options: &LoadOptions,
        mismatch: &mut Mismatch,
    ) {
        let close = |name: &String| closest(name, unused.keys().map(String::as_str)).map(str::to_owned);
        let missing: Vec<_> = self.report.missing.iter().map(|name| (name.clone(), close(name))).collect();
        let similar = missing.iter().filter_map(|(name, close)| Some((name.clone(), close.clone()?)));
        self.report.similar = similar.collect();
        if !options.permits_missing() {
            mismatch.missing = missing;
        }
    }

    /// Reports the tensors of the file that no parameter uses.
    fn report_unused(
        &mut self,
        unused: BTreeMap<String, Origin>,
        options: &LoadOptions,
        mismatch: &mut Mismatch,
    ) {
        let mut used = Vec::new();
        let duplicates = self.duplicates.iter().map(|duplicate| &duplicate.wanted);
        self.wanted.values().chain(duplicates).for_each(|wanted| wanted.origin.names_in_file(&mut used));
        // Several names of a tied tensor are one tensor.
        let mut used: BTreeSet<String> = used.into_iter().collect();
        self.report.unexpected.retain(|name| used.insert(name.clone()));
        let similar: BTreeMap<String, String> =
            self.report.similar.iter().map(|(missing, close)| (close.clone(), missing.clone())).collect();
        for (name, origin) in unused {
            let mut names = Vec::new();
            origin.names_in_file(&mut names);
            names.retain(|name| used.insert(name.clone()));
            if !options.permits_unexpected() && !is_batch_counter(&name) {
                let similar = similar.get(&name).cloned();
                mismatch.unexpected.extend(names.iter().map(|own| Unexpected {
                    name: own.clone(),
                    renamed: (*own != name).then(|| name.clone()),
                    similar: similar.clone(),
                }));
            }
            self.report.unexpected.extend(names);
        }
    }

    /// Refuses 8-bit floats whose scale is another tensor that no parameter takes: without it the values are wrong.
    fn check_scales(&self, source: &dyn TensorSource) -> Result<()> {
        let mut used = Vec::new();
        self.wanted.values().for_each(|wanted| wanted.origin.names_in_file(&mut used));
        for name in used.iter().filter(|name| source.info(name).is_some_and(|info| info.float8().is_some())) {
            let scale = scales_of(name).find(|scale| source.info(scale).is_some() && !used.contains(scale));
            if let Some(scale) = scale {
                let argument = format!("{}: tensor `{name}`", source.path().display());
                let problem = format!(
                    "has 8-bit floats with the scale `{scale}`, which loading does not apply\n  hint: save the products of \
                     both as another float dtype"
                );
                return Err(StoreError::InvalidArgument { argument, problem });
            }
        }
        Ok(())
    }

    /// Reads all tensors before anything changes.
    ///
    /// # Errors
    /// When a tensor cannot be read, or tensors of a tied parameter differ.
    pub(super) fn read(&self, source: &dyn TensorSource) -> Result<BTreeMap<String, TensorContents>> {
        let read =
            |(name, wanted): (&String, &Wanted)| Ok((name.clone(), self.contents(source, name, wanted)?));
        let loaded: BTreeMap<String, TensorContents> = self.wanted.iter().map(read).collect::<Result<_>>()?;
        for Duplicate { name, of, wanted } in &self.duplicates {
            let other = self.contents(source, name, wanted)?;
            if !loaded.get(of).is_some_and(|first| first.is_same(&other)) {
                let (first, second) = (of.clone(), name.clone());
                return Err(StoreError::Tied { file: source.path().to_owned(), first, second });
            }
        }
        Ok(loaded)
    }

    fn contents(&self, source: &dyn TensorSource, name: &str, wanted: &Wanted) -> Result<TensorContents> {
        let contents = wanted.origin.contents(source, name)?;
        let host = |contents| host_data(source, name, contents, &wanted.info);
        Ok(match wanted.load {
            Load::Blocks if self.copies => {
                contents.into_data().map(TensorContents::Host).map_err(|error| {
                    StoreError::malformed(source.path(), 0, format!("tensor `{name}`: {error}"))
                })?
            }
            Load::Blocks => contents,
            Load::Elements(dtype) if wanted.info.dtype != Some(dtype) => {
                TensorContents::Host(host(contents)?.convert(dtype))
            }
            Load::Elements(_) if self.copies || wanted.info.blocks.is_some() => {
                TensorContents::Host(host(contents)?)
            }
            Load::Elements(_) => contents,
        })
    }
}

/// The tensors of a file for the parameters of a module.
struct Assignment<'a> {
    parameters: &'a Parameters,
    source: &'a dyn TensorSource,
    options: &'a LoadOptions,
}

impl Assignment<'_> {
    /// How a parameter is loaded from a tensor, `None` if their types do not match, and the types.
    fn of(&self, name: &str, origin: Origin) -> Result<(Option<Wanted>, TypeMismatch)> {
        let target = &self.parameters.targets[name];
        let info = origin.info(self.source, name)?;
        let (found, load) = match blocks_of(self.parameters, name, target, &info)? {
            Some(found) => (found, Some(Load::Blocks)),
            None => {
                let found = element_type(self.source, name, &origin, &info)?;
                let fits = info.float8().is_some_and(Float8::fits_every_float);
                // A cast from these loses nothing, and no parameter can keep them.
                let policy = if fits && target.ty.dtype.is_float() {
                    DTypePolicy::Cast
                } else {
                    self.options.policy()
                };
                (found, policy.resolve(target.ty, found).map(Load::Elements))
            }
        };
        let types = TypeMismatch { name: name.to_owned(), expected: target.ty, found };
        Ok((load.map(|load| Wanted { origin, info, load }), types))
    }
}

/// The rules of the options, after those that convert an earlier version of Kiln's files.
fn mapping(source: &dyn TensorSource, options: &LoadOptions) -> Result<Mapping> {
    let version = version::of(source.path(), &source.metadata())?;
    if version == version::VERSION {
        return Ok(options.rules().clone());
    }
    let migration = Mapping::new().rename_with(move |name| Some(version::migrated(name, version)));
    Ok(migration.then(options.rules().clone()))
}

/// The type of the blocks, if the parameter takes the blocks of a quantised tensor as they are: `u8` of their shape.
///
/// # Errors
/// When the layer is for another format of blocks.
fn blocks_of(
    parameters: &Parameters,
    name: &str,
    target: &Target,
    info: &TensorInfo,
) -> Result<Option<TensorType>> {
    let Some((format, last)) = info.blocks.zip(info.shape.rank().checked_sub(1)) else { return Ok(None) };
    let bytes = format.row_bytes(info.shape[last]);
    let ty = bytes.map(|bytes| TensorType { shape: info.shape.with(last, bytes), dtype: DType::U8 });
    if ty != Some(target.ty) {
        return Ok(None);
    }
    match parameters.block_format(name) {
        Some(expected) if expected != format => {
            let argument = format!("tensor `{name}`");
            let problem =
                format!("has blocks of {}, but the layer is for {}", format.name(), expected.name());
            Err(StoreError::InvalidArgument { argument, problem })
        }
        Some(_) | None => Ok(ty),
    }
}

/// The type of the elements, after dequantisation.
///
/// # Errors
/// When Kiln does not support the dtype.
fn element_type(
    source: &dyn TensorSource,
    name: &str,
    origin: &Origin,
    info: &TensorInfo,
) -> Result<TensorType> {
    match info.dtype {
        Some(dtype) => Ok(TensorType { shape: info.shape, dtype }),
        None => {
            let mut names = Vec::new();
            origin.names_in_file(&mut names);
            Err(StoreError::UnsupportedDType {
                file: source.path().to_owned(),
                name: names.into_iter().next().unwrap_or_else(|| name.to_owned()),
                dtype: info.dtype_name.clone(),
            })
        }
    }
}

/// The names of the scale of 8-bit floats in files of compressed-tensors, DeepSeek and ComfyUI.
fn scales_of(name: &str) -> impl Iterator<Item = String> {
    let layer = name.strip_suffix("weight").map(str::to_owned);
    let beside = ["_scale", "_scale_inv"].map(|suffix| format!("{name}{suffix}"));
    let own = ["scale", "scale_weight"].map(|own| layer.as_ref().map(|layer| format!("{layer}{own}")));
    beside.into_iter().chain(own.into_iter().flatten())
}

/// Whether PyTorch wrote a counter of batches under this name. Its batch normalisation reads it only where the momentum
/// is `None`.
fn is_batch_counter(name: &str) -> bool {
    name.rsplit('.').next() == Some("num_batches_tracked")
}

/// The parameters and attributes of a module.
#[derive(Default)]
struct Parameters {
    /// By name, tied ones by each of their names.
    targets: Targets,
    /// The first names of parameters by id, and of tied ones by their other names.
    first: HashMap<ParamId, String>,
    aliases: BTreeMap<String, String>,
    /// Attributes of layers by path, as `Debug` prints them.
    attributes: HashMap<String, String>,
    /// The types of the open modules.
    layers: Vec<String>,
    duplicate: Option<String>,
}

impl Parameters {
    /// Visits a module. `path` is for messages.
    ///
    /// # Errors
    /// When two parameters have the same name.
    fn of(module: &dyn Module, path: &Path) -> Result<Parameters> {
        let mut parameters = Parameters::default();
        module.visit(&mut kiln_nn::Path::new(), &mut parameters);
        match parameters.duplicate {
            Some(name) => Err(StoreError::Duplicate { file: path.to_owned(), name }),
            None => Ok(parameters),
        }
    }

    /// All names of a parameter.
    fn names<'a>(&'a self, first: &'a str) -> impl Iterator<Item = &'a str> {
        let others = self.aliases.iter().filter(move |(_, of)| *of == first).map(|(other, _)| other.as_str());
        std::iter::once(first).chain(others)
    }

    /// The attribute `format` of the layer that owns a parameter of quantised blocks.
    fn block_format(&self, name: &str) -> Option<BlockFormat> {
        let attribute = match name.rsplit_once('.') {
            Some((layer, _)) => format!("{layer}.format"),
            None => "format".to_owned(),
        };
        BlockFormat::from_name(self.attributes.get(&attribute)?)
    }
}

impl Parameters {
    fn add(&mut self, path: &kiln_nn::Path, parameter: &Parameter) {
        let name = path.as_str().to_owned();
        let target =
            Target { ty: *parameter.value.ty(), layer: self.layers.last().cloned().unwrap_or_default() };
        if self.targets.insert(name.clone(), target).is_some() {
            self.duplicate = Some(name);
        }
    }
}

impl Visitor for Parameters {
    fn enter(&mut self, _path: &kiln_nn::Path, name: &str) {
        self.layers.push(name.to_owned());
    }

    fn exit(&mut self, _path: &kiln_nn::Path, _name: &str) {
        self.layers.pop();
    }

    fn attribute(&mut self, path: &kiln_nn::Path, value: &dyn Debug) {
        self.attributes.insert(path.as_str().to_owned(), format!("{value:?}"));
    }

    fn parameter(&mut self, path: &kiln_nn::Path, parameter: Parameter) {
        self.first.insert(parameter.id, path.as_str().to_owned());
        self.add(path, &parameter);
    }

    fn tied(&mut self, path: &kiln_nn::Path, parameter: Parameter) {
        if let Some(first) = self.first.get(&parameter.id) {
            self.aliases.insert(path.as_str().to_owned(), first.clone());
        }
        self.add(path, &parameter);
    }
}
