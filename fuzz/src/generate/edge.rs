//! Generates collectives, custom and fused ops.

use super::{Generator, Input, Wanted};
use kiln_ir::{
    Collective, CollectiveKind, Custom, CustomOp, DType, Error, FusedOp, Op, OpKind, OperandType, Reduction,
    Result, ResultTypes, Var,
};
use smallvec::smallvec;

impl Generator<'_> {
    /// A collective of one rank, the only group size without a network. `Recv` is left out, since it has no sender;
    /// smooth programs also leave out `Send`, which has no gradient.
    pub(super) fn collective(&mut self) -> Option<()> {
        let x = self.tensor(1, 4, |dtype| !dtype.is_bool());
        let axis = self.random.below(self.ty(x).rank());
        let reduction = self.random.pick(Reduction::ALL);
        let kind = match self.random.below(5) {
            0 => CollectiveKind::AllReduce(reduction),
            1 => CollectiveKind::AllGather { axis },
            2 => CollectiveKind::ReduceScatter { reduction, axis },
            3 if !self.style.smooth => CollectiveKind::Send { to: 0, tag: self.random.word() },
            _ => CollectiveKind::Broadcast { root: 0 },
        };
        let collective = Collective { kind, group: self.random.bits(), rank: 0, size: 1 };
        self.emit_on(Op::Collective(collective), &[x]).map(drop)
    }

    pub(super) fn custom(&mut self) -> Option<()> {
        Cubed::register();
        let x = self.tensor(0, 4, DType::is_float);
        let has_rule = self.random.chance(50);
        self.emit_on(Op::Custom(Custom::new(Cubed { has_rule })), &[x]).map(drop)
    }

    /// A region of a few random ops, without `NonZero`, whose actual shape the result types of a region cannot express,
    /// and without indices out of range.
    pub(super) fn fused(&mut self) -> Option<()> {
        if self.style.nesting == 0 {
            return None;
        }
        let mut style = self.style.clone();
        style.nesting -= 1;
        style.stray = false;
        let mut inner = Generator::new(self.random, style);
        for _ in 0..inner.random.between(1, 4) {
            let kind = inner.random.pick(&OpKind::ALL);
            if kind != OpKind::NonZero {
                inner.add(kind);
            }
        }
        if inner.instructions.is_empty() {
            return None;
        }
        let (program, inputs) = inner.finish();
        let operands: Vec<usize> = inputs.into_iter().map(|input| self.outside(input)).collect();
        self.emit_on(Op::Fused(FusedOp::new(program)), &operands).map(drop)
    }

    /// The operand of a region for an input of its program.
    fn outside(&mut self, input: Input) -> usize {
        if input.is_free && self.random.chance(70) {
            let slot = self.exact(input.data.ty(), Wanted::Free);
            if !self.is_open(slot) {
                return slot;
            }
        }
        self.add_input(input.data, input.is_free)
    }
}

/// A custom op with an expansion: `x³` of floats.
#[derive(Debug)]
pub struct Cubed {
    /// Whether it has a gradient rule.
    pub has_rule: bool,
}

impl Cubed {
    /// Registers the op, so that the text of programs with it parses.
    pub fn register() {
        Custom::register("fuzz_cubed", |attributes| match attributes {
            "rule" => Ok(Custom::new(Cubed { has_rule: true })),
            "" => Ok(Custom::new(Cubed { has_rule: false })),
            other => Err(Error::value("fuzz_cubed", format!("`{other}` is neither `rule` nor empty"))),
        });
    }
}

impl CustomOp for Cubed {
    fn name(&self) -> &str {
        "fuzz_cubed"
    }

    fn attributes(&self) -> String {
        if self.has_rule { "rule".into() } else { String::new() }
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        match inputs {
            [OperandType::Tensor(ty)] if ty.dtype.is_float() => Ok(smallvec![**ty]),
            _ => Err(Error::type_error(self.name(), "takes one float tensor", inputs)),
        }
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
        if !self.has_rule {
            return None;
        }
        let gradient = gradients[0].as_ref().map(|g| g * inputs[0].square() * 3.0);
        Some(Ok(vec![gradient]))
    }
}
