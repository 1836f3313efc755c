//! Differences between the elements of a tensor in GGUF and in Hugging Face's checkpoints.

use std::sync::Arc;

use kiln_tensor::{BlockFormat, DType, Shape, SharedBytes, TensorData, TensorType};

use super::metadata::Metadata;
use super::names;
use crate::error::{Result, StoreError};
use crate::source::TensorContents;

/// The difference between a tensor in GGUF and the same tensor in Hugging Face's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conversion {
    /// Both are equal.
    None,
    /// GGUF interleaves the two halves of the rows of each head; see [`unpermute_rows`].
    InterleavedRows {
        /// The number of heads.
        heads: usize,
    },
    /// GGUF stores `1 + weight`: the scales of Gemma's RMS norms.
    OnePlus,
    /// GGUF stores `[outputs, inputs]`, the checkpoint `[inputs, outputs]`: the linear layers of GPT-2.
    Transposed,
}

/// Returns the difference between a tensor in a GGUF file and in Hugging Face's checkpoints. `name` is the name in GGUF.
/// The metadata supplies the architecture and the numbers of heads.
///
/// llama.cpp rotates adjacent elements of a head in the architectures `llama` and `smollm3`, while Hugging Face rotates
/// element `i` with `i + head_dim / 2`. Rows of the query and key projections are therefore stored in another order.
pub fn conversion(metadata: &Metadata, name: &str) -> Conversion {
    let Some(architecture) = metadata.str("general.architecture").and_then(names::architecture) else {
        return Conversion::None;
    };
    let Some((stem, last)) = name.rsplit_once('.') else { return Conversion::None };
    let layer = layer_of(stem);
    let role = stem.rsplit('.').next().unwrap_or(stem);
    let heads = |key| heads(metadata, architecture.gguf, key, layer);
    match role {
        "attn_q" if architecture.interleaved => interleaved(heads("attention.head_count")),
        "attn_k" if architecture.interleaved => {
            interleaved(heads("attention.head_count_kv").or_else(|| heads("attention.head_count")))
        }
        _ if architecture.one_plus_norms && role.ends_with("norm") && last == "weight" => Conversion::OnePlus,
        "attn_qkv" | "attn_output" | "ffn_up" | "ffn_down" if architecture.transposed && last == "weight" => {
            Conversion::Transposed
        }
        _ => Conversion::None,
    }
}

fn interleaved(heads: Option<usize>) -> Conversion {
    heads.map_or(Conversion::None, |heads| Conversion::InterleavedRows { heads })
}

/// The number of heads of a layer: a number of the model, or an array with one for each layer.
fn heads(metadata: &Metadata, architecture: &str, key: &str, layer: Option<usize>) -> Option<usize> {
    let key = format!("{architecture}.{key}");
    let heads = match metadata.u64(&key) {
        Some(heads) => Some(heads),
        None => u64::try_from(*metadata.integers(&key)?.get(layer?)?).ok(),
    };
    usize::try_from(heads?).ok()
}

fn layer_of(stem: &str) -> Option<usize> {
    stem.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

impl Conversion {
    /// Returns whether quantised blocks stay blocks: the conversion moves whole rows, if anything.
    pub fn keeps_blocks(self) -> bool {
        match self {
            Conversion::None | Conversion::InterleavedRows { .. } => true,
            Conversion::OnePlus | Conversion::Transposed => false,
        }
    }

    /// Converts contents from GGUF to Hugging Face's checkpoints. `blocks` is the format of quantised blocks, which are
    /// dequantised to `f32` unless the conversion [keeps them](Conversion::keeps_blocks).
    ///
    /// # Errors
    /// When the rows do not divide into heads, or the contents are not blocks of the format.
    pub fn from_gguf(self, contents: TensorContents, blocks: Option<BlockFormat>) -> Result<TensorContents> {
        match self {
            Conversion::None => Ok(contents),
            Conversion::InterleavedRows { heads } => unpermute_rows(contents, heads),
            Conversion::OnePlus => {
                let data = elements(contents, blocks)?;
                let dtype = data.dtype();
                add(data, -1.0, dtype)
            }
            Conversion::Transposed => transposed(elements(contents, blocks)?),
        }
    }

    /// Converts contents from Hugging Face's checkpoints to GGUF, the inverse of [`from_gguf`](Conversion::from_gguf).
    /// The scales of Gemma's norms become `f32`.
    ///
    /// # Errors
    /// See [`from_gguf`](Conversion::from_gguf).
    pub fn to_gguf(self, contents: TensorContents, blocks: Option<BlockFormat>) -> Result<TensorContents> {
        match self {
            Conversion::None => Ok(contents),
            Conversion::InterleavedRows { heads } => permute_rows(contents, heads),
            // The sum of 1 and a small weight has no room in 16 bits.
            Conversion::OnePlus => add(elements(contents, blocks)?, 1.0, DType::F32),
            Conversion::Transposed => transposed(elements(contents, blocks)?),
        }
    }

    /// Returns the shape in the other layout.
    pub fn shape(self, shape: Shape) -> Shape {
        match (self, &*shape) {
            (Conversion::Transposed, &[rows, columns]) => Shape::new([columns, rows]),
            (
                Conversion::None
                | Conversion::InterleavedRows { .. }
                | Conversion::OnePlus
                | Conversion::Transposed,
                _,
            ) => shape,
        }
    }
}

/// The elements of contents, dequantised to `f32`.
fn elements(contents: TensorContents, blocks: Option<BlockFormat>) -> Result<TensorData> {
    let failed = |error: kiln_tensor::Error| invalid("contents".to_owned(), &error.to_string());
    let data = contents.into_data().map_err(failed)?;
    let Some(format) = blocks else { return Ok(data) };
    let (bytes, shape) = (data.bytes(), data.shape());
    let row = shape.last().and_then(|&row| format.row_len(row));
    let (Some(row), Some(count)) = (row, format.row_len(bytes.len())) else {
        let problem = format!("bytes of shape {shape} are not rows of blocks");
        return Err(invalid(format!("contents of {}", format.name()), &problem));
    };
    let mut values = vec![0.0f32; count];
    format.decode(bytes, &mut values);
    TensorData::new(values, shape.with(shape.rank() - 1, row)).map_err(failed)
}

/// Reorders rows from GGUF to Hugging Face's checkpoints: query and key projections of the architectures that
/// [`conversion`] lists.
///
/// Within each of `heads` groups of rows, row `2 j + i` of the input becomes row `i * half + j`, where `half` is half of
/// the rows of a head and `i` is 0 or 1. Whole rows move, so quantised blocks can be reordered too. The first dimension
/// counts rows; a bias of one dimension has rows of one element.
///
/// # Errors
/// When the number of rows is not a multiple of `2 heads`.
pub fn unpermute_rows(contents: TensorContents, heads: usize) -> Result<TensorContents> {
    reorder(contents, heads, |half, row| (row % 2) * half + row / 2)
}

/// Reorders rows from Hugging Face's checkpoints to GGUF, the inverse of [`unpermute_rows`].
///
/// # Errors
/// When the number of rows is not a multiple of `2 heads`.
pub fn permute_rows(contents: TensorContents, heads: usize) -> Result<TensorContents> {
    reorder(contents, heads, |half, row| 2 * (row % half) + row / half)
}

/// Moves each row of a head to the position that `place` returns for half of the head's rows and the row's index.
fn reorder(
    contents: TensorContents,
    heads: usize,
    place: impl Fn(usize, usize) -> usize,
) -> Result<TensorContents> {
    let ty = contents.ty();
    let rows = ty.shape.first().copied().unwrap_or(0);
    if heads == 0 || !rows.is_multiple_of(2 * heads) {
        let problem = format!("the {rows} rows do not divide into {heads} heads of an even number of rows");
        return Err(invalid(format!("heads = {heads}"), &problem));
    }
    let shared = match &contents {
        TensorContents::Shared(bytes, _) => bytes.as_slice(),
        TensorContents::Host(data) => data.bytes(),
    };
    let mut reordered = vec![0; shared.len()];
    if !shared.is_empty() {
        let (row_bytes, in_head) = (shared.len() / rows, rows / heads);
        for (index, row) in shared.chunks_exact(row_bytes).enumerate() {
            let start = index - index % in_head + place(in_head / 2, index % in_head);
            reordered[start * row_bytes..][..row_bytes].copy_from_slice(row);
        }
    }
    Ok(match contents {
        TensorContents::Shared(..) => shared_contents(reordered, ty)?,
        TensorContents::Host(_) => TensorContents::Host(data_of(&reordered, ty)?),
    })
}

fn shared_contents(bytes: Vec<u8>, ty: TensorType) -> Result<TensorContents> {
    let length = bytes.len();
    let shared = SharedBytes::new(Arc::new(bytes), 0..length);
    let shared = shared.map_err(|error| invalid("contents".to_owned(), &error.to_string()))?;
    Ok(TensorContents::Shared(shared, ty))
}

fn data_of(bytes: &[u8], ty: TensorType) -> Result<TensorData> {
    TensorData::from_bytes(bytes, ty).map_err(|error| invalid("contents".to_owned(), &error.to_string()))
}

/// Adds a number to every element, and returns the sums in a dtype.
fn add(data: TensorData, x: f64, dtype: DType) -> Result<TensorContents> {
    let sums: Vec<f64> = data.iter::<f64>().map(|element| element + x).collect();
    let sums = TensorData::new(sums, *data.shape())
        .map_err(|error| invalid("contents".to_owned(), &error.to_string()))?;
    Ok(TensorContents::Host(sums.convert(dtype)))
}

fn transposed(data: TensorData) -> Result<TensorContents> {
    let &[rows, columns] = &**data.shape() else {
        let problem = format!("a tensor of shape {} is not a matrix", data.shape());
        return Err(invalid("contents".to_owned(), &problem));
    };
    let size = data.dtype().size();
    let source = data.bytes();
    let mut bytes = Vec::with_capacity(source.len());
    for column in 0..columns {
        for row in 0..rows {
            let start = (row * columns + column) * size;
            bytes.extend_from_slice(&source[start..start + size]);
        }
    }
    let ty = TensorType { shape: Shape::new([columns, rows]), dtype: data.dtype() };
    Ok(TensorContents::Host(data_of(&bytes, ty)?))
}

/// Returns whether llama.cpp needs this tensor in `f32`: scales, biases and other tensors of one dimension, and the
/// embeddings of positions and token types.
pub(super) fn needs_f32(name: &str, shape: &Shape) -> bool {
    shape.rank() <= 1 || matches!(name, "position_embd.weight" | "token_types.weight")
}

fn invalid(argument: String, problem: &str) -> StoreError {
    StoreError::InvalidArgument { argument, problem: problem.to_owned() }
}
