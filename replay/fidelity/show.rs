//! The matrix as a table and as JSON.

use super::run::Measured;
use super::score::{Figures, holds, interval_score};
use serde_json::{Value, json};
use std::io;
use weir_log::say;

/// Rows that may miss.
const MAY_MISS: usize = 1;

/// Prints it; says whether enough rows hold.
pub fn print(rows: &[Measured], as_json: bool) -> io::Result<bool> {
    let compared: Vec<&Measured> = rows.iter().filter(|row| !row.same).collect();
    let held = compared.iter().filter(|row| held(row)).count();
    let exact = rows.iter().filter(|row| row.same).all(|row| row.equal);
    let enough = held + MAY_MISS >= compared.len() && exact;
    if as_json {
        let list: Vec<Value> = rows.iter().map(to_json).collect();
        let object = json!({ "rows": list, "hold": held, "of": compared.len(), "sameIsExact": exact });
        say!("{object}")?;
        return Ok(enough);
    }
    say!("shed rate in %, waits in ms; off = prediction - actual; noise = other stalls - actual")?;
    say!(
        "{:<30} {:<5} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}  {:>21} {:>9}",
        "row",
        "",
        "base",
        "actual",
        "predicted",
        "off",
        "open-loop",
        "noise",
        "90 % interval",
        "score"
    )?;
    for row in rows {
        print_row(row)?;
    }
    let (covered, all) = coverage(&compared);
    say!("intervals: {covered} of {all} figures within their 90 % interval")?;
    say!("a-a rows: {}", if exact { "exactly equal" } else { "NOT EQUAL" })?;
    say!("fidelity: {held} of {} rows hold", compared.len())?;
    Ok(enough)
}

fn held(row: &Measured) -> bool {
    holds(&row.predicted, &row.actual, &row.noise) == [true; 3]
}

fn coverage(rows: &[&Measured]) -> (usize, usize) {
    let figures = rows.iter().flat_map(|row| row.intervals.into_iter().zip(row.actual.all()));
    let covered = figures.clone().filter(|((low, high), actual)| low <= actual && actual <= high).count();
    (covered, figures.count())
}

fn print_row(row: &Measured) -> io::Result<()> {
    let held = holds(&row.predicted, &row.actual, &row.noise);
    let scale = [100.0, 1.0, 1.0];
    for (n, name) in ["shed", "p50", "p95"].into_iter().enumerate() {
        let of = |figures: &Figures| figures.all()[n] * scale[n];
        let (low, high) = row.intervals[n];
        let label = if n == 0 { row.name } else { "" };
        let verdict = match (row.same, held[n]) {
            (true, _) => String::new(),
            (false, true) => "holds".to_owned(),
            (false, false) => "MISSES".to_owned(),
        };
        say!(
            "{:<30} {:<5} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2} {:>9.2}  {:>10.2} {:>10.2} {:>9.2} {verdict}",
            label,
            name,
            of(&row.base),
            of(&row.actual),
            of(&row.predicted),
            of(&row.predicted) - of(&row.actual),
            of(&row.open_loop) - of(&row.actual),
            of(&row.noise) - of(&row.actual),
            low * scale[n],
            high * scale[n],
            interval_score((low, high), row.actual.all()[n]) * scale[n],
        )?;
    }
    let shares = &row.shares;
    let all = (shares.exact + shares.shifted + shares.flipped).max(1) as f64 / 100.0;
    let lease = (shares.lease_exact + shares.lease_modelled + shares.lease_unknown).max(1) as f64 / 100.0;
    say!(
        "{:<30} requests exact {:.1} %, shifted {:.1} %, flipped {:.1} %; lease time exact {:.1} %, modelled {:.1} %, unknown {:.2} %; {:.1} s",
        "",
        shares.exact as f64 / all,
        shares.shifted as f64 / all,
        shares.flipped as f64 / all,
        shares.lease_exact as f64 / lease,
        shares.lease_modelled as f64 / lease,
        shares.lease_unknown as f64 / lease,
        row.took.as_secs_f64(),
    )
}

fn to_json(row: &Measured) -> Value {
    let figures = |f: &Figures| json!({ "shedRate": f.shed_rate, "waitP50Ms": f.p50, "waitP95Ms": f.p95 });
    json!({
        "row": row.name,
        "sameSettings": row.same,
        "equal": row.equal,
        "base": figures(&row.base),
        "actual": figures(&row.actual),
        "predicted": figures(&row.predicted),
        "openLoop": figures(&row.open_loop),
        "noise": figures(&row.noise),
        "intervals90": row.intervals,
        "holds": held(row),
        "requests": { "exact": row.shares.exact, "shifted": row.shares.shifted, "flipped": row.shares.flipped },
        "seconds": row.took.as_secs_f64(),
    })
}
