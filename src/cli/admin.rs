//! `weir admin`: what operators do by hand to a running service.

use crate::load::{Client, Failure};
use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use weir_log::output::say;

/// Arguments of `weir admin`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

/// The orders.
#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Dispatch nothing from a pool until it is resumed; requests are queued and expire as before.
    Pause(OfPool),
    /// End a pause.
    Resume(OfPool),
    /// Remove a queued request, or all that a flow has queued; their callers hear 503 rejected-purged.
    Purge(Purge),
    /// Take a running request back: whoever holds it is told to end it.
    Revoke(Revoke),
    /// As SIGTERM: no new requests, what is queued is served until drainTimeout, then the service ends.
    Drain(Signed),
    /// Show the pools: their regime, what they queue and run, and what holds them.
    Pools(Server),
}

/// Whom to talk to, and how to answer.
#[derive(Debug, clap::Args)]
struct Server {
    /// The service: http://HOST:PORT.
    #[arg(long, env = "WEIR_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    /// A token, where the service asks for one: with the scope `read` to show the pools, `admin` for all else.
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true)]
    token: Option<String>,
    /// Print the service's own answer (JSON).
    #[arg(long)]
    json: bool,
}

/// Who and why.
#[derive(Debug, clap::Args)]
struct Signed {
    #[command(flatten)]
    server: Server,
    /// The reason, kept in the log with the order (at most 256 bytes).
    #[arg(long)]
    why: String,
    /// Who orders it; where the service knows your token, its name counts instead.
    #[arg(long, env = "USER", hide_env = true)]
    by: Option<String>,
}

#[derive(Debug, clap::Args)]
struct OfPool {
    /// The pool.
    #[arg(long, default_value = "default")]
    pool: String,
    #[command(flatten)]
    signed: Signed,
}

#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["request", "flow"]))]
struct Purge {
    /// The id of a queued admission (default-42); its pool is in it.
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// The fairness id of a flow; `default-flow` is that of requests without one.
    #[arg(long, value_name = "FAIRNESS-ID", requires = "priority")]
    flow: Option<String>,
    /// The priority of that flow.
    #[arg(long, allow_negative_numbers = true, conflicts_with = "request")]
    priority: Option<i32>,
    #[command(flatten)]
    of: OfPool,
}

#[derive(Debug, clap::Args)]
struct Revoke {
    /// The id of a running admission (default-42); its pool is in it.
    #[arg(long, value_name = "ID")]
    request: String,
    #[command(flatten)]
    signed: Signed,
}

/// Why an order did not get through, or was refused.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{url}: {failure}")]
    Server { url: String, failure: Failure },
    /// In the words of the service.
    #[error("{url}: {status}: {said}")]
    Refused { url: String, status: u16, said: String },
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

/// Runs `weir admin`.
pub fn run(args: &Args) -> ExitCode {
    match start(&args.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("weir admin: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start(command: &Command) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Pause(of) => of.order("pause", Map::new(), switched).await,
            Command::Resume(of) => of.order("resume", Map::new(), switched).await,
            Command::Purge(purge) => purge.run().await,
            Command::Revoke(revoke) => revoke.run().await,
            Command::Drain(signed) => signed.order("/admin/drain", Map::new(), drained).await,
            Command::Pools(server) => pools(server).await,
        }
    })
}

impl OfPool {
    async fn order(&self, what: &str, members: Map<String, Value>, tell: Tell) -> Result<(), Failed> {
        self.signed.order(&format!("/admin/pools/{}/{what}", segment(&self.pool)), members, tell).await
    }
}

impl Purge {
    async fn run(&self) -> Result<(), Failed> {
        let mut members = Map::new();
        let mut pool = self.of.pool.as_str();
        if let Some(id) = &self.request {
            members.insert("id".to_owned(), json!(id));
            // The id says whose it is.
            pool = id.rsplit_once('-').map_or(pool, |(of, _)| of);
        }
        if let (Some(flow), Some(priority)) = (&self.flow, self.priority) {
            members.insert("fairnessId".to_owned(), json!(flow));
            members.insert("priority".to_owned(), json!(priority));
        }
        self.of.signed.order(&format!("/admin/pools/{}/purge", segment(pool)), members, purged).await
    }
}

impl Revoke {
    async fn run(&self) -> Result<(), Failed> {
        let members = Map::from_iter([("id".to_owned(), json!(self.request))]);
        let pool = self.request.rsplit_once('-').map_or("default", |(of, _)| of);
        self.signed.order(&format!("/admin/pools/{}/revoke", segment(pool)), members, revoked).await
    }
}

impl Signed {
    async fn order(&self, path: &str, mut members: Map<String, Value>, tell: Tell) -> Result<(), Failed> {
        members.insert("why".to_owned(), json!(self.why));
        if let Some(by) = &self.by {
            members.insert("by".to_owned(), json!(by));
        }
        let body = Bytes::from(Value::Object(members).to_string());
        let answer = self.server.ask(Method::POST, path, body).await?;
        self.server.show(&answer, tell)
    }
}

/// An answer in words.
type Tell = fn(&Value) -> String;

impl Server {
    async fn ask(&self, method: Method, path: &str, body: Bytes) -> Result<Value, Failed> {
        let url = format!("{}{path}", self.url.trim_end_matches('/'));
        let failed = |failure| Failed::Server { url: url.clone(), failure };
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let headers: Vec<(&'static str, &str)> =
            bearer.iter().map(|bearer| ("x-weir-authorization", bearer.as_str())).collect();
        let answer = Client::default().send(method, &url, &headers, body).await.map_err(failed)?;
        let status = answer.status;
        let body = answer.whole().await.map_err(failed)?;
        let value: Option<Value> = serde_json::from_slice(&body).ok();
        if !status.is_success() {
            let said = value.as_ref().and_then(|problem| text(problem, "detail")).map(str::to_owned);
            let said = said.unwrap_or_else(|| String::from_utf8_lossy(&body).into_owned());
            return Err(Failed::Refused { url, status: status.as_u16(), said });
        }
        value.ok_or(Failed::Server { url, failure: Failure::NotUnderstood })
    }

    fn show(&self, answer: &Value, tell: Tell) -> Result<(), Failed> {
        let text = if self.json { format!("{answer}\n") } else { format!("{}\n", tell(answer)) };
        Ok(say(text)?)
    }
}

/// A path segment: what is not plain is escaped.
fn segment(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    name.bytes().fold(String::new(), |mut text, byte| {
        match plain(byte) {
            true => text.push(char::from(byte)),
            false => text.push_str(&format!("%{byte:02X}")),
        }
        text
    })
}

fn text<'v>(value: &'v Value, name: &str) -> Option<&'v str> {
    value.get(name)?.as_str()
}

fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

fn switched(answer: &Value) -> String {
    let pool = text(answer, "pool").unwrap_or("?");
    let seq = number(answer, "/sequence");
    match (text(answer, "state"), answer["changed"] == json!(true)) {
        (Some("paused"), true) => {
            format!(
                "{pool} is paused since step {seq}: nothing is dispatched; requests are queued and expire as before"
            )
        }
        (Some("paused"), false) => format!("{pool} was paused already"),
        (_, true) => format!("{pool} is resumed since step {seq}"),
        (_, false) => format!("{pool} was not paused"),
    }
}

fn purged(answer: &Value) -> String {
    let (pool, count) = (text(answer, "pool").unwrap_or("?"), number(answer, "/purged"));
    match count {
        0 => format!("{pool}: nothing of it was queued"),
        1 => format!(
            "{pool}: 1 request removed from the queue, ordered in step {}",
            number(answer, "/sequence")
        ),
        _ => format!(
            "{pool}: {count} requests removed from the queue, ordered in step {}",
            number(answer, "/sequence")
        ),
    }
}

fn revoked(answer: &Value) -> String {
    let id = text(answer, "id").unwrap_or("?");
    match (text(answer, "state"), answer["changed"] == json!(true)) {
        (Some("undeliverable"), _) => {
            format!(
                "{id}: nobody is there to be told, so that it runs on (step {})",
                number(answer, "/sequence")
            )
        }
        (_, true) => format!("{id} is being revoked since step {}", number(answer, "/sequence")),
        (_, false) => format!("{id} was being revoked already"),
    }
}

fn drained(answer: &Value) -> String {
    let mut said = match answer["changed"] == json!(true) {
        true => "draining: no new requests".to_owned(),
        false => "draining already".to_owned(),
    };
    let seconds = number(answer, "/drainTimeoutMs") as f64 / 1e3;
    said.push_str(&format!("; what is queued is served for up to {seconds} s, then ended"));
    for left in answer["left"].as_array().into_iter().flatten() {
        let (queued, leases) = (number(left, "/queued"), number(left, "/leases"));
        let pool = text(left, "pool").unwrap_or("?");
        said.push_str(&format!("\n  {pool}: {queued} queued, {leases} running"));
    }
    said
}

async fn pools(server: &Server) -> Result<(), Failed> {
    let list = server.ask(Method::GET, "/v1/pools", Bytes::new()).await?;
    let mut all = Vec::new();
    for pool in list["pools"].as_array().into_iter().flatten() {
        let name = text(pool, "pool").unwrap_or_default();
        all.push(server.ask(Method::GET, &format!("/v1/pools/{}", segment(name)), Bytes::new()).await?);
    }
    server.show(&json!({ "pools": all }), table)
}

fn table(answer: &Value) -> String {
    let mut rows = vec![["POOL", "READY", "REGIME", "QUEUED", "RUNNING", "HELD BY"].map(str::to_owned)];
    for pool in answer["pools"].as_array().into_iter().flatten() {
        rows.push([
            text(pool, "pool").unwrap_or("?").to_owned(),
            if pool["ready"] == json!(true) { "yes" } else { "no" }.to_owned(),
            text(pool, "regime").unwrap_or("?").to_owned(),
            number(pool, "/queue/requests").to_string(),
            number(pool, "/leases").to_string(),
            held(pool),
        ]);
    }
    let widths: Vec<usize> =
        (0..6).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn held(pool: &Value) -> String {
    if let Some(paused) = pool.get("paused") {
        let (by, why) = (text(paused, "by").unwrap_or("?"), text(paused, "why").unwrap_or("?"));
        return format!("paused by {by}: {why}");
    }
    pool.pointer("/queue/heldBy").and_then(Value::as_str).unwrap_or("-").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_told_in_words() {
        let said = |tell: Tell, answer: Value| tell(&answer);
        assert_eq!(
            said(switched, json!({"pool": "p", "state": "running", "changed": true, "sequence": 7})),
            "p is resumed since step 7"
        );
        assert_eq!(
            said(purged, json!({"pool": "p", "purged": 150, "sequence": 9})),
            "p: 150 requests removed from the queue, ordered in step 9"
        );
        let left = json!([{"pool": "p", "queued": 3, "leases": 2}]);
        assert_eq!(
            said(drained, json!({"changed": true, "drainTimeoutMs": 30_000, "left": left})),
            "draining: no new requests; what is queued is served for up to 30 s, then ended\n  p: 3 queued, 2 running"
        );
        let pool = json!({"pool": "p", "ready": true, "regime": "HasEndpoints", "leases": 4,
            "queue": {"requests": 12, "heldBy": "paused by an operator"},
            "paused": {"by": "ops", "why": "a drill"}});
        let shown = said(table, json!({ "pools": [pool] }));
        assert!(
            shown.ends_with("p     yes    HasEndpoints  12      4        paused by ops: a drill"),
            "{shown}"
        );
    }

    #[test]
    fn names_are_escaped_in_paths() {
        assert_eq!(segment("a-b_c.1"), "a-b_c.1");
        assert_eq!(segment("a/b c"), "a%2Fb%20c");
    }
}
