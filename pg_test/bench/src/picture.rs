//! README's picture of the cost of a call, as SVG: a row per candidate on a logarithmic axis, with a dot at the median of
//! each run and a line for the middle half of its rounds.

use crate::run::Run;
use crate::stats::Spread;
use crate::text::digits;

/// A candidate's name, and its figures in each run.
pub type Row = (String, Vec<Option<Spread>>);

/// The left and right end of the axis, and the top of the first row, in pixels.
const LEFT: f64 = 200.0;
const RIGHT: f64 = 814.0;
const TOP: f64 = 84.0;
/// The height of a run's mark in a row.
const MARK: f64 = 16.0;

const INK: &str = "#1f2937";
const SOFT: &str = "#4b5563";

/// The picture. The first row is the one that the others are compared with.
pub fn svg(title: &str, runs: &[Run], rows: &[Row]) -> String {
    let height_of_row = runs.len() as f64 * MARK + 10.0;
    let bottom = TOP + rows.len() as f64 * height_of_row;
    let ends: Vec<f64> =
        rows.iter().flat_map(|row| row.1.iter().flatten()).flat_map(|it| [it.low, it.high]).collect();
    let ticks = ticks(&ends);
    let (from, to) = (ticks[0], ticks[ticks.len() - 1]);
    let x = |value: f64| LEFT + (value / from).ln() / (to / from).ln() * (RIGHT - LEFT);
    let mut shapes = Vec::new();

    shapes.push(text(20.0, 24.0, "start", 15, INK, title));
    let mut at = 26.0;
    for (nth, run) in runs.iter().enumerate() {
        shapes.push(dot(at, 48.0, nth, INK));
        shapes.push(text(at + 10.0, 48.0, "start", 12, SOFT, &format!("PostgreSQL {}", run.major)));
        at += 127.0;
    }
    shapes.push(text(at, 48.0, "start", 12, SOFT, "dot: median; line: the middle half of the rounds"));

    for tick in ticks {
        let colour = if tick == 1.0 { SOFT } else { "#e5e7eb" };
        shapes.push(line(x(tick), TOP, x(tick), bottom, colour));
        shapes.push(text(x(tick), bottom + 13.0, "middle", 12, SOFT, &tick.to_string()));
    }
    shapes.push(text((LEFT + RIGHT) / 2.0, bottom + 32.0, "middle", 13, INK, "times ours"));

    for (nth_row, (name, spreads)) in rows.iter().enumerate() {
        let top = TOP + nth_row as f64 * height_of_row;
        let colour = if nth_row == 0 { "#0072b2" } else { "#d55e00" }; // colour-blind readers distinguish them
        shapes.push(text(LEFT - 14.0, top + height_of_row / 2.0, "end", 13, INK, name));
        for (nth, spread) in spreads.iter().enumerate() {
            let Some(spread) = spread else { continue };
            let y = top + 5.0 + (nth as f64 + 0.5) * MARK;
            shapes.push(line(x(spread.low), y, x(spread.high), y, colour));
            shapes.push(dot(x(spread.median), y, nth, colour));
            shapes.push(text(x(spread.high) + 9.0, y, "start", 12, INK, &digits(spread.median)));
        }
    }
    let height = bottom + 50.0;
    format!(
        "<svg width=\"880\" height=\"{height}\" viewBox=\"0 0 880 {height}\" xmlns=\"http://www.w3.org/2000/svg\" \
         font-family=\"system-ui, Segoe UI, Helvetica Neue, Arial, sans-serif\">\n<title>{title}</title>\n\
         <rect x=\"1\" y=\"1\" width=\"878\" height=\"{}\" rx=\"10\" fill=\"#ffffff\" stroke=\"#d1d5db\"/>\n{}\n</svg>\n",
        height - 2.0,
        shapes.join("\n")
    )
}

/// 1, 2, 5 and their multiples by ten, from the one below all values to the one above them.
fn ticks(values: &[f64]) -> Vec<f64> {
    let all: Vec<f64> =
        (-3..=6).flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(decade))).collect();
    let below = all.iter().rposition(|tick| values.iter().all(|value| tick <= value)).unwrap_or(0);
    let above = all.iter().position(|tick| values.iter().all(|value| tick >= value));
    all[below..=above.unwrap_or(all.len() - 1)].to_vec()
}

/// A white rim keeps a number readable on a line.
fn text(x: f64, y: f64, side: &str, size: u32, colour: &str, text: &str) -> String {
    format!(
        "<text x=\"{x:.1}\" y=\"{y:.1}\" dy=\"0.35em\" text-anchor=\"{side}\" font-size=\"{size}\" fill=\"{colour}\" \
         stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\">{text}</text>"
    )
}

fn line(x1: f64, y1: f64, x2: f64, y2: f64, colour: &str) -> String {
    format!(
        "<path d=\"M{x1:.1} {y1:.1} L{x2:.1} {y2:.1}\" stroke=\"{colour}\" stroke-width=\"2\" fill=\"none\"/>"
    )
}

/// The first run's dot is filled, that of the second hollow.
fn dot(x: f64, y: f64, run: usize, colour: &str) -> String {
    let fill = if run == 0 { colour } else { "#ffffff" };
    format!(
        "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"2\"/>"
    )
}
