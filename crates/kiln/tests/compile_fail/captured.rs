//! codegen

use kiln::module::custom_gradient;
use kiln::{Cpu, Tensor};

fn main() {
    let lambda = 0.5;
    let x = Tensor::<Cpu, 1>::ones([2], &Default::default());
    let _: Tensor<Cpu, 1> = custom_gradient(
        "reversal",
        vec![x],
        |inputs| inputs[0].clone(),
        move |_, _, gradient| vec![gradient * -lambda],
    );
}
