//! `GET /v1/admissions/{id}`: is it queued, admitted, refused, ended; with `?wait=10s` held until that changes.
//!
//! Asking for a ticket that waits shows that its holder lives. A ticket's first answer after its admission comes at once;
//! after that, as with every lease, a wait is for the lease's end. What neither waits nor runs is looked for in the log.

use super::admissions::find;
use super::answer;
use super::json::{Object, shown};
use super::outcome::{self, From, Record, Verdict};
use super::problem::{Fault, Invalid};
use super::query;
use super::segment::Segment;
use super::standing;
use super::state::{Gateway, PoolFace};
use super::stream::end_members;
use crate::engine::{About, Admitted, Decision, LeaseNotice, Queued, Refused, Revocation, Running, Seen};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::{Request, StatusCode};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use weir_config::parse_duration;
use weir_kernel::{Face, Micros, RequestId};

/// The longest that a look at an admission may wait.
const WAIT_MAX: Micros = Micros::from_secs(60);
/// A holder that waits shows no more often than this that it lives.
const RENEW_MIN: Duration = Duration::from_millis(50);

/// The handler.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    Segment(id): Segment,
    request: Request<Body>,
) -> Result<Response, Fault> {
    let (pool, request_id) = find(&gateway, &id)?;
    let wait = wait(request.uri().query())?;
    Inquiry { gateway: &gateway, pool, id: &id, request: request_id }.answer(wait).await
}

fn wait(query: Option<&str>) -> Result<Option<Duration>, Invalid> {
    let mut wait = None;
    for (name, value) in query::pairs(query)? {
        if name != "wait" {
            return Err(Invalid::new("query", name.as_bytes(), "wait"));
        }
        wait = match parse_duration(&value) {
            Ok(span) if span <= WAIT_MAX => Some(Duration::from_micros(span.0)),
            _ => return Err(Invalid::new("wait", value.as_bytes(), "a Go duration from 0s to 60s")),
        };
    }
    Ok(wait.filter(|wait| !wait.is_zero()))
}

struct Inquiry<'g> {
    gateway: &'g Gateway,
    pool: &'g PoolFace,
    id: &'g str,
    request: RequestId,
}

impl Inquiry<'_> {
    async fn answer(&self, wait: Option<Duration>) -> Result<Response, Fault> {
        let About { seen, caller_id, news } = self.about(wait.is_some()).await?;
        let (Some(wait), Some(news)) = (wait, news) else { return self.tell(seen, caller_id).await };
        match seen {
            Seen::Queued(queued) => match self.decision(&queued, news.decided, wait).await {
                Some(Decision::Admitted(admitted)) => {
                    let caller_id = self.caller_id(caller_id).await?;
                    return Ok(self.admitted_at_last(&caller_id, &admitted));
                }
                Some(Decision::Refused(refused)) => {
                    let caller_id = self.caller_id(caller_id).await?;
                    return Ok(refusal(self.pool.handle.name(), self.id, &caller_id, &refused));
                }
                Some(Decision::Unavailable(why)) => return Err(answer::unavailable(why)),
                None => {}
            },
            Seen::Running(running) if !running.unheard && running.revoked.is_none() => {
                if let Some(response) = self.while_running(running.face, news.ended, wait).await {
                    return Ok(response);
                }
            }
            seen => return self.tell(seen, caller_id).await,
        }
        let About { seen, caller_id, .. } = self.about(false).await?;
        self.tell(seen, caller_id).await
    }

    async fn about(&self, news: bool) -> Result<About, Fault> {
        // The pool's thread answers nothing while it cannot write.
        if !self.pool.handle.status().log_writable {
            return Err(Fault::LogUnavailable);
        }
        self.pool.handle.about(self.request, news).await.map_err(answer::unavailable)
    }

    /// Waits for what is decided; a ticket's holder lives meanwhile.
    async fn decision(
        &self,
        queued: &Queued,
        decided: oneshot::Receiver<Decision>,
        wait: Duration,
    ) -> Option<Decision> {
        let every = Duration::from_micros(queued.ticket_timeout.0 / 3).max(RENEW_MIN);
        let mut renew = tokio::time::interval_at(tokio::time::Instant::now() + every, every);
        let (mut decided, mut over) = (pin!(decided), pin!(tokio::time::sleep(wait)));
        loop {
            tokio::select! {
                biased;
                decision = &mut decided => return decision.ok(),
                () = &mut over => return None,
                _ = renew.tick(), if queued.face == Face::Ticket => {
                    // Handed in at once; whether it still waits will be heard anyway.
                    drop(self.pool.handle.renew(self.request));
                }
            }
        }
    }

    /// Waits for the end of a lease. While its holder waits it can be told that the lease is taken back, and only then
    /// is it a lease that can be; that of a stream is told to the stream.
    async fn while_running(
        &self,
        face: Face,
        ended_from: oneshot::Receiver<LeaseNotice>,
        wait: Duration,
    ) -> Option<Response> {
        let handle = &self.pool.handle;
        let polled = matches!(face, Face::Held | Face::Ticket);
        // In this order, so that what is ordered because somebody waits is heard by who does.
        let revoked = polled.then(|| handle.revocation(self.request));
        let _watching = polled.then(|| handle.watching(self.request));
        let revoked = async {
            match revoked {
                // None: the lease has ended otherwise.
                Some(revoked) => match revoked.await {
                    Some(revocation) => revocation,
                    None => std::future::pending().await,
                },
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            notice = ended_from => notice.ok().map(|notice| ended(self.id, &notice)),
            revocation = revoked => Some(self.taken_back(&revocation)),
            () = tokio::time::sleep(wait) => None,
        }
    }

    fn taken_back(&self, revocation: &Revocation) -> Response {
        let name = self.pool.handle.name();
        let object = Object::new().text("state", "revoked");
        let body = answer::revoked_members(object, name, None, self.request, revocation).finish();
        let mut response = answer::json(StatusCode::OK, body);
        answer::name_reason(response.headers_mut(), revocation.reason());
        response
    }

    /// Says what it is.
    async fn tell(&self, seen: Seen, caller_id: Option<String>) -> Result<Response, Fault> {
        let name = self.pool.handle.name();
        match seen {
            Seen::Queued(queued) => {
                let object = Object::new().text("state", "queued");
                let body = standing::queued(object, name, caller_id.as_deref(), &queued);
                Ok(answer::json(StatusCode::OK, body.finish()))
            }
            Seen::Running(running) => self.running(&running, caller_id).await,
            Seen::Decided(decision) => match *decision {
                Decision::Refused(refused) => {
                    let caller_id = self.caller_id(caller_id).await?;
                    Ok(refusal(name, self.id, &caller_id, &refused))
                }
                Decision::Admitted(admitted) => self.as_logged(From::Seq(admitted.seq)).await,
                Decision::Unavailable(why) => Err(answer::unavailable(why)),
            },
            Seen::Gone => self.as_logged(From::Arrival).await,
        }
    }

    async fn running(&self, running: &Running, caller_id: Option<String>) -> Result<Response, Fault> {
        if let Some(revocation) = &running.revoked {
            return Ok(self.taken_back(revocation));
        }
        let name = self.pool.handle.name();
        let object = self
            .object("admitted")
            .plain("priority", running.priority)
            .plain("forMs", running.at.since(running.since).as_millis())
            .plain_opt("leftMs", running.lapses_at.map(|until| until.since(running.at).as_millis()));
        // Whoever was held has had the whole of it in its own answer.
        let object = match (running.face, &running.admitted, caller_id) {
            (Face::Ticket, Some(admitted), caller_id) => {
                let caller_id = self.caller_id(caller_id).await?;
                answer::admission_member(object, name, &caller_id, admitted)
            }
            (Face::Ticket, None, _) => {
                let from = From::Time(running.since);
                let record = outcome::find(self.gateway, name, self.request, from, false).await?;
                match record {
                    Some(Record { verdict: Some(Verdict::Admitted(admitted)), caller_id, .. }) => {
                        let admitted = Admitted { endpoint: running.endpoint.clone(), ..admitted };
                        answer::admission_member(object, name, &caller_id, &admitted)
                    }
                    _ => object,
                }
            }
            _ => object.text_opt("endpoint", running.endpoint.as_deref()),
        };
        Ok(answer::json(StatusCode::OK, object.finish()))
    }

    async fn as_logged(&self, from: From) -> Result<Response, Fault> {
        let name = self.pool.handle.name();
        let found = outcome::find(self.gateway, name, self.request, from, true).await?;
        let record = found.ok_or_else(|| Fault::NoAdmission(shown(self.id.as_bytes())))?;
        Ok(over(name, self.id, &record))
    }

    /// The caller's own label: known here, or from the log.
    async fn caller_id(&self, known: Option<String>) -> Result<String, Fault> {
        match known {
            Some(known) => Ok(known),
            None => outcome::label(self.gateway, self.pool.handle.name(), self.request).await,
        }
    }

    fn object(&self, state: &str) -> Object {
        Object::new().text("id", self.id).text("pool", self.pool.handle.name()).text("state", state)
    }

    fn admitted_at_last(&self, caller_id: &str, admitted: &Admitted) -> Response {
        let object = self.object("admitted").plain("priority", admitted.priority);
        let body = answer::admission_member(object, self.pool.handle.name(), caller_id, admitted);
        answer::json(StatusCode::OK, body.finish())
    }
}

/// A request that was refused: asking for it succeeds, and the headers name the reason as they would have.
fn refusal(pool: &str, id: &str, caller_id: &str, refused: &Refused) -> Response {
    let body = Object::new()
        .text("id", id)
        .text("pool", pool)
        .text("state", "refused")
        .object("refusal", |object| answer::refusal_members(object, pool, caller_id, refused))
        .finish();
    let mut response = answer::json(StatusCode::OK, body);
    answer::name_reason(response.headers_mut(), refused.reason);
    response
}

fn ended(id: &str, notice: &LeaseNotice) -> Response {
    let object = Object::new().text("id", id).text("state", "ended");
    answer::json(StatusCode::OK, end_members(object, notice).finish())
}

/// A request that neither waits nor runs any more, as the log has it.
pub fn over(pool: &str, id: &str, record: &Record) -> Response {
    match (&record.verdict, &record.end) {
        (Some(Verdict::Refused(refused)), _) => refusal(pool, id, &record.caller_id, refused),
        (Some(Verdict::Admitted(admitted)), Some(notice)) => {
            let object = end_members(Object::new().text("id", id).text("state", "ended"), notice);
            let body = answer::admission_member(object, pool, &record.caller_id, admitted);
            answer::json(StatusCode::OK, body.finish())
        }
        (Some(Verdict::Admitted(_)), None) | (None, _) => gone(id),
    }
}

/// A request that is over; how is nobody's business, or nobody knows.
pub fn gone(id: &str) -> Response {
    answer::json(StatusCode::OK, Object::new().text("id", id).text("state", "ended").finish())
}
