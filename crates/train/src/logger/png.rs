//! PNG files of images in memory, after RFC 2083.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;

use crate::error::LoggerError;

/// An image in row-major order with interleaved channels.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The height in pixels.
    pub height: usize,
    /// The width in pixels.
    pub width: usize,
    /// The number of channels: 1 (grey), 3 (RGB) or 4 (RGBA).
    pub channels: usize,
    /// The pixels: `height × width × channels` bytes.
    pub pixels: &'a [u8],
}

/// Returns the PNG file of an image.
///
/// ```
/// use kiln_train::logger::{Image, png};
///
/// let file = png(&Image { height: 1, width: 2, channels: 3, pixels: &[255, 0, 0, 0, 128, 255] })?;
/// assert!(file.starts_with(b"\x89PNG"));
/// # Ok::<(), kiln_train::LoggerError>(())
/// ```
///
/// # Errors
/// When the image has no pixels, a height or width of 2³¹ or more, a number of channels other than 1, 3 and 4, or more or
/// fewer bytes than these say.
pub fn png(image: &Image) -> Result<Vec<u8>, LoggerError> {
    let Image { height, width, channels, pixels } = *image;
    let problem = |text: &str| {
        Err(LoggerError::Other(format!("an image of {height}x{width} with {channels} channels {text}")))
    };
    let colour_type: u8 = match channels {
        1 => 0,
        3 => 2,
        4 => 6,
        _ => return problem("is neither grey, RGB nor RGBA"),
    };
    let (Ok(h), Ok(w)) = (i32::try_from(height), i32::try_from(width)) else {
        return problem("is too large");
    };
    if h == 0 || w == 0 {
        return problem("has no pixels");
    }
    if height.checked_mul(width).and_then(|area| area.checked_mul(channels)) != Some(pixels.len()) {
        return problem(&format!("has {} bytes", pixels.len()));
    }
    let mut header = Vec::from(w.to_be_bytes());
    header.extend(h.to_be_bytes());
    // Bits of a channel, colour type, compression, filter, interlace.
    header.extend([8, colour_type, 0, 0, 0]);
    let data = compressed(pixels, width * channels).map_err(|error| LoggerError::Other(error.to_string()))?;
    let mut file = Vec::from(*b"\x89PNG\r\n\x1a\n");
    for (name, data) in [(b"IHDR", header.as_slice()), (b"IDAT", &data), (b"IEND", &[])] {
        push_chunk(&mut file, name, data);
    }
    Ok(file)
}

/// Compresses rows, each with its filter type 0 (none).
fn compressed(pixels: &[u8], row: usize) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    for row in pixels.chunks_exact(row) {
        encoder.write_all(&[0])?;
        encoder.write_all(row)?;
    }
    encoder.finish()
}

fn push_chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(name);
    file.extend(data);
    let checksum = crc32fast::hash(&file[start..]);
    file.extend(checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_images_are_errors() {
        let image = |height, width, channels, pixels| png(&Image { height, width, channels, pixels });
        assert!(image(1, 2, 3, &[0; 6]).is_ok());
        for (bad, text) in [
            (image(1, 2, 2, &[0; 4]), "neither"),
            (image(1, 2, 3, &[0; 5]), "5 bytes"),
            (image(0, 2, 1, &[]), "no pixels"),
            (image(usize::MAX, 2, 1, &[]), "too large"),
        ] {
            let error = bad.unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn the_end_of_a_file_is_that_of_the_standard() {
        let file = png(&Image { height: 1, width: 1, channels: 1, pixels: &[7] }).unwrap();
        assert!(file.starts_with(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\0\0\0\0"));
        assert!(file.ends_with(b"\0\0\0\0IEND\xae\x42\x60\x82"));
    }
}
