//! Subscriptions: events as they become durable, and a pool each time it has changed.
//!
//! One thread each, which reads the log as any reader may. Whoever falls behind is told so and ended; nothing is
//! buffered beyond a fixed number of messages.

use crate::ask::{Ask, Out};
use crate::events::{self, Found, Wanted};
use crate::fault::Fault;
use crate::schema::{event, field_value};
use crate::state::pool_value;
use async_graphql::Result;
use async_graphql::dynamic::{FieldValue, ResolverContext, SubscriptionFieldFuture};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use weir_background::give_way;
use weir_log::reader::Bound;
use weir_projection::{PoolProjection, ProjectionError, Projections, Stopped, Work};

/// Messages that may wait for a subscriber.
const WAITING_MAX: usize = 1_024;
/// Between two looks at a pool.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long to wait for the log to go on, before looking whether anybody still listens.
const PATIENCE: Duration = Duration::from_millis(250);

enum Message {
    Event(Found),
    Pool(serde_json::Value),
    Fault(Fault),
}

/// What a subscriber hears.
struct Heard<'a> {
    messages: mpsc::Receiver<Message>,
    behind: Arc<AtomicBool>,
    /// As long as what the library resolves it for.
    life: PhantomData<fn() -> FieldValue<'a>>,
}

impl<'a> Stream for Heard<'a> {
    type Item = Result<FieldValue<'a>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.messages.poll_recv(context).map(|message| match message {
            Some(Message::Event(found)) => Some(Ok(event(found))),
            Some(Message::Pool(value)) => field_value(Out::Value(value)).map(Ok),
            Some(Message::Fault(fault)) => Some(Err(fault.error())),
            None if self.behind.swap(false, Ordering::AcqRel) => {
                Some(Err(Fault::FellBehind { limit: WAITING_MAX }.error()))
            }
            None => None,
        })
    }
}

/// Begins a subscription.
pub fn subscribe<'a>(field: &str, ctx: ResolverContext<'a>) -> SubscriptionFieldFuture<'a> {
    let events = field == "events";
    SubscriptionFieldFuture::new(async move { begin(events, &ctx).map_err(Fault::error) })
}

fn begin<'a>(events: bool, ctx: &ResolverContext<'a>) -> std::result::Result<Heard<'a>, Fault> {
    let ask = Ask::of(ctx)?;
    let pool = ask.pool()?.clone();
    let wanted =
        if events { Some(Wanted::of(events::kinds(&ask)?, ask.text("request")?, &pool)?) } else { None };
    let (to, messages) = mpsc::channel(WAITING_MAX);
    let behind = Arc::new(AtomicBool::new(false));
    let told = behind.clone();
    let builder = std::thread::Builder::new().name("weir-subscription".to_owned());
    let all = ask.projections().clone();
    let run = move || {
        give_way();
        match wanted {
            Some(wanted) => follow(&pool, &wanted, &to, (&told, &all)),
            None => look(&pool, &to, &all),
        }
    };
    builder.spawn(run).map_err(|error| Fault::Internal(format!("no thread: {error}")))?;
    Ok(Heard { messages, behind, life: PhantomData })
}

fn follow(
    pool: &PoolProjection,
    wanted: &Wanted,
    to: &mpsc::Sender<Message>,
    (behind, all): (&AtomicBool, &Projections),
) {
    let work = Work::unbounded();
    let mut next = pool.head().unwrap_or_else(|_| pool.at().seq) + 1;
    while !to.is_closed() && !all.is_closed() {
        if !pool.wait(next - 1, PATIENCE) {
            continue;
        }
        let mut full = false;
        let read = pool.steps(Bound::Seq(next), Bound::Open, &work, |step| {
            next = step.seq + 1;
            for found in step.events.iter().filter(|event| wanted.holds(&step, event)) {
                let message = Message::Event(events::found(pool.name(), &step, found));
                if to.try_send(message).is_err() {
                    full = !to.is_closed();
                    return Err(ProjectionError::Stopped(Stopped::Cancelled));
                }
            }
            Ok(true)
        });
        if full {
            behind.store(true, Ordering::Release);
            return;
        }
        match read {
            Ok(()) => {}
            Err(ProjectionError::Stopped(_)) => return,
            Err(error) => {
                let _ = to.try_send(Message::Fault(error.into()));
                return;
            }
        }
    }
}

/// A pool is told at most once a second; who has not taken the last message yet misses one in between, which is no loss.
fn look(pool: &PoolProjection, to: &mpsc::Sender<Message>, all: &Projections) {
    let mut told = None;
    while !to.is_closed() && !all.is_closed() {
        let at = pool.at();
        if told != Some(at) && to.try_send(Message::Pool(pool_value(pool))).is_ok() {
            told = Some(at);
        }
        let _ = pool.wait(pool.at().seq, LOOK_EVERY);
        std::thread::sleep(LOOK_EVERY);
    }
}
