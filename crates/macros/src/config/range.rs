//! The range of a field: `#[config(range = "[0, 1)")]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr, Result};

/// An interval of numbers.
pub(crate) struct Range {
    low: Bound,
    high: Bound,
    /// The words for the interval in errors, if they are given.
    pub(crate) expected: Option<LitStr>,
}

/// An end of an interval.
#[derive(Clone, Copy)]
struct Bound {
    number: f64,
    is_included: bool,
}

impl Range {
    /// Parses `[0, 1)`, `(0, inf)` or `[-inf, 0]`.
    pub(crate) fn parse(literal: &LitStr) -> Result<Range> {
        let text = literal.value();
        let (low, high) = bounds(&text).ok_or_else(|| {
            let problem =
                format!("expected a range such as `[0, 1)`, `(0, inf)` or `[-inf, 0]`, found `{text}`");
            Error::new_spanned(literal, problem)
        })?;
        let is_empty =
            low.number > high.number || low.number == high.number && !(low.is_included && high.is_included);
        if is_empty {
            return Err(Error::new_spanned(literal, format!("no number is in the range `{text}`")));
        }
        Ok(Range { low, high, expected: None })
    }

    /// The bounds as an expression.
    pub(crate) fn expression(&self) -> TokenStream {
        let (low, high) = (self.low.expression(), self.high.expression());
        quote!((#low, #high))
    }

    /// The range in words, after "it must be".
    pub(crate) fn words(&self) -> String {
        let (low, high) = (self.low.number, self.high.number);
        let least = if self.low.is_included { "at least" } else { "greater than" };
        let most = if self.high.is_included { "at most" } else { "below" };
        match (low.is_finite(), high.is_finite()) {
            (true, true) if self.low.is_included && self.high.is_included => {
                format!("between {low} and {high}")
            }
            (true, true) => format!("{least} {low} and {most} {high}"),
            (true, false) => finite(self.high, least, low),
            (false, true) => finite(self.low, most, high),
            (false, false) if self.low.is_included && self.high.is_included => "a number".to_owned(),
            (false, false) => "a finite number".to_owned(),
        }
    }
}

/// The words for numbers on one side of another, where the infinite end of the interval is included or not.
fn finite(infinite: Bound, side: &str, number: f64) -> String {
    match (infinite.is_included, side.starts_with("at ")) {
        (true, _) => format!("{side} {number}"),
        (false, true) => format!("a finite number of {side} {number}"),
        (false, false) => format!("a finite number {side} {number}"),
    }
}

impl Bound {
    fn expression(self) -> TokenStream {
        let number = match self.number {
            f64::INFINITY => quote!(::core::primitive::f64::INFINITY),
            f64::NEG_INFINITY => quote!(::core::primitive::f64::NEG_INFINITY),
            number => quote!(#number),
        };
        match self.is_included {
            true => quote!(::core::ops::Bound::Included(#number)),
            false => quote!(::core::ops::Bound::Excluded(#number)),
        }
    }
}

fn bounds(text: &str) -> Option<(Bound, Bound)> {
    let inside = text.strip_prefix(['[', '('])?.strip_suffix([']', ')'])?;
    let (low, high) = inside.split_once(',')?;
    let low = Bound { number: number(low)?, is_included: text.starts_with('[') };
    let high = Bound { number: number(high)?, is_included: text.ends_with(']') };
    Some((low, high))
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| !number.is_nan())
}

#[cfg(test)]
mod tests {
    use super::Range;
    use proc_macro2::Span;
    use syn::{LitStr, Result};

    fn words(text: &str) -> Result<String> {
        Range::parse(&LitStr::new(text, Span::call_site())).map(|range| range.words())
    }

    #[test]
    fn ranges_in_words() {
        for (text, expected) in [
            ("[0, 1)", "at least 0 and below 1"),
            ("(0, 1]", "greater than 0 and at most 1"),
            ("[0, 1]", "between 0 and 1"),
            ("[0, inf)", "a finite number of at least 0"),
            ("(0.5, inf)", "a finite number greater than 0.5"),
            ("[1, inf]", "at least 1"),
            ("[-inf, 0]", "at most 0"),
            ("(-inf, 0)", "a finite number below 0"),
            ("(-inf, inf)", "a finite number"),
            ("[-inf, inf]", "a number"),
        ] {
            assert_eq!(words(text).unwrap(), expected);
        }
    }

    #[test]
    fn malformed_ranges_are_refused() {
        for text in ["", "0, 1", "[0, 1", "[0; 1]", "[0, 1, 2]", "[a, 1]", "[nan, 1]", "[1, 0]", "[1, 1)"] {
            assert!(words(text).is_err(), "{text}");
        }
    }
}
