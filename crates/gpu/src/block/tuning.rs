//! Plans of matmuls that were measured on the device, by classes of sizes. They are kept on disk.

use super::contraction::{Plan, sum_dtype};
use super::matmul::Call;
use crate::Gpu;
use crate::array::Array;
use crate::disk;
use crate::driver::{DeviceInfo, DevicePtr, Driver, Epilogue, Matrices, Products};
use kiln_ir::{DType, Engine, FxBuildHasher, Result, TensorType, wait_for};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The maximum number of classes that are remembered.
const MOST_CLASSES: usize = 256;

/// Longer files are ignored: a table has short lines, one for each class.
const LONGEST: u64 = 1 << 16;

/// Timed launches of a plan.
const TIMES: usize = 4;

/// Matmuls with the same plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Class {
    dtype: DType,
    result: DType,
    /// Whether the left and the right factor are column-major.
    transposed: [bool; 2],
    /// The binary logarithms of the batch size, rows, columns and inner positions, rounded up.
    logarithms: [u32; 4],
}

impl Class {
    /// The class of matmuls of a dtype with that dtype of results. `sizes`: batch size, rows, columns, inner positions.
    pub(crate) fn new(dtype: DType, result: DType, transposed: [bool; 2], sizes: [usize; 4]) -> Class {
        let logarithms = sizes.map(|size| size.next_power_of_two().trailing_zeros());
        Class { dtype, result, transposed, logarithms }
    }
}

/// The measured plans of an engine, and the classes without one. By default nothing is kept on disk.
#[derive(Default)]
pub(crate) struct Tuning {
    state: Mutex<State>,
    file: Option<PathBuf>,
    /// The first line of the file, which names the version of Kiln, the device and its driver.
    head: String,
}

type Table = HashMap<Class, Plan, FxBuildHasher>;

#[derive(Default)]
struct State {
    plans: Table,
    /// Sizes of one matmul of each class without a plan.
    unmeasured: HashMap<Class, [usize; 4], FxBuildHasher>,
}

impl Tuning {
    /// Reads the plans that were kept for a device.
    pub(crate) fn open(info: &DeviceInfo) -> Tuning {
        // Another version may have other kernels.
        let version = env!("CARGO_PKG_VERSION");
        let head = format!("kiln {version} plans 1\t{}\t{}", info.model, info.target);
        Tuning::read(disk::folder("plans", &head).map(|folder| folder.join("matmul")), head)
    }

    fn read(file: Option<PathBuf>, head: String) -> Tuning {
        let bytes = file.as_ref().and_then(|path| disk::read(path, LONGEST));
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let plans = text.and_then(|text| parse(&text, &head)).unwrap_or_default();
        let state = State { plans, ..State::default() };
        Tuning { state: Mutex::new(state), file, head }
    }

    /// The measured plan of a class. Remembers the sizes of a matmul without one.
    pub(crate) fn plan(&self, class: Class, sizes: [usize; 4]) -> Option<Plan> {
        let mut state = self.lock();
        if let Some(plan) = state.plans.get(&class) {
            return Some(*plan);
        }
        // A file with more classes is not read.
        if state.plans.len() + state.unmeasured.len() < MOST_CLASSES {
            state.unmeasured.entry(class).or_insert(sizes);
        }
        None
    }

    fn unmeasured(&self) -> Vec<(Class, [usize; 4])> {
        self.lock().unmeasured.iter().map(|(class, sizes)| (*class, *sizes)).collect()
    }

    fn set(&self, class: Class, plan: Plan) {
        let mut state = self.lock();
        state.unmeasured.remove(&class);
        state.plans.insert(class, plan);
    }

    /// Stores all plans on disk. A failure, such as a full disk, only means that they are measured again next time.
    fn keep(&self) {
        let Some(file) = &self.file else { return };
        let text = print(&self.lock().plans, &self.head);
        let _ = disk::replace(file, &[text.as_bytes()]);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The table as text. Each line after the first has the dtypes, two layouts and four logarithms of a class, and the
/// numbers of its plan.
fn print(plans: &Table, head: &str) -> String {
    let mut lines: Vec<String> = plans
        .iter()
        .map(|(class, plan)| {
            let Class { dtype, result, transposed, logarithms } = class;
            let mut line = format!("{} {}", dtype.name(), result.name());
            let layouts = transposed.map(usize::from);
            let logarithms = logarithms.map(|logarithm| logarithm as usize);
            for number in layouts.into_iter().chain(logarithms).chain(plan.numbers()) {
                let _ = write!(line, " {number}");
            }
            line
        })
        .collect();
    lines.sort();
    format!("{head}\n{}\n", lines.join("\n"))
}

/// The table in a text; `None` if it is damaged or of another device.
fn parse(text: &str, head: &str) -> Option<Table> {
    let mut lines = text.lines();
    if lines.next()? != head {
        return None;
    }
    let table: Table = lines.map(parse_line).collect::<Option<Table>>()?;
    (table.len() <= MOST_CLASSES).then_some(table)
}

fn parse_line(line: &str) -> Option<(Class, Plan)> {
    let mut words = line.split(' ');
    let mut dtype = || {
        let name = words.next()?;
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    };
    let (dtype, result) = (dtype()?, dtype()?);
    let numbers: Vec<usize> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
    let &[left, right, count, rows, columns, inner, tall, wide, deep, parts] = numbers.as_slice() else {
        return None;
    };
    if left > 1 || right > 1 || [count, rows, columns, inner].iter().any(|&logarithm| logarithm > 63) {
        return None;
    }
    let logarithms = [count, rows, columns, inner].map(|logarithm| logarithm as u32);
    let class = Class { dtype, result, transposed: [left == 1, right == 1], logarithms };
    Some((class, Plan::from_numbers([tall, wide, deep, parts])?))
}

impl<D: Driver> Gpu<D> {
    /// Measures how fast the candidate kernels compute the matmuls that ran so far, for devices without a library.
    /// Later matmuls of similar sizes run by the fastest kernel. A file under `KILN_CACHE_DIR` keeps the plans for later
    /// processes. Returns the number of measured classes of sizes. Classes for which the budget is too short are left to
    /// the next call; one measurement is not interrupted.
    ///
    /// Blocks the thread until the device has done all work, so that it is not for browsers. Results change by rounding, so that
    /// a [deterministic](kiln_ir::set_deterministic) device measures nothing.
    ///
    /// # Errors
    /// When the device failed, or has no memory for the operands of a matmul; always in a browser.
    pub fn tune(&self, budget: Duration) -> Result<usize> {
        if self.deterministic {
            return Ok(0);
        }
        // Browsers fail here: they have no clock.
        self.end_all_work()?;
        let started = Instant::now();
        let mut count = 0;
        for (class, sizes) in self.tuning.unmeasured() {
            let Some(plan) = self.fastest(class, sizes, &|| started.elapsed() >= budget)? else { break };
            self.tuning.set(class, plan);
            count += 1;
        }
        if count > 0 {
            self.tuning.keep();
        }
        Ok(count)
    }

    /// The fastest plan of a matmul; `None` if there is no time to measure all.
    fn fastest(
        &self,
        class: Class,
        [count, rows, columns, inner]: [usize; 4],
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Plan>> {
        let Class { dtype, result, transposed, .. } = class;
        let array = |length: usize, dtype: DType| self.uninit(&TensorType::new([length], dtype));
        let [a, b] = [array(count * rows * inner, dtype)?, array(count * inner * columns, dtype)?];
        let y = array(count * rows * columns, result)?;
        let matrices = |x: &Array<D>, transposed: bool, [lines, length]: [usize; 2]| Matrices {
            at: x.at(dtype.size()),
            transposed,
            leading_dim: if transposed { lines } else { length },
            step: lines * length,
        };
        let products = Products {
            count,
            rows,
            columns,
            inner,
            dtype,
            result,
            float8: None,
            factors: [
                matrices(&a, transposed[0], [rows, inner]),
                matrices(&b, transposed[1], [inner, columns]),
            ],
            to: y.at(result.size()),
            epilogue: Epilogue::default(),
        };
        let call = Call::of(&products);
        let mut best: Option<(Duration, Plan)> = None;
        let multiprocessors = self.driver.info().multiprocessors;
        for plan in Plan::candidates(count, [rows, columns], inner, sum_dtype(result), multiprocessors) {
            if is_over() {
                return Ok(None);
            }
            let time = self.time_of(&call, plan, &products.to)?;
            if best.is_none_or(|(fastest, _)| time < fastest) {
                best = Some((time, plan));
            }
        }
        Ok(best.map(|(_, plan)| plan))
    }

    /// The time of some launches of a plan, after one that loads its kernels.
    fn time_of(&self, call: &Call<'_, D::Memory>, plan: Plan, to: &DevicePtr<D::Memory>) -> Result<Duration> {
        self.multiply_by_plan(call, plan, to)?;
        self.end_all_work()?;
        let started = Instant::now();
        for _ in 0..TIMES {
            self.multiply_by_plan(call, plan, to)?;
        }
        self.end_all_work()?;
        Ok(started.elapsed())
    }

    /// Waits until the device has done all work.
    fn end_all_work(&self) -> Result<()> {
        wait_for(self.sync(), "measuring kernels", "call `tune` outside of a browser")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "kiln plans 1\ta model\ta driver";

    fn class(rows: usize) -> Class {
        Class::new(DType::F16, DType::F32, [false, true], [3, rows, 1000, 1 << 12])
    }

    fn plan() -> Plan {
        Plan::of(1, [128, 128], 1 << 16, DType::F32, 64)
    }

    #[test]
    fn similar_sizes_have_one_class() {
        assert_eq!(class(1000), class(1024));
        assert_ne!(class(1000), class(1025));
        assert_eq!(class(1000).logarithms, [2, 10, 10, 12]);
    }

    #[test]
    fn tables_are_printed_and_parsed() {
        let table: Table = [(class(16), plan()), (class(1000), plan())].into_iter().collect();
        let text = print(&table, HEAD);
        assert!(text.contains("\nf16 f32 0 1 2 4 10 12 8 8 8 64\n"), "{text}");
        assert_eq!(parse(&text, HEAD), Some(table));
        assert_eq!(parse(&text, "kiln plans 1\tanother model\ta driver"), None);
    }

    #[test]
    fn damaged_tables_are_ignored() {
        let lines = [
            "f16 f32 0 1 2 4 10 12 8 8 8",
            "f16 f32 0 1 2 4 10 12 8 8 8 64 1",
            "f16 f32 0 2 2 4 10 12 8 8 8 64",
            "f16 f32 0 1 2 4 64 12 8 8 8 64",
            "f16 f32 0 1 2 4 10 12 8 8 7 64",
            "f16 f32 0 1 2 4 10 12 8 8 8 0",
            "f17 f32 0 1 2 4 10 12 8 8 8 64",
            "",
        ];
        for line in lines {
            assert_eq!(parse(&format!("{HEAD}\n{line}\n"), HEAD), None, "{line}");
        }
        assert_eq!(parse("", HEAD), None);
    }

    #[test]
    fn a_full_table_remembers_no_more_classes() {
        let class = |sizes| Class::new(DType::F32, DType::F32, [false; 2], sizes);
        let tuning = Tuning::default();
        for number in 0..MOST_CLASSES {
            tuning.set(class([1 << (number % 16), 1 << (number / 16), 1, 1]), plan());
        }
        let other = [1, 1, 1, 2];
        assert_eq!(tuning.plan(class(other), other), None);
        assert!(tuning.unmeasured().is_empty());
        assert!(parse(&print(&tuning.lock().plans, HEAD), HEAD).is_some());
    }

    #[test]
    fn plans_are_kept_on_disk() {
        let folder = std::env::temp_dir().join(format!("kiln-plans-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let open = || Tuning::read(Some(folder.join("matmul")), HEAD.into());
        let tuning = open();
        let sizes = [1, 2, 3, 4];
        assert_eq!(tuning.plan(class(16), sizes), None);
        assert_eq!(tuning.unmeasured(), [(class(16), sizes)]);
        tuning.set(class(16), plan());
        assert!(tuning.unmeasured().is_empty());
        tuning.keep();
        assert_eq!(open().plan(class(16), sizes), Some(plan()));
        std::fs::write(folder.join("matmul"), [0xff; 100]).unwrap();
        assert_eq!(open().plan(class(16), sizes), None);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
