//! Similar names, for error messages.

/// Limit on the length and number of names to compare, so that a hint takes no noticeable time.
const MAX_LENGTH: usize = 200;
const MAX_CANDIDATES: usize = 2000;

/// The candidate with the smallest edit distance, if it is at most a third of the name's length.
pub(crate) fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_LENGTH {
        return None;
    }
    let short = candidates.into_iter().filter(|candidate| candidate.len() <= MAX_LENGTH);
    let measured = short.take(MAX_CANDIDATES).map(|candidate| (distance(name, candidate), candidate));
    let (differences, candidate) = measured.min()?;
    (differences <= name.len().div_ceil(3)).then_some(candidate)
}

/// The edit distance of two names in bytes: insertions, deletions and replacements (Levenshtein 1966).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn only_close_names_are_suggested() {
        let names = ["conv1.weight", "conv1.bias", "fc.weight"];
        assert_eq!(closest("conv_1.weight", names), Some("conv1.weight"));
        assert_eq!(closest("conv1.biases", names), Some("conv1.bias"));
        assert_eq!(closest("embedding", names), None);
        assert_eq!(closest("x", []), None);
    }
}
