//! The framing of event files (TFRecord): length, checksum of the length, data, checksum of the data.

/// Returns a frame with data.
pub(super) fn frame(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut frame = Vec::with_capacity(data.len() + 16);
    frame.extend(length);
    frame.extend(masked_checksum(&length).to_le_bytes());
    frame.extend(data);
    frame.extend(masked_checksum(data).to_le_bytes());
    frame
}

/// The checksum of frames: CRC-32C, rotated, plus a constant. Data may contain checksums itself, so TFRecord masks its own.
fn masked_checksum(data: &[u8]) -> u32 {
    crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), RFC 3720.
fn crc32c(data: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
    !data.iter().fold(!0, step)
}

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    /// The polynomial, with the lowest bit first.
    const POLYNOMIAL: u32 = 0x82f6_3b78;
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 3720, B.4, and the check value of the catalogue of CRCs.
    #[test]
    fn crc32c_of_known_vectors() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(b""), 0);
    }

    /// The first frame of a file by TensorFlow, which contains `brain.Event:2` and a wall time.
    #[test]
    fn a_frame_of_24_bytes_starts_as_tensorflow_writes_it() {
        let frame = frame(&[0; 24]);
        assert_eq!(frame[..12], [24, 0, 0, 0, 0, 0, 0, 0, 0xa3, 0x7f, 0x4b, 0x22]);
        assert_eq!(frame.len(), 40);
    }
}
