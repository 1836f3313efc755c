//! Glob patterns over the dotted paths of parameters.

use crate::{Module, Parameter, Path, Visitor};
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use kiln_tensor::{Error, Result, TensorType};

/// Number of paths that an error suggests.
const SUGGESTIONS: usize = 3;

/// Returns the parameters that a pattern matches, in traversal order, a tied one at each place that matches. Buffers and
/// types that are not accepted are ignored.
///
/// # Errors
/// When there are no patterns, or a pattern matches no parameter.
pub(super) fn select(
    module: &dyn Module,
    patterns: &[String],
    accepts: impl Fn(&TensorType) -> bool,
) -> Result<Vec<(Path, Parameter)>> {
    let mut candidates = Candidates(Vec::new());
    module.visit(&mut Path::new(), &mut candidates);
    let Candidates(mut candidates) = candidates;
    candidates.retain(|(_, parameter)| !parameter.is_buffer() && accepts(parameter.value.ty()));
    if patterns.is_empty() {
        return Err(Error::value("reparametrize", "there are no target patterns")
            .hint("`**.weight` matches every weight"));
    }
    let unmatched = patterns
        .iter()
        .find(|pattern| !candidates.iter().any(|(path, _)| matches_path(pattern, path.as_str())));
    if let Some(pattern) = unmatched {
        return Err(no_match(pattern, candidates.iter().map(|(path, _)| path.as_str())));
    }
    candidates.retain(|(path, _)| patterns.iter().any(|pattern| matches_path(pattern, path.as_str())));
    Ok(candidates)
}

struct Candidates(Vec<(Path, Parameter)>);

impl Visitor for Candidates {
    fn parameter(&mut self, path: &Path, parameter: Parameter) {
        self.0.push((path.clone(), parameter));
    }

    /// A pattern may match any name of a tied parameter.
    fn tied(&mut self, path: &Path, parameter: Parameter) {
        self.0.push((path.clone(), parameter));
    }
}

/// Returns whether a pattern matches a dotted path. `*` in a component matches any characters of it; the component `**`
/// matches any number of components.
pub(super) fn matches_path(pattern: &str, path: &str) -> bool {
    let components = |text: &'_ str| text.split('.').map(String::from).collect::<Vec<_>>();
    matches_all(&components(pattern), &components(path))
}

fn matches_all(patterns: &[String], components: &[String]) -> bool {
    let Some((first, rest)) = patterns.split_first() else { return components.is_empty() };
    if first == "**" {
        return (0..=components.len()).any(|skipped| matches_all(rest, &components[skipped..]));
    }
    components
        .split_first()
        .is_some_and(|(component, others)| matches_one(first, component) && matches_all(rest, others))
}

fn matches_one(pattern: &str, component: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == component,
        Some((start, rest)) => component.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices()
                .map(|(place, _)| place)
                .chain([tail.len()])
                .any(|place| matches_one(rest, &tail[place..]))
        }),
    }
}

fn no_match<'a>(pattern: &str, paths: impl Iterator<Item = &'a str>) -> Error {
    let names = pattern.split('.').filter(|component| *component != "**").collect::<Vec<_>>();
    let wanted = names.join(".");
    let mut paths: Vec<(usize, &str)> = paths
        .map(|path| {
            let end = path.rsplit('.').take(names.len()).collect::<Vec<_>>();
            let end = end.into_iter().rev().collect::<Vec<_>>().join(".");
            (edit_distance(&wanted, &end), path)
        })
        .collect();
    paths.sort_by_key(|(distance, _)| *distance);
    let close: Vec<_> = paths.iter().take(SUGGESTIONS).map(|(_, path)| format!("`{path}`")).collect();
    let error = Error::value("reparametrize", format!("the pattern `{pattern}` matches no parameter"));
    match close.is_empty() {
        true => error.hint("the module has no parameter that can be a target"),
        false => error.hint(format!("close paths: {}", close.join(", "))),
    }
}

/// The edit distance in bytes: insertions, deletions and replacements (Levenshtein 1966).
fn edit_distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.bytes().enumerate() {
            let replaced = row[j] + usize::from(x != y);
            next.push(replaced.min(row[j + 1] + 1).min(next[j] + 1));
        }
        row = next;
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_components() {
        let matching = [
            ("weight", "weight"),
            ("**", "a.b.c"),
            ("**.weight", "weight"),
            ("**.weight", "layers.0.weight"),
            ("layers.*.weight", "layers.0.weight"),
            ("layers.**.q_proj.weight", "layers.0.attention.q_proj.weight"),
            ("layers.*.linear*.weight", "layers.3.linear1.weight"),
            ("**.*_proj.*", "layers.0.q_proj.weight"),
        ];
        for (pattern, path) in matching {
            assert!(matches_path(pattern, path), "{pattern} {path}");
        }
        let different = [
            ("*", "a.b"),
            ("weight", "0.weight"),
            ("**.weight", "layers.0.bias"),
            ("layers.*.weight", "layers.0.linear.weight"),
            ("layers.*.weight", "layers.weight"),
            ("**.linear*x.weight", "linear1.weight"),
        ];
        for (pattern, path) in different {
            assert!(!matches_path(pattern, path), "{pattern} {path}");
        }
    }
}
