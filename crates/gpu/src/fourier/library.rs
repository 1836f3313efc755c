//! FFTs by the vendor's library, which interleaves real and imaginary parts.

use super::{Lines, Map, Packed, Parts};
use crate::Gpu;
use crate::driver::{DevicePtr, Driver, Fourier, FourierKind, Transform};
use kiln_ir::{DType, FftKind, Result};
use std::sync::Arc;

/// The maximum bytes of complex elements per call, so that the kernel that separates their parts reads them from the
/// cache.
const CHUNK: usize = 8 << 20;

impl<D: Driver> Gpu<D> {
    /// Runs a transform by the library. `false` if there is no library, if hand-written kernels are off, or if our
    /// kernels are as fast: those that hold a line in shared memory and store both parts separately.
    pub(super) fn fourier_by_library(
        &self,
        kind: FftKind,
        inverse: bool,
        lines: Lines,
        from: &Parts<D>,
        to: &Parts<D>,
    ) -> Result<bool> {
        let Lines { dtype, count, length: points } = lines;
        let usual = match kind {
            FftKind::Complex => true,
            FftKind::FromReal => !inverse,
            FftKind::ToReal { .. } => inverse,
        };
        let packed = match kind {
            FftKind::Complex => Packed { points, length: points, is_even: false, usual },
            FftKind::FromReal | FftKind::ToReal { .. } => Packed::new(points, usual),
        };
        // The kernels that interleave are hand-written.
        if !self.has_native() || (self.prefers_fourier_kernels && packed.fits(dtype)) {
            return Ok(false);
        }
        let (kind, numbers, reals) = match kind {
            FftKind::Complex => (FourierKind::Complex { inverse }, points, points),
            FftKind::FromReal => (FourierKind::FromReal, points / 2 + 1, points),
            FftKind::ToReal { .. } => (FourierKind::ToReal, points / 2 + 1, points),
        };
        let number = 2 * dtype.size();
        // Chunks begin at multiples of 16 bytes: two lines of `f32` of an even length, four lines of any other length.
        let chunk = (CHUNK / (numbers * number)).max(1).next_multiple_of(4).min(count);
        let mut done = 0;
        while done < count {
            let some = chunk.min(count - done);
            let fourier = Arc::new(Fourier { kind, dtype, points, count: some });
            let workspace = match self.driver.library() {
                Some(library) => library.fourier_workspace(&fourier)?,
                None => None,
            };
            let Some(workspace) = workspace else { return Ok(false) };
            let workspace = self.block(workspace)?;
            let at = |place: &DevicePtr<D::Memory>, elements: usize| DevicePtr {
                memory: place.memory.clone(),
                offset: place.offset + done * elements * dtype.size(),
                reach: place.reach,
            };
            let both = |parts: &Parts<D>, elements: usize| Parts {
                re: at(&parts.re, elements),
                im: at(&parts.im, elements),
            };
            let room = || -> Result<_> {
                let block = self.block(some * numbers * number)?;
                let parts = Parts::<D> { re: block.at(0), im: block.at(0) };
                Ok((block, parts))
            };
            let complex = Lines { count: some, ..lines };
            let total = some * numbers;
            // The kernel reads no roots.
            let roots = self.roots(dtype, 1, 1)?;
            let run = |x: DevicePtr<D::Memory>, y: DevicePtr<D::Memory>| {
                let workspace = workspace.at(0);
                self.transform(Transform { fourier: fourier.clone(), tensors: [x, y], workspace })
            };
            match kind {
                FourierKind::Complex { .. } => {
                    let (from, to) = (both(from, points), both(to, points));
                    let ((_x, x), (_y, y)) = (room()?, room()?);
                    self.map(Map::Interleave, complex, packed, [&from, &from, &x], &roots, total)?;
                    run(x.re.clone(), y.re.clone())?;
                    self.map(Map::Separate, complex, packed, [&y, &y, &to], &roots, total)?;
                }
                FourierKind::FromReal => {
                    let (from, to) = (at(&from.re, reals), both(to, numbers));
                    let (_y, y) = room()?;
                    run(from, y.re.clone())?;
                    self.map(Map::Separate, complex, packed, [&y, &y, &to], &roots, total)?;
                }
                FourierKind::ToReal => {
                    let (from, to) = (both(from, numbers), at(&to.re, reals));
                    let (_x, x) = room()?;
                    self.map(Map::InterleaveHalf, complex, packed, [&from, &from, &x], &roots, total)?;
                    run(x.re.clone(), to)?;
                }
            }
            done += some;
        }
        debug_assert!(dtype == DType::F32 || dtype == DType::F64, "[fft] {dtype}");
        Ok(true)
    }
}
