//! Results of PyTorch, from the suite's golden files, on the CPU engine and on the reference, with gradients. The
//! ambiguity of a decomposition (such as signs) is removed as in the script that generates the files.
//!
//! The files and their specification are in `crates/suite/goldens`; the test is here so that the suite does not have to
//! compile `faer`.

mod complex;

use kiln_backends::{Device, Dyn};
use kiln_ir::{Binary, Reduction, SliceAxis, Unary};
use kiln_linalg::any as linalg;
use kiln_linalg::{MatrixNorm, QrMode, Side, Tolerance, Triangle};
use kiln_reference::Reference;
use kiln_suite::goldens::{Golden, read_family};
use kiln_tensor::{AnyTensor, Result, Tensor};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

#[test]
fn results_match_pytorch() {
    let reference = Device::from_engine(Arc::new(Reference::new()), "reference");
    let goldens = read_family("linalg");
    assert!(goldens.len() >= 180, "the family has all its cases");
    let mut problems = Vec::new();
    for golden in &goldens {
        for (name, device) in [("cpu", Device::cpu()), ("reference", reference.clone())] {
            let found = check(golden, &device).unwrap_or_else(|error| vec![error.to_string()]);
            problems.extend(found.into_iter().map(|problem| format!("{} on {name}: {problem}", golden.name)));
        }
    }
    assert!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
}

/// Compares values on the plain device, then values and gradients under automatic differentiation; returns the
/// differences.
fn check(golden: &Golden, device: &Device) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for device in [device.clone(), device.autodiff()] {
        let call = Call::new(golden, &device)?;
        let outputs = compute(&call)?;
        assert_eq!(outputs.len(), golden.outputs.len(), "{}", golden.name);
        for (name, output) in golden.outputs.iter().zip(&outputs) {
            problems.extend(golden.difference(name, &output.to_data()?));
        }
        if device.is_autodiff() && !golden.gradients.is_empty() {
            problems.extend(gradients(&call, &outputs[0])?);
        }
    }
    Ok(problems)
}

/// The gradients of `sum(first output * grad_output)`.
fn gradients(call: &Call<'_>, output: &AnyTensor) -> Result<Vec<String>> {
    let weights = AnyTensor::from_data(call.tensor("grad_output").clone(), output.stack());
    let sum: Tensor<Dyn, 1> = output.clone().mul(weights)?.sum()?.try_into_tensor()?;
    let found = sum.try_backward()?;
    let mut problems = Vec::new();
    for (input, name) in &call.gradients {
        match found.get(call.input(input)) {
            Some(gradient) => problems.extend(call.difference(name, &gradient.to_data()?)),
            None => problems.push(format!("{name}: there is no gradient")),
        }
    }
    Ok(problems)
}

/// A golden case with its inputs on a device. Dereferences to the case.
struct Call<'a> {
    golden: &'a Golden,
    inputs: BTreeMap<&'a str, AnyTensor>,
}

impl Deref for Call<'_> {
    type Target = Golden;
    fn deref(&self) -> &Golden {
        self.golden
    }
}

impl<'a> Call<'a> {
    fn new(golden: &'a Golden, device: &Device) -> Result<Call<'a>> {
        let place = |name: &'a String| {
            let tensor = AnyTensor::from_data(golden.tensor(name).clone(), device);
            let wanted = device.is_autodiff() && golden.gradients.iter().any(|(input, _)| input == name);
            Ok((name.as_str(), if wanted { tensor.require_grad()? } else { tensor }))
        };
        Ok(Call { golden, inputs: golden.inputs.iter().map(place).collect::<Result<_>>()? })
    }

    fn input(&self, name: &str) -> &AnyTensor {
        self.inputs.get(name).unwrap_or_else(|| panic!("{}: no input `{name}`", self.name))
    }
}

fn compute(call: &Call<'_>) -> Result<Vec<AnyTensor>> {
    let input = |name: &str| call.input(name).clone();
    let triangle = || if call.flag("upper") { Triangle::Upper } else { Triangle::Lower };
    let side = || if call.flag("left") { Side::Left } else { Side::Right };
    if let Some(op) = call.op.strip_prefix("complex_") {
        return complex::compute(call, op);
    }
    let y = match &*call.op {
        "spd_cholesky" => linalg::cholesky(positive(input("x"))?, triangle())?,
        "spd_cholesky_inverse" => {
            linalg::cholesky_inverse(linalg::cholesky(positive(input("x"))?, triangle())?, triangle())?
        }
        "spd_cholesky_solve" => {
            let factor = linalg::cholesky(positive(input("a"))?, triangle())?;
            linalg::cholesky_solve(input("b"), factor, triangle())?
        }
        "qr" => qr(call)?,
        "lu" => return lu(call),
        "lu_factor" => {
            let (factors, pivots) = linalg::lu_factor(input("x"))?;
            return Ok(vec![factors, pivots]);
        }
        "sym_ldl_factor" => {
            let (factors, pivots) = linalg::ldl_factor(symmetric(input("x"))?)?;
            return Ok(vec![factors, pivots]);
        }
        "sym_ldl_solve" => {
            let (factors, pivots) = linalg::ldl_factor(symmetric(input("a"))?)?;
            linalg::ldl_solve(factors, pivots, input("b"))?
        }
        "lu_solve" => {
            let (factors, pivots) = linalg::lu_factor(input("a"))?;
            linalg::lu_solve(factors, pivots, input("b"), side())?
        }
        "svd" => return svd(call),
        "svdvals" => linalg::svdvals(input("x"))?,
        "sym_eigh" => return eigh(call),
        "sym_eigvalsh" => linalg::eigvalsh(symmetric(input("x"))?, uplo(call))?,
        "eig" => eig(input("x"))?,
        "eigvals" => eigvals(input("x"))?,
        "solve" => linalg::solve(input("a"), input("b"), side())?,
        "solve_triangular" => {
            let unit = call.flag("unitriangular");
            linalg::solve_triangular(input("a"), input("b"), triangle(), side(), unit)?
        }
        "lstsq" => {
            let found = linalg::lstsq(input("a"), input("b"), call.optional_real("rcond"))?;
            return Ok(vec![found.solution, found.rank, found.singular_values]);
        }
        "lstsq_residuals" => linalg::lstsq(input("a"), input("b"), None)?.residuals,
        "inverse" => linalg::inverse(input("x"))?,
        "pinv" => linalg::pinv(input("x"), tolerance(call))?,
        "det" => linalg::det(input("x"))?,
        "slogdet" => {
            let (sign, log) = linalg::slogdet(input("x"))?;
            return Ok(vec![log, sign]);
        }
        "spd_logdet" => linalg::logdet(positive(input("x"))?)?,
        "matrix_rank" => linalg::matrix_rank(input("x"), tolerance(call))?,
        "matrix_power" => linalg::matrix_power(input("x"), call.int("n") as i32)?,
        "matrix_exp" => linalg::matrix_exp(input("x"))?,
        "matrix_norm" => linalg::matrix_norm(input("x"), norm(call))?,
        "cond" => linalg::cond(input("x"), norm(call))?,
        "multi_dot" => linalg::multi_dot(
            ["a", "b", "c", "d"].iter().filter_map(|name| call.inputs.get(name).cloned()).collect(),
        )?,
        "vander" => linalg::vander(input("x"), call.attributes["n"].as_u64().map(|n| n as usize))?,
        "householder_product" => linalg::householder_product(input("x"), input("tau"))?,
        "tensorinv" => linalg::tensorinv(input("x"), call.count("ind"))?,
        "tensorsolve" => linalg::tensorsolve(input("a"), input("b"))?,
        op => panic!("unknown op {op}"),
    };
    Ok(vec![y])
}

fn uplo(call: &Call<'_>) -> Triangle {
    if call.text("uplo") == "U" { Triangle::Upper } else { Triangle::Lower }
}

fn tolerance(call: &Call<'_>) -> Tolerance {
    Tolerance { absolute: call.optional_real("atol"), relative: call.optional_real("rtol") }
}

fn norm(call: &Call<'_>) -> MatrixNorm {
    let order = &call.attributes["ord"];
    match (order.as_str(), order.as_i64()) {
        (Some("fro"), _) => MatrixNorm::Frobenius,
        (Some("nuc"), _) => MatrixNorm::Nuclear,
        (Some("inf"), _) => MatrixNorm::GreatestRowSum,
        (Some("-inf"), _) => MatrixNorm::LeastRowSum,
        (_, Some(1)) => MatrixNorm::GreatestColumnSum,
        (_, Some(-1)) => MatrixNorm::LeastColumnSum,
        (_, Some(2)) => MatrixNorm::Spectral,
        (_, Some(-2)) => MatrixNorm::LeastSingularValue,
        _ => panic!("unknown norm {order}"),
    }
}

fn transpose(x: AnyTensor) -> Result<AnyTensor> {
    let rank = x.rank();
    x.swap_dims(rank - 2, rank - 1)
}

/// `x xᵀ + 1`.
fn positive(x: AnyTensor) -> Result<AnyTensor> {
    let product = x.clone().matmul(transpose(x)?)?;
    let identity = linalg::matrix_power(product.clone().detach(), 0)?;
    product.add(identity)
}

fn symmetric(x: AnyTensor) -> Result<AnyTensor> {
    let transposed = transpose(x.clone())?;
    x.add(transposed)
}

/// The last axis as a row or as a column of a matrix.
fn row(x: AnyTensor) -> Result<AnyTensor> {
    let shape = x.shape().inserted(x.rank() - 1, 1);
    x.reshape(shape)
}

fn column(x: AnyTensor) -> Result<AnyTensor> {
    let shape = x.shape().inserted(x.rank(), 1);
    x.reshape(shape)
}

fn first(x: AnyTensor, axis: usize, len: usize) -> Result<AnyTensor> {
    x.slice_axis(axis, SliceAxis { start: 0, len, step: 1 })
}

/// The sum along the last axis, without keepdim.
fn sum_last(x: AnyTensor) -> Result<AnyTensor> {
    let axis = x.rank() - 1;
    let shape = x.shape().without(axis);
    x.reduce(Reduction::Sum, &[axis])?.reshape(shape)
}

fn square(x: AnyTensor) -> Result<AnyTensor> {
    x.clone().mul(x)
}

/// The diagonal as a last axis.
fn diagonal(x: AnyTensor) -> Result<AnyTensor> {
    let (rank, shape) = (x.rank(), *x.shape());
    let k = shape[rank - 2].min(shape[rank - 1]);
    let corner = first(first(x, rank - 2, k)?, rank - 1, k)?;
    let identity = linalg::matrix_power(corner.clone().detach(), 0)?;
    sum_last(corner.mul(identity)?)
}

/// `Q` or `R`, with the signs that make the diagonal of `R` positive.
fn qr(call: &Call<'_>) -> Result<AnyTensor> {
    let mode = if call.text("mode") == "complete" { QrMode::Complete } else { QrMode::Reduced };
    let (q, r) = linalg::qr(call.input("x").clone(), mode)?;
    let signs = diagonal(r.clone())?.detach().unary(Unary::Sign)?;
    let (rank, k) = (r.rank(), signs.shape()[signs.rank() - 1]);
    if call.text("first") == "q" {
        return first(q, rank - 1, k)?.mul(row(signs)?);
    }
    let rows = r.shape()[rank - 2];
    let signed = first(r.clone(), rank - 2, k)?.mul(column(signs)?)?;
    if rows == k {
        return Ok(signed);
    }
    let rest = r.slice_axis(rank - 2, SliceAxis { start: k, len: rows - k, step: 1 })?;
    AnyTensor::cat(vec![signed, rest], rank - 2)
}

fn lu(call: &Call<'_>) -> Result<Vec<AnyTensor>> {
    let (p, l, u) = linalg::lu(call.input("x").clone())?;
    Ok(if call.text("first") == "l" { vec![l, u, p] } else { vec![u, l, p] })
}

/// `U diag(s² + 1) Vᵀ`, and the values.
fn svd(call: &Call<'_>) -> Result<Vec<AnyTensor>> {
    let (u, s, vt) = linalg::svd(call.input("x").clone(), call.flag("full"))?;
    let (rank, k) = (u.rank(), s.shape()[s.rank() - 1]);
    let weights = square(s.clone())?.binary_scalar(Binary::Add, 1.0)?;
    let left = first(u, rank - 1, k)?.mul(row(weights)?)?;
    Ok(vec![left.matmul(first(vt, rank - 2, k)?)?, s])
}

/// `V diag(sin w) Vᵀ`, and the values.
fn eigh(call: &Call<'_>) -> Result<Vec<AnyTensor>> {
    let (w, v) = linalg::eigh(symmetric(call.input("x").clone())?, uplo(call))?;
    let weights = row(w.clone().unary(Unary::Sin)?)?;
    Ok(vec![v.clone().mul(weights)?.matmul(transpose(v)?)?, w])
}

/// `Σ_j |V_ij|² (Re w_j + |w_j|²)`.
fn eig(x: AnyTensor) -> Result<AnyTensor> {
    let ((w_re, w_im), (v_re, v_im)) = linalg::eig(x)?;
    let weights = w_re.clone().add(square(w_re)?)?.add(square(w_im)?)?;
    let squares = square(v_re)?.add(square(v_im)?)?;
    sum_last(squares.mul(row(weights)?)?)
}

/// The sums of `Re w`, `Re w²` and `|w|²`.
fn eigvals(x: AnyTensor) -> Result<AnyTensor> {
    let (re, im) = linalg::eigvals(x)?;
    let (a, b) = (square(re.clone())?, square(im)?);
    let sums = [re, a.clone().sub(b.clone())?, a.add(b)?];
    let sums = sums.into_iter().map(|x| column(sum_last(x)?)).collect::<Result<Vec<_>>>()?;
    let axis = sums[0].rank() - 1;
    AnyTensor::cat(sums, axis)
}
