//! The verifier rejects each kind of invalid kernel.

use kiln_kernel::{Kernel, verify};

/// The error of a kernel given by its text.
fn error(text: &str) -> String {
    let kernel: Kernel = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&kernel).expect_err(text).to_string()
}

/// A map over one axis with this body.
fn map(params: &str, body: &[&str]) -> String {
    let lines: String = body.iter().enumerate().map(|(i, line)| format!("  v{i}: {line}\n")).collect();
    format!("kernel map [p] ({params}) {{\n{lines}}}")
}

const ONE: &str = "%0: f32 in [one], %1: f32 out [one]";

#[test]
fn a_valid_kernel() {
    let text = map(ONE, &["f32 = load %0", "f32 = exp v0", "f32 = store %1, v1"]);
    verify(&text.parse().unwrap()).unwrap();
}

#[test]
fn operands() {
    let late = map(ONE, &["f32 = load %0", "f32 = exp v1", "f32 = store %1, v1"]);
    assert_eq!(error(&late), "v1: uses v1, which is not computed before");
    let store = map(ONE, &["f32 = load %0", "f32 = store %1, v0", "f32 = exp v1"]);
    assert_eq!(error(&store), "v2: uses v1, a store, which has no value");
    let kind = map(ONE, &["f32 = load %1", "f32 = store %1, v0"]);
    assert_eq!(error(&kind), "v0: parameter 1 is not an input");
    let number = map(ONE, &["f32 = number %0", "f32 = store %1, v0"]);
    assert_eq!(error(&number), "v0: parameter 0 is not a number");
    let output = map(ONE, &["f32 = load %0", "f32 = store %0, v0"]);
    assert_eq!(error(&output), "v1: parameter 0 is not an output");
    let missing = map(ONE, &["f32 = load %9", "f32 = store %1, v0"]);
    assert_eq!(error(&missing), "v0: parameter 9 is not an input");
    let axis = map(ONE, &["f32 = load %0", "f32 = index 1", "f32 = add v0, v1", "f32 = store %1, v2"]);
    assert_eq!(error(&axis), "v1: counts along axis 1, which the kernel does not have");
}

#[test]
fn dtypes() {
    let load = map(ONE, &["f64 = load %0", "f32 = cast v0", "f32 = store %1, v1"]);
    assert_eq!(error(&load), "v0: parameter 0 is of f32, not f64");
    let store = map(ONE, &["f32 = load %0", "f64 = cast v0", "f32 = store %1, v1"]);
    assert_eq!(error(&store), "v2: is of f64, not f32");
    let unary =
        map(ONE, &["f32 = load %0", "i32 = cast v0", "i32 = exp v1", "f32 = cast v2", "f32 = store %1, v3"]);
    assert!(error(&unary).starts_with("v2: [exp]"), "{}", error(&unary));
    let binary = map(ONE, &["f32 = load %0", "f64 = cast v0", "f32 = add v0, v1", "f32 = store %1, v2"]);
    assert!(error(&binary).starts_with("v2: [add]"), "{}", error(&binary));
    let select = map(ONE, &["f32 = load %0", "f32 = select v0, v0, v0", "f32 = store %1, v1"]);
    assert!(error(&select).starts_with("v1: [select]"), "{}", error(&select));
    let compare = map(ONE, &["f32 = load %0", "f32 = lt v0, v0", "f32 = store %1, v1"]);
    assert_eq!(error(&compare), "v1: is of bool, not f32");
    let constant =
        map(ONE, &["f32 = load %0", "f32 = constant true", "f32 = add v0, v1", "f32 = store %1, v2"]);
    assert_eq!(error(&constant), "v1: the number true is not a value of f32");
    let index = map("%0: bool out [one]", &["bool = index 0", "bool = store %0, v0"]);
    assert_eq!(error(&index), "v0: an index must not be bool");
    let bits = map(
        "%0: f16 in [one], %1: i16 out [one]",
        &["f16 = load %0", "i16 = bitcast v0", "i16 = store %1, v1"],
    );
    assert_eq!(error(&bits), "v1: 16-bit floats have no bits in kernels");
    let sizes = map(ONE, &["f32 = load %0", "i64 = bitcast v0", "f32 = cast v1", "f32 = store %1, v2"]);
    assert!(error(&sizes).starts_with("v1: [bitcast]"), "{}", error(&sizes));
    let checked = map(ONE, &["f32 = load %0", "f32 = checked v0, v0", "f32 = store %1, v1"]);
    assert_eq!(error(&checked), "v1: an index and its bound are integers of one dtype");
}

#[test]
fn uses() {
    let idle = map(ONE, &["f32 = load %0", "f32 = exp v0", "f32 = store %1, v0"]);
    assert_eq!(error(&idle), "v1: is not used");
    let unread = map("%0: f32 number, %1: f32 out [one]", &["f32 = constant 1.0", "f32 = store %1, v0"]);
    assert_eq!(error(&unread), "parameter 0 is not used");
    let twice = map(ONE, &["f32 = load %0", "f32 = store %1, v0", "f32 = store %1, v0"]);
    assert_eq!(error(&twice), "output 1 is stored more than once");
    let never = map("%0: f32 out [one], %1: f32 out [one]", &["f32 = constant 1.0", "f32 = store %1, v0"]);
    assert_eq!(error(&never), "output 0 is not stored");
    let again = map(ONE, &["f32 = load %0", "f32 = load %0", "f32 = add v0, v1", "f32 = store %1, v2"]);
    assert_eq!(error(&again), "parameter 0 is read more than once");
    assert_eq!(error("kernel map [] () {}"), "the kernel has no stores");
}

#[test]
fn strides() {
    let number = map("%0: f32 number [one], %1: f32 out [one]", &["f32 = number %0", "f32 = store %1, v0"]);
    assert_eq!(error(&number), "parameter 0 has 1 strides for 0 axes");
    let few = map("%0: f32 in [], %1: f32 out [one]", &["f32 = load %0", "f32 = store %1, v0"]);
    assert_eq!(error(&few), "parameter 0 has 0 strides for 1 axes");
    let repeated = map("%0: f32 in [one], %1: f32 out [zero]", &["f32 = load %0", "f32 = store %1, v0"]);
    assert_eq!(error(&repeated), "v1: the output does not cross every parallel axis");
    let row = "kernel row_reduce [p, r] (%0: f32 in [any, one], %1: f32 out [one, zero]) {
        v0: f32 = load %0
        v1: f32 = store %1, v0
    }";
    assert_eq!(error(row), "v1: the stored value changes along an axis that the output does not have");
    let half = "kernel row_reduce [r, r] (%0: f32 in [any, one], %1: f32 out [zero, one]) {
        v0: f32 = load %0
        v1: f32 = reduce_sum v0
        v2: f32 = store %1, v1
    }";
    assert_eq!(error(half), "v2: the output crosses some of the reduced axes only");
}

#[test]
fn index_bounds_are_uniform() {
    let text = map(
        "%0: i32 in [one], %1: i32 in [any], %2: i32 out [one]",
        &["i32 = load %0", "i32 = load %1", "i32 = checked v0, v1", "i32 = store %2, v2"],
    );
    assert_eq!(error(&text), "v2: the bound of an index changes along an axis");
}

#[test]
fn kernel_kinds() {
    let params = "(%0: f32 in [any, one], %1: f32 out [one, zero])";
    let body = "{ v0: f32 = load %0 v1: f32 = reduce_sum v0 v2: f32 = store %1, v1 }";
    let rows = |kind: &str| format!("kernel {kind} [p, r] {params} {body}");
    verify(&rows("row_reduce").parse().unwrap()).unwrap();
    assert_eq!(error(&rows("map")), "a map has no reductions");
    let column = "a column reduction reduces along outer axes, and not along the innermost";
    assert_eq!(error(&rows("col_reduce")), column);
    assert_eq!(error(&rows("full_reduce")), "a full reduction reduces along every axis");
    assert_eq!(error(&rows("scan")), "a scan runs along its innermost axis, without reductions");
    let product = "a matmul is a sum of products that each lack an axis";
    assert_eq!(error(&rows("matmul v1")), product);
    assert_eq!(error(&rows("matmul v7")), product);
    let outer = "kernel row_reduce [r, p] (%0: f32 in [any, one], %1: f32 out [zero, one]) ";
    let inner = "a row reduction reduces along its innermost axes, and along no others";
    assert_eq!(error(&format!("{outer}{body}")), inner);
    let scanning = "{ v0: f32 = load %0 v1: f32 = scan_sum v0 {reverse = false, exclusive = false} v2: f32 = store %1, v1 }";
    let text = format!("kernel row_reduce [p, r] (%0: f32 in [any, one], %1: f32 out [any, one]) {scanning}");
    assert_eq!(error(&text), "only a scan kernel scans");
}

#[test]
fn stages() {
    let text = "kernel col_reduce [r, p] (%0: f32 in [any, one], %1: f32 out [any, one]) {
        v0: f32 = load %0
        v1: f32 = reduce_sum v0
        v2: f32 = sub v0, v1
        v3: f32 = store %1, v2
    }";
    assert_eq!(error(text), "v2: combines a reduction's result along reduced axes outside of a row");
}

#[test]
fn sizes() {
    let axes = vec!["p"; 17].join(", ");
    assert!(format!("kernel map [{axes}] () {{}}").parse::<Kernel>().is_err());
    let mut kernel: Kernel = "kernel map [p] () {}".parse().unwrap();
    kernel.axes = vec![kernel.axes[0]; 17];
    assert_eq!(verify(&kernel).unwrap_err().to_string(), "the kernel has too many axes");
    let mut kernel: Kernel = "kernel map [] (%0: f32 number) {}".parse().unwrap();
    kernel.params = vec![kernel.params[0].clone(); 65];
    assert_eq!(verify(&kernel).unwrap_err().to_string(), "the kernel has too many parameters");
}
