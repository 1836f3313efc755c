//! Numbers and times as text.

use std::time::Duration;

pub(super) use crate::table::{columns, printable};

/// A number with about four significant digits.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() || value == 0.0 || value.fract() == 0.0 && size < 1e9 {
        return format!("{value}");
    }
    if (1e-3..1e6).contains(&size) { format!("{value:.4}") } else { format!("{value:.3e}") }
}

/// A duration such as `2 h 05 min`.
pub(super) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A time in seconds since 1970 as date and time of UTC.
pub(super) fn time(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The algorithm `civil_from_days` of Howard Hinnant: years start in March, eras have 400 years.
    let day = days + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, late) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + late;
    format!("{year:04}-{month:02}-{date:02} {:02}:{:02} UTC", second / 3600, second / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(time(0), "1970-01-01 00:00 UTC");
        assert_eq!(time(951_782_399), "2000-02-28 23:59 UTC");
        assert_eq!(time(951_782_400), "2000-02-29 00:00 UTC");
        assert_eq!(time(1_700_000_000), "2023-11-14 22:13 UTC");
        assert_eq!(time(4_107_542_399), "2100-02-28 23:59 UTC");
        assert_eq!(time(4_107_542_400), "2100-03-01 00:00 UTC");
    }

    #[test]
    fn durations_and_numbers_are_short() {
        assert_eq!(duration(Duration::from_millis(1260)), "1.3 s");
        assert_eq!(duration(Duration::from_secs(65)), "1 min 05 s");
        assert_eq!(duration(Duration::from_secs(7500)), "2 h 05 min");
        let numbers = [0.0, 3.0, 0.123456, 1.5e-7, 2.5e12, f64::NAN, f64::NEG_INFINITY];
        assert_eq!(numbers.map(number), ["0", "3", "0.1235", "1.500e-7", "2.500e12", "NaN", "-inf"]);
    }
}
