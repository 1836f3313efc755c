//! Times of templates, in UTC.

use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The first day is that of 1970-01-01.
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

/// A date and time of the Gregorian calendar.
struct Moment {
    year: i64,
    /// 1 to 12.
    month: usize,
    day: i64,
    /// 1 to 366.
    day_of_year: i64,
    weekday: usize,
    second_of_day: i64,
}

/// Formats a time by a pattern of `strftime`. The error names a directive that is not supported.
pub(super) fn format(pattern: &str, time: SystemTime) -> Result<String, String> {
    let moment = Moment::new(time);
    let mut text = String::new();
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character != '%' {
            text.push(character);
            continue;
        }
        match characters.next() {
            Some('-') => {
                let directive = characters.next();
                let padded = directive.and_then(|directive| moment.directive(directive));
                let padded = padded.ok_or_else(|| unsupported(directive))?;
                let short = padded.trim_start_matches('0');
                text.push_str(if short.is_empty() { "0" } else { short });
            }
            directive => {
                let value = directive.and_then(|directive| moment.directive(directive));
                text.push_str(&value.ok_or_else(|| unsupported(directive))?);
            }
        }
    }
    Ok(text)
}

fn unsupported(directive: Option<char>) -> String {
    let mut text = "strftime_now: the directive %".to_owned();
    text.extend(directive);
    text.push_str(" is not supported");
    text
}

impl Moment {
    /// The date of a day by Howard Hinnant's
    /// [`civil_from_days`](https://howardhinnant.github.io/date_algorithms.html).
    fn new(time: SystemTime) -> Self {
        let seconds = match time.duration_since(UNIX_EPOCH) {
            Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX / 2),
            Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX / 2),
        };
        let days = seconds.div_euclid(86_400);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let from_march = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * from_march + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        // March 1 is day 60, or 61 in leap years.
        let day_of_year = if month > 2 { from_march + 60 + i64::from(is_leap) } else { from_march - 305 };
        Moment {
            year,
            month: month as usize,
            day: from_march - (153 * month_from_march + 2) / 5 + 1,
            day_of_year,
            weekday: days.rem_euclid(7) as usize,
            second_of_day: seconds.rem_euclid(86_400),
        }
    }

    fn directive(&self, directive: char) -> Option<String> {
        let (hour, minute, second) =
            (self.second_of_day / 3_600, self.second_of_day / 60 % 60, self.second_of_day % 60);
        let hour_of_12 = (hour + 11) % 12 + 1;
        let (month, weekday) = (MONTHS[self.month - 1], WEEKDAYS[self.weekday]);
        let two = |number: i64| format!("{number:02}");
        let text = match directive {
            'Y' => self.year.to_string(),
            'y' => two(self.year.rem_euclid(100)),
            'm' => two(self.month as i64),
            'd' => two(self.day),
            'e' => format!("{:2}", self.day),
            'j' => format!("{:03}", self.day_of_year),
            'B' => month.to_owned(),
            'b' | 'h' => month[..3].to_owned(),
            'A' => weekday.to_owned(),
            'a' => weekday[..3].to_owned(),
            'H' => two(hour),
            'I' => two(hour_of_12),
            'M' => two(minute),
            'S' => two(second),
            'f' => "000000".to_owned(),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            'F' => self.together(['Y', 'm', 'd'], "-")?,
            'T' => self.together(['H', 'M', 'S'], ":")?,
            'D' => self.together(['m', 'd', 'y'], "/")?,
            '%' => "%".to_owned(),
            _ => return None,
        };
        Some(text)
    }

    fn together(&self, directives: [char; 3], between: &str) -> Option<String> {
        let mut text = String::new();
        for (index, directive) in directives.into_iter().enumerate() {
            let between = if index == 0 { "" } else { between };
            write!(text, "{between}{}", self.directive(directive)?).ok()?;
        }
        Some(text)
    }
}
