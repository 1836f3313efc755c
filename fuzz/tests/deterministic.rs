//! Programs are determined by seed and number, and cover all op kinds.

use kiln_fuzz::campaign::{Options, run};
use kiln_fuzz::check::Subjects;
use kiln_fuzz::generate::{NOT_GENERATED, trial};
use kiln_ir::{OpKind, verify};
use std::collections::BTreeSet;

#[test]
fn program_generation_is_deterministic() {
    for number in 0..200 {
        let (first, again) = (trial(9, number, None), trial(9, number, None));
        assert_eq!(first.program, again.program);
        let bytes =
            |list: &[kiln_ir::TensorData]| list.iter().map(|x| x.bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(bytes(&first.inputs), bytes(&again.inputs));
    }
    assert_ne!(trial(9, 1, None).program, trial(10, 1, None).program);
}

#[test]
fn programs_are_valid_and_inputs_match_their_types() {
    for number in 0..500 {
        let trial = trial(3, number, None);
        verify(&trial.program).unwrap_or_else(|error| panic!("program {number}: {error}\n{}", trial.program));
        let types: Vec<_> = trial.inputs.iter().map(|data| data.ty()).collect();
        assert_eq!(types, trial.program.inputs, "program {number}");
    }
}

#[test]
fn every_op_kind_can_be_forced() {
    let first = |kind: OpKind| {
        let begins = |number: u64| {
            let program = trial(5, number, Some(kind)).program;
            program.instructions.iter().any(|instruction| instruction.op.kind() == kind)
        };
        (0..20).any(begins)
    };
    let missing: Vec<OpKind> = OpKind::ALL.into_iter().filter(|&kind| !first(kind)).collect();
    assert_eq!(missing, NOT_GENERATED);
}

#[test]
fn results_are_independent_of_thread_count() {
    let options = |threads| Options { programs: 60, threads, ..Options::default() };
    let (one, two) = (run(&options(1), Subjects::cpu), run(&options(2), Subjects::cpu));
    assert!(one.is_good(), "{one}");
    assert_eq!(one.counts, two.counts);
    assert_eq!(one.kinds, two.kinds);
    assert!(one.counts.comparisons > 500 && one.counts.gradients > 20, "{one}");
}

#[test]
fn missing_op_kinds_are_reported() {
    let mut report = run(&Options { programs: 100, ..Options::default() }, Subjects::cpu);
    report.programs = 2_000;
    report.kinds.remove(&OpKind::Fft);
    assert!(!report.is_good());
    assert!(report.missing().contains(&"Fft".to_string()));
    let seen: BTreeSet<OpKind> = report.kinds.keys().copied().collect();
    assert!(seen.len() > 35, "{seen:?}");
}
