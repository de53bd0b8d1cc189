//! The answer as one HTML page that holds all it needs: tables, and charts as inline SVG. No script.

use super::caveats;
use super::chart::{Chart, Line};
use super::lockstep::Answer;
use super::print::{FIGURES, Figure, INTERVAL, Intervals, changes, interval_of, place};
use super::series::Series;
use super::tally::{Tally, Waits};
use super::world::World;
use crate::model::PoolModel;
use crate::settings::Candidate;
use weir_log::describe::show_time;

const LOGGED: &str = "#6b7280";
const CANDIDATE: &str = "#2563eb";
const SHED_LOGGED: &str = "#f59e0b";
const SHED_CANDIDATE: &str = "#dc2626";

const STYLE: &str = "body{font:14px/1.45 system-ui,sans-serif;color:#111827;margin:24px auto;max-width:1200px;padding:0 16px}\
h1{font-size:20px;margin:0 0 4px}h2{font-size:16px;margin:28px 0 6px}p{margin:4px 0}\
table{border-collapse:collapse;margin:6px 0}th,td{padding:3px 12px 3px 0;text-align:right;border-bottom:1px solid #e5e7eb}\
th:first-child,td:first-child{text-align:left}code{font-size:12px}\
figure{margin:18px 0}figcaption span{margin-left:16px}figcaption i{display:inline-block;width:14px;height:3px;margin-right:5px;vertical-align:middle}\
svg{width:100%;height:auto;background:#fff}svg text{font-size:11px;fill:#4b5563}.left{text-anchor:end}.below{text-anchor:middle}\
.grid{stroke:#e5e7eb}polyline{fill:none;stroke-width:1.6}.apart{fill:#eff6ff}.mark{stroke:#111827;stroke-dasharray:2 3}.marked{fill:#111827}\
.tables{display:flex;flex-wrap:wrap;gap:0 44px}.bad{color:#b91c1c;font-weight:600}";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The page of one pool's answer.
pub fn page(pool: &str, candidate: &Candidate, answer: &Answer, model: &PoolModel) -> String {
    let Some(world) = answer.worlds.first() else { return String::new() };
    let (from, to) = answer.times;
    let mut body = format!("<h1>What if: {}</h1>", escape(&candidate.shown()));
    body += &format!(
        "<p>Pool {}, sequences {} to {}, {} to {}, {} arrivals.</p>",
        escape(pool),
        answer.range.0,
        answer.range.1,
        show_time(from),
        show_time(to),
        answer.arrivals
    );
    body += &basis(answer, world, model);
    body += &settings(answer);
    body += "<div class=\"tables\">";
    let all = interval_of(answer, |world| Some(&world.tallies.all));
    body += &figures("All requests", &answer.logged.all, &world.tallies.all, all);
    for (band, tally) in world.tallies.bands.iter().rev() {
        if let Some(logged) = answer.logged.bands.get(band) {
            let drawn = interval_of(answer, |world| world.tallies.bands.get(band));
            body += &figures(&format!("Band {band}"), logged, tally, drawn);
        }
    }
    body += "</div><h2>Over time</h2><p>Shaded: the runs are apart, so that the candidate's line is modelled.</p>";
    for chart in charts(answer, world) {
        body += &chart.svg();
    }
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>What if: {}</title><style>{STYLE}</style></head><body>{body}</body></html>\n",
        escape(&candidate.shown())
    )
}

fn basis(answer: &Answer, world: &World, model: &PoolModel) -> String {
    let shares = &world.shares;
    let part = |n: u64, all: u64| n as f64 * 100.0 / all.max(1) as f64;
    let all = shares.exact + shares.shifted + shares.flipped;
    let mut text = format!(
        "<p>Requests: {:.1} % exact, {:.1} % shifted, {:.1} % flipped. {} admitted requests never came to their end in the \
         log: their token counts are drawn.</p>",
        part(shares.exact, all),
        part(shares.shifted, all),
        part(shares.flipped, all),
        shares.unobserved
    );
    if answer.options.open_loop {
        text += &bad(caveats::OPEN_LOOP);
    } else {
        let lease = shares.lease_exact + shares.lease_modelled + shares.lease_unknown;
        text += &format!(
            "<p>Lease time: {:.1} % exact, {:.1} % modelled, {:.1} % unknown (loads that the log never visited). The pool \
             model explains {} logged services with a median error of {:.1} %.</p>",
            part(shares.lease_exact, lease),
            part(shares.lease_modelled, lease),
            part(shares.lease_unknown, lease),
            model.quality.requests,
            model.quality.median_error * 100.0
        );
    }
    text += &format!(
        "<p>Assumed: {}. Seed {}, {} more draws.</p>",
        caveats::assumed(answer),
        answer.options.seed,
        answer.worlds.len().saturating_sub(1)
    );
    text += &doubts(answer, model);
    if let Some(first) = &world.first {
        text += &format!(
            "<p>First divergence: {} at {}: <code>{}</code><br>logged: <code>{}</code><br>candidate: <code>{}</code></p>",
            place(answer, first),
            show_time(first.at),
            escape(&first.input),
            escape(&if first.logged.is_empty() { "(nothing)".to_owned() } else { first.logged.join("; ") }),
            escape(&first.candidate.join("; "))
        );
    }
    text
}

fn bad(text: &str) -> String {
    format!("<p class=\"bad\">{}</p>", escape(text))
}

fn doubts(answer: &Answer, model: &PoolModel) -> String {
    let mut text: String = caveats::warnings(answer, model).iter().map(|warning| bad(warning)).collect();
    let lines = caveats::baseline(&answer.baseline).join("; ");
    text += &match answer.baseline.is_trustworthy() {
        Some(true) => format!("<p>{}</p>", escape(&lines)),
        _ => bad(&lines),
    };
    if let Some((logged, candidate)) = caveats::waiting(answer) {
        text +=
            &format!("<p>Still waiting at the end of the range: logged {logged}, candidate {candidate}.</p>");
    }
    if let Some(error) = &answer.damaged {
        text += &bad(&format!("damaged: {error}; the figures are up to sequence {}", answer.range.1));
    }
    text
}

fn settings(answer: &Answer) -> String {
    let row = |(path, logged, now): &(String, String, String)| {
        format!(
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            escape(path),
            escape(logged),
            escape(now)
        )
    };
    let rows: String = changes(&answer.logged_policy, &answer.policy).iter().map(row).collect();
    format!("<table><tr><th>setting</th><th>logged</th><th>candidate</th></tr>{rows}</table>")
}

fn figures(title: &str, logged: &Tally, candidate: &Tally, intervals: Intervals) -> String {
    let row = |((name, figure), interval): (&Figure, Option<(f64, f64)>)| {
        let (a, b) = (figure(logged), figure(candidate));
        let drawn =
            interval.map_or_else(String::new, |(low, high)| format!("<td>{low:.1} to {high:.1}</td>"));
        format!("<tr><td>{name}</td><td>{a:.1}</td><td>{b:.1}</td><td>{:+.1}</td>{drawn}</tr>", b - a)
    };
    let rows: String = FIGURES.iter().zip(intervals).map(row).collect();
    let drawn = intervals[0].map_or_else(String::new, |_| format!("<th>{INTERVAL}</th>"));
    format!(
        "<div><h2>{title}</h2><table><tr><th></th><th>logged</th><th>candidate</th><th>difference</th>{drawn}</tr>{rows}</table></div>"
    )
}

fn line(name: &'static str, colour: &'static str, points: Vec<(f64, f64)>) -> Line {
    Line { name, colour, dashed: false, points }
}

fn charts(answer: &Answer, world: &World) -> Vec<Chart> {
    let (logged, candidate) = &answer.series;
    let start = logged.start.unwrap_or_default();
    let mark = world.first.as_ref().map(|first| first.at.since(start).0 as f64 / 1e6);
    let shaded = shaded(candidate);
    let chart = |title, unit, lines| Chart {
        title,
        across: "seconds from the beginning of the range",
        unit,
        logarithmic: false,
        lines,
        mark,
        shaded: shaded.clone(),
    };
    let ceiling = |name, pick: fn(&super::series::Bucket) -> f64| Line {
        name,
        colour: "#9333ea",
        dashed: true,
        points: candidate.points(pick),
    };
    vec![
        chart(
            "Outcomes",
            "requests per second",
            vec![
                line("admitted, logged", LOGGED, logged.rate(|b| b.admitted)),
                line("admitted, candidate", CANDIDATE, candidate.rate(|b| b.admitted)),
                line("shed, logged", SHED_LOGGED, logged.rate(|b| b.shed)),
                line("shed, candidate", SHED_CANDIDATE, candidate.rate(|b| b.shed)),
            ],
        ),
        chart(
            "Queue depth",
            "requests, longest in each stretch",
            vec![
                line("logged", LOGGED, logged.points(|b| b.queued as f64)),
                line("candidate", CANDIDATE, candidate.points(|b| b.queued as f64)),
            ],
        ),
        chart(
            "Saturation",
            "highest in each stretch, with the candidate's ceilings",
            vec![
                line("logged", LOGGED, logged.points(|b| b.saturation.min(4.0))),
                line("candidate", CANDIDATE, candidate.points(|b| b.saturation.min(4.0))),
                ceiling("lowest ceiling", |b| b.ceilings.0.min(4.0)),
                ceiling("highest ceiling", |b| b.ceilings.1),
            ],
        ),
        Chart {
            title: "Queue waits of the admitted",
            across: "wait in ms (logarithmic)",
            unit: "share that waited at most so long, in %",
            logarithmic: true,
            lines: vec![
                line("logged", LOGGED, distribution(&answer.logged.all.waits)),
                line("candidate", CANDIDATE, distribution(&world.tallies.all.waits)),
            ],
            mark: None,
            shaded: Vec::new(),
        },
    ]
}

/// Stretches in which the runs are apart, joined.
fn shaded(series: &Series) -> Vec<(f64, f64)> {
    let width = series.width.0 as f64 / 1e6;
    let mut all: Vec<(f64, f64)> = Vec::new();
    for (n, _) in series.buckets.iter().enumerate().filter(|(_, bucket)| bucket.parted) {
        let from = n as f64 * width;
        match all.last_mut() {
            Some(last) if (last.1 - from).abs() < width / 2.0 => last.1 = from + width,
            _ => all.push((from, from + width)),
        }
    }
    all
}

fn distribution(waits: &Waits) -> Vec<(f64, f64)> {
    let all: u64 = waits.classes().map(|(_, n)| n).sum();
    let mut seen = 0;
    let mut points = Vec::new();
    for (wait, n) in waits.classes() {
        seen += n;
        points.push(((wait.0 as f64 / 1e3).max(0.1), seen as f64 * 100.0 / all.max(1) as f64));
    }
    points
}
