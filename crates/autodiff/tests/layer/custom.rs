//! Custom ops: their gradients and their errors.

use crate::layer::{gradient, layer, leaf, value};
use kiln_ir::{Custom, CustomOp, Op, OperandType, Result, ResultTypes, TensorData, Var};

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Nothing,
    WrongType,
    WrongCount,
    Expansion,
}

/// Doubles each element.
#[derive(Debug)]
struct Double(Way);

impl CustomOp for Double {
    fn name(&self) -> &str {
        "double"
    }

    fn infer(&self, inputs: &[OperandType<'_>]) -> Result<ResultTypes> {
        Ok(inputs.iter().filter_map(|input| input.tensor().copied()).collect())
    }

    fn expand<'e>(&self, inputs: &[Var<'e>]) -> Option<Vec<Var<'e>>> {
        (self.0 == Way::Expansion).then(|| vec![&inputs[0] * 2.0])
    }

    fn evaluate(&self, inputs: &[TensorData]) -> Option<Result<Vec<TensorData>>> {
        let doubled: Vec<f64> = inputs[0].to_vec::<f64>().iter().map(|x| x * 2.0).collect();
        Some(TensorData::new(doubled, *inputs[0].shape()).map(|data| vec![data]))
    }

    fn vjp<'e>(
        &self,
        _inputs: &[Var<'e>],
        _outputs: &[Var<'e>],
        gradients: &[Option<Var<'e>>],
    ) -> Option<Result<Vec<Option<Var<'e>>>>> {
        let g = gradients[0].as_ref()?;
        match self.0 {
            Way::Nothing | Way::Expansion => None,
            Way::WrongType => Some(Ok(vec![Some(g.sum(&[0]))])),
            Way::WrongCount => Some(Ok(vec![Some(g * 2.0), None])),
        }
    }
}

fn backward(way: Way) -> Result<Vec<f64>> {
    let layer = layer();
    let x = leaf(&layer, &[1.0, 2.0]);
    let y = x.apply(Op::Custom(Custom::new(Double(way))), &[]);
    layer.backward(&value(&y), None).map(|gradients| gradient(&layer, &gradients, &x))
}

#[test]
fn an_expansion_is_differentiated() {
    assert_eq!(backward(Way::Expansion).unwrap(), [2.0, 2.0]);
}

#[test]
fn an_op_without_rule_and_expansion_is_an_error() {
    let error = backward(Way::Nothing).unwrap_err().to_string();
    assert!(error.starts_with("[double] has no gradient\n  hint: implement an expansion"), "{error}");
}

#[test]
fn a_gradient_rule_with_a_wrong_type_or_count_is_an_error() {
    let error = backward(Way::WrongType).unwrap_err().to_string();
    assert!(error.starts_with("[double] its rule returns f64[1] for operand 0 of f64[2]"), "{error}");
    let error = backward(Way::WrongCount).unwrap_err().to_string();
    assert!(error.starts_with("[double] its rule returns 2 gradients for 1 operands"), "{error}");
}
