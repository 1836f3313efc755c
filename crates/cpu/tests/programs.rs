//! Programs with data-dependent shapes.

use kiln_cpu::Cpu;
use kiln_ir::{Engine, Program, TensorData, Values, block_on};

/// Recorded types are upper bounds; ops after `nonzero` must use the actual shapes.
#[test]
fn ops_after_nonzero_use_its_actual_shape() {
    let program = Program::parse(
        "program(%0: f32[4]) {
           %1: i32[4, 1] = nonzero %0 {index = i32}
           %2: i32[4, 1] = add %1, 1
           return %2
         }",
    )
    .unwrap();
    let cpu = Cpu::new();
    let x: Values = [cpu.write(TensorData::from([0.0f32, 3.0, 0.0, 5.0]))].into_iter().collect();
    let mut results = program.run(&cpu, x);
    let data = block_on(cpu.read(results.remove(0))).unwrap();
    assert_eq!((&data.shape()[..], data.to_vec::<i32>()), (&[2, 1][..], vec![2, 4]));
}

#[test]
fn a_reshape_that_does_not_fit_the_actual_shape_is_an_error() {
    let program = Program::parse(
        "program(%0: f32[4]) {
           %1: i32[4, 1] = nonzero %0 {index = i32}
           %2: i32[2, 2] = reshape %1 {shape = [2, 2]}
           return %2
         }",
    )
    .unwrap();
    let cpu = Cpu::new();
    let x: Values = [cpu.write(TensorData::from([0.0f32, 3.0, 1.0, 5.0]))].into_iter().collect();
    let mut results = program.run(&cpu, x);
    let error = block_on(cpu.read(results.remove(0))).unwrap_err().to_string();
    assert!(error.contains("3 elements do not fill"), "{error}");
}
