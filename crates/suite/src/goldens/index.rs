//! Indexing, sorting, padding, and view methods.

use super::call::{Call, Outputs};
use kiln_ir::UpdateMode;
use kiln_tensor::module::EmbeddingOptions;
use kiln_tensor::{AnyTensor, PadMode, Result, ScatterReduction};

pub(crate) fn run(call: &Call<'_>) -> Outputs {
    let result = match &*call.op {
        "sort" | "topk" => ordered(call).map(|(y, indices)| vec![Some(y), Some(indices)]),
        _ => method(call).map(|y| vec![Some(y)]),
    };
    Ok(result.unwrap_or_else(|error| panic!("{error}")))
}

fn ordered(call: &Call<'_>) -> Result<(AnyTensor, AnyTensor)> {
    let (x, axis) = (call.input("x").clone(), call.count("axis"));
    match &*call.op {
        "sort" if call.flag("descending") => x.sort_descending_with_indices(axis),
        "sort" => x.sort_with_indices(axis),
        _ if call.flag("largest") => x.topk_with_indices(call.count("k"), axis),
        _ => x.topk_smallest_with_indices(call.count("k"), axis),
    }
}

fn method(call: &Call<'_>) -> Result<AnyTensor> {
    let input = |name: &str| call.input(name).clone();
    let x = || input("x");
    let axis = || call.count("axis");
    let (indices, source) = (|| input("indices"), || input("source"));
    match &*call.op {
        "argreduce" if call.text("kind") == "max" => x().argmax(axis())?.squeeze_dim(axis()),
        "argreduce" => x().argmin(axis())?.squeeze_dim(axis()),
        "gather" => x().gather(axis(), indices()),
        "scatter" => x().scatter_mode(axis(), indices(), source(), UpdateMode::Set),
        "scatter_add" => x().scatter(axis(), indices(), source()),
        "scatter_reduce" => x().scatter_reduce(axis(), indices(), source(), reduction(call), true),
        "index_select" => x().select(axis(), indices()),
        "index_add" => x().select_assign(axis(), indices(), source()),
        "embedding" => embedding(call),
        "masked_fill" => x().mask_fill(input("mask"), call.real("value")),
        "one_hot" => indices().one_hot(call.count("classes")),
        "nonzero" => x().argwhere(),
        "pad" => pad(call),
        "unfold" => x().unfold(axis(), call.count("size"), call.count("step")),
        "roll" => x().roll(&call.ints("shifts"), &call.counts("axes")),
        "flip" => x().flip(&call.counts("axes")),
        "tril" => x().tril(call.int("diagonal")),
        "triu" => x().triu(call.int("diagonal")),
        "repeat_interleave" => x().repeat_interleave(call.count("repeats"), axis()),
        "pixel_shuffle" => x().pixel_shuffle(call.count("factor")),
        "pixel_unshuffle" => x().pixel_unshuffle(call.count("factor")),
        op => panic!("unknown op {op}"),
    }
}

fn reduction(call: &Call<'_>) -> ScatterReduction {
    match call.text("reduce") {
        "sum" => ScatterReduction::Sum,
        "prod" => ScatterReduction::Prod,
        "amin" => ScatterReduction::Min,
        "amax" => ScatterReduction::Max,
        other => panic!("unknown reduction {other}"),
    }
}

fn embedding(call: &Call<'_>) -> Result<AnyTensor> {
    let (weight, indices) = (call.input("weight").clone(), call.input("indices").clone());
    match call.attributes["padding_index"].as_u64() {
        Some(padding) => {
            let options =
                EmbeddingOptions { padding_idx: Some(padding as usize), ..EmbeddingOptions::default() };
            weight.embedding_with(indices, &options)
        }
        None => weight.embedding(indices),
    }
}

/// Pairs of (before, after), the last axis first; negative ones crop.
fn pad(call: &Call<'_>) -> Result<AnyTensor> {
    let mode = match call.text("mode") {
        "constant" => PadMode::from(call.optional_real("value").unwrap_or(0.0)),
        "reflect" => PadMode::Reflect,
        "replicate" => PadMode::Edge,
        "circular" => PadMode::Circular,
        other => panic!("unknown mode {other}"),
    };
    let widths = call.ints("padding");
    let pairs: Vec<(isize, isize)> =
        widths.chunks(2).rev().map(|pair| (pair[0] as isize, pair[1] as isize)).collect();
    call.input("x").clone().pad_signed(&pairs, mode)
}
