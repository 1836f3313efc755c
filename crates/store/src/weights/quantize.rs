//! Weights that are quantised when they are read.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use kiln_tensor::{BlockFormat, DType, Shape, TensorData};

use super::{Weights, host_data, info_of};
use crate::error::{Result, StoreError};
use crate::source::{TensorContents, TensorInfo, TensorSource, WeightFormat};

/// The fewest blocks that a thread quantises.
const MIN_BLOCKS: usize = 1024;

/// The format of the blocks of a tensor, by its name and type; `None` keeps it.
type Choice = dyn Fn(&str, &TensorInfo) -> Option<BlockFormat> + Send + Sync;

impl Weights {
    /// Returns the weights with some tensors quantised, round-to-nearest, when they are read. `format` returns the format
    /// of a tensor by its name and type; `None` keeps the tensor. Blocks of another format are dequantised before.
    ///
    /// ```
    /// # use kiln_store::{Weights, save_tensors};
    /// # use kiln_tensor::TensorData;
    /// use kiln_tensor::BlockFormat;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("model.safetensors");
    /// # let tensors = [("fc.weight", vec![1.0f32; 64]), ("fc.bias", vec![1.0; 2])];
    /// # let shaped = |(name, v): (&str, Vec<f32>)| {
    /// #     let shape = if v.len() == 64 { vec![2, 32] } else { vec![2] };
    /// #     (name.to_owned(), TensorData::new(v, shape.as_slice()).unwrap())
    /// # };
    /// # save_tensors(&path, tensors.map(shaped), &Default::default())?;
    /// let format = BlockFormat::Q8_0;
    /// let weights = Weights::open(&path)?.quantized(move |_, info| (info.shape.rank() == 2).then_some(format))?;
    /// assert_eq!(weights.info("fc.weight").unwrap().blocks, Some(format));
    /// assert_eq!(weights.info("fc.bias").unwrap().blocks, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a tensor has no float dtype, or its rows do not consist of whole blocks.
    pub fn quantized(
        &self,
        format: impl Fn(&str, &TensorInfo) -> Option<BlockFormat> + Send + Sync + 'static,
    ) -> Result<Weights> {
        let source = QuantizedSource { source: self.0.clone(), format: Box::new(format) };
        for name in source.source.names() {
            let info = info_of(source.source.as_ref(), name)?;
            if let Some(format) = (source.format)(name, &info) {
                source.check(name, &info, format)?;
            }
        }
        Ok(Weights(Arc::new(source)))
    }
}

struct QuantizedSource {
    source: Arc<dyn TensorSource>,
    format: Box<Choice>,
}

impl QuantizedSource {
    fn check(&self, name: &str, info: &TensorInfo, format: BlockFormat) -> Result<()> {
        let refused = |problem: String| {
            let argument = format!("{}: tensor `{name}`", self.source.path().display());
            Err(StoreError::InvalidArgument { argument, problem })
        };
        if !info.dtype.is_some_and(DType::is_float) {
            return refused(format!("{} cannot be quantised; only floats can", info.dtype_name));
        }
        match info.shape.iter().last() {
            Some(row) if format.row_bytes(*row).is_some() => Ok(()),
            Some(_) | None => refused(format!(
                "rows of the shape {} are not whole blocks of {} elements, as {} needs",
                info.shape,
                format.len(),
                format.name()
            )),
        }
    }
}

impl TensorSource for QuantizedSource {
    fn path(&self) -> &Path {
        self.source.path()
    }

    fn format(&self) -> WeightFormat {
        self.source.format()
    }

    fn names(&self) -> Vec<&str> {
        self.source.names()
    }

    fn info(&self, name: &str) -> Option<TensorInfo> {
        let info = self.source.info(name)?;
        match (self.format)(name, &info) {
            Some(format) if info.blocks != Some(format) => Some(TensorInfo {
                dtype: Some(DType::F32),
                dtype_name: format.name().to_uppercase(),
                blocks: Some(format),
                ..info
            }),
            Some(_) | None => Some(info),
        }
    }

    fn contents(&self, name: &str) -> Result<TensorContents> {
        let info = info_of(self.source.as_ref(), name)?;
        let contents = self.source.contents(name)?;
        match (self.format)(name, &info) {
            Some(format) if info.blocks != Some(format) => {
                let data = host_data(self.source.as_ref(), name, contents, &info)?;
                let blocks = encoded(&data.convert(DType::F32), &info.shape, format);
                let failed = |error: kiln_tensor::Error| {
                    StoreError::malformed(self.path(), 0, format!("tensor `{name}`: {error}"))
                };
                blocks.map(TensorContents::Host).map_err(failed)
            }
            Some(_) | None => Ok(contents),
        }
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.source.metadata()
    }
}

impl fmt::Debug for QuantizedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("QuantizedSource").field(&self.source).finish()
    }
}

/// Quantises rows of whole blocks, on all processors: `u8` of shape `[.., bytes of a row]`.
fn encoded(data: &TensorData, shape: &Shape, format: BlockFormat) -> Result<TensorData, kiln_tensor::Error> {
    let values: &[f32] = data.as_slice()?;
    let count = values.len() / format.len();
    let mut blocks = vec![0; count * format.bytes()];
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = count.div_ceil(threads).max(MIN_BLOCKS);
    thread::scope(|scope| {
        let parts = values.chunks(part * format.len()).zip(blocks.chunks_mut(part * format.bytes()));
        for (values, blocks) in parts {
            scope.spawn(move || format.encode(values, blocks));
        }
    });
    let last = shape.rank().saturating_sub(1);
    let row = shape.iter().last().and_then(|row| format.row_bytes(*row)).unwrap_or(0);
    TensorData::new(blocks, shape.with(last, row))
}
