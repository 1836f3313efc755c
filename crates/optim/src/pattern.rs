//! Patterns of dotted parameter names.

/// Whether a dotted name matches a pattern. In the pattern, the component `*` is any one component, and `**` is any
/// number of components, also none. Within a component, `*` is any text.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (component, rest) = split(pattern);
    if component == "**" {
        return match rest {
            None => true,
            Some(rest) => tails(name).any(|tail| matches(rest, tail)),
        };
    }
    let (first, others) = split(name);
    if !component_matches(component, first) {
        return false;
    }
    match (rest, others) {
        (None, None) => true,
        (Some(rest), Some(others)) => matches(rest, others),
        (Some(rest), None) => rest == "**",
        (None, Some(_)) => false,
    }
}

/// The first component, and the others if there are any.
fn split(name: &str) -> (&str, Option<&str>) {
    match name.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (name, None),
    }
}

/// The name, then the name without its first component, and so on.
fn tails(name: &str) -> impl Iterator<Item = &str> {
    core::iter::successors(Some(name), |name| split(name).1)
}

fn component_matches(pattern: &str, component: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == component,
        Some((before, after)) => component.strip_prefix(before).is_some_and(|rest| {
            let starts = rest.char_indices().map(|(start, _)| start).chain([rest.len()]);
            starts.into_iter().any(|start| component_matches(after, &rest[start..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_match_components() {
        for (pattern, name, expected) in [
            ("weight", "weight", true),
            ("weight", "head.weight", false),
            ("*.weight", "head.weight", true),
            ("*.weight", "a.head.weight", false),
            ("**", "a.b.c", true),
            ("**.bias", "bias", true),
            ("**.bias", "a.b.bias", true),
            ("**.bias", "a.bias.b", false),
            ("backbone.**", "backbone.conv.weight", true),
            ("backbone.**", "backbone", true),
            ("backbone.**", "backbones.conv", false),
            ("a.**.z", "a.z", true),
            ("a.**.z", "a.b.c.z", true),
            ("a.**.z", "a.b.c", false),
            ("layers.*.norm*.weight", "layers.10.norm2.weight", true),
            ("layers.*.norm*.weight", "layers.10.conv.weight", false),
            ("*_proj", "q_proj", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
