//! The derive macros of Kiln.
//!
//! * `#[derive(Module)]` for a struct or enum of layers and parameters: traversal (`Module`), `BackendModule`,
//!   `ModuleOn` and the layer table (`Display`).
//! * `#[derive(Config)]` for a struct or enum of settings: constructor, builder methods, and JSON.
//!
//! Both are re-exported where their traits live, in `kiln::nn` (and `kiln_nn`); see there for examples. The generated
//! code names that crate: `::kiln::nn` where the package depends on `kiln`, else `::kiln_nn` where it depends on
//! `kiln-nn`. If the crate has another name, set it by `#[module(crate = path)]` and `#[config(crate = path)]`.
#![forbid(unsafe_code)]

mod config;
mod crate_path;
mod module;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `Module`, `BackendModule`, `ModuleOn` and `Display` for a struct or enum. The type must also implement
/// `Debug`.
///
/// Every field is a module: parameters, other modules, and options, boxes, vectors, arrays and tuples of modules.
/// Integers, floats, `bool`, `String` and a few other types are modules without parameters. The name of a field is the
/// name of its parameters in files. Field attributes:
///
/// * `#[module(skip)]`: plain data (`Clone`) that is not traversed.
/// * `#[module(attribute)]`: like `skip`, but the layer table shows it by its `Debug`.
/// * `#[module(rename = "name")]`: the name in files.
///
/// Type attributes:
///
/// * `#[module(no_display)]`: does not implement `Display`, so that it can be implemented manually.
/// * `#[module(crate = path)]`: the path of `kiln::nn`.
///
/// The backend is the type parameter with the bound `Backend` or `AutodiffBackend`. A type without one is a module on
/// the backend of its fields; their default is `Dyn`, chosen at run time. Other type parameters of traversed fields are
/// modules, unless they have the bound `Kind` or `Numeric`.
///
/// In an enum, the single unnamed field of a variant has the path of the enum. Other fields have paths by name or
/// index. Variant names are not part of a path.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    module::derive(input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Derives `Config`, serde's `Serialize` and `Deserialize`, and `Display` (as JSON) for a struct with named fields,
/// a unit struct or an enum.
///
/// A struct gets `new`, whose arguments are the required fields in declaration order. For each other field `x` it gets
/// a builder method `with_x`. A field is required unless it is an `Option` (default `None`) or has a default:
///
/// * `#[config(default = expression)]`: the default value, also for files without the field. A string literal is a
///   `String` for a field of that type, and otherwise parsed as an expression. It is the last in its attribute.
/// * `#[config(range = "[0, 1)")]`: the range of a number, or of the numbers of an option, array or pair. Parentheses
///   exclude a bound, and `inf` is infinity: `(0, inf)` are the finite numbers above 0. `Config::check_ranges` checks it.
///   `expected = "text"` after it replaces the words for the range in errors.
/// * `#[config(into = Type)]`: `with_x` takes `impl Into<Type>`, and the type of the field is `From<Type>`.
/// * `#[config(no_setter)]`: the method `with_x` is written by hand.
///
/// `#[config(crate = path)]` on the type sets the path of `kiln::nn`. Unknown fields in a file are errors.
#[proc_macro_derive(Config, attributes(config))]
pub fn derive_config(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    config::derive(input).unwrap_or_else(|error| error.to_compile_error()).into()
}
