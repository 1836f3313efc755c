//! Names and layouts of one framework for another.

mod origin;
mod presets;
mod rearrange;
mod rule;
mod tensors;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use kiln_nn::Pattern;
use kiln_tensor::TensorType;

use crate::error::{Result, StoreError};
use crate::source::{TensorContents, TensorInfo, TensorSource, WeightFormat};
use crate::weights::Weights;
use rule::Rule;
use tensors::Tensors;

pub(crate) use origin::Origin;

/// Rules that convert the names and layouts of tensors in a file to those of a module.
///
/// Rules apply in the order of the calls, each to the result of the one before. A [pattern](Pattern) matches whole names:
/// `*` is any text within a component, `**` any number of components, `{weight,bias}` one of several texts. In a
/// replacement, `$1` or `${1}` is the text of the first wildcard.
///
/// ```
/// use kiln_store::{LoadOptions, Mapping};
///
/// let mapping = Mapping::new()
///     .exclude("head.**")?
///     .rename("encoder.layer.**", "layers.$1")?
///     .transpose("**.kernel")?
///     .rename("**.kernel", "$1.weight")?;
/// let options = LoadOptions::new().mapping(mapping);
/// # Ok::<(), kiln_store::StoreError>(())
/// ```
///
/// In Burn, [`rename`](Mapping::rename) is `LoadArgs::with_key_remap` of `PyTorchFileRecorder`, with a regular expression
/// in place of the pattern: `(.*)\.gamma` is `**.gamma` here. The presets are its adapters.
///
/// The presets [`pytorch`](Mapping::pytorch), [`hugging_face`](Mapping::hugging_face), [`burn`](Mapping::burn) and
/// [`flax`](Mapping::flax) contain the conventions of a framework. When a module is loaded, they leave a tensor whose
/// name the module has as it is. Some of their rules depend on the module: the transposition of linear layers of Burn,
/// splits and joins of fused projections, and tied weights. [`Weights::mapped`](crate::Weights::mapped) knows no module
/// and omits these.
///
/// A pattern that matches no name is often misspelled: the [report](crate::LoadReport) of loading lists it, and a warning
/// is logged. [`optional`](Mapping::optional) permits it. The rules of the presets are optional.
#[derive(Clone, Default)]
pub struct Mapping {
    rules: Vec<Step>,
}

#[derive(Clone)]
struct Step {
    rule: Rule,
    /// The number of patterns of the rule, from the first on, that may match nothing.
    optional: usize,
}

impl Mapping {
    /// Returns a mapping without rules.
    pub fn new() -> Mapping {
        Mapping::default()
    }

    /// Replaces names that match.
    ///
    /// # Errors
    /// When the pattern or the replacement is invalid.
    #[doc(alias = "with_key_remap")]
    pub fn rename(self, pattern: &str, replacement: &str) -> Result<Mapping> {
        let (pattern, replacement) = (parsed(pattern, [replacement])?, replacement.to_owned());
        Ok(self.with(Rule::Rename { pattern, replacement, unless_wanted: false }))
    }

    /// Replaces names by a function; `None` skips the tensor.
    #[must_use]
    pub fn rename_with(self, rename: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Mapping {
        self.with(Rule::Function(Arc::new(rename)))
    }

    /// Replaces the prefix `from` of names by `to`. Other names do not change.
    #[must_use]
    pub fn rename_prefix(self, from: impl Into<String>, to: impl Into<String>) -> Mapping {
        self.with(Rule::Prefix { from: from.into(), to: to.into() })
    }

    /// Keeps only tensors whose names match. After consecutive calls, a name must match one of the patterns.
    ///
    /// # Errors
    /// When the pattern is invalid.
    pub fn include(mut self, pattern: &str) -> Result<Mapping> {
        let pattern = parsed(pattern, [])?;
        if let Some(Step { rule: Rule::Include(patterns), .. }) = self.rules.last_mut() {
            patterns.push(pattern);
            return Ok(self);
        }
        Ok(self.with(Rule::Include(vec![pattern])))
    }

    /// Skips tensors whose names match.
    ///
    /// # Errors
    /// When the pattern is invalid.
    pub fn exclude(self, pattern: &str) -> Result<Mapping> {
        Ok(self.with(Rule::Exclude { pattern: parsed(pattern, [])?, unless_wanted: false }))
    }

    /// Swaps the axes of matrices whose names match. Tensors of other ranks do not change.
    ///
    /// # Errors
    /// When the pattern is invalid.
    pub fn transpose(self, pattern: &str) -> Result<Mapping> {
        Ok(self.with(Rule::Transpose(parsed(pattern, [])?)))
    }

    /// Splits tensors whose names match into equal parts along an axis. `parts` are the names of the parts, as
    /// replacements.
    ///
    /// ```
    /// use kiln_store::Mapping;
    ///
    /// // The fused projection of GPT-2, after a transposition to `[3 * width, width]`.
    /// let parts = ["$1.attn.q_proj.$2", "$1.attn.k_proj.$2", "$1.attn.v_proj.$2"];
    /// let mapping = Mapping::hugging_face().split("**.attn.c_attn.{weight,bias}", 0, &parts)?;
    /// # Ok::<(), kiln_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// When the pattern or a replacement is invalid, or there are no parts. Loading fails when the axis cannot be divided.
    pub fn split(self, pattern: &str, dim: usize, parts: &[&str]) -> Result<Mapping> {
        let pattern = parsed(pattern, parts.iter().copied())?;
        if parts.is_empty() {
            return Err(invalid("parts", "a split needs the names of its parts"));
        }
        let parts = parts.iter().map(|&part| part.to_owned()).collect();
        Ok(self.with(Rule::Split { pattern, dim, parts }))
    }

    /// Joins tensors along an axis: those whose names match, each followed by the tensors with the names in `others`.
    /// `others` and the name of the result are replacements.
    ///
    /// ```
    /// use kiln_store::Mapping;
    ///
    /// let others = ["$1.k_proj.$2", "$1.v_proj.$2"];
    /// let mapping = Mapping::new().concat("**.q_proj.{weight,bias}", 0, &others, "$1.in_proj_$2")?;
    /// # Ok::<(), kiln_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// When the pattern or a replacement is invalid. Loading fails when one of the others is missing, or the shapes do not fit.
    pub fn concat(self, pattern: &str, dim: usize, others: &[&str], name: &str) -> Result<Mapping> {
        let pattern = parsed(pattern, others.iter().copied().chain([name]))?;
        let others = others.iter().map(|&other| other.to_owned()).collect();
        Ok(self.with(Rule::Concat { pattern, dim, others, name: name.to_owned() }))
    }

    /// Takes a parameter of the module that is missing from another tensor, whose name is a replacement of its name.
    /// Weights that are tied in the file are stored once.
    ///
    /// ```
    /// use kiln_store::Mapping;
    ///
    /// let mapping = Mapping::new().tie("lm_head.weight", "embed_tokens.weight")?;
    /// # Ok::<(), kiln_store::StoreError>(())
    /// ```
    ///
    /// # Errors
    /// When the pattern or the replacement is invalid.
    pub fn tie(self, missing: &str, replacement: &str) -> Result<Mapping> {
        let (missing, replacement) = (parsed(missing, [replacement])?, replacement.to_owned());
        Ok(self.with(Rule::Tie { missing, replacement }))
    }

    /// Permits that the patterns so far match nothing, for a mapping of files that differ.
    ///
    /// ```
    /// use kiln_store::Mapping;
    ///
    /// // Some files have a prefix. All have layers.
    /// let mapping = Mapping::new().rename("backbone.**", "$1")?.optional().rename("layer*.**", "layers.$1.$2")?;
    /// # Ok::<(), kiln_store::StoreError>(())
    /// ```
    #[must_use]
    pub fn optional(mut self) -> Mapping {
        self.rules.iter_mut().for_each(|step| step.optional = step.rule.num_patterns());
        self
    }

    /// Returns descriptions of the rules whose patterns match no tensor of a file, except [optional](Mapping::optional)
    /// ones. Functions have no pattern, and a [tie](Mapping::tie) needs a module.
    ///
    /// # Errors
    /// When a rule does not fit the shape of a tensor.
    pub fn unmatched(&self, weights: &Weights) -> Result<Vec<String>> {
        self.steps(&mut Tensors::new(weights.source(), None))
    }

    /// Adds the rules of another mapping after these.
    #[must_use]
    pub fn then(mut self, other: Mapping) -> Mapping {
        self.rules.extend(other.rules);
        self
    }

    fn with(mut self, rule: Rule) -> Mapping {
        self.rules.push(Step { rule, optional: 0 });
        self
    }

    /// Applies the rules to the tensors of a file. `targets` are the parameters of the module, if there is one.
    ///
    /// # Errors
    /// When two tensors get the same name, or a rule does not fit the shape of a tensor.
    pub(crate) fn apply(&self, source: &dyn TensorSource, targets: Option<&Targets>) -> Result<Mapped> {
        let mut tensors = Tensors::new(source, targets);
        let unmatched = self.steps(&mut tensors)?;
        for rule in &unmatched {
            log::warn!("{}: a rule of the mapping matches no tensor: {rule}", source.path().display());
        }
        tensors.finish(unmatched)
    }

    /// Applies the rules, and returns descriptions of those that match nothing.
    fn steps(&self, tensors: &mut Tensors<'_>) -> Result<Vec<String>> {
        let mut unmatched = Vec::new();
        for Step { rule, optional } in &self.rules {
            unmatched.extend(rule.unmatched(*optional, tensors));
            rule.apply(tensors)?;
        }
        Ok(unmatched)
    }
}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules.iter().map(|step| &step.rule)).finish()
    }
}

/// A parameter of a module.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) ty: TensorType,
    /// The name of the type of the module that owns the parameter: `Linear`.
    pub(crate) layer: String,
}

/// The parameters of a module by name.
pub(crate) type Targets = BTreeMap<String, Target>;

/// The tensors of a file under their names in the module.
#[derive(Debug)]
pub(crate) struct Mapped {
    /// In the order of the file.
    pub(crate) tensors: Vec<(String, Origin)>,
    /// The names in the file of tensors that a rule skipped.
    pub(crate) skipped: Vec<String>,
    /// Descriptions of the rules that match nothing and are not optional.
    pub(crate) unmatched: Vec<String>,
}

/// Parses a pattern and checks its replacements.
fn parsed<'a>(text: &str, replacements: impl IntoIterator<Item = &'a str>) -> Result<Pattern> {
    let pattern = Pattern::new(text).and_then(|pattern| {
        replacements.into_iter().try_for_each(|replacement| pattern.check_replacement(replacement))?;
        Ok(pattern)
    });
    pattern.map_err(|error| invalid("mapping", &error.to_string()))
}

fn invalid(argument: &str, problem: &str) -> StoreError {
    StoreError::InvalidArgument { argument: argument.to_owned(), problem: problem.to_owned() }
}

/// A file of weights under the names of a mapping.
#[derive(Debug)]
pub(crate) struct MappedSource {
    source: Arc<dyn TensorSource>,
    names: Vec<String>,
    origins: BTreeMap<String, Origin>,
}

impl MappedSource {
    pub(crate) fn new(source: Arc<dyn TensorSource>, mapping: &Mapping) -> Result<MappedSource> {
        let mapped = mapping.apply(source.as_ref(), None)?;
        for (name, origin) in &mapped.tensors {
            origin.info(source.as_ref(), name)?;
        }
        let names = mapped.tensors.iter().map(|(name, _)| name.clone()).collect();
        Ok(MappedSource { source, names, origins: mapped.tensors.into_iter().collect() })
    }
}

impl TensorSource for MappedSource {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn format(&self) -> WeightFormat {
        self.source.format()
    }

    fn names(&self) -> Vec<&str> {
        self.names.iter().map(String::as_str).collect()
    }

    fn info(&self, name: &str) -> Option<TensorInfo> {
        self.origins.get(name)?.info(self.source.as_ref(), name).ok()
    }

    fn contents(&self, name: &str) -> Result<TensorContents> {
        let origin = self.origins.get(name).ok_or_else(|| StoreError::NotFound {
            file: self.path().to_owned(),
            name: name.to_owned(),
            suggestion: crate::names::closest(name, self.names()).map(str::to_owned),
        })?;
        origin.contents(self.source.as_ref(), name)
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.source.metadata()
    }
}
