//! Mistakes in derives are compile errors at the right place.

#[test]
fn derives_report_errors() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
