//! The suite on a client and a server over the loopback address: values, gradients, methods and PyTorch's goldens.
//!
//! `cargo test -p kiln-suite --features remote --test remote`

use kiln_backends::Device;
use kiln_suite::cases::Group;
use kiln_suite::engines::{REMOTE, Subject};
use kiln_suite::run::{Stack, Summary, finish, grads, values};

const MATRIX: [(Subject, Stack); 2] = [(REMOTE, Stack::Plain), (REMOTE, Stack::Autodiff)];

kiln_suite::group_tests!(|group| finish(values(&MATRIX, group)));

#[test]
fn gradients() {
    let groups = [Group::Unary, Group::Binary, Group::Index, Group::Contraction, Group::Composite];
    finish(groups.map(|group| grads(&REMOTE, group)).into());
}

#[test]
fn methods() {
    let mut summary = Summary::new("methods of remote over cpu");
    for (_, rows) in kiln_suite::methods::FAMILIES {
        rows().iter().for_each(|method| summary.add(kiln_suite::methods::check_value(&REMOTE, method)));
    }
    summary.finish();
}

fn devices() -> [(&'static str, Device); 1] {
    [("remote over cpu", Device::from_engine((REMOTE.open)(), "remote"))]
}

kiln_suite::golden_families!(devices);
