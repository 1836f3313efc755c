//! The weight file of `safetensors_load` and `load_500mb`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use bench_protocol::{Refusal, workloads::Row};

use crate::process::at;

/// Writes the row's square matrices of random `f32`, `tensors.0` and so on: 512 MiB.
/// The format is [safetensors](https://huggingface.co/docs/safetensors).
pub(crate) fn write(row: &Row, path: &Path) -> Result<(), String> {
    let size = |name| row.size(name).map_err(Refusal::reason);
    let (tensors, rows) = (size("tensors")?, size("rows")?);
    let mut file = BufWriter::new(File::create(path).map_err(at(path))?);
    fill(&mut file, tensors, rows).and_then(|()| file.flush()).map_err(at(path))
}

fn fill(file: &mut impl Write, tensors: usize, rows: usize) -> std::io::Result<()> {
    let header = header(tensors, rows);
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    let mut state = 1u32;
    for _ in 0..tensors * rows * rows {
        // xorshift (Marsaglia 2003, https://doi.org/10.18637/jss.v008.i14), then its upper bits as a number below 1.
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        file.write_all(&((state >> 8) as f32 / (1 << 24) as f32).to_le_bytes())?;
    }
    Ok(())
}

fn header(tensors: usize, rows: usize) -> String {
    let bytes = rows * rows * size_of::<f32>();
    let entry = |i: usize| {
        let (begin, end) = (i * bytes, (i + 1) * bytes);
        format!(r#""tensors.{i}":{{"dtype":"F32","shape":[{rows},{rows}],"data_offsets":[{begin},{end}]}}"#)
    };
    let mut text = format!("{{{}}}", (0..tensors).map(entry).collect::<Vec<_>>().join(","));
    // Spaces after the header align the data to 8 bytes.
    text += &" ".repeat(text.len().next_multiple_of(8) - text.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_has_the_offsets_of_tensors() {
        let mut bytes = Vec::new();
        fill(&mut bytes, 2, 4).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(length % 8, 0);
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        assert_eq!(header["tensors.1"]["data_offsets"], serde_json::json!([64, 128]));
        assert_eq!(bytes.len(), 8 + length + 128);
        let numbers = bytes[8 + length..].chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap()));
        assert!(numbers.into_iter().all(|x| (0.0..1.0).contains(&x)));
    }
}
