//! The suite on an engine over another library.

use crate::cases::{Group, poison};
use crate::check::{check_passing_on, check_poison};
use crate::engines::Subject;
use crate::methods::{FAMILIES, check_gradient, check_value};
use crate::run::{Stack, Summary, expansions, finish, grads, values};

/// Runs mode *value* of a group, alone and under automatic differentiation.
///
/// # Panics
/// When there are problems, or more than one case of 20 is ignored; so do the functions below.
#[track_caller]
pub fn value(subject: Subject, group: Group) {
    finish_with_few_ignored(values(&[(subject, Stack::Plain), (subject, Stack::Autodiff)], group));
}

/// Runs mode *grad* of a group.
#[track_caller]
pub fn grad(subject: Subject, group: Group) {
    finish_with_few_ignored(vec![grads(&subject, group)]);
}

/// Runs mode *expand* of a group.
#[track_caller]
pub fn expand(subject: Subject, group: Group) {
    finish_with_few_ignored(vec![expansions(&subject, group)]);
}

#[track_caller]
fn finish_with_few_ignored(summaries: Vec<Summary>) {
    for Summary { title, cases, ignored, .. } in &summaries {
        assert!(ignored.len() * 20 <= *cases, "{title}: {} of {cases} cases are ignored", ignored.len());
    }
    finish(summaries);
}

/// Checks that bad data is refused, and that poison passes on.
#[track_caller]
pub fn poisons(subject: Subject) {
    let mut summary = Summary::new(format!("poison on {}", subject.name));
    let engine = (subject.open)();
    for case in poison::cases() {
        summary.add(check_poison(&*engine, &case));
    }
    for (op, inputs) in poison::passing_on() {
        summary.add(check_passing_on(&*engine, &op, &inputs));
    }
    summary.finish();
}

/// Checks values and gradients of the methods of tensors.
#[track_caller]
pub fn methods(subject: Subject) {
    let summaries = FAMILIES.iter().map(|(family, rows)| {
        let mut summary = Summary::new(format!("methods of {family} on {}", subject.name));
        for method in rows() {
            summary.add(check_value(&subject, &method));
            summary.add(check_gradient(&subject, &method));
        }
        summary
    });
    finish(summaries.collect());
}

/// Generates the tests of a subject over another library. They do nothing where the function returns false: the library is missing.
#[macro_export]
macro_rules! foreign_tests {
    ($subject:ident if $is_there:ident) => {
        $crate::foreign_tests! { @mode $subject $is_there value }
        $crate::foreign_tests! { @mode $subject $is_there grad }
        $crate::foreign_tests! { @mode $subject $is_there expand }

        #[test]
        fn bad_data_is_refused_and_poison_passes_on() {
            if $is_there() {
                $crate::foreign::poisons($subject);
            }
        }

        #[test]
        fn methods() {
            if $is_there() {
                $crate::foreign::methods($subject);
            }
        }
    };
    (@mode $subject:ident $is_there:ident $mode:ident) => {
        mod $mode {
            $crate::group_tests!(|group| {
                if super::$is_there() {
                    $crate::foreign::$mode(super::$subject, group);
                }
            });
        }
    };
}
