//! Lines: wasted reads per lookup over time while the hot range jumps, one line per engine and
//! variant.

use crate::report::figures::ShiftFigures;
use crate::report::median::Summary;
use crate::report::plot::TEXT;
use crate::report::table::title;
use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

/// Height of the chart.
pub const HEIGHT: u32 = 420;
const COLORS: [RGBColor; 8] = [
    RGBColor(46, 125, 80),
    RGBColor(84, 112, 168),
    RGBColor(134, 96, 158),
    RGBColor(176, 84, 58),
    RGBColor(201, 148, 40),
    RGBColor(60, 150, 160),
    RGBColor(120, 120, 120),
    RGBColor(190, 90, 130),
];

/// The summaries that have a series.
pub fn with_series(summaries: &[Summary]) -> Vec<(String, &ShiftFigures)> {
    let series = |summary: &'_ Summary| {
        let variant = if summary.variant.is_empty() { "default" } else { &summary.variant };
        title(summary.engine.name(), variant)
    };
    let all = summaries.iter();
    all.filter_map(|summary| Some((series(summary), summary.median.shift.as_ref()?))).collect()
}

/// Draws one line per series; the jump is at 0.
pub fn paint<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    lines: &[(String, &ShiftFigures)],
) -> Result<()>
where
    B::ErrorType: 'static,
{
    let points = |figures: &ShiftFigures| -> Vec<(f64, f64)> {
        let jump = figures.shift_after_ops as f64;
        let middle = |step: usize| (step as f64 + 0.5) * figures.series_step_ops as f64 - jump;
        figures.series.iter().enumerate().map(|(step, value)| (middle(step), *value)).collect()
    };
    let all = || lines.iter().flat_map(|(_, figures)| points(figures));
    let least = all().map(|point| point.0).fold(0.0, f64::min);
    let most = all().map(|point| point.0).fold(1.0, f64::max);
    let highest = all().map(|point| point.1).fold(1e-3, f64::max) * 1.1;
    let style = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    let mut chart = ChartBuilder::on(area)
        .margin(24)
        .caption(
            "Wasted reads per lookup around a jump of the hot range (lower is better)",
            style(15),
        )
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(least..most, 0.0..highest)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(style(11))
        .x_desc("lookups after the jump")
        .x_label_formatter(&|value| format!("{value:.0}"))
        .y_label_formatter(&|value| format!("{value:.3}"))
        .draw()?;
    chart.draw_series(std::iter::once(PathElement::new(
        vec![(0.0, 0.0), (0.0, highest)],
        TEXT.mix(0.4),
    )))?;
    for (number, (name, figures)) in lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        chart
            .draw_series(std::iter::once(PathElement::new(points(figures), color.stroke_width(2))))?
            .label(name.as_str())
            .legend(move |(x, y)| {
                PathElement::new(vec![(x, y), (x + 16, y)], color.stroke_width(2))
            });
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.8))
        .border_style(TEXT.mix(0.3))
        .label_font(style(11))
        .draw()?;
    Ok(())
}
