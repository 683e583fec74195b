//! The plots, as SVG: white cards that are readable on a light page and on a dark one.

use crate::candidates::{CANDIDATES, Candidate};
use crate::figures::{Run, Spread, readable};
use crate::measure::CLIENTS;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// One plot of the page.
pub struct Plot {
    /// Its file name, without the extension.
    pub name: &'static str,
    /// Its subject, with the unit: the heading, and the text shown where images are not.
    pub title: &'static str,
    kind: Kind,
}

enum Kind {
    /// Bars from zero, the versions side by side, a panel for each of the measurements.
    Bars(&'static [(&'static str, &'static str)]),
    /// Points on a logarithmic axis, a panel for each version, with all measurements of a candidate in one row.
    Points(&'static [(&'static str, &'static str)]),
    /// A line for each candidate over the number of clients, a panel for each version. The names of the measurements
    /// are this name and that number.
    Lines { prefix: &'static str, log: bool },
}

/// All plots.
pub const PLOTS: [Plot; 10] = [
    Plot {
        name: "call",
        title: "Cost of a call, in nanoseconds (logarithmic)",
        kind: Kind::Points(&[("call_ns", "")]),
    },
    Plot {
        name: "single",
        title: "IDs a second, one a query, by number of clients",
        kind: Kind::Lines { prefix: "single", log: false },
    },
    Plot {
        name: "thousand",
        title: "IDs a second, 1,000 a query, by number of clients (logarithmic)",
        kind: Kind::Lines { prefix: "thousand", log: true },
    },
    Plot {
        name: "latency",
        title: "Time of a call under saturation, in microseconds (logarithmic)",
        kind: Kind::Points(&[("call_p50_us", "p50"), ("call_p99_us", "p99"), ("call_p999_us", "p99.9")]),
    },
    Plot {
        name: "tpcb",
        title: "TPC-B, transactions a second",
        kind: Kind::Bars(&[("tpcb_tps", "8 clients, every commit on disk")]),
    },
    Plot {
        name: "insert",
        title: "Inserting rows",
        kind: Kind::Bars(&[
            ("insert_s", "one INSERT of 2,000,000 rows, s"),
            ("fill_rows_a_s", "4 clients, 1,000 rows a statement, rows/s"),
        ]),
    },
    Plot {
        name: "copy",
        title: "COPY of 2,000,000 rows",
        kind: Kind::Bars(&[("copy_s", "time, s"), ("copy_wal", "WAL of a row, bytes")]),
    },
    Plot {
        name: "wal",
        title: "What 5,000,000 inserted rows leave on disk",
        kind: Kind::Bars(&[("wal_a_row", "WAL of a row, bytes"), ("index_mib", "primary key's index, MiB")]),
    },
    Plot {
        name: "lookups",
        title: "Looking up a row among the newest 1 %, in microseconds",
        kind: Kind::Bars(&[
            ("lookup_warm_us", "everything in memory"),
            ("lookup_small_us", "shared_buffers of 64 MB"),
        ]),
    },
    Plot {
        name: "query",
        title: "Time of a query of one call under saturation, in microseconds (logarithmic)",
        kind: Kind::Points(&[("query_p50_us", "p50"), ("query_p99_us", "p99"), ("query_p999_us", "p99.9")]),
    },
];

const WIDTH: u32 = 880;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(31, 41, 55);
const FAINT: RGBColor = RGBColor(209, 213, 219);
const TITLE: u32 = 40;
const LEGEND: u32 = 26;
const AXIS: u32 = 34;
const LABELS: u32 = 178;
const BAR: u32 = 15;

impl Plot {
    /// The plot as SVG.
    ///
    /// # Errors
    /// An error of the drawing library.
    pub fn svg(&self, runs: &[Run]) -> Result<String> {
        let mut svg = String::new();
        let marks = match self.kind {
            Kind::Bars(_) => runs.len(),
            Kind::Points(measurements) => measurements.len(),
            Kind::Lines { .. } => 0,
        };
        let rows = shown(&self.measurements(), runs).len() as u32;
        let body = match self.kind {
            Kind::Lines { .. } => 330,
            _ => rows * (marks as u32 * BAR + 9) + AXIS + 26,
        };
        let height = TITLE + LEGEND + body;
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
            root.fill(&WHITE)?;
            let (right, bottom) = (WIDTH as i32 - 1, height as i32 - 1);
            root.draw(&Rectangle::new([(0, 0), (right, bottom)], FAINT.stroke_width(1)))?;
            text(&root, self.title, (16, 18), 19, &INK, HPos::Left)?;
            let (head, body) = root.split_vertically(TITLE + LEGEND);
            match self.kind {
                Kind::Bars(measurements) => self.bars(&head, &body, measurements, runs)?,
                Kind::Points(measurements) => self.points(&head, &body, measurements, runs)?,
                Kind::Lines { prefix, log } => self.lines(&head, &body, prefix, log, runs)?,
            }
            root.present()?;
        }
        Ok(with_title(&svg, self.title))
    }

    fn measurements(&self) -> Vec<String> {
        match self.kind {
            Kind::Bars(list) | Kind::Points(list) => {
                list.iter().map(|(name, _)| (*name).to_owned()).collect()
            }
            Kind::Lines { prefix, .. } => CLIENTS.map(|clients| format!("{prefix}_{clients}")).to_vec(),
        }
    }

    fn bars(&self, head: &Area, body: &Area, panels: &[(&str, &str)], runs: &[Run]) -> Result<()> {
        let names: Vec<String> = runs.iter().map(|run| format!("PostgreSQL {}", run.major)).collect();
        let strength = |nth: usize| if nth == 0 { 0.95 } else { 0.5 };
        let mut x = 16;
        for (nth, name) in names.iter().enumerate() {
            let swatch = [(x, TITLE as i32 + 2), (x + 14, TITLE as i32 + 14)];
            head.draw(&Rectangle::new(swatch, INK.mix(strength(nth) * 0.75).filled()))?;
            x = legend_text(head, name, x + 20)?;
        }
        legend_text(head, "bar: median; line: least to greatest of the runs", x)?;

        for (area, (measurement, title)) in body.split_evenly((1, panels.len())).iter().zip(panels) {
            let rows = shown(&[(*measurement).to_owned()], runs);
            let spreads =
                rows.iter().flat_map(|it| runs.iter().filter_map(|run| run.of(measurement, it.key)));
            let most = spreads.map(|spread| spread.max).fold(0.0, f64::max);
            let range = (0.0..most * 1.28).into();
            let chart = Rows { area, title, rows: &rows, marks: runs.len() };
            chart.draw_axis(range, |chart, scale| {
                for (row, candidate) in rows.iter().enumerate() {
                    for (nth, run) in runs.iter().enumerate() {
                        let Some(spread) = run.of(measurement, candidate.key) else { continue };
                        let y = chart.y(row, nth);
                        let bar = [(scale(0.0), y - 5), (scale(spread.median), y + 6)];
                        area.draw(&Rectangle::new(bar, color(candidate).mix(strength(nth)).filled()))?;
                        whisker(area, (scale(spread.min), y), (scale(spread.max), y), &INK)?;
                        let label = readable(spread.median);
                        text(area, &label, (scale(spread.max) + 6, y), 12, &INK, HPos::Left)?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn points(&self, head: &Area, body: &Area, marks: &[(&str, &str)], runs: &[Run]) -> Result<()> {
        legend_text(head, "point: median; line: least to greatest of the runs", 16)?;
        let names: Vec<String> = marks.iter().map(|(name, _)| (*name).to_owned()).collect();
        let all = runs.iter().flat_map(|run| names.iter().filter_map(|name| run.figures.get(name)));
        let (mut least, mut most) = (f64::MAX, f64::MIN);
        for spread in all.flat_map(|row| row.values()).filter_map(|figures| figures.spread()) {
            (least, most) = (least.min(above_zero(spread.min)), most.max(spread.max));
        }
        for (area, run) in body.split_evenly((1, runs.len().max(1))).iter().zip(runs) {
            let rows = shown(&names, std::slice::from_ref(run));
            let title = format!("PostgreSQL {}", run.major);
            // Room for a label to the right of the greatest value.
            let from = least * 0.7;
            let range = Range { from, to: from * (most / from).powf(1.6), last: most, log: true };
            let chart = Rows { area, title: &title, rows: &rows, marks: marks.len() };
            chart.draw_axis(range, |chart, scale| {
                for (row, candidate) in rows.iter().enumerate() {
                    for (nth, (name, mark)) in marks.iter().enumerate() {
                        let Some(spread) = run.of(name, candidate.key) else { continue };
                        let (y, color) = (chart.y(row, nth), color(candidate));
                        let x = |value| scale(above_zero(value));
                        whisker(area, (x(spread.min), y), (x(spread.max), y), &color)?;
                        area.draw(&Circle::new((x(spread.median), y), 4, color.filled()))?;
                        let figure =
                            if spread.median < 1.0 { "< 1".to_owned() } else { readable(spread.median) };
                        let label = format!("{mark} {figure}");
                        text(area, label.trim(), (x(spread.max) + 9, y), 12, &INK, HPos::Left)?;
                    }
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn lines(&self, head: &Area, body: &Area, prefix: &str, log: bool, runs: &[Run]) -> Result<()> {
        let names = self.measurements();
        let mut x = 16;
        for candidate in shown(&names, runs) {
            let y = TITLE as i32 + 8;
            head.draw(&PathElement::new(vec![(x, y), (x + 16, y)], color(&candidate).stroke_width(2)))?;
            head.draw(&Circle::new((x + 8, y), 3, color(&candidate).filled()))?;
            x = legend_text(head, candidate.label, x + 21)?;
        }
        let rows = runs.iter().flat_map(|run| names.iter().filter_map(|name| run.figures.get(name)));
        let spreads: Vec<Spread> =
            rows.flat_map(|row| row.values()).filter_map(|figures| figures.spread()).collect();
        let most = spreads.iter().map(|spread| spread.max).fold(0.0, f64::max) * 1.05;
        let least = spreads.iter().map(|spread| spread.min).fold(f64::MAX, f64::min) * 0.8;
        let to = most * if log { 1.3 } else { 1.0 };
        let range = Range { from: if log { least } else { 0.0 }, to, last: to, log };
        for (area, run) in body.split_evenly((1, runs.len().max(1))).iter().zip(runs) {
            let (width, height) = area.dim_in_pixel();
            let (left, right, top, bottom) = (74, width as i32 - 16, 24, height as i32 - 44);
            text(area, &format!("PostgreSQL {}", run.major), (left, 10), 14, &INK, HPos::Left)?;
            let y = |value: f64| bottom - (range.share(value) * f64::from(bottom - top)) as i32;
            let x = |nth: usize| left + 24 + (right - left - 48) * nth as i32 / (CLIENTS.len() as i32 - 1);
            for tick in range.ticks() {
                area.draw(&PathElement::new(vec![(left, y(tick)), (right, y(tick))], FAINT.stroke_width(1)))?;
                text(area, &tick_label(tick), (left - 6, y(tick)), 12, &INK, HPos::Right)?;
            }
            for (nth, clients) in CLIENTS.iter().enumerate() {
                text(area, &clients.to_string(), (x(nth), bottom + 14), 12, &INK, HPos::Center)?;
            }
            text(area, "clients", ((left + right) / 2, bottom + 32), 12, &INK, HPos::Center)?;
            for candidate in shown(&names, std::slice::from_ref(run)) {
                let color = color(&candidate);
                let spreads = CLIENTS.map(|clients| run.of(&format!("{prefix}_{clients}"), candidate.key));
                let points: Vec<(i32, Spread)> =
                    spreads.iter().enumerate().filter_map(|(nth, it)| Some((x(nth), (*it)?))).collect();
                let line = points.iter().map(|(x, spread)| (*x, y(spread.median)));
                area.draw(&PathElement::new(line.collect::<Vec<_>>(), color.stroke_width(2)))?;
                for (x, spread) in points {
                    whisker(area, (x, y(spread.min)), (x, y(spread.max)), &color)?;
                    area.draw(&Circle::new((x, y(spread.median)), 3, color.filled()))?;
                }
            }
        }
        Ok(())
    }
}

/// A panel whose rows are candidates, with several marks in each.
struct Rows<'a, 'b> {
    area: &'a Area<'b>,
    title: &'a str,
    rows: &'a [Candidate],
    marks: usize,
}

impl Rows<'_, '_> {
    const TOP: i32 = 26;

    fn row_height(&self) -> i32 {
        self.marks as i32 * BAR as i32 + 9
    }

    /// The middle of a mark.
    fn y(&self, row: usize, nth: usize) -> i32 {
        Self::TOP + row as i32 * self.row_height() + 5 + nth as i32 * BAR as i32 + BAR as i32 / 2
    }

    /// Draws title, names, grid and axis, and then `inside`, with the scale from values to pixels.
    fn draw_axis(
        &self,
        range: Range,
        inside: impl FnOnce(&Self, &dyn Fn(f64) -> i32) -> Result<()>,
    ) -> Result<()> {
        let (left, right) = (LABELS as i32, self.area.dim_in_pixel().0 as i32 - 16);
        let bottom = Self::TOP + self.rows.len() as i32 * self.row_height();
        let scale = |value: f64| left + (range.share(value) * f64::from(right - left)) as i32;
        text(self.area, self.title, (left, 11), 14, &INK, HPos::Left)?;
        for tick in range.ticks() {
            let line = vec![(scale(tick), Self::TOP), (scale(tick), bottom)];
            self.area.draw(&PathElement::new(line, FAINT.stroke_width(1)))?;
            text(self.area, &tick_label(tick), (scale(tick), bottom + 13), 12, &INK, HPos::Center)?;
        }
        for (row, candidate) in self.rows.iter().enumerate() {
            let middle = Self::TOP + row as i32 * self.row_height() + self.row_height() / 2;
            text(self.area, candidate.label, (left - 8, middle), 13, &INK, HPos::Right)?;
        }
        inside(self, &scale)
    }
}

/// An axis.
#[derive(Clone, Copy)]
struct Range {
    from: f64,
    to: f64,
    /// The grid ends here.
    last: f64,
    log: bool,
}

impl From<std::ops::Range<f64>> for Range {
    fn from(range: std::ops::Range<f64>) -> Self {
        Self { from: range.start, to: range.end, last: range.end, log: false }
    }
}

impl Range {
    /// The position of a value, from 0 to 1.
    fn share(self, value: f64) -> f64 {
        let at = |value: f64| if self.log { value.ln() } else { value };
        ((at(value) - at(self.from)) / (at(self.to) - at(self.from))).clamp(0.0, 1.0)
    }

    /// Powers of ten, with values between them if there are few; or at most five round numbers.
    fn ticks(self) -> Vec<f64> {
        if self.log {
            let decades = self.from.log10().floor() as i32..=self.last.log10().floor() as i32;
            // Few decades: 2 and 5 as well.
            let steps: &[f64] = if decades.clone().count() > 3 { &[1.0] } else { &[1.0, 2.0, 5.0] };
            let ticks = decades.flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)));
            return ticks.filter(|tick| (self.from..=self.last).contains(tick)).collect();
        }
        let rough = (self.to - self.from) / 5.0;
        let magnitude = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * magnitude >= rough);
        let step = step.unwrap_or(10.0) * magnitude;
        (0..).map(|nth| f64::from(nth) * step).take_while(|tick| *tick <= self.to).collect()
    }
}

/// A round number in few characters.
fn tick_label(tick: f64) -> String {
    let (number, unit) = match tick {
        _ if tick >= 1e6 => (tick / 1e6, "M"),
        _ if tick >= 1e4 => (tick / 1e3, "k"),
        _ if tick >= 1e3 => return readable(tick),
        _ => (tick, ""),
    };
    format!("{}{unit}", (number * 1e6).round() / 1e6)
}

/// The candidates that have a figure in one of the measurements, followed by the references that have one.
fn shown(measurements: &[String], runs: &[Run]) -> Vec<Candidate> {
    let has = |candidate: &Candidate| {
        measurements.iter().any(|name| runs.iter().any(|run| run.of(name, candidate.key).is_some()))
    };
    CANDIDATES.into_iter().chain(crate::candidates::REFERENCES).filter(has).collect()
}

/// The server's clock has microseconds, so a value below one is drawn at half of one.
fn above_zero(value: f64) -> f64 {
    value.max(0.5)
}

fn color(candidate: &Candidate) -> RGBColor {
    let (red, green, blue) = candidate.color;
    RGBColor(red, green, blue)
}

fn whisker(area: &Area, from: (i32, i32), to: (i32, i32), color: &RGBColor) -> Result<()> {
    area.draw(&PathElement::new(vec![from, to], color.stroke_width(1)))?;
    // With caps at both ends.
    let (dx, dy) = if from.1 == to.1 { (0, 3) } else { (3, 0) };
    for (x, y) in [from, to] {
        area.draw(&PathElement::new(vec![(x - dx, y - dy), (x + dx, y + dy)], color.stroke_width(1)))?;
    }
    Ok(())
}

fn text(area: &Area, words: &str, at: (i32, i32), size: i32, color: &RGBColor, anchor: HPos) -> Result<()> {
    let style = (FONT, size).into_text_style(area).color(color).pos(Pos::new(anchor, VPos::Center));
    area.draw(&Text::new(words.to_owned(), at, style))?;
    Ok(())
}

/// Draws an entry of the legend, and returns the position of the next one.
fn legend_text(area: &Area, words: &str, x: i32) -> Result<i32> {
    text(area, words, (x, TITLE as i32 + 8), 12, &INK, HPos::Left)?;
    Ok(x + words.chars().count() as i32 * 6 + 12)
}

/// For readers who use a screen reader.
fn with_title(svg: &str, title: &str) -> String {
    let at = svg.find("<svg").and_then(|start| svg[start..].find('>').map(|end| start + end + 1));
    match at {
        Some(at) => format!("{}\n<title>{title}</title>{}", &svg[..at], &svg[at..]),
        None => svg.to_owned(),
    }
}
