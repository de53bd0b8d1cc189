//! One request's whole way: admission, the chosen server, completion; or straight to a server.

use super::client::{Answer, Client, Failure};
use super::plan::{Classes, Planned};
use super::report::{Ending, Sample};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What is driven.
#[derive(Debug)]
pub struct Target {
    /// `http://host:port`, without a slash at the end.
    pub url: String,
    /// The way requests take.
    pub mode: Mode,
    /// The pool to name, where one is named.
    pub pool: Option<String>,
    /// The model to name.
    pub model: String,
    /// The queue-wait budget that callers ask for, in Go syntax.
    pub ttl: Option<String>,
    /// The classes that planned requests refer to.
    pub classes: Classes,
    /// Addresses of endpoints whose names are none.
    addresses: Addresses,
}

/// The way requests take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Admission, then the request to the endpoint that was chosen, then the completion with its usage.
    Endpoint,
    /// Admission, then the lease is held this long and completed.
    Hold(Duration),
    /// The request itself, to a model server or a proxy.
    Direct,
}

impl Target {
    /// A target at this address, with the model `sim`, no pool named and no budget asked for.
    ///
    /// # Errors
    /// It is no `http://host:port`.
    pub fn new(url: &str, mode: Mode, classes: Classes) -> Result<Target, Failure> {
        let url = url.strip_suffix('/').unwrap_or(url).to_owned();
        let no = |why: &str| Failure::Address { url: url.clone(), why: why.to_owned() };
        let uri: http::Uri = url.parse().map_err(|e: http::uri::InvalidUri| no(&e.to_string()))?;
        match (uri.scheme_str(), uri.authority(), uri.path()) {
            (Some("http"), Some(_), "" | "/") => {}
            (Some("http"), Some(_), _) => return Err(no("there is a path")),
            (Some(_), ..) => return Err(no("only http")),
            _ => return Err(no("no host")),
        }
        let (model, addresses) = ("sim".to_owned(), Addresses::default());
        Ok(Target { url, mode, pool: None, model, ttl: None, classes, addresses })
    }
}

/// Addresses of endpoints by name, as the target knows them.
#[derive(Debug, Default)]
struct Addresses(Mutex<BTreeMap<String, String>>);

impl Addresses {
    fn of(&self, name: &str) -> Option<String> {
        if name.contains("://") {
            return Some(name.to_owned());
        }
        if name.parse::<SocketAddr>().is_ok() {
            return Some(format!("http://{name}"));
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// Takes in `{"endpoints": [{"name", "metricsUrl"}]}`: servers answer where their metrics are.
    fn learn(&self, value: &Value) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for endpoint in value["endpoints"].as_array().into_iter().flatten() {
            if let (Some(name), Some(url)) = (endpoint["name"].as_str(), endpoint["metricsUrl"].as_str()) {
                let base = url.strip_suffix("/metrics").unwrap_or(url);
                known.insert(name.to_owned(), base.to_owned());
            }
        }
    }
}

/// What is known of a request under way; kept outside, so that it is not lost when the load is cut off.
#[derive(Clone, Debug, Default)]
pub struct Course {
    wait: Option<Duration>,
    ttft: Option<Duration>,
    tokens: u64,
}

impl Course {
    /// The sample it makes with this ending.
    pub fn ended(self, class: usize, ending: Ending) -> Sample {
        Sample { class, ending, wait: self.wait, ttft: self.ttft, tokens: self.tokens }
    }
}

/// Sends one request and follows it to its end. `due` is when it should have been sent: waits count from there.
pub async fn send(
    client: &Client,
    target: &Target,
    planned: &Planned,
    number: u64,
    due: Instant,
    course: &mut Course,
    admitted: impl Fn(),
) -> Ending {
    let one = One { client, target, planned, number, due };
    if target.mode == Mode::Direct {
        return one.direct(course, admitted).await;
    }
    let (id, endpoint) = match one.admission(course).await {
        Ok(lease) => lease,
        Err(ending) => return ending,
    };
    admitted();
    let done = match target.mode {
        Mode::Hold(lasting) => {
            tokio::time::sleep(lasting).await;
            Ok(())
        }
        Mode::Endpoint | Mode::Direct => match endpoint {
            Some(url) => one.generate(&url, course).await,
            None => Err("no endpoint chosen".to_owned()),
        },
    };
    let completed = one.complete(&id, course, done.is_ok()).await;
    match done.and(completed) {
        Ok(()) => Ending::Completed,
        Err(what) => Ending::Broken(what),
    }
}

struct One<'a> {
    client: &'a Client,
    target: &'a Target,
    planned: &'a Planned,
    number: u64,
    due: Instant,
}

impl One<'_> {
    fn flow(&self) -> String {
        format!("flow-{}", self.planned.flow)
    }

    fn objective(&self) -> Option<&str> {
        self.target.classes.classes.get(self.planned.class)?.objective.as_deref()
    }

    /// Asks for admission: the lease's id and the chosen server's address, or how it ended.
    async fn admission(&self, course: &mut Course) -> Result<(String, Option<String>), Ending> {
        let mut body = json!({
            "requestId": format!("load-{}", self.number),
            "fairnessId": self.flow(),
            "model": self.target.model,
            "bytes": prompt_bytes(self.planned.prompt),
            "promptTokens": self.planned.prompt,
            "chooseEndpoint": self.target.mode == Mode::Endpoint,
        });
        for (key, value) in [
            ("objective", self.objective()),
            ("pool", self.target.pool.as_deref()),
            ("ttl", self.target.ttl.as_deref()),
        ] {
            if let Some(value) = value {
                body[key] = json!(value);
            }
        }
        let url = format!("{}/v1/admissions", self.target.url);
        let body = Bytes::from(body.to_string());
        let answer = self.client.send(Method::POST, &url, &[], body).await.map_err(unanswered)?;
        if answer.status != StatusCode::OK {
            return Err(refused(answer).await);
        }
        let bytes = answer.whole().await.map_err(unanswered)?;
        let value: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        let admission = &value["admission"];
        let Some(id) = admission["id"].as_str() else { return Err(unanswered(Failure::NotUnderstood)) };
        course.wait = Some(self.due.elapsed());
        let endpoint = match admission["endpoint"].as_str() {
            Some(name) => Some(self.address(name, admission["pool"].as_str()).await),
            None => None,
        };
        Ok((id.to_owned(), endpoint))
    }

    /// Where an endpoint is: its name, if that is an address, else what the target says of it.
    async fn address(&self, name: &str, pool: Option<&str>) -> String {
        if let Some(url) = self.target.addresses.of(name) {
            return url;
        }
        let url = format!("{}/v1/pools/{}/endpoints", self.target.url, pool.unwrap_or("default"));
        if let Ok(answer) = self.client.send(Method::GET, &url, &[], Bytes::new()).await
            && let Ok(body) = answer.whole().await
        {
            self.target.addresses.learn(&serde_json::from_slice(&body).unwrap_or(Value::Null));
        }
        self.target.addresses.of(name).unwrap_or_else(|| format!("http://{name}"))
    }

    /// Runs the request on a model server and reads its tokens.
    async fn generate(&self, base: &str, course: &mut Course) -> Result<(), String> {
        let url = format!("{}/v1/completions", base.trim_end_matches('/'));
        let answer = self.client.send(Method::POST, &url, &[], self.body()).await;
        let answer = answer.map_err(|e| format!("upstream: {e}"))?;
        if answer.status != StatusCode::OK {
            return Err(format!("upstream: status {}", answer.status.as_u16()));
        }
        self.read_tokens(answer, course).await
    }

    async fn direct(&self, course: &mut Course, admitted: impl Fn()) -> Ending {
        let url = format!("{}/v1/completions", self.target.url);
        let flow = self.flow();
        let mut headers = vec![("x-llm-d-inference-fairness-id", flow.as_str())];
        headers.extend(self.objective().map(|name| ("x-llm-d-inference-objective", name)));
        headers.extend(self.target.ttl.as_deref().map(|ttl| ("x-llm-d-inference-ttl", ttl)));
        headers.extend(self.target.pool.as_deref().map(|pool| ("x-weir-pool", pool)));
        let answer = match self.client.send(Method::POST, &url, &headers, self.body()).await {
            Ok(answer) => answer,
            Err(failure) => return unanswered(failure),
        };
        if answer.status != StatusCode::OK {
            return refused(answer).await;
        }
        course.wait = Some(self.due.elapsed());
        admitted();
        self.read_tokens(answer, course).await.map_or_else(Ending::Broken, |()| Ending::Completed)
    }

    fn body(&self) -> Bytes {
        let mut body = String::with_capacity(prompt_bytes(self.planned.prompt) + 160);
        // Writing to a string cannot fail. `ignore_eos` makes a real vLLM generate as many as asked.
        let _infallible = write!(
            body,
            r#"{{"model":{},"max_tokens":{},"ignore_eos":true,"stream":true,"stream_options":{{"include_usage":true}},"prompt":["#,
            json!(self.target.model),
            self.planned.output
        );
        body.push('1');
        for _ in 1..self.planned.prompt {
            body.push_str(",1");
        }
        body.push_str("]}");
        Bytes::from(body)
    }

    async fn read_tokens(&self, mut answer: Answer, course: &mut Course) -> Result<(), String> {
        let mut events = Events::default();
        while let Some(piece) = answer.piece().await.map_err(|e| format!("upstream: {e}"))? {
            events.read(&piece);
            course.tokens = events.tokens;
            if events.tokens > 0 && course.ttft.is_none() {
                course.ttft = Some(self.due.elapsed());
            }
        }
        if events.done { Ok(()) } else { Err("upstream: stream cut short".to_owned()) }
    }

    async fn complete(&self, id: &str, course: &Course, well: bool) -> Result<(), String> {
        let usage = json!({ "prompt": self.planned.prompt, "completion": course.tokens });
        let mut body = json!({ "usage": usage });
        if !well {
            body = json!({ "termination": "error" });
        }
        let url = format!("{}/v1/admissions/{id}/complete", self.target.url);
        let body = Bytes::from(body.to_string());
        let answer = self.client.send(Method::POST, &url, &[], body).await;
        let answer = answer.map_err(|e| format!("completion: {e}"))?;
        let status = answer.status;
        // Read to its end, so that the connection is kept.
        let _body = answer.whole().await;
        if status.is_success() { Ok(()) } else { Err(format!("completion: status {}", status.as_u16())) }
    }
}

/// Bytes of a prompt of this many tokens, as it is sent.
const fn prompt_bytes(tokens: u32) -> usize {
    tokens as usize * 2
}

fn unanswered(failure: Failure) -> Ending {
    Ending::Unanswered(failure.to_string())
}

async fn refused(answer: Answer) -> Ending {
    let status = answer.status.as_u16();
    let header = |name| answer.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let named = header("x-weir-dropped-reason").or_else(|| header("x-llm-d-request-dropped-reason"));
    let problem: Value =
        answer.whole().await.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or(Value::Null);
    let text = |key: &str| problem[key].as_str().map(str::to_owned);
    let reason = text("reason").or(named).unwrap_or_default();
    Ending::Refused { status, outcome: text("outcome").unwrap_or_default(), reason }
}

/// Counts tokens in server-sent events, across the borders of pieces.
#[derive(Debug, Default)]
struct Events {
    line: Vec<u8>,
    tokens: u64,
    done: bool,
}

impl Events {
    /// Longer lines are not ours.
    const LINE_MAX: usize = 1 << 16;

    fn read(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + part.len() <= Self::LINE_MAX {
                self.line.extend_from_slice(part);
            }
            if part.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let Some(data) = line.trim_ascii().strip_prefix(b"data:") else { return };
        let data = data.trim_ascii_start();
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let Ok(value) = serde_json::from_slice::<Value>(data) else { return };
        if let Some(used) = value["usage"]["completion_tokens"].as_u64() {
            self.tokens = used;
        } else if value["choices"].as_array().is_some_and(|choices| !choices.is_empty()) {
            self.tokens += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_across_pieces() {
        let text = "data: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[{\"text\":\"b\"}]}\r\n\r\n: comment\n\
                    data: {\"choices\":[],\"usage\":{\"completion_tokens\":2}}\n\ndata: [DONE]\n\n";
        for size in [1, 7, 1_000] {
            let mut events = Events::default();
            for piece in text.as_bytes().chunks(size) {
                events.read(piece);
            }
            assert_eq!((events.tokens, events.done), (2, true), "pieces of {size}");
        }
    }

    #[test]
    fn addresses_are_checked() {
        let target = |url: &str| Target::new(url, Mode::Direct, Classes::parse(&[], 1).unwrap());
        assert_eq!(target("http://127.0.0.1:8080/").unwrap().url, "http://127.0.0.1:8080");
        for (url, why) in [
            ("127.0.0.1:8080", "no host"),
            ("https://a", "only http"),
            ("http://a/b", "there is a path"),
            ("", "empty"),
            ("http://a b", "invalid"),
        ] {
            let got = target(url).unwrap_err().to_string();
            assert!(got.contains(why) && got.contains("allowed: http://HOST:PORT"), "{url}: {got}");
        }
    }

    #[test]
    fn endpoints_are_found_by_their_names() {
        let addresses = Addresses::default();
        assert_eq!(addresses.of("10.0.0.1:80").as_deref(), Some("http://10.0.0.1:80"));
        assert_eq!(addresses.of("http://a:1").as_deref(), Some("http://a:1"));
        assert_eq!(addresses.of("server-a"), None);
        addresses
            .learn(&json!({ "endpoints": [{ "name": "server-a", "metricsUrl": "http://a:1/metrics" }] }));
        assert_eq!(addresses.of("server-a").as_deref(), Some("http://a:1"));
    }
}
