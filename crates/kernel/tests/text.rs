//! Parsing kernels: errors name their line and column.

use kiln_kernel::{Kernel, Launch};

fn error(text: &str) -> String {
    text.parse::<Kernel>().expect_err(text).to_string()
}

#[test]
fn syntax_errors_have_positions() {
    let cases = [
        ("", "expected `kernel`, found the end of the text"),
        ("kernel foo", "expected map or transpose"),
        ("kernel map [q] () {}", "expected p or r, found `q`"),
        ("kernel map [p] (%1: f32 in [one]) {}", "expected `%0`, found `%1`"),
        ("kernel map [p] () { v1: f32 = load %0 }", "expected `v0`, found `v1`"),
        ("kernel map [p] () { v0: f33 = load %0 }", "found `f33`"),
        ("kernel map [p] () { v0: f32 = lode %0 }", "kernels have no operation `lode`"),
        ("kernel map [p] () { v0: f32 = exp %0 }", "expected a value such as `v0`, found `%0`"),
        ("kernel map [p] () { v0: f32 = constant }", "expected a number, found `}`"),
        ("kernel map [p] () { v0: f32 = constant 1.2.3 }", "`1.2.3` is not a number"),
        ("kernel map [p] () { v0: i32 = index -1 }", "-1 is out of range"),
        (
            "kernel map [p] () { v0: f32 = scan_sum v0 {reverse = 1, exclusive = false} }",
            "expected `true` or `false`",
        ),
        ("kernel map [p] () {} x", "expected the end of the text, found `x`"),
        ("kernel map [p] () { \u{3b1} }", "has no meaning here"),
        ("kernel matmul [p] () {}", "expected a value such as `v0`, found `[`"),
    ];
    for (text, part) in cases {
        let error = error(text);
        assert!(error.contains(part), "{text}: {error}");
    }
    let error = "launch [1] (%0: 0 [1.5])".parse::<Launch>().unwrap_err().to_string();
    assert!(error.contains("expected an integer"), "{error}");
    assert!("launch [2".parse::<Launch>().is_err());
}

#[test]
fn length_is_bounded() {
    assert!(error(&" ".repeat(kiln_kernel::text::MAX_TEXT + 1)).contains("at most"));
    let many: String =
        (0..=kiln_kernel::text::MAX_INSTRUCTIONS).map(|i| format!("v{i}: f32 = load %0\n")).collect();
    assert!(error(&format!("kernel map [p] () {{{many}}}")).contains("more than"));
}

#[test]
fn constants_round_trip_bit_for_bit() {
    for constant in
        ["1.0", "-0.0", "1e-45", "inf", "-inf", "nan", "nan_fff8000000000001", "7", "-7", "7u", "true"]
    {
        let text = format!("kernel map [] () {{\n  v0: f32 = constant {constant}\n}}");
        assert_eq!(text.parse::<Kernel>().unwrap().to_string(), text);
    }
}

/// Any part of a text, and any text with one changed byte, is parsed or refused without a panic.
#[test]
fn damaged_texts_are_refused() {
    let text = "kernel row_reduce [p, r] (%0: f32 in [any, one], %1: f32 number, %2: f32 out [any, one]) {
      v0: f32 = load %0
      v1: f32 = reduce_max v0
      v2: f32 = number %1
      v3: f32 = constant -1.5e3
      v4: f32 = add v2, v3
      v5: f32 = mul v0, v4
      v6: f32 = sub v5, v1
      v7: f32 = store %2, v6
    }";
    text.parse::<Kernel>().unwrap();
    for end in 0..text.len() {
        assert!(text[..end].parse::<Kernel>().is_err());
        for byte in [b' ', b'0', b'v', b'%', b'[', b'\n', b'-'] {
            let mut bytes = text.as_bytes().to_vec();
            bytes[end] = byte;
            let _ = String::from_utf8(bytes).unwrap().parse::<Kernel>();
        }
    }
}
