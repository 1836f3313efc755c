use kiln::{Cpu, Int, Tensor, loss};

fn main() {
    let device = Default::default();
    let x = Tensor::<Cpu, 2>::ones([2, 2], &device);
    let count = Tensor::<Cpu, 2, Int>::ones([2, 2], &device);
    let labels = Tensor::<Cpu, 1>::ones([2], &device);
    let _ = x.clone() + count.clone(); // ERROR
    let _ = &x * &count; // ERROR
    let _ = x.clone() - labels.clone(); // ERROR
    let _ = loss::cross_entropy(x, labels, &Default::default()); // ERROR
}
