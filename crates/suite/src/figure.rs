//! Measured figures with targets, as printed by the programs `bench_core` and `bench_shapes`.

/// A measured figure with its target. Smaller is better.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The quantity, for readers.
    pub name: &'static str,
    /// The measured number, in `unit`.
    pub measured: f64,
    /// The unit, such as `ns`, `ms`, or `x` for a ratio.
    pub unit: &'static str,
    /// The greatest number that meets the target, in `unit`; `None` where there is no target.
    pub target: Option<f64>,
}

impl Figure {
    /// The figure as a line of JSON: `{"name": "…", "measured": 98.2, "unit": "ns", "target": 120}`. `target` is null where
    /// there is none. The number has at most 3 decimals.
    fn json(&self) -> String {
        let target = self.target.map_or("null".into(), |target| target.to_string());
        let Figure { name, measured, unit, .. } = self;
        format!(r#"{{"name": "{name}", "measured": {measured:.3}, "unit": "{unit}", "target": {target}}}"#)
    }

    /// The figure as a line of the table.
    fn row(&self) -> String {
        let (target, verdict) = match self.target {
            Some(target) if self.measured <= target => (target.to_string(), "met"),
            Some(target) => (target.to_string(), "missed"),
            None => ("-".into(), ""),
        };
        let Figure { name, measured, unit, .. } = self;
        format!("{name:<56} {measured:>9.2} {unit:<12} {target:>7}  {verdict}").trim_end().to_owned()
    }

    /// Returns the figures as text: a line of JSON for each, or a table.
    pub fn lines(figures: &[Figure], json: bool) -> String {
        let mut text = String::new();
        if !json {
            text += &format!("{:<56} {:>9} {:<12} {:>7}\n", "figure", "measured", "unit", "target");
        }
        for figure in figures {
            text += &if json { figure.json() } else { figure.row() };
            text.push('\n');
        }
        text
    }
}

/// Computes the median of the values; for an even number of values, the greater of the two in the middle.
///
/// # Panics
/// When there are no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_json_lines_or_a_table() {
        let figures = [
            Figure { name: "eager add", measured: 98.25, unit: "ns", target: Some(80.0) },
            Figure { name: "step", measured: 1.2, unit: "ms", target: None },
        ];
        let json = Figure::lines(&figures, true);
        assert_eq!(
            json.lines().next(),
            Some(r#"{"name": "eager add", "measured": 98.250, "unit": "ns", "target": 80}"#)
        );
        assert!(json.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{json}");
        let table = Figure::lines(&figures, false);
        let words: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words[0], ["figure", "measured", "unit", "target"]);
        assert_eq!(words[1], ["eager", "add", "98.25", "ns", "80", "missed"]);
        assert_eq!(words[2], ["step", "1.20", "ms", "-"]);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![5.0, 1.0, 2.0, 9.0, 3.0]), 3.0);
    }
}
