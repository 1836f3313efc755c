//! Writing GGUF files.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use kiln_tensor::{BlockFormat, Shape, SharedBytes, TensorData, TensorType};

use super::contents_type;
use super::element::ElementType;
use super::header::{ALIGNMENT, DEFAULT_ALIGNMENT, MAGIC, VERSION};
use super::metadata::Metadata;
use super::metadata_type::{MetadataValue, put_string};
use crate::atomic::write_file;
use crate::error::{Result, StoreError};
use crate::file::write_elements;
use crate::source::{TensorContents, TensorInfo};

/// Limits of llama.cpp: the length of a tensor's name in bytes, and its rank.
const MAX_NAME_BYTES: usize = 63;
const MAX_RANK: usize = 4;

/// Limit of the format on the length of a metadata key in bytes.
const MAX_KEY_BYTES: usize = 65_535;

/// A tensor to write to a GGUF file.
///
/// ```
/// use kiln_store::gguf::GgufTensor;
/// use kiln_tensor::{BlockFormat, TensorData};
///
/// let plain = GgufTensor::from(TensorData::from([1.0f32, 2.0]));
/// let blocks = GgufTensor::blocks(vec![0; 36], BlockFormat::Q4_0, [2, 32]);
/// assert_eq!(blocks.shape().to_vec(), [2, 32]);
/// ```
pub struct GgufTensor<'a> {
    shape: Shape,
    element: ElementType,
    contents: Contents<'a>,
}

enum Contents<'a> {
    Plain(TensorData),
    Bytes(SharedBytes),
    Deferred(Box<dyn Fn() -> Result<TensorContents> + 'a>),
}

impl<'a> GgufTensor<'a> {
    /// Returns a tensor of quantised blocks, row by row. `shape` is in elements. [`save`] checks that the bytes fill it.
    pub fn blocks(bytes: Vec<u8>, format: BlockFormat, shape: impl Into<Shape>) -> GgufTensor<'a> {
        let length = bytes.len();
        let element = ElementType::Blocks(format);
        match SharedBytes::new(Arc::new(bytes), 0..length) {
            Ok(bytes) => GgufTensor { shape: shape.into(), element, contents: Contents::Bytes(bytes) },
            Err(_) => unreachable!("the range is that of the vector"),
        }
    }

    /// Returns a tensor with the contents of another file. `None` if Kiln does not support its dtype.
    pub fn from_contents(info: &TensorInfo, contents: TensorContents) -> Option<GgufTensor<'a>> {
        let element = match info.blocks {
            Some(format) => ElementType::Blocks(format),
            None => ElementType::Plain(info.dtype?),
        };
        let contents = match contents {
            TensorContents::Shared(bytes, _) => Contents::Bytes(bytes),
            TensorContents::Host(data) => Contents::Plain(data),
        };
        Some(GgufTensor { shape: info.shape, element, contents })
    }

    /// Returns a tensor whose contents are produced while the file is written, so that not all tensors are in memory at
    /// once. The contents of blocks are `u8` of shape `[.., row bytes]`. [`save`] checks their type.
    pub fn deferred(
        element: ElementType,
        shape: impl Into<Shape>,
        contents: impl Fn() -> Result<TensorContents> + 'a,
    ) -> GgufTensor<'a> {
        GgufTensor { shape: shape.into(), element, contents: Contents::Deferred(Box::new(contents)) }
    }

    /// Returns the shape, in elements.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    fn write(&self, writer: &mut dyn Write, target: &Target<'_>, name: &str) -> Result<()> {
        let failed = |source| StoreError::io(target.0, "write", source);
        match &self.contents {
            Contents::Plain(data) => {
                self.check_type(data.ty(), target, name)?;
                write_elements(writer, data).map_err(failed)
            }
            // Shared contents are little-endian, like the file.
            Contents::Bytes(bytes) => {
                self.check_bytes(bytes.as_slice().len(), target, name)?;
                writer.write_all(bytes.as_slice()).map_err(failed)
            }
            Contents::Deferred(contents) => match contents()? {
                TensorContents::Host(data) => {
                    self.check_type(data.ty(), target, name)?;
                    write_elements(writer, &data).map_err(failed)
                }
                TensorContents::Shared(bytes, ty) => {
                    self.check_type(ty, target, name)?;
                    self.check_bytes(bytes.as_slice().len(), target, name)?;
                    writer.write_all(bytes.as_slice()).map_err(failed)
                }
            },
        }
    }

    fn check_type(&self, found: TensorType, target: &Target<'_>, name: &str) -> Result<()> {
        let expected = contents_type(self.element, &self.shape);
        if found == expected {
            return Ok(());
        }
        let problem = format!("is of type {expected} in the header, but its contents are of type {found}");
        Err(target.invalid(name, &problem))
    }

    fn check_bytes(&self, found: usize, target: &Target<'_>, name: &str) -> Result<()> {
        let expected =
            self.element.num_bytes(&self.shape).map_err(|problem| target.invalid(name, &problem))?;
        if found as u64 == expected {
            return Ok(());
        }
        let problem = format!("{} {} needs {expected} bytes, but has {found}", self.element, self.shape);
        Err(target.invalid(name, &problem))
    }
}

impl From<TensorData> for GgufTensor<'_> {
    fn from(data: TensorData) -> Self {
        GgufTensor {
            shape: *data.shape(),
            element: ElementType::Plain(data.dtype()),
            contents: Contents::Plain(data),
        }
    }
}

impl fmt::Debug for GgufTensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GgufTensor({} {})", self.element, self.shape)
    }
}

/// Writes metadata and tensors to a GGUF file of version 3, in their order. On an error the file does not change.
///
/// Tensors are aligned to `general.alignment`, or to 32 bytes without that key. The output is deterministic.
///
/// llama.cpp requires `general.architecture` and further keys of that architecture; see
/// [`metadata_from_config`](super::metadata_from_config). It computes with tensors of one dimension in `f32`.
///
/// # Errors
/// When two tensors have the same name, a name is longer than 63 bytes, a tensor has more than 4 dimensions or elements
/// that GGUF does not have (unsigned integers, `bool`), rows are not whole blocks, or the file cannot be written. The
/// first three are limits of llama.cpp. Also the errors of deferred contents.
pub fn save<'a>(
    path: impl AsRef<Path>,
    metadata: &Metadata,
    tensors: impl IntoIterator<Item = (String, GgufTensor<'a>)>,
) -> Result<()> {
    let target = Target(path.as_ref());
    let tensors: Vec<(String, GgufTensor<'a>)> = tensors.into_iter().collect();
    let plan = Plan::new(&target, metadata, &tensors)?;
    write_file(target.0, |writer| plan.write(writer, &target, &tensors))
}

/// Returns the bytes of the file that [`save`] writes.
///
/// # Errors
/// See [`save`].
pub fn to_bytes<'a>(
    metadata: &Metadata,
    tensors: impl IntoIterator<Item = (String, GgufTensor<'a>)>,
) -> Result<Vec<u8>> {
    let target = Target(Path::new("bytes in memory"));
    let tensors: Vec<(String, GgufTensor<'a>)> = tensors.into_iter().collect();
    let plan = Plan::new(&target, metadata, &tensors)?;
    let mut bytes = Vec::new();
    plan.write(&mut bytes, &target, &tensors)?;
    Ok(bytes)
}

/// The file to write, for messages.
struct Target<'a>(&'a Path);

impl Target<'_> {
    fn invalid(&self, name: &str, problem: &str) -> StoreError {
        StoreError::InvalidArgument {
            argument: format!("{}: tensor `{name}`", self.0.display()),
            problem: problem.to_owned(),
        }
    }
}

/// The header of a file, and the sizes of its tensors.
struct Plan {
    header: Vec<u8>,
    sizes: Vec<u64>,
    alignment: u64,
}

impl Plan {
    fn new(target: &Target<'_>, metadata: &Metadata, tensors: &[(String, GgufTensor<'_>)]) -> Result<Plan> {
        check_names(target, tensors)?;
        let alignment = alignment(metadata)?;
        let mut header = Vec::new();
        header.extend(MAGIC);
        header.extend(VERSION.to_le_bytes());
        header.extend((tensors.len() as u64).to_le_bytes());
        header.extend((metadata.len() as u64).to_le_bytes());
        for (key, value) in metadata.iter() {
            if key.len() > MAX_KEY_BYTES {
                let argument = format!("metadata key of {} bytes", key.len());
                let problem = format!("is longer than the {MAX_KEY_BYTES} bytes allowed");
                return Err(StoreError::InvalidArgument { argument, problem });
            }
            put_string(&mut header, key);
            value.put(&mut header);
        }
        let (mut sizes, mut offset) = (Vec::with_capacity(tensors.len()), 0u64);
        for (name, tensor) in tensors {
            let invalid = |problem: String| target.invalid(name, &problem);
            let size = tensor.element.num_bytes(&tensor.shape).map_err(invalid)?;
            put_description(&mut header, name, tensor, offset);
            let next = offset.checked_add(size).and_then(|end| end.checked_next_multiple_of(alignment));
            offset =
                next.ok_or_else(|| invalid("the file would be larger than any file system".to_owned()))?;
            sizes.push(size);
        }
        let start = (header.len() as u64).next_multiple_of(alignment);
        header.resize(start as usize, 0);
        Ok(Plan { header, sizes, alignment })
    }

    fn write(
        &self,
        writer: &mut dyn Write,
        target: &Target<'_>,
        tensors: &[(String, GgufTensor<'_>)],
    ) -> Result<()> {
        let failed = |source| StoreError::io(target.0, "write", source);
        writer.write_all(&self.header).map_err(failed)?;
        for ((name, tensor), &size) in tensors.iter().zip(&self.sizes) {
            tensor.write(writer, target, name)?;
            put_zeros(writer, size.next_multiple_of(self.alignment) - size).map_err(failed)?;
        }
        Ok(())
    }
}

fn check_names(target: &Target<'_>, tensors: &[(String, GgufTensor<'_>)]) -> Result<()> {
    let mut names = BTreeSet::new();
    for (name, tensor) in tensors {
        if !names.insert(name) {
            return Err(StoreError::Duplicate { file: target.0.to_owned(), name: name.clone() });
        }
        if name.len() > MAX_NAME_BYTES {
            let problem =
                format!("the name has {} bytes; llama.cpp allows at most {MAX_NAME_BYTES}", name.len());
            return Err(target.invalid(name, &problem));
        }
        if tensor.shape.rank() > MAX_RANK {
            let problem = format!(
                "the tensor has {} dimensions; llama.cpp allows at most {MAX_RANK}\n  hint: reshape it",
                tensor.shape.rank()
            );
            return Err(target.invalid(name, &problem));
        }
    }
    Ok(())
}

fn alignment(metadata: &Metadata) -> Result<u64> {
    let Some(value) = metadata.get(ALIGNMENT) else { return Ok(DEFAULT_ALIGNMENT) };
    // llama.cpp reads it as `u32`.
    if let &MetadataValue::U32(alignment) = value
        && alignment.is_power_of_two()
    {
        return Ok(alignment.into());
    }
    Err(StoreError::InvalidArgument {
        argument: format!("{ALIGNMENT} = {value}"),
        problem: "must be a power of two of type `u32`".to_owned(),
    })
}

fn put_description(out: &mut Vec<u8>, name: &str, tensor: &GgufTensor<'_>, offset: u64) {
    put_string(out, name);
    out.extend((tensor.shape.rank() as u32).to_le_bytes());
    for &length in tensor.shape.iter().rev() {
        out.extend((length as u64).to_le_bytes());
    }
    // The size of the tensor was computed, so its type has a code.
    out.extend(tensor.element.code().unwrap_or_default().to_le_bytes());
    out.extend(offset.to_le_bytes());
}

fn put_zeros(writer: &mut dyn Write, mut count: u64) -> io::Result<()> {
    const ZEROS: [u8; 256] = [0; 256];
    while count > 0 {
        let some = count.min(ZEROS.len() as u64);
        writer.write_all(&ZEROS[..some as usize])?;
        count -= some;
    }
    Ok(())
}
