//! Similar names, for error messages.

use kiln_nn::edit_distance;

/// Limit on the length and number of names to compare, so that a hint takes no noticeable time.
const MAX_LENGTH: usize = 200;
const MAX_CANDIDATES: usize = 2000;

/// The candidate with the smallest edit distance, if it is at most a third of the name's length.
pub(crate) fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_LENGTH {
        return None;
    }
    let short = candidates.into_iter().filter(|candidate| candidate.len() <= MAX_LENGTH);
    let measured = short.take(MAX_CANDIDATES).map(|candidate| (edit_distance(name, candidate), candidate));
    let (differences, candidate) = measured.min()?;
    (differences <= name.len().div_ceil(3)).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_close_names_are_suggested() {
        let names = ["conv1.weight", "conv1.bias", "fc.weight"];
        assert_eq!(closest("conv_1.weight", names), Some("conv1.weight"));
        assert_eq!(closest("conv1.biases", names), Some("conv1.bias"));
        assert_eq!(closest("embedding", names), None);
        assert_eq!(closest("x", []), None);
    }
}
