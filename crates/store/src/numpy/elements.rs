//! Reading and writing the elements of an array.

use std::io::{self, Write};
use std::path::Path;

use bytemuck::Pod;
use kiln_tensor::{DType, Element, Elements, Error, Shape, TensorData};

use super::header::{Header, Numbers};
use super::input::Input;
use crate::error::{Result, StoreError};
use crate::file::write_elements;

/// Number of bytes decompressed at a time, so that memory grows with the data that is present.
const CHUNK: usize = 1 << 24;

/// Reads a real array.
pub(super) fn read_array(input: &mut Input<'_>) -> Result<TensorData> {
    let header = Header::read(input)?;
    let start = input.at();
    match header.numbers {
        Numbers::Real(DType::Bool) => {
            let bytes = read_vec::<u8>(input, &header, 1)?;
            let bools = bools(input, start, bytes)?;
            data(input, start, ordered(&header, bools), header.shape)
        }
        Numbers::Real(dtype) => {
            let elements = read_elements(input, &header, dtype)?;
            TensorData::from_elements(elements, header.shape)
                .map_err(|error| input.malformed(start, error.to_string()))
        }
        Numbers::Complex(_) => Err(input.malformed(
            0,
            "the array is complex\n  hint: `numpy::read_complex` (`Archive::read_complex` in an archive) returns \
             the real and imaginary parts",
        )),
    }
}

fn read_elements(input: &mut Input<'_>, header: &Header, dtype: DType) -> Result<Elements> {
    fn read<E: Element + Pod>(input: &mut Input<'_>, header: &Header) -> Result<Elements> {
        Ok(E::wrap(ordered(header, read_vec(input, header, 1)?)))
    }
    match dtype {
        DType::F64 => read::<f64>(input, header),
        DType::F32 => read::<f32>(input, header),
        DType::F16 => read::<half::f16>(input, header),
        DType::BF16 => read::<half::bf16>(input, header),
        DType::I64 => read::<i64>(input, header),
        DType::I32 => read::<i32>(input, header),
        DType::I16 => read::<i16>(input, header),
        DType::I8 => read::<i8>(input, header),
        DType::U64 => read::<u64>(input, header),
        DType::U32 => read::<u32>(input, header),
        DType::U16 => read::<u16>(input, header),
        // The caller validates the bytes of `bool` elements.
        DType::U8 | DType::Bool => read::<u8>(input, header),
    }
}

fn bools(input: &Input<'_>, start: u64, bytes: Vec<u8>) -> Result<Vec<bool>> {
    if let Some(place) = bytes.iter().position(|&byte| byte > 1) {
        let problem = format!("{} is not a bool (0 or 1)", bytes[place]);
        return Err(input.malformed(start + place as u64, problem));
    }
    Ok(bytes.into_iter().map(|byte| byte == 1).collect())
}

/// Reads a complex array as real and imaginary parts.
pub(super) fn read_pairs(input: &mut Input<'_>) -> Result<(TensorData, TensorData)> {
    fn read<E: Element + Pod>(input: &mut Input<'_>, header: &Header) -> Result<(TensorData, TensorData)> {
        let start = input.at();
        let pairs = read_vec::<E>(input, header, 2)?;
        let part = |offset: usize| {
            let part: Vec<E> = pairs[offset.min(pairs.len())..].iter().step_by(2).copied().collect();
            data(input, start, ordered(header, part), header.shape)
        };
        Ok((part(0)?, part(1)?))
    }
    let header = Header::read(input)?;
    match header.numbers {
        Numbers::Complex(DType::F64) => read::<f64>(input, &header),
        Numbers::Complex(_) => read::<f32>(input, &header),
        Numbers::Real(dtype) => {
            let problem = format!("the array is {dtype}, not complex\n  hint: `numpy::read` reads them");
            Err(input.malformed(0, problem))
        }
    }
}

fn data<E: Element>(input: &Input<'_>, start: u64, elements: Vec<E>, shape: Shape) -> Result<TensorData> {
    TensorData::new(elements, shape).map_err(|error| input.malformed(start, error.to_string()))
}

/// Reads `parts` values per element of the array, in the machine's byte order. The header was checked against the
/// length of the input.
fn read_vec<E: Pod>(input: &mut Input<'_>, header: &Header, parts: usize) -> Result<Vec<E>> {
    let count = header.shape.num_elements() * parts;
    // A compressed entry may declare much more than it contains. The length of an uncompressed entry was already
    // checked.
    let chunk = if input.is_compressed() { CHUNK / size_of::<E>() } else { count };
    let mut elements: Vec<E> = Vec::new();
    while elements.len() < count {
        let (start, more) = (elements.len(), chunk.min(count - elements.len()));
        if elements.try_reserve(more).is_err() {
            let problem = format!("cannot allocate {} bytes for the array", count * size_of::<E>());
            return Err(input.malformed(input.at(), problem));
        }
        elements.resize(start + more, E::zeroed());
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut elements[start..]);
        input.fill(bytes, "the array")?;
        if header.big_endian != cfg!(target_endian = "big") {
            bytes.chunks_exact_mut(size_of::<E>()).for_each(<[u8]>::reverse);
        }
    }
    Ok(elements)
}

/// Returns the elements in row-major order.
fn ordered<E: Copy>(header: &Header, elements: Vec<E>) -> Vec<E> {
    let shape = &header.shape;
    if !header.fortran_order || shape.rank() < 2 || elements.is_empty() {
        return elements;
    }
    let strides = shape.iter().scan(1, |next, &length| {
        let stride = *next;
        *next *= length;
        Some(stride)
    });
    let strides: Vec<usize> = strides.collect();
    let (last, outer) = (shape.rank() - 1, &shape[..shape.rank() - 1]);
    let mut position = vec![0; outer.len()];
    let mut result = Vec::with_capacity(elements.len());
    for _ in 0..outer.iter().product() {
        let start: usize = position.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
        result.extend((0..shape[last]).map(|index| elements[start + index * strides[last]]));
        for axis in (0..outer.len()).rev() {
            position[axis] += 1;
            if position[axis] < outer[axis] {
                break;
            }
            position[axis] = 0;
        }
    }
    result
}

/// Writes the header and the elements of an array.
pub(super) fn write_array(writer: &mut dyn Write, data: &TensorData) -> io::Result<()> {
    writer.write_all(&header(Numbers::Real(data.dtype()), data.shape()).print())?;
    write_elements(writer, data)
}

fn header(numbers: Numbers, shape: &Shape) -> Header {
    Header { numbers, big_endian: false, fortran_order: false, shape: *shape }
}

/// The real and imaginary parts of a complex array, of one type.
pub(super) struct Pairs<'a> {
    parts: Parts<'a>,
    shape: Shape,
}

enum Parts<'a> {
    F32(&'a [f32], &'a [f32]),
    F64(&'a [f64], &'a [f64]),
}

impl<'a> Pairs<'a> {
    /// Checks that the parts match. `file` is for the message.
    pub(super) fn new(file: &Path, real: &'a TensorData, imaginary: &'a TensorData) -> Result<Self> {
        let parts = match (real.elements(), imaginary.elements()) {
            (Elements::F32(real), Elements::F32(imaginary)) => Some(Parts::F32(real, imaginary)),
            (Elements::F64(real), Elements::F64(imaginary)) => Some(Parts::F64(real, imaginary)),
            _ => None,
        };
        match parts.filter(|_| real.shape() == imaginary.shape()) {
            Some(parts) => Ok(Pairs { parts, shape: *real.shape() }),
            None => {
                let (a, b) = (real.ty(), imaginary.ty());
                let problem = "the parts of complex numbers must be both f32 or both f64, of one shape";
                let source = Error::type_error("numpy", problem, &[(&a).into(), (&b).into()]);
                Err(StoreError::Tensor { file: file.to_owned(), name: "complex".to_owned(), source })
            }
        }
    }
}

/// Writes a complex array.
pub(super) fn write_pairs(writer: &mut dyn Write, pairs: &Pairs<'_>) -> io::Result<()> {
    match &pairs.parts {
        Parts::F32(real, imaginary) => {
            writer.write_all(&header(Numbers::Complex(DType::F32), &pairs.shape).print())?;
            for (x, y) in real.iter().zip(imaginary.iter()) {
                writer.write_all(bytemuck::bytes_of(&[x.to_bits().to_le(), y.to_bits().to_le()]))?;
            }
        }
        Parts::F64(real, imaginary) => {
            writer.write_all(&header(Numbers::Complex(DType::F64), &pairs.shape).print())?;
            for (x, y) in real.iter().zip(imaginary.iter()) {
                writer.write_all(bytemuck::bytes_of(&[x.to_bits().to_le(), y.to_bits().to_le()]))?;
            }
        }
    }
    Ok(())
}
