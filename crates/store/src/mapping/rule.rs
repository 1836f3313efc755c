//! The rules of a mapping.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use kiln_nn::Pattern;

use super::origin::{Origin, refused};
use super::tensors::Tensors;
use crate::error::{Result, StoreError};

/// A function from a name to another, or to nothing.
pub(super) type Rename = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// A rule. Those of presets apply `unless_wanted`: a tensor whose name the module has stays as it is.
#[derive(Clone)]
pub(super) enum Rule {
    /// Replaces names that match.
    Rename { pattern: Pattern, replacement: String, unless_wanted: bool },
    /// Replaces a prefix.
    Prefix { from: String, to: String },
    /// Renames or skips each tensor.
    Function(Rename),
    /// Keeps tensors that match one of the patterns.
    Include(Vec<Pattern>),
    /// Skips tensors that match.
    Exclude { pattern: Pattern, unless_wanted: bool },
    /// Leaves out the components of names that are variants of enums in Burn's records: `Relu` of `0.Relu.weight`.
    OmitVariants,
    /// Strips prefixes that most names have, until none has.
    StripPrefixes(&'static [&'static str]),
    /// Swaps the axes of matrices that match.
    Transpose(Pattern),
    /// Swaps the axes of matrices whose parameter in the module belongs to one of these layers.
    TransposeLayers(&'static [&'static str]),
    /// Swaps the axes of the matrices of layers `Conv1D`, if the tensors that match show that the file has such layers:
    /// `[width, 3 * width]`, where a linear layer has `[3 * width, width]`.
    TransposeConv1d { fused: Pattern, weights: Pattern },
    /// Moves the last axes of tensors that match, `[.., in, out]`, to the front: `[out, in, ..]`.
    OutputsFirst(Pattern),
    /// Splits tensors that match into equal parts.
    Split { pattern: Pattern, dim: usize, parts: Vec<String> },
    /// Joins tensors.
    Concat { pattern: Pattern, dim: usize, others: Vec<String>, name: String },
    /// Splits or joins rows, as the module needs it: `fused` is the tensor and `parts` are the names of its parts.
    Fused { fused: Pattern, parts: Vec<String> },
    /// Renames and transposes the attention of Burn for modules with one matrix for queries, keys and values.
    BurnAttention,
    /// Takes a missing parameter from another tensor.
    Tie { missing: Pattern, replacement: String },
}

impl Rule {
    pub(super) fn apply(&self, tensors: &mut Tensors) -> Result<()> {
        match self {
            Rule::Rename { pattern, replacement, unless_wanted } => {
                rename(tensors, pattern, replacement, *unless_wanted);
            }
            Rule::Prefix { from, to } => tensors.rename(|name| match name.strip_prefix(from.as_str()) {
                Some(rest) => Some(format!("{to}{rest}")),
                None => Some(name.to_owned()),
            }),
            Rule::Function(function) => tensors.rename(|name| function(name)),
            Rule::Include(patterns) => {
                tensors.retain(|name| patterns.iter().any(|pattern| pattern.matches(name)));
            }
            Rule::Exclude { pattern, unless_wanted } => exclude(tensors, pattern, *unless_wanted),
            Rule::OmitVariants => omit_variants(tensors),
            Rule::StripPrefixes(prefixes) => strip_prefixes(tensors, prefixes),
            Rule::Transpose(pattern) => transpose(tensors, |_, name| pattern.matches(name))?,
            Rule::TransposeLayers(layers) => transpose(tensors, |tensors, name| {
                let target = tensors.target(name);
                target.is_some_and(|target| layers.contains(&target.layer.as_str()))
            })?,
            Rule::TransposeConv1d { fused, weights } => transpose_conv1d(tensors, fused, weights)?,
            Rule::OutputsFirst(pattern) => outputs_first(tensors, pattern)?,
            Rule::Split { pattern, dim, parts } => split(tensors, pattern, *dim, parts)?,
            Rule::Concat { pattern, dim, others, name } => concat(tensors, pattern, *dim, others, name)?,
            Rule::Fused { fused, parts } => {
                split_fused(tensors, fused, parts)?;
                join_fused(tensors, fused, parts);
            }
            Rule::BurnAttention => burn_attention(tensors),
            Rule::Tie { missing, replacement } => tie(tensors, missing, replacement),
        }
        Ok(())
    }

    /// The number of patterns.
    pub(super) fn num_patterns(&self) -> usize {
        if let Rule::Include(patterns) = self { patterns.len() } else { 1 }
    }

    /// Descriptions of the patterns that match nothing, without the first ones, which are optional.
    pub(super) fn unmatched(&self, optional: usize, tensors: &Tensors) -> Vec<String> {
        let found = |pattern: &Pattern| tensors.entries.iter().any(|(name, _)| pattern.matches(name));
        if let Rule::Include(patterns) = self {
            let unmatched = patterns.iter().skip(optional).filter(|pattern| !found(pattern));
            return unmatched.map(|pattern| format!("include `{pattern}`")).collect();
        }
        let matches = match self {
            Rule::Rename { pattern, .. }
            | Rule::Exclude { pattern, .. }
            | Rule::Transpose(pattern)
            | Rule::OutputsFirst(pattern)
            | Rule::Split { pattern, .. }
            | Rule::Concat { pattern, .. } => found(pattern),
            Rule::Prefix { from, .. } => {
                tensors.entries.iter().any(|(name, _)| name.starts_with(from.as_str()))
            }
            // Whether the parameter is missing depends on the file.
            Rule::Tie { missing, .. } => {
                tensors.targets().is_none_or(|targets| targets.keys().any(|name| missing.matches(name)))
            }
            // These have no pattern, or depend on the file.
            Rule::Function(_)
            | Rule::Include(_)
            | Rule::OmitVariants
            | Rule::StripPrefixes(_)
            | Rule::TransposeLayers(_)
            | Rule::TransposeConv1d { .. }
            | Rule::Fused { .. }
            | Rule::BurnAttention => true,
        };
        if matches || optional > 0 { Vec::new() } else { vec![format!("{self:?}")] }
    }
}

fn rename(tensors: &mut Tensors, pattern: &Pattern, replacement: &str, unless_wanted: bool) {
    let targets = tensors.targets().filter(|_| unless_wanted);
    tensors.rename(|name| match targets.is_some_and(|targets| targets.contains_key(name)) {
        true => Some(name.to_owned()),
        false => Some(pattern.replace(name, replacement).unwrap_or_else(|| name.to_owned())),
    });
}

/// Leaves out components before the last that begin with a capital letter.
fn omit_variants(tensors: &mut Tensors) {
    let is_variant = |component: &str| {
        component.starts_with(|first: char| first.is_ascii_uppercase())
            && component.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let targets = tensors.targets();
    tensors.rename(|name| match name.rsplit_once('.') {
        Some((before, last)) if targets.is_none_or(|targets| !targets.contains_key(name)) => {
            let kept = before.split('.').filter(|component| !is_variant(component)).chain([last]);
            Some(kept.collect::<Vec<_>>().join("."))
        }
        Some(_) | None => Some(name.to_owned()),
    });
}

fn exclude(tensors: &mut Tensors, pattern: &Pattern, unless_wanted: bool) {
    let targets = tensors.targets().filter(|_| unless_wanted);
    tensors
        .retain(|name| !pattern.matches(name) || targets.is_some_and(|targets| targets.contains_key(name)));
}

/// Strips prefixes that more than half of the names have. With a module, stripping must also find no fewer parameters.
fn strip_prefixes(tensors: &mut Tensors, prefixes: &[&str]) {
    while let Some(prefix) = prefixes.iter().find(|prefix| is_prefix(tensors, prefix)) {
        tensors.rename(|name| Some(name.strip_prefix(prefix).unwrap_or(name).to_owned()));
    }
}

fn is_prefix(tensors: &Tensors, prefix: &str) -> bool {
    let names = || tensors.entries.iter().map(|(name, _)| name.as_str());
    let count = names().filter(|name| name.starts_with(prefix)).count();
    let collides = || {
        let positions = tensors.positions();
        names().filter_map(|name| name.strip_prefix(prefix)).any(|rest| positions.contains_key(rest))
    };
    let Some(targets) = tensors.targets() else { return count * 2 > names().count() && !collides() };
    let found = |strip: bool| {
        let stripped = |name: &'_ str| match strip {
            true => name.strip_prefix(prefix).unwrap_or(name).to_owned(),
            false => name.to_owned(),
        };
        names().filter(|name| targets.contains_key(&stripped(name))).count()
    };
    let (with, without) = (found(true), found(false));
    let is_own = targets.keys().any(|name| name.starts_with(prefix));
    (with > without || with == without && !is_own && count * 2 > names().count()) && count > 0 && !collides()
}

/// Swaps the axes of the matrices that pass a test.
fn transpose(tensors: &mut Tensors, matches: impl Fn(&Tensors, &str) -> bool) -> Result<()> {
    for position in 0..tensors.entries.len() {
        let (name, origin) = &tensors.entries[position];
        if matches(tensors, name) && tensors.info(name, origin)?.shape.rank() == 2 {
            tensors.permute(position, vec![1, 0]);
        }
    }
    Ok(())
}

fn transpose_conv1d(tensors: &mut Tensors, fused: &Pattern, weights: &Pattern) -> Result<()> {
    let mut found = false;
    for (name, origin) in tensors.entries.iter().filter(|(name, _)| fused.matches(name)) {
        let shape = tensors.info(name, origin)?.shape;
        found |= shape.rank() == 2 && shape[0].checked_mul(3) == Some(shape[1]);
    }
    match found {
        true => transpose(tensors, |_, name| weights.matches(name)),
        false => Ok(()),
    }
}

fn outputs_first(tensors: &mut Tensors, pattern: &Pattern) -> Result<()> {
    for position in 0..tensors.entries.len() {
        let (name, origin) = &tensors.entries[position];
        if !pattern.matches(name) {
            continue;
        }
        let rank = tensors.info(name, origin)?.shape.rank();
        if rank >= 2 {
            tensors.permute(position, [rank - 1, rank - 2].into_iter().chain(0..rank - 2).collect());
        }
    }
    Ok(())
}

fn split(tensors: &mut Tensors, pattern: &Pattern, dim: usize, parts: &[String]) -> Result<()> {
    let mut entries = Vec::new();
    for (name, origin) in std::mem::take(&mut tensors.entries) {
        let names: Option<Vec<String>> = parts.iter().map(|part| pattern.replace(&name, part)).collect();
        let Some(names) = names else {
            entries.push((name, origin));
            continue;
        };
        let shape = tensors.info(&name, &origin)?.shape;
        let length = shape.get(dim).copied().filter(|length| length.is_multiple_of(parts.len()));
        let Some(length) = length.map(|length| length / parts.len()) else {
            let problem = format!("axis {dim} of the shape {shape} has no {} equal parts", parts.len());
            return Err(refused(tensors.source(), &name, &problem));
        };
        for (i, part) in names.into_iter().enumerate() {
            entries
                .push((part, Origin::Part { of: Box::new(origin.clone()), dim, start: i * length, length }));
        }
    }
    tensors.entries = entries;
    Ok(())
}

fn concat(tensors: &mut Tensors, pattern: &Pattern, dim: usize, others: &[String], name: &str) -> Result<()> {
    let positions = tensors.positions();
    let mut joined: HashMap<usize, (String, Vec<usize>)> = HashMap::new();
    for (position, (first, _)) in tensors.entries.iter().enumerate() {
        let Some(name) = pattern.replace(first, name) else { continue };
        let mut parts = vec![position];
        for other in others.iter().filter_map(|other| pattern.replace(first, other)) {
            let found = positions.get(&other).ok_or_else(|| StoreError::NotFound {
                file: tensors.source().path().to_owned(),
                name: other.clone(),
                suggestion: None,
            })?;
            parts.push(*found);
        }
        joined.insert(position, (name, parts));
    }
    join(tensors, dim, &joined);
    Ok(())
}

/// Replaces the tensor at each position by the join of several, which are removed.
fn join(tensors: &mut Tensors, dim: usize, joined: &HashMap<usize, (String, Vec<usize>)>) {
    let used: Vec<usize> = joined.values().flat_map(|(_, parts)| parts.iter().copied()).collect();
    let entries = std::mem::take(&mut tensors.entries);
    for (position, entry) in entries.iter().enumerate() {
        match joined.get(&position) {
            Some((name, parts)) => {
                let parts = parts.iter().map(|&part| entries[part].1.clone()).collect();
                tensors.entries.push((name.clone(), Origin::Joined { parts, dim }));
            }
            None if used.contains(&position) => {}
            None => tensors.entries.push(entry.clone()),
        }
    }
}

/// Splits the rows of a fused tensor that the module does not have into parts that it has. Their lengths are those in
/// the module.
fn split_fused(tensors: &mut Tensors, fused: &Pattern, parts: &[String]) -> Result<()> {
    if tensors.targets().is_none() {
        return Ok(());
    }
    let mut entries = Vec::new();
    for (name, origin) in std::mem::take(&mut tensors.entries) {
        match fused_parts(tensors, fused, parts, &name) {
            Some(parts) => {
                let mut start = 0;
                for (part, length) in parts {
                    let of = Box::new(origin.clone());
                    entries.push((part, Origin::Part { of, dim: 0, start, length }));
                    start += length;
                }
                let shape = tensors.info(&name, &origin)?.shape;
                if shape.iter().next() != Some(&start) {
                    let problem = format!("the parts have {start} rows, but the shape is {shape}");
                    return Err(refused(tensors.source(), &name, &problem));
                }
            }
            None => entries.push((name, origin)),
        }
    }
    tensors.entries = entries;
    Ok(())
}

/// The parts of a fused tensor and their numbers of rows, if the module has all of them.
fn fused_parts(
    tensors: &Tensors,
    fused: &Pattern,
    parts: &[String],
    name: &str,
) -> Option<Vec<(String, usize)>> {
    if tensors.is_wanted(name) {
        return None;
    }
    let parts = parts.iter().map(|part| {
        let part = fused.replace(name, part)?;
        let rows = *tensors.target(&part)?.ty.shape.iter().next()?;
        Some((part, rows))
    });
    parts.collect()
}

/// Joins the parts of fused parameters of the module.
fn join_fused(tensors: &mut Tensors, fused: &Pattern, parts: &[String]) {
    let Some(targets) = tensors.targets() else { return };
    let positions = tensors.positions();
    let mut joined: HashMap<usize, (String, Vec<usize>)> = HashMap::new();
    for name in targets.keys().filter(|name| !positions.contains_key(*name)) {
        let found = parts.iter().map(|part| {
            let part = fused.replace(name, part)?;
            positions.get(&part).copied().filter(|_| !tensors.is_wanted(&part))
        });
        if let Some(found) = found.collect::<Option<Vec<usize>>>()
            && let Some(&first) = found.first()
        {
            joined.insert(first, (name.clone(), found));
        }
    }
    join(tensors, 0, &joined);
}

/// Burn's attention has the linear layers `query`, `key`, `value` and `output`. A module with `in_proj_weight` has the
/// first three as the rows of one matrix, and `out_proj`.
fn burn_attention(tensors: &mut Tensors) {
    let Some(targets) = tensors.targets() else { return };
    let prefixes: Vec<&str> = targets.keys().filter_map(|name| name.strip_suffix("in_proj_weight")).collect();
    for position in 0..tensors.entries.len() {
        let name = tensors.entries[position].0.clone();
        let Some(rest) = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix)) else { continue };
        let prefix = &name[..name.len() - rest.len()];
        match rest {
            "query.weight" | "key.weight" | "value.weight" => tensors.permute(position, vec![1, 0]),
            "output.weight" => tensors.entries[position].0 = format!("{prefix}out_proj.weight"),
            "output.bias" => tensors.entries[position].0 = format!("{prefix}out_proj.bias"),
            _ => {}
        }
    }
}

fn tie(tensors: &mut Tensors, missing: &Pattern, replacement: &str) {
    let Some(targets) = tensors.targets() else { return };
    let positions = tensors.positions();
    for name in targets.keys().filter(|name| !positions.contains_key(*name)) {
        let Some(other) = missing.replace(name, replacement) else { continue };
        if let Some(&position) = positions.get(&other) {
            let origin = tensors.entries[position].1.clone();
            tensors.entries.push((name.clone(), origin));
        }
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::Rename { pattern, replacement, .. } => write!(f, "rename `{pattern}` to `{replacement}`"),
            Rule::Prefix { from, to } => write!(f, "rename the prefix `{from}` to `{to}`"),
            Rule::Function(_) => f.write_str("rename by a function"),
            Rule::Include(patterns) => write!(f, "include {patterns:?}"),
            Rule::Exclude { pattern, .. } => write!(f, "exclude `{pattern}`"),
            Rule::OmitVariants => f.write_str("omit the variants of enums"),
            Rule::StripPrefixes(prefixes) => write!(f, "strip the prefixes {prefixes:?}"),
            Rule::Transpose(pattern) => write!(f, "transpose `{pattern}`"),
            Rule::TransposeLayers(layers) => write!(f, "transpose the weights of {layers:?}"),
            Rule::TransposeConv1d { weights, .. } => write!(f, "transpose {weights} of Conv1D"),
            Rule::OutputsFirst(pattern) => write!(f, "outputs first in `{pattern}`"),
            Rule::Split { pattern, dim, parts } => write!(f, "split `{pattern}` along {dim} into {parts:?}"),
            Rule::Concat { pattern, dim, others, name } => {
                write!(f, "join `{pattern}` and {others:?} along {dim} to `{name}`")
            }
            Rule::Fused { fused, parts } => write!(f, "split or join {fused}: {parts:?}"),
            Rule::BurnAttention => f.write_str("attention of Burn"),
            Rule::Tie { missing, replacement } => write!(f, "tie `{missing}` to `{replacement}`"),
        }
    }
}
