//! Embedding lookups.

use crate::{AnyTensor, Result, TensorType};
use kiln_ir::{Binary, Comparison, DType, Reduction, UpdateMode, Var};

/// The reduction of the rows of a bag in [`embedding_bag`](crate::module::embedding_bag).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BagMode {
    /// The sum.
    Sum,
    /// The mean.
    #[default]
    Mean,
    /// The maximum of each column.
    Max,
}

/// Options of [`embedding_with`](crate::module::embedding_with), named as in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmbeddingOptions {
    /// The padding index: a row whose gradient is 0. Default: none.
    pub padding_idx: Option<usize>,
    /// The maximum norm: rows of a greater norm are scaled down to it. Default: none.
    pub max_norm: Option<f64>,
    /// The `p` of the norm `(Σ |x|^p)^(1/p)`. Default: 2.
    pub norm_type: f64,
}

impl Default for EmbeddingOptions {
    fn default() -> EmbeddingOptions {
        EmbeddingOptions { padding_idx: None, max_norm: None, norm_type: 2.0 }
    }
}

impl AnyTensor {
    /// Looks up rows of the table `self`, `[vocabulary, dim]`: indices of any shape return `[indices.., dim]`. See
    /// [`module::embedding`](crate::module::embedding).
    ///
    /// # Errors
    /// When the table does not have two axes, or the indices are not integers. An index out of range is reported when
    /// the result is read.
    pub fn embedding(self, indices: AnyTensor) -> Result<AnyTensor> {
        self.check_rank_is("embedding", 2, "[vocabulary, dim]")?;
        self.in_same_domain("embedding", &indices)?;
        let indices = indices.checked_for(kiln_ir::IndexUser::Embedding, self.shape()[0])?;
        self.take(0, indices)
    }

    /// Like [`embedding`](AnyTensor::embedding), with a padding row without gradient and a maximum norm. See
    /// [`module::embedding_with`](crate::module::embedding_with).
    ///
    /// # Errors
    /// As [`embedding`](AnyTensor::embedding), and when the table is not of floats, `padding_idx` is not a row,
    /// `max_norm` is negative, or `norm_type` is not positive.
    pub fn embedding_with(self, indices: AnyTensor, options: &EmbeddingOptions) -> Result<AnyTensor> {
        const OP: &str = "embedding";
        self.check_rank_is(OP, 2, "[vocabulary, dim]")?;
        self.check_float(OP)?;
        let vocabulary = self.shape()[0];
        let mut rows = self.embedding(indices.clone())?;
        if let Some(max_norm) = options.max_norm {
            let (count, dim) = (indices.shape().num_elements(), rows.shape()[rows.rank() - 1]);
            let (shape, plain) = (*rows.shape(), rows.clone().detach());
            let bounded = plain.clone().reshape([count, dim])?.renorm(options.norm_type, 0, max_norm)?;
            let change = bounded.reshape(shape)?.binary(Binary::Sub, plain)?;
            rows = rows.binary(Binary::Add, change)?;
        }
        let Some(padding) = options.padding_idx else { return Ok(rows) };
        if padding >= vocabulary {
            return Err(rows.wrong(OP, alloc::format!("padding_idx is {padding} of {vocabulary} rows")));
        }
        let shape = indices.shape().inserted(indices.rank(), 1);
        let is_padding = indices.compare_scalar(Comparison::Eq, padding)?.reshape(shape)?;
        is_padding.if_else(rows.clone().detach(), rows)
    }

    /// Looks up and reduces the rows of each bag, `[bags, dim]`. Bags are the rows of indices `[bags, length]`;
    /// weights, if any, have the same shape. See [`module::embedding_bag`](crate::module::embedding_bag).
    ///
    /// # Errors
    /// When the table is not a matrix of floats, the indices are not a matrix of integers, the weights differ from the
    /// indices in shape or from the table in dtype, or there are weights and `mode` is not [`Sum`](BagMode::Sum).
    pub fn embedding_bag(
        self,
        indices: AnyTensor,
        weights: Option<AnyTensor>,
        mode: BagMode,
    ) -> Result<AnyTensor> {
        const OP: &str = "embedding_bag";
        self.check_float(OP)?;
        self.check_rank_is(OP, 2, "[vocabulary, dim]")?;
        indices.check_rank_is(OP, 2, "[bags, length]")?;
        let (bags, length, dim) = (indices.shape()[0], indices.shape()[1], self.shape()[1]);
        let rows = self.embedding(indices)?.weigh_rows(weights, &[bags, length], mode)?;
        // An empty bag has neither mean nor maximum: it returns zeros.
        let mode = if length == 0 { BagMode::Sum } else { mode };
        let joined = match mode {
            BagMode::Sum => rows.reduce(Reduction::Sum, &[1])?,
            BagMode::Mean => rows.mean_over(&[1])?,
            BagMode::Max => rows.reduce(Reduction::Max, &[1])?,
        };
        joined.reshape([bags, dim])
    }

    /// Like [`embedding_bag`](AnyTensor::embedding_bag), for concatenated bags, `[count]`, and the start of each bag,
    /// `[bags]`, ascending from 0. See [`module::embedding_bag_offsets`](crate::module::embedding_bag_offsets).
    ///
    /// # Errors
    /// As [`embedding_bag`](AnyTensor::embedding_bag), for a vector of indices, and when the offsets are not a vector
    /// of integers.
    pub fn embedding_bag_offsets(
        self,
        indices: AnyTensor,
        offsets: AnyTensor,
        weights: Option<AnyTensor>,
        mode: BagMode,
    ) -> Result<AnyTensor> {
        const OP: &str = "embedding_bag";
        self.check_float(OP)?;
        self.check_rank_is(OP, 2, "[vocabulary, dim]")?;
        indices.check_rank_is(OP, 1, "[count]")?;
        offsets.check_rank_is(OP, 1, "[bags]")?;
        offsets.check_int(OP)?;
        self.in_same_domain(OP, &offsets)?;
        let (count, bags, dim) = (indices.shape()[0], offsets.shape()[0], self.shape()[1]);
        let rows = self.embedding(indices)?.weigh_rows(weights, &[count], mode)?;
        let bag = bag_of_each(offsets, count)?;
        let ty = TensorType::new([bags, dim], rows.dtype());
        match mode {
            BagMode::Sum => AnyTensor::zeros(ty, rows.stack())?.put(0, bag, rows, UpdateMode::Add),
            BagMode::Mean => {
                let one = AnyTensor::ones(TensorType::new([count, 1], rows.dtype()), rows.stack())?;
                let counts = AnyTensor::zeros(TensorType::new([bags, 1], rows.dtype()), rows.stack())?;
                let counts =
                    counts.put(0, bag.clone(), one, UpdateMode::Add)?.binary_scalar(Binary::Max, 1.0)?;
                let sums = AnyTensor::zeros(ty, rows.stack())?.put(0, bag, rows, UpdateMode::Add)?;
                sums.binary(Binary::Div, counts)
            }
            BagMode::Max => {
                let least = AnyTensor::full(ty, f64::NEG_INFINITY, rows.stack())?;
                let greatest = least.put(0, bag, rows, UpdateMode::Max)?;
                // A bag without indices keeps the identity.
                let none = greatest.clone().compare_scalar(Comparison::Eq, f64::NEG_INFINITY)?;
                none.if_else_number(0, greatest)
            }
        }
    }

    fn weigh_rows(self, weights: Option<AnyTensor>, shape: &[usize], mode: BagMode) -> Result<AnyTensor> {
        let Some(weights) = weights else { return Ok(self) };
        self.check_alike("embedding_bag", &weights)?;
        if mode != BagMode::Sum {
            return Err(self.wrong("embedding_bag", "weights are only supported for sums"));
        }
        if &**weights.shape() != shape {
            return Err(self.unlike("embedding_bag", "expected one weight for each index", &weights));
        }
        let shape = weights.shape().inserted(shape.len(), 1);
        self.binary(Binary::Mul, weights.reshape(shape)?)
    }
}

/// Returns the bag of each index: the number of bags that start at or before it, minus one.
fn bag_of_each(offsets: AnyTensor, count: usize) -> Result<AnyTensor> {
    let offsets = offsets.cast(DType::I32)?;
    Ok(offsets.expression(|offsets| {
        let engine = offsets.engine();
        // One entry more, for bags that start after the last index.
        let begun = Var::zeros(engine, TensorType::new([count + 1], DType::I32));
        let one = Var::full(engine, offsets.ty(), 1);
        let begun = begun.put(0, UpdateMode::Add, &offsets, &one);
        let bags = begun.scan(Reduction::Sum, 0, false, false);
        let here = bags.slice_axis(0, kiln_ir::SliceAxis { start: 0, len: count, step: 1 });
        here.binary(Binary::Sub, &here.scalar(1))
    }))
}
