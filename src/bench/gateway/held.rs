//! The held admission over HTTP/1.1 with its completion, beside an axum handler that reads the same requests and answers
//! with as many bytes.

use super::turn;
use axum::Router;
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use std::io;
use std::net::SocketAddr;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the bare handlers answer: as long as an admission and a completion.
const BARE_ADMISSION: &str = r#"{"admission":{"id":"default-1234567","requestId":"bench-00000000","pool":"default","outcome":"Dispatched","sequence":1234567,"queuedMs":0,"priority":0,"flow":"tenant-00"}}"#;
const BARE_COMPLETION: &str = r#"{"id":"default-1234567","state":"completed","sequence":1234568}"#;

/// The twin; it ends with the runtime.
pub async fn bare() -> io::Result<SocketAddr> {
    let json = [("content-type", "application/json")];
    let admit = post(move |_: Bytes| async move { (json, BARE_ADMISSION) });
    let complete = post(move |_: Bytes| async move { (json, BARE_COMPLETION) });
    let app = Router::new().route("/v1/admissions", admit).route("/v1/admissions/{id}/complete", complete);
    serve(app).await
}

/// Serves a twin until the runtime ends.
pub async fn serve(app: Router) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(addr)
}

/// Callers of a server.
pub struct Callers(pub SocketAddr);

impl turn::Callers for Callers {
    /// The admission and its completion.
    const REQUESTS: f64 = 2.0;
    type Caller = Caller;

    async fn open(&self, number: usize) -> io::Result<Caller> {
        Caller::open(self.0, number, "application/json").await
    }
}

/// One connection that admits and completes in turn.
pub struct Caller {
    stream: TcpStream,
    buffer: Vec<u8>,
    admission: Vec<u8>,
    completion: Vec<u8>,
}

impl Caller {
    async fn open(addr: SocketAddr, number: usize, accept: &str) -> io::Result<Caller> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let admission = admission(number, accept);
        Ok(Caller { stream, buffer: Vec::with_capacity(4_096), admission, completion: Vec::new() })
    }
    /// Reads one answer; where it ends in the buffer.
    async fn answer(&mut self) -> io::Result<usize> {
        loop {
            if let Some(end) = whole(&self.buffer)? {
                return Ok(end);
            }
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed within an answer"));
            }
        }
    }
}

impl turn::Caller for Caller {
    async fn round(&mut self) -> io::Result<Instant> {
        self.stream.write_all(&self.admission).await?;
        let end = self.answer().await?;
        let answered = Instant::now();
        completion(id(&self.buffer[..end])?, &mut self.completion);
        self.buffer.clear();
        self.stream.write_all(&self.completion).await?;
        self.answer().await?;
        self.buffer.clear();
        Ok(answered)
    }
}

/// An admission of one of sixteen tenants.
pub fn admission(number: usize, accept: &str) -> Vec<u8> {
    let body = format!(r#"{{"fairnessId":"tenant-{:02}","bytes":1024,"promptTokens":256}}"#, number % 16);
    let request = format!(
        "POST /v1/admissions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\naccept: {accept}\r\n\
         x-request-id: bench-{number:08}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    request.into_bytes()
}

/// The completion of an admission.
pub fn completion(id: &[u8], to: &mut Vec<u8>) {
    to.clear();
    to.extend_from_slice(b"POST /v1/admissions/");
    to.extend_from_slice(id);
    to.extend_from_slice(b"/complete HTTP/1.1\r\nhost: bench\r\ncontent-length: 0\r\n\r\n");
}

/// An answer that is not what was awaited.
pub fn broken(what: &str, found: &[u8]) -> io::Error {
    let found = String::from_utf8_lossy(found).into_owned();
    io::Error::new(io::ErrorKind::InvalidData, format!("{what}: {found}"))
}

/// The end of the answer in the buffer, once all of it is there. Anything but 200 is an error.
pub fn whole(buffer: &[u8]) -> io::Result<Option<usize>> {
    let Some(head) = find(buffer, b"\r\n\r\n") else { return Ok(None) };
    if !buffer.starts_with(b"HTTP/1.1 200") {
        return Err(broken("not admitted", buffer));
    }
    let name = b"content-length: ";
    let at = find(&buffer[..head], name).ok_or_else(|| broken("no length", buffer))? + name.len();
    let digits = buffer[at..head].iter().take_while(|byte| byte.is_ascii_digit());
    let length = digits.fold(0usize, |sum, digit| 10 * sum + usize::from(digit - b'0'));
    Ok((buffer.len() >= head + 4 + length).then_some(head + 4 + length))
}

/// The id in an admission's answer.
pub fn id(answer: &[u8]) -> io::Result<&[u8]> {
    let name = b"\"id\":\"";
    let at = find(answer, name).ok_or_else(|| broken("no id", answer))? + name.len();
    let length = find(&answer[at..], b"\"").ok_or_else(|| broken("no id", answer))?;
    Ok(&answer[at..at + length])
}

/// Where something begins.
pub fn find(within: &[u8], what: &[u8]) -> Option<usize> {
    within.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole() {
        let text =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{BARE_ADMISSION}", BARE_ADMISSION.len());
        for cut in 0..text.len() {
            assert!(whole(&text.as_bytes()[..cut]).unwrap().is_none(), "{cut}");
        }
        assert_eq!(whole(text.as_bytes()).unwrap(), Some(text.len()));
        assert_eq!(id(text.as_bytes()).unwrap(), b"default-1234567");
        assert!(whole(b"HTTP/1.1 503 no\r\ncontent-length: 0\r\n\r\n").is_err());
    }
}
