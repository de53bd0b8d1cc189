//! The open loop: each request is sent when it is due, whatever became of those before it.

use super::client::Client;
use super::plan::Planned;
use super::report::{Ending, Report, Sample};
use super::send::{Course, Target, send};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

/// Bounds of a drive.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// Requests under way at once; those due beyond it are not sent, and counted.
    pub in_flight_max: usize,
    /// How long after the last arrival those under way are waited for.
    pub grace: Duration,
}

/// Counts while a load runs; for display.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests that came due.
    pub offered: AtomicU64,
    /// Requests that were admitted.
    pub admitted: AtomicU64,
    /// Requests that ended without being admitted.
    pub refused: AtomicU64,
    /// Requests that have ended.
    pub ended: AtomicU64,
}

/// Sends everything that is planned and waits for what is under way, until `stop` resolves.
pub async fn drive(
    target: Arc<Target>,
    plan: Vec<Planned>,
    drive: Drive,
    progress: Arc<Progress>,
    stop: impl Future<Output = ()>,
) -> Report {
    let client = Client::default();
    let started = Instant::now();
    let permits = Arc::new(Semaphore::new(drive.in_flight_max.clamp(1, Semaphore::MAX_PERMITS)));
    let (cut, _) = tokio::sync::watch::channel(false);
    let mut under_way: JoinSet<Sample> = JoinSet::new();
    let mut samples = Vec::with_capacity(plan.len());
    tokio::pin!(stop);

    for (number, planned) in plan.into_iter().enumerate() {
        let due = started + Duration::from_micros(planned.at.0);
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            () = &mut stop => { let _nobody = cut.send(true); break; }
        }
        progress.offered.fetch_add(1, Ordering::Relaxed);
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            samples.push(Course::default().ended(planned.class, Ending::NotSent));
            progress.ended.fetch_add(1, Ordering::Relaxed);
            progress.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        let (client, target, progress) = (client.clone(), Arc::clone(&target), Arc::clone(&progress));
        let mut cut = cut.subscribe();
        under_way.spawn(async move {
            let mut course = Course::default();
            let admitted = || {
                progress.admitted.fetch_add(1, Ordering::Relaxed);
            };
            let ending = tokio::select! {
                ending = send(&client, &target, &planned, number as u64, due, &mut course, admitted) => ending,
                _ = cut.wait_for(|cut| *cut) => Ending::CutOff,
            };
            let sample = course.ended(planned.class, ending);
            progress.refused.fetch_add(u64::from(sample.wait.is_none()), Ordering::Relaxed);
            progress.ended.fetch_add(1, Ordering::Relaxed);
            drop(permit);
            sample
        });
        while let Some(Ok(sample)) = under_way.try_join_next() {
            samples.push(sample);
        }
    }

    let grace = tokio::time::sleep(drive.grace);
    tokio::pin!(grace);
    let mut ending = *cut.borrow();
    while !under_way.is_empty() {
        tokio::select! {
            joined = under_way.join_next() => samples.extend(joined.and_then(Result::ok)),
            () = &mut grace, if !ending => { ending = true; let _nobody = cut.send(true); }
            () = &mut stop, if !ending => { ending = true; let _nobody = cut.send(true); }
        }
    }
    Report::new(&target.classes, &samples, started.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::{Classes, Mode, from_rate};
    use crate::sim::http::{Pool, PoolSpec};
    use crate::sim::truth::Spec;

    async fn direct(in_flight_max: usize, rate: f64, grace: Duration) -> (Report, Pool) {
        let spec = PoolSpec {
            spec: Spec::default(),
            host: [127, 0, 0, 1].into(),
            model: "sim".to_owned(),
            speed: 50.0,
            scrape_fail: 0.0,
            seed: 1,
        };
        let pool = Pool::start(&spec, &[0]).await.unwrap();
        let (address, _) = pool.servers().next().unwrap();
        let classes = Classes::parse(&["interactive=1".to_owned()], 2).unwrap();
        let plan = from_rate(rate, Duration::from_millis(500), (100, 10), &classes, 3);
        let target = Target::new(&format!("http://{address}"), Mode::Direct, classes).unwrap();
        let bounds = Drive { in_flight_max, grace };
        let progress = Arc::new(Progress::default());
        let report =
            drive(Arc::new(target), plan, bounds, Arc::clone(&progress), std::future::pending()).await;
        assert_eq!(progress.offered.load(Ordering::Relaxed), report.all.offered);
        assert_eq!(progress.ended.load(Ordering::Relaxed), report.all.offered);
        (report, pool)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_simulated_server_answers_every_request_with_its_tokens() {
        let (report, pool) = direct(1_000, 100.0, Duration::from_secs(60)).await;
        assert!(report.all.offered > 20, "{}", report.all.offered);
        assert_eq!(report.all.completed, report.all.offered, "{}", report.table());
        assert_eq!(report.all.tokens, 10 * report.all.offered);
        assert!(report.all.ttft_ms(0.5) >= report.all.wait_ms(0.5));
        let view = pool.servers().next().unwrap().1.view();
        assert_eq!(view.totals.finished, report.all.offered);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_exceeds_the_bound_is_not_sent_and_what_is_cut_off_is_aborted() {
        let (report, pool) = direct(3, 4_000.0, Duration::ZERO).await;
        let not_sent: u64 = report
            .all
            .outcomes
            .iter()
            .filter(|((outcome, ..), _)| outcome == "not sent")
            .map(|(_, count)| count)
            .sum();
        assert!(not_sent > 0, "{}", report.table());
        assert_eq!(report.all.offered, report.all.outcomes.values().sum::<u64>());
        // Connections that were dropped end their requests at the server, too.
        let (_, engine) = pool.servers().next().unwrap();
        let gone = async {
            while engine.view().gauges.running + engine.view().gauges.waiting > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let gone = tokio::time::timeout(Duration::from_secs(60), gone).await;
        assert!(gone.is_ok(), "still there: {}", engine.view().gauges);
    }
}
