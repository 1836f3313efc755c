//! The modes `off`, `on` and `check`, also from the environment; `check` finds a wrong kernel.

use crate::changed::Changed;
use kiln_cpu::Cpu;
use kiln_fusion::{Fusion, Mode};
use kiln_ir::{Engine, Op, Result, TensorData, Unary, Value, Var, block_on, without_blocking};
use std::process::Command;
use std::sync::Arc;

fn chain(engine: &dyn Engine) -> Value {
    let x = Var::new(engine, engine.write(TensorData::from([1.0f32, 2.0, 3.0])));
    ((x.exp() + 1.0).tanh() * 2.0).into_value()
}

fn read(engine: &dyn Engine, value: Value) -> Result<Vec<f32>> {
    block_on(engine.read(value))?.into_vec()
}

#[test]
fn mode_off_executes_every_op_immediately() {
    let fusion = Fusion::with_mode(Arc::new(Cpu::with_threads(1)), Mode::Off);
    let expected = read(&Cpu::with_threads(1), chain(&Cpu::with_threads(1))).unwrap();
    let value = chain(&fusion);
    assert_eq!(read(&fusion, value).unwrap(), expected);
    let statistics = fusion.statistics();
    assert_eq!((statistics.ops_recorded, statistics.regions_run), (0, 0));
}

/// Prints the mode; the next test runs this one as a child process.
#[test]
fn child_process_prints_its_mode() {
    if std::env::var_os("KILN_FUSION_CHILD").is_none() {
        return;
    }
    let fusion = Fusion::new(Arc::new(Cpu::with_threads(1)));
    let value = chain(&fusion);
    read(&fusion, value).unwrap();
    println!("mode {:?}, {} regions", fusion.mode(), fusion.statistics().regions_run);
}

#[test]
fn the_environment_sets_the_mode() {
    let child = |mode: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["modes::child_process_prints_its_mode", "--exact", "--nocapture"])
            .env("KILN_FUSION_CHILD", "1");
        match mode {
            Some(mode) => command.env("KILN_FUSION", mode),
            None => command.env_remove("KILN_FUSION"),
        };
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), text + &String::from_utf8_lossy(&output.stderr))
    };
    for (mode, expected) in [
        (None, "mode On, 1 regions"),
        (Some("on"), "mode On, 1 regions"),
        (Some("off"), "mode Off, 0 regions"),
        (Some("check"), "mode Check, 1 regions"),
    ] {
        let (success, text) = child(mode);
        assert!(success && text.contains(expected), "{mode:?}: {text}");
    }
    let (success, text) = child(Some("onn"));
    assert!(!success && text.contains("KILN_FUSION is `onn`") && text.contains("hint:"), "{text}");
}

/// The CPU engine with a kernel compiler that miscompiles `tanh`.
fn wrong() -> Changed {
    Changed::new(Cpu::with_threads(1)).with_execute(|cpu, op, inputs, results| {
        let Op::Fused(fused) = op else { return cpu.execute(op, inputs, results) };
        let mut program = fused.program().clone();
        for instruction in &mut program.instructions {
            if instruction.op == Op::Unary(Unary::Tanh) {
                instruction.op = Op::Unary(Unary::Sin);
            }
        }
        program.run_region(cpu, inputs)
    })
}

#[test]
fn mode_check_names_the_first_op_that_differs() {
    let on = Fusion::with_mode(Arc::new(wrong()), Mode::On);
    let value = chain(&on);
    assert!(read(&on, value).is_ok(), "without the check nobody notices");
    let checked = Fusion::with_mode(Arc::new(wrong()), Mode::Check);
    let value = chain(&checked);
    let error = read(&checked, value).unwrap_err().to_string();
    assert!(error.contains("(tanh)") && error.contains("KILN_FUSION=off"), "{error}");
    assert!(error.contains("program("), "it shows the region: {error}");
}

#[test]
fn in_a_browser_the_next_reads_report_what_mode_check_found() {
    let checked = Fusion::with_mode(Arc::new(wrong().distant()), Mode::Check);
    let later = chain(&checked);
    let value = without_blocking(|| {
        let value = chain(&checked);
        checked.flush();
        value
    });
    assert!(value.error().is_none());
    for value in [value, later] {
        let error = read(&checked, value).unwrap_err().to_string();
        assert!(error.contains("(tanh)") && error.contains("program("), "{error}");
    }
    let right = Changed::new(Cpu::with_threads(1)).distant();
    let checked = Fusion::with_mode(Arc::new(right), Mode::Check);
    let value = without_blocking(|| chain(&checked));
    assert!(read(&checked, value).is_ok());
}

#[test]
fn mode_check_accepts_correct_results() {
    let checked = Fusion::with_mode(Arc::new(Cpu::with_threads(2)), Mode::Check);
    let value = chain(&checked);
    let expected = read(&Cpu::with_threads(1), chain(&Cpu::with_threads(1))).unwrap();
    let found = read(&checked, value).unwrap();
    assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-6), "{found:?} {expected:?}");
    assert!(checked.statistics().regions_run > 0);
}
