//! The backward pass.

use crate::block::Block;
use crate::gradients::Gradients;
use crate::layer::Autodiff;
use crate::node::{Edge, Node, NodeId, NodeKind, Parents, Recorded, SavedTensor};
use crate::recompute::Recomputed;
use crate::tracked::Tracked;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kiln_ir::{Engine, Error, GradientSum, LayerId, Op, Result, TensorType, Value, Var, vjp};
use smallvec::SmallVec;

/// One backward pass over the tape.
///
/// A queue holds the pending nodes by id. The newest runs first, so that all gradients of a node are complete by then.
pub(crate) struct Pass<'a> {
    /// The reached segments of the tape, the starting one first.
    segments: Vec<TapeSegment<'a>>,
    /// Creates the engine of a segment's gradients from the engine below its layer. `None`: the engine below.
    around: Option<&'a Around<'a>>,
    waiting: BTreeMap<NodeId, PendingNode>,
    gradients: Gradients,
    recomputed: Recomputed,
}

/// Wraps an engine in a layer, for [`Autodiff::pull_back_around`].
pub type Around<'a> = dyn Fn(&Arc<dyn Engine>) -> Arc<dyn Engine> + 'a;

/// A segment of the tape: the layer that recorded it, and the engine that computes its gradients.
#[derive(Clone)]
enum TapeSegment<'a> {
    Start { layer: &'a Autodiff, engine: &'a dyn Engine },
    Crossed { layer: Autodiff, engine: Arc<dyn Engine> },
}

struct PendingNode {
    node: Arc<Node>,
    /// The index of its segment.
    segment: usize,
    /// The accumulated gradient of each result.
    sums: SmallVec<[GradientSum; 1]>,
}

type Sums = SmallVec<[Option<Value>; 1]>;

impl TapeSegment<'_> {
    fn layer(&self) -> &Autodiff {
        match self {
            TapeSegment::Start { layer, .. } => layer,
            TapeSegment::Crossed { layer, .. } => layer,
        }
    }

    fn engine(&self) -> &dyn Engine {
        match self {
            TapeSegment::Start { engine, .. } => *engine,
            TapeSegment::Crossed { engine, .. } => &**engine,
        }
    }

    /// Whether gradients are values of the engine below the layer, not of another layer around it.
    fn is_plain(&self) -> bool {
        LayerId::around(self.engine()) == self.layer().id()
    }
}

impl<'a> Pass<'a> {
    /// The index of the segment where the pass starts.
    pub(crate) const START: usize = 0;

    pub(crate) fn new(
        layer: &'a Autodiff,
        engine: &'a dyn Engine,
        around: Option<&'a Around<'a>>,
    ) -> Pass<'a> {
        Pass {
            segments: Vec::from([TapeSegment::Start { layer, engine }]),
            around,
            waiting: BTreeMap::new(),
            gradients: Gradients::new(),
            recomputed: Recomputed::default(),
        }
    }

    /// Accumulates the gradient of one result of a node.
    pub(crate) fn push(&mut self, segment: usize, edge: Edge, gradient: Value) {
        let at = self.segments[segment].clone();
        self.sum(segment, &edge).add(at.engine(), gradient);
    }

    fn sum(&mut self, segment: usize, edge: &Edge) -> &mut GradientSum {
        let waiting = self.waiting.entry(edge.node.id).or_insert_with(|| PendingNode {
            segment,
            sums: core::iter::repeat_n(GradientSum::default(), edge.node.num_outputs()).collect(),
            node: edge.node.clone(),
        });
        &mut waiting.sums[edge.output as usize]
    }

    pub(crate) fn run(mut self) -> Result<Gradients> {
        #[cfg(feature = "std")]
        let _profile = kiln_ir::profile::backward();
        while let Some((_, PendingNode { node, segment, sums })) = self.waiting.pop_last() {
            let sums: Sums = sums.into_iter().map(GradientSum::into_value).collect();
            let (id, parents, kind) = Node::open(node);
            #[cfg(feature = "std")]
            if !matches!(kind, NodeKind::Leaf(_)) {
                kiln_ir::profile::backward_of(id.number());
            }
            match kind {
                NodeKind::Leaf(device) => {
                    if let Some(gradient) = sums.into_iter().flatten().next() {
                        let engine = self.segments[segment].engine();
                        let gradient = full(engine, gradient);
                        let placed = match device {
                            Some(device) => engine.to_device(gradient, device),
                            None => gradient,
                        };
                        self.gradients.insert(id, placed);
                    }
                }
                NodeKind::Op(recorded) => self.step(segment, recorded, parents, sums)?,
                NodeKind::Block(block) => self.enter(segment, block, parents, sums)?,
                NodeKind::Transfer(source) => self.cross(segment, source, parents, sums)?,
                NodeKind::Move(device) => self.move_back(segment, device, parents, sums),
            }
        }
        Ok(self.gradients)
    }

    /// Propagates the gradients of an op's results to its operands.
    fn step(&mut self, segment: usize, recorded: Recorded, parents: Parents, sums: Sums) -> Result<()> {
        let at = self.segments[segment].clone();
        let engine = at.engine();
        let Recorded { op, inputs, outputs } = recorded;
        if let (Some(Some(edge)), [Some(gradient)]) = (parents.first(), sums.as_slice())
            && GradientSum::is_part(&op)
            && self.sum(segment, edge).wants_part()
        {
            let gradient = gradient.clone();
            let index = inputs.into_iter().nth(1).map(|kept| self.restore(engine, kept).into_operand());
            self.sum(segment, edge).add_part(engine, &op, index, gradient);
            return Ok(());
        }
        let types: SmallVec<[Option<TensorType>; 2]> = inputs.iter().map(SavedTensor::ty).collect();
        let wanted: SmallVec<[bool; 4]> = parents.iter().map(Option::is_some).collect();
        let gradients: SmallVec<[Option<Var<'_>>; 1]> =
            sums.into_iter().map(|sum| sum.map(|value| Var::new(engine, value))).collect();
        let inputs: SmallVec<[Var<'_>; 2]> =
            inputs.into_iter().map(|kept| self.restore(engine, kept)).collect();
        let outputs: SmallVec<[Var<'_>; 1]> =
            outputs.into_iter().map(|kept| self.restore(engine, kept)).collect();
        let found = vjp(&op, &inputs, &outputs, &gradients, &wanted)?;
        drop((inputs, outputs, gradients));
        for ((edge, gradient), ty) in parents.into_iter().zip(found).zip(types) {
            let (Some(edge), Some(gradient)) = (edge, gradient) else { continue };
            let gradient = gradient.into_value();
            if Some(*gradient.ty()) != ty {
                let problem = format!("its rule returns a gradient of {}", gradient.ty());
                return Err(Error::gradient(op.name(), problem)
                    .hint("the gradient of an operand has the operand's type"));
            }
            self.push(segment, edge, gradient);
        }
        Ok(())
    }

    /// Recomputes a checkpointed block and continues inside it; its nodes are newer than all pending nodes.
    fn enter(&mut self, segment: usize, block: Block, parents: Parents, sums: Sums) -> Result<()> {
        let at = self.segments[segment].clone();
        let results = block.rerun(at.layer(), parents)?;
        for (result, sum) in results.into_iter().zip(sums) {
            if let (Ok(parts), Some(gradient)) = (Tracked::open(result, at.layer().id()), sum) {
                self.push(segment, parts.edge, gradient);
            }
        }
        Ok(())
    }

    /// Propagates the gradient of a value that moved between engines to the original value.
    fn cross(&mut self, segment: usize, source: Autodiff, parents: Parents, sums: Sums) -> Result<()> {
        let target = self.segment_of(source)?;
        for (edge, gradient) in parents.into_iter().flatten().zip(sums.into_iter().flatten()) {
            let (to, from) = (self.segments[target].engine(), self.segments[segment].engine());
            let gradient = to.import(from, gradient);
            self.push(target, edge, gradient);
        }
        Ok(())
    }

    /// The index of the segment of the nodes that a layer recorded.
    /// Sends the gradient of a value that moved between devices of one engine back to the one from which it came.
    fn move_back(&mut self, segment: usize, device: usize, parents: Parents, sums: Sums) {
        for (edge, gradient) in parents.into_iter().flatten().zip(sums.into_iter().flatten()) {
            let gradient = self.segments[segment].engine().to_device(gradient, device);
            self.push(segment, edge, gradient);
        }
    }

    fn segment_of(&mut self, layer: Autodiff) -> Result<usize> {
        if let Some(known) = self.segments.iter().position(|segment| segment.layer().id() == layer.id()) {
            return Ok(known);
        }
        let start = &self.segments[Pass::START];
        let engine = match self.around {
            Some(around) => around(layer.inner()),
            None if start.is_plain() => layer.inner().clone(),
            None => {
                let [from, to] = [start.engine(), &**layer.inner()].map(|engine| &engine.caps().name);
                let problem = format!(
                    "gradients of a layer around `{from}` cannot flow to `{to}`, the source of its values"
                );
                return Err(Error::gradient("backward", problem)
                    .hint("pass a layer for each engine with `Autodiff::pull_back_around`"));
            }
        };
        self.segments.push(TapeSegment::Crossed { layer, engine });
        Ok(self.segments.len() - 1)
    }

    fn restore<'e>(&mut self, engine: &'e dyn Engine, kept: SavedTensor) -> Var<'e> {
        match kept {
            SavedTensor::Scalar(scalar) => Var::new(engine, scalar),
            SavedTensor::Type(ty) => Var::new(engine, Value::absent(ty.unpack())),
            SavedTensor::Value(value) => Var::new(engine, value),
            SavedTensor::Recompute(recompute) => Var::new(engine, self.recomputed.get(engine, &recompute)),
        }
    }
}

/// The gradient of a leaf in the precision of its dtype, as optimizers require.
fn full(engine: &dyn Engine, gradient: Value) -> Value {
    if !engine.mixes_precision() {
        return gradient;
    }
    let ty = *gradient.ty();
    let operand = core::iter::once(gradient.into()).collect();
    engine.execute(&Op::Cast(ty.dtype), operand, &[ty]).remove(0)
}

impl SavedTensor {
    fn ty(&self) -> Option<TensorType> {
        match self {
            SavedTensor::Scalar(_) => None,
            SavedTensor::Type(ty) => Some(ty.unpack()),
            SavedTensor::Value(value) => Some(*value.ty()),
            SavedTensor::Recompute(recompute) => Some(recompute.ty),
        }
    }
}

/// Checks the seed of a pass; ones by default.
pub(crate) fn seed(engine: &dyn Engine, ty: TensorType, seed: Option<Value>) -> Result<Value> {
    // The seed belongs to the backward pass, not to the last module of the forward pass.
    #[cfg(feature = "std")]
    let _profile = kiln_ir::profile::backward();
    match seed {
        None => Ok(Var::full(engine, ty, 1.0).into_value()),
        Some(seed) if *seed.ty() == ty => Ok(seed),
        Some(seed) => Err(Error::gradient("backward", format!("a seed of {} for a root of {ty}", seed.ty()))
            .hint("the seed is the gradient of the root: pass a tensor of the root's type")),
    }
}
