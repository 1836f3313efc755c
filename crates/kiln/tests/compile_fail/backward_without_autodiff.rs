use kiln::{Flex, Tensor};

fn main() {
    let x = Tensor::<Flex, 2>::ones([2, 2], &Default::default());
    x.backward();
}
