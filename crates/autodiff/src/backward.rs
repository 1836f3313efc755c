//! The backward pass.

use crate::block::Block;
use crate::gradients::Gradients;
use crate::layer::Autodiff;
use crate::node::{Edge, Kept, Node, NodeId, NodeKind, Parents, Recorded};
use crate::recipe::Recomputed;
use crate::tracked::Tracked;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::sync::Arc;
use kiln_ir::{Engine, Error, GradientSum, Op, Result, TensorType, Value, Var, vjp};
use smallvec::SmallVec;

/// One walk over the tape.
///
/// Nodes wait by id; the newest goes first, so that all gradients of a node have arrived when its turn comes.
pub(crate) struct Pass<'a> {
    layer: &'a Autodiff,
    /// What computes the gradients.
    engine: &'a dyn Engine,
    waiting: BTreeMap<NodeId, Waiting>,
    gradients: Gradients,
    recomputed: Recomputed,
}

struct Waiting {
    node: Arc<Node>,
    /// The gradient of each result, so far.
    sums: SmallVec<[GradientSum; 1]>,
}

type Sums = SmallVec<[Option<Value>; 1]>;

impl<'a> Pass<'a> {
    pub(crate) fn new(layer: &'a Autodiff, engine: &'a dyn Engine) -> Pass<'a> {
        Pass {
            layer,
            engine,
            waiting: BTreeMap::new(),
            gradients: Gradients::new(),
            recomputed: Recomputed::default(),
        }
    }

    /// Adds to the gradient of one result of a node.
    pub(crate) fn push(&mut self, edge: Edge, gradient: Value) {
        let engine = self.engine;
        self.sum(&edge).add(engine, gradient);
    }

    fn sum(&mut self, edge: &Edge) -> &mut GradientSum {
        let waiting = self.waiting.entry(edge.node.id).or_insert_with(|| Waiting {
            sums: core::iter::repeat_n(GradientSum::default(), edge.node.num_outputs()).collect(),
            node: edge.node.clone(),
        });
        &mut waiting.sums[edge.output as usize]
    }

    pub(crate) fn run(mut self) -> Result<Gradients> {
        while let Some((_, Waiting { node, sums })) = self.waiting.pop_last() {
            let sums: Sums = sums.into_iter().map(GradientSum::into_value).collect();
            let (id, parents, kind) = Node::open(node);
            match kind {
                NodeKind::Leaf => {
                    if let Some(gradient) = sums.into_iter().flatten().next() {
                        self.gradients.insert(id, self.full(gradient));
                    }
                }
                NodeKind::Op(recorded) => self.step(recorded, parents, sums)?,
                NodeKind::Block(block) => self.enter(block, parents, sums)?,
            }
        }
        Ok(self.gradients)
    }

    /// The gradient of a leaf in the precision of its dtype: optimizers compute with it.
    fn full(&self, gradient: Value) -> Value {
        if !self.engine.mixes_precision() {
            return gradient;
        }
        let ty = *gradient.ty();
        let operand = core::iter::once(gradient.into()).collect();
        self.engine.execute(&Op::Cast(ty.dtype), operand, &[ty]).remove(0)
    }

    /// Sends the gradients of an op's results on to its operands.
    fn step(&mut self, recorded: Recorded, parents: Parents, sums: Sums) -> Result<()> {
        let engine = self.engine;
        let Recorded { op, inputs, outputs } = recorded;
        if let (Some(Some(edge)), [Some(gradient)]) = (parents.first(), sums.as_slice())
            && GradientSum::is_part(&op)
            && self.sum(edge).wants_part()
        {
            let gradient = gradient.clone();
            let index = inputs.into_iter().nth(1).map(|kept| self.restore(kept).into_operand());
            self.sum(edge).add_part(engine, &op, index, gradient);
            return Ok(());
        }
        let types: SmallVec<[Option<TensorType>; 2]> = inputs.iter().map(Kept::ty).collect();
        let wanted: SmallVec<[bool; 4]> = parents.iter().map(Option::is_some).collect();
        let gradients: SmallVec<[Option<Var<'a>>; 1]> =
            sums.into_iter().map(|sum| sum.map(|value| Var::new(engine, value))).collect();
        let inputs: SmallVec<[Var<'a>; 2]> = inputs.into_iter().map(|kept| self.restore(kept)).collect();
        let outputs: SmallVec<[Var<'a>; 1]> = outputs.into_iter().map(|kept| self.restore(kept)).collect();
        let found = vjp(&op, &inputs, &outputs, &gradients, &wanted)?;
        drop((inputs, outputs, gradients));
        for ((edge, gradient), ty) in parents.into_iter().zip(found).zip(types) {
            let (Some(edge), Some(gradient)) = (edge, gradient) else { continue };
            let gradient = gradient.into_value();
            if Some(*gradient.ty()) != ty {
                let problem = format!("its rule gives a gradient of {}", gradient.ty());
                return Err(Error::gradient(op.name(), problem)
                    .hint("the gradient of an operand has the operand's type"));
            }
            self.push(edge, gradient);
        }
        Ok(())
    }

    /// Runs a block again and goes on inside it: its nodes are newer than all that wait.
    fn enter(&mut self, block: Block, parents: Parents, sums: Sums) -> Result<()> {
        let results = block.rerun(self.layer, parents)?;
        for (result, sum) in results.into_iter().zip(sums) {
            if let (Ok(parts), Some(gradient)) = (Tracked::open(result, self.layer.id()), sum) {
                self.push(parts.edge, gradient);
            }
        }
        Ok(())
    }

    fn restore(&mut self, kept: Kept) -> Var<'a> {
        let engine = self.engine;
        match kept {
            Kept::Scalar(scalar) => Var::new(engine, scalar),
            Kept::Type(ty) => Var::new(engine, Value::absent(ty.unpack())),
            Kept::Value(value) => Var::new(engine, value),
            Kept::Recipe(recipe) => Var::new(engine, self.recomputed.get(engine, &recipe)),
        }
    }
}

impl Kept {
    fn ty(&self) -> Option<TensorType> {
        match self {
            Kept::Scalar(_) => None,
            Kept::Type(ty) => Some(ty.unpack()),
            Kept::Value(value) => Some(*value.ty()),
            Kept::Recipe(recipe) => Some(recipe.ty),
        }
    }
}

/// The root of a pass and its seed, checked.
pub(crate) fn seed(engine: &dyn Engine, ty: TensorType, seed: Option<Value>) -> Result<Value> {
    match seed {
        None => Ok(Var::full(engine, ty, 1.0).into_value()),
        Some(seed) if *seed.ty() == ty => Ok(seed),
        Some(seed) => Err(Error::gradient("backward", format!("a seed of {} for a root of {ty}", seed.ty()))
            .hint("the seed is the gradient of the root: give it the root's type")),
    }
}
