//! Gradients of several results at once, from given gradients.

use kiln_autodiff::{Autodiff, Checkpointing};
use kiln_ir::{DType, Engine, Error, TensorData, TensorType, Value, Var, block_on};
use kiln_reference::Reference;
use std::sync::Arc;

fn layer() -> Autodiff {
    Autodiff::new(Arc::new(Reference::new()), Checkpointing::None)
}

fn write(layer: &Autodiff, numbers: &[f64]) -> Value {
    layer.write(numbers.to_vec().into())
}

fn read(engine: &dyn Engine, value: Value) -> Result<Vec<f64>, Error> {
    block_on(engine.read(value)).and_then(TensorData::into_vec)
}

#[test]
fn gradients_of_several_results_add_up() {
    let layer = layer();
    let leaf = layer.require_grad(write(&layer, &[2.0, 3.0]));
    let x = Var::new(&layer, leaf.clone());
    let square = (&x * &x).into_value();
    let sum = x.sum(&[0]).into_value();
    let constant = write(&layer, &[1.0]);
    let given = vec![
        (square, write(&layer, &[1.0, 10.0])),
        (sum, write(&layer, &[100.0])),
        (constant, write(&layer, &[5.0])),
    ];
    let found = layer.pull_back(&**layer.inner(), given).expect("both have gradients");
    let gradient = found.get(&leaf).expect("it matters");
    assert_eq!(read(&**layer.inner(), gradient), Ok(vec![104.0, 160.0]));
    let nothing = layer.pull_back(&**layer.inner(), Vec::new()).expect("there is nothing to do");
    assert!(nothing.is_empty());
}

#[test]
fn a_gradient_of_another_type_and_poison_are_errors() {
    let layer = layer();
    let x = Var::new(&layer, layer.require_grad(write(&layer, &[2.0, 3.0])));
    let given = vec![(x.exp().into_value(), write(&layer, &[1.0]))];
    let error = layer.pull_back(&**layer.inner(), given).expect_err("the types differ").to_string();
    assert!(error.starts_with("[backward] a seed of f64[1] for a root of f64[2]"), "{error}");
    let broken = Error::value("test", "broken");
    let poisoned = Value::poisoned(TensorType::new([1], DType::F64), broken.clone());
    let given = vec![(poisoned, write(&layer, &[1.0]))];
    assert_eq!(layer.pull_back(&**layer.inner(), given).err(), Some(broken));
}
