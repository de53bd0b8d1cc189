//! The steps of a running server, from `GET /v1/pools/{pool}/log`.

use super::filter::{Filter, Sieve};
use super::table::{Printer, Style};
use super::{Done, error::Failed};
use crate::load::{Answer, Client};
use bytes::{Buf, Bytes, BytesMut};
use http::Method;
use std::collections::VecDeque;
use std::io::{Write, stdout};
use std::process::ExitCode;
use weir_kernel::Step;
use weir_log::reader::Bound;

/// The longest line that is read. A step is far smaller.
const LINE_MAX: usize = 64 << 20;

/// What is asked of a server.
#[derive(Debug)]
pub struct Server {
    /// Its address.
    pub url: String,
    /// What it asks callers for.
    pub token: Option<String>,
    /// The steps to come, too.
    pub follow: bool,
    /// Only the last ones.
    pub lines: Option<usize>,
}

/// Prints the steps that the server has, and with `follow` those to come.
pub fn run(server: &Server, filter: &Filter, json: bool) -> Done {
    let (from, to) = filter.range()?;
    if matches!(from, Bound::Time(_)) {
        let text = "a running server takes --from as a sequence; times can be asked of a data directory";
        return Err(Failed::Other(text.to_owned()));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let pool = filter.pool.as_deref().unwrap_or("default");
        let mut printer = Printer::new(stdout().lock(), Style { json, pools: false });
        let mut view = View { sieve: Sieve::new(filter), to, left: filter.limit.unwrap_or(usize::MAX), pool };
        let mut next = match from {
            Bound::Seq(seq) => Some(seq),
            Bound::Open | Bound::Time(_) => None,
        };
        // What there is comes first: without `follow` the answer ends there.
        let mut kept: VecDeque<Step> = VecDeque::new();
        let mut answer = ask(server, pool, next, false).await?;
        while let Some(step) = answer.step().await? {
            next = Some(step.seq + 1);
            match server.lines {
                Some(lines) => {
                    if view.sieve.lets_through(&step) {
                        kept.push_back(step);
                    }
                    while kept.len() > lines {
                        kept.pop_front();
                    }
                }
                None if view.print(&mut printer, &step, true)? => {}
                None => return Ok(ExitCode::SUCCESS),
            }
        }
        for step in kept {
            view.print(&mut printer, &step, false)?;
        }
        printer.flush()?;
        view.left = usize::MAX;
        if server.follow {
            let mut answer = ask(server, pool, next, true).await?;
            while let Some(step) = answer.step().await? {
                if !view.print(&mut printer, &step, true)? {
                    break;
                }
                printer.flush()?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// What is shown, and how much more of it.
struct View<'a> {
    sieve: Sieve<'a>,
    to: Bound,
    left: usize,
    pool: &'a str,
}

impl View<'_> {
    /// Prints a step if it is asked for; false once nothing more is.
    fn print<W: Write>(
        &mut self,
        printer: &mut Printer<W>,
        step: &Step,
        sieve: bool,
    ) -> Result<bool, Failed> {
        if self.left == 0 || self.to.excludes_after(step.seq, step.at) {
            return Ok(false);
        }
        if !sieve || self.sieve.lets_through(step) {
            printer.step(self.pool, step)?;
            self.left -= 1;
        }
        Ok(self.left > 0)
    }
}

/// An answer, line by line.
struct Lines {
    answer: Answer,
    url: String,
    buffer: BytesMut,
}

async fn ask(server: &Server, pool: &str, from: Option<u64>, follow: bool) -> Result<Lines, Failed> {
    let mut url = format!("{}/v1/pools/{pool}/log?follow={follow}", server.url.trim_end_matches('/'));
    if let Some(from) = from {
        url.push_str(&format!("&from={from}"));
    }
    let failed = |failure| Failed::Server { url: url.clone(), failure };
    let bearer = server.token.as_ref().map(|token| format!("Bearer {token}"));
    let headers: Vec<(&'static str, &str)> =
        bearer.iter().map(|bearer| ("x-weir-authorization", bearer.as_str())).collect();
    let answer = Client::default().send(Method::GET, &url, &headers, Bytes::new()).await.map_err(failed)?;
    if !answer.status.is_success() {
        let status = answer.status.as_u16();
        let said = answer.whole().await.map_err(failed)?;
        return Err(Failed::Refused { url, status, said: words(&said) });
    }
    Ok(Lines { answer, url, buffer: BytesMut::new() })
}

/// What a problem document says, or else its text.
fn words(body: &[u8]) -> String {
    let document: Option<serde_json::Value> = serde_json::from_slice(body).ok();
    let field = |name: &str| document.as_ref()?.get(name)?.as_str().map(str::to_owned);
    field("detail").or_else(|| field("title")).unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}

impl Lines {
    /// The next step; none at the end of the answer.
    async fn step(&mut self) -> Result<Option<Step>, Failed> {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line = self.buffer.split_to(end);
                self.buffer.advance(1);
                if line.iter().all(u8::is_ascii_whitespace) {
                    continue;
                }
                return self.parse(&line).map(Some);
            }
            if self.buffer.len() > LINE_MAX {
                return Err(Failed::Other(format!("{}: a line over {LINE_MAX} bytes", self.url)));
            }
            let failed = |failure| Failed::Server { url: self.url.clone(), failure };
            match self.answer.piece().await.map_err(failed)? {
                Some(piece) => self.buffer.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }

    fn parse(&self, line: &[u8]) -> Result<Step, Failed> {
        serde_json::from_slice(line).map_err(|error| {
            let value: Option<serde_json::Value> = serde_json::from_slice(line).ok();
            let gap = value.as_ref().and_then(|value| value.get("gap"));
            Failed::Other(match gap {
                Some(gap) => {
                    format!("{}: we were too slow, and the server no longer has these steps: {gap}", self.url)
                }
                None => format!("{}: not a step: {error}", self.url),
            })
        })
    }
}
