//! A picture of a learned index: first keys of blocks against their positions, with the segments
//! over them and, below, how far each key is from its line. SVG, written by hand.

use std::fmt::Write;
use terrace_base::FileNumber;
use terrace_sst::{ModelPoint, ModelView};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
/// Between keys over positions and the errors below.
const SPLIT: f64 = 480.0;
const BOTTOM: f64 = 40.0;

/// No more points than this are drawn, evenly spread.
const MAX_POINTS: usize = 4000;
/// No more segments than this.
const MAX_SEGMENTS: usize = 4000;

/// Where a number stands on an axis.
struct Scale {
    from: f64,
    to: f64,
    low: f64,
    high: f64,
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low).max(f64::MIN_POSITIVE);
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }
}

/// An SVG of the learned index of SST `file_number`.
pub(crate) fn draw(model: &ModelView, points: &[ModelPoint], file_number: FileNumber) -> String {
    let (low, high) = match (points.first(), points.last()) {
        (Some(first), Some(last)) => (first.key as f64, last.key as f64),
        _ => (0.0, 1.0),
    };
    let keys = Scale { from: LEFT, to: WIDTH - RIGHT, low, high };
    let positions = Scale { from: SPLIT - 20.0, to: TOP, low: 0.0, high: points.len() as f64 };
    let delta = f64::from(model.error_bound);
    let errors = Scale { from: HEIGHT - BOTTOM, to: SPLIT + 20.0, low: -delta, high: delta };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let title = format!(
        "SST {file_number}: {} data blocks, {} segments, error bound {} blocks, {} bytes in memory",
        points.len(),
        model.stats.segment_count,
        model.error_bound,
        model.memory_bytes,
    );
    text(&mut svg, LEFT, 28.0, &title);
    text(&mut svg, LEFT, SPLIT + 14.0, "blocks between a first key and its line");
    text(&mut svg, LEFT, HEIGHT - 12.0, "first key of the block, as a number →");
    text(&mut svg, 8.0, TOP - 8.0, "block ↑");
    for (y, label) in
        [(errors.at(delta), delta), (errors.at(0.0), 0.0), (errors.at(-delta), -delta)]
    {
        line(&mut svg, (LEFT, y), (WIDTH - RIGHT, y), "#ddd", 1.0);
        text(&mut svg, 30.0, y + 4.0, &format!("{label}"));
    }
    for block in [0.0, points.len() as f64 / 2.0, points.len() as f64] {
        line(
            &mut svg,
            (LEFT, positions.at(block)),
            (WIDTH - RIGHT, positions.at(block)),
            "#ddd",
            1.0,
        );
        text(&mut svg, 8.0, positions.at(block) + 4.0, &format!("{block:.0}"));
    }
    let step = points.len().div_ceil(MAX_POINTS).max(1);
    for point in points.iter().step_by(step) {
        let (x, block) = (keys.at(point.key as f64), f64::from(point.block));
        dot(&mut svg, (x, positions.at(block)), "#9bb");
        if let Some(predicted) = point.predicted {
            dot(&mut svg, (x, errors.at(block - predicted)), "#37a");
        }
    }
    let step = model.segments.len().div_ceil(MAX_SEGMENTS).max(1);
    for segment in model.segments.iter().step_by(step) {
        let end = |(x, position): (u64, f64)| (keys.at(x as f64), positions.at(position));
        line(&mut svg, end(segment.from), end(segment.to), "#c30", 1.2);
    }
    svg.push_str("</svg>\n");
    svg
}

// Writing to a `String` cannot fail.

fn text(svg: &mut String, x: f64, y: f64, words: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>");
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
    let _ = writeln!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
        from.0, from.1, to.0, to.1,
    );
}

fn dot(svg: &mut String, (x, y): (f64, f64), colour: &str) {
    let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"1.5\" fill=\"{colour}\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use terrace_learned::{DrawnSegment, ModelStats};

    #[test]
    fn every_block_and_segment_is_drawn() {
        let point = |block: u32| ModelPoint {
            key: u64::from(block) * 10,
            block,
            predicted: Some(f64::from(block) + 0.5),
        };
        let points: Vec<_> = (0..20).map(point).collect();
        let segments = vec![DrawnSegment { from: (0, 0.5), to: (190, 19.5) }];
        let stats = ModelStats::default();
        let model = ModelView { stats, error_bound: 2, segments, memory_bytes: 100 };
        let svg = draw(&model, &points, FileNumber::new(7));
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<circle").count(), 2 * points.len());
        assert!(svg.contains("SST 7: 20 data blocks") && svg.contains("stroke=\"#c30\""));
    }
}
