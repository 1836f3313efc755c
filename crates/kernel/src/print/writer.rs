//! The source writer: indentation, statements, and names of values.

use crate::passes::Total;
use crate::{AxisSet, Compute, GpuSchedule, Kernel, StrideClass, ValueId};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use kiln_ir::{DType, Scalar};

/// The syntax that differs between languages. Indices are signed integers.
pub(super) trait Language {
    /// Declares an immutable index.
    fn index(&self, name: &str, expression: &str) -> String;
    /// The head of a `for` loop over an index: start, exclusive end, and step statement.
    fn for_loop(&self, name: &str, from: &str, below: &str, next: &str) -> String;
    /// Requests unrolling of a loop with a known trip count; empty if the language has no such hint.
    fn unroll(&self) -> &'static str;
    /// Requests partial unrolling of a loop, so that its loads overlap.
    fn unroll_partly(&self) -> &'static str;
    /// Declares an immutable value.
    fn value(&self, name: &str, dtype: DType, expression: &str) -> String;
    /// Declares a mutable variable.
    fn variable(&self, name: &str, dtype: DType, expression: &str) -> String;
    /// Declares a thread-local array.
    fn array(&self, name: &str, dtype: DType, len: usize) -> String;
    /// Declares a shared-memory array of a block.
    fn shared(&self, name: &str, dtype: DType, len: usize) -> String;
    /// An element of a declared array, thread-local or shared, as a value.
    fn element(&self, element: &str, _dtype: DType) -> String {
        element.into()
    }
    /// The statement that sets an element of a declared array.
    fn set_element(&self, element: &str, _dtype: DType, value: &str) -> String {
        format!("{element} = {value};")
    }
    /// The barrier of a block.
    fn barrier(&self) -> &'static str;
    /// Butterfly shuffle: the value of the lane whose index differs by an exclusive or, in a group of 32.
    fn shuffle(&self, value: &str, dtype: DType, distance: u32) -> Option<String>;
    /// A function of values; `operands` are their names. Never a load, store, reduction or index.
    fn compute(&self, compute: &Compute, dtype: DType, operands: &[(String, DType)]) -> String;
    /// A literal of the dtype.
    fn constant(&self, scalar: Scalar, dtype: DType) -> String;
    /// An index as a value.
    fn of_index(&self, index: &str, dtype: DType) -> String;
    /// An element in memory as a value.
    fn load(&self, param: u32, dtype: DType, place: &str) -> String;
    /// An element in memory as a value, or zero, by a condition. Otherwise the place is out of bounds.
    fn load_where(&self, param: u32, dtype: DType, place: &str, condition: &str) -> String;
    /// One of two values by a condition.
    fn choice(&self, condition: &str, a: &str, b: &str) -> String;
    /// The statement that writes a value to memory.
    fn store(&self, param: u32, dtype: DType, place: &str, value: ValueId) -> String;
    /// Declares `times` vectors of `count` neighbouring elements for loads: `x` and the parameter's number.
    fn declare_loads(&self, param: u32, count: u32, times: u32) -> String;
    /// Loads neighbouring elements into one of these vectors.
    fn load_vector(&self, param: u32, count: u32, which: &str, place: &str) -> String;
    /// One element of a loaded vector, as a value.
    fn lane(&self, param: u32, dtype: DType, which: &str, lane: &str) -> String;
    /// Declares a vector of neighbouring elements for a store: `y` and the parameter's number.
    fn declare_stores(&self, param: u32, count: u32) -> String;
    /// Sets one element of that vector.
    fn set_lane(&self, param: u32, dtype: DType, lane: &str, value: &str) -> String;
    /// Stores a vector of elements of `value`.
    fn store_vector(&self, param: u32, count: u32, place: &str, value: ValueId) -> String;
    /// An element of scratch memory as a value of the dtype.
    fn load_scratch(&self, number: usize, dtype: DType, place: &str) -> String;
    /// The statement that writes a value of the dtype to scratch memory.
    fn store_scratch(&self, number: usize, dtype: DType, place: &str, value: &str) -> String;
    /// The minimum of two indices.
    fn least(&self, a: &str, b: &str) -> String;
}

pub(super) struct Writer<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) language: &'a dyn Language,
    pub(super) schedule: &'a GpuSchedule,
    /// The statements so far.
    pub(super) body: String,
    /// Declarations of memory shared by a block.
    pub(super) shared: Vec<String>,
    depth: usize,
}

/// The values that have names at a point of the source.
#[derive(Clone, Debug)]
pub(super) struct Scope {
    defined: Vec<bool>,
    /// Values that are read from where they were kept.
    pub(super) kept: Vec<Option<String>>,
}

impl Scope {
    pub(super) fn new(kernel: &Kernel) -> Scope {
        Scope { defined: alloc::vec![false; kernel.body.len()], kept: alloc::vec![None; kernel.body.len()] }
    }

    pub(super) fn define(&mut self, value: ValueId) {
        self.defined[value as usize] = true;
    }
}

pub(super) fn name(value: ValueId) -> String {
    format!("v{value}")
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        kernel: &'a Kernel,
        language: &'a dyn Language,
        schedule: &'a GpuSchedule,
    ) -> Writer<'a> {
        Writer { kernel, language, schedule, body: String::new(), shared: Vec::new(), depth: 1 }
    }

    /// Loads the vector of a value, which is then read from its elements, into one of the vectors of its parameter.
    pub(super) fn take_vector(&mut self, value: ValueId, param: u32, which: &str, scope: &mut Scope) {
        let load = self.language.load_vector(param, self.schedule.vector, which, &self.place(param));
        self.line(load);
        let dtype = self.kernel.body[value as usize].dtype;
        scope.kept[value as usize] = Some(self.language.lane(param, dtype, which, "slot"));
    }

    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        let text = text.as_ref();
        if text.is_empty() {
            return;
        }
        for _ in 0..self.depth {
            self.body.push_str("  ");
        }
        self.body.push_str(text);
        self.body.push('\n');
    }

    /// Opens a block after a head such as `if (a)`.
    pub(super) fn open(&mut self, head: impl AsRef<str>) {
        let head = head.as_ref();
        self.line(if head.is_empty() { "{".to_string() } else { format!("{head} {{") });
        self.depth += 1;
    }

    pub(super) fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }

    pub(super) fn index(&mut self, name: &str, expression: &str) {
        let line = self.language.index(name, expression);
        self.line(line);
    }

    pub(super) fn open_loop(&mut self, name: &str, from: &str, below: &str, next: &str) {
        let head = self.language.for_loop(name, from, below, next);
        self.open(head);
    }

    pub(super) fn share(&mut self, name: &str, dtype: DType, len: usize) {
        let line = self.language.shared(name, dtype, len);
        self.shared.push(line);
    }

    pub(super) fn barrier(&mut self) {
        self.line(self.language.barrier());
    }

    /// The product of the extents of some axes.
    pub(super) fn extent(&self, axes: AxisSet) -> String {
        let names: Vec<String> = self.axes(axes).map(|axis| format!("e{axis}")).collect();
        if names.is_empty() { "1".into() } else { names.join(" * ") }
    }

    pub(super) fn axes(&self, axes: AxisSet) -> impl DoubleEndedIterator<Item = usize> + use<> {
        (0..self.kernel.axes.len()).filter(move |axis| axes >> axis & 1 == 1)
    }

    /// Declares the indices along some axes, from the row-major number of a point.
    pub(super) fn decode(&mut self, point: &str, axes: AxisSet) {
        let list: Vec<usize> = self.axes(axes).collect();
        let mut rest = point.to_string();
        for (i, &axis) in list.iter().enumerate().rev() {
            if i == 0 {
                self.index(&format!("i{axis}"), &rest);
            } else {
                self.index(&format!("i{axis}"), &format!("{rest} % e{axis}"));
                let next = format!("q{axis}");
                self.index(&next, &format!("{rest} / e{axis}"));
                rest = next;
            }
        }
    }

    /// The offset of a parameter's element at the indices `i0`, `i1` and so on.
    pub(super) fn place(&self, param: u32) -> String {
        let mut terms = Vec::new();
        for (axis, class) in self.kernel.params[param as usize].strides.iter().enumerate() {
            match class {
                StrideClass::Zero => {}
                StrideClass::One => terms.push(format!("i{axis}")),
                StrideClass::Any => terms.push(format!("i{axis} * s{param}_{axis}")),
            }
        }
        if terms.is_empty() { "0".into() } else { terms.join(" + ") }
    }

    /// Computes unnamed values, in order, and writes stores.
    pub(super) fn emit(&mut self, values: &[ValueId], scope: &mut Scope) {
        for &value in values {
            if scope.defined[value as usize] {
                continue;
            }
            scope.define(value);
            let instruction = self.kernel.body[value as usize];
            let dtype = instruction.dtype;
            let operands: Vec<(String, DType)> = instruction
                .compute
                .operands()
                .iter()
                .map(|&operand| (name(operand), self.kernel.body[operand as usize].dtype))
                .collect();
            if let Some(kept) = &scope.kept[value as usize] {
                let line = self.language.value(&name(value), dtype, kept);
                self.line(line);
                continue;
            }
            let expression = match instruction.compute {
                Compute::Load(param) => self.language.load(param, dtype, &self.place(param)),
                Compute::LoadWhere(param, condition) => {
                    self.language.load_where(param, dtype, &self.place(param), &name(condition))
                }
                Compute::LoadAt { param, offset, condition } => {
                    let place = format!("{} + {}", self.place(param), name(offset));
                    self.language.load_where(param, dtype, &place, &name(condition))
                }
                Compute::Number(param) => format!("n{param}"),
                Compute::Constant(scalar) => self.language.constant(scalar, dtype),
                Compute::Index(axis) => self.language.of_index(&format!("i{axis}"), dtype),
                Compute::Store(param, stored) => {
                    let statement = self.language.store(param, dtype, &self.place(param), stored);
                    self.line(statement);
                    continue;
                }
                Compute::Unary(..)
                | Compute::Binary(..)
                | Compute::Compare(..)
                | Compute::Select(..)
                | Compute::Cast(_)
                | Compute::Bitcast(_)
                | Compute::Reduce(..)
                | Compute::ColumnReduce(..)
                | Compute::Scan { .. }
                | Compute::Checked(..) => self.language.compute(&instruction.compute, dtype, &operands),
            };
            let line = self.language.value(&name(value), dtype, &expression);
            self.line(line);
        }
    }

    /// Two values as a reduction combines them.
    pub(super) fn combined(&self, total: &Total, a: &str, b: &str) -> String {
        let Total { reduction, dtype, .. } = *total;
        let compute = Compute::Binary(reduction.binary(), 0, 0);
        self.language.compute(&compute, dtype, &[(a.into(), dtype), (b.into(), dtype)])
    }

    /// Sets an element of an array.
    pub(super) fn set(&mut self, element: &str, dtype: DType, value: &str) {
        self.line(self.language.set_element(element, dtype, value));
    }

    /// Combines a value into an element of an array.
    pub(super) fn combine_into(&mut self, total: &Total, element: &str, value: &str) {
        let so_far = self.language.element(element, total.dtype);
        let combined = self.combined(total, &so_far, value);
        self.set(element, total.dtype, &combined);
    }

    /// Combines variables over `count` neighbouring threads (the whole block or groups of it), and names the results.
    /// `lane` is the thread's index in its group. All threads of the block execute it, once for each total.
    pub(super) fn combine(&mut self, totals: &[Total], count: u32) {
        let shuffles = |w: &Self, total: &Total| w.language.shuffle("", total.dtype, 1).is_some();
        let (fast, slow): (Vec<Total>, Vec<Total>) = totals.iter().partition(|total| shuffles(self, total));
        let (pairs, singles) = pairs(&fast, count);
        for &[a, b] in &pairs {
            self.halve_warp(&a, &b);
            self.shuffle(&a, 16);
        }
        for total in &singles {
            self.shuffle(total, count.min(32));
        }
        if count > 32 && !fast.is_empty() {
            self.exchange(&pairs, &singles, count);
        }
        for &[a, b] in &pairs {
            self.join_warp(&a, &b);
        }
        for total in &slow {
            self.halve(total, count);
        }
        for total in totals {
            let line = self.language.value(&name(total.value), total.dtype, &format!("a{}", total.value));
            self.line(line);
        }
    }

    /// Butterfly reduction of a variable over up to 32 threads.
    fn shuffle(&mut self, total: &Total, count: u32) {
        let variable = format!("a{}", total.value);
        let mut distance = count / 2;
        while distance > 0 {
            let other = self.language.shuffle(&variable, total.dtype, distance).unwrap_or_default();
            let combined = self.combined(total, &variable, &other);
            self.line(format!("{variable} = {combined};"));
            distance /= 2;
        }
    }

    /// The first step of a paired reduction: afterwards the variable of the first total holds the second total in the
    /// upper half of the warp.
    fn halve_warp(&mut self, first: &Total, second: &Total) {
        let (a, b) = (format!("a{}", first.value), format!("a{}", second.value));
        let sent = format!("sent{}", first.value);
        let line = self.language.value(&sent, first.dtype, &self.language.choice(LOWER, &b, &a));
        self.line(line);
        self.line(format!("{a} = {};", self.language.choice(LOWER, &a, &b)));
        let other = self.language.shuffle(&sent, first.dtype, 16).unwrap_or_default();
        let combined = self.combined(first, &a, &other);
        self.line(format!("{a} = {combined};"));
    }

    /// Broadcasts both totals of a paired reduction to all threads of the warp.
    fn join_warp(&mut self, first: &Total, second: &Total) {
        let (a, b) = (format!("a{}", first.value), format!("a{}", second.value));
        let other = format!("other{}", first.value);
        let shuffled = self.language.shuffle(&a, first.dtype, 16).unwrap_or_default();
        let line = self.language.value(&other, first.dtype, &shuffled);
        self.line(line);
        self.line(format!("{b} = {};", self.language.choice(LOWER, &other, &a)));
        self.line(format!("{a} = {};", self.language.choice(LOWER, &a, &other)));
    }

    /// Combines warps through shared memory: one value per warp, or one per half warp for paired totals.
    fn exchange(&mut self, pairs: &[[Total; 2]], singles: &[Total], count: u32) {
        let warps = self.schedule.block as usize / 32;
        let firsts: Vec<Total> = pairs.iter().map(|&[first, _]| first).collect();
        self.write_shared(&firsts, 16, 2 * warps);
        self.write_shared(singles, 32, warps);
        self.barrier();
        let parts = count / 32;
        let first = if count == self.schedule.block { "" } else { "(thread - lane) / 32 + " };
        for total in &firsts {
            let place = format!("2 * ({first}thread % {parts}) + thread / 16 % 2");
            let part = self.language.element(&format!("w{}[{place}]", total.value), total.dtype);
            self.line(format!("a{} = {part};", total.value));
            self.shuffle(total, parts);
        }
        for total in singles {
            self.read_shared(total, first, parts);
        }
    }

    /// The first of each `threads` threads stores its value of each total.
    fn write_shared(&mut self, totals: &[Total], threads: u32, len: usize) {
        if totals.is_empty() {
            return;
        }
        self.open(format!("if (thread % {threads} == 0)"));
        for &Total { value, dtype, .. } in totals {
            self.share(&format!("w{value}"), dtype, len);
            self.set(&format!("w{value}[thread / {threads}]"), dtype, &format!("a{value}"));
        }
        self.close();
    }

    /// Combines the parts of a total in shared memory. Every thread does so in the same order.
    fn read_shared(&mut self, total: &Total, first: &str, parts: u32) {
        /// Up to this many parts, each thread reads all of them; beyond it, one each.
        const FEW: u32 = 4;
        let variable = format!("a{}", total.value);
        let language = self.language;
        let at = |place: &str| language.element(&format!("w{}[{first}{place}]", total.value), total.dtype);
        if parts > FEW {
            self.line(format!("{variable} = {};", at(&format!("thread % {parts}"))));
            return self.shuffle(total, parts);
        }
        self.line(format!("{variable} = {};", at("0")));
        for part in 1..parts {
            let combined = self.combined(total, &variable, &at(&part.to_string()));
            self.line(format!("{variable} = {combined};"));
        }
    }

    /// Tree reduction of a variable through shared memory alone.
    fn halve(&mut self, total: &Total, count: u32) {
        let Total { value, dtype, .. } = *total;
        let shared = format!("w{value}");
        self.share(&shared, dtype, self.schedule.block as usize);
        let own = format!("{shared}[thread]");
        self.set(&own, dtype, &format!("a{value}"));
        self.barrier();
        self.open_loop("half", "0", &format!("{}", count.ilog2()), "half + 1");
        let shift = self.language.of_index("half", DType::U32);
        self.index("distance", &format!("{} >> {shift}", count / 2));
        self.open("if (lane < distance)");
        let other = self.language.element(&format!("{shared}[thread + distance]"), dtype);
        self.combine_into(total, &own, &other);
        self.close();
        self.barrier();
        self.close();
        let all = self.language.element(&format!("{shared}[thread - lane]"), dtype);
        self.line(format!("a{value} = {all};"));
    }
}

/// Whether a thread is in the lower half of its warp.
const LOWER: &str = "thread % 32 < 16";

/// Pairs totals of equal reduction and dtype; returns pairs and the rest. A pair needs half as many shuffles over 32
/// threads. With more than 16 warps, the partial results do not fit half a warp, so nothing is paired.
fn pairs(totals: &[Total], count: u32) -> (Vec<[Total; 2]>, Vec<Total>) {
    let (mut pairs, mut singles) = (Vec::new(), Vec::<Total>::new());
    for &total in totals {
        let is_alike = |other: &Total| other.reduction == total.reduction && other.dtype == total.dtype;
        match singles.iter().position(is_alike).filter(|_| (32..=512).contains(&count)) {
            Some(place) => pairs.push([singles.remove(place), total]),
            None => singles.push(total),
        }
    }
    (pairs, singles)
}
