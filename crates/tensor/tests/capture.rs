//! Capture of functions as programs.

use kiln_backends::Device;
use kiln_tensor::{AnyTensor, DType, TensorData, TensorType, capture};

const TY: fn() -> TensorType = || TensorType::new([3], DType::F32);

fn on_cpu(data: [f32; 3]) -> AnyTensor {
    AnyTensor::from_data(TensorData::from(data), &Device::cpu())
}

#[test]
fn a_captured_function_runs_with_its_constants() {
    let captured = capture(&[TY()], |x| {
        let weights = AnyTensor::from_data(TensorData::from([1.0f32, 2.0, 3.0]), x[0].stack());
        Ok(vec![x[0].clone().mul(weights)?, x[0].clone()])
    })
    .unwrap();
    assert_eq!(captured.constants().len(), 1);
    let results = captured.run(&[on_cpu([2.0, 2.0, 2.0])]).unwrap();
    assert_eq!(results[0].to_data().unwrap().to_vec::<f32>(), [2.0, 4.0, 6.0]);
    assert_eq!(results[1].to_data().unwrap().to_vec::<f32>(), [2.0, 2.0, 2.0]);
    let text = captured.to_string();
    assert_eq!(text.matches("mul").count(), 1, "{text}");
}

#[test]
fn functions_that_cannot_be_captured_are_errors() {
    let read = capture(&[TY()], |x| x[0].to_data().map(|_| vec![]));
    assert!(read.unwrap_err().to_string().contains("a recorded value has no data"));
    let other = capture(&[TY()], |_| Ok(vec![on_cpu([0.0; 3])]));
    assert!(other.unwrap_err().to_string().starts_with("[capture] a result is on cpu"));
    let captured = capture(&[TY()], |x| Ok(x.to_vec())).unwrap();
    let wrong = captured.run(&[AnyTensor::zeros(TensorType::new([2], DType::F32), &Device::cpu()).unwrap()]);
    assert_eq!(
        wrong.unwrap_err().to_string(),
        "[capture] the program expects f32[3]: f32[2]\n  hint: capture the function for these types"
    );
}
