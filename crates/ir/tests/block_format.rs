//! Blocks against the Python package `gguf`, and the error of quantization. `fixtures/block_format/generate.py` writes
//! the fixtures.

use half::f16;
use kiln_ir::BlockFormat;

/// The sections of a fixture.
struct Fixture {
    blocks: &'static [u8],
    decoded: Vec<f32>,
    /// Numbers and their blocks.
    quantized: Option<(Vec<f32>, &'static [u8])>,
}

fn fixture(format: BlockFormat) -> Option<Fixture> {
    macro_rules! files {
        ($($variant:ident $name:literal;)*) => {
            match format {
                $(BlockFormat::$variant => {
                    Some(include_bytes!(concat!("fixtures/block_format/", $name, ".bin")).as_slice())
                })*
                BlockFormat::Q8_K => None,
            }
        };
    }
    let bytes = files! {
        Q4_0 "q4_0"; Q4_1 "q4_1"; Q5_0 "q5_0"; Q5_1 "q5_1"; Q8_0 "q8_0"; Q2_K "q2_k"; Q3_K "q3_k"; Q4_K "q4_k";
        Q5_K "q5_k"; Q6_K "q6_k"; IQ4_NL "iq4_nl"; IQ4_XS "iq4_xs";
    }?;
    let block = format.bytes() + 4 * format.len();
    let count = if format.len() == 32 { 32 } else { 3 };
    let (blocks, rest) = bytes.split_at(count * format.bytes());
    let (decoded, rest) = rest.split_at(count * 4 * format.len());
    assert!(rest.is_empty() || rest.len() == count * block);
    let quantized = (!rest.is_empty()).then(|| {
        let (numbers, blocks) = rest.split_at(count * 4 * format.len());
        (floats(numbers), blocks)
    });
    Some(Fixture { blocks, decoded: floats(decoded), quantized })
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect()
}

fn decoded(format: BlockFormat, blocks: &[u8]) -> Vec<f32> {
    let mut values = vec![f32::NAN; format.row_len(blocks.len()).expect("whole blocks")];
    format.decode(blocks, &mut values);
    values
}

fn encoded(format: BlockFormat, values: &[f32]) -> Vec<u8> {
    let mut blocks = vec![0xa5; format.row_bytes(values.len()).expect("whole blocks")];
    format.encode(values, &mut blocks);
    blocks
}

/// Standard normal numbers by the sum of 12 uniforms, from a linear congruential generator.
fn normals(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32
    };
    (0..count).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
}

/// The root mean square error of quantization, relative to the root mean square of the numbers.
fn error(format: BlockFormat, values: &[f32]) -> f64 {
    let decoded = decoded(format, &encoded(format, values));
    let squares = |x: f64| x * x;
    let difference: f64 = values.iter().zip(&decoded).map(|(x, y)| squares(f64::from(x - y))).sum();
    (difference / values.iter().map(|&x| squares(f64::from(x))).sum::<f64>()).sqrt()
}

#[test]
fn decoding_matches_gguf_bit_for_bit() {
    for &format in BlockFormat::ALL {
        let Some(fixture) = fixture(format) else { continue };
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&decoded(format, fixture.blocks)), bits(&fixture.decoded), "{}", format.name());
    }
}

#[test]
fn encoding_matches_gguf_bit_for_bit() {
    let mut count = 0;
    for &format in BlockFormat::ALL {
        let Some((numbers, blocks)) = fixture(format).and_then(|fixture| fixture.quantized) else { continue };
        count += 1;
        for (i, numbers) in numbers.chunks(format.len()).enumerate() {
            let expected = &blocks[i * format.bytes()..][..format.bytes()];
            assert_eq!(encoded(format, numbers), expected, "{} block {i}: {numbers:?}", format.name());
        }
    }
    assert_eq!(count, 5);
}

/// Blocks of `Q8_K` by hand: the format exists only in memory, so `gguf` does not read it.
#[test]
fn q8_k_holds_a_scale_bytes_and_sums() {
    let values: Vec<f32> = (0..256).map(|i| (i as f32 - 127.0) / 128.0).collect();
    let block = encoded(BlockFormat::Q8_K, &values);
    let scale = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    assert_eq!(scale, -1.0 / 127.0);
    assert_eq!((block[4] as i8, block[4 + 255] as i8), (126, -127));
    let sum =
        |group: usize| block[4 + 16 * group..][..16].iter().map(|&byte| i16::from(byte as i8)).sum::<i16>();
    for group in 0..16 {
        let stored = i16::from_le_bytes([block[260 + 2 * group], block[261 + 2 * group]]);
        assert_eq!(stored, sum(group));
    }
    let nearest = decoded(BlockFormat::Q8_K, &block);
    assert!(values.iter().zip(nearest).all(|(x, y)| (x - y).abs() <= 0.5 / 127.0 + 1e-6));
}

/// Each bound is 3 % above the error on normal weights. The optimal quantizer of 16 levels for a known normal
/// distribution has 0.0975 (Max 1960); formats of 4 bits are better by the scales of their groups.
#[test]
fn errors_of_normal_weights_are_small() {
    let values = normals(64 * 256, 28);
    let bounds = [
        (BlockFormat::Q4_0, 0.0863),
        (BlockFormat::Q4_1, 0.0792),
        (BlockFormat::Q5_0, 0.0427),
        (BlockFormat::Q5_1, 0.0383),
        (BlockFormat::Q8_0, 0.0054),
        (BlockFormat::Q2_K, 0.2795),
        (BlockFormat::Q3_K, 0.1470),
        (BlockFormat::Q4_K, 0.0722),
        (BlockFormat::Q5_K, 0.0361),
        (BlockFormat::Q6_K, 0.0176),
        (BlockFormat::Q8_K, 0.0070),
        (BlockFormat::IQ4_NL, 0.0763),
        (BlockFormat::IQ4_XS, 0.0769),
    ];
    assert_eq!(bounds.len(), BlockFormat::ALL.len());
    for (format, bound) in bounds {
        let error = error(format, &values);
        println!("{} {error:.5}", format.name());
        assert!(error < bound, "{}: {error}", format.name());
    }
}

/// Weights of different magnitudes in the groups of a block, as in trained models.
#[test]
fn groups_of_different_magnitudes_keep_their_precision() {
    let mut values = normals(16 * 256, 7);
    for (i, value) in values.iter_mut().enumerate() {
        *value *= [1.0, 0.4, 0.15, 0.7][i / 32 % 4];
    }
    for format in
        [BlockFormat::Q3_K, BlockFormat::Q4_K, BlockFormat::Q5_K, BlockFormat::Q6_K, BlockFormat::IQ4_XS]
    {
        let bits = 8.0 * format.bytes() as f64 / format.len() as f64;
        let error = error(format, &values);
        println!("{} {error:.5}", format.name());
        assert!(error < 2.2 / 2.0_f64.powf(bits), "{}: {error}", format.name());
    }
}

#[test]
fn encoding_of_decoded_blocks_changes_little() {
    for &format in BlockFormat::ALL {
        let once = decoded(format, &encoded(format, &normals(1024, 3)));
        let again = error(format, &once);
        assert!(again < 0.02, "{}: {again}", format.name());
    }
}

#[test]
fn zeros_and_constants() {
    for &format in BlockFormat::ALL {
        let decode = |value: f32| decoded(format, &encoded(format, &vec![value; 256]));
        assert!(decode(0.0).iter().all(|&x| x == 0.0), "{}", format.name());
        assert!(decode(1e-12).iter().all(|&x| x.abs() <= 1e-12), "{}", format.name());
        for constant in [1.0, -3.5, 1000.0] {
            let worst =
                decode(constant).iter().fold(0.0_f32, |worst, x| worst.max((x / constant - 1.0).abs()));
            assert!(worst < 0.04, "{} of {constant}: {worst}", format.name());
        }
    }
}

#[test]
fn nan_is_zero_and_infinities_are_the_greatest_half() {
    for &format in BlockFormat::ALL {
        let mut values = normals(256, 5);
        values[3] = f32::NAN;
        let blocks = encoded(format, &values);
        values[3] = 0.0;
        assert_eq!(blocks, encoded(format, &values), "{}", format.name());
        values[7] = f32::INFINITY;
        values[200] = f32::NEG_INFINITY;
        let numbers = decoded(format, &encoded(format, &values));
        let greatest = f16::MAX.to_f32();
        assert!(numbers.iter().all(|x| x.is_finite()), "{}", format.name());
        assert!((numbers[7] / greatest - 1.0).abs() < 0.15, "{} {}", format.name(), numbers[7]);
        assert!((numbers[200] / greatest + 1.0).abs() < 0.15, "{} {}", format.name(), numbers[200]);
    }
}

#[test]
fn all_magnitudes_encode_to_finite_numbers() {
    for &format in BlockFormat::ALL {
        for exponent in -45..=38 {
            let scale = 10.0_f64.powi(exponent) as f32;
            let values: Vec<f32> = normals(256, 11).iter().map(|x| x * scale).collect();
            let numbers = decoded(format, &encoded(format, &values));
            assert!(numbers.iter().all(|x| x.is_finite()), "{} at 1e{exponent}", format.name());
        }
    }
}

#[test]
fn any_bytes_decode() {
    for &format in BlockFormat::ALL {
        for byte in [0x00, 0x7c, 0x80, 0xff] {
            decoded(format, &vec![byte; 4 * format.bytes()]);
        }
    }
}

#[test]
#[should_panic(expected = "35 bytes of q8_0 do not hold 32 elements")]
fn lengths_must_fit() {
    BlockFormat::Q8_0.decode(&[0; 35], &mut [0.0; 32]);
}
