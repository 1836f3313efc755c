//! Mistakes in derives, and a backward pass without the layer of gradients, are compile errors at the right place.
//!
//! All crates' tests of compile errors are here: trybuild checks every dependency of a package in a target folder of its own.

#[test]
fn mistakes_are_compile_errors() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
