//! Invalid environment settings are errors that name them, and sizes are checked before use.

use kiln_cpu::{Cpu, MAX_THREADS};
use std::process::{Command, Output};

fn child(name: &str, value: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "settings::child_process_opens_an_engine", "--nocapture"]);
    command.env(name, value).output().unwrap()
}

/// In a process of its own, since variables are read once.
#[test]
#[ignore = "a child of the tests below"]
fn child_process_opens_an_engine() {
    println!("{} threads", Cpu::new().threads());
}

#[test]
fn invalid_settings_are_refused() {
    let cases = [
        ("KILN_NUM_THREADS", ["0", "-1", "1025", "20000"], "a number of threads from 1 to 1024"),
        ("KILN_CPU_ISA", ["bogus", "AVX2", "0", "sse"], "`scalar`"),
        ("KILN_CPU_POOL_BYTES", ["-1", "1 GB", "many", "1e9"], "a number of bytes"),
        ("KILN_PLAN_CACHE_BYTES", ["-1", "1 GB", "many", "1e9"], "a number of bytes"),
        ("KILN_INT8_ACTIVATIONS", ["2", "yes", "int8", "ON"], "`on` or `off`"),
    ];
    for (name, values, hint) in cases {
        for value in values {
            let output = child(name, value);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{name}={value} is accepted");
            assert!(text.contains(&format!("[settings] {name} is `{value}`")), "{text}");
            assert!(text.contains("hint: set it to ") && text.contains(hint), "{text}");
        }
    }
}

#[test]
fn empty_and_valid_settings_are_accepted() {
    let cases = [
        ("KILN_NUM_THREADS", ""),
        ("KILN_NUM_THREADS", " 3 "),
        ("KILN_CPU_ISA", "scalar"),
        ("KILN_CPU_POOL_BYTES", "0"),
        ("KILN_PLAN_CACHE_BYTES", "0"),
        ("KILN_INT8_ACTIVATIONS", "off"),
    ];
    for (name, value) in cases {
        let output = child(name, value);
        assert!(output.status.success(), "{name}={value}: {}", String::from_utf8_lossy(&output.stderr));
    }
    let text = String::from_utf8(child("KILN_NUM_THREADS", "3").stdout).unwrap();
    assert!(text.contains("3 threads"), "{text}");
}

/// A limit of the address space that the threads' stacks exceed: as many start as fit.
#[test]
#[cfg(target_os = "linux")]
fn threads_that_do_not_fit_into_memory_are_left_out() {
    for kibibytes in (600_000..2_400_000).step_by(150_000) {
        let program = std::env::current_exe().unwrap();
        let script = format!(
            "ulimit -c 0; ulimit -v {kibibytes}; exec \"$0\" --ignored --exact settings::child_process_opens_an_engine --nocapture"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(program).env("KILN_NUM_THREADS", "1024");
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{kibibytes} KiB: {}: {text}", output.status);
    }
}

#[test]
#[should_panic(expected = "an engine cannot have 100000 threads")]
fn too_many_threads_are_refused() {
    Cpu::with_threads(100_000);
}

#[test]
#[should_panic(expected = "an engine cannot have 0 threads")]
fn zero_threads_are_refused() {
    Cpu::with_threads(0);
}

#[test]
fn the_thread_limit_exceeds_the_available_parallelism() {
    let available = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(available <= MAX_THREADS, "{available}");
}
