use kiln_backends::Flex;
use kiln_tensor::Tensor;

fn main() {
    let x = Tensor::<Flex, 2>::ones([2, 2], &Default::default());
    x.backward();
}
