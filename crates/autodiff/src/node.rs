//! The tape: nodes that own their parents.

use crate::block::Block;
use crate::layer::Autodiff;
use crate::recompute::Recompute;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::mem;
use kiln_ir::{DType, Op, Scalar, TensorType, Value};
use smallvec::SmallVec;

/// The id of a tape node, unique among all threads and layers of the process. Later nodes have greater ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(u64);

/// One recorded op, block or leaf.
pub(crate) struct Node {
    pub(crate) id: NodeId,
    /// The node of each operand; `None` for operands without a gradient.
    pub(crate) parents: Parents,
    pub(crate) kind: NodeKind,
}

pub(crate) type Parents = SmallVec<[Option<Edge>; 2]>;

/// One result of a node.
#[derive(Clone)]
pub(crate) struct Edge {
    pub(crate) node: Arc<Node>,
    pub(crate) output: u32,
}

#[derive(Clone)]
pub(crate) enum NodeKind {
    /// A value that requires a gradient, with the number of its device where the engine stands for several.
    Leaf(Option<usize>),
    Op(Recorded),
    Block(Block),
    /// A value from another engine: the layer that recorded the parent.
    Transfer(Autodiff),
    /// A value from another device of the same engine: its number.
    Move(usize),
}

/// A recorded op with the saved tensors of its gradient rule.
#[derive(Clone)]
pub(crate) struct Recorded {
    pub(crate) op: Op,
    pub(crate) inputs: SmallVec<[SavedTensor; 2]>,
    pub(crate) outputs: SmallVec<[SavedTensor; 1]>,
}

/// A saved operand or result.
#[derive(Clone)]
pub(crate) enum SavedTensor {
    Scalar(Scalar),
    /// The gradient rule reads only its type.
    Type(PackedType),
    Value(Value),
    /// Recomputed on demand.
    Recompute(Arc<Recompute>),
}

/// A tensor's type in compact form: tapes hold many.
#[derive(Clone)]
pub(crate) enum PackedType {
    Small { dtype: DType, rank: u8, lengths: [u32; MAX_PACKED] },
    Large(Box<TensorType>),
}

/// The maximum rank of the packed form.
const MAX_PACKED: usize = 4;

impl PackedType {
    #[inline]
    pub(crate) fn new(ty: &TensorType) -> PackedType {
        let mut lengths = [0; MAX_PACKED];
        if ty.rank() > MAX_PACKED {
            return PackedType::Large(Box::new(*ty));
        }
        for (packed, &length) in lengths.iter_mut().zip(ty.shape.iter()) {
            let Ok(length) = u32::try_from(length) else { return PackedType::Large(Box::new(*ty)) };
            *packed = length;
        }
        PackedType::Small { dtype: ty.dtype, rank: ty.rank() as u8, lengths }
    }

    pub(crate) fn unpack(&self) -> TensorType {
        match self {
            PackedType::Large(ty) => **ty,
            PackedType::Small { dtype, rank, lengths } => {
                let lengths = lengths.map(|length| length as usize);
                TensorType::new(&lengths[..*rank as usize], *dtype)
            }
        }
    }
}

impl Node {
    #[inline]
    pub(crate) fn new(parents: Parents, kind: NodeKind) -> Arc<Node> {
        let id = NodeId::next();
        #[cfg(feature = "std")]
        kiln_ir::profile::record_node(id.0);
        Arc::new(Node { id, parents, kind })
    }

    pub(crate) fn num_outputs(&self) -> usize {
        match &self.kind {
            NodeKind::Leaf(_) | NodeKind::Transfer(_) | NodeKind::Move(_) => 1,
            NodeKind::Op(recorded) => recorded.outputs.len(),
            NodeKind::Block(block) => block.outputs.len(),
        }
    }

    /// The contents: moved out if this is the only owner, otherwise shared.
    pub(crate) fn open(node: Arc<Node>) -> (NodeId, Parents, NodeKind) {
        match Arc::try_unwrap(node) {
            Ok(mut node) => {
                let kind = mem::replace(&mut node.kind, NodeKind::Leaf(None));
                (node.id, mem::take(&mut node.parents), kind)
            }
            Err(node) => (node.id, node.parents.clone(), node.kind.clone()),
        }
    }
}

impl Drop for Node {
    /// A tape can be hundreds of thousands of nodes deep, so parents are freed in a loop, not by recursion.
    fn drop(&mut self) {
        let mut doomed: Vec<Parents> = Vec::new();
        release(&mut self.parents, &mut doomed);
        while let Some(mut parents) = doomed.pop() {
            release(&mut parents, &mut doomed);
        }

        /// Releases parents. Appends the parents of nodes without another owner to `doomed`, for the caller to release.
        fn release(parents: &mut Parents, doomed: &mut Vec<Parents>) {
            for edge in parents.iter_mut() {
                if let Some(mut node) = edge.take().and_then(|edge| Arc::into_inner(edge.node))
                    && !node.parents.is_empty()
                {
                    doomed.push(mem::take(&mut node.parents));
                }
            }
        }
    }
}

impl NodeId {
    /// The id as a number, for the profiler.
    #[cfg(feature = "std")]
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    #[cfg(target_has_atomic = "64")]
    fn next() -> NodeId {
        use core::sync::atomic::{AtomicU64, Ordering};
        static NEXT: AtomicU64 = AtomicU64::new(0);
        NodeId(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    #[cfg(not(target_has_atomic = "64"))]
    fn next() -> NodeId {
        static NEXT: spin::Mutex<u64> = spin::Mutex::new(0);
        let mut next = NEXT.lock();
        *next += 1;
        NodeId(*next)
    }
}
