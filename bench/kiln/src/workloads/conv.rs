//! Convolution and pooling of images.

use super::{first, normal};
use bench_protocol::shapes::{Conv, MAXPOOL};
use bench_protocol::{Prepared, Result, unknown};
use kiln::Backend;
use kiln::module::{ConvOptions, PoolOptions, conv2d, max_pool2d};

pub(crate) fn prepare<B: Backend>(workload: &str, device: &B::Device) -> Result<Prepared> {
    let conv = Conv::named(workload).ok_or_else(|| unknown(workload))?;
    let (x, weight) = (normal::<B, 4>(conv.input(), device), normal::<B, 4>(conv.weight(), device));
    let options = ConvOptions::new([conv.stride; 2], [conv.padding; 2], [1; 2], conv.groups);
    Ok(Prepared::new(move || first(&conv2d(x.clone(), weight.clone(), None, &options))))
}

pub(crate) fn maxpool<B: Backend>(device: &B::Device) -> Prepared {
    let x = normal::<B, 4>(MAXPOOL, device);
    let options = PoolOptions { stride: [2; 2], padding: [(1, 1); 2], ..PoolOptions::new([3; 2]) };
    Prepared::new(move || first(&max_pool2d(x.clone(), &options)))
}
