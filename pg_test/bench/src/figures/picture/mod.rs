//! Pictures of one style, as SVG: a white card that is readable on a light page and on a dark one, with its title
//! above, its legend beside what it names, and axes that reach the data.
//!
//! * [`Rows`]: a row for each thing that is compared, a panel for each measurement, dots with the middle half of the
//!   rounds;
//! * [`Axis`]: range and ticks; aligned panels get the same one.

mod axis;
mod frame;
mod rows;

pub use axis::Axis;
pub use rows::{Mark, Panel, Row, Rows};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::error::Error;

type Result<T> = std::result::Result<T, Box<dyn Error>>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Point = (i32, i32);

/// The width of every picture, which is that of a page on GitHub.
pub const WIDTH: u32 = 880;
/// The fonts of the reader's system.
pub const FONT: &str = "system-ui, Segoe UI, Helvetica Neue, Arial, sans-serif";
/// The card below every picture, but for its height.
pub const CARD: &str = r##"rx="10" fill="#ffffff" stroke="#d1d5db"/>"##;

const INK: RGBColor = RGBColor(31, 41, 55);
const SOFT: RGBColor = RGBColor(75, 85, 99);
const RULE: RGBColor = RGBColor(229, 231, 235);

/// Colours that the colour-blind can tell apart (Okabe and Ito), and the ink for a limit.
const COLOURS: [RGBColor; 6] = [
    INK,
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
];

/// Where title and legend end.
const HEAD: i32 = 62;
const MARGIN: i32 = 20;

/// A card with a title and a line of explanation below it.
fn card(title: &str, note: &str, height: i32, draw: impl FnOnce(&Area) -> Result<()>) -> Result<String> {
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
        text(&area, title, (MARGIN, 24), 18, &INK, HPos::Left)?;
        text(&area, note, (MARGIN, 48), 13, &SOFT, HPos::Left)?;
        draw(&area)?;
        area.present()?;
    }
    // A title for readers who use a screen reader, and a card with round corners, which plotters does not draw.
    let head = svg.find('>').ok_or("no SVG")? + 1;
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    let card = format!(r#"<rect x="1" y="1" width="{}" height="{}" {CARD}"#, WIDTH - 2, height - 2);
    Ok(format!("{}\n<title>{title}</title>\n{card}{}", &svg[..head], &svg[head..]))
}

fn text(area: &Area, words: &str, at: Point, size: i32, colour: &RGBColor, side: HPos) -> Result<()> {
    if !words.is_empty() {
        let style = (FONT, size).into_text_style(area).color(colour).pos(Pos::new(side, VPos::Center));
        area.draw(&Text::new(words.to_owned(), at, style))?;
    }
    Ok(())
}

fn line(area: &Area, points: Vec<Point>, colour: &RGBColor, width: u32) -> Result<()> {
    area.draw(&PathElement::new(points, colour.stroke_width(width)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::page::root;
    use std::fs;
    use std::path::PathBuf;

    fn pictures(folder: PathBuf, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                pictures(path, into);
            } else if path.extension().is_some_and(|extension| extension == "svg") {
                into.push(path);
            }
        }
    }

    /// Those that people drew, too.
    #[test]
    fn all_pictures_of_the_manual_have_one_style() {
        let mut paths = Vec::new();
        pictures(root().join("docs"), &mut paths);
        assert!(!paths.is_empty());
        for path in paths {
            let svg = fs::read_to_string(&path).unwrap();
            for part in [&format!("<svg width=\"{WIDTH}\""), FONT, CARD, "<title", "#1F2937"] {
                assert!(svg.contains(part), "{} has no {part}", path.display());
            }
        }
    }
}
