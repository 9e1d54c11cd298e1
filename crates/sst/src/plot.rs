//! A picture of a learned index: first keys of blocks against their positions, with the segments
//! over them and, below, how far each key is from its line. SVG, written by hand.

use crate::block_handle;
use crate::index::learned::LearnedIndex;
use crate::index::top_level::TAG_LEARNED;
use crate::reader::SstReader;
use std::fmt::Write;
use std::sync::Arc;
use terrace_base::Result;

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

impl SstReader {
    /// An SVG of the file's learned index; `None` if it has none. Reads the whole file.
    ///
    /// # Errors
    /// I/O, and corruption of the learned index or a data block.
    pub fn plot_model(self: &Arc<Self>) -> Result<Option<String>> {
        let Some(handle) = self.top.other(TAG_LEARNED) else { return Ok(None) };
        let place = self.place(handle);
        let payload = block_handle::unpack(self.read(handle)?, &place)?;
        let index = self.decode_model(&payload).map_err(|detail| place.corrupt(detail))?;
        let mut points = Vec::new();
        let model = index.blocks().model();
        self.for_each_first_key(|ordinal, _, first| {
            points.push((model.project(first), f64::from(ordinal)));
        })?;
        Ok(Some(draw(&index, &points, self.file_number())))
    }
}

fn draw(index: &LearnedIndex, points: &[(u64, f64)], file_number: u64) -> String {
    let model = index.blocks().model();
    let (low, high) = match (points.first(), points.last()) {
        (Some(first), Some(last)) => (first.0 as f64, last.0 as f64),
        _ => (0.0, 1.0),
    };
    let keys = Scale { from: LEFT, to: WIDTH - RIGHT, low, high };
    let positions = Scale { from: SPLIT - 20.0, to: TOP, low: 0.0, high: points.len() as f64 };
    let delta = f64::from(model.delta());
    let errors = Scale { from: HEIGHT - BOTTOM, to: SPLIT + 20.0, low: -delta, high: delta };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let stats = model.stats();
    let title = format!(
        "SST {file_number}: {} data blocks, {} segments, error bound {} blocks, {} bytes in memory",
        points.len(),
        stats.segment_count,
        model.delta(),
        index.memory_bytes(),
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
    for (x, position) in points.iter().step_by(step) {
        let place = (keys.at(*x as f64), positions.at(*position));
        dot(&mut svg, place, "#9bb");
        if let Some(predicted) = model.predict(*x) {
            dot(&mut svg, (keys.at(*x as f64), errors.at(position - predicted)), "#37a");
        }
    }
    let step = (stats.segment_count as usize).div_ceil(MAX_SEGMENTS).max(1);
    for segment in model.segments().step_by(step) {
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
