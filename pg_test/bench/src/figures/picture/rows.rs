//! Rows: one for each thing that is compared, with a dot in each panel.

use super::frame::Frame;
use super::{Area, Axis, COLOURS, HEAD, INK, MARGIN, RGBColor, RULE, Result, SOFT, WIDTH, card, line, text};
use crate::figures::stats::Spread;
use crate::figures::text::digits;
use plotters::prelude::{Circle, WHITE};
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

/// Several measurements of the same things, beside one another.
pub struct Rows {
    /// The subject.
    pub title: String,
    /// The names of a row's marks, the first of which is filled and the second hollow.
    pub marks: Vec<String>,
    /// The panels.
    pub panels: Vec<Panel>,
    /// The rows.
    pub rows: Vec<Row>,
    /// A value that all are compared with.
    pub reference: Option<f64>,
}

/// A panel.
pub struct Panel {
    /// What was measured.
    pub title: String,
    /// Aligned panels have the same.
    pub axis: Axis,
}

/// A row.
pub struct Row {
    /// What was measured.
    pub name: String,
    /// It is ours, which the others are compared with.
    pub is_ours: bool,
    /// A mark for each panel and, within it, each name of [`Rows::marks`].
    pub cells: Vec<Vec<Option<Mark>>>,
}

/// A dot with a line for the middle half of the rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark(pub Spread);

const NAMES: i32 = 176;
const MARK: i32 = 16;
/// Room for the number beside the last dot.
const NUMBERS: i32 = 46;

impl Rows {
    /// The picture.
    ///
    /// # Errors
    /// An error of the drawing library.
    pub fn svg(&self) -> Result<String> {
        let row = self.row_height();
        let top = HEAD + 22;
        let bottom = top + row * self.rows.len() as i32;
        card(&self.title, "", bottom + 50, |area| {
            self.draw_legend(area)?;
            for (nth, row_of) in self.rows.iter().enumerate() {
                let y = top + nth as i32 * row + row / 2;
                text(area, &row_of.name, (MARGIN + NAMES - 10, y), 13, &INK, HPos::Right)?;
            }
            let width = (WIDTH as i32 - 2 * MARGIN - NAMES) / self.panels.len() as i32;
            for (nth, panel) in self.panels.iter().enumerate() {
                let left = MARGIN + NAMES + nth as i32 * width;
                let frame = Frame { left: left + 4, right: left + width - NUMBERS, top, bottom };
                self.draw_panel(area, frame, nth, panel)?;
            }
            Ok(())
        })
    }

    fn row_height(&self) -> i32 {
        self.marks.len() as i32 * MARK + 10
    }

    fn draw_legend(&self, area: &Area) -> Result<()> {
        let mut x = MARGIN + 6;
        for (nth, name) in self.marks.iter().enumerate() {
            dot(area, (x, 48), nth, &INK)?;
            text(area, name, (x + 10, 48), 13, &SOFT, HPos::Left)?;
            x += name.chars().count() as i32 * 7 + 36;
        }
        let words = "dot: median; line: the middle half of the rounds";
        text(area, words, (x, 48), 13, &SOFT, HPos::Left)
    }

    fn draw_panel(&self, area: &Area, frame: Frame, nth: usize, panel: &Panel) -> Result<()> {
        frame.draw_x(area, &panel.title, &panel.axis)?;
        let x = |value| frame.x(panel.axis.clamped(value));
        if let Some(reference) = self.reference {
            line(area, vec![(x(reference), frame.top), (x(reference), frame.bottom)], &SOFT, 2)?;
        }
        // A number stands to the right of its dot, but not on the line of the reference.
        for (at, row) in self.rows.iter().enumerate() {
            let top = frame.top + at as i32 * self.row_height();
            line(area, vec![(frame.left, top), (frame.right, top)], &RULE, 1)?;
            let colour = if row.is_ours { COLOURS[1] } else { COLOURS[2] };
            for (mark, cell) in row.cells[nth].iter().enumerate() {
                let Some(Mark(spread)) = cell else { continue };
                let y = top + 5 + mark as i32 * MARK + MARK / 2;
                line(area, vec![(x(spread.low), y), (x(spread.high), y)], &colour, 2)?;
                dot(area, (x(spread.median), y), mark, &colour)?;
                let number = digits(spread.median);
                let mut left = x(spread.high) + 9;
                let reference = self.reference.map_or(0, x);
                if (left - 4..left + 7 * number.len() as i32).contains(&reference) {
                    left = reference + 6;
                }
                text(area, &number, (left, y), 12, &INK, HPos::Left)?;
            }
        }
        Ok(())
    }
}

/// The first mark of a row is filled, the second hollow.
fn dot(area: &Area, at: (i32, i32), mark: usize, colour: &RGBColor) -> Result<()> {
    area.draw(&Circle::new(at, 4, if mark == 0 { colour.filled() } else { WHITE.filled() }))?;
    area.draw(&Circle::new(at, 4, colour.stroke_width(2)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::text::tick;

    #[test]
    fn every_number_is_inside_the_card() {
        let spread = |median| Some(Mark(Spread { median, low: median * 0.9, high: median * 1.2, rounds: 5 }));
        let axis = Axis::log("times", tick, &[0.5, 480.0]);
        let row = |name: &str, median| Row {
            name: name.to_owned(),
            is_ours: false,
            cells: vec![vec![spread(median), None], vec![None, spread(median)]],
        };
        let panel = |title: &str| Panel { title: title.to_owned(), axis: axis.clone() };
        let picture = Rows {
            title: "A & B".to_owned(),
            marks: vec!["one".to_owned(), "two".to_owned()],
            panels: vec![panel("left"), panel("right")],
            rows: vec![row("a", 0.6), row("b", 400.0)],
            reference: Some(1.0),
        };
        let svg = picture.svg().unwrap();
        assert!(svg.contains("<title>A &amp; B</title>") && svg.trim_end().ends_with("</svg>"));
        for x in svg.split(" x=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            assert!((0..WIDTH as i32 - 20).contains(&x.parse::<f64>().map_or(0, |x| x as i32)), "{x}");
        }
    }
}
