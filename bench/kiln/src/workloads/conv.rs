//! Convolution and pooling of images.

use super::{input, repeated};
use bench_protocol::workloads::Row;
use bench_protocol::{Prepared, Result};
use kiln::Backend;
use kiln::module::{ConvOptions, PoolOptions, conv2d};

pub(crate) fn prepare<B: Backend>(row: &'static Row, device: &B::Device) -> Result<Prepared> {
    let (x, weight) = (input::<B, 4>(row, "x", device)?, input::<B, 4>(row, "weight", device)?);
    let options = options(row)?;
    repeated(row, move || conv2d(x.clone(), weight.clone(), None, &options))
}

pub(super) fn options(row: &Row) -> Result<ConvOptions<2>> {
    let (stride, padding) = ([row.size("stride")?; 2], [row.size("padding")?; 2]);
    Ok(ConvOptions::new(stride, padding, [1; 2], row.size("groups")?))
}

/// The windows of a pooling.
pub(super) fn window(row: &Row) -> Result<PoolOptions<2>> {
    let (stride, padding) = (row.size("stride")?, row.size("padding")?);
    Ok(PoolOptions {
        stride: [stride; 2],
        padding: [(padding, padding); 2],
        ..PoolOptions::new([row.size("kernel")?; 2])
    })
}
