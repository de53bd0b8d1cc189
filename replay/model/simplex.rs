//! Nelder and Mead's simplex: the minimum of a function of few numbers, without derivatives (Computer Journal 7, 1965).

/// From `start`, with steps of `scale` in each direction, at most `evaluations` calls of `f`.
pub fn minimize(
    start: &[f64],
    scale: f64,
    evaluations: usize,
    mut f: impl FnMut(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    let n = start.len();
    let mut left = evaluations;
    let mut at = |x: Vec<f64>, left: &mut usize| {
        *left = left.saturating_sub(1);
        let value = f(&x);
        (x, if value.is_finite() { value } else { f64::MAX })
    };
    let mut corners = vec![at(start.to_vec(), &mut left)];
    for i in 0..n {
        let mut corner = start.to_vec();
        corner[i] += scale;
        corners.push(at(corner, &mut left));
    }
    while left > 1 {
        corners.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, second, worst) = (corners[0].1, corners[n.saturating_sub(1)].1, corners[n].1);
        if (worst - best).abs() <= 1e-7 * (1.0 + best.abs()) {
            break;
        }
        let centre: Vec<f64> =
            (0..n).map(|i| corners[..n].iter().map(|(x, _)| x[i]).sum::<f64>() / n as f64).collect();
        let toward = |by: f64| -> Vec<f64> {
            centre.iter().zip(&corners[n].0).map(|(c, w)| c + by * (w - c)).collect()
        };
        let reflected = at(toward(-1.0), &mut left);
        if reflected.1 < best {
            let further = at(toward(-2.0), &mut left);
            corners[n] = if further.1 < reflected.1 { further } else { reflected };
        } else if reflected.1 < second {
            corners[n] = reflected;
        } else {
            let nearer = at(toward(if reflected.1 < worst { -0.5 } else { 0.5 }), &mut left);
            if nearer.1 < worst.min(reflected.1) {
                corners[n] = nearer;
            } else {
                let first = corners[0].0.clone();
                for corner in corners.iter_mut().skip(1) {
                    let x = corner.0.iter().zip(&first).map(|(x, b)| (x + b) / 2.0).collect();
                    *corner = at(x, &mut left);
                }
            }
        }
    }
    corners.into_iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_bottom_of_a_bent_valley() {
        // Rosenbrock's function, whose minimum is at (1, 1).
        let f = |x: &[f64]| 100.0 * (x[1] - x[0] * x[0]).powi(2) + (1.0 - x[0]).powi(2);
        let (x, value) = minimize(&[-1.2, 1.0], 0.5, 500, f);
        assert!(value < 1e-4 && (x[0] - 1.0).abs() < 0.05, "{x:?} {value}");
    }
}
