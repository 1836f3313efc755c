//! Values that are not numbers: matrices, histograms, images and texts.

use std::fmt::Write;

use kiln_train::MetricValue;
use kiln_train::logger::{Image, png};

use super::Run;
use super::html::{base64, escape};
use crate::runs::text::number;

/// Maximum number of rows and columns of a matrix that is shown.
const MAX_MATRIX: usize = 50;

/// Maximum number of bins of a histogram that are shown. More bins than pixels cannot be seen.
const MAX_BINS: usize = 1000;

/// Smaller images are magnified by whole numbers up to this size, in pixels.
const MAGNIFIED: usize = 280;

/// The last values of runs. The section is empty if there are none.
pub(super) fn section(runs: &[Run]) -> String {
    let values: String = runs.iter().map(values).collect();
    if values.is_empty() { values } else { format!("<h2>Values</h2>\n<div id=\"values\">\n{values}</div>\n") }
}

fn values(run: &Run) -> String {
    let one = |((split, name), value): (&(String, String), &MetricValue)| {
        let title = format!("{}: {} {}", escape(&run.name), escape(split), escape(name));
        format!("<section class=\"value\">\n<h3>{title}</h3>\n{}</section>\n", html(value))
    };
    run.values.iter().map(one).collect()
}

fn html(value: &MetricValue) -> String {
    match value {
        MetricValue::Matrix { rows, columns, elements } if *rows <= MAX_MATRIX && *columns <= MAX_MATRIX => {
            matrix(*columns, elements)
        }
        MetricValue::Matrix { rows, columns, .. } => {
            note(&format!("A matrix of {rows} × {columns}, too large to show."))
        }
        MetricValue::Histogram { edges, counts } => histogram(edges, counts),
        MetricValue::Image { height, width, channels, pixels } => {
            image(&Image { height: *height, width: *width, channels: *channels, pixels })
        }
        MetricValue::Text(text) => format!("<pre>{}</pre>\n", escape(text)),
        MetricValue::Scalar(value) => format!("<p>{}</p>\n", number(*value)),
        MetricValue::PerClass(values) => {
            format!("<p>{}</p>\n", values.iter().map(|value| number(*value)).collect::<Vec<_>>().join(", "))
        }
    }
}

fn note(text: &str) -> String {
    format!("<p class=\"note\">{}</p>\n", escape(text))
}

/// A matrix such as a confusion matrix. The background of a cell is darker for greater elements.
fn matrix(columns: usize, elements: &[f64]) -> String {
    let greatest = greatest(elements);
    let heads: String = (0..columns).map(|column| format!("<th scope=\"col\">{column}</th>")).collect();
    let mut text = format!("<div class=\"wide\"><table class=\"matrix\">\n<tr><th></th>{heads}</tr>\n");
    for (index, row) in elements.chunks(columns.max(1)).enumerate() {
        let _ = write!(text, "<tr><th scope=\"row\">{index}</th>");
        for element in row {
            let heat = part(*element, greatest) * 70.0;
            let _ = write!(text, "<td style=\"--heat:{heat:.0}%\">{}</td>", number(*element));
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

/// A histogram as bars from edge to edge, with the first and the last edge below.
fn histogram(edges: &[f64], counts: &[f64]) -> String {
    const WIDTH: f64 = 600.0;
    const HEIGHT: f64 = 120.0;
    let greatest = greatest(counts);
    let shown = counts.len().min(edges.len().saturating_sub(1)).min(MAX_BINS);
    let [Some(first), Some(last)] = [edges.first(), edges.get(shown)] else {
        return note("A histogram without bins.");
    };
    let x = |edge: f64| part(edge - first, last - first) * WIDTH;
    let mut bars = String::new();
    for (count, edge) in counts.iter().zip(edges.windows(2)).take(shown) {
        let height = part(*count, greatest) * HEIGHT;
        // Bars do not touch.
        let width = (x(edge[1]) - x(edge[0])).max(0.0) * 0.95;
        let _ = write!(
            bars,
            "<rect x=\"{:.2}\" y=\"{:.2}\" width=\"{width:.2}\" height=\"{height:.2}\"><title>{} to {}: {}</title></rect>",
            x(edge[0]),
            HEIGHT - height,
            number(edge[0]),
            number(edge[1]),
            number(*count),
        );
    }
    let range = format!(
        "<div class=\"range\"><span>{}</span><span>at most {} in a bin</span><span>{}</span></div>\n",
        number(*first),
        number(greatest),
        number(*last),
    );
    format!(
        "<svg class=\"histogram\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\">{bars}</svg>\n{range}"
    )
}

/// An image. An invalid one, as in a damaged log, is a note with its problem.
fn image(image: &Image) -> String {
    let file = match png(image) {
        Ok(file) => base64(&file),
        Err(problem) => return note(&format!("An image that cannot be shown: {problem}")),
    };
    let (width, height) = (image.width, image.height);
    let scale = (MAGNIFIED / width.max(height)).max(1);
    // `<image>` of SVG, because a page without elements `img` is simple to check for markup of records.
    format!(
        "<svg class=\"image\" width=\"{}\" viewBox=\"0 0 {width} {height}\" role=\"img\">\
         <image width=\"{width}\" height=\"{height}\" href=\"data:image/png;base64,{file}\"/></svg>\n\
         <p class=\"note\">{width} × {height} pixels</p>\n",
        width * scale
    )
}

fn greatest(numbers: &[f64]) -> f64 {
    numbers.iter().copied().filter(|number| number.is_finite()).fold(0.0, f64::max)
}

/// A number as a part of a whole, from 0 to 1. It is 0 where the quotient is no number.
fn part(number: f64, whole: f64) -> f64 {
    let part = (number / whole).clamp(0.0, 1.0);
    // The sum turns -0 into 0.
    if part.is_nan() { 0.0 } else { part + 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_a_histogram_go_from_edge_to_edge() {
        let html = histogram(&[0.0, 1.0, 4.0], &[5.0, 10.0]);
        for part in [
            "<rect x=\"0.00\" y=\"60.00\" width=\"142.50\" height=\"60.00\"><title>0 to 1: 5</title>",
            "<rect x=\"150.00\" y=\"0.00\" width=\"427.50\" height=\"120.00\">",
            "<span>0</span><span>at most 10 in a bin</span><span>4</span>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }

    #[test]
    fn damaged_histograms_have_no_invalid_coordinates() {
        let (nan, infinity) = (f64::NAN, f64::INFINITY);
        assert!(
            histogram(&[], &[]).contains("without bins") && histogram(&[1.0], &[]).contains("0 in a bin")
        );
        for edges in [[nan, 0.0, 1.0], [0.0, 0.0, 0.0], [-infinity, 0.0, infinity], [3.0, 2.0, 1.0]] {
            for counts in [[nan, 1.0], [infinity, -1.0], [0.0, 0.0]] {
                let html = histogram(&edges, &counts);
                let attributes = ["=\"NaN", "=\"inf", "=\"-"];
                assert!(attributes.iter().all(|bad| !html.contains(bad)), "{html}");
            }
        }
    }

    #[test]
    fn small_images_are_magnified_and_invalid_ones_are_notes() {
        let html = image(&Image { height: 14, width: 28, channels: 1, pixels: &[7; 392] });
        assert!(html.contains("width=\"280\" viewBox=\"0 0 28 14\""), "{html}");
        assert!(html.contains("href=\"data:image/png;base64,iVBORw0KGgo"), "{html}");
        let large = image(&Image { height: 1, width: 400, channels: 1, pixels: &[7; 400] });
        assert!(large.contains("width=\"400\" viewBox"), "{large}");
        let bad = image(&Image { height: 2, width: 2, channels: 1, pixels: &[7] });
        assert!(bad.starts_with("<p class=\"note\">") && bad.contains("has 1 bytes"), "{bad}");
    }
}
