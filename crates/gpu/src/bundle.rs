//! Batched compilation: several kernel sources in one translation unit, since starting NVRTC costs more than a kernel.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::Arc;

/// Several kernel sources in one translation unit.
pub(crate) struct Bundle {
    /// The text of the translation unit.
    pub(crate) text: String,
    /// For each source, its entry points with their names in the bundle.
    pub(crate) entries: Vec<Vec<(String, String)>>,
}

impl Bundle {
    /// Bundles sources. Each gets a namespace, unique entry points, and `#undef`s of its macros at the end.
    pub(crate) fn of(sources: &[Arc<str>]) -> Bundle {
        let (mut text, mut entries) = (String::new(), Vec::new());
        for (number, source) in sources.iter().enumerate() {
            let named: Vec<(String, String)> = entry_points(source)
                .into_iter()
                .map(|entry| (entry.to_owned(), format!("{entry}_in_{number}")))
                .collect();
            for (entry, here) in &named {
                let _ = writeln!(text, "#define {entry} {here}");
            }
            let _ = writeln!(text, "namespace kiln_{number} {{\n{source}\n}}");
            let macros: BTreeSet<&str> =
                macros(source).chain(named.iter().map(|(entry, _)| &**entry)).collect();
            for name in macros {
                let _ = writeln!(text, "#undef {name}");
            }
            entries.push(named);
        }
        Bundle { text, entries }
    }
}

/// The names of all entry points, including those that the source's macros disable.
pub(crate) fn entry_points(source: &str) -> BTreeSet<&str> {
    let name = |(at, head): (usize, &str)| {
        let rest = source[at + head.len()..].trim_start();
        let rest = match rest.strip_prefix("__launch_bounds__") {
            Some(bounds) => bounds.split_once(')')?.1.trim_start(),
            None => rest,
        };
        identifier(rest)
    };
    source.match_indices("__global__ void").filter_map(name).collect()
}

/// The names of the macros that a source defines.
fn macros(source: &str) -> impl Iterator<Item = &str> {
    source.lines().filter_map(|line| identifier(line.trim_start().strip_prefix("#define")?.trim_start()))
}

/// The identifier at the start of a text.
fn identifier(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_of_equal_name_get_separate_namespaces() {
        let one = "#define T float\n#define UP(x) \\\n  ((x) + 1)\nextern \"C\" __global__ void __launch_bounds__(256) f(T* x) {}";
        let two = "extern \"C\" __global__ void f(\n    int* x) {}\nextern \"C\" __global__ void g() {}";
        let bundle = Bundle::of(&[one.into(), two.into()]);
        let pair = |entry: &str, here: &str| (entry.to_owned(), here.to_owned());
        assert_eq!(
            bundle.entries,
            [vec![pair("f", "f_in_0")], vec![pair("f", "f_in_1"), pair("g", "g_in_1")]]
        );
        let expected = format!(
            "#define f f_in_0\nnamespace kiln_0 {{\n{one}\n}}\n#undef T\n#undef UP\n#undef f\n\
             #define f f_in_1\n#define g g_in_1\nnamespace kiln_1 {{\n{two}\n}}\n#undef f\n#undef g\n"
        );
        assert_eq!(bundle.text, expected);
    }
}
