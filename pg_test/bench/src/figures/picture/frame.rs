//! The rectangle of a panel: grid, ticks, and the way from values to pixels.

use super::{Area, Axis, INK, RULE, Result, SOFT, line, text};
use plotters::style::text_anchor::HPos;

/// A panel's rectangle, in pixels.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub left: i32,
    pub right: i32,
    pub top: i32,
    pub bottom: i32,
}

impl Frame {
    /// The pixel of a share of the width.
    pub fn x(self, share: f64) -> i32 {
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }

    fn middle(self) -> i32 {
        (self.left + self.right) / 2
    }

    /// The title above, the grid's vertical lines, the axis below with its name.
    pub fn draw_x(self, area: &Area, title: &str, axis: &Axis) -> Result<()> {
        text(area, title, (self.left, self.top - 14), 14, &INK, HPos::Left)?;
        for tick in axis.ticks() {
            let x = self.x(axis.clamped(*tick));
            line(area, vec![(x, self.top), (x, self.bottom)], &RULE, 1)?;
            text(area, &(axis.text)(*tick), (x, self.bottom + 13), 12, &SOFT, HPos::Center)?;
        }
        text(area, &axis.name, (self.middle(), self.bottom + 32), 13, &INK, HPos::Center)?;
        line(area, vec![(self.left, self.bottom), (self.right, self.bottom)], &SOFT, 1)
    }
}
