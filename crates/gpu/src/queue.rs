//! The two ways in which work on memory reaches the device, and why they are sound.

use crate::Gpu;
use crate::driver::{Argument, Driver, Grid, Products};
use kiln_ir::Result;

impl<D: Driver> Gpu<D> {
    /// Queues a kernel of ours. Callers pass what the entry point takes, and memory as large as it then reads and writes:
    /// arguments are written down beside each kernel, and extents come from the layouts of the operands.
    pub(crate) fn launch(
        &self,
        function: &D::Function,
        grid: Grid,
        arguments: &[Argument<'_, D::Memory>],
    ) -> Result<()> {
        if grid.blocks == 0 {
            return Ok(());
        }
        // SAFETY: the kernels of this crate stay within the operands and results whose extents they are given.
        unsafe { self.driver.launch(function, grid, arguments) }
    }

    /// Queues products by the vendor's library; `false` where it has none for these.
    pub(crate) fn multiply(&self, products: &Products<'_, D::Memory>) -> Result<bool> {
        // SAFETY: sizes, pitches and steps come from the layouts of the operands, and the result is contiguous.
        unsafe { self.driver.multiply(products) }
    }
}
