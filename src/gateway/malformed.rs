//! Heads that hyper refuses by itself, answered as everything else is: `application/problem+json` with the reason.
//!
//! hyper answers a head that is no HTTP, or beyond its bounds, with a status and nothing else, and closes. No handler is
//! asked, so what it writes is exchanged on its way out. It is known by its shape: a whole head of one of three statuses
//! with no body and no header but its own. A handler's answer of that shape (an upstream's, passed on) stands: from then
//! on that connection is left alone.

use super::answer;
use super::json::Object;
use super::options::Options;
use super::problem::Fault;
use axum::response::Response;
use http::StatusCode;
use hyper::body::Body as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The statuses that hyper answers with by itself.
const OWN: [StatusCode; 3] =
    [StatusCode::BAD_REQUEST, StatusCode::URI_TOO_LONG, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE];

/// The longest head that hyper writes by itself: a status, a length, a date, `connection`.
const HEAD_MAX: usize = 256;

/// Whether a handler has answered in that shape.
#[derive(Clone, Debug, Default)]
pub struct Handlers(Arc<AtomicBool>);

impl Handlers {
    /// Looks at a handler's answer.
    pub fn seen(&self, response: &Response) {
        if OWN.contains(&response.status()) && response.body().size_hint().exact() == Some(0) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// What hyper writes to, in place of the stream itself.
#[derive(Debug)]
pub struct Worded<S> {
    stream: S,
    handlers: Handlers,
    bounds: (usize, usize),
    /// What goes out instead, how much of it has gone, and how much hyper believes to have written then.
    instead: Option<(Vec<u8>, usize, usize)>,
}

impl<S> Worded<S> {
    /// Over a stream.
    pub fn new(stream: S, handlers: Handlers, options: &Options) -> Self {
        let bounds = (options.head_bytes_max, options.headers_max);
        Worded { stream, handlers, bounds, instead: None }
    }

    /// What shall go out in place of `bytes`, if that is an answer of hyper's own.
    fn instead_of(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        if bytes.get(9) != Some(&b'4')
            || bytes.len() > HEAD_MAX
            || !bytes.starts_with(b"HTTP/1.")
            || self.handlers.0.load(Ordering::Relaxed)
        {
            return None;
        }
        let (line, rest) = std::str::from_utf8(bytes).ok()?.strip_suffix("\r\n\r\n")?.split_once("\r\n")?;
        let status = line.get(9..12).and_then(|code| code.parse::<StatusCode>().ok())?;
        let own = |header: &str| {
            let header = header.to_ascii_lowercase();
            header == "content-length: 0" || header == "connection: close" || header.starts_with("date: ")
        };
        if !OWN.contains(&status) || !rest.split("\r\n").all(own) || !rest.contains("ength: 0") {
            return None;
        }
        let (bytes, headers) = self.bounds;
        let what = match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => {
                format!("the head of the request is over {bytes} bytes, or has more than {headers} headers")
            }
            StatusCode::URI_TOO_LONG => "the target of the request is over 65534 bytes".to_owned(),
            _ => "the head of the request is no HTTP/1.1: method, target, version, names and values of headers without \
                  control characters, one content-length or transfer-encoding"
                .to_owned(),
        };
        Some(written(&Fault::Head { status, what }, status))
    }

    fn poll_instead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>
    where
        S: AsyncWrite + Unpin,
    {
        let Some((bytes, gone, claimed)) = &mut self.instead else { return Poll::Ready(Ok(0)) };
        while *gone < bytes.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, &bytes[*gone..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *gone += written,
            }
        }
        let claimed = *claimed;
        self.instead = None;
        Poll::Ready(Ok(claimed))
    }
}

/// An answer as it stands on the wire; the connection ends with it.
fn written(fault: &Fault, status: StatusCode) -> Vec<u8> {
    let (_, reason, llm_d) = answer::fault_status(fault);
    let title = status.canonical_reason().unwrap_or("Error");
    let body = answer::fault_members(Object::new(), fault, None).finish();
    let mut bytes = format!(
        "HTTP/1.1 {} {title}\r\ncontent-type: application/problem+json\r\n{}: {reason}\r\n{}: {llm_d}\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        status.as_u16(),
        answer::DROPPED,
        answer::LLM_D_DROPPED,
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(&body);
    bytes
}

impl<S: AsyncRead + Unpin> AsyncRead for Worded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Worded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.instead.is_none() {
            match self.instead_of(buf) {
                None => return Pin::new(&mut self.stream).poll_write(cx, buf),
                Some(bytes) => self.instead = Some((bytes, 0, buf.len())),
            }
        }
        self.poll_instead(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let alone = match bufs {
            [one] => Some(&**one),
            _ => None,
        };
        match (alone, self.instead.is_some()) {
            (Some(one), _) => self.poll_write(cx, one),
            (None, true) => self.poll_instead(cx),
            (None, false) => Pin::new(&mut self.stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    async fn through(bytes: &[u8], handlers: Handlers) -> String {
        // Smaller than an answer, so that it goes out in parts.
        let (near, mut far) = duplex(16);
        let mut worded = Worded::new(near, handlers, &Options::default());
        let reading = tokio::spawn(async move {
            let mut text = String::new();
            far.read_to_string(&mut text).await.unwrap();
            text
        });
        worded.write_all(bytes).await.unwrap();
        worded.shutdown().await.unwrap();
        drop(worded);
        reading.await.unwrap()
    }

    const BARE: &str = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\ndate: x\r\n\r\n";

    #[tokio::test]
    async fn what_hyper_says_by_itself_gets_words() {
        let text = through(BARE.as_bytes(), Handlers::default()).await;
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains("\r\nx-weir-dropped-reason: rejected-invalid\r\n"), "{head}");
        assert!(head.contains(&format!("\r\ncontent-length: {}\r\n", body.len())), "{head}");
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&problem["status"], &problem["reason"]), (&431.into(), &"rejected-invalid".into()));
        assert!(problem["detail"].as_str().unwrap().contains("65536 bytes"), "{problem}");
    }

    #[tokio::test]
    async fn what_handlers_say_stays() {
        for other in [
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nx-upstream: a\r\n\r\n",
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\ndate: x\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\ndate: x\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nHTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
            "data",
            "",
        ] {
            assert_eq!(through(other.as_bytes(), Handlers::default()).await, other);
        }
        let handlers = Handlers::default();
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::BAD_REQUEST;
        handlers.seen(&Response::new(Body::empty()));
        assert_ne!(through(BARE.as_bytes(), handlers.clone()).await, BARE);
        handlers.seen(&response);
        assert_eq!(through(BARE.as_bytes(), handlers).await, BARE);
    }
}
