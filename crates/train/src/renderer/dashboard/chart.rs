//! The chart of the selected metric.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType};

use super::palette::Palette;
use super::view::{Shown, View, Window};
use crate::record::Split;
use crate::renderer::format;
use crate::renderer::model::{MetricHistory, Model, SplitHistory, smoothed};

/// The curve of a split.
struct Curve<'a> {
    history: &'a SplitHistory,
    style: Style,
    marker: Marker,
    /// The raw curve and the smoothed one over it.
    lines: Vec<Polyline>,
}

/// Points in ascending order of steps, and their style.
struct Polyline {
    points: Vec<(f64, f64)>,
    style: Style,
}

/// Draws the curves of the selected metric.
pub(super) fn draw(frame: &mut Frame, area: Rect, model: &Model, view: &View) {
    let palette = view.palette;
    let Some(metric) = model.metrics.get(view.selected) else {
        let title = Span::styled(" waiting for the first step ", palette.title());
        return frame.render_widget(Block::bordered().border_style(palette.dim()).title(title), area);
    };
    let curves = curves(model, metric, view);
    let block = Block::bordered()
        .border_style(palette.dim())
        .title(title(metric, &curves, view))
        .title_bottom(choice(&curves, view));
    let lines = || curves.iter().flat_map(|curve| curve.lines.iter().map(|line| (curve.marker, line)));
    let points = || lines().flat_map(|(_, line)| &line.points);
    let steps = bounds(points().map(|point| point.0), 0.0);
    let values = bounds(points().map(|point| point.1), 0.05);
    let datasets = lines()
        .map(|(marker, line)| {
            Dataset::default().data(&line.points).style(line.style).marker(marker).graph_type(GraphType::Line)
        })
        .collect();
    let chart = Chart::new(datasets)
        .block(block)
        .legend_position(None)
        .x_axis(axis(steps, 3, format::count, palette))
        .y_axis(axis(values, if area.height > 20 { 5 } else { 3 }, format::number, palette));
    frame.render_widget(chart, area);
}

/// Returns the curves of the splits that the view shows.
fn curves<'a>(model: &Model, metric: &'a MetricHistory, view: &View) -> Vec<Curve<'a>> {
    let splits = model.splits();
    let number = |split: &Split| match split {
        Split::Train => 0,
        Split::Valid(_) => {
            let sets = splits.iter().filter(|known| **known != Split::Train);
            1 + sets.take_while(|known| *known != split).count()
        }
    };
    let shown = metric.splits.iter().filter(|history| view.shown.contains(&history.split));
    let mut curves: Vec<Curve> = shown
        .map(|history| {
            let number = number(&history.split);
            Curve {
                history,
                lines: polylines(history, number, view),
                style: view.palette.curve(number),
                // Without colours, markers distinguish training from validation.
                marker: match (view.palette, number) {
                    (Palette::Plain, 1..) => Marker::Dot,
                    (Palette::Plain | Palette::Ansi | Palette::Full, _) => Marker::Braille,
                },
            }
        })
        .collect();
    if view.window == Window::Recent {
        // Validation has few samples, whose recent window is longer than that of training.
        let lines = curves.iter().flat_map(|curve| &curve.lines);
        let begin = lines.filter_map(|line| line.points.first()).map(|point| point.0);
        let begin = begin.fold(f64::NEG_INFINITY, f64::max);
        let lines = curves.iter_mut().flat_map(|curve| &mut curve.lines);
        lines.for_each(|line| line.points.retain(|point| point.0 >= begin));
    }
    curves
}

/// Returns the raw curve of a split, and the smoothed one where the samples are of single steps: those of passes are means.
fn polylines(history: &SplitHistory, number: usize, view: &View) -> Vec<Polyline> {
    let series = &history.series;
    let (points, means) = match view.window {
        Window::Lifelong => (series.lifelong(), series.lifelong_means()),
        Window::Recent => (series.recent(), series.recent()),
    };
    let style = view.palette.curve(number);
    if view.smoothing == 0.0 || !history.of_steps {
        return vec![Polyline { points, style }];
    }
    let raw = view.palette.raw_curve(number).map(|style| Polyline { points, style });
    raw.into_iter().chain([Polyline { points: smoothed(&means, view.smoothing), style }]).collect()
}

/// ` loss  ─ train 0.12  ─ valid 0.15 `.
fn title<'a>(metric: &'a MetricHistory, curves: &[Curve], view: &View) -> Line<'a> {
    let mut spans = vec![Span::styled(format!(" {} ", metric.name), view.palette.title())];
    for curve in curves {
        let sample = if curve.marker == Marker::Dot { "•" } else { "─" };
        let text = format!(" {sample} {} {} ", curve.history.split.name(), curve.history.current);
        spans.push(Span::styled(text, curve.style));
    }
    Line::from(spans)
}

/// ` whole run, train and valid, EMA 0.6 `.
fn choice(curves: &[Curve], view: &View) -> Line<'static> {
    let window = match view.window {
        Window::Lifelong => "whole run",
        Window::Recent => "last steps",
    };
    let shown = match view.shown {
        Shown::Both => "train and valid",
        Shown::Train => "train",
        Shown::Valid => "valid",
    };
    let is_smoothed = view.smoothing > 0.0 && curves.iter().any(|curve| curve.history.of_steps);
    let smoothing = if is_smoothed { format!(", EMA {}", view.smoothing) } else { String::new() };
    Line::from(Span::styled(format!(" {window}, {shown}{smoothing} "), view.palette.dim())).right_aligned()
}

/// Returns the least and the greatest number with a margin, as a fraction of the range. They differ. The margin does not
/// reach below 0 where no number does.
fn bounds(values: impl Iterator<Item = f64>, margin: f64) -> [f64; 2] {
    let (least, greatest) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, greatest), value| {
        (least.min(value), greatest.max(value))
    });
    if least > greatest {
        return [0.0, 1.0];
    }
    let floor = if least >= 0.0 { 0.0 } else { f64::NEG_INFINITY };
    let range = greatest - least;
    if range <= f64::EPSILON * greatest.abs().max(least.abs()) || range < f64::MIN_POSITIVE {
        let half = (greatest.abs() * 0.1).max(f64::MIN_POSITIVE.sqrt());
        return [(least - half).max(floor), greatest + half];
    }
    // Halves keep the range of the greatest floats finite.
    if !range.is_finite() {
        return [f64::MIN / 4.0, f64::MAX / 4.0];
    }
    [(least - margin * range).max(floor), greatest + margin * range]
}

fn axis(bounds: [f64; 2], labels: u32, text: fn(f64) -> String, palette: Palette) -> Axis<'static> {
    let at = |index: u32| bounds[0] + (bounds[1] - bounds[0]) * f64::from(index) / f64::from(labels - 1);
    let labels: Vec<String> = (0..labels).map(|index| text(at(index))).collect();
    Axis::default().bounds(bounds).labels(labels).style(palette.dim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_does_not_reach_below_zero_without_a_negative_number() {
        let of = |values: &[f64]| bounds(values.iter().copied(), 0.05);
        assert_eq!(of(&[0.0, 2.0]), [0.0, 2.1]);
        assert_eq!(of(&[0.02, 2.02])[0], 0.0);
        assert_eq!(of(&[1.0, 3.0]), [0.9, 3.1]);
        assert_eq!(of(&[-1.0, 1.0]), [-1.1, 1.1]);
        assert_eq!(of(&[0.0])[0], 0.0);
    }

    #[test]
    fn bounds_are_finite_and_differ() {
        let of = |values: &[f64]| bounds(values.iter().copied(), 0.0);
        assert_eq!(of(&[]), [0.0, 1.0]);
        assert_eq!(of(&[1.0, 3.0, 2.0]), [1.0, 3.0]);
        for values in [&[0.0][..], &[5.0], &[-2.0, -2.0], &[f64::MIN, f64::MAX], &[1e-320]] {
            let [least, greatest] = of(values);
            assert!(least < greatest && (greatest - least).is_finite(), "{values:?}: {least} {greatest}");
        }
    }
}
