//! Plots as SVG, in plain shapes and text, without any of the machine's fonts.

use super::table::figure;
use plotters::{coord::Shift, prelude::*};
use std::{
    error::Error,
    ops::Range,
    path::{Path, PathBuf},
};

const SIZE: (u32, u32) = (960, 420);

/// The part of the width for the names of the series.
const LEGEND: u32 = 180;

/// Colours that colour-blind readers can distinguish too (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(120, 120, 120),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Outcome = Result<(), Box<dyn Error>>;

/// The texts of a plot, with the units of its axes.
#[derive(Debug, Clone, Copy)]
pub struct Title<'a> {
    /// The file's name, without its ending.
    pub file: &'a str,
    pub text: &'a str,
    pub x: &'a str,
    pub y: &'a str,
}

/// Draws a bar for each series in each group, on a logarithmic scale.
pub fn bars(title: Title<'_>, groups: &[String], series: &[(String, Vec<f64>)]) {
    let path = path(title.file);
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    draw_bars(&area, title, groups, series).expect("the plot can be written");
}

/// Draws a curve for each series, with two logarithmic axes.
pub fn lines(title: Title<'_>, series: &[(String, Vec<(f64, f64)>)]) {
    let path = path(title.file);
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    draw_lines(&area, title, series).expect("the plot can be written");
}

fn path(file: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/plots");
    folder.join(format!("{file}.svg"))
}

fn draw_bars(
    area: &Area<'_>,
    title: Title<'_>,
    groups: &[String],
    series: &[(String, Vec<f64>)],
) -> Outcome {
    area.fill(&WHITE)?;
    let range = decades(series.iter().flat_map(|(_, values)| values.iter().copied()));
    let mut chart =
        chart(area, title).build_cartesian_2d(0.0..groups.len() as f64, range.clone())?;
    let name = |x: &f64| match x.fract() == 0.5 {
        true => groups[*x as usize].clone(),
        false => String::new(),
    };
    let mesh = &mut chart.configure_mesh();
    mesh.disable_x_mesh().x_labels(2 * groups.len() + 1);
    mesh.x_label_formatter(&name);
    mesh.y_label_formatter(&power)
        .x_desc(title.x)
        .y_desc(title.y)
        .draw()?;
    let width = 0.8 / series.len() as f64;
    for (number, (name, values)) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let bar = |(group, value): (usize, &f64)| {
            let left = group as f64 + 0.1 + number as f64 * width;
            let top = log(*value).max(range.start);
            Rectangle::new(
                [(left, range.start), (left + width * 0.92, top)],
                colour.filled(),
            )
        };
        chart.draw_series(values.iter().enumerate().map(bar))?;
        legend(area, number, name)?;
    }
    Ok(area.present()?)
}

fn draw_lines(area: &Area<'_>, title: Title<'_>, series: &[(String, Vec<(f64, f64)>)]) -> Outcome {
    area.fill(&WHITE)?;
    let points = || series.iter().flat_map(|(_, points)| points);
    let (xs, ys) = (points().map(|point| point.0), points().map(|point| point.1));
    let mut chart = chart(area, title).build_cartesian_2d(decades(xs), decades(ys))?;
    let mesh = &mut chart.configure_mesh();
    mesh.x_label_formatter(&power).y_label_formatter(&power);
    mesh.x_desc(title.x).y_desc(title.y).draw()?;
    for (number, (name, points)) in series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points = points.iter().map(|&(x, y)| (log(x), log(y)));
        let curve = LineSeries::new(points, colour.stroke_width(2)).point_size(3);
        chart.draw_series(curve)?;
        legend(area, number, name)?;
    }
    Ok(area.present()?)
}

fn chart<'a, 'b>(area: &'a Area<'b>, title: Title<'_>) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(area);
    chart
        .caption(title.text, ("sans-serif", 18))
        .margin(12)
        .margin_right(LEGEND)
        .x_label_area_size(42)
        .y_label_area_size(72);
    chart
}

/// Names a series beside the chart, where the text covers nothing.
fn legend(area: &Area<'_>, number: usize, name: &str) -> Outcome {
    let x = (SIZE.0 - LEGEND) as i32 + 16;
    let y = 60 + 22 * number as i32;
    let colour = COLOURS[number % COLOURS.len()];
    let swatch = [(x, y), (x + 10, y + 10)];
    area.draw(&Rectangle::new(swatch, colour.filled()))?;
    let style = ("sans-serif", 12).into_font();
    Ok(area.draw(&Text::new(name.to_owned(), (x + 18, y), style))?)
}

/// The axes show logarithms, so that one kind of axis serves all plots.
fn log(value: f64) -> f64 {
    value.max(1e-9).log10()
}

fn power(exponent: &f64) -> String {
    figure(10f64.powf(*exponent))
}

/// The range from the power of ten below the smallest positive value to just above the largest value.
fn decades(values: impl Iterator<Item = f64>) -> Range<f64> {
    let logs = values.filter(|value| *value > 0.0).map(log);
    let (low, high) = logs.fold((f64::MAX, f64::MIN), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    match low > high {
        true => 0.0..1.0,
        false => (low - 0.01).floor()..high + 0.15,
    }
}
