//! Submission of a run of queued steps: one launch each, or a cached CUDA graph of the same launch sequence.

use super::GraphUse;
use crate::driver::{
    Argument, Arguments, Attend, Attention, Convolution, Convolve, DevicePtr, Driver, EpilogueForm, Fourier,
    Graph, Grid, Library, Products, Recorder, Step, Transform,
};
use crate::trace::{Label, Trace, traced};
use kiln_ir::{DType, Error, Float8, FxBuildHasher, Result};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The minimum number of steps of a run that is captured as a graph.
pub(super) const LEAST_STEPS: usize = 4;

/// The maximum number of cached forms; beyond it, the least recently used half is dropped. A training step has some ten
/// for each set of shapes.
const MOST_FORMS: usize = 4096;

/// The number of failed graph updates after which a form runs without graphs.
pub(super) const MOST_REFUSALS: u32 = 4;

/// The maximum number of graphs per form. Memory that is reused alternately has few address patterns, and each pattern
/// gets a graph that fits unchanged.
pub(super) const MOST_GRAPHS: usize = 4;

/// If more than one of this many steps would be updated, another graph is captured instead, up to the maximum.
const SELDOM: usize = 8;

/// Steps submitted together, at least one.
pub(super) struct Run<D: Driver> {
    pub(super) steps: Vec<Step<D>>,
    /// The trace labels of the last steps, while steps are traced.
    pub(super) labels: Vec<Option<Label>>,
}

/// Submits runs to the device, one at a time.
pub(super) struct Runner<D: Driver> {
    driver: Arc<D>,
    counters: Arc<Counters>,
    trace: Arc<Trace>,
    known: HashMap<Vec<Form>, GraphEntry<D>, FxBuildHasher>,
    /// The logical clock of lookups, for LRU eviction.
    clock: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    recorded: AtomicU64,
    replayed: AtomicU64,
    steps_replayed: AtomicU64,
    steps_amended: AtomicU64,
    steps_alone: AtomicU64,
}

/// The cache key of a step: the properties that the runs of one graph share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// The driver's settings; always first.
    Settings(u64),
    /// The address of the function, the grid, and the number of arguments.
    Launch(usize, Grid, usize),
    /// The number of bytes, and their value.
    Fill(usize, u8),
    /// Sizes, dtypes, 8-bit formats, layouts of the factors, and the epilogue.
    Multiply([usize; 4], [DType; 2], Option<[Float8; 2]>, [(bool, usize, usize); 2], EpilogueForm),
    /// The problem without its memory.
    Convolve(Arc<Convolution>),
    /// The problem without its memory.
    Attend(Arc<Attention>),
    /// The problem without its memory.
    Transform(Arc<Fourier>),
}

/// The cached graphs of a form.
struct GraphEntry<D: Driver> {
    /// Keeps the addresses of functions from being reused.
    _functions: Vec<Arc<D::Function>>,
    graphs: Vec<Ready<D>>,
    refusals: u32,
    /// The clock at the last use.
    used: u64,
}

/// A graph, with its current arguments.
struct Ready<D: Driver> {
    graph: Box<dyn Graph<D>>,
    arguments: Vec<SmallVec<[Past<D::Memory>; 8]>>,
}

/// A past argument of a graph. It does not keep memory alive, but its address cannot be confused with new memory.
enum Past<M> {
    Pointer(Weak<M>, usize),
    Word([u8; 8]),
}

impl Counters {
    pub(super) fn read(&self) -> GraphUse {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GraphUse {
            recorded: of(&self.recorded),
            replayed: of(&self.replayed),
            steps_replayed: of(&self.steps_replayed),
            steps_amended: of(&self.steps_amended),
            steps_alone: of(&self.steps_alone),
        }
    }
}

impl<D: Driver> Runner<D> {
    pub(super) fn new(driver: Arc<D>, counters: Arc<Counters>, trace: Arc<Trace>) -> Runner<D> {
        Runner { driver, counters, trace, known: HashMap::default(), clock: 0 }
    }

    /// Submits a run: replays its graph, or launches each step.
    ///
    /// # Errors
    /// When the device failed.
    pub(super) fn run(&mut self, run: &Run<D>) -> Result<()> {
        if self.trace.is_on() {
            return self.run_traced(&run.steps, &run.labels);
        }
        if run.steps.len() >= LEAST_STEPS && self.driver.recorder().is_some() && self.replay(&run.steps)? {
            return Ok(());
        }
        run.steps.iter().try_for_each(|step| alone(&*self.driver, &self.counters, step))?;
        self.driver.flush()
    }

    /// Launches each step alone and measures its time.
    fn run_traced(&self, steps: &[Step<D>], labels: &[Option<Label>]) -> Result<()> {
        let recorder = self.driver.recorder();
        recorder.map_or(Ok(()), Recorder::start_laps)?;
        for step in steps {
            alone(&*self.driver, &self.counters, step)?;
            recorder.map_or(Ok(()), Recorder::lap)?;
        }
        let mut times = recorder.map_or(Ok(Vec::new()), Recorder::laps)?.into_iter();
        let labels = labels.iter().cloned().chain(core::iter::repeat_with(|| None));
        self.trace.add(steps.iter().zip(labels).map(|(step, label)| {
            let known = traced(&*self.driver, step, label);
            crate::trace::Traced { ms: times.next(), ..known }
        }));
        Ok(())
    }

    /// Drops the least recently used half of all forms.
    fn forget_oldest(&mut self) {
        let mut used: Vec<u64> = self.known.values().map(|known| known.used).collect();
        used.sort_unstable();
        let middle = used[used.len() / 2];
        self.known.retain(|_, known| known.used >= middle);
    }

    /// Replays the graph of a run; `false` if it has none yet.
    fn replay(&mut self, steps: &[Step<D>]) -> Result<bool> {
        let settings = Form::Settings(self.driver.library().map_or(0, Library::settings));
        let form: Vec<Form> = [settings].into_iter().chain(steps.iter().map(Form::of)).collect();
        self.clock += 1;
        let Some(known) = self.known.get_mut(&form) else {
            if self.known.len() >= MOST_FORMS {
                self.forget_oldest();
            }
            let functions = steps.iter().filter_map(function).collect();
            let known =
                GraphEntry { _functions: functions, graphs: Vec::new(), refusals: 0, used: self.clock };
            self.known.insert(form, known);
            return Ok(false);
        };
        known.used = self.clock;
        let Some(ready) = known.fitting(&*self.driver, &self.counters, steps) else { return Ok(false) };
        // SAFETY: the graph has the arguments of these steps, which hold their memory. `alone` states why kernels and
        // matmuls stay within it.
        unsafe { ready.graph.replay(&self.driver)? };
        add(&self.counters.replayed, 1);
        add(&self.counters.steps_replayed, steps.len());
        Ok(true)
    }
}

impl<D: Driver> GraphEntry<D> {
    /// Returns a graph with the arguments of these steps: a matching graph, an updated graph if most arguments match,
    /// or a new one. `None` if the driver cannot capture or update graphs.
    fn fitting(&mut self, driver: &D, counters: &Counters, steps: &[Step<D>]) -> Option<&mut Ready<D>> {
        let others = self.graphs.iter().map(|ready| ready.others(steps)).enumerate();
        let nearest = others.min_by_key(|&(_, others)| others);
        let is_near = |others: usize| others * SELDOM <= steps.len() || self.graphs.len() >= MOST_GRAPHS;
        if let Some((place, others)) = nearest.filter(|&(_, others)| is_near(others)) {
            if others == 0 || amend(driver, counters, &mut self.graphs[place], steps) {
                return self.graphs.get_mut(place);
            }
            self.graphs.swap_remove(place);
            self.refusals += 1;
        }
        if self.refusals >= MOST_REFUSALS {
            return None;
        }
        // SAFETY: as `alone` states, for each step.
        let Some(graph) = (unsafe { driver.recorder()?.record(steps) }) else {
            self.refusals = MOST_REFUSALS;
            return None;
        };
        add(&counters.recorded, 1);
        self.graphs.push(Ready { graph, arguments: steps.iter().map(past).collect() });
        self.graphs.last_mut()
    }
}

impl<D: Driver> Ready<D> {
    /// The number of steps whose arguments differ from the graph's.
    fn others(&self, steps: &[Step<D>]) -> usize {
        steps.iter().zip(&self.arguments).filter(|(step, past)| !has(step, past)).count()
    }
}

/// Updates a graph with the arguments of these steps; `false` if an update fails, which leaves it partially updated.
fn amend<D: Driver>(driver: &D, counters: &Counters, ready: &mut Ready<D>, steps: &[Step<D>]) -> bool {
    for (place, (step, old)) in steps.iter().zip(&mut ready.arguments).enumerate() {
        if has(step, old) {
            continue;
        }
        // SAFETY: as `alone` states; the step is of the same form.
        if !unsafe { ready.graph.amend(driver, place, step) } {
            return false;
        }
        *old = past(step);
        add(&counters.steps_amended, 1);
    }
    true
}

/// Queues one step.
///
/// # Errors
/// When the device failed.
pub(super) fn alone<D: Driver>(driver: &D, counters: &Counters, step: &Step<D>) -> Result<()> {
    add(&counters.steps_alone, 1);
    let library = || {
        driver.library().ok_or_else(|| Error::unsupported(&driver.info().name, "the device has no library"))
    };
    match step {
        // SAFETY: `Gpu::launch` states why kernels stay within their memory, which the step holds.
        Step::Launch { function, grid, arguments } => unsafe { driver.launch(function, *grid, arguments) },
        Step::Fill { to, bytes, value } => driver.fill(to, *bytes, *value),
        // SAFETY: `Gpu::multiply` states why matmuls stay within their memory, which the step holds.
        Step::Multiply(products) => unsafe { library()?.multiply(products) },
        // SAFETY: `Gpu::convolve` states why convolutions stay within their memory, which the step holds.
        Step::Convolve(convolve) => unsafe { library()?.convolve(convolve) },
        // SAFETY: `Gpu::attend` states why attentions stay within their memory, which the step holds.
        Step::Attend(attend) => unsafe { library()?.attend(attend) },
        // SAFETY: `Gpu::transform` states why transforms stay within their memory, which the step holds.
        Step::Transform(transform) => unsafe { library()?.transform(transform) },
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

fn function<D: Driver>(step: &Step<D>) -> Option<Arc<D::Function>> {
    match step {
        Step::Launch { function, .. } => Some(function.clone()),
        Step::Fill { .. } | Step::Multiply(_) | Step::Convolve(_) | Step::Attend(_) | Step::Transform(_) => {
            None
        }
    }
}

/// The arguments of a step, which are not part of its form.
pub(super) fn arguments<D: Driver>(step: &Step<D>) -> Arguments<D::Memory> {
    match step {
        Step::Launch { arguments, .. } => arguments.clone(),
        Step::Fill { to, .. } => [Argument::Pointer(to.clone())].into_iter().collect(),
        Step::Multiply(products) => products.places().map(|place| Argument::Pointer(place.clone())).collect(),
        Step::Convolve(Convolve { tensors, workspace, .. }) => {
            tensors.iter().chain([workspace]).map(|place| Argument::Pointer(place.clone())).collect()
        }
        Step::Attend(Attend { tensors, workspace, .. }) => {
            tensors.iter().chain([workspace]).map(|place| Argument::Pointer(place.clone())).collect()
        }
        Step::Transform(Transform { tensors, workspace, .. }) => {
            tensors.iter().chain([workspace]).map(|place| Argument::Pointer(place.clone())).collect()
        }
    }
}

/// Whether a step has exactly these arguments.
fn has<D: Driver>(step: &Step<D>, past: &[Past<D::Memory>]) -> bool {
    let places = |places: &mut dyn Iterator<Item = &DevicePtr<D::Memory>>| {
        places.zip(past).all(|(place, old)| old.is_at(place))
    };
    match step {
        Step::Launch { arguments, .. } => arguments.iter().zip(past).all(|(argument, old)| old.is(argument)),
        Step::Fill { to, .. } => places(&mut [to].into_iter()),
        Step::Multiply(products) => places(&mut products.places()),
        Step::Convolve(Convolve { tensors, workspace, .. }) => places(&mut tensors.iter().chain([workspace])),
        Step::Attend(Attend { tensors, workspace, .. }) => places(&mut tensors.iter().chain([workspace])),
        Step::Transform(Transform { tensors, workspace, .. }) => {
            places(&mut tensors.iter().chain([workspace]))
        }
    }
}

fn past<D: Driver>(step: &Step<D>) -> SmallVec<[Past<D::Memory>; 8]> {
    arguments(step).iter().map(Past::of).collect()
}

impl<M> Past<M> {
    fn of(argument: &Argument<M>) -> Past<M> {
        match argument {
            Argument::Pointer(place) => Past::Pointer(Arc::downgrade(&place.memory), place.offset),
            Argument::Word(word) => Past::Word(*word),
        }
    }

    fn is(&self, argument: &Argument<M>) -> bool {
        match argument {
            Argument::Pointer(place) => self.is_at(place),
            Argument::Word(word) => matches!(self, Past::Word(old) if old == word),
        }
    }

    fn is_at(&self, place: &DevicePtr<M>) -> bool {
        let Past::Pointer(memory, offset) = self else { return false };
        core::ptr::eq(memory.as_ptr(), Arc::as_ptr(&place.memory)) && *offset == place.offset
    }
}

impl Form {
    fn of<D: Driver>(step: &Step<D>) -> Form {
        match step {
            Step::Launch { function, grid, arguments } => {
                Form::Launch(Arc::as_ptr(function).addr(), *grid, arguments.len())
            }
            Step::Fill { bytes, value, .. } => Form::Fill(*bytes, *value),
            Step::Multiply(products) => {
                let Products {
                    count, rows, columns, inner, dtype, result, float8, factors, epilogue, ..
                } = products;
                let layout = |i: usize| (factors[i].transposed, factors[i].leading_dim, factors[i].step);
                let formats = float8.as_ref().map(|float8| float8.formats);
                let sizes = [*count, *rows, *columns, *inner];
                Form::Multiply(sizes, [*dtype, *result], formats, [layout(0), layout(1)], epilogue.form())
            }
            Step::Convolve(convolve) => Form::Convolve(convolve.convolution.clone()),
            Step::Attend(attend) => Form::Attend(attend.attention.clone()),
            Step::Transform(transform) => Form::Transform(transform.fourier.clone()),
        }
    }
}
