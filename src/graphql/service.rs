//! Answers questions: from the bytes of a request to the bytes of an answer, within all limits.
//!
//! Work is done on the thread of the caller, which may block, or on threads for it (`workers.rs`). Not here: HTTP, and
//! who may ask what (the gateway).

use crate::ask::Terms;
use crate::fault::Fault;
use crate::limits::{Limits, check_text};
use crate::schema;
use crate::workers::Workers;
use async_graphql::dynamic::Schema;
use async_graphql::parser::parse_query;
use async_graphql::parser::types::OperationType;
use async_graphql::{Request, Response, ServerError, Variables};
use serde_json::Value;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_stream::{Stream, StreamExt};
use weir_projection::{Projections, Work};

/// How questions are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Limits on each.
    pub limits: Limits,
    /// How long one may take.
    pub timeout: Duration,
    /// How many are answered at once; one more is refused.
    pub at_once: usize,
    /// How many subscriptions there may be.
    pub subscriptions: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { limits: Limits::default(), timeout: Duration::from_secs(10), at_once: 4, subscriptions: 32 }
    }
}

/// The schema over the read models of a log.
#[derive(Clone)]
pub struct Service {
    schema: Schema,
    projections: Arc<Projections>,
    options: Arc<Options>,
    workers: Arc<Workers>,
    running: Arc<AtomicUsize>,
    subscribed: Arc<AtomicUsize>,
    connected: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Service({:?})", self.options)
    }
}

/// A place among those that are answered, given back when it is dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(count: &Arc<AtomicUsize>, limit: usize, full: fn(usize) -> Fault) -> Result<Place, Fault> {
        let taken = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n < limit).then_some(n + 1));
        taken.map(|_| Place(count.clone())).map_err(|_| full(limit))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Service {
    /// Over these read models.
    ///
    /// # Errors
    /// A schema that cannot be built, which is a mistake of ours; no thread.
    pub fn new(projections: Arc<Projections>, options: Options) -> Result<Service, Fault> {
        let built = schema::build(options.limits.introspection)
            .map_err(|error| Fault::Internal(error.to_string()))?;
        let workers = Workers::start(options.at_once)
            .map_err(|error| Fault::Internal(format!("no thread to answer questions: {error}")))?;
        Ok(Service {
            schema: built,
            projections,
            options: Arc::new(options),
            workers: Arc::new(workers),
            running: Arc::default(),
            subscribed: Arc::default(),
            connected: Arc::default(),
        })
    }

    /// The read models.
    pub fn projections(&self) -> &Arc<Projections> {
        &self.projections
    }

    /// How questions are answered.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Terms for a caller who may see these pools (none: all); its work is bounded by the limit of time.
    pub fn terms(&self, pools: Option<BTreeSet<String>>) -> Terms {
        Terms::new(pools, Work::within(self.options.timeout))
    }

    /// Answers the body of a request: one question, or a list of them. Blocks.
    pub fn answer(&self, body: &[u8], terms: &Terms) -> Vec<u8> {
        let answer = Place::take(&self.running, self.options.at_once, |limit| Fault::Busy { limit })
            .and_then(|_place| self.try_answer(body, terms));
        answer.unwrap_or_else(|fault| encode(&refusal(fault)))
    }

    /// The same on a thread that is there for it; none if that failed.
    pub async fn answer_elsewhere<B>(&self, body: B, terms: Terms) -> Option<Vec<u8>>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let place = match Place::take(&self.running, self.options.at_once, |limit| Fault::Busy { limit }) {
            Ok(place) => place,
            Err(fault) => return Some(encode(&refusal(fault))),
        };
        let (to, answer) = oneshot::channel();
        let service = self.clone();
        let given = self.workers.give(move || {
            let answer = service.try_answer(body.as_ref(), &terms);
            // Free before the answer is heard, so that who asks one after the other always finds it.
            drop(place);
            let _ = to.send(answer.unwrap_or_else(|fault| encode(&refusal(fault))));
        });
        if given { answer.await.ok() } else { None }
    }

    fn try_answer(&self, body: &[u8], terms: &Terms) -> Result<Vec<u8>, Fault> {
        let limits = &self.options.limits;
        let too_long = |found: usize| Fault::Limit {
            code: "REQUEST_TOO_LARGE",
            what: "the bytes",
            found: found.to_string(),
            limit: limits.bytes,
        };
        if body.len() > limits.bytes {
            return Err(too_long(body.len()));
        }
        let parsed: Value = serde_json::from_slice(body)
            .map_err(|error| Fault::Request(format!("the body is no JSON: {error}")))?;
        match parsed {
            Value::Array(list) => {
                if list.len() > limits.batch {
                    let (code, found) = ("BATCH_TOO_LARGE", list.len().to_string());
                    return Err(Fault::Limit { code, what: "the questions", found, limit: limits.batch });
                }
                let answers: Vec<Response> = list.into_iter().map(|one| self.one(one, terms)).collect();
                Ok(serde_json::to_vec(&answers).unwrap_or_default())
            }
            one => Ok(encode(&self.one(one, terms))),
        }
    }

    fn one(&self, asked: Value, terms: &Terms) -> Response {
        match self.prepare(asked, terms) {
            Ok(request) => coded(block_on(self.schema.execute(request))),
            Err(fault) => refusal(fault),
        }
    }

    /// A request that is within the limits.
    fn prepare(&self, asked: Value, terms: &Terms) -> Result<Request, Fault> {
        let Value::Object(mut asked) = asked else {
            return Err(Fault::Request("a question is a JSON object with `query`".to_owned()));
        };
        let Some(Value::String(query)) = asked.remove("query") else {
            return Err(Fault::Request("a question has a text under `query`".to_owned()));
        };
        let variables = match asked.remove("variables") {
            None | Some(Value::Null) => Variables::default(),
            Some(given @ Value::Object(_)) => Variables::from_json(given),
            Some(_) => return Err(Fault::Request("`variables` is a JSON object".to_owned())),
        };
        check_text(&query, self.options.limits.tokens)?;
        let document = parse_query(&query).map_err(|error| Fault::Parse(error.to_string()))?;
        self.options.limits.check(&document, &variables)?;
        let mut request = Request::new(query).variables(variables);
        if let Some(Value::String(name)) = asked.remove("operationName") {
            request = request.operation_name(name);
        }
        request.set_parsed_query(document);
        Ok(request.data(self.projections.clone()).data(terms.clone()))
    }

    /// A place for a connection of subscribers.
    ///
    /// # Errors
    /// All are taken.
    pub fn connect(&self) -> Result<Place, Fault> {
        Place::take(&self.connected, self.options.subscriptions, |limit| Fault::Full {
            what: "connections of subscribers",
            limit,
        })
    }

    /// Is a subscription what is asked for, rather than a question?
    pub fn is_subscription(&self, asked: &Value) -> bool {
        let text = asked["query"].as_str().unwrap_or_default();
        let named = asked["operationName"].as_str();
        let Ok(document) = check_text(text, self.options.limits.tokens)
            .and_then(|()| parse_query(text).map_err(|error| Fault::Parse(error.to_string())))
        else {
            return false;
        };
        let mut operations = document.operations.iter();
        let found = operations
            .find(|(name, _)| named.is_none() || name.is_some_and(|name| Some(name.as_str()) == named));
        found.is_some_and(|(_, operation)| operation.node.ty == OperationType::Subscription)
    }

    /// Begins a subscription.
    ///
    /// # Errors
    /// A limit, no place, or a question.
    pub fn subscribe(
        &self,
        asked: Value,
        terms: &Terms,
    ) -> Result<impl Stream<Item = Vec<u8>> + Send + use<>, Fault> {
        let place = Place::take(&self.subscribed, self.options.subscriptions, |limit| Fault::Full {
            what: "subscriptions",
            limit,
        })?;
        if !self.is_subscription(&asked) && asked["query"].is_string() {
            // Its work may block, which a stream must not.
            check_text(asked["query"].as_str().unwrap_or_default(), self.options.limits.tokens)?;
            return Err(Fault::Request("this is no subscription that can be read".to_owned()));
        }
        let request = self.prepare(asked, terms)?;
        let stream = self.schema.execute_stream(request);
        Ok(stream.map(move |response| {
            let _place = &place;
            encode(&coded(response))
        }))
    }
}

/// The answer to a question that is not answered.
pub fn refusal(fault: Fault) -> Response {
    located(Response::from_errors(vec![fault.error().into_server_error(async_graphql::Pos::default())]))
}

/// Bytes of an answer.
pub fn encode(response: &Response) -> Vec<u8> {
    serde_json::to_vec(response).unwrap_or_default()
}

/// Errors of the library have no code of their own: those are found when a question is held to the schema.
fn coded(mut response: Response) -> Response {
    for error in &mut response.errors {
        if !has_code(error) {
            error.extensions.get_or_insert_default().set("code", "GRAPHQL_VALIDATION_FAILED");
        }
    }
    located(response)
}

/// Lines and columns are counted from 1: an error that is of no place has no location, rather than one at 0.
fn located(mut response: Response) -> Response {
    for error in &mut response.errors {
        error.locations.retain(|at| at.line > 0 && at.column > 0);
    }
    response
}

fn has_code(error: &ServerError) -> bool {
    error.extensions.as_ref().is_some_and(|extensions| extensions.get("code").is_some())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let waker: Waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
