//! Argmin, argmax and nonzero.

use crate::Gpu;
use crate::array::Array;
use crate::block::order::{BLOCK_PARTS, Extreme};
use crate::block::{self, BlockKey};
use crate::driver::{Argument, Arguments, DevicePtr, Driver};
use crate::index::AxisExtents;
use crate::native::length;
use crate::view::tensor;
use kiln_ir::{
    BoxFuture, DType, Engine, Extremum, Op, Operand, Operands, Reduction, Result, Shape, TensorType, Value,
    Values, wait_for,
};
use smallvec::smallvec;

/// The parameters of an argmin or argmax search over lines.
struct Search<'a, D: Driver> {
    extremum: Extremum,
    x: &'a Array<D>,
    dtype: DType,
    lines: usize,
    sides: AxisExtents,
}

impl<D: Driver> Search<'_, D> {
    /// Whether neighbouring elements belong to different lines, so that one thread searches a line.
    fn columns(&self) -> bool {
        self.sides.after >= 32
    }
}

impl<D: Driver> Gpu<D> {
    /// [`Op::ArgReduce`]. Long lines are split if they are few: parts are searched first, then the partial results.
    pub(crate) fn arg_reduce(
        &self,
        extremum: Extremum,
        axis: usize,
        inputs: &Operands,
        results: &[TensorType],
    ) -> Result<Values> {
        let (x, ty) = tensor::<D>(inputs, 0)?;
        let x = self.contiguous(x, ty.dtype)?;
        let result = self.uninit(&results[0])?;
        let lines = results[0].num_elements();
        if lines == 0 {
            return Ok(smallvec![Array { suspicions: x.suspicions, ..result }.into_value(results[0])]);
        }
        let sides = AxisExtents::new(&ty.shape, axis);
        let index = results[0].dtype;
        let search = Search { extremum, x: &x, dtype: ty.dtype, lines, sides };
        let workers = self.driver.info().multiprocessors * if search.columns() { 1024 } else { 32 };
        let shortest = if search.columns() { 64 } else { 1024 };
        let wanted = (workers / lines.max(1)).clamp(1, ty.shape[axis].div_ceil(shortest));
        let each = ty.shape[axis].div_ceil(wanted);
        let parts = ty.shape[axis].div_ceil(each);
        let found = (result.at(index.size()), index);
        if parts == 1 {
            self.search(&search, None, found, [ty.shape[axis], 1])?;
        } else {
            let candidates = self.position_dtype();
            let bytes = lines.saturating_mul(parts).saturating_mul(candidates.size());
            let block = self.block(bytes)?;
            self.search(&search, None, (block.at(0), candidates), [ty.shape[axis], parts])?;
            self.search(&search, Some(block.at(0)), found, [parts, 1])?;
        }
        Ok(smallvec![Array { suspicions: x.suspicions, ..result }.into_value(results[0])])
    }

    /// The dtype of positions and counts that kernels pass to each other.
    fn position_dtype(&self) -> DType {
        let dtypes = self.driver.info().language.dtypes;
        if dtypes.contains(DType::I64) { DType::I64 } else { DType::I32 }
    }

    /// Searches parts of all lines, or of the given candidate positions of each line.
    fn search(
        &self,
        search: &Search<'_, D>,
        candidates: Option<DevicePtr<D::Memory>>,
        (found, index): (DevicePtr<D::Memory>, DType),
        [count, parts]: [usize; 2],
    ) -> Result<()> {
        let x = search.x.at(search.dtype.size());
        let has_candidates = candidates.is_some();
        let mut arguments: Arguments<D::Memory> = smallvec![Argument::Pointer(x)];
        arguments.extend(candidates.into_iter().chain([found]).map(Argument::Pointer));
        arguments.extend([
            length(search.lines),
            length(search.sides.length),
            length(search.sides.after),
            length(count),
            length(parts),
            length(count.div_ceil(parts)),
        ]);
        let units = search.lines.saturating_mul(parts);
        let Search { extremum, dtype, .. } = *search;
        let columns = search.columns();
        let candidates = has_candidates.then(|| self.position_dtype());
        let key = BlockKey::new("extreme").dtype(dtype).dtype(index);
        let key = key.with(extremum == Extremum::Max).with(has_candidates).with(columns);
        let build = || block::order::extreme(&Extreme { extremum, dtype, candidates, found: index, columns });
        if columns {
            self.run_points(key, build, units, arguments)
        } else {
            self.run_blocks(key, build, units.div_ceil(BLOCK_PARTS), arguments)
        }
    }

    /// [`Op::NonZero`]: the only op that waits for the device, since only the device knows the length of the result.
    pub(crate) fn nonzero(&self, index: DType, inputs: Operands) -> Result<Values> {
        let started = self.start_nonzero(index, inputs)?;
        wait_for(self.end_nonzero(started), "`nonzero`", "await `nonzero_async`")
    }

    /// Starts [`Op::NonZero`]: queues the count of the elements, and its copy to the host.
    pub(crate) fn start_nonzero(&self, index: DType, inputs: Operands) -> Result<StartedNonZero<'_>> {
        let (_, ty) = tensor::<D>(&inputs, 0)?;
        let (ty, n) = (*ty, ty.num_elements());
        if n == 0 {
            return Ok(StartedNonZero { ty, index, counted: None });
        }
        let step = |op: Op, inputs: Operands, ty: TensorType| self.execute(&op, inputs, &[ty]).remove(0);
        let marks = match ty.dtype.is_bool() {
            true => inputs[0].clone(),
            // Unlike comparisons, casts to `bool` do not flush subnormal numbers to zero.
            false => {
                let cast = Op::Cast(DType::Bool);
                Operand::Value(step(cast, smallvec![inputs[0].clone()], ty.with_dtype(DType::Bool)))
            }
        };
        let line = TensorType::new([n], self.position_dtype());
        let marks = step(Op::Cast(line.dtype), smallvec![marks], ty.with_dtype(line.dtype));
        let marks = step(Op::Reshape(Shape::from([n])), smallvec![marks.into()], line);
        let sum = Op::Scan { reduction: Reduction::Sum, axis: 0, reverse: false, exclusive: false };
        let counts = step(sum, smallvec![marks.into()], line);
        let count = self.read_last(&counts)?;
        Ok(StartedNonZero { ty, index, counted: Some((counts, count)) })
    }

    /// Waits for the count, and queues the search for the positions.
    pub(crate) async fn end_nonzero(&self, started: StartedNonZero<'_>) -> Result<Values> {
        let StartedNonZero { ty, index, counted } = started;
        let found = |count: usize| TensorType::new([count, ty.shape.rank()], index);
        let Some((counts, count)) = counted else {
            return Ok(smallvec![self.uninit(&found(0))?.into_value(found(0))]);
        };
        // A count is not negative, so zeros extend 4 bytes to 8.
        let (read, mut bytes) = (count.await?, [0; 8]);
        bytes[..read.len()].copy_from_slice(&read);
        let found = found(u64::from_le_bytes(bytes) as usize);
        let result = self.uninit(&found)?;
        if found.num_elements() > 0 {
            let counted = (Array::<D>::of(&counts)?, counts.dtype());
            self.positions(counted, (&result, index), &ty.shape)?;
        }
        Ok(smallvec![result.into_value(found)])
    }

    /// Stores the positions at which a running count of a tensor's elements increases.
    fn positions(
        &self,
        (counts, counted): (&Array<D>, DType),
        (result, index): (&Array<D>, DType),
        shape: &Shape,
    ) -> Result<()> {
        let (n, rank) = (shape.num_elements(), shape.rank());
        let mut arguments: Arguments<D::Memory> =
            smallvec![counts.place(counted), result.place(index), length(n)];
        arguments.extend(shape.iter().map(|&extent| length(extent)));
        let key = BlockKey::new("positions").with(rank).dtype(counted).dtype(index);
        self.run_points(key, || block::order::positions(rank, counted, index), n, arguments)
    }

    /// Starts to read the last element of a running count.
    fn read_last(&self, counts: &Value) -> Result<BoxFuture<'_, Result<Vec<u8>>>> {
        let array = Array::<D>::of(counts)?;
        let size = counts.ty().dtype.size();
        let last = array.block.at((counts.ty().num_elements() - 1) * size);
        self.read_checked(Some((last, size)), &array.suspicions)
    }
}

/// [`Op::NonZero`] before the length of its result is known.
pub(crate) struct StartedNonZero<'a> {
    /// The type of the operand.
    ty: TensorType,
    index: DType,
    /// The running count of the elements other than 0, and its last element in bytes. `None` without elements.
    counted: Option<(Value, BoxFuture<'a, Result<Vec<u8>>>)>,
}
