//! The tables are complete: every op, every variant, every edge shape.

use kiln_ir::{OpKind, gradient_of};
use kiln_suite::cases::{self, Group};
use kiln_suite::check::differentiates;
use kiln_suite::coverage::{Edge, variant, variants};
use kiln_suite::{engines, support};
use std::collections::BTreeSet;

#[test]
fn every_variant_has_cases() {
    let found: BTreeSet<String> = cases::all().iter().map(|case| variant(&case.op)).collect();
    let needed: BTreeSet<String> = OpKind::ALL.into_iter().flat_map(variants).collect();
    let missing: Vec<&String> = needed.difference(&found).collect();
    let unknown: Vec<&String> = found.difference(&needed).collect();
    assert!(missing.is_empty(), "no cases for {missing:?}");
    assert!(unknown.is_empty(), "cases of variants that `variants` does not list: {unknown:?}");
}

#[test]
fn every_op_kind_has_every_edge_shape() {
    let all = cases::all();
    for kind in OpKind::ALL {
        for edge in Edge::ALL.into_iter().filter(|edge| edge.suits(kind)) {
            let met = all.iter().any(|case| case.op.kind() == kind && edge.is_in(case));
            assert!(met, "{kind:?} has no case with a shape of kind {edge:?}");
        }
    }
}

#[test]
fn every_differentiable_variant_is_differentiated() {
    use kiln_ir::Gradient;
    let all = cases::all();
    let differentiated: BTreeSet<String> =
        all.iter().filter(|case| differentiates(case)).map(|case| variant(&case.op)).collect();
    // A custom op without rule and expansion has no gradient; bits and casts to other dtypes do not either. Scales of 8-bit floats are
    // f32, and cases are differentiated in f64: `kiln-tensor` tests theirs.
    let exempt = ["suite_host_square_", "matmul_float8", "cast_f32", "cast_f16", "cast_bf16", "send"];
    let mut missing = BTreeSet::new();
    for case in &all {
        let name = variant(&case.op);
        let promised = match gradient_of(&case.op) {
            Gradient::Rule | Gradient::Expansion => true,
            Gradient::Constant | Gradient::Undefined(_) => false,
        };
        if promised && !exempt.contains(&&*name) && !differentiated.contains(&name) {
            missing.insert(name);
        }
    }
    assert!(missing.is_empty(), "not differentiated: {missing:?}");
}

#[test]
fn case_names_are_unique_and_cases_valid() {
    let mut names = BTreeSet::new();
    for case in cases::all() {
        assert!(case.is_valid(), "{}: {:?}", case.name, case.result_types());
        assert!(names.insert(case.name.clone()), "two cases are called {}", case.name);
    }
    for group in Group::ALL {
        println!("{group:?}: {} cases", kiln_suite::run::count(group));
    }
}

#[test]
fn every_entry_of_an_ignore_list_names_a_case() {
    let all = cases::all();
    for subject in engines::SUBJECTS {
        for entry in subject.ignored {
            let used = all.iter().any(|case| engines::matches(entry.pattern, &case.name));
            assert!(used, "{}: `{}` matches no case", subject.name, entry.pattern);
        }
    }
}

#[test]
fn support_tables_are_printed() {
    for subject in engines::SUBJECTS {
        let table = support::support_table(subject.name, &*(subject.open)());
        println!("{table}\n");
        assert_eq!(table.lines().count(), 2 + OpKind::ALL.len());
    }
}
