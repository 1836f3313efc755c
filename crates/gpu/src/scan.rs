//! Scans (cumulative sum, product, maximum).

use crate::Gpu;
use crate::array::Array;
use crate::block::scan::{ScanKernel, ScanKernels, items};
use crate::driver::{Argument, Arguments, DevicePtr, Driver};
use crate::index::{AxisExtents, combined_in};
use crate::native::{Native, length};
use crate::region::number_bytes;
use crate::view::tensor;
use kiln_ir::{DType, Error, Op, Operands, Reduction, Result, TensorType, Values};
use kiln_kernel::print::held_type;
use smallvec::smallvec;

const SOURCE: &str = include_str!("native/scan.cu");

/// The minimum number of lines for which one thread per line suffices.
const MANY: usize = 4096;

/// The parameters of a scan.
#[derive(Clone, Copy)]
struct ScanParameters {
    reduction: Reduction,
    dtype: DType,
    reverse: bool,
    exclusive: bool,
    /// The identity as a kernel argument. The identity of the accumulator type may not be representable in the
    /// operand's dtype.
    identity: [u8; 8],
}

impl<D: Driver> Gpu<D> {
    /// [`Op::Scan`].
    pub(crate) fn scan(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let Op::Scan { reduction, axis, reverse, exclusive } = *op else {
            return Err(Error::unsupported("gpu", format!("`{}` is not a scan", op.name())));
        };
        let (x, ty) = tensor::<D>(&inputs, 0)?;
        let identity = number_bytes(reduction.identity(ty.dtype), ty.dtype);
        let running = ScanParameters { reduction, dtype: ty.dtype, reverse, exclusive, identity };
        let sides = AxisExtents::new(&ty.shape, axis);
        let lines = sides.before * sides.after;
        let result = self.uninit(&results[0])?;
        if ty.num_elements() == 0 {
            let suspicions = x.suspicions.clone();
            return Ok(smallvec![Array { suspicions, ..result }.into_value(results[0])]);
        }
        if lines >= MANY && (sides.after >= 32 || sides.length <= 64) {
            let x = self.contiguous(x, ty.dtype)?;
            let arguments = smallvec![
                x.place(ty.dtype),
                result.place(ty.dtype),
                running.identity(),
                length(lines),
                length(sides.length),
                length(sides.after),
            ];
            self.run_scan(running, ScanKernel::Columns, lines, arguments)?;
            return Ok(smallvec![Array { suspicions: x.suspicions, ..result }.into_value(results[0])]);
        }
        let lines = self.lines(x, ty.dtype, axis)?;
        let size = ty.dtype.size();
        let (from, to) = (lines.array.at(size), result.at(size));
        self.scan_lines(running, from, to, [lines.count, lines.length])?;
        Ok(smallvec![lines.result(result, &results[0].shape).into_value(results[0])])
    }

    /// Scans contiguous lines: first the tile totals, if a line has several tiles.
    fn scan_lines(
        &self,
        running: ScanParameters,
        x: DevicePtr<D::Memory>,
        y: DevicePtr<D::Memory>,
        [count, len]: [usize; 2],
    ) -> Result<()> {
        let tiles = len.div_ceil(self.scan_kernels(running).tile());
        let place = Argument::Pointer;
        let blocks = count.saturating_mul(tiles);
        let lengths = [running.identity(), length(len), length(tiles)];
        if tiles == 1 {
            let arguments = [x, y].map(place).into_iter().chain(lengths).collect();
            return self.run_scan(running, ScanKernel::Tiles, blocks, arguments);
        }
        let computed = combined_in(running.dtype);
        let block = || self.block(blocks.saturating_mul(computed.size()));
        let (totals, carried) = (block()?, block()?);
        let tensors = [x.clone(), totals.at(0)].map(place);
        let arguments = tensors.into_iter().chain(lengths.clone()).collect();
        self.run_scan(running, ScanKernel::Totals, blocks, arguments)?;
        let of_totals = ScanParameters { dtype: computed, reverse: false, exclusive: true, ..running };
        self.scan_lines(of_totals, totals.at(0), carried.at(0), [count, tiles])?;
        let arguments = [x, carried.at(0), y].map(place).into_iter().chain(lengths).collect();
        self.run_scan(running, ScanKernel::CarriedTiles, blocks, arguments)
    }

    /// Queues a kernel with that many lines or tiles: a thread for each line, or a block for each tile.
    fn run_scan(
        &self,
        running: ScanParameters,
        kernel: ScanKernel,
        units: usize,
        arguments: Arguments<D::Memory>,
    ) -> Result<()> {
        let kernels = self.scan_kernels(running);
        let (key, build) = (kernels.key(kernel), || kernels.kernel(kernel));
        match kernel {
            ScanKernel::Columns if self.has_native() => self.native(running.native(), units, arguments),
            ScanKernel::Columns => self.run_points(key, build, units, arguments),
            ScanKernel::Totals | ScanKernel::Tiles | ScanKernel::CarriedTiles => {
                self.run_blocks(key, build, units, arguments)
            }
        }
    }

    fn scan_kernels(&self, running: ScanParameters) -> ScanKernels {
        let ScanParameters { reduction, dtype, reverse, exclusive, .. } = running;
        let items = items(dtype, self.driver.info().shared_bytes);
        ScanKernels { reduction, dtype, reverse, exclusive, items }
    }
}

impl ScanParameters {
    fn identity<M>(self) -> Argument<M> {
        Argument::Word(self.identity)
    }

    /// The hand-written kernel for columns.
    fn native(self) -> Native {
        let computed = combined_in(self.dtype);
        let unsigned = if computed.size() == 8 { DType::U64 } else { DType::U32 };
        let combine = match (self.reduction, self.dtype.is_float()) {
            (Reduction::Sum, true) => "((a) + (b))",
            (Reduction::Prod, true) => "((a) * (b))",
            // Signed integers wrap like unsigned ones.
            (Reduction::Sum, false) => "((A)((U)(a) + (U)(b)))",
            (Reduction::Prod, false) => "((A)((U)(a) * (U)(b)))",
            (Reduction::Min, _) => "(kiln_min<A>(a, b))",
            (Reduction::Max, _) => "(kiln_max<A>(a, b))",
        };
        Native::new(SOURCE, "kiln_scan_columns")
            .name("A", held_type(computed))
            .name("U", held_type(unsigned))
            .name("COMBINE(a, b)", combine)
            .name("AT(j)", if self.reverse { "(length - 1 - (j))" } else { "(j)" })
            .name("EXCLUSIVE", self.exclusive)
            .dtype("T", self.dtype)
    }
}
