//! The fusion layer: an engine that records ops and runs fused plans.

use crate::cache::{Plans, Programs};
use crate::check::Comparisons;
use crate::lazy::{Lazy, into_inner};
use crate::limits::Limits;
use crate::lock::Mutex;
use crate::loops::Bodies;
use crate::mode::Mode;
use crate::plan::{Plan, Planner, Structure};
use crate::queue::Queue;
use crate::speculative_run::PlanPredictor;
#[cfg(feature = "std")]
use crate::threads::ThreadQueues;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use kiln_ir::{
    BoxFuture, Caps, Engine, Expand, IMMEDIATE, Op, OpSet, Operand, OperandType, Operands, Result,
    TensorData, TensorType, Value, Values, expand_values, pass_async, poison_of, poisoned,
};

/// An engine that records ops lazily and runs them as fused plans on the engine below.
///
/// Cheap to clone; clones share queues and plans. See the [crate](crate) for how it works.
#[derive(Clone)]
pub struct Fusion {
    shared: Arc<Shared>,
    #[cfg(feature = "std")]
    queues: Arc<ThreadQueues>,
}

/// The state that the queues and the clones of the layer share.
pub(crate) struct Shared {
    pub(crate) inner: Arc<dyn Engine>,
    /// The ops that the device's engine runs natively. [`Expand`] below reports every op as native.
    native: OpSet,
    /// The planner's limits for the machine and these ops.
    pub(crate) limits: Limits,
    pub(crate) mode: Mode,
    pub(crate) counters: Counters,
    /// Those of [`Mode::Check`].
    pub(crate) comparisons: Comparisons,
    plans: Mutex<Plans>,
    pub(crate) predictor: Mutex<PlanPredictor>,
    programs: Mutex<Programs>,
    pub(crate) bodies: Mutex<Bodies>,
    queues: Mutex<Vec<Weak<Queue>>>,
}

/// Event counters of the layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Ops that were recorded.
    pub ops_recorded: u64,
    /// Plans made on a cache miss, including derived plans.
    pub plans_made: u64,
    /// Plans that were derived from plans for other dim lengths.
    pub plans_derived: u64,
    /// Plans found in the cache or confirmed from a prediction.
    pub plans_found: u64,
    /// The size of the cached plans in bytes.
    pub plan_bytes: u64,
    /// Executed steps of plans: single ops and fused regions, views included.
    pub steps_run: u64,
    /// Fused regions among them.
    pub regions_run: u64,
    /// Ops that ran as part of regions, including views that a kernel folds and recomputed constants.
    pub ops_fused: u64,
    /// Steps that ran speculatively, of correctly predicted plans.
    pub steps_early: u64,
    /// Steps that ran speculatively for mispredicted plans: their work was wasted.
    pub steps_lost: u64,
    /// Bodies of loops that were planned: one for each distinct body.
    pub bodies_planned: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) ops_recorded: AtomicUsize,
    pub(crate) plans_made: AtomicUsize,
    pub(crate) plans_derived: AtomicUsize,
    pub(crate) plans_found: AtomicUsize,
    pub(crate) steps_run: AtomicUsize,
    pub(crate) regions_run: AtomicUsize,
    pub(crate) ops_fused: AtomicUsize,
    pub(crate) steps_early: AtomicUsize,
    pub(crate) steps_lost: AtomicUsize,
    pub(crate) bodies_planned: AtomicUsize,
}

impl Fusion {
    /// Creates a layer around an engine, in the mode that the environment selects.
    ///
    /// # Panics
    /// When `KILN_FUSION` or `KILN_PLAN_CACHE_BYTES` has a value that is not accepted.
    pub fn new(inner: Arc<dyn Engine>) -> Fusion {
        Fusion::with_mode(inner, Mode::from_environment())
    }

    /// Creates a layer around an engine, in the given mode.
    ///
    /// # Panics
    /// When `KILN_PLAN_CACHE_BYTES` is not a number.
    pub fn with_mode(inner: Arc<dyn Engine>, mode: Mode) -> Fusion {
        let native = native_engine(&inner).caps().native.intersection(inner.caps().native);
        let limits = Limits::of_engine(&inner.caps().machine, native);
        Fusion::with_limits(inner, mode, native, limits)
    }

    /// A layer that plans as `shared` does, around an engine that records the steps of its plans.
    pub(crate) fn planning(shared: &Shared, recorder: Arc<dyn Engine>) -> Fusion {
        let limits = Limits { speculates: false, ..shared.limits };
        Fusion::with_limits(recorder, Mode::On, shared.native, limits)
    }

    fn with_limits(inner: Arc<dyn Engine>, mode: Mode, native: OpSet, limits: Limits) -> Fusion {
        let shared = Shared {
            native,
            limits,
            inner,
            mode,
            counters: Counters::default(),
            comparisons: Comparisons::default(),
            plans: Mutex::default(),
            predictor: Mutex::default(),
            programs: Mutex::default(),
            bodies: Mutex::default(),
            queues: Mutex::default(),
        };
        Fusion {
            shared: Arc::new(shared),
            #[cfg(feature = "std")]
            queues: Arc::default(),
        }
    }

    /// Returns the engine below.
    pub fn inner(&self) -> &Arc<dyn Engine> {
        &self.shared.inner
    }

    /// Returns the mode.
    pub fn mode(&self) -> Mode {
        self.shared.mode
    }

    /// Returns the event counters so far.
    pub fn statistics(&self) -> Statistics {
        let counters = &self.shared.counters;
        let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed) as u64;
        Statistics {
            ops_recorded: of(&counters.ops_recorded),
            plans_made: of(&counters.plans_made),
            plans_derived: of(&counters.plans_derived),
            plans_found: of(&counters.plans_found),
            plan_bytes: self.shared.plans.lock().bytes() as u64,
            steps_run: of(&counters.steps_run),
            regions_run: of(&counters.regions_run),
            ops_fused: of(&counters.ops_fused),
            steps_early: of(&counters.steps_early),
            steps_lost: of(&counters.steps_lost),
            bodies_planned: of(&counters.bodies_planned),
        }
    }

    /// Sets the maximum size of cached plans in bytes, and evicts the least recently used plans above it. The newest plan
    /// and the template of the newest shapes stay, however large they are. Default: `KILN_PLAN_CACHE_BYTES`, or 384 MiB.
    ///
    /// A plan of 1,500 ops takes about 0.8 MiB for each set of shapes. A program that cycles through more shapes than the
    /// limit holds derives a plan in each step.
    pub fn set_plan_limit(&self, bytes: usize) {
        self.shared.plans.lock().set_limit(bytes);
    }

    /// Explains which kernels computed a value and why their regions ended. Runs pending ops.
    pub fn explain(&self, value: &Value) -> String {
        crate::explain::explain(value)
    }

    /// Runs all pending ops of this thread.
    pub fn flush(&self) {
        self.queue().flush();
    }

    #[cfg(feature = "std")]
    fn queue(&self) -> Arc<Queue> {
        self.queues.of_this_thread(|| self.new_queue())
    }

    #[cfg(not(feature = "std"))]
    fn queue(&self) -> Arc<Queue> {
        if let Some(queue) = self.shared.queues.lock().iter().find_map(Weak::upgrade) {
            return queue;
        }
        self.new_queue()
    }

    fn new_queue(&self) -> Arc<Queue> {
        let queue = Arc::new(Queue::new(self.shared.clone()));
        let mut queues = self.shared.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(&queue));
        queue
    }

    fn flush_all(&self) {
        let queues: Vec<Arc<Queue>> = self.shared.queues.lock().iter().filter_map(Weak::upgrade).collect();
        for queue in queues {
            queue.flush();
        }
    }

    /// Records the ops of an op's expansion if the op is a [custom op that is only an
    /// expression](kiln_ir::CustomOp::is_expression), or if the layer below would expand it. `None` for any other op.
    #[inline]
    fn expression(&self, op: &Op, inputs: &Operands, results: &[TensorType]) -> Option<Values> {
        if self.shared.native.contains(op.kind()) && !matches!(op, Op::Custom(_)) {
            return None;
        }
        let stands_for_others = if let Op::Custom(custom) = op {
            custom.is_expression()
        } else {
            let is_asked = !matches!(op, Op::Fused(_) | Op::Loop(_) | Op::Collective(_));
            is_asked && !supports_natively(&self.shared.inner, op, &OperandType::list(inputs))
        };
        if stands_for_others { expand_values(self, op, inputs, results) } else { None }
    }

    /// Records an op, or runs it if it must not be deferred.
    #[inline]
    fn defer(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        if runs_at_once(op) {
            return self.execute_now(op, inputs, results);
        }
        self.shared.counters.ops_recorded.fetch_add(1, Ordering::Relaxed);
        self.queue().record(op, inputs, results)
    }

    fn execute_now(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let mut forced = Operands::new();
        for operand in inputs {
            forced.push(match operand {
                Operand::Value(value) => into_inner(value).into(),
                Operand::Scalar(scalar) => scalar.into(),
            });
        }
        self.shared.inner.execute(op, forced, results)
    }
}

/// The engine that runs ops natively: the engine inside [`Expand`], if there is one.
fn native_engine(inner: &Arc<dyn Engine>) -> &dyn Engine {
    inner.find::<Expand>().map_or(&**inner, |layer| &**layer.inner())
}

/// Whether an op outside the sets runs without being expanded.
pub(crate) fn supports_natively(inner: &Arc<dyn Engine>, op: &Op, operands: &[OperandType<'_>]) -> bool {
    inner.supports(op, operands) && native_engine(inner).supports(op, operands)
}

/// Whether an op must not be deferred. A plan publishes its values only at its end, so that two threads whose
/// collectives or custom ops depend on each other could deadlock.
fn runs_at_once(op: &Op) -> bool {
    if matches!(op, Op::Fused(_) | Op::Loop(_)) {
        return op.kinds_inside().iter().any(|kind| kind.info().is(IMMEDIATE));
    }
    op.is(IMMEDIATE)
}

impl Shared {
    /// Marks a plan as recently used and counts the cache hit.
    pub(crate) fn found(&self, plan: Arc<Plan>) -> Arc<Plan> {
        self.plans.lock().touch(&plan);
        self.counters.plans_found.fetch_add(1, Ordering::Relaxed);
        plan
    }

    /// The plan of a structure: cached, or newly made.
    pub(crate) fn plan(&self, hash: u64, structure: Structure) -> Arc<Plan> {
        let known = self.plans.lock().find(hash, &structure);
        if let Some(plan) = known {
            return self.found(plan);
        }
        self.counters.plans_made.fetch_add(1, Ordering::Relaxed);
        self.make(hash, Planner::new(structure, self.limits))
    }

    /// Makes the plan of a recording and caches it: derived from a template for other lengths, or planned from scratch.
    fn make(&self, hash: u64, mut planner: Planner) -> Arc<Plan> {
        let templates =
            planner.signature().map_or_else(Vec::new, |signature| self.plans.lock().templates(signature));
        for template in templates {
            match planner.derive(&template) {
                Ok(plan) => {
                    self.counters.plans_derived.fetch_add(1, Ordering::Relaxed);
                    if self.mode == Mode::Check {
                        plan.compare_with_full();
                    }
                    return self.keep(hash, plan);
                }
                Err(same) => planner = *same,
            }
        }
        let (plan, template) = planner.plan();
        let plan = self.keep(hash, plan);
        if let Some(template) = template {
            self.plans.lock().add_template(Arc::new(template(plan.clone())));
        }
        plan
    }

    fn keep(&self, hash: u64, mut plan: Plan) -> Arc<Plan> {
        plan.share(&mut self.programs.lock());
        plan.hash = hash;
        let plan = Arc::new(plan);
        self.plans.lock().add(plan.clone());
        plan
    }
}

impl Engine for Fusion {
    fn caps(&self) -> &Caps {
        self.shared.inner.caps()
    }

    fn execute(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        #[cfg(feature = "std")]
        if kiln_ir::profile::counts(op) {
            return kiln_ir::profile::counted(self, op, inputs, results);
        }
        if !op.stops_poison()
            && let Some(error) = poison_of(&inputs)
        {
            // A poisoned operand of a region poisons only the results that depend on it.
            if let Op::Fused(region) = op {
                return region.program().run_region(self, inputs);
            }
            return poisoned(results, &error);
        }
        if self.shared.mode == Mode::Off {
            return self.execute_now(op, inputs, results);
        }
        if let Some(values) = self.expression(op, &inputs, results) {
            return values;
        }
        if let Op::Loop(looped) = op {
            return self.defer(&Op::Loop(self.shared.with_fused_body(looped)), inputs, results);
        }
        self.defer(op, inputs, results)
    }

    fn execute_async(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> BoxFuture<'_, Values> {
        #[cfg(feature = "std")]
        if kiln_ir::profile::counts(op) {
            return kiln_ir::profile::counted_async(self, op, inputs, results);
        }
        pass_async(self, &*self.shared.inner, op, inputs, results)
    }

    fn write(&self, data: TensorData) -> Value {
        self.shared.inner.write(data)
    }

    fn read(&self, value: Value) -> BoxFuture<'_, Result<TensorData>> {
        let value = into_inner(value);
        let shared = &self.shared;
        Box::pin(async {
            if shared.mode == Mode::Check {
                shared.comparisons.verify(&*shared.inner).await?;
            }
            shared.inner.read(value).await
        })
    }

    fn below(&self) -> Option<&dyn Engine> {
        Some(&*self.shared.inner)
    }

    /// Runs the pending ops that the value depends on.
    fn lower(&self, value: Value) -> Value {
        into_inner(value)
    }

    /// Returns a pending value itself: the query must not run it.
    fn saved_for_backward(&self, op: &Op, place: usize, value: &Value) -> Value {
        let ready = match Lazy::of(value) {
            Some(cell) => cell.ready.get(),
            None => Some(value),
        };
        match ready.map(|ready| (ready, self.shared.inner.saved_for_backward(op, place, ready))) {
            Some((ready, kept)) if !kept.same(ready) => kept,
            Some(_) | None => value.clone(),
        }
    }

    fn outcome(&self, value: &Value) -> Option<Result<()>> {
        match Lazy::of(value) {
            Some(cell) => self.shared.inner.outcome(cell.ready.get()?),
            None => self.shared.inner.outcome(value),
        }
    }

    /// That of a pending value is not known: the query must not run it.
    fn device_of(&self, value: &Value) -> Option<usize> {
        match Lazy::of(value) {
            Some(cell) => self.shared.inner.device_of(cell.ready.get()?),
            None => self.shared.inner.device_of(value),
        }
    }

    fn submit(&self) {
        if self.shared.mode != Mode::Off {
            self.queue().submit();
        }
        self.shared.inner.submit();
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.flush_all();
        Box::pin(async { self.shared.inner.sync().await })
    }

    /// Explains a value of this layer. A value that the layer did not record is explained by the engine below.
    fn explain(&self, value: &Value) -> Option<String> {
        let below = if Lazy::of(value).is_none() { self.shared.inner.explain(value) } else { None };
        Some(below.unwrap_or_else(|| Fusion::explain(self, value)))
    }
}
