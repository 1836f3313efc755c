//! Training for 1,000 steps. Alone in its process: the allocator of the CPU is shared.

use kiln_backends::Device;
use kiln_suite::modules::{OPTIMIZERS, check_long_training};
use kiln_suite::run::{Summary, finish};

#[test]
fn optimizers_train_for_a_thousand_steps_in_constant_memory() {
    let mut summary = Summary::new("long training".to_owned());
    OPTIMIZERS.iter().for_each(|row| summary.add(check_long_training(row, &Device::flex())));
    finish(vec![summary]);
}
