//! Bars: operations per second of each engine, workload by workload; below them, if there are any,
//! time series.
//!
//! Rates of different workloads lie orders of magnitude apart, so bars are scaled to the fastest
//! engine of their workload (and variant, unless variants are what is compared) and labelled with
//! the rate and the ratio to the first peer.

use crate::engine::Engine;
use crate::report::Row;
use crate::report::cells::{count, title};
use crate::report::median::{Summary, summarize};
use crate::report::plot_series::{self, Chart, TEXT};
use anyhow::{Context, Result, anyhow, bail, ensure};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{FontStyle, register_font};
use std::path::Path;

const WIDTH: u32 = 1000;
const MARGIN: i32 = 24;
const LABEL_WIDTH: i32 = 240;
const RATE_WIDTH: i32 = 170;
const BAR_HEIGHT: i32 = 18;
const GROUP_GAP: i32 = 14;
const HEADER: i32 = 76;

/// Draws the medians of `rows` into `path`, whose extension says how: `.svg` or `.png`.
pub fn draw(path: &Path, rows: &[Row]) -> Result<()> {
    let extension = checked_extension(path)?;
    ensure!(!rows.is_empty(), "there is nothing to plot");
    register_font("sans-serif", FontStyle::Normal, epaint_default_fonts::HACK_REGULAR)
        .map_err(|_| anyhow!("the built-in font does not load"))?;
    let summaries = summarize(rows);
    let charts = plot_series::charts(&summaries);
    // Where there is a curve over memory, bars of its points say nothing besides.
    let has_bar = |s: &&Summary| charts.is_empty() || s.median.budget.is_none();
    let barred: Vec<&Summary> = summaries.iter().filter(has_bar).collect();
    let groups = group(&barred);
    let bars: i32 = groups.iter().map(|group| group.len() as i32).sum();
    let height = match groups.is_empty() {
        true => 0,
        false => HEADER + bars * BAR_HEIGHT + groups.len() as i32 * GROUP_GAP + MARGIN,
    };
    let size = (WIDTH, u32::try_from(height)? + plot_series::HEIGHT * charts.len() as u32);
    let context = || format!("writing {}", path.display());
    if extension == "svg" {
        let mut text = String::new();
        let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
        paint(&area, height, rows, &groups, &charts)?;
        drop(area);
        return std::fs::write(path, text).with_context(context);
    }
    let mut pixels = vec![0; size.0 as usize * size.1 as usize * 3];
    let area = BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area();
    paint(&area, height, rows, &groups, &charts)?;
    drop(area);
    let file = std::fs::File::create(path).with_context(context)?;
    let mut encoder = png::Encoder::new(std::io::BufWriter::new(file), size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.write_header()?.write_image_data(&pixels).with_context(context)
}

/// `svg` or `png`, or an error that names the two.
pub fn checked_extension(path: &Path) -> Result<&str> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some(extension @ ("svg" | "png")) => Ok(extension),
        _ => bail!("--plot {}: the file name must end in .svg or .png", path.display()),
    }
}

/// Summaries by workload and variant.
fn group<'a>(summaries: &[&'a Summary]) -> Vec<Vec<&'a Summary>> {
    let mut groups: Vec<Vec<&Summary>> = Vec::new();
    for summary in summaries.iter().copied() {
        match groups.last_mut() {
            Some(group)
                if group.first().is_some_and(|first| {
                    (&first.workload, &first.variant) == (&summary.workload, &summary.variant)
                }) =>
            {
                group.push(summary);
            }
            _ => groups.push(vec![summary]),
        }
    }
    groups
}

fn color(engine: Engine) -> RGBColor {
    match engine {
        Engine::Terrace => RGBColor(46, 125, 80),
        Engine::Rocksdb => RGBColor(201, 148, 40),
        Engine::Speedb => RGBColor(176, 84, 58),
        Engine::Leveldb => RGBColor(84, 112, 168),
        Engine::Fjall => RGBColor(134, 96, 158),
        Engine::Lmdb => RGBColor(70, 150, 160),
        Engine::Redb => RGBColor(120, 120, 120),
    }
}

fn paint<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    bars_height: i32,
    rows: &[Row],
    groups: &[Vec<&Summary>],
    charts: &[Chart],
) -> Result<()>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let (bars, mut below) = area.split_vertically(bars_height);
    if !groups.is_empty() {
        paint_bars(&bars, rows, groups)?;
    }
    for chart in charts {
        let (here, rest) = below.split_vertically(plot_series::HEIGHT);
        plot_series::paint(&here, chart)?;
        below = rest;
    }
    area.present()?;
    Ok(())
}

fn paint_bars<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    rows: &[Row],
    groups: &[Vec<&Summary>],
) -> Result<()>
where
    B::ErrorType: 'static,
{
    let font = |size: i32| ("sans-serif", size).into_font().color(&TEXT);
    let left = |size| font(size).pos(Pos::new(HPos::Left, VPos::Center));
    let right = |size| font(size).pos(Pos::new(HPos::Right, VPos::Center));
    area.draw(&Text::new(
        "Operations per second, median (longer is better)",
        (MARGIN, 26),
        left(17),
    ))?;
    paint_legend(area, groups, left(13))?;
    let bar_room = WIDTH as i32 - 2 * MARGIN - LABEL_WIDTH - RATE_WIDTH;
    let mut y = HEADER;
    for group in groups {
        let fastest = fastest(groups, group);
        let middle = y + group.len() as i32 * BAR_HEIGHT / 2;
        if let Some(first) = group.first() {
            let name = title(&first.workload, &first.variant);
            area.draw(&Text::new(name, (MARGIN + LABEL_WIDTH - 10, middle), right(13)))?;
        }
        for summary in group {
            let length = (summary.median.ops_per_s / fastest * f64::from(bar_room)) as i32;
            let start = MARGIN + LABEL_WIDTH;
            let corners = [(start, y + 2), (start + length.max(1), y + BAR_HEIGHT - 2)];
            area.draw(&Rectangle::new(corners, color(summary.engine).filled()))?;
            let ratio = summary.ratio.map_or(String::new(), |ratio| format!("  {ratio:.2}x"));
            let is_whole = summary.repeats >= summary.asked;
            let part = if is_whole { String::new() } else { format!("  ({})", summary.share()) };
            let label = format!("{}{ratio}{part}", count(summary.median.ops_per_s));
            area.draw(&Text::new(label, (start + length + 6, y + BAR_HEIGHT / 2), left(12)))?;
            y += BAR_HEIGHT;
        }
        y += GROUP_GAP;
    }
    if let Some(row) = rows.first() {
        let merged = if rows.iter().any(|row| row.merged) { "  merged before reads" } else { "" };
        let machine = format!("{}  commit {}{merged}", row.machine, row.commit);
        area.draw(&Text::new(machine, (MARGIN, y + 4), left(10)))?;
    }
    Ok(())
}

/// The rate that the longest bar beside those of `group` stands for: among its own, or, where
/// variants are there to be compared, among all of its workload.
fn fastest(groups: &[Vec<&Summary>], group: &[&Summary]) -> f64 {
    let compared = |s: &&&Summary| {
        group.first().is_some_and(|first| {
            s.workload == first.workload
                && (s.variant == first.variant || compares_variants(&first.median))
        })
    };
    let rates = groups.iter().flatten().filter(compared).map(|s| s.median.ops_per_s);
    rates.fold(f64::MIN_POSITIVE, f64::max)
}

/// Whether the variants of its workload are what is compared.
fn compares_variants(row: &Row) -> bool {
    row.elastic.is_some()
        || row.large_values.is_some()
        || row.learned.is_some()
        || row.skew.is_some()
}

fn paint_legend<B: DrawingBackend>(
    area: &DrawingArea<B, Shift>,
    groups: &[Vec<&Summary>],
    style: TextStyle<'_>,
) -> Result<()>
where
    B::ErrorType: 'static,
{
    let mut engines: Vec<Engine> = groups.iter().flatten().map(|summary| summary.engine).collect();
    engines.sort_unstable();
    engines.dedup();
    for (i, engine) in engines.into_iter().enumerate() {
        let x = MARGIN + i as i32 * 110;
        area.draw(&Rectangle::new([(x, 46), (x + 12, 58)], color(engine).filled()))?;
        area.draw(&Text::new(engine.name(), (x + 18, 52), style.clone()))?;
    }
    Ok(())
}
