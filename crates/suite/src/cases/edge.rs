//! Cases of collectives, custom and fused ops.

use super::{LARGE, SHAPES};
use crate::case::{Case, Fill, Grad, Input, tensor};
use kiln_ir::{
    Collective, CollectiveKind, Custom, CustomOp, DType, FusedOp, Op, OperandType, Recorder, Reduction,
    Result, ResultTypes, TensorData, TensorType, Var,
};
use smallvec::smallvec;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for shape in SHAPES.into_iter().chain(LARGE) {
        for dtype in [DType::F64, DType::F32, DType::I32] {
            cases.extend(collectives(shape, dtype));
            cases.extend(customs(shape, dtype));
            cases.extend(fused(shape, dtype));
        }
    }
    cases.retain(Case::is_valid);
    cases
}

fn sized(case: Case) -> Case {
    let elements = case.operand_types().iter().filter_map(|kind| Some(kind.tensor()?.num_elements())).max();
    if elements.unwrap_or(0) > 1000 { case.large() } else { case }
}

/// Collectives of one rank need no communication: every engine runs them.
fn collectives(shape: &[usize], dtype: DType) -> Vec<Case> {
    let mut kinds: Vec<CollectiveKind> =
        Reduction::ALL.iter().map(|&r| CollectiveKind::AllReduce(r)).collect();
    kinds.extend([CollectiveKind::Broadcast { root: 0 }, CollectiveKind::Send { to: 0, tag: 1 }]);
    if !shape.is_empty() {
        kinds.push(CollectiveKind::AllGather { axis: shape.len() - 1 });
        kinds.push(CollectiveKind::ReduceScatter { reduction: Reduction::Sum, axis: 0 });
    }
    let case = |kind: CollectiveKind| {
        let op = Op::Collective(Collective { kind, group: 1, rank: 0, size: 1 });
        let grad = match kind {
            CollectiveKind::AllReduce(Reduction::Sum)
            | CollectiveKind::AllGather { .. }
            | CollectiveKind::ReduceScatter { .. }
            | CollectiveKind::Broadcast { .. } => Grad::Smooth,
            CollectiveKind::AllReduce(Reduction::Prod | Reduction::Min | Reduction::Max) => Grad::Piecewise,
            CollectiveKind::Send { .. } | CollectiveKind::Recv { .. } => {
                Grad::None("messages carry no gradient back")
            }
        };
        let label = match kind {
            CollectiveKind::AllReduce(reduction) => reduction.name(),
            CollectiveKind::AllGather { .. }
            | CollectiveKind::ReduceScatter { .. }
            | CollectiveKind::Broadcast { .. }
            | CollectiveKind::Send { .. }
            | CollectiveKind::Recv { .. } => "alone",
        };
        sized(Case::new(op, vec![tensor(shape, dtype, Fill::Away)]).label(label).grad(grad))
    };
    kinds.into_iter().map(case).collect()
}

fn customs(shape: &[usize], dtype: DType) -> Vec<Case> {
    let input = || vec![tensor(shape, dtype, Fill::Away)];
    let cubed = |rule: bool| {
        let label = if rule { "own_gradient" } else { "gradient_of_expansion" };
        let op = Op::Custom(Custom::new(CubedOp { rule }));
        sized(Case::new(op, input()).label(label).near(4.0, 0.0).grad(Grad::Smooth))
    };
    let host = Op::Custom(Custom::new(HostSquare));
    let no_gradient = Grad::None("it has neither a rule nor an expansion");
    let host = sized(Case::new(host, input()).near(4.0, 0.0).grad(no_gradient));
    vec![cubed(true), cubed(false), host]
}

/// `x * exp(y) + x` and `max(x, y)` as one region.
fn fused(shape: &[usize], dtype: DType) -> Vec<Case> {
    if !dtype.is_float() {
        return Vec::new();
    }
    let ty = TensorType::new(shape, dtype);
    let program = Recorder::trace(&[ty, ty], |inputs| {
        let (x, y) = (&inputs[0], &inputs[1]);
        vec![x * y.exp() + x, x.max(y)]
    });
    let inputs = vec![Input::Tensor(ty, Fill::Distinct), Input::Tensor(ty, Fill::Distinct)];
    let case = Case::new(Op::Fused(FusedOp::new(program)), inputs);
    vec![sized(case.near(8.0, 4.0).grad(Grad::Piecewise))]
}

/// A custom op `x³` with an expansion and optionally a gradient rule.
#[derive(Debug)]
pub struct CubedOp {
    /// Whether it has a gradient rule.
    pub rule: bool,
}

impl CustomOp for CubedOp {
    fn name(&self) -> &str {
        "suite_cubed"
    }

    fn attributes(&self) -> String {
        self.rule.to_string()
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        infer_one(self.name(), inputs)
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        Some(vec![inputs[0].square() * &inputs[0]])
    }

    fn vjp<'e>(
        &self,
        inputs: &[Var<'e>],
        _outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        if !self.rule {
            return None;
        }
        let gradient = gradients[0].as_ref().map(|g| g * inputs[0].square() * 3.0);
        Some(Ok(vec![gradient]))
    }
}

/// A custom op `x²`, computed on the host.
#[derive(Debug)]
pub struct HostSquare;

impl CustomOp for HostSquare {
    fn name(&self) -> &str {
        "suite_host_square"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        infer_one(self.name(), inputs)
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let x = &inputs[0];
        let squares: Vec<f64> = x.to_vec::<f64>().into_iter().map(|x| x * x).collect();
        Some(TensorData::new(squares, *x.shape()).map(|data| vec![data.convert(x.dtype())]))
    }
}

fn infer_one(name: &str, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
    match inputs {
        [OperandType::Tensor(ty)] => Ok(smallvec![**ty]),
        _ => Err(kiln_ir::Error::type_error(name, "expects one tensor", inputs)),
    }
}
