//! Lines below the bars: wasted reads per lookup while the hot range jumps, and space and rate while
//! large values are overwritten; one line per engine and variant.

use crate::report::cells::title;
use crate::report::figures::{LargeValueFigures, ShiftFigures};
use crate::report::median::Summary;
use anyhow::Result;
use plotters::coord::Shift;
use plotters::prelude::*;

/// The colour of text.
pub(super) const TEXT: RGBColor = RGBColor(40, 44, 52);

/// Height of one chart.
pub const HEIGHT: u32 = 420;
const COLORS: [RGBColor; 10] = [
    RGBColor(46, 125, 80),
    RGBColor(84, 112, 168),
    RGBColor(134, 96, 158),
    RGBColor(176, 84, 58),
    RGBColor(201, 148, 40),
    RGBColor(60, 150, 160),
    RGBColor(120, 120, 120),
    RGBColor(190, 90, 130),
    RGBColor(90, 60, 40),
    RGBColor(140, 170, 60),
];

/// An axis this short has labels that are not whole.
const SHORT_SPAN: f64 = 10.0;

/// Where a line goes.
type Points = Vec<(f64, f64)>;

/// Some lines over one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    caption: &'static str,
    x_title: &'static str,
    /// Places are logarithms to base 10, and labelled with what they are of.
    x_is_logarithm: bool,
    y_decimals: usize,
    /// Where something happened, if anything did.
    mark: Option<f64>,
    lines: Vec<(String, Points)>,
}

/// The charts of the summaries that have series.
pub fn charts(summaries: &[Summary]) -> Vec<Chart> {
    let lines = |points: &dyn Fn(&Summary) -> Option<Points>| {
        let named = |summary| {
            let points = points(summary).filter(|points| !points.is_empty());
            points.map(|points| (name(summary), points))
        };
        summaries.iter().filter_map(named).collect()
    };
    let values = |series: fn(&LargeValueFigures) -> &Vec<f64>| {
        move |summary: &Summary| {
            let figures = summary.median.large_values.as_ref()?;
            let points = figures.series_seconds.iter().zip(series(figures));
            Some(points.map(|(seconds, value)| (*seconds, *value)).collect())
        }
    };
    let all = [
        Chart {
            caption: "Wasted reads per lookup around a jump of the hot range (lower is better)",
            x_title: "lookups after the jump",
            x_is_logarithm: false,
            y_decimals: 3,
            mark: Some(0.0),
            lines: lines(&|summary| summary.median.shift.as_ref().map(around_jump)),
        },
        Chart {
            caption: "Directory over live bytes while values are overwritten (lower is better)",
            x_title: "seconds",
            x_is_logarithm: false,
            y_decimals: 2,
            mark: None,
            lines: lines(&values(|figures| &figures.space_series)),
        },
        Chart {
            caption: "Puts per second while values are overwritten (higher is better)",
            x_title: "seconds",
            x_is_logarithm: false,
            y_decimals: 0,
            mark: None,
            lines: lines(&values(|figures| &figures.rate_series)),
        },
    ];
    let skew = Chart {
        caption: "Bytes written without the log, per byte from clients (lower is better)",
        x_title: "exponent of Zipf's law",
        x_is_logarithm: false,
        y_decimals: 1,
        mark: None,
        lines: over_exponents(summaries),
    };
    let curves = [
        ("budget-curve-hit", "Device reads per lookup of a stored key (lower is better)"),
        ("budget-curve-miss", "Device reads per lookup of an absent key (lower is better)"),
        (
            "budget-curve-mixed",
            "Device reads per lookup, half of them absent, Zipf 0.99 (lower is better)",
        ),
    ];
    let curves = curves.map(|(workload, caption)| Chart {
        caption,
        x_title: "memory in percent of the data",
        x_is_logarithm: true,
        y_decimals: 2,
        mark: None,
        lines: over_memory(summaries, workload),
    });
    all.into_iter().chain([skew]).chain(curves).filter(|chart| !chart.lines.is_empty()).collect()
}

/// Write amplification of `skew` over the exponents, of each engine and variant that has several.
fn over_exponents(summaries: &[Summary]) -> Vec<(String, Points)> {
    let mut lines: Vec<(String, Points)> = Vec::new();
    for summary in summaries.iter().filter(|s| !s.workload.ends_with("-unsettled")) {
        let Some(figures) = &summary.median.skew else { continue };
        let Some(amplification) = figures.table_write_amp else { continue };
        if !summary.workload.starts_with("skew-") {
            continue;
        }
        let (name, point) = (name(summary), (figures.zipf, amplification));
        match lines.iter_mut().find(|(known, _)| *known == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name, vec![point])),
        }
    }
    lines.retain(|(_, points)| points.len() > 1);
    lines
}

/// Device reads per operation of `workload` over memory, of each engine that has several.
fn over_memory(summaries: &[Summary], workload: &str) -> Vec<(String, Points)> {
    let mut lines: Vec<(String, Points)> = Vec::new();
    for summary in summaries.iter().filter(|summary| summary.workload == workload) {
        let Some(figures) = &summary.median.budget else { continue };
        let point = (figures.memory_percent.log10(), summary.median.device_reads_per_op);
        let name = summary.engine.name();
        match lines.iter_mut().find(|(known, _)| known == name) {
            Some((_, points)) => points.push(point),
            None => lines.push((name.to_owned(), vec![point])),
        }
    }
    lines.retain(|(_, points)| points.len() > 1);
    for (_, points) in &mut lines {
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
    }
    lines
}

fn name(summary: &Summary) -> String {
    let variant = if summary.variant.is_empty() { "default" } else { &summary.variant };
    title(summary.engine.name(), variant)
}

/// The middle of each step, counted from the jump, and its value.
fn around_jump(figures: &ShiftFigures) -> Points {
    let jump = figures.shift_after_ops as f64;
    let middle = |step: usize| (step as f64 + 0.5) * figures.series_step_ops as f64 - jump;
    figures.series.iter().enumerate().map(|(step, value)| (middle(step), *value)).collect()
}

/// Draws one chart.
pub fn paint<B: DrawingBackend>(area: &DrawingArea<B, Shift>, shown: &Chart) -> Result<()>
where
    B::ErrorType: 'static,
{
    let all = || shown.lines.iter().flat_map(|(_, points)| points);
    // A linear axis begins at 0, if nothing lies below; one of logarithms with its first point.
    let (low, high) =
        if shown.x_is_logarithm { (f64::INFINITY, f64::NEG_INFINITY) } else { (0.0, 1.0) };
    let least = all().map(|point| point.0).fold(low, f64::min);
    let most = all().map(|point| point.0).fold(high, f64::max);
    let highest = all().map(|point| point.1).fold(1e-3, f64::max) * 1.1;
    let style = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    let decimals = shown.y_decimals;
    let x_decimals = usize::from(most - least < SHORT_SPAN);
    let x_label = |value: &f64| match shown.x_is_logarithm {
        true => format!("{:.2}", 10f64.powf(*value)),
        false => format!("{value:.x_decimals$}"),
    };
    let mut chart = ChartBuilder::on(area)
        .margin(24)
        .caption(shown.caption, style(15))
        .x_label_area_size(40)
        .y_label_area_size(56)
        .build_cartesian_2d(least..most, 0.0..highest)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .label_style(style(11))
        .x_desc(shown.x_title)
        .x_label_formatter(&x_label)
        .y_label_formatter(&|value| format!("{value:.decimals$}"))
        .draw()?;
    if let Some(mark) = shown.mark {
        let line = vec![(mark, 0.0), (mark, highest)];
        chart.draw_series(std::iter::once(PathElement::new(line, TEXT.mix(0.4))))?;
    }
    for (number, (name, points)) in shown.lines.iter().enumerate() {
        let color = COLORS[number % COLORS.len()];
        let path = PathElement::new(points.clone(), color.stroke_width(2));
        chart.draw_series(std::iter::once(path))?.label(name.as_str()).legend(move |(x, y)| {
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
