//! The router: its members, policy and statistics, and how an op finds the member that runs it.

use crate::member::Member;
use crate::placed::{Deferred, Placed, Source};
use crate::policy::{PolicyCell, TransferPolicy};
use crate::statistics::{Counters, Statistics, TransferCounter};
use kiln_ir::{
    Caps, DTypeSet, Error, FAILS, LayerId, MINIMAL, Machine, Op, OpKind, OpSet, Operand, OperandType,
    Operands, Result, TensorType, Value, Values, Wrapped, expand_values,
};
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

/// Several engines as one: see the [crate](crate).
///
/// Cheap to clone; clones share members, policy and statistics. [`Engine::execute`](kiln_ir::Engine::execute) waits where
/// operands move to another member, as [`Engine::import`](kiln_ir::Engine::import) does.
#[derive(Clone)]
pub struct Router {
    shared: Arc<Shared>,
}

struct Shared {
    caps: Caps,
    members: RwLock<Vec<Arc<Member>>>,
    policy: PolicyCell,
    counters: Counters,
    /// Opens members that nothing needed so far.
    reserve: RwLock<Vec<Box<Open>>>,
}

/// Opens an engine when it is needed: see [`Router::with_reserve`].
type Open = dyn Fn() -> Member + Send + Sync;

/// The operands of an op on members, with their bytes.
type Located = SmallVec<[(Arc<Member>, usize); 3]>;

impl Router {
    /// A router over engines. Their numbers are their places in this list. Values that no other value decides about are on the
    /// first.
    ///
    /// # Panics
    /// Without members.
    #[track_caller]
    pub fn new(members: impl IntoIterator<Item = Member>) -> Router {
        let members: Vec<Arc<Member>> = members.into_iter().map(Arc::new).collect();
        assert!(!members.is_empty(), "[router] there are no members\n  hint: give it at least one engine");
        // Members that come later may be asynchronous.
        let machine = Machine { host_errors: false, ..Machine::processor() };
        let caps = Caps { name: "router".into(), dtypes: DTypeSet::ALL, native: OpSet::ALL, machine };
        let shared = Shared {
            caps,
            members: RwLock::new(members),
            policy: PolicyCell::default(),
            counters: Counters::default(),
            reserve: RwLock::default(),
        };
        Router { shared: Arc::new(shared) }
    }

    /// Further engines, which are opened when no member runs an op. One that is a member by then is left out.
    #[must_use]
    pub fn with_reserve(self, open: impl IntoIterator<Item = Box<Open>>) -> Router {
        self.shared.reserve.write().unwrap_or_else(PoisonError::into_inner).extend(open);
        self
    }

    /// Adds an engine, unless it is a member. Its number.
    pub fn add(&self, member: Member) -> usize {
        let place = |members: &[Arc<Member>]| {
            members.iter().position(|known| Arc::ptr_eq(known.engine(), member.engine()))
        };
        if let Some(known) = place(&self.read_members()) {
            return known;
        }
        let mut members = self.shared.members.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = place(&members) {
            return known;
        }
        members.push(Arc::new(member));
        members.len() - 1
    }

    /// The members, in the order of their numbers.
    pub fn members(&self) -> Vec<Arc<Member>> {
        self.read_members().clone()
    }

    /// When operands are transferred automatically.
    pub fn policy(&self) -> TransferPolicy {
        self.shared.policy.get()
    }

    /// Sets when operands are transferred automatically, from now on.
    pub fn set_policy(&self, policy: TransferPolicy) {
        self.shared.policy.set(policy);
    }

    /// The statistics of the router.
    pub fn statistics(&self) -> Statistics {
        let counters = &self.shared.counters;
        Statistics {
            explicit: counters.explicit.get(),
            automatic: counters.automatic.get(),
            fallbacks: counters.fallbacks.load(Ordering::Relaxed),
            expansions: counters.expansions.load(Ordering::Relaxed),
            members: self.read_members().iter().map(|member| member.statistics()).collect(),
        }
    }

    /// Sets all counts to 0.
    pub fn reset_statistics(&self) {
        self.shared.counters.reset();
        self.read_members().iter().for_each(|member| member.reset());
    }

    pub(crate) fn caps_of_all(&self) -> &Caps {
        &self.shared.caps
    }

    fn read_members(&self) -> std::sync::RwLockReadGuard<'_, Vec<Arc<Member>>> {
        self.shared.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn member(&self, number: usize) -> Option<Arc<Member>> {
        self.read_members().get(number).cloned()
    }

    pub(crate) fn number_of(&self, member: &Arc<Member>) -> Option<usize> {
        self.read_members().iter().position(|other| Arc::ptr_eq(other, member))
    }

    /// The member of values that nothing else decides about.
    pub(crate) fn first(&self) -> Arc<Member> {
        self.read_members()[0].clone()
    }
}

/// Values.
impl Router {
    pub(crate) fn id(&self) -> LayerId {
        LayerId::of_part(&self.shared)
    }

    pub(crate) fn placed<'v>(&self, value: &'v Value) -> Option<&'v Placed> {
        Wrapped::of(value, self.id())
    }

    /// The content of a value. The only clone is moved out, so that the member may overwrite it.
    pub(crate) fn open(&self, value: Value) -> std::result::Result<Placed, Value> {
        Wrapped::open(value, self.id())
    }

    /// A value of a member's engine as one of the router. Poison stays visible.
    pub(crate) fn wrap(&self, member: &Arc<Member>, value: Value) -> Value {
        if value.error().is_some() {
            return value;
        }
        Wrapped::wrap(self.id(), *value.ty(), Placed::On(member.clone(), value))
    }

    pub(crate) fn unplaced(&self, source: Source, depth: usize, types: &[TensorType]) -> Values {
        let deferred = Deferred::new(source, depth);
        let result = |(place, ty): (usize, &TensorType)| {
            Wrapped::wrap(self.id(), *ty, Placed::Unplaced(deferred.clone(), place))
        };
        types.iter().enumerate().map(result).collect()
    }

    /// The value of a member's engine: transferred, or made there.
    pub(crate) fn on(&self, value: Value, member: &Arc<Member>, counter: &TransferCounter) -> Value {
        match self.open(value) {
            Ok(Placed::On(from, inner)) if Arc::ptr_eq(&from, member) => inner,
            Ok(Placed::On(from, inner)) => transfer(&from, member, inner, counter),
            Ok(placed @ Placed::Unplaced(..)) => self.made(placed, member),
            Err(value) if value.error().is_some() => value,
            Err(value) => {
                let problem = format!("{} is a value of no member", value.ty());
                let error = Error::unsupported("router", problem);
                Value::poisoned(*value.ty(), error.hint("bring it to the router with `import`"))
            }
        }
    }

    /// The inner value of one that is on that member or on none.
    pub(crate) fn made(&self, placed: Placed, member: &Arc<Member>) -> Value {
        match placed {
            Placed::On(_, inner) => inner,
            Placed::Unplaced(deferred, place) => {
                let open = |operand: Operand, member: &Arc<Member>| self.operand_on(operand, member);
                deferred.on(member, &open).swap_remove(place)
            }
        }
    }

    pub(crate) fn operand_on(&self, operand: Operand, member: &Arc<Member>) -> Operand {
        match operand {
            Operand::Value(value) => self.on(value, member, &self.shared.counters.automatic).into(),
            Operand::Scalar(scalar) => scalar.into(),
        }
    }

    /// Moves a value by request.
    pub(crate) fn moved(&self, value: Value, member: &Arc<Member>) -> Value {
        match self.placed(&value) {
            Some(Placed::On(on, _)) if Arc::ptr_eq(on, member) => value,
            Some(_) => self.wrap(member, self.on(value, member, &self.shared.counters.explicit)),
            None => value,
        }
    }
}

/// Running ops.
impl Router {
    pub(crate) fn run(&self, op: &Op, inputs: Operands, results: &[TensorType]) -> Result<Values> {
        let Some(home) = self.home(op, &inputs)? else {
            return Ok(match self.depth_of(op, &inputs) {
                Some(depth) => {
                    let source = Source::Op(op.clone(), inputs, results.to_vec());
                    self.unplaced(source, depth, results)
                }
                None => self.run_at(&self.first(), op, inputs, results),
            });
        };
        Ok(self.run_at(&home, op, inputs, results))
    }

    /// The member of an op's operands, or where they meet; `None` where none is on a member.
    pub(crate) fn home(&self, op: &Op, inputs: &Operands) -> Result<Option<Arc<Member>>> {
        let mut home: Option<&Arc<Member>> = None;
        let mut is_apart = false;
        for operand in inputs {
            let Some(Placed::On(member, _)) = operand.value().and_then(|value| self.placed(value)) else {
                continue;
            };
            match home {
                Some(home) => is_apart |= !Arc::ptr_eq(home, member),
                None => home = Some(member),
            }
        }
        if !is_apart {
            return Ok(home.cloned());
        }
        let located = inputs.iter().filter_map(|operand| {
            let value = operand.value()?;
            let Placed::On(member, _) = self.placed(value)? else { return None };
            Some((member.clone(), value.ty().num_bytes()))
        });
        let located: Located = located.collect();
        self.policy().meeting(op, &located).map(Some)
    }

    /// For an op without placed operands, one more than the depth of these; `None` where it runs at once.
    fn depth_of(&self, op: &Op, inputs: &Operands) -> Option<usize> {
        if op.is(FAILS) || op.stops_poison() {
            return None;
        }
        let depths = inputs.iter().map(|operand| match operand {
            Operand::Scalar(_) => Some(0),
            Operand::Value(value) => match self.placed(value)? {
                Placed::Unplaced(deferred, _) => Some(deferred.depth),
                Placed::On(..) => None,
            },
        });
        let deepest = depths.collect::<Option<SmallVec<[usize; 4]>>>()?.into_iter().max().unwrap_or(0);
        (deepest < Deferred::MAX_DEPTH).then_some(deepest + 1)
    }

    fn run_at(&self, home: &Arc<Member>, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        if home.runs(op, &OperandType::list(&inputs)) {
            return self.run_on(home, op, inputs, results);
        }
        if let Some(values) = self.expanded(op, &inputs, results) {
            self.shared.counters.expansions.fetch_add(1, Ordering::Relaxed);
            return values;
        }
        let types = OperandType::list(&inputs);
        let next = if self.policy().falls_back() { self.next(home, op, &types) } else { None };
        drop(types);
        let Some(next) = next else { return self.run_on(home, op, inputs, results) };
        self.shared.counters.fallbacks.fetch_add(1, Ordering::Relaxed);
        let values = self.run_on(&next, op, inputs, results);
        values.into_iter().map(|value| self.brought_back(value, home)).collect()
    }

    /// The results in simpler ops, each of which finds its own member; `None` where there is no such form.
    fn expanded(&self, op: &Op, inputs: &Operands, results: &[TensorType]) -> Option<Values> {
        if let Op::Fused(region) = op {
            return Some(region.program().run_region(self, inputs.clone()));
        }
        let stays_whole = MINIMAL.union(OpSet::of(&[OpKind::Custom, OpKind::Collective]));
        if stays_whole.contains(op.kind()) { None } else { expand_values(self, op, inputs, results) }
    }

    /// The first member behind `home` that runs the op, around the end of the list; engines in reserve come last.
    fn next(&self, home: &Arc<Member>, op: &Op, types: &[OperandType<'_>]) -> Option<Arc<Member>> {
        let members = self.members();
        let start = members.iter().position(|member| Arc::ptr_eq(member, home))? + 1;
        let others = members.iter().cycle().skip(start).take(members.len() - 1);
        let found = others.into_iter().find(|member| member.runs(op, types)).cloned();
        found.or_else(|| self.opened(op, types))
    }

    /// The first engine in reserve that runs the op, as a member.
    fn opened(&self, op: &Op, types: &[OperandType<'_>]) -> Option<Arc<Member>> {
        let reserve = self.shared.reserve.read().unwrap_or_else(PoisonError::into_inner);
        let found = reserve.iter().map(|open| open()).find(|member| member.runs(op, types))?;
        self.member(self.add(found))
    }

    fn run_on(&self, member: &Arc<Member>, op: &Op, inputs: Operands, results: &[TensorType]) -> Values {
        let mut operands = Operands::new();
        for operand in inputs {
            operands.push(self.operand_on(operand, member));
        }
        member.count_op();
        let values = member.engine().execute(op, operands, results);
        values.into_iter().map(|value| self.wrap(member, value)).collect()
    }

    /// The result of a fallback on the member of the operands, if that can hold it.
    fn brought_back(&self, value: Value, home: &Arc<Member>) -> Value {
        if value.error().is_some() || !home.holds(value.dtype()) {
            return value;
        }
        self.wrap(home, self.on(value, home, &self.shared.counters.automatic))
    }
}

/// Brings a value of one member's engine to another's. Waits for it.
fn transfer(from: &Member, to: &Member, value: Value, counter: &TransferCounter) -> Value {
    counter.add(value.ty().num_bytes());
    to.engine().import(&**from.engine(), value)
}
