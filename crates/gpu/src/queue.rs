//! How work reaches the device: each step alone, or what repeats as one graph.
//!
//! Steps wait until there are enough of them, or until something is read, written or submitted. The steps that waited
//! together are a run. A run of the same form as one before, the same functions over the same numbers of threads, is made a graph,
//! and from then on only replayed; arguments that changed since, an address or a learning rate, are amended first.

use crate::Gpu;
use crate::driver::{
    Argument, Arguments, Attend, Attention, Convolution, Convolve, Driver, Grid, Place, Products, Step,
};
use crate::memory::Block;
use crate::slim::Slim;
use crate::strided::ALIGNMENT;
use crate::trace::{Label, Trace, traced};
use kiln_ir::{DType, Error, Result};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Steps of a run at most: the device should not wait for more.
const MOST_STEPS: usize = 128;

/// Steps of a run that is worth a graph.
const LEAST_STEPS: usize = 4;

/// Forms that are kept; when there are more, all are dropped.
const MOST_FORMS: usize = 1024;

/// How often a graph may refuse to be amended before its form is given up.
const MOST_REFUSALS: u32 = 4;

/// What became of the graphs in which repeated steps are queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphUse {
    /// Graphs that were made.
    pub recorded: u64,
    /// How often one was replayed.
    pub replayed: u64,
    /// Steps that were queued by replaying.
    pub steps_replayed: u64,
    /// Steps whose arguments were amended before.
    pub steps_amended: u64,
    /// Steps that were queued alone.
    pub steps_alone: u64,
}

#[derive(Default)]
struct Counters {
    recorded: AtomicU64,
    replayed: AtomicU64,
    steps_replayed: AtomicU64,
    steps_amended: AtomicU64,
    steps_alone: AtomicU64,
}

/// The queue of one device.
pub(crate) struct Queue<D: Driver> {
    driver: Arc<D>,
    /// Whether steps wait, and repeat as graphs.
    graphs: bool,
    counters: Counters,
    pub(crate) trace: Trace,
    state: Mutex<State<D>>,
}

struct State<D: Driver> {
    waiting: Vec<Step<D>>,
    /// Of the last of the steps that wait, while they are traced.
    labels: Vec<Option<Label>>,
    /// What the last of the steps that wait is, if it is products of few rows.
    slim: Option<Slim<D::Memory>>,
    known: HashMap<Vec<Form>, Known<D>>,
    /// The first failure of steps that waited. What they were to compute is lost, and nobody knows any more what else is.
    failure: Option<Error>,
}

/// What runs of one graph have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Form {
    /// The driver's: what stands first.
    Settings(u64),
    /// The address of the function, its threads, and how many arguments it has.
    Launch(usize, Grid, usize),
    /// How many bytes, and their value.
    Fill(usize, u8),
    /// Sizes, dtypes, and how factors lie.
    Multiply([usize; 4], [DType; 2], [(bool, usize, usize); 2]),
    /// All but its memory.
    Convolve(Arc<Convolution>),
    /// All but its memory.
    Attend(Arc<Attention>),
}

/// What is known of a form.
struct Known<D: Driver> {
    /// Held, so that no other function gets the address of one.
    _functions: Vec<Arc<D::Function>>,
    graph: Option<Ready<D>>,
    refusals: u32,
}

/// A graph, with the arguments that it has.
struct Ready<D: Driver> {
    graph: D::Graph,
    arguments: Vec<SmallVec<[Past<D::Memory>; 8]>>,
}

/// An argument that a graph has. It does not keep memory from being freed, but tells it from any other all the same.
enum Past<M> {
    Place(Weak<M>, usize),
    Word([u8; 8]),
}

/// Whether `KILN_GRAPHS` in the environment leaves graphs on, as they are without it.
pub(crate) fn graphs_wanted() -> bool {
    std::env::var("KILN_GRAPHS").map_or(true, |value| !matches!(value.as_str(), "off" | "0" | "false"))
}

impl<D: Driver> Queue<D> {
    pub(crate) fn new(driver: Arc<D>, graphs: bool) -> Queue<D> {
        let state = State {
            waiting: Vec::new(),
            labels: Vec::new(),
            slim: None,
            known: HashMap::new(),
            failure: None,
        };
        Queue {
            driver,
            graphs,
            counters: Counters::default(),
            trace: Trace::from_environment(),
            state: Mutex::new(state),
        }
    }

    pub(crate) fn graphs(&self) -> GraphUse {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        GraphUse {
            recorded: of(&self.counters.recorded),
            replayed: of(&self.counters.replayed),
            steps_replayed: of(&self.counters.steps_replayed),
            steps_amended: of(&self.counters.steps_amended),
            steps_alone: of(&self.counters.steps_alone),
        }
    }

    /// Queues a step, or lets it wait for others.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn push(&self, step: Step<D>) -> Result<()> {
        self.push_labelled(step, || None)
    }

    /// As [`push`](Queue::push), with what traces say of the step.
    fn push_labelled(&self, step: Step<D>, label: impl FnOnce() -> Option<Label>) -> Result<()> {
        let is_traced = self.trace.is_on();
        if !self.graphs && !is_traced {
            return self.alone(&step);
        }
        self.with(|state| {
            state.slim = None;
            self.add(state, step, is_traced.then(label))
        })
    }

    /// Queues products of few rows. `make` is given those right before, if these wait, and says whether its step computes them
    /// too.
    ///
    /// # Errors
    /// When the device failed, or with those of `make`.
    pub(crate) fn push_slim(
        &self,
        make: impl FnOnce(Option<&Slim<D::Memory>>) -> Result<(Step<D>, Slim<D::Memory>, bool)>,
    ) -> Result<()> {
        let is_traced = self.trace.is_on();
        if !self.graphs && !is_traced {
            return self.alone(&make(None)?.0);
        }
        self.with(|state| {
            let (step, slim, has_both) = make(state.slim.take().as_ref())?;
            if has_both {
                state.waiting.pop();
                state.labels.truncate(state.waiting.len());
            }
            self.add(state, step, is_traced.then(|| Some(slim.label())))?;
            if !state.waiting.is_empty() {
                state.slim = Some(slim);
            }
            Ok(())
        })
    }

    /// Lets a step wait; with its label, while steps are traced.
    fn add(&self, state: &mut State<D>, step: Step<D>, label: Option<Option<Label>>) -> Result<()> {
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.waiting.push(step);
        if let Some(label) = label {
            state.labels.resize_with(state.waiting.len() - 1, || None);
            state.labels.push(label);
        }
        if state.waiting.len() >= MOST_STEPS { self.flush(state) } else { Ok(()) }
    }

    /// Queues what waits. A failure is that of the next who reads.
    pub(crate) fn submit(&self) {
        // It is kept.
        let _ = self.with(|state| self.flush(state));
    }

    /// Reads bytes, once everything before is done.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn read(&self, from: &Place<D::Memory>, bytes: &mut [u8]) -> Result<()> {
        self.with(|state| self.settle(state, from))?;
        self.driver.read(from, bytes)
    }

    /// Writes bytes, which nothing before sees.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn write(&self, to: &Place<D::Memory>, bytes: &[u8]) -> Result<()> {
        self.with(|state| {
            self.settle(state, to)?;
            self.driver.write(to, bytes)
        })
    }

    /// Waits until everything is done.
    ///
    /// # Errors
    /// When the device failed.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.with(|state| self.flush(state))?;
        self.driver.synchronize()?;
        self.trace.report(&self.driver.info().name);
        Ok(())
    }

    /// Queues what waits if some of it uses that memory. What does not can as well come later, so that threads which bring
    /// data do not cut the runs of others short.
    fn settle(&self, state: &mut State<D>, place: &Place<D::Memory>) -> Result<()> {
        /// The value's, and the place's own.
        const OTHERS: usize = 2;
        if state.failure.is_none() && Arc::strong_count(&place.memory) <= OTHERS {
            return Ok(());
        }
        self.flush(state)
    }

    fn flush(&self, state: &mut State<D>) -> Result<()> {
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        state.slim = None;
        let mut steps = core::mem::take(&mut state.waiting);
        let labels = core::mem::take(&mut state.labels);
        let done = if self.trace.is_on() {
            self.run_traced(&steps, labels)
        } else {
            self.run(&mut state.known, &steps)
        };
        if let Err(error) = &done {
            state.failure = Some(error.clone());
        }
        steps.clear();
        state.waiting = steps;
        done
    }

    fn run(&self, known: &mut HashMap<Vec<Form>, Known<D>>, steps: &[Step<D>]) -> Result<()> {
        if steps.len() >= LEAST_STEPS && self.replay(known, steps)? {
            return Ok(());
        }
        steps.iter().try_for_each(|step| self.alone(step))
    }

    /// Queues each step alone, and takes its time.
    fn run_traced(&self, steps: &[Step<D>], labels: Vec<Option<Label>>) -> Result<()> {
        if steps.is_empty() {
            return Ok(());
        }
        self.driver.start_laps()?;
        for step in steps {
            self.alone(step)?;
            self.driver.lap()?;
        }
        let mut times = self.driver.laps()?.into_iter();
        let labels = labels.into_iter().chain(core::iter::repeat_with(|| None));
        self.trace.add(steps.iter().zip(labels).map(|(step, label)| {
            let known = traced(&*self.driver, step, label);
            crate::trace::Traced { ms: times.next(), ..known }
        }));
        Ok(())
    }

    fn alone(&self, step: &Step<D>) -> Result<()> {
        add(&self.counters.steps_alone, 1);
        match step {
            // SAFETY: `Gpu::launch` says why kernels stay within their memory, which the step holds.
            Step::Launch { function, grid, arguments } => unsafe {
                self.driver.launch(function, *grid, arguments)
            },
            Step::Fill { to, bytes, value } => self.driver.fill(to, *bytes, *value),
            // SAFETY: `Gpu::multiply` says why products stay within their memory, which the step holds.
            Step::Multiply(products) => unsafe { self.driver.multiply(products) },
            // SAFETY: `Gpu::convolve` says why convolutions stay within their memory, which the step holds.
            Step::Convolve(convolve) => unsafe { self.driver.convolve(convolve) },
            // SAFETY: `Gpu::attend` says why attentions stay within their memory, which the step holds.
            Step::Attend(attend) => unsafe { self.driver.attend(attend) },
        }
    }

    /// Queues a run by its graph; `false` where it has none yet.
    fn replay(&self, known: &mut HashMap<Vec<Form>, Known<D>>, steps: &[Step<D>]) -> Result<bool> {
        let settings = Form::Settings(self.driver.settings());
        let form: Vec<Form> = [settings].into_iter().chain(steps.iter().map(Form::of)).collect();
        let Some(known_form) = known.get_mut(&form) else {
            if known.len() >= MOST_FORMS {
                known.clear();
            }
            let functions = steps.iter().filter_map(function).collect();
            known.insert(form, Known { _functions: functions, graph: None, refusals: 0 });
            return Ok(false);
        };
        if known_form.graph.as_mut().is_some_and(|ready| !self.amend(ready, steps)) {
            known_form.graph = None;
            known_form.refusals += 1;
        }
        if known_form.graph.is_none() && known_form.refusals < MOST_REFUSALS {
            // SAFETY: as `alone` says, for each step.
            known_form.graph = unsafe { self.driver.record(steps) }
                .map(|graph| Ready { graph, arguments: steps.iter().map(past).collect() });
            match known_form.graph {
                Some(_) => add(&self.counters.recorded, 1),
                None => known_form.refusals = MOST_REFUSALS,
            }
        }
        let Some(ready) = &mut known_form.graph else { return Ok(false) };
        // SAFETY: the graph has the arguments of these steps, which hold their memory, and `alone` says why kernels and
        // products stay within it.
        unsafe { self.driver.replay(&mut ready.graph)? };
        add(&self.counters.replayed, 1);
        add(&self.counters.steps_replayed, steps.len());
        Ok(true)
    }

    /// Gives a graph the arguments of these steps; `false` where it cannot take them, and has some of either.
    fn amend(&self, ready: &mut Ready<D>, steps: &[Step<D>]) -> bool {
        for (place, (step, old)) in steps.iter().zip(&mut ready.arguments).enumerate() {
            if has(step, old) {
                continue;
            }
            // SAFETY: as `alone` says; the step is of the same form.
            if !unsafe { self.driver.amend(&mut ready.graph, place, step) } {
                return false;
            }
            *old = past(step);
            add(&self.counters.steps_amended, 1);
        }
        true
    }

    fn with<R>(&self, body: impl FnOnce(&mut State<D>) -> R) -> R {
        body(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

fn function<D: Driver>(step: &Step<D>) -> Option<Arc<D::Function>> {
    match step {
        Step::Launch { function, .. } => Some(function.clone()),
        Step::Fill { .. } | Step::Multiply(_) | Step::Convolve(_) | Step::Attend(_) => None,
    }
}

/// All of a step that is no form.
fn arguments<D: Driver>(step: &Step<D>) -> Arguments<D::Memory> {
    match step {
        Step::Launch { arguments, .. } => arguments.clone(),
        Step::Fill { to, .. } => [Argument::Place(to.clone())].into_iter().collect(),
        Step::Multiply(products) => {
            let [a, b] = &products.factors;
            [&a.at, &b.at, &products.to].into_iter().map(|place| Argument::Place(place.clone())).collect()
        }
        Step::Convolve(Convolve { tensors, workspace, .. }) => {
            tensors.iter().chain([workspace]).map(|place| Argument::Place(place.clone())).collect()
        }
        Step::Attend(Attend { tensors, workspace, .. }) => {
            tensors.iter().chain([workspace]).map(|place| Argument::Place(place.clone())).collect()
        }
    }
}

/// Whether a step has just these arguments.
fn has<D: Driver>(step: &Step<D>, past: &[Past<D::Memory>]) -> bool {
    let places = |places: &mut dyn Iterator<Item = &Place<D::Memory>>| {
        places.zip(past).all(|(place, old)| old.is_at(place))
    };
    match step {
        Step::Launch { arguments, .. } => arguments.iter().zip(past).all(|(argument, old)| old.is(argument)),
        Step::Fill { to, .. } => places(&mut [to].into_iter()),
        Step::Multiply(products) => {
            let [a, b] = &products.factors;
            places(&mut [&a.at, &b.at, &products.to].into_iter())
        }
        Step::Convolve(Convolve { tensors, workspace, .. }) => places(&mut tensors.iter().chain([workspace])),
        Step::Attend(Attend { tensors, workspace, .. }) => places(&mut tensors.iter().chain([workspace])),
    }
}

fn past<D: Driver>(step: &Step<D>) -> SmallVec<[Past<D::Memory>; 8]> {
    arguments(step).iter().map(Past::of).collect()
}

impl<M> Past<M> {
    fn of(argument: &Argument<M>) -> Past<M> {
        match argument {
            Argument::Place(place) => Past::Place(Arc::downgrade(&place.memory), place.offset),
            Argument::Word(word) => Past::Word(*word),
        }
    }

    fn is(&self, argument: &Argument<M>) -> bool {
        match argument {
            Argument::Place(place) => self.is_at(place),
            Argument::Word(word) => matches!(self, Past::Word(old) if old == word),
        }
    }

    fn is_at(&self, place: &Place<M>) -> bool {
        let Past::Place(memory, offset) = self else { return false };
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
                let Products { count, rows, columns, inner, dtype, result, factors, .. } = products;
                let lie = |i: usize| (factors[i].transposed, factors[i].pitch, factors[i].step);
                Form::Multiply([*count, *rows, *columns, *inner], [*dtype, *result], [lie(0), lie(1)])
            }
            Step::Convolve(convolve) => Form::Convolve(convolve.convolution.clone()),
            Step::Attend(attend) => Form::Attend(attend.attention.clone()),
        }
    }
}

/// Whether tensors lie where libraries want them. Some of these find out only when they run, which loses the device.
fn aligned<M>(op: &'static str, tensors: &[Place<M>]) -> Result<()> {
    if tensors.iter().all(|place| place.offset.is_multiple_of(ALIGNMENT)) {
        return Ok(());
    }
    Err(Error::unsupported(
        op,
        format!("a library was given an address that is no multiple of {ALIGNMENT} bytes"),
    ))
}

impl<D: Driver> Gpu<D> {
    /// Queues a kernel of ours. Callers pass what the entry point takes, and memory as large as it then reads and writes:
    /// arguments are written down beside each kernel, and extents come from the layouts of the operands.
    pub(crate) fn launch(
        &self,
        function: &Arc<D::Function>,
        grid: Grid,
        arguments: Arguments<D::Memory>,
        label: impl FnOnce() -> Label,
    ) -> Result<()> {
        if grid.blocks == 0 {
            return Ok(());
        }
        let step = Step::Launch { function: function.clone(), grid, arguments };
        self.queue.push_labelled(step, || Some(label()))
    }

    /// Queues products by the vendor's library; `false` where it has none for these. Sizes, pitches and steps come from the
    /// layouts of the operands, and the result is contiguous.
    pub(crate) fn multiply(&self, products: Products<D::Memory>) -> Result<bool> {
        if !self.driver.multiplies(&products) {
            return Ok(false);
        }
        self.queue.push(Step::Multiply(products))?;
        Ok(true)
    }

    /// Queues a convolution by the vendor's library, which has an algorithm for it. The tensors are contiguous in the order of
    /// axes that the convolution says, and of its shapes; the workspace has the size that the driver asked for.
    ///
    /// # Errors
    /// When the device failed, or an address is not a multiple of [`ALIGNMENT`].
    pub(crate) fn convolve(&self, convolve: Convolve<D::Memory>) -> Result<()> {
        aligned("conv", &convolve.tensors)?;
        self.queue.push(Step::Convolve(convolve))
    }

    /// Queues an attention by the vendor's library, which has an algorithm for it. Steps are those of the tensors' layouts, and
    /// sizes those that inference checked; the workspace has the size that the driver asked for.
    ///
    /// # Errors
    /// When the device failed, or an address is not a multiple of [`ALIGNMENT`].
    pub(crate) fn attend(&self, attend: Attend<D::Memory>) -> Result<()> {
        aligned("attention", &attend.tensors)?;
        self.queue.push(Step::Attend(attend))
    }

    /// A block of at least that many bytes.
    ///
    /// # Errors
    /// When there is no room for it.
    pub(crate) fn block(&self, bytes: usize) -> Result<Block<D>> {
        self.pool.block(bytes).or_else(|_| {
            // What waits holds memory that nobody else does any more.
            self.queue.submit();
            self.pool.block(bytes)
        })
    }
}

#[cfg(test)]
mod tests;
