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

/// Derives `Module`, `BackendModule`, `ModuleOn` and `Display` for a struct or enum. `Debug` must be derived or
/// written beside it.
///
/// Every field is a module: parameters, other modules, and options, boxes, vectors, arrays and tuples of modules.
/// Numbers, `bool`, `String` and a few more are modules without parameters. The name of a field is the name of its
/// parameters in files. Attributes of fields:
///
/// * `#[module(skip)]`: plain data (`Clone`) that is no part of the traversal.
/// * `#[module(attribute)]`: the same, but the layer table shows it by its `Debug`.
/// * `#[module(rename = "name")]`: the name in files.
///
/// Attributes of the type:
///
/// * `#[module(no_display)]`: no `Display`, so that it can be written by hand.
/// * `#[module(crate = path)]`: the path of `kiln::nn`.
///
/// The backend is the type parameter with the bound `Backend` or `AutodiffBackend`. A type without one is a
/// module on the backend of its fields, which default to the one chosen at run time, `Dyn`. Other type parameters of
/// traversed fields are modules, unless they have the bound `Kind` or `Numeric`.
///
/// In an enum, the single unnamed field of a variant stands at the enum's own path; other fields stand under
/// their names or numbers. Names of variants are no part of a path.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    module::derive(input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Derives `Config`, serde's `Serialize` and `Deserialize`, and `Display` (as JSON) for a struct with named fields,
/// a unit struct or an enum.
///
/// A struct gets `new`, which takes the required fields in their order, and for each other field `x` a builder method
/// `with_x`. A field is required unless it is an `Option` (then it starts as `None`) or has a default:
///
/// * `#[config(default = expression)]`: the value to start from, and the one of files that lack the field. A text is
///   a `String` for a field of that type, and otherwise read as an expression.
///
/// `#[config(crate = path)]` on the type gives the path of `kiln::nn`. Unknown fields in a file are errors.
#[proc_macro_derive(Config, attributes(config))]
pub fn derive_config(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    config::derive(input).unwrap_or_else(|error| error.to_compile_error()).into()
}
