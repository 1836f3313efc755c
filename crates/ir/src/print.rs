//! Pretty printing of tensors in NumPy's format.

use crate::{DType, TensorData};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use spin::Mutex;

/// The print options of tensors; see [`set_print_options`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrintOptions {
    /// Digits after the decimal point. Default 4; `{:.2}` in a format string overrides it.
    pub precision: usize,
    /// The number of elements above which the output is summarized: the middle of each axis is omitted. Default 1000.
    pub threshold: usize,
    /// Elements shown at each end of a summarized axis. Default 3.
    pub edge_items: usize,
    /// Characters per line before an innermost row wraps. Default 100.
    pub line_width: usize,
    /// `Some(true)`: always in scientific notation; `Some(false)`: never; `None` (the default): when numbers are very
    /// large, very small or very different.
    pub scientific: Option<bool>,
}

impl Default for PrintOptions {
    fn default() -> PrintOptions {
        PrintOptions { precision: 4, threshold: 1000, edge_items: 3, line_width: 100, scientific: None }
    }
}

static OPTIONS: Mutex<Option<PrintOptions>> = Mutex::new(None);

/// Returns the current options.
pub fn print_options() -> PrintOptions {
    OPTIONS.lock().unwrap_or_default()
}

/// Sets the print options of the whole process.
pub fn set_print_options(options: PrintOptions) {
    *OPTIONS.lock() = Some(options);
}

/// Prints the elements in nested brackets, like NumPy. [`set_print_options`] changes the format, `{:.2}` the digits.
impl fmt::Display for TensorData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut options = print_options();
        options.precision = f.precision().unwrap_or(options.precision);
        f.write_str(&format_data(self, &options))
    }
}

/// The elements in nested brackets.
fn format_data(data: &TensorData, options: &PrintOptions) -> String {
    if data.num_elements() == 0 {
        return "[]".to_string();
    }
    let cut = data.num_elements() > options.threshold;
    let shown = shown_elements(data, cut, options);
    let words = format_elements(data, &shown, options);
    let width = words.iter().map(String::len).max().unwrap_or(0);
    let mut printer = Printer { data, options, cut, words: words.into_iter(), width, text: String::new() };
    printer.axis(0);
    printer.text
}

/// The printed indices along an axis; `None` stands for the ellipsis.
fn places(length: usize, cut: bool, options: &PrintOptions) -> Vec<Option<usize>> {
    let edge = options.edge_items.max(1);
    if !cut || length <= 2 * edge {
        return (0..length).map(Some).collect();
    }
    (0..edge).map(Some).chain([None]).chain((length - edge..length).map(Some)).collect()
}

/// The flat indices of the shown elements, in order.
fn shown_elements(data: &TensorData, cut: bool, options: &PrintOptions) -> Vec<usize> {
    data.shape().iter().fold(Vec::from([0]), |before, &length| {
        let here: Vec<usize> = places(length, cut, options).into_iter().flatten().collect();
        before.iter().flat_map(|&start| here.iter().map(move |&place| start * length + place)).collect()
    })
}

fn format_elements(data: &TensorData, shown: &[usize], options: &PrintOptions) -> Vec<String> {
    if data.dtype() == DType::Bool {
        let elements = data.to_vec::<bool>();
        return shown.iter().map(|&i| elements[i].to_string()).collect();
    }
    if data.dtype() == DType::U64 {
        let elements = data.to_vec::<u64>();
        return shown.iter().map(|&i| elements[i].to_string()).collect();
    }
    if data.dtype().is_int() {
        let elements = data.to_vec::<i64>();
        return shown.iter().map(|&i| elements[i].to_string()).collect();
    }
    let elements = data.to_vec::<f64>();
    let shown: Vec<f64> = shown.iter().map(|&i| elements[i]).collect();
    let scientific = options.scientific.unwrap_or_else(|| wants_scientific(&shown));
    let digits = if scientific { options.precision } else { digits_needed(&shown, options.precision) };
    shown.iter().map(|&x| format_float(x, scientific, digits)).collect()
}

/// NumPy's rule for scientific notation: magnitudes of 1e8 and more, below 1e-4, or a thousand-fold range.
fn wants_scientific(numbers: &[f64]) -> bool {
    let magnitudes = numbers.iter().map(|x| x.abs()).filter(|x| x.is_finite() && *x > 0.0);
    let (least, greatest) = magnitudes.fold((f64::INFINITY, 0.0f64), |(l, g), x| (l.min(x), g.max(x)));
    greatest > 0.0 && (greatest >= 1e8 || least < 1e-4 || greatest / least > 1e6)
}

/// The minimum number of digits after the decimal point that shows all numbers at the given precision.
fn digits_needed(numbers: &[f64], precision: usize) -> usize {
    let needed = |x: &f64| {
        let text = format!("{x:.precision$}");
        let digits = text.split_once('.').map_or("", |(_, digits)| digits);
        digits.trim_end_matches('0').len()
    };
    numbers.iter().filter(|x| x.is_finite()).map(needed).max().unwrap_or(0)
}

fn format_float(x: f64, scientific: bool, digits: usize) -> String {
    if x.is_nan() {
        "nan".to_string()
    } else if x.is_infinite() {
        (if x > 0.0 { "inf" } else { "-inf" }).to_string()
    } else if scientific {
        format!("{x:.digits$e}")
    } else if digits == 0 {
        format!("{x:.0}.")
    } else {
        format!("{x:.digits$}")
    }
}

struct Printer<'a> {
    data: &'a TensorData,
    options: &'a PrintOptions,
    cut: bool,
    words: alloc::vec::IntoIter<String>,
    width: usize,
    text: String,
}

impl Printer<'_> {
    fn axis(&mut self, axis: usize) {
        let rank = self.data.shape().rank();
        if axis == rank {
            let word = self.words.next().unwrap_or_default();
            let width = if rank == 0 { 0 } else { self.width };
            self.text.push_str(&format!("{word:>width$}"));
            return;
        }
        self.text.push('[');
        let mut column = axis + 1;
        for (i, place) in places(self.data.shape()[axis], self.cut, self.options).into_iter().enumerate() {
            if i > 0 {
                self.separate(axis, &mut column);
            }
            match place {
                Some(_) => self.axis(axis + 1),
                None => self.text.push_str("..."),
            }
        }
        self.text.push(']');
    }

    /// A comma and a space between elements of a row; line breaks between rows, one more for each axis between.
    fn separate(&mut self, axis: usize, column: &mut usize) {
        self.text.push(',');
        let breaks = self.data.shape().rank() - 1 - axis;
        *column += self.width + 2;
        let wraps = breaks == 0 && *column + self.width + 1 > self.options.line_width;
        if breaks == 0 && !wraps {
            self.text.push(' ');
            return;
        }
        self.text.extend(core::iter::repeat_n('\n', breaks.max(1)));
        self.text.extend(core::iter::repeat_n(' ', axis + 1));
        *column = axis + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(data: impl Into<TensorData>) -> String {
        format_data(&data.into(), &PrintOptions::default())
    }

    #[test]
    fn prints_like_numpy() {
        assert_eq!(text([[1.0f32, 2.5], [-3.0, 4.0]]), "[[ 1.0,  2.5],\n [-3.0,  4.0]]");
        assert_eq!(text([1.0f32, 2.0]), "[1., 2.]");
        assert_eq!(text([1i32, -20]), "[  1, -20]");
        assert_eq!(text([true, false]), "[ true, false]");
        assert_eq!(text([[[1i32, 2]], [[3, 4]]]), "[[[1, 2]],\n\n [[3, 4]]]");
        assert_eq!(text([1.0f32, f32::NAN, f32::INFINITY]), "[ 1., nan, inf]");
        assert_eq!(text([1e-9f64, 1.0]), "[1.0000e-9,  1.0000e0]");
        assert_eq!(text(Vec::<f32>::new()), "[]");
        assert_eq!(format_data(&TensorData::scalar(2.5f32), &PrintOptions::default()), "2.5");
    }

    #[test]
    fn data_displays_its_elements() {
        let data = TensorData::from([[1.0f32, 2.125], [-3.0, 4.0]]);
        assert_eq!(format!("{data}"), "[[ 1.000,  2.125],\n [-3.000,  4.000]]");
        assert_eq!(format!("{data:.1}"), "[[ 1.0,  2.1],\n [-3.0,  4.0]]");
    }

    #[test]
    fn long_tensors_are_elided() {
        let long: Vec<i32> = (0..2000).collect();
        assert_eq!(text(long), "[   0,    1,    2, ..., 1997, 1998, 1999]");
    }

    #[test]
    fn long_rows_are_wrapped() {
        let options = PrintOptions { line_width: 12, ..PrintOptions::default() };
        assert_eq!(format_data(&TensorData::from([1i32, 2, 3, 4, 5, 6]), &options), "[1, 2, 3, 4,\n 5, 6]");
    }
}
