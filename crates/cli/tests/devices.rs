//! `kiln devices` as a process.

use std::process::Command;

#[test]
fn devices_lists_the_processor_and_reasons_for_others() {
    let output = Command::new(env!("CARGO_BIN_EXE_kiln")).arg("devices").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |kind: &str| text.lines().find(|line| line.split_whitespace().next() == Some(kind)).unwrap();
    assert!(line("cpu").contains("0  CPU: "), "{text}");
    assert!(line("cpu").contains("thread"), "{text}");
    assert!(text.lines().all(|line| line.len() < 400), "{text}");
    // Other packages of the build may enable it.
    if !text.lines().any(|line| line.starts_with("candle")) {
        let without = text.lines().find(|line| line.contains("built without")).unwrap();
        assert!(without.contains("candle"), "{text}");
    }
}
