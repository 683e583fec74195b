//! Curves over two axes, named in a column to their right.

use super::frame::Frame;
use super::{Area, Axis, COLOURS, HEAD, INK, MARGIN, Point, Result, WIDTH, card, line, text};
use plotters::element::DashedPathElement;
use plotters::style::Color;
use plotters::style::text_anchor::HPos;

/// Panels beside one another, with the same axes and the same names.
pub struct Curves {
    /// The subject.
    pub title: String,
    /// What lines and dashes are.
    pub note: String,
    /// The axis below.
    pub x: Axis,
    /// The axis to the left.
    pub y: Axis,
    /// Titles and curves.
    pub panels: Vec<(String, Vec<Series>)>,
    /// The width of the column with the names, in pixels.
    pub names: u32,
}

/// A curve.
pub struct Series {
    /// Its name.
    pub name: String,
    /// The index of its colour; 0 is ink, for a limit.
    pub colour: usize,
    /// Drawn with dashes.
    pub is_dashed: bool,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

const HEIGHT: i32 = 430;
const TICKS: i32 = 78;
const GAP: i32 = 22;
/// Between two names.
const SPACING: i32 = 19;

impl Series {
    /// A line.
    pub fn line(name: &str, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), colour, is_dashed: false, points }
    }

    /// Dashes.
    pub fn dashes(name: &str, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { is_dashed: true, ..Self::line(name, colour, points) }
    }

    fn draw(&self, area: &Area, places: Vec<Point>) -> Result<()> {
        let colour = COLOURS[self.colour];
        if !self.is_dashed {
            return line(area, places, &colour, 2);
        }
        area.draw(&DashedPathElement::new(places, 6, 4, colour.stroke_width(2)))?;
        Ok(())
    }
}

impl Curves {
    /// The picture.
    ///
    /// # Errors
    /// An error of the drawing library.
    pub fn svg(&self) -> Result<String> {
        card(&self.title, &self.note, HEIGHT, |area| {
            text(area, &self.y.name, (MARGIN, HEAD + 10), 13, &INK, HPos::Left)?;
            let count = self.panels.len() as i32;
            let room = WIDTH as i32 - 2 * MARGIN - TICKS - self.names as i32;
            let width = (room - GAP * (count - 1)) / count;
            for (nth, (title, series)) in self.panels.iter().enumerate() {
                let left = MARGIN + TICKS + nth as i32 * (width + GAP);
                let top = HEAD + if title.is_empty() { 28 } else { 44 };
                let frame = Frame { left, right: left + width, top, bottom: HEIGHT - 54 };
                frame.draw_y(area, &self.y, nth == 0)?;
                frame.draw_x(area, title, &self.x)?;
                for one in series {
                    one.draw(area, self.places(frame, one))?;
                }
                if nth + 1 == self.panels.len() {
                    self.draw_names(area, frame, series)?;
                }
            }
            Ok(())
        })
    }

    /// The points that the axes reach.
    fn places(&self, frame: Frame, series: &Series) -> Vec<Point> {
        series.points.iter().filter_map(|point| frame.place(&self.x, &self.y, *point)).collect()
    }

    /// Each name is as near to the height of its curve's end as the others leave room for.
    fn draw_names(&self, area: &Area, frame: Frame, series: &[Series]) -> Result<()> {
        let end = |one: &Series| self.places(frame, one).last().map_or(frame.bottom, |place| place.1);
        let mut named: Vec<(i32, &Series)> = series.iter().map(|one| (end(one), one)).collect();
        named.sort_by_key(|(y, _)| *y);
        let wanted: Vec<i32> = named.iter().map(|(y, _)| *y).collect();
        for (y, (_, one)) in spaced(&wanted, frame.top + 6, frame.bottom - 4).into_iter().zip(named) {
            let x = frame.right + 14;
            one.draw(area, vec![(x, y), (x + 22, y)])?;
            text(area, &one.name, (x + 30, y), 13, &INK, HPos::Left)?;
        }
        Ok(())
    }
}

/// Ascending heights moved apart, within these ends.
fn spaced(wanted: &[i32], top: i32, bottom: i32) -> Vec<i32> {
    let mut places: Vec<i32> = Vec::with_capacity(wanted.len());
    for y in wanted {
        let least = places.last().map_or(top, |last| last + SPACING);
        places.push((*y).max(least));
    }
    let mut most = bottom;
    for place in places.iter_mut().rev() {
        *place = (*place).min(most);
        most = *place - SPACING;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::tick;

    #[test]
    fn names_do_not_overlap_and_stay_beside_the_panel() {
        assert_eq!(spaced(&[10, 100, 105], 0, 400), [10, 100, 119]);
        assert_eq!(spaced(&[390, 395, 400], 0, 400), [362, 381, 400]);
        assert_eq!(spaced(&[-5, -5], 0, 400), [0, 19]);
    }

    #[test]
    fn a_curve_ends_where_the_axes_end() {
        let x = Axis::linear("", tick, 10.0);
        let y = Axis::log("", tick, &[1.0, 100.0]);
        let points = vec![(1.0, 0.0), (2.0, 0.5), (3.0, 10.0), (20.0, 10.0)];
        let series = Series::line("a", 1, points);
        let curves = Curves { title: String::new(), note: String::new(), x, y, panels: Vec::new(), names: 0 };
        let frame = Frame { left: 0, right: 100, top: 0, bottom: 100 };
        assert_eq!(curves.places(frame, &series), [(30, 50)]);
    }
}
