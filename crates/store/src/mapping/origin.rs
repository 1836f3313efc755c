//! How a tensor of a module results from tensors of a file.

use kiln_tensor::{DType, Shape, TensorData, TensorType};

use super::rearrange::{concat, narrow, permute, permuted};
use crate::error::{Result, StoreError};
use crate::source::{TensorContents, TensorInfo, TensorSource};
use crate::weights::{host_data, info_of};

/// An expression over the tensors of a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Origin {
    /// A tensor of the file.
    Tensor(String),
    /// The tensor with axis `i` of the result from axis `axes[i]`.
    Permuted { of: Box<Origin>, axes: Vec<usize> },
    /// The elements `start..start + length` of an axis.
    Part { of: Box<Origin>, dim: usize, start: usize, length: usize },
    /// Tensors joined along an axis.
    Joined { parts: Vec<Origin>, dim: usize },
}

impl Origin {
    /// Adds the names of the tensors in the file.
    pub(crate) fn names_in_file(&self, names: &mut Vec<String>) {
        match self {
            Origin::Tensor(name) => names.push(name.clone()),
            Origin::Permuted { of, .. } | Origin::Part { of, .. } => of.names_in_file(names),
            Origin::Joined { parts, .. } => parts.iter().for_each(|part| part.names_in_file(names)),
        }
    }

    /// The type of the result. `name` is for messages.
    ///
    /// Slices and joins of rows of quantised blocks are quantised; other rearrangements dequantise.
    ///
    /// # Errors
    /// When a tensor is not in the file, or its shape does not fit.
    pub(crate) fn info(&self, source: &dyn TensorSource, name: &str) -> Result<TensorInfo> {
        let invalid = |problem: String| refused(source, name, &problem);
        match self {
            Origin::Tensor(name) => info_of(source, name),
            Origin::Permuted { of, axes } => {
                let info = of.info(source, name)?;
                match is_permutation(axes, info.shape.rank()) {
                    true => Ok(TensorInfo { shape: permuted(&info.shape, axes), ..dequantized(info) }),
                    false => Err(invalid(format!("the axes {axes:?} do not fit the shape {}", info.shape))),
                }
            }
            Origin::Part { of, dim, start, length } => {
                let info = of.info(source, name)?;
                let fits = *dim < info.shape.rank()
                    && start.checked_add(*length).is_some_and(|end| end <= info.shape[*dim]);
                match fits {
                    true => {
                        let shape = info.shape.with(*dim, *length);
                        Ok(TensorInfo { shape, ..kept_rows(info, *dim) })
                    }
                    false => Err(invalid(format!(
                        "{length} elements from {start} of axis {dim} do not fit the shape {}",
                        info.shape
                    ))),
                }
            }
            Origin::Joined { parts, dim } => {
                let infos: Vec<TensorInfo> =
                    parts.iter().map(|part| part.info(source, name)).collect::<Result<_>>()?;
                joined(infos, *dim).map_err(invalid)
            }
        }
    }

    /// The contents, of the type that [`info`](Origin::info) returns.
    ///
    /// # Errors
    /// See [`info`](Origin::info); also when a tensor cannot be read.
    pub(crate) fn contents(&self, source: &dyn TensorSource, name: &str) -> Result<TensorContents> {
        let failed = |error: kiln_tensor::Error| refused(source, name, &error.to_string());
        let host =
            |data: Result<TensorData, kiln_tensor::Error>| data.map(TensorContents::Host).map_err(failed);
        let info = self.info(source, name)?;
        match self {
            Origin::Tensor(name) => source.contents(name),
            Origin::Permuted { of, axes } => host(permute(&of.data(source, name, false)?, axes)),
            Origin::Part { of, dim, start, length } => {
                host(narrow(&of.data(source, name, info.blocks.is_some())?, *dim, *start, *length))
            }
            Origin::Joined { parts, dim } => {
                let blocks = info.blocks.is_some();
                let parts = parts.iter().map(|part| part.data(source, name, blocks));
                let parts = parts.collect::<Result<Vec<TensorData>>>()?;
                let Some(first) = parts.first() else {
                    return Err(refused(source, name, "there is nothing to join"));
                };
                let length = parts.iter().map(|part| part.shape()[*dim]).sum();
                let ty = TensorType { shape: first.shape().with(*dim, length), dtype: first.dtype() };
                host(concat(&parts, *dim, ty))
            }
        }
    }

    /// The elements in host memory: dequantised, or the bytes of the blocks.
    fn data(&self, source: &dyn TensorSource, name: &str, blocks: bool) -> Result<TensorData> {
        let (info, contents) = (self.info(source, name)?, self.contents(source, name)?);
        match blocks {
            true => contents.into_data().map_err(|error| refused(source, name, &error.to_string())),
            false => host_data(source, name, contents, &info),
        }
    }
}

pub(super) fn refused(source: &dyn TensorSource, name: &str, problem: &str) -> StoreError {
    let argument = format!("{}: mapping of `{name}`", source.path().display());
    StoreError::InvalidArgument { argument, problem: problem.to_owned() }
}

fn is_permutation(axes: &[usize], rank: usize) -> bool {
    axes.len() == rank && (0..rank).all(|axis| axes.contains(&axis))
}

/// The type after dequantisation.
fn dequantized(info: TensorInfo) -> TensorInfo {
    match info.blocks {
        Some(_) => TensorInfo { dtype: Some(DType::F32), dtype_name: "F32".to_owned(), blocks: None, ..info },
        None => info,
    }
}

/// The type after a slice or a join along an axis. Blocks lie along the last axis.
fn kept_rows(info: TensorInfo, dim: usize) -> TensorInfo {
    if dim + 1 < info.shape.rank() { info } else { dequantized(info) }
}

fn joined(infos: Vec<TensorInfo>, dim: usize) -> Result<TensorInfo, String> {
    let Some(first) = infos.first().cloned() else { return Err("there is nothing to join".to_owned()) };
    if dim >= first.shape.rank() {
        return Err(format!("the shape {} has no axis {dim}", first.shape));
    }
    let same_shape =
        |shape: &Shape| shape.rank() == first.shape.rank() && shape.with(dim, 0) == first.shape.with(dim, 0);
    if let Some(other) = infos.iter().find(|info| !same_shape(&info.shape)) {
        return Err(format!(
            "the shapes {} and {} cannot be joined along axis {dim}",
            first.shape, other.shape
        ));
    }
    let length = infos.iter().try_fold(0usize, |sum, info| sum.checked_add(info.shape[dim]));
    let shape = first.shape.with(dim, length.ok_or("the joined axis is too long")?);
    let same_blocks = infos.iter().all(|info| info.blocks == first.blocks);
    let kept = if same_blocks { kept_rows(first.clone(), dim) } else { dequantized(first.clone()) };
    let differs = |info: &&TensorInfo| dequantized((*info).clone()).dtype != kept.dtype;
    match infos.iter().find(differs) {
        Some(other) => {
            Err(format!("the dtypes {} and {} cannot be joined", kept.dtype_name, other.dtype_name))
        }
        None => {
            // 8-bit floats and others together are no 8-bit floats.
            let mixed = infos.iter().any(|info| info.float8() != kept.float8());
            let dtype_name = if mixed { "F32".to_owned() } else { kept.dtype_name };
            Ok(TensorInfo { shape, dtype_name, ..kept })
        }
    }
}
