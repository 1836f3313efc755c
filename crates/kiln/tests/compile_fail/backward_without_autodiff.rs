use kiln::{Backend, Flex, Tensor};

fn main() {
    let x = Tensor::<Flex, 2>::ones([2, 2], &Default::default());
    x.backward(); // ERROR
    x.require_grad(); // ERROR
}

fn generic<B: Backend>(x: Tensor<B, 1>) {
    x.backward(); // ERROR
}
