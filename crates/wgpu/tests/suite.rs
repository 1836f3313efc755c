//! The suite and PyTorch's goldens on the default adapter, with its features and with those of browsers.
//!
//! `cargo xtask suite --engine wgpu` runs the same cases, with random programs, in one process. These tests are for
//! machines without cargo: `cargo xtask bundle kiln-wgpu` packs them, and each can run in a process of its own. On a machine
//! without an adapter they print the reason and pass.

use kiln_ir::expanding;
use kiln_suite::cases::Group;
use kiln_suite::engines::{Neighbours, Subject, WEBGPU, WGPU};
use kiln_suite::goldens::{FAMILIES, family_on};
use kiln_suite::run::{Stack, Summary, finish, grads, values};
use kiln_wgpu::{Api, Profile, WgpuDevice, WgpuOptions};
use std::sync::Arc;

/// The subject with neighbours for each op to fuse with.
const AMONG: Subject = Subject {
    name: "fusion over wgpu, among neighbours",
    open: || Arc::new(Neighbours((WGPU.open)())),
    ignored: WGPU.ignored,
};

/// Small bindings, so that the suite's large tensors have several parts.
const PARTS: Subject = Subject {
    name: "wgpu, large tensors in parts",
    open: || {
        let options = WgpuOptions::default().with_profile(Profile::Adapter).with_binding_bytes(64 << 10);
        let engine = kiln_wgpu::shared_with(WgpuDevice::Default, Api::Auto, &options);
        expanding(engine.unwrap_or_else(|error| panic!("{error}")))
    },
    ignored: WGPU.ignored,
};

/// Whether there is an adapter; otherwise prints the reason. An adapter that does not open fails the test.
fn has_adapter() -> bool {
    match kiln_wgpu::list(Api::Auto) {
        Ok(_) => true,
        Err(reason) => {
            println!("skipped: no adapter: {reason}");
            false
        }
    }
}

/// Runs a check on the adapter. The last line of its output has the totals.
fn run(check: impl FnOnce() -> Vec<Summary>) {
    if !has_adapter() {
        return;
    }
    let summaries = check();
    let count = |number: fn(&Summary) -> usize| summaries.iter().map(number).sum::<usize>();
    let (all, failed) = (count(|summary| summary.cases), count(|summary| summary.failed));
    let skipped = count(|summary| summary.ignored.len() + summary.lacking() + summary.flushed.len());
    let totals = format!("{} passed, {failed} failed, {skipped} skipped", all - failed - skipped);
    finish(summaries);
    println!("{totals}");
}

mod value {
    use super::*;

    kiln_suite::group_tests!(
        |group| {
            let plain = [AMONG, WEBGPU, PARTS].map(|subject| (subject, Stack::Plain));
            let matrix: Vec<_> = [(WGPU, Stack::Autodiff)].into_iter().chain(plain).collect();
            run(|| values(&matrix, group));
        },
        ignored: "takes minutes; a part runs in `cargo xtask suite --engine wgpu`"
    );
}

mod grad {
    use super::*;

    kiln_suite::group_tests!(
        |group| run(|| vec![grads(&WGPU, group)]),
        ignored: "takes minutes; a part runs in `cargo xtask suite --engine wgpu`"
    );
}

#[test]
#[ignore = "takes minutes; a part runs in `cargo xtask suite --engine wgpu`"]
fn goldens() {
    run(|| {
        FAMILIES.iter().flat_map(|family| [WGPU, WEBGPU].map(|subject| family_on(&subject, family))).collect()
    });
}

/// A few cases of each profile, so that every run of the tests reaches the device.
#[test]
fn a_few_cases_run_with_each_profile() {
    run(|| {
        let matrix = [(WGPU, Stack::Plain), (WEBGPU, Stack::Plain)];
        values(&matrix, Group::Nothing)
    });
}
