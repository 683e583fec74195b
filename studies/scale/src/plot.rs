//! The page's pictures, as SVG: cards that are readable on a light page and on a dark one.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::error::Error;

/// A plot's axis.
pub struct Axis<R> {
    /// Its quantity and unit.
    pub name: &'static str,
    /// Its range and scale.
    pub range: R,
    /// Formats a value.
    pub text: fn(f64) -> String,
}

/// A series of points.
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// The index of its colour.
    pub colour: usize,
    /// How it is drawn.
    pub style: Style,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

/// How points are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A line through them.
    Line,
    /// A thin line of dashes through them.
    Dashes,
    /// Dots; they belong to the line of their colour and are not in the legend.
    Dots,
}

/// Colours that the colour-blind can tell apart (Okabe and Ito), and black for a limit.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 0, 0),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];

const INK: RGBColor = RGBColor(31, 41, 55);
const RULE: RGBColor = RGBColor(229, 231, 235);
const SIZE: (u32, u32) = (880, 480);
const FONT: &str = "system-ui, Segoe UI, Helvetica Neue, Arial, sans-serif";

/// Draws lines and dots over two axes. `legend` is a place with room for it.
pub fn draw<X, Y>(
    title: &str,
    x: Axis<X>,
    y: Axis<Y>,
    legend: SeriesLabelPosition,
    series: &[Series],
) -> Result<String, Box<dyn Error>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let text = |size: u32| (FONT, size).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&area)
            .margin(18)
            .margin_right(30)
            .caption(title, text(20))
            .x_label_area_size(52)
            .y_label_area_size(100)
            .build_cartesian_2d(x.range, y.range)?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RULE)
            .axis_style(INK)
            .label_style(text(14))
            .axis_desc_style(text(15))
            .x_desc(x.name)
            .y_desc(y.name)
            .x_labels(9)
            .y_labels(9)
            .x_label_formatter(&|value| (x.text)(*value))
            .y_label_formatter(&|value| (y.text)(*value))
            .draw()?;
        for one in series {
            let colour = COLOURS[one.colour];
            let points = one.points.iter().copied();
            let drawn = match one.style {
                Style::Line => chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?,
                Style::Dashes => {
                    chart.draw_series(DashedLineSeries::new(points, 6, 4, colour.stroke_width(2)))?
                }
                Style::Dots => {
                    chart.draw_series(points.map(|point| Circle::new(point, 3, colour.filled())))?;
                    continue;
                }
            };
            let dash = if one.style == Style::Line { 22 } else { 6 };
            drawn.label(&one.name).legend(move |(x, y)| {
                EmptyElement::at((x, y))
                    + PathElement::new(vec![(0, 0), (dash, 0)], colour.stroke_width(2))
                    + PathElement::new(vec![(16, 0), (16 + dash.min(6), 0)], colour.stroke_width(2))
            });
        }
        chart
            .configure_series_labels()
            .position(legend)
            .background_style(WHITE.mix(0.9))
            .border_style(RULE)
            .label_font(text(14))
            .legend_area_size(30)
            .margin(8)
            .draw()?;
        area.present()?;
    }
    Ok(svg)
}
