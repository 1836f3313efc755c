//! Code generation for row reductions (along the innermost axes) and full reductions.
//!
//! Threads of a group share a row. Each processes chunks of neighbouring elements, as many as one access reads. If a
//! row fits into the registers of its threads, it is read once, with all loads before the first use. Values that are
//! expensive to recompute and needed in a later pass stay in registers too.

use super::kinds::{close_slots, open_slots};
use super::writer::{Scope, Writer, name};
use crate::passes::{Pass, Total};
use crate::{Compute, GpuSchedule, Kernel, StrideClass, ValueId};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use kiln_ir::DType;

/// Writes a reduction along rows; a full reduction has one row.
pub(super) fn reduce(w: &mut Writer<'_>) {
    let GpuSchedule { block, row_threads: threads, splits, .. } = *w.schedule;
    if splits > 1 {
        return partial(w);
    }
    if block == threads {
        w.index("row", "block");
        w.index("lane", "thread");
    } else {
        w.index("row", &format!("block * {} + thread / {threads}", block / threads));
        w.index("lane", &format!("thread % {threads}"));
    }
    whole_rows(w, threads, block == threads);
}

/// Passes over rows, each shared by a group of threads. `exact`: every group has a row.
fn whole_rows(w: &mut Writer<'_>, threads: u32, exact: bool) {
    let kernel = w.kernel;
    let reduced = kernel.reduced();
    let parallel = kernel.all_axes() & !reduced;
    w.index("rows", &w.extent(parallel));
    w.index("length", &w.extent(reduced));
    // Groups without a row repeat the last one, since all threads must reach the barriers.
    let point = if exact { "row".into() } else { w.language.least("row", "rows - 1") };
    w.index("point", &point);
    w.decode("point", parallel);
    let passes = kernel.passes();
    let mut row = Row::new(kernel, w.schedule, threads, exact);
    let mut scope = Scope::new(kernel);
    row.declare(w);
    row.load(w, |param| kernel.crossed(param) & parallel != 0, &mut scope);
    row.pass_all(w, &passes, &mut scope);
    let stores = kernel.row_stores();
    if !stores.is_empty() {
        w.open(if exact { "if (lane == 0)" } else { "if (row < rows && lane == 0)" });
        w.emit(&stores, &mut scope);
        w.close();
    }
}

/// Declares the totals of reductions.
pub(super) fn declare(w: &mut Writer<'_>, totals: &[Total]) {
    for total in totals {
        let identity = w.language.constant(total.reduction.identity(total.dtype), total.dtype);
        let line = w.language.variable(&format!("a{}", total.value), total.dtype, &identity);
        w.line(line);
    }
}

/// The access pattern of a thread group on a row.
pub(super) struct Row<'a> {
    kernel: &'a Kernel,
    threads: u32,
    vector: u32,
    /// Chunks held per thread; 0 if rows are read in every pass.
    chunks: u32,
    exact: bool,
    inner: usize,
    /// Loads that change along the row.
    loads: Vec<(ValueId, u32, DType)>,
    loaded: Vec<bool>,
    /// For each value, the pass after which it is kept.
    kept: Vec<Option<usize>>,
    /// Whether there is a second buffer for prefetching the next row.
    pub(super) ahead: bool,
}

impl<'a> Row<'a> {
    pub(super) fn new(kernel: &'a Kernel, schedule: &GpuSchedule, threads: u32, exact: bool) -> Row<'a> {
        let chunks = schedule.resident / schedule.vector;
        let loads = kernel.row_loads();
        Row {
            kernel,
            threads,
            vector: schedule.vector,
            chunks,
            exact,
            inner: kernel.axes.len() - 1,
            loaded: alloc::vec![false; kernel.body.len()],
            loads,
            kept: if chunks > 0 { kernel.kept() } else { alloc::vec![None; kernel.body.len()] },
            ahead: false,
        }
    }

    /// For each value, whether an earlier pass kept it.
    fn kept_before(&self, pass: usize) -> Vec<bool> {
        self.kept.iter().map(|kept| kept.is_some_and(|kept| kept < pass)).collect()
    }

    /// Declares the registers of a thread for a row.
    pub(super) fn declare(&self, w: &mut Writer<'_>) {
        if self.chunks == 0 {
            return;
        }
        for &(value, param, dtype) in &self.loads {
            let chunks = if self.ahead && self.streams(param) { 2 * self.chunks } else { self.chunks };
            let line = if is_vector(self.kernel, self.vector, param) {
                w.language.declare_loads(param, self.vector, chunks)
            } else {
                w.language.array(&format!("r{value}"), dtype, (chunks * self.vector) as usize)
            };
            w.line(line);
        }
        for (value, _) in self.kept.iter().enumerate().filter(|(_, kept)| kept.is_some()) {
            let dtype = self.kernel.body[value].dtype;
            let line = w.language.array(&format!("r{value}"), dtype, (self.chunks * self.vector) as usize);
            w.line(line);
        }
    }

    /// The array index of the current element.
    pub(super) fn place(&self) -> &'static str {
        if self.vector > 1 { "place" } else { "chunk" }
    }

    /// Opens the loop over the chunks of a thread; `j` is the index of the first element.
    pub(super) fn open(&self, w: &mut Writer<'_>) {
        let (threads, vector) = (self.threads, self.vector);
        let times = if vector > 1 { format!(" * {vector}") } else { String::new() };
        if self.chunks > 0 {
            w.line(w.language.unroll());
            w.open_loop("chunk", "0", &format!("{}", self.chunks), "chunk + 1");
            w.index(
                "j",
                &if vector > 1 {
                    format!("(lane + chunk * {threads}) * {vector}")
                } else {
                    format!("lane + chunk * {threads}")
                },
            );
            w.open("if (j < length)");
        } else {
            w.line(w.language.unroll_partly());
            w.open_loop("j", &format!("lane{times}"), "length", &format!("j + {}", threads * vector));
        }
        w.decode("j", self.kernel.reduced());
    }

    pub(super) fn close(&self, w: &mut Writer<'_>) {
        w.close();
        if self.chunks > 0 {
            w.close();
        }
    }

    /// Loads the held operands that are wanted and not loaded yet.
    pub(super) fn load(&mut self, w: &mut Writer<'_>, wanted: impl Fn(u32) -> bool, scope: &mut Scope) {
        if self.chunks == 0 {
            return;
        }
        let loaded = &self.loaded;
        let is_new = |&(value, param, _): &(ValueId, u32, DType)| !loaded[value as usize] && wanted(param);
        let new: Vec<(ValueId, u32, DType)> = self.loads.iter().copied().filter(is_new).collect();
        self.read(w, &new, 0);
        for (value, param, dtype) in new {
            self.loaded[value as usize] = true;
            scope.kept[value as usize] = Some(if is_vector(self.kernel, self.vector, param) {
                w.language.lane(param, dtype, "chunk", "slot")
            } else {
                w.language.element(&format!("r{value}[{}]", self.place()), dtype)
            });
        }
    }

    /// Loads operands into their registers, `further` chunks ahead.
    fn read(&self, w: &mut Writer<'_>, loads: &[(ValueId, u32, DType)], further: u32) {
        if loads.is_empty() {
            return;
        }
        let at =
            |place: &str, count: u32| if count > 0 { format!("{place} + {count}") } else { place.into() };
        self.open(w);
        let (vectors, scalars): (Vec<_>, Vec<_>) =
            loads.iter().partition(|(_, param, _)| is_vector(self.kernel, self.vector, *param));
        for (_, param, _) in vectors {
            let load = w.language.load_vector(param, self.vector, &at("chunk", further), &w.place(param));
            w.line(load);
        }
        if !scalars.is_empty() {
            self.open_slots(w);
            for (value, param, dtype) in scalars {
                let load = w.language.load(param, dtype, &w.place(param));
                let element = format!("r{value}[{}]", at(self.place(), further * self.vector));
                w.set(&element, dtype, &load);
            }
            self.close_slots(w);
        }
        self.close(w);
    }

    /// Whether a parameter has different elements in other rows.
    pub(super) fn streams(&self, param: u32) -> bool {
        self.kernel.crossed(param) & self.kernel.all_axes() & !self.kernel.reduced() != 0
    }

    /// Prefetches the next row into the second buffer.
    pub(super) fn read_ahead(&self, w: &mut Writer<'_>) {
        self.read(w, &self.next(), self.chunks);
    }

    /// Makes the prefetched row the current one.
    pub(super) fn take_next(&self, w: &mut Writer<'_>) {
        let next = self.next();
        if next.is_empty() {
            return;
        }
        let (vectors, scalars): (Vec<_>, Vec<_>) =
            next.iter().partition(|(_, param, _)| is_vector(self.kernel, self.vector, *param));
        let vectors = vectors.iter().map(|(_, param, _)| format!("x{param}")).collect();
        let scalars = scalars.iter().map(|(value, ..)| format!("r{value}")).collect();
        move_down(w, vectors, self.chunks);
        move_down(w, scalars, self.chunks * self.vector);
    }

    fn next(&self) -> Vec<(ValueId, u32, DType)> {
        self.loads.iter().copied().filter(|&(_, param, _)| self.streams(param)).collect()
    }

    pub(super) fn open_slots(&self, w: &mut Writer<'_>) {
        if self.vector > 1 {
            open_slots(w, self.vector, self.inner);
            if self.chunks > 0 {
                w.index("place", &format!("chunk * {} + slot", self.vector));
            }
        }
    }

    pub(super) fn close_slots(&self, w: &mut Writer<'_>) {
        if self.vector > 1 {
            close_slots(w);
        }
    }

    /// All passes over a row, except the final stores of one element per row.
    pub(super) fn pass_all(&mut self, w: &mut Writer<'_>, passes: &[Pass], scope: &mut Scope) {
        let kernel = self.kernel;
        for (number, pass) in passes.iter().enumerate() {
            w.emit(&pass.row, scope);
            if pass.totals.is_empty() && pass.stores.is_empty() && pass.across.is_empty() {
                continue;
            }
            let along = kernel.along(pass, &self.kept_before(number));
            let is_wanted =
                |param| along.iter().any(|&v| kernel.body[v as usize].compute.load() == Some(param));
            self.load(w, is_wanted, scope);
            declare(w, &pass.totals);
            self.cross(w, pass, &along, number, scope);
            w.combine(&pass.totals, self.threads);
            pass.totals.iter().for_each(|total| scope.define(total.value));
        }
    }

    /// One pass: the values of each element, their reductions, the kept values and the stores.
    fn cross(&self, w: &mut Writer<'_>, pass: &Pass, along: &[ValueId], number: usize, scope: &mut Scope) {
        self.open(w);
        let mut inside = scope.clone();
        if self.chunks == 0 {
            load_chunk(w, self.vector, along, &mut inside);
        }
        let kept: Vec<ValueId> =
            along.iter().copied().filter(|&value| self.kept[value as usize] == Some(number)).collect();
        let held = (self.vector > 1 && self.chunks > 0).then(|| format!("chunk * {} + slot", self.vector));
        let elements = Elements {
            vector: self.vector,
            guard: (!self.exact).then_some("row < rows"),
            total: |value| format!("a{value}"),
            is_array: false,
            held,
        };
        elements.write(w, pass, along, &mut inside, |w| {
            for &value in &kept {
                let dtype = w.kernel.body[value as usize].dtype;
                w.set(&format!("r{value}[{}]", self.place()), dtype, &name(value));
            }
            for total in &pass.across {
                let so_far = format!("c{}[{}]", total.value, self.place());
                w.combine_into(total, &so_far, &name(total.operand));
            }
        });
        for value in kept {
            let dtype = w.kernel.body[value as usize].dtype;
            let element = w.language.element(&format!("r{value}[{}]", self.place()), dtype);
            scope.kept[value as usize] = Some(element);
        }
        self.close(w);
    }
}

/// Moves the second half of arrays to the first half, of `count` elements.
fn move_down(w: &mut Writer<'_>, arrays: Vec<String>, count: u32) {
    if arrays.is_empty() {
        return;
    }
    w.line(w.language.unroll());
    w.open_loop("place", "0", &format!("{count}"), "place + 1");
    for array in arrays {
        w.line(format!("{array}[place] = {array}[place + {count}];"));
    }
    w.close();
}

/// Whether a parameter is accessed in vectors.
fn is_vector(kernel: &Kernel, vector: u32, param: u32) -> bool {
    vector > 1 && kernel.params[param as usize].strides.last() == Some(&StrideClass::One)
}

/// Loads the vectors that the values along a row or column need and that are not kept.
pub(super) fn load_chunk(w: &mut Writer<'_>, vector: u32, along: &[ValueId], scope: &mut Scope) {
    let loads: Vec<(ValueId, u32)> = vector_loads(w.kernel, vector, along, scope).collect();
    for (value, param) in loads {
        let line = w.language.declare_loads(param, vector, 1);
        w.line(line);
        w.take_vector(value, param, "0", scope);
    }
}

/// The values along a row or column that are vector loads and not kept, with their parameters.
pub(super) fn vector_loads(
    kernel: &Kernel,
    vector: u32,
    along: &[ValueId],
    scope: &Scope,
) -> impl Iterator<Item = (ValueId, u32)> {
    along.iter().filter_map(move |&value| {
        let param = kernel.body[value as usize].compute.plain_load()?;
        let is_new = is_vector(kernel, vector, param) && scope.kept[value as usize].is_none();
        is_new.then_some((value, param))
    })
}

/// The elements of a vector within a pass: computed, reduced and stored.
pub(super) struct Elements<'a> {
    pub(super) vector: u32,
    /// The condition of stores.
    pub(super) guard: Option<&'a str>,
    /// The name of a total's accumulator, or its element where the accumulators are arrays.
    pub(super) total: fn(ValueId) -> String,
    /// Whether the accumulators are elements of arrays.
    pub(super) is_array: bool,
    /// The element's index among the thread's held values.
    pub(super) held: Option<String>,
}

impl Elements<'_> {
    /// Writes the loop over the elements; `inside` adds statements after their values.
    pub(super) fn write(
        &self,
        w: &mut Writer<'_>,
        pass: &Pass,
        along: &[ValueId],
        scope: &mut Scope,
        inside: impl FnOnce(&mut Writer<'_>),
    ) {
        let kernel = w.kernel;
        let stores = pass.stores.iter().filter_map(|&store| {
            let (param, stored) = kernel.body[store as usize].compute.store()?;
            Some((store, param, stored))
        });
        let (vectors, scalars): (Vec<_>, Vec<_>) =
            stores.partition(|&(_, param, _)| is_vector(kernel, self.vector, param));
        for &(_, param, _) in &vectors {
            let line = w.language.declare_stores(param, self.vector);
            w.line(line);
        }
        if self.vector > 1 {
            open_slots(w, self.vector, kernel.axes.len() - 1);
        }
        if let Some(held) = &self.held {
            w.index("place", held);
        }
        w.emit(along, scope);
        for total in &pass.totals {
            let so_far = (self.total)(total.value);
            if self.is_array {
                w.combine_into(total, &so_far, &name(total.operand));
                continue;
            }
            let combined = w.combined(total, &so_far, &name(total.operand));
            w.line(format!("{so_far} = {combined};"));
        }
        inside(w);
        for &(_, param, stored) in &vectors {
            let line = w.language.set_lane(param, kernel.params[param as usize].dtype, "slot", &name(stored));
            w.line(line);
        }
        let scalars: Vec<ValueId> = scalars.into_iter().map(|(store, ..)| store).collect();
        self.guarded(w, !scalars.is_empty(), |w| w.emit(&scalars, scope));
        if self.vector > 1 {
            close_slots(w);
        }
        self.guarded(w, !vectors.is_empty(), |w| {
            for &(_, param, stored) in &vectors {
                let line = w.language.store_vector(param, self.vector, &w.place(param), stored);
                w.line(line);
            }
        });
    }

    fn guarded(&self, w: &mut Writer<'_>, any: bool, body: impl FnOnce(&mut Writer<'_>)) {
        match self.guard.filter(|_| any) {
            Some(guard) => {
                w.open(format!("if ({guard})"));
                body(w);
                w.close();
            }
            None => body(w),
        }
    }
}

/// The first pass of a split reduction of long rows: one total per part of a row.
fn partial(w: &mut Writer<'_>) {
    let kernel = w.kernel;
    let GpuSchedule { block, splits, vector, .. } = *w.schedule;
    let mut scope = Scope::new(kernel);
    let pass = &kernel.passes()[0];
    w.index("lane", "thread");
    w.index("split", &format!("block % {splits}"));
    w.index("row", &format!("block / {splits}"));
    w.index("length", &w.extent(kernel.reduced()));
    w.decode("row", kernel.all_axes() & !kernel.reduced());
    w.emit(&pass.row, &mut scope);
    declare(w, &pass.totals);
    let along = kernel.along(pass, &alloc::vec![false; kernel.body.len()]);
    w.line(w.language.unroll_partly());
    let first = format!("(split * {block} + thread) * {vector}");
    w.open_loop("j", &first, "length", &format!("j + {}", block * splits * vector));
    w.decode("j", kernel.reduced());
    load_chunk(w, vector, &along, &mut scope);
    let total = |value: ValueId| format!("a{value}");
    let elements = Elements { vector, guard: None, total, is_array: false, held: None };
    elements.write(w, pass, &along, &mut scope.clone(), |_| ());
    w.close();
    w.combine(&pass.totals, block);
    w.open("if (thread == 0)");
    for (number, total) in pass.totals.iter().enumerate() {
        let store = w.language.store_scratch(number, total.dtype, "block", &name(total.value));
        w.line(store);
    }
    w.close();
}

/// The second pass: each block combines the totals of a row.
pub(super) fn finish(w: &mut Writer<'_>) {
    let kernel = w.kernel;
    let GpuSchedule { block, splits, .. } = *w.schedule;
    let mut scope = Scope::new(kernel);
    let totals = &kernel.passes()[0].totals;
    w.index("lane", "thread");
    declare(w, totals);
    w.open_loop("part", "thread", &format!("{splits}"), &format!("part + {block}"));
    for (number, total) in totals.iter().enumerate() {
        let so_far = format!("a{}", total.value);
        let scratch = w.language.load_scratch(number, total.dtype, &format!("block * {splits} + part"));
        let combined = w.combined(total, &so_far, &scratch);
        w.line(format!("{so_far} = {combined};"));
    }
    w.close();
    w.combine(totals, block);
    totals.iter().for_each(|total| scope.define(total.value));
    w.open("if (thread == 0)");
    w.decode("block", kernel.all_axes() & !kernel.reduced());
    let needed = kernel.needed_for(&kernel.row_stores());
    w.emit(&needed, &mut scope);
    w.close();
}

impl Kernel {
    /// Loads of elements that change along the reduced axes: value, parameter and dtype.
    pub(crate) fn row_loads(&self) -> Vec<(ValueId, u32, DType)> {
        let (reduced, dependence, in_rows) = (self.reduced(), self.dependence(), self.in_rows());
        let loads = self.body.iter().enumerate().filter_map(|(number, instruction)| {
            let param = instruction
                .compute
                .plain_load()
                .filter(|_| in_rows[number] && dependence[number] & reduced != 0)?;
            Some((number as ValueId, param, instruction.dtype))
        });
        loads.collect()
    }

    /// The values along the row that a pass computes, without those kept before.
    fn along(&self, pass: &Pass, kept: &[bool]) -> Vec<ValueId> {
        let mut needed = alloc::vec![false; self.body.len()];
        let stored =
            pass.stores.iter().filter_map(|&store| Some(self.body[store as usize].compute.store()?.1));
        let totals = pass.totals.iter().chain(&pass.across);
        totals.map(|total| total.operand).chain(stored).for_each(|goal| needed[goal as usize] = true);
        for number in (0..self.body.len()).rev() {
            if needed[number] && !kept[number] && !self.body[number].compute.is_reduction() {
                self.body[number].compute.operands().iter().for_each(|&value| needed[value as usize] = true);
            }
        }
        let (reduced, dependence) = (self.reduced(), self.dependence());
        (0..self.body.len())
            .filter(|&number| needed[number] && dependence[number] & reduced != 0)
            .map(|number| number as ValueId)
            .collect()
    }

    /// Whether each row is only reduced once, so that its parts can be reduced separately.
    pub(crate) fn combines_once(&self) -> bool {
        let passes = self.passes();
        !passes[0].totals.is_empty()
            && passes[1..].iter().all(|pass| pass.totals.is_empty() && pass.stores.is_empty())
    }

    /// For each value, the pass after which it is kept in registers because recomputing it in a later pass is
    /// expensive.
    pub(crate) fn kept(&self) -> Vec<Option<usize>> {
        /// The threshold, in additions and multiplications.
        const DEAR: u32 = 4;
        let passes = self.passes();
        let mut cost: Vec<u32> = Vec::with_capacity(self.body.len());
        let mut kept = alloc::vec![None; self.body.len()];
        for (number, instruction) in self.body.iter().enumerate() {
            let value = number as ValueId;
            let of_operands: u32 =
                instruction.compute.operands().iter().map(|&value| cost[value as usize]).sum();
            let own = match instruction.compute {
                Compute::Load(_)
                | Compute::Number(_)
                | Compute::Constant(_)
                | Compute::Reduce(..)
                | Compute::ColumnReduce(..)
                | Compute::Store(..) => 0,
                Compute::Unary(function, _) if crate::cost::is_long(function.info()) => 8,
                Compute::Binary(function, ..) if crate::cost::is_long(function.info()) => 8,
                Compute::LoadWhere(..) | Compute::LoadAt { .. } => DEAR,
                Compute::Index(_)
                | Compute::Unary(..)
                | Compute::Binary(..)
                | Compute::Compare(..)
                | Compute::Select(..)
                | Compute::Cast(_)
                | Compute::Bitcast(_)
                | Compute::Scan { .. }
                | Compute::Checked(..) => 1,
            };
            let computed = if instruction.compute.is_reduction() { 0 } else { of_operands + own };
            let mut within = (0..passes.len()).filter(|&pass| passes[pass].along.contains(&value));
            let (first, later) = (within.next(), within.next().is_some());
            let keep = later && computed >= DEAR;
            kept[number] = first.filter(|_| keep);
            cost.push(if keep || first.is_none() { 0 } else { computed });
        }
        // Drops kept values that are only operands of other kept values.
        let all = kept.clone();
        for (value, place) in kept.iter_mut().enumerate() {
            let is_taken = |first: &usize| {
                (first + 1..passes.len()).any(|pass| {
                    let before: Vec<bool> =
                        all.iter().map(|kept| kept.is_some_and(|kept| kept < pass)).collect();
                    self.along(&passes[pass], &before).contains(&(value as ValueId))
                })
            };
            *place = place.filter(is_taken);
        }
        kept
    }
}
