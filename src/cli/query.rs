//! `weir query`: the playbook and questions of one's own, put to a running server or straight to a stopped data directory.

use crate::load::Client;
use bytes::Bytes;
use http::Method;
use serde_json::{Map, Value, json};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use weir_graphql::{Options, QUESTIONS, Question, Service, render};
use weir_log::output::say;
use weir_log::reader::Logs;
use weir_projection::{Projections, Source};

/// Arguments of `weir query`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Times are UTC: 2026-11-30T14:03:07, or @ and seconds. Variables that a question declares: weir query --list.

Exit code: 0; 1 if there is no answer, or one with errors; 2 for wrong arguments.

Examples:
  weir query                                                    the questions of the playbook
  weir query what-went-wrong --data ./data --var from=2026-11-30T01:00 --var to=2026-11-30T02:00
  weir query why-was-this-request-shed --server http://127.0.0.1:8080 --var id=default-5
  weir query --file mine.graphql --data ./data --json")]
pub struct Args {
    /// The question, by its name; without one they are listed.
    name: Option<String>,

    /// List the questions.
    #[arg(long)]
    list: bool,

    /// A query of one's own in place of a question; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "name")]
    file: Option<PathBuf>,

    /// A variable of the question; numbers and JSON as such, all else as text.
    #[arg(long = "var", value_name = "NAME=VALUE")]
    variables: Vec<String>,

    /// The data directory of a stopped server; projections are brought up to its log first.
    #[arg(long, value_name = "DIR", conflicts_with = "server")]
    data: Option<PathBuf>,

    /// A running server.
    #[arg(long, value_name = "URL")]
    server: Option<String>,

    /// Its token.
    #[arg(long, env = "WEIR_TOKEN", hide_env_values = true)]
    token: Option<String>,

    /// The answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Other(String),
}

fn other(error: impl std::fmt::Display) -> Failed {
    Failed::Other(error.to_string())
}

/// Runs `weir query`.
pub fn run(args: &Args) -> ExitCode {
    match answer(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir query: {error}");
            if matches!(error, Failed::Usage(_)) { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn answer(args: &Args) -> Result<ExitCode, Failed> {
    if args.list || (args.name.is_none() && args.file.is_none()) {
        return list().map(|()| ExitCode::SUCCESS).map_err(other);
    }
    let (text, known) = question(args)?;
    let variables = variables(args, known)?;
    let body = json!({ "query": text, "variables": variables }).to_string();
    let said = match (&args.data, &args.server) {
        (Some(data), _) => of_data(data, body.as_bytes())?,
        (None, Some(server)) => of_server(server, args.token.as_deref(), body)?,
        (None, None) => return Err(Failed::Usage("which log? Give --data DIR or --server URL".to_owned())),
    };
    show(&said, args.json)
}

fn list() -> std::io::Result<()> {
    let mut text = String::new();
    for question in QUESTIONS {
        text += &format!("{}\n  {}\n", question.name, question.about());
        let variables: Vec<String> =
            question.variables().into_iter().map(|(name, ty)| format!("{name}: {ty}")).collect();
        if !variables.is_empty() {
            text += &format!("  variables: {}\n", variables.join(", "));
        }
    }
    say(text)
}

fn question(args: &Args) -> Result<(String, Option<&'static Question>), Failed> {
    match (&args.file, &args.name) {
        (Some(file), _) if file.as_os_str() == "-" => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(other)?;
            Ok((text, None))
        }
        (Some(file), _) => {
            let text = std::fs::read_to_string(file);
            text.map(|text| (text, None)).map_err(|error| other(format!("{}: {error}", file.display())))
        }
        (None, name) => {
            let name = name.as_deref().unwrap_or_default();
            let found = Question::named(name);
            let known = || QUESTIONS.iter().map(|question| question.name).collect::<Vec<_>>().join(", ");
            let found =
                found.ok_or_else(|| Failed::Usage(format!("no question {name:?}; there is: {}", known())))?;
            Ok((found.text.to_owned(), Some(found)))
        }
    }
}

fn variables(args: &Args, known: Option<&Question>) -> Result<Map<String, Value>, Failed> {
    let mut variables = Map::new();
    for given in &args.variables {
        let (name, value) =
            given.split_once('=').ok_or_else(|| Failed::Usage(format!("--var {given}: it is NAME=VALUE")))?;
        let declared = known.map(Question::variables).unwrap_or_default();
        let ty = declared.iter().find(|(known, _)| known == name).map(|(_, ty)| ty.as_str());
        if known.is_some() && ty.is_none() {
            let names = declared.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
            return Err(Failed::Usage(format!("--var {name}: this question has {names}")));
        }
        let texts = ["String", "ID", "Time"];
        let is_text = ty.is_some_and(|ty| texts.contains(&ty.trim_end_matches('!')));
        let parsed = if is_text { None } else { serde_json::from_str(value).ok() };
        variables.insert(name.to_owned(), parsed.unwrap_or_else(|| Value::String(value.to_owned())));
    }
    for (name, ty) in known.map(Question::variables).unwrap_or_default() {
        // One with a default does not end so.
        if ty.ends_with('!') && !variables.contains_key(&name) {
            let question = known.map_or("", |question| question.name);
            return Err(Failed::Usage(format!("{question} needs --var {name}=… ({ty})")));
        }
    }
    Ok(variables)
}

/// Projections of a stopped data directory, brought up to its log, and what keeps that open.
pub fn open(data: &Path) -> Result<(Logs, Projections), String> {
    let logs = Logs::open(data).map_err(|error| error.to_string())?;
    let projections = of_logs(data, &logs)?;
    Ok((logs, projections))
}

/// Projections beside logs that are open, as far as they are.
pub fn of_logs(data: &Path, logs: &Logs) -> Result<Projections, String> {
    let source = Source::new(Some(data), logs.hot().cloned());
    Projections::open(Some(data), &source).map_err(|error| error.to_string())
}

fn of_data(data: &Path, body: &[u8]) -> Result<Vec<u8>, Failed> {
    let (_logs, projections) = open(data).map_err(Failed::Other)?;
    let behind = projections.pools().any(|pool| pool.position().is_ok_and(|p| p.head > p.at.seq + 100_000));
    if behind && std::io::stderr().is_terminal() {
        eprintln!("note: the projections are brought up to the log first");
    }
    projections.catch_up(|_, _| {}).map_err(other)?;
    let service = Service::new(Arc::new(projections), Options::default()).map_err(other)?;
    Ok(service.answer(body, &service.terms(None)))
}

fn of_server(server: &str, token: Option<&str>, body: String) -> Result<Vec<u8>, Failed> {
    let url = format!("{}/graphql", server.trim_end_matches('/'));
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut headers: Vec<(&'static str, &str)> = vec![("content-type", "application/json")];
    headers.extend(bearer.iter().map(|bearer| ("x-weir-authorization", bearer.as_str())));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(other)?;
    runtime.block_on(async {
        let answer = Client::default().send(Method::POST, &url, &headers, Bytes::from(body)).await;
        let answer = answer.map_err(|failure| other(format!("{url}: {failure}")))?;
        let status = answer.status;
        let said = answer.whole().await.map_err(|failure| other(format!("{url}: {failure}")))?;
        if status.is_success() {
            return Ok(said.to_vec());
        }
        Err(other(format!("{url}: {status}: {}", String::from_utf8_lossy(&said))))
    })
}

fn show(said: &[u8], as_json: bool) -> Result<ExitCode, Failed> {
    // In the order of the question, which a plain map would lose.
    let answer: weir_graphql::Value = serde_json::from_slice(said).map_err(other)?;
    let weir_graphql::Value::Object(fields) = &answer else { return Err(other("the answer is no object")) };
    let errors = fields.get("errors").is_some();
    let none = if errors { None } else { fields.get("data").and_then(without_answer) };
    if as_json {
        say(format!("{}\n", serde_json::to_string_pretty(&answer).map_err(other)?)).map_err(other)?;
    } else {
        if let Some(data) = fields.get("data").filter(|_| none.is_none()) {
            say(render(data)).map_err(other)?;
        }
        let told: Value = serde_json::from_slice(said).map_err(other)?;
        for error in told["errors"].as_array().into_iter().flatten() {
            let code = error["extensions"]["code"].as_str().unwrap_or("ERROR");
            eprintln!("{code}: {}", error["message"].as_str().unwrap_or_default());
        }
    }
    if let Some(field) = none {
        return Err(Failed::Other(format!("{field}: there is none")));
    }
    Ok(if errors { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The only field of an answer, if it is null: what was asked for is not there.
fn without_answer(data: &weir_graphql::Value) -> Option<String> {
    let weir_graphql::Value::Object(fields) = data else { return None };
    let mut fields = fields.iter();
    match (fields.next(), fields.next()) {
        (Some((name, weir_graphql::Value::Null)), None) => Some(name.to_string()),
        _ => None,
    }
}
