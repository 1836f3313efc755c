//! Writing weights in the format of a file name.

use std::path::Path;

use kiln_tensor::{TensorData, TensorType};

use super::{Weights, info_of};
use crate::error::{Result, StoreError};
use crate::file::{NamedSources, Source, write_tensors};
use crate::gguf::{self, ElementType, GgufTensor, Metadata};
use crate::numpy::{Compression, write_arrays};
use crate::pytorch;
use crate::sharded::{SaveOptions, save_sharded_with};
use crate::source::{TensorContents, tied_names};

/// The formats that [`Weights::save`] writes, for messages.
const WRITTEN: &str = ".safetensors, .pt, .pth, .bin, .ckpt, .gguf, .npz, or a folder of safetensors files";

impl Weights {
    /// Writes all tensors to a file in the format of its extension: `.safetensors`, PyTorch's `.pt`, `.pth`, `.bin` and
    /// `.ckpt`, `.gguf` or `.npz`. A path without an extension is a folder of safetensors files, split by
    /// [`max_shard_bytes`](SaveOptions::max_shard_bytes). On an error an existing file does not change.
    ///
    /// Tensors are read one at a time while the file is written. Floats are cast to the dtype of the options. Quantised
    /// blocks stay as they are in GGUF, and are dequantised in other formats. [`gguf::export`] converts names and order of
    /// rows to those of llama.cpp; this method keeps them. Tensors that the metadata of a safetensors file tie remain tied
    /// in safetensors, and share their storage in PyTorch's files.
    ///
    /// ```
    /// # use kiln_store::save_tensors;
    /// # use kiln_tensor::{DType, TensorData};
    /// use kiln_store::{SaveOptions, Weights};
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let (path, out) = (folder.path().join("model.safetensors"), folder.path().join("model.gguf"));
    /// # save_tensors(&path, [("x".to_owned(), TensorData::from([1.0f32]))], &Default::default())?;
    /// Weights::open(&path)?.save(&out, &SaveOptions::new().dtype(DType::F16))?;
    /// assert_eq!(Weights::open(&out)?.info("x").unwrap().dtype, Some(DType::F16));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the extension is of no format that can be written, Kiln does not support the dtype of a tensor, the format
    /// cannot hold a tensor, or the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>, options: &SaveOptions) -> Result<()> {
        let path = path.as_ref();
        let tied = tied_names(self.source());
        let options = &options.clone().with_more(tied.clone());
        let extension = path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        let is_folder = path.is_dir();
        match extension.as_deref().filter(|_| !is_folder) {
            None => {
                let types = self.types(options)?;
                let read = |name: &str| self.read_as(name, options);
                save_sharded_with(path, types, read, options).map(|_| ())
            }
            Some("safetensors") => write_tensors(path, self.sources(options)?, options.all_metadata()),
            Some("pt" | "pth" | "bin" | "ckpt") => pytorch::write(path, &self.sources(options)?, &tied),
            Some("npz") => {
                let types = self.types(options)?;
                let read = |(name, _): (String, _)| self.read_as(&name, options).map(|data| (name, data));
                write_arrays(path, &mut types.into_iter().map(read), Compression::Stored)
            }
            Some("gguf") => self.save_gguf(path, &Metadata::new(), options),
            Some(other) => Err(StoreError::InvalidArgument {
                argument: path.display().to_string(),
                problem: format!("`.{other}` is no format that can be written; supported: {WRITTEN}"),
            }),
        }
    }

    /// Writes all tensors to a GGUF file with these metadata, like [`save`](Weights::save).
    ///
    /// # Errors
    /// See [`save`](Weights::save).
    pub fn save_gguf(
        &self,
        path: impl AsRef<Path>,
        metadata: &Metadata,
        options: &SaveOptions,
    ) -> Result<()> {
        gguf::save(path, metadata, self.gguf_tensors(options)?)
    }

    /// The names and the types to write.
    fn types(&self, options: &SaveOptions) -> Result<Vec<(String, TensorType)>> {
        let typed = |name: &str| {
            let info = self.known(name)?;
            let dtype = info.dtype.ok_or_else(|| StoreError::UnsupportedDType {
                file: self.path().to_owned(),
                name: name.to_owned(),
                dtype: info.dtype_name.clone(),
            })?;
            Ok((name.to_owned(), options.written(TensorType { shape: info.shape, dtype })))
        };
        self.names().into_iter().map(typed).collect()
    }

    /// Reads a tensor and casts it.
    fn read_as(&self, name: &str, options: &SaveOptions) -> Result<TensorData> {
        let data = self.read(name)?;
        let dtype = options.written(data.ty()).dtype;
        let data = if dtype == data.dtype() { data } else { data.convert(dtype) };
        Ok(data)
    }

    /// The tensors, which are read while the file is written.
    fn sources(&self, options: &SaveOptions) -> Result<NamedSources> {
        let sources = self.types(options)?.into_iter().map(|(name, ty)| {
            let (weights, options, own) = (self.clone(), options.clone(), name.clone());
            let read = move || {
                let data = weights.read_as(&own, &options);
                data.map_err(|error| kiln_tensor::Error::value("read", error.to_string()))
            };
            (name, Source::Deferred(ty, Box::new(read)))
        });
        Ok(sources.collect())
    }

    /// The tensors of a GGUF file, with quantised blocks as they are.
    fn gguf_tensors(&self, options: &SaveOptions) -> Result<Vec<(String, GgufTensor<'static>)>> {
        let tensor = |(name, ty): (String, TensorType)| {
            let info = info_of(self.0.as_ref(), &name)?;
            let (weights, options, own) = (self.clone(), options.clone(), name.clone());
            let element = info.blocks.map_or(ElementType::Plain(ty.dtype), ElementType::Blocks);
            let contents = move || match element {
                ElementType::Blocks(_) => weights.0.contents(&own),
                ElementType::Plain(_) => weights.read_as(&own, &options).map(TensorContents::Host),
            };
            Ok((name, GgufTensor::deferred(element, info.shape, contents)))
        };
        self.types(options)?.into_iter().map(tensor).collect()
    }
}
