//! The parameters that patterns select.

use crate::{Module, Parameter, Path, Pattern, Visitor};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_tensor::{Error, Result, TensorType};

/// Returns the parameters that a pattern matches, in traversal order, a tied one at each place that matches. Buffers and
/// types that are not accepted are ignored.
///
/// # Errors
/// When there are no patterns, or a pattern is invalid or matches no parameter.
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
    let patterns = patterns.iter().map(Pattern::new).collect::<Result<Vec<_>>>()?;
    let unmatched =
        patterns.iter().find(|pattern| !candidates.iter().any(|(path, _)| pattern.matches(path.as_str())));
    if let Some(pattern) = unmatched {
        return Err(no_match(pattern, candidates.iter().map(|(path, _)| path.as_str())));
    }
    candidates.retain(|(path, _)| patterns.iter().any(|pattern| pattern.matches(path.as_str())));
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

fn no_match<'a>(pattern: &Pattern, paths: impl Iterator<Item = &'a str>) -> Error {
    let near: Vec<_> = pattern.near(paths).into_iter().map(|path| format!("`{path}`")).collect();
    let error = Error::value("reparametrize", format!("the pattern `{pattern}` matches no parameter"));
    match near.is_empty() {
        true => error.hint("the module has no parameter that can be a target"),
        false => error.hint(format!("near names: {}", near.join(", "))),
    }
}
