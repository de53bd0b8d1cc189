//! Line charts as inline SVG, with nothing to load.

/// One line: name, colour, points.
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// Its colour.
    pub colour: &'static str,
    /// Drawn with gaps.
    pub dashed: bool,
    /// Horizontal and vertical values.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
pub struct Chart {
    /// What is shown.
    pub title: &'static str,
    /// The horizontal axis.
    pub across: &'static str,
    /// The vertical axis.
    pub unit: &'static str,
    /// The horizontal axis is logarithmic.
    pub logarithmic: bool,
    /// The lines.
    pub lines: Vec<Line>,
    /// Where the runs first part.
    pub mark: Option<f64>,
    /// Where they are apart: from, to.
    pub shaded: Vec<(f64, f64)>,
}

const WIDTH: f64 = 1_160.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 34.0;

/// A step of 1, 2 or 5 times a power of ten, so that about five fit.
fn tick(range: f64) -> f64 {
    let rough = (range / 5.0).max(1e-9);
    let power = 10_f64.powf(rough.log10().floor());
    let part = rough / power;
    power
        * if part <= 1.0 {
            1.0
        } else if part <= 2.0 {
            2.0
        } else if part <= 5.0 {
            5.0
        } else {
            10.0
        }
}

fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".to_owned() } else { text.to_owned() }
}

impl Chart {
    /// The chart as a figure.
    pub fn svg(&self) -> String {
        let place = |x: f64| if self.logarithmic { x.max(1e-3).log10() } else { x };
        let all = || self.lines.iter().flat_map(|line| line.points.iter().copied());
        let (mut from, mut to, mut most) = (f64::MAX, f64::MIN, 0.0_f64);
        for (x, y) in all() {
            (from, to, most) = (from.min(place(x)), to.max(place(x)), most.max(y));
        }
        if from > to {
            (from, to) = (0.0, 1.0);
        }
        let (range, top) = ((to - from).max(1e-9), if most > 0.0 { most * 1.05 } else { 1.0 });
        let x = |value: f64| LEFT + (place(value) - from) / range * (WIDTH - LEFT - RIGHT);
        let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
        let mut body = String::new();
        for (a, b) in &self.shaded {
            let width = (x(*b) - x(*a)).max(1.0);
            body += &format!(
                "<rect x=\"{:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{:.1}\" class=\"apart\"/>",
                x(*a),
                HEIGHT - TOP - BOTTOM
            );
        }
        let step = tick(top);
        let mut value = 0.0;
        while value <= top {
            let at = y(value);
            body += &format!(
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" class=\"grid\"/>",
                WIDTH - RIGHT
            );
            body += &format!(
                "<text x=\"{}\" y=\"{:.1}\" class=\"left\">{}</text>",
                LEFT - 6.0,
                at + 4.0,
                number(value)
            );
            value += step;
        }
        for (at, label) in self.ticks(from, to) {
            let at = LEFT + (at - from) / range * (WIDTH - LEFT - RIGHT);
            body += &format!(
                "<text x=\"{at:.1}\" y=\"{}\" class=\"below\">{label}</text>",
                HEIGHT - BOTTOM + 16.0
            );
        }
        for line in &self.lines {
            let points: Vec<String> =
                line.points.iter().map(|(a, b)| format!("{:.1},{:.1}", x(*a), y(*b))).collect();
            let dash = if line.dashed { " stroke-dasharray=\"5 4\"" } else { "" };
            body += &format!("<polyline points=\"{}\" stroke=\"{}\"{dash}/>", points.join(" "), line.colour);
        }
        if let Some(mark) = self.mark {
            let at = x(mark);
            body += &format!(
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{}\" class=\"mark\"/><text x=\"{:.1}\" y=\"{}\" class=\"marked\">first divergence</text>",
                HEIGHT - BOTTOM,
                at + 4.0,
                TOP + 10.0
            );
        }
        let legend: String = self
            .lines
            .iter()
            .map(|line| format!("<span><i style=\"background:{}\"></i>{}</span>", line.colour, line.name))
            .collect();
        format!(
            "<figure><figcaption><b>{}</b> <small>{}</small>{legend}</figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">{body}<text x=\"{}\" y=\"{}\" class=\"below\">{}</text></svg></figure>",
            self.title,
            self.unit,
            self.title,
            (LEFT + WIDTH - RIGHT) / 2.0,
            HEIGHT - 3.0,
            self.across
        )
    }

    fn ticks(&self, from: f64, to: f64) -> Vec<(f64, String)> {
        let step = if self.logarithmic { 1.0 } else { tick((to - from) * 0.6) };
        let mut ticks = Vec::new();
        let mut at = (from / step).ceil() * step;
        while at <= to + 1e-9 && ticks.len() < 40 {
            ticks.push((at, number(if self.logarithmic { 10_f64.powf(at) } else { at })));
            at += step;
        }
        ticks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_stays_within_its_frame_and_needs_nothing_else() {
        let points = vec![(0.0, 0.0), (10.0, 5.0), (20.0, 2.0)];
        let line = Line { name: "a", colour: "#123456", dashed: false, points };
        let chart = Chart {
            title: "t",
            across: "s",
            unit: "u",
            logarithmic: false,
            lines: vec![line],
            mark: Some(10.0),
            shaded: vec![(10.0, 20.0)],
        };
        let svg = chart.svg();
        assert!(!svg.contains("http") && !svg.contains("NaN") && svg.contains("first divergence"));
        let line = svg.split("polyline points=\"").nth(1).unwrap().split('"').next().unwrap();
        for pair in line.split(' ') {
            let (x, y) = pair.split_once(',').unwrap();
            assert!((0.0..=WIDTH).contains(&x.parse::<f64>().unwrap()), "{pair}");
            assert!((0.0..=HEIGHT).contains(&y.parse::<f64>().unwrap()), "{pair}");
        }
        let empty = Chart { lines: Vec::new(), mark: None, shaded: Vec::new(), ..chart };
        assert!(!empty.svg().contains("NaN"));
        assert_eq!((tick(10.0), tick(0.7), number(2.50)), (2.0, 0.2, "2.5".to_owned()));
    }
}
