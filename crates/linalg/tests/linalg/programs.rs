//! The ops in programs: names, attributes, text, and all engines.

use crate::{assert_near, numbers_of, positive, product, random};
use kiln_backends::{Cpu, Device};
use kiln_ir::{Custom, Engine, Expand, Program};
use kiln_linalg::any::*;
use kiln_linalg::{Side, Triangle};
use kiln_reference::Reference;
use kiln_tensor::transform::{grad, jvp, vmap};
use kiln_tensor::{AnyTensor, Autodiff, DType, Forward, Tensor, Vmap};
use std::sync::Arc;

const OPS: [(&str, &str); 34] = [
    ("linalg::cholesky", ""),
    ("linalg::solve_triangular", "upper=true unit=false"),
    ("linalg::lu_factor", ""),
    ("linalg::row_order", "rows=3"),
    ("linalg::solve", ""),
    ("linalg::inverse", "infinite=false"),
    ("linalg::det", ""),
    ("linalg::cofactor", ""),
    ("linalg::slogdet", ""),
    ("linalg::qr", "complete=true"),
    ("linalg::svd", "full=false"),
    ("linalg::svdvals", ""),
    ("linalg::eigh", ""),
    ("linalg::eigvalsh", ""),
    ("linalg::eig", ""),
    ("linalg::pinv", "atol=0e0 rtol=1.5e-7"),
    ("linalg::lstsq", "rcond=1e-12"),
    ("linalg::matrix_exp", ""),
    ("linalg::ldl_factor", ""),
    ("linalg::ldl_unpack", ""),
    ("linalg::ldl_solve", ""),
    ("linalg::complex_cholesky", ""),
    ("linalg::complex_solve_triangular", "upper=true unit=false"),
    ("linalg::complex_solve", ""),
    ("linalg::complex_inverse", ""),
    ("linalg::complex_det", ""),
    ("linalg::complex_cofactor", ""),
    ("linalg::complex_slogdet", ""),
    ("linalg::complex_qr", "complete=true"),
    ("linalg::complex_svd", "full=false"),
    ("linalg::complex_svdvals", ""),
    ("linalg::complex_eigh", ""),
    ("linalg::complex_eigvalsh", ""),
    ("linalg::complex_eig", ""),
];

#[test]
fn ops_round_trip_through_name_and_attributes() {
    kiln_linalg::register();
    for (name, attributes) in OPS {
        let op = Custom::from_parts(name, attributes).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((op.name(), &*op.attributes()), (name, attributes));
        let error = Custom::from_parts(name, "rows=many full=maybe").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("[{name}] the attributes `rows=many full=maybe` are not")),
            "{error}"
        );
    }
}

#[test]
fn programs_with_ops_round_trip_through_text() {
    let text = "program(%0: f64[2, 2]) {
  %1: f64[2, 2], %2: f64[2], %3: f64[2, 2] = custom %0 {name = \"linalg::svd\", attributes = \"full=false\"}
  return %2
}
";
    kiln_linalg::register();
    let program: Program = text.parse().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(program.to_string().parse::<Program>().unwrap(), program);
    let reference = Expand::new(Reference::new());
    let x = random(1, &[2, 2]);
    let input = reference.write(x.to_data().unwrap());
    let results = program.run(&reference, [input].into_iter().collect());
    let found = kiln_ir::block_on(reference.read(results[0].clone())).unwrap();
    assert_near("svd", &AnyTensor::from_data(found, &Device::cpu()), &svdvals(x).unwrap(), 1e-12);
}

/// Devices of eager, reference and fully expanding engines.
fn devices() -> Vec<Device> {
    let expanding = Expand::new(Reference::new());
    vec![
        Device::cpu(),
        Device::from_engine(Arc::new(Reference::new()), "reference"),
        Device::from_engine(Arc::new(expanding), "expanding"),
    ]
}

#[test]
fn every_engine_runs_the_ops() {
    for device in devices().into_iter().flat_map(|device| [device.autodiff(), device]) {
        let place = |x: AnyTensor| AnyTensor::from_data(x.to_data().unwrap(), &device);
        let a = positive(1, &[2, 3, 3]);
        let b = random(2, &[2, 3, 1]);
        let expected = solve(a.clone(), b.clone(), Side::Left).unwrap();
        let x = solve(place(a.clone()), place(b.clone()), Side::Left).unwrap();
        assert_near("solve", &x, &expected, 1e-12);
        let factor = cholesky(place(a), Triangle::Lower).unwrap();
        assert_near(
            "cholesky",
            &cholesky_solve(place(b), factor, Triangle::Lower).unwrap(),
            &expected,
            1e-12,
        );
    }
}

#[test]
fn transposed_and_sliced_operands_are_read_by_strides() {
    let x = random(3, &[4, 6]);
    let slice = kiln_ir::SliceAxis { start: 5, len: 3, step: -2 };
    let view = x.clone().slice_axis(1, slice).unwrap().swap_dims(0, 1).unwrap();
    let copied = AnyTensor::from_data(view.to_data().unwrap(), &Device::cpu());
    assert_eq!(numbers_of(&svdvals(view).unwrap()), numbers_of(&svdvals(copied).unwrap()));
}

fn floats(x: &AnyTensor) -> AnyTensor {
    x.clone().cast(DType::F32).unwrap()
}

#[test]
fn jvps_pass_through_the_ops() {
    let direction = floats(&random(4, &[3, 3]));
    let x: Tensor<Cpu, 2> = floats(&positive(5, &[3, 3])).try_into_tensor().unwrap();
    let (y, moved) = jvp(
        |x: Tensor<Forward<Cpu>, 2>| kiln_linalg::inverse(x),
        x,
        direction.clone().try_into_tensor().unwrap(),
    );
    let y = y.into_any();
    let expected = product(&product(&y, &direction), &y).binary_scalar(kiln_ir::Binary::Mul, -1.0).unwrap();
    assert_near("jvp", &moved.into_any(), &expected, 1e-5);
}

#[test]
fn vmap_runs_matrix_functions_on_batches() {
    let xs = floats(&positive(6, &[4, 3, 3]));
    let typed: Tensor<Cpu, 3> = xs.clone().try_into_tensor().unwrap();
    let found: Tensor<Cpu, 3> = vmap(|x: Tensor<Vmap<Cpu>, 2>| kiln_linalg::inverse(x))(typed.clone());
    assert_near("vmap", &found.into_any(), &inverse(xs.clone()).unwrap(), 1e-6);
    let log = |x: Tensor<Autodiff<Vmap<Cpu>>, 2>| kiln_linalg::logdet::<_, 2, 1>(x);
    let found: Tensor<Cpu, 3> = vmap(grad(log))(typed);
    assert_near("vmap of grad", &found.into_any(), &inverse(xs).unwrap(), 1e-5);
}
