use super::run::{LEAST_STEPS, MOST_GRAPHS, MOST_REFUSALS, arguments};
use super::*;
use crate::driver::{Activation, Argument, DeviceInfo, Epilogue, Graph, Library, Matrices, Recorder};
use kiln_ir::BoxFuture;
use kiln_ir::DType;
use kiln_kernel::print::Entry;
use std::sync::Mutex;

/// An executed step: function number and arguments, with memory by number.
type Ran = Vec<(u32, Vec<u64>)>;

/// A device that records the executed steps.
struct Diary {
    info: DeviceInfo,
    ran: Mutex<Ran>,
    can_record: bool,
    can_amend: bool,
    is_broken: bool,
    panics: bool,
}

struct Number(u32);

fn diary() -> Diary {
    let info = DeviceInfo {
        name: "diary".into(),
        model: String::new(),
        target: String::new(),
        memory: 0,
        multiprocessors: 1,
        ..DeviceInfo::absent("")
    };
    Diary { info, ran: Mutex::default(), can_record: true, can_amend: true, is_broken: false, panics: false }
}

fn line(step: &Step<Diary>) -> (u32, Vec<u64>) {
    let number = match step {
        Step::Launch { function, .. } => function.0,
        Step::Fill { .. } => 1000,
        Step::Multiply(products) => 2000 + u32::from(products.epilogue.activation.is_some()),
        Step::Convolve(_) | Step::Attend(_) | Step::Transform(_) => 5000,
    };
    let word = |argument: &Argument<Number>| match argument {
        Argument::Pointer(place) => u64::from(place.memory.0) * 1000 + place.offset as u64,
        Argument::Word(word) => u64::from_le_bytes(*word),
    };
    (number, arguments(step).iter().map(word).collect())
}

impl Diary {
    fn note(&self, line: (u32, Vec<u64>)) {
        self.ran.lock().unwrap().push(line);
    }
}

impl Driver for Diary {
    type Memory = Number;
    type Function = Number;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn deterministic(&self) -> bool {
        false
    }

    fn allocate(&self, _: usize) -> Result<Number> {
        Ok(Number(0))
    }

    fn size(&self, _: &Number) -> usize {
        0
    }

    fn write(&self, to: &DevicePtr<Number>, _: &[u8]) -> Result<()> {
        self.note((3000, vec![to.memory.0.into()]));
        Ok(())
    }

    fn read_all(&self, ranges: &[(DevicePtr<Number>, usize)]) -> BoxFuture<'static, Result<Vec<Vec<u8>>>> {
        self.note((4000, ranges.iter().map(|(from, _)| from.memory.0.into()).collect()));
        let read: Vec<Vec<u8>> = ranges.iter().map(|(_, bytes)| vec![0; *bytes]).collect();
        Box::pin(async move { Ok(read) })
    }

    fn fill(&self, to: &DevicePtr<Number>, bytes: usize, value: u8) -> Result<()> {
        self.note(line(&Step::Fill { to: to.clone(), bytes, value }));
        Ok(())
    }

    fn compile(&self, _: &str) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn load(&self, _: &[u8], entries: &[&Entry]) -> Result<Vec<Option<Number>>> {
        Ok(entries.iter().map(|_| Some(Number(0))).collect())
    }

    unsafe fn launch(&self, function: &Number, _: Grid, arguments: &[Argument<Number>]) -> Result<()> {
        assert!(!self.panics, "a driver that panics");
        if self.is_broken {
            return Err(Error::device("diary", "is broken"));
        }
        let function = Arc::new(Number(function.0));
        let arguments = arguments.iter().cloned().collect();
        self.note(line(&Step::Launch { function, grid: GRID, arguments }));
        Ok(())
    }

    fn synchronize(&self) -> BoxFuture<'static, Result<()>> {
        Box::pin(async { Ok(()) })
    }

    fn library(&self) -> Option<&dyn Library<Number>> {
        Some(self)
    }

    fn recorder(&self) -> Option<&dyn Recorder<Diary>> {
        Some(self)
    }
}

impl Library<Number> for Diary {
    fn convolutions(&self) -> Result<()> {
        Err(Error::unsupported("diary", "has no convolutions"))
    }

    fn multiplies(&self, _: &Products<Number>) -> bool {
        true
    }

    unsafe fn multiply(&self, products: &Products<Number>) -> Result<()> {
        let word = |place: &DevicePtr<Number>| u64::from(place.memory.0) * 1000 + place.offset as u64;
        let number = 2000 + u32::from(products.epilogue.activation.is_some());
        self.note((number, products.places().map(word).collect()));
        Ok(())
    }
}

impl Recorder<Diary> for Diary {
    unsafe fn record(&self, steps: &[Step<Diary>]) -> Option<Box<dyn Graph<Diary>>> {
        self.can_record.then(|| Box::new(Lines(steps.iter().map(line).collect())) as _)
    }

    fn start_laps(&self) -> Result<()> {
        Ok(())
    }

    fn lap(&self) -> Result<()> {
        Ok(())
    }

    fn laps(&self) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }
}

/// The lines of a graph's steps.
struct Lines(Ran);

impl Graph<Diary> for Lines {
    unsafe fn amend(&mut self, driver: &Diary, place: usize, step: &Step<Diary>) -> bool {
        // A failed update may have changed the graph.
        self.0[place] = if driver.can_amend { line(step) } else { (0, Vec::new()) };
        driver.can_amend
    }

    unsafe fn replay(&mut self, driver: &Diary) -> Result<()> {
        driver.ran.lock().unwrap().extend(self.0.iter().cloned());
        Ok(())
    }
}

const GRID: Grid = Grid { blocks: 1, threads: 32 };

/// Functions and memory for the steps of tests.
struct Things {
    functions: Vec<Arc<Number>>,
    memory: Vec<Arc<Number>>,
}

fn things() -> Things {
    let numbers = |count: u32| (0..count).map(|i| Arc::new(Number(i))).collect();
    Things { functions: numbers(40), memory: numbers(8) }
}

impl Things {
    fn place(&self, memory: usize) -> DevicePtr<Number> {
        DevicePtr::new(self.memory[memory].clone(), 0)
    }

    /// A training step: function `i` on memory that alternates with `turn`, and a number.
    fn train(&self, queue: &Queue<Diary>, kernels: usize, turn: usize, number: u64) {
        for i in 0..kernels {
            let place = Argument::Pointer(self.place((i + turn) % self.memory.len()));
            let arguments = [place, Argument::Word(number.to_le_bytes())].into_iter().collect();
            let function = self.functions[i % self.functions.len()].clone();
            queue.push(Step::Launch { function, grid: GRID, arguments }).unwrap();
        }
        queue.push(Step::Fill { to: self.place(turn % 2), bytes: 4, value: 0 }).unwrap();
        queue.submit();
    }
}

/// Reads a byte of the first memory.
fn read(queue: &Queue<Diary>, things: &Things) -> Result<Vec<u8>> {
    Ok(kiln_ir::block_on(queue.read_all(&[(things.place(0), 1)])?)?.remove(0))
}

fn ran(queue: &Queue<Diary>) -> Ran {
    queue.drain().unwrap();
    queue.driver.ran.lock().unwrap().clone()
}

/// A matmul with a bias.
fn product(things: &Things, bias: usize, activation: Option<Activation>) -> Step<Diary> {
    let factor =
        |place: usize| Matrices { at: things.place(place), transposed: false, leading_dim: 8, step: 0 };
    Step::Multiply(Products {
        count: 1,
        rows: 8,
        columns: 8,
        inner: 8,
        dtype: DType::F32,
        result: DType::F32,
        float8: None,
        factors: [factor(0), factor(1)],
        to: things.place(2),
        epilogue: Epilogue { bias: Some(things.place(bias)), activation },
    })
}

/// Another epilogue is another form. Another bias address needs another graph, or an update once the maximum of graphs
/// exists.
#[test]
fn graphs_distinguish_matmul_epilogues() {
    let run = |graphs: bool| {
        let (queue, things) = (Queue::new(Arc::new(diary()), graphs), things());
        for turn in 0..12 {
            let activation = (turn % 3 == 0).then_some(Activation::Relu);
            (0..6).for_each(|i| queue.push(product(&things, 3 + (i + turn) % 5, activation)).unwrap());
            queue.submit();
        }
        (ran(&queue), queue.graphs())
    };
    let ((expected, _), (found, graphs)) = (run(false), run(true));
    assert_eq!(found, expected);
    assert_eq!((graphs.recorded, graphs.replayed), (MOST_GRAPHS as u64 + 3, 10), "{graphs:?}");
    assert!(graphs.steps_amended > 0, "{graphs:?}");
}

/// Runs ten training steps; returns the executed steps and the graph usage.
fn ten_steps(driver: Diary, graphs: bool, kernels: usize) -> (Ran, GraphUse) {
    let (queue, things) = (Queue::new(Arc::new(driver), graphs), things());
    for step in 0..10 {
        things.train(&queue, kernels, step % 3, step as u64 / 2);
    }
    (ran(&queue), queue.graphs())
}

#[test]
fn execution_is_equal_with_and_without_graphs() {
    for kernels in [1, 3, 30, 127, 128, 500] {
        let (expected, none) = ten_steps(diary(), false, kernels);
        assert_eq!((none.recorded, none.replayed, none.steps_alone), (0, 0, 10 * (kernels as u64 + 1)));
        let (found, graphs) = ten_steps(diary(), true, kernels);
        assert_eq!(found, expected, "{kernels} kernels");
        assert_eq!(graphs.steps_alone + graphs.steps_replayed, none.steps_alone);
        if kernels >= LEAST_STEPS {
            // Each run is launched alone the first time, and as a graph from the second time on; the first step has
            // shorter runs.
            let runs = (kernels + 1) / MOST_STEPS + usize::from((kernels + 1) % MOST_STEPS >= LEAST_STEPS);
            let recorded = graphs.recorded as usize;
            assert!(recorded >= 1 && recorded <= MOST_GRAPHS * runs, "{recorded} {runs}");
            assert!(graphs.steps_replayed >= 8 * (kernels as u64 - 4), "{graphs:?}");
            assert!(graphs.steps_amended > 0 && graphs.steps_amended < graphs.steps_replayed);
        }
    }
}

#[test]
fn an_unchanged_run_is_replayed_without_updates() {
    let (queue, things) = (Queue::new(Arc::new(diary()), true), things());
    for _ in 0..10 {
        things.train(&queue, 20, 0, 7);
    }
    let graphs = queue.graphs();
    let expected =
        GraphUse { recorded: 1, replayed: 8, steps_replayed: 8 * 21, steps_amended: 0, steps_alone: 2 * 21 };
    assert_eq!(graphs, expected, "the first step is two runs");
}

#[test]
fn alternating_addresses_have_a_graph_each() {
    let (queue, things) = (Queue::new(Arc::new(diary()), true), things());
    for step in 0..20 {
        things.train(&queue, 20, step % 3, 7);
    }
    let graphs = queue.graphs();
    assert_eq!((graphs.recorded, graphs.steps_amended), (3, 0), "{graphs:?}");
    assert_eq!(graphs.replayed, 18, "{graphs:?}");
}

/// An idle device gets a short run soon, and longer runs later.
#[test]
fn the_first_run_after_a_read_is_short() {
    let (queue, things) = (Queue::new(Arc::new(diary()), true), things());
    let push = |count: usize| {
        for _ in 0..count {
            let arguments: Arguments<Number> = [Argument::Pointer(things.place(0))].into_iter().collect();
            queue
                .push(Step::Launch { function: things.functions[0].clone(), grid: GRID, arguments })
                .unwrap();
        }
        queue.with(|state| state.waiting.len())
    };
    for _ in 0..3 {
        assert_eq!(push(FIRST_STEPS - 1), FIRST_STEPS - 1);
        assert_eq!(push(1), 0);
        assert_eq!(push(2 * FIRST_STEPS - 1), 2 * FIRST_STEPS - 1);
        assert_eq!(push(1 + 4 * FIRST_STEPS), 0);
        assert_eq!(push(MOST_STEPS - 1), MOST_STEPS - 1);
        assert_eq!(push(1 + MOST_STEPS), 0);
        read(&queue, &things).unwrap();
    }
}

#[test]
fn devices_without_graphs_or_graph_updates_execute_equally() {
    let (expected, _) = ten_steps(diary(), false, 30);
    let (found, graphs) = ten_steps(Diary { can_record: false, ..diary() }, true, 30);
    assert_eq!((found, graphs.replayed), (expected.clone(), 0));
    let (found, graphs) = ten_steps(Diary { can_amend: false, ..diary() }, true, 30);
    assert_eq!(found, expected);
    assert!(graphs.recorded <= MOST_GRAPHS as u64 + u64::from(MOST_REFUSALS), "{graphs:?}");
}

#[test]
fn reused_addresses_are_distinguished_from_freed_blocks() {
    let (queue, mut things) = (Queue::new(Arc::new(diary()), true), things());
    for round in 0..5 {
        // The memory is freed; new memory may get the same address.
        things.memory = (0..8).map(|i| Arc::new(Number(10 * round + i))).collect();
        things.train(&queue, 8, 0, 0);
    }
    let places: Vec<u64> = ran(&queue).iter().filter(|(f, _)| *f < 1000).map(|(_, a)| a[0] / 1000).collect();
    let expected: Vec<u64> = (0..5).flat_map(|round| (0..8).map(move |i| 10 * round + i)).collect();
    assert_eq!(places, expected);
}

#[test]
fn only_accesses_to_memory_of_queued_steps_flush_the_queue() {
    let (queue, things) = (Queue::new(Arc::new(diary()), true), things());
    let arguments: Arguments<Number> = [Argument::Pointer(things.place(0))].into_iter().collect();
    queue.push(Step::Launch { function: things.functions[0].clone(), grid: GRID, arguments }).unwrap();
    queue.write(&things.place(1), &[0]).unwrap();
    read(&queue, &things).unwrap();
    let order: Vec<u32> = ran(&queue).into_iter().map(|(function, _)| function).collect();
    assert_eq!(order, [3000, 0, 4000]);
}

#[test]
fn a_failed_queued_step_fails_all_later_reads() {
    let (queue, things) = (Queue::new(Arc::new(Diary { is_broken: true, ..diary() }), true), things());
    things.train(&queue, 2, 0, 0);
    for _ in 0..2 {
        let error = read(&queue, &things).unwrap_err();
        assert!(error.to_string().contains("is broken"), "{error}");
        assert!(queue.synchronize().is_err());
    }
}

#[test]
fn a_driver_panic_is_an_error_without_deadlock() {
    let (queue, things) = (Queue::new(Arc::new(Diary { panics: true, ..diary() }), true), things());
    things.train(&queue, 2, 0, 0);
    for _ in 0..2 {
        let error = read(&queue, &things).unwrap_err();
        assert!(error.to_string().contains("a panic ended"), "{error}");
    }
}

#[test]
fn an_idle_device_is_given_a_run_immediately() {
    let (queue, things) = (Queue::new(Arc::new(diary()), true), things());
    let seen = || queue.driver.ran.lock().unwrap().len();
    things.train(&queue, 2, 0, 0);
    assert_eq!(seen(), 3);
    for round in 0..20 {
        kiln_ir::block_on(queue.synchronize().unwrap()).unwrap();
        let before = seen();
        things.train(&queue, 2, round, 0);
        assert_eq!(seen() - before, 3, "round {round}");
        things.train(&queue, 2, round, 0);
    }
}

#[test]
fn steps_of_each_thread_execute_in_order() {
    let queue = Queue::new(Arc::new(diary()), true);
    let things = things();
    let (threads, rounds) = (4, 300);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (queue, things) = (&queue, &things);
            scope.spawn(move || {
                for round in 0..rounds {
                    let arguments = [Argument::Word((round as u64).to_le_bytes())].into_iter().collect();
                    let function = things.functions[thread].clone();
                    queue.push(Step::Launch { function, grid: GRID, arguments }).unwrap();
                    match round % 50 {
                        20 => queue.submit(),
                        49 => queue.drain().unwrap(),
                        _ => {}
                    }
                }
            });
        }
    });
    let ran = ran(&queue);
    for thread in 0..threads as u32 {
        let own = ran.iter().filter(|(function, _)| *function == thread).map(|(_, words)| words[0]);
        assert!(own.eq(0..rounds as u64), "thread {thread}");
    }
}

/// Queues launches of one function over the given read and written tensors. Returns the number of launches in each
/// executed step.
fn joined(launches: &[(usize, usize)], between: Option<usize>) -> Vec<usize> {
    const JOINED: u32 = 77;
    let (queue, things) = (Queue::new(Arc::new(diary()), true), things());
    let make = |sets| {
        assert_eq!(sets, joint::MOST);
        Some(Arc::new(Number(JOINED)))
    };
    let function = things.functions[0].clone();
    let joint = Arc::new(Joint::new(function.clone(), [false, true].into_iter().collect(), make).unwrap());
    let memory: Vec<Arc<Number>> = (0..100).map(|number| Arc::new(Number(number))).collect();
    for (number, &(from, to)) in launches.iter().enumerate() {
        if between == Some(number) {
            queue.push(Step::Fill { to: things.place(0), bytes: 4, value: 0 }).unwrap();
        }
        let place = |at: usize| Argument::Pointer(DevicePtr::new(memory[at].clone(), 0));
        let arguments = [place(from), place(to)].into_iter().collect();
        let grid = Grid { blocks: number + 1, ..GRID };
        queue
            .push_joint(Step::Launch { function: function.clone(), grid, arguments }, &joint, || None)
            .unwrap();
    }
    let count = |(function, arguments): (u32, Vec<u64>)| match function {
        JOINED => {
            let (places, firsts) = arguments.split_at(2 * joint::MOST);
            assert_eq!(firsts.len(), joint::MOST - 1);
            // Unused sets equal the first one, and begin after the last block.
            let is_first = |set: &[u64]| set == &places[..2];
            let count = places.chunks(2).skip(1).position(is_first).map_or(joint::MOST, |others| others + 1);
            assert!(firsts[..count - 1].is_sorted_by(|a, b| a < b), "{firsts:?}");
            assert!(firsts[count - 1..].iter().all(|first| Some(first) == firsts.last()), "{firsts:?}");
            count
        }
        1000 => 0,
        _ => 1,
    };
    ran(&queue).into_iter().map(count).collect()
}

#[test]
fn independent_launches_are_fused_horizontally() {
    let apart: Vec<(usize, usize)> = (0..40).map(|i| (i, 50 + i)).collect();
    assert_eq!(joined(&apart[..3], None), [1, 1, 1], "too few");
    assert_eq!(joined(&apart[..5], None), [5]);
    assert_eq!(joined(&apart, None), [16, 16, 8]);
    assert_eq!(joined(&apart[..10], Some(4)), [4, 0, 6], "a launch in between ends a group");
    // Each launch writes where it reads, as parameter updates do.
    let in_place: Vec<(usize, usize)> = (0..6).map(|i| (i, i)).collect();
    assert_eq!(joined(&in_place, None), [6]);
    // All launches read the same tensor.
    let same: Vec<(usize, usize)> = (0..6).map(|i| (0, 1 + i)).collect();
    assert_eq!(joined(&same, None), [6]);
}

#[test]
fn dependent_launches_are_not_fused() {
    let chain: Vec<(usize, usize)> = (0..8).map(|i| (i, i + 1)).collect();
    assert_eq!(joined(&chain, None), [1; 8]);
    let overwritten: Vec<(usize, usize)> = (0..8).map(|i| (i + 1, i)).collect();
    assert_eq!(joined(&overwritten, None), [1; 8]);
    let written_twice: Vec<(usize, usize)> = (0..8).map(|i| (i, 50)).collect();
    assert_eq!(joined(&written_twice, None), [1; 8]);
    // The fifth launch reads the first one's result.
    let late = [(0, 50), (1, 51), (2, 52), (3, 53), (50, 54), (5, 55), (6, 56), (7, 57), (8, 58)];
    assert_eq!(joined(&late, None), [4, 5]);
}

#[test]
fn launches_that_cannot_be_fused_run_separately() {
    let (queue, things) = (Queue::new(Arc::new(diary()), true), things());
    let function = things.functions[0].clone();
    let joint = Joint::new(function.clone(), [true].into_iter().collect(), |_| None).unwrap();
    let joint = Arc::new(joint);
    for number in 0..6 {
        let arguments = [Argument::Pointer(things.place(number))].into_iter().collect();
        let step = Step::Launch { function: function.clone(), grid: GRID, arguments };
        queue.push_joint(step, &joint, || None).unwrap();
    }
    let numbers: Vec<u64> = ran(&queue).into_iter().map(|(_, arguments)| arguments[0] / 1000).collect();
    assert_eq!(numbers.len(), 6);
    assert!(numbers.is_sorted(), "{numbers:?}");
    let many = core::iter::repeat_n(false, 200).collect();
    assert!(Joint::<Diary>::new(function, many, |_| None).is_none(), "too many arguments");
}
