//! 8-bit floats: decoding and rounding.

use kiln_ir::Float8;

/// The value of finite bits, by definition.
fn number(format: Float8, bits: u8) -> Option<f64> {
    let (fraction_bits, bias) = match format {
        Float8::E4M3 => (3, 7),
        Float8::E5M2 => (2, 15),
    };
    let fraction = f64::from(bits & ((1 << fraction_bits) - 1)) / f64::from(1 << fraction_bits);
    let exponent = i32::from((bits & 0x7f) >> fraction_bits);
    let sign = if bits & 0x80 == 0 { 1.0 } else { -1.0 };
    let last = match format {
        Float8::E4M3 => bits & 0x7f == 0x7f,
        Float8::E5M2 => exponent == 31,
    };
    let magnitude = match exponent {
        0 => fraction * f64::powi(2.0, 1 - bias),
        _ => (1.0 + fraction) * f64::powi(2.0, exponent - bias),
    };
    (!last).then_some(sign * magnitude)
}

#[test]
fn decode_matches_the_format_definitions() {
    for &format in Float8::ALL {
        let finite = (0..=255u8).filter_map(|bits| Some((bits, number(format, bits)?)));
        for (bits, expected) in finite {
            let actual = format.decode(bits);
            assert_eq!(
                (f64::from(actual), actual.is_sign_negative()),
                (expected, bits & 0x80 != 0),
                "{bits:#x}"
            );
            assert_eq!(format.encode(actual), bits, "{format:?} {bits:#x}");
        }
        let greatest = (0..=255u8).filter_map(|bits| number(format, bits)).fold(0.0, f64::max);
        assert_eq!(f64::from(format.greatest()), greatest);
        assert_eq!(Float8::from_name(format.name()), Some(format));
    }
    assert!([0x7f, 0xff].into_iter().all(|bits| Float8::E4M3.decode(bits).is_nan()));
    assert_eq!([0x7c, 0xfc].map(|bits| Float8::E5M2.decode(bits)), [f32::INFINITY, f32::NEG_INFINITY]);
    assert!([0x7d, 0x7e, 0x7f, 0xfd, 0xff].into_iter().all(|bits| Float8::E5M2.decode(bits).is_nan()));
}

/// All neighbours in the format, their midpoints, and the floats next to the midpoints.
#[test]
fn encode_rounds_to_nearest_even() {
    for &format in Float8::ALL {
        let finite: Vec<u8> = (0..=0x7fu8).filter(|&bits| number(format, bits).is_some()).collect();
        for pair in finite.windows(2) {
            let [low, high] = [pair[0], pair[1]];
            let middle = f32::midpoint(format.decode(low), format.decode(high));
            let even = if low & 1 == 0 { low } else { high };
            for (x, bits) in [(middle.next_down(), low), (middle, even), (middle.next_up(), high)] {
                assert_eq!(format.encode(x), bits, "{format:?} {x}");
                assert_eq!(format.encode(-x), bits | 0x80, "{format:?} -{x}");
            }
        }
        assert_eq!(format.encode(f32::from_bits(1)), 0);
        assert_eq!(format.encode(-0.0), 0x80);
    }
}

#[test]
fn values_out_of_range_saturate_or_become_infinite() {
    let [e4m3, e5m2] = [Float8::E4M3, Float8::E5M2];
    // Halfway to the next number beyond the maximum.
    assert_eq!([464.0, 464.0f32.next_up(), 1e30, f32::INFINITY].map(|x| e4m3.encode(x)), [0x7e; 4]);
    assert_eq!(
        [61_440.0f32.next_down(), 61_440.0, f32::MAX, f32::INFINITY].map(|x| e5m2.encode(x)),
        [0x7b, 0x7c, 0x7c, 0x7c]
    );
    assert_eq!(e5m2.encode(f32::NEG_INFINITY), 0xfc);
    for format in [e4m3, e5m2] {
        assert!(format.decode(format.encode(f32::NAN)).is_nan());
        assert!(format.decode(format.encode(-f32::NAN)).is_nan());
    }
}
