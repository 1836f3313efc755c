//! Numbers and durations as short text.

use std::time::Duration;

/// Formats a number with four significant digits: `0.1234`, `12.35`, `1.235e-7`.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "NaN".into() } else { format!("{value}") };
    }
    let magnitude = value.abs();
    if magnitude == 0.0 {
        "0".to_owned()
    } else if !(1e-4..1e6).contains(&magnitude) {
        format!("{value:.3e}")
    } else {
        let decimals = (3 - magnitude.log10().floor() as i32).clamp(0, 7) as usize;
        let digits = format!("{value:.decimals$}");
        if digits.contains('.') {
            digits.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            digits
        }
    }
}

/// Formats a count: `950`, `12.3k`, `4.5M`, `2.1G`.
pub(crate) fn count(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e4, "k")];
    match units.iter().find(|(least, _)| value.abs() >= *least) {
        Some((1e4, unit)) => format!("{:.1}{unit}", value / 1e3),
        Some((scale, unit)) => format!("{:.1}{unit}", value / scale),
        None => format!("{value:.0}"),
    }
}

/// Formats a duration: `8 s`, `3:05`, `2:03:05`, `1 d 04:00`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    let (minutes, hours, days) = (seconds / 60 % 60, seconds / 3600 % 24, seconds / 86400);
    if seconds < 60 {
        format!("{seconds} s")
    } else if seconds < 3600 {
        format!("{minutes}:{:02}", seconds % 60)
    } else if days == 0 {
        format!("{hours}:{minutes:02}:{:02}", seconds % 60)
    } else {
        format!("{days} d {hours:02}:{minutes:02}")
    }
}

/// Formats a duration that was measured: `0.4 ms`, `420 ms`, `4.2 s`, and as [`duration`] from 10 s.
pub(crate) fn measured(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds < 9.95e-3 {
        format!("{:.1} ms", 1e3 * seconds)
    } else if seconds < 0.9995 {
        format!("{:.0} ms", 1e3 * seconds)
    } else if seconds < 9.95 {
        format!("{seconds:.1} s")
    } else {
        duration(time)
    }
}

/// Formats a number of bytes: `512 B`, `1.5 KiB`, `5.0 MiB`, `3.0 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(bits, _)| bytes >> bits > 0) {
        Some((bits, unit)) => format!("{:.1} {unit}", bytes as f64 / f64::from(1u32 << bits)),
        None => format!("{bytes} B"),
    }
}

/// Formats a number of bytes in GB.
#[cfg(feature = "dashboard")]
pub(crate) fn gigabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_significant_digits() {
        let cases = [
            (0.0, "0"),
            (0.123_456, "0.1235"),
            (-12.345_6, "-12.35"),
            (1.0, "1"),
            (0.001, "0.001"),
            (1234.5, "1234"),
            (123_456.0, "123456"),
            (1.234_56e-7, "1.235e-7"),
            (2.5e9, "2.500e9"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "inf"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn counts_have_units() {
        let cases = [(0.0, "0"), (9999.0, "9999"), (12_345.0, "12.3k"), (4.5e6, "4.5M"), (2.13e9, "2.1G")];
        for (value, text) in cases {
            assert_eq!(count(value), text);
        }
    }

    #[test]
    fn measured_durations_are_never_zero_by_rounding() {
        let cases = [
            (0, "0.0 ms"),
            (420, "0.4 ms"),
            (9_940, "9.9 ms"),
            (9_960, "10 ms"),
            (420_000, "420 ms"),
            (999_400, "999 ms"),
            (999_600, "1.0 s"),
            (4_200_000, "4.2 s"),
            (9_960_000, "10 s"),
            (41_000_000, "41 s"),
            (185_000_000, "3:05"),
        ];
        for (micros, text) in cases {
            assert_eq!(measured(Duration::from_micros(micros)), text);
        }
    }

    #[test]
    fn durations_use_the_largest_fitting_unit() {
        let cases =
            [(8, "8 s"), (59, "59 s"), (185, "3:05"), (7385, "2:03:05"), (86_400 + 4 * 3600, "1 d 04:00")];
        for (seconds, text) in cases {
            assert_eq!(duration(Duration::from_secs(seconds)), text);
        }
    }
}
