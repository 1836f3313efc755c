//! The names of all public methods, read from the sources.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Folders and files below `crates/` whose public methods of `AnyTensor` must each have a row.
const METHODS: &[&str] = &["tensor/src/any", "tensor/src/einsum.rs"];

/// Folders and files below `crates/` whose public functions must each have a row, and the prefix of their row names.
const FUNCTIONS: &[(&str, &str)] = if cfg!(feature = "linalg") {
    &[
        ("linalg/src/any.rs", "linalg::"),
        ("linalg/src/any", "linalg::"),
        ("linalg/src/any/complex.rs", "linalg::complex::"),
    ]
} else {
    &[]
};

/// Methods without a row, with the reason.
pub const EXEMPT: &[(&str, &str)] = &[
    ("emit", "runs any op; the suite of ops tests them"),
    ("apply", "runs any op; the suite of ops tests them"),
    ("apply_async", "runs any op; the tests of `argwhere_async` cover it"),
    ("apply_with_async", "runs any op; the tests of `custom_async` cover it"),
    ("apply_many", "runs any op; the suite of ops tests them"),
    ("apply_with", "runs any op; the suite of ops tests them"),
    ("from_data", "every row begins with it"),
    ("from_shared", "brings bytes that lie in memory already; the tests of `store` cover it"),
    ("into_data", "every row ends with it"),
    ("to_data", "a clone, then into_data"),
    ("into_data_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("to_data_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("into_data_dtype", "into_data, then a conversion; tests of the tensor crate cover it"),
    ("to_vec", "into_vec_as of a clone; tests of the tensor crate cover it"),
    ("item", "into_scalar of a clone; tests of the tensor crate cover it"),
    ("into_vec_as", "into_data, then a conversion; tests of the tensor crate cover it"),
    ("into_scalar", "into_data of one element; tests of the tensor crate cover it"),
    ("into_scalar_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("argwhere_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("nonzero_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("mask_select_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("to_vec_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("item_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("all_close_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("unique_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("unique_with_counts_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("unique_dim_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("unique_consecutive_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("unique_consecutive_dim_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("bincount_async", "waits as into_data does; tests of the tensor crate cover it"),
    ("to_stack", "moves between devices; tests of the tensor crate cover it"),
    ("to_device", "moves between devices; tests of the tensor crate cover it"),
    ("is_require_grad", "asks about the tape; tests of the tensor crate cover it"),
    ("require_grad", "starts a tape; every gradient check begins with it"),
    ("backward", "reads a tape; every gradient check ends with it"),
    ("backward_from", "reads a tape; tests of the tensor crate cover it"),
    ("grad", "looks a gradient up; tests of the tensor crate cover it"),
    ("try_grad", "looks a gradient up; tests of the tensor crate cover it"),
    ("grad_remove", "looks a gradient up; tests of the tensor crate cover it"),
    ("detach", "leaves the tape; tests of the tensor crate cover it"),
    ("explain", "tells how a tensor was made; the tests of `fusion` cover it"),
    ("outcome", "tells whether a tensor was computed; the tests of `optim` cover it"),
    ("recover", "takes errors off tensors; the suite of ops and the tests of `optim` cover it"),
    ("inner", "leaves the tape; tests of the tensor crate cover it"),
    ("from_inner", "enters a tape; every second gradient begins with it"),
];

/// Returns the names of the public methods, and with the feature `linalg` of the functions of `kiln_linalg::any`;
/// sorted.
///
/// # Panics
/// When the sources are not next to this crate.
pub fn surface() -> Vec<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder of crates");
    let mut names = BTreeSet::new();
    for source in METHODS {
        read(&crates.join(source), &mut |text| methods(text, &mut names));
    }
    for (source, prefix) in FUNCTIONS {
        read(&crates.join(source), &mut |text| functions(text, prefix, &mut names));
    }
    names.into_iter().collect()
}

/// Visits the text of a file, or of all files in a folder.
fn read(path: &Path, visit: &mut dyn FnMut(&str)) {
    if path.is_dir() {
        let entries = fs::read_dir(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        entries.for_each(|entry| read(&entry.expect("an entry").path(), visit));
        return;
    }
    visit(&fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
}

fn methods(text: &str, names: &mut BTreeSet<String>) {
    let mut inside = false;
    for line in text.lines() {
        match line {
            "}" => inside = false,
            _ if line.starts_with("impl AnyTensor") => inside = true,
            _ => {}
        }
        if let (true, Some(name)) = (inside, declared(line.trim_start())) {
            names.insert(name.to_owned());
        }
    }
}

fn functions(text: &str, prefix: &str, names: &mut BTreeSet<String>) {
    names.extend(text.lines().filter_map(declared).map(|name| format!("{prefix}{name}")));
}

/// The name of the public function that a line declares.
fn declared(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub fn ").or(line.strip_prefix("pub async fn "))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}
