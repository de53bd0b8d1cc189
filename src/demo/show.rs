//! What a demo shows while it runs: a bar on a terminal, else a line every few seconds.

use crate::engine::{Engine, PoolHandle};
use crate::load::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// How often a bar is drawn.
const BAR_EVERY: Duration = Duration::from_millis(100);
/// How often a line is written where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(4);

/// The display; everything goes to standard error.
#[derive(Debug)]
pub struct Shown {
    bar: ProgressBar,
    terminal: bool,
    quiet: bool,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Shown {
    /// Quiet shows nothing.
    pub fn new(quiet: bool) -> Self {
        let terminal = !quiet && std::io::stderr().is_terminal();
        let bar = if terminal { ProgressBar::no_length() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>3} [{bar:30}] {msg}") {
            bar.set_style(style);
        }
        Shown { bar, terminal, quiet, task: Mutex::new(None) }
    }

    /// A new phase.
    pub fn phase(&self, text: &str) {
        if self.terminal {
            self.bar.println(text);
        } else if !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Begins to show how it goes, for about this long.
    pub fn begin(&self, address: &str, progress: Arc<Progress>, engine: &Engine, about: Duration) {
        self.phase(&format!("weir listens on {address}; `curl {address}/v1/pools/default` shows the pool"));
        if self.quiet {
            return;
        }
        self.bar.set_length(about.as_millis() as u64);
        let (bar, terminal) = (self.bar.clone(), self.terminal);
        let pools: Vec<PoolHandle> = engine.pools().cloned().collect();
        let every = if terminal { BAR_EVERY } else { LINE_EVERY };
        let task = tokio::spawn(async move {
            let started = Instant::now();
            loop {
                tokio::time::sleep(every).await;
                let line = line(&progress, &pools).await;
                if terminal {
                    bar.set_position(started.elapsed().as_millis() as u64);
                    bar.set_message(line);
                    bar.tick();
                } else {
                    eprintln!("{:>4} s  {line}", started.elapsed().as_secs());
                }
            }
        });
        *self.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
    }

    /// Ends the display.
    pub fn end(&self) {
        if let Some(task) = self.task.lock().unwrap_or_else(PoisonError::into_inner).take() {
            task.abort();
        }
        self.bar.finish_and_clear();
    }
}

async fn line(progress: &Progress, pools: &[PoolHandle]) -> String {
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let (offered, admitted, refused) =
        (read(&progress.offered), read(&progress.admitted), read(&progress.refused));
    let mut text = format!("{offered} offered, {admitted} admitted, {refused} shed");
    for pool in pools {
        let look = |state: &weir_kernel::State| {
            (state.regime(), state.saturation().1, state.queued(), state.in_flight())
        };
        if let Ok((regime, saturation, queued, running)) = pool.peek(look).await {
            let saturation = saturation.micros() as f64 / 1e6;
            text.push_str(&format!(
                "; {regime}, saturation {saturation:.2}, {queued} queued, {running} running"
            ));
        }
    }
    text
}
