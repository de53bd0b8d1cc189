//! Goal: the binary behind TLS: who shows a certificate or a token may do what its entry says, certificates are exchanged
//! while it runs, and beyond loopback nobody is let in unasked.

use crate::binary::{Served, replace, settings};
use crate::harness::PATIENCE;
use crate::kept::Kept;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Authority {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// Certificate and key (PEM), with these names.
fn issue(authority: &Authority, uri: Option<&str>, dns: &str) -> (String, String) {
    let mut params = CertificateParams::new(vec![dns.to_owned()]).unwrap();
    params.subject_alt_names.extend(uri.map(|uri| SanType::URI(uri.try_into().unwrap())));
    let key = KeyPair::generate().unwrap();
    (params.signed_by(&key, authority).unwrap().pem(), key.serialize_pem())
}

fn write_server(dir: &Path, authority: &Authority, dns: &str) {
    let (cert, key) = issue(authority, None, dns);
    std::fs::write(dir.join("key.pem"), key).unwrap();
    std::fs::write(dir.join("cert.pem"), cert).unwrap();
}

/// How a client of a test speaks TLS.
struct Client {
    roots: Vec<String>,
    own: Option<(String, String)>,
    alpn: &'static str,
}

impl Client {
    fn new(authority: &Authority, own: Option<(String, String)>) -> Self {
        Client { roots: vec![authority.pem()], own, alpn: "http/1.1" }
    }

    async fn connect(&self, addr: SocketAddr, name: &'static str) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        for root in &self.roots {
            roots.add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap()).unwrap();
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.own {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(chain, key).unwrap()
            }
        };
        config.alpn_protocols = vec![self.alpn.into()];
        let stream = TcpStream::connect(addr).await?;
        let name = ServerName::try_from(name).unwrap();
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// Status and body of one call; 0: there was none.
    async fn call(&self, addr: SocketAddr, method: &str, path: &str, token: Option<&str>) -> (u16, String) {
        let all = async {
            let Ok(mut stream) = self.connect(addr, "weir.test").await else { return (0, String::new()) };
            let token = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
            let ask = format!(
                "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 0\r\n{token}\r\n"
            );
            let mut text = Vec::new();
            // With TLS 1.3 a client hears only now that its certificate was missing.
            if stream.write_all(ask.as_bytes()).await.is_err() {
                return (0, String::new());
            }
            let _ = stream.read_to_end(&mut text).await;
            let text = String::from_utf8(text).unwrap();
            let status = text.get(9..12).and_then(|status| status.parse().ok()).unwrap_or(0);
            (status, text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
        };
        tokio::time::timeout(PATIENCE, all).await.unwrap()
    }

    /// The gRPC status of an ext_authz check, `None` if there is no connection.
    async fn check(&self, addr: SocketAddr, token: Option<&str>) -> Option<i32> {
        let stream = self.connect(addr, "weir.test").await.ok()?;
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.ok()?;
        tokio::spawn(connection);
        let mut request = http::Request::post("https://t/envoy.service.auth.v3.Authorization/Check")
            .header("te", "trailers")
            .header("content-type", "application/grpc");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Full::new(bytes::Bytes::from_static(&[0; 5]))).unwrap();
        let response = tokio::time::timeout(PATIENCE, sender.send_request(request)).await.unwrap().ok()?;
        let early = response.headers().get("grpc-status").cloned();
        let trailers = response.into_body().collect().await.ok()?.trailers().cloned().unwrap_or_default();
        let status = early.or_else(|| trailers.get("grpc-status").cloned())?;
        status.to_str().unwrap().parse().ok()
    }
}

const TLS: &str = "cert: cert.pem, key: key.pem";

fn served(dir: Kept, tls: &str, auth: &str, more: &[&str]) -> Served {
    let text =
        settings(&format!("{{drainTimeout: 0s, gateway: {{headTimeout: 60s, tls: {{{tls}}}}}, {auth}}}"), "");
    Served::start_in(dir, &text, more)
}

fn token(args: &[&str]) -> (String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(["token", "new"]).args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (token, entry) = text.split_once("\n\n").unwrap();
    let entry = entry.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    (token.to_owned(), entry)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_serves_over_tls_and_takes_other_certificates_while_it_runs() {
    let (ca, next) = (authority(), authority());
    let dir = crate::kept::tempdir().unwrap();
    write_server(dir.path(), &ca, "weir.test");
    let mut served = served(dir, &format!("{TLS}, handshakeTimeout: 4s"), "", &[]);
    served.said("listens on https://127.0.0.1:");
    let client = Client::new(&ca, None);
    assert_eq!(client.call(served.addr, "GET", "/healthz", None).await.0, 200);
    // What was written with TLS on is read with nothing else, and whoever does not go on is let go.
    let mut plain = TcpStream::connect(served.addr).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").await.unwrap();
    let mut silent = TcpStream::connect(served.addr).await.unwrap();
    for stream in [&mut plain, &mut silent] {
        let mut got = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut got)).await.expect("not let go");
        assert!(!got.starts_with(b"HTTP/"), "{got:?}");
    }
    // A connection that is open stays so over the exchange.
    let mut kept = client.connect(served.addr, "weir.test").await.unwrap();
    std::fs::write(served.dir.path().join("cert.pem"), "no certificate").unwrap();
    served.said("tokens and certificates are not changed");
    assert_eq!(client.call(served.addr, "GET", "/healthz", None).await.0, 200, "the old one holds");
    write_server(served.dir.path(), &next, "weir.test");
    let renewed = Client::new(&next, None);
    served
        .until("the new certificate", async || {
            renewed.call(served.addr, "GET", "/healthz", None).await.0 == 200
        })
        .await;
    assert_eq!(client.call(served.addr, "GET", "/healthz", None).await.0, 0, "the old one is gone");
    kept.write_all(b"GET /healthz HTTP/1.1\r\nhost: t\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    kept.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    served.signal("TERM");
    assert_eq!(served.ended(), Some(0));
}

/// A certificate of the authority is enough where there is no tokens file; without one nobody comes in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_the_authority_may_do_everything_where_there_are_no_tokens() {
    let (ca, other) = (authority(), authority());
    let dir = crate::kept::tempdir().unwrap();
    write_server(dir.path(), &ca, "weir.test");
    std::fs::write(dir.path().join("ca.pem"), ca.pem()).unwrap();
    // Whoever is asked who it is may come from afar.
    let served = served(dir, &format!("{TLS}, clientCa: ca.pem"), "", &["--listen", "0.0.0.0:0"]);
    served.said("callers: known by token or certificate");
    let addr = SocketAddr::from(([127, 0, 0, 1], served.addr.port()));
    let known = Client::new(&ca, Some(issue(&ca, None, "a.test")));
    assert_eq!(known.call(addr, "GET", "/v1/pools", None).await.0, 200);
    assert_eq!(
        known.call(addr, "GET", "/v1/pools", Some("weir_none")).await.0,
        401,
        "a wrong token is no better"
    );
    for stranger in [None, Some(issue(&other, None, "a.test"))] {
        assert_eq!(Client::new(&ca, stranger).call(addr, "GET", "/healthz", None).await.0, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_in_certificates_and_tokens_have_their_scopes_over_http_and_grpc() {
    let ca = authority();
    let dir = crate::kept::tempdir().unwrap();
    write_server(dir.path(), &ca, "weir.test");
    std::fs::write(dir.path().join("ca.pem"), ca.pem()).unwrap();
    let (reader, reader_entry) = token(&["--name", "reader", "--scope", "read"]);
    let (writer, writer_entry) = token(&["--name", "writer", "--scope", "pool,admit"]);
    let certificates =
        "certificates:\n  - {name: envoy, san: \"spiffe://weir.test/envoy\", scopes: [admit]}\n";
    let tokens = format!("tokens:\n{reader_entry}{writer_entry}{certificates}");
    std::fs::write(dir.path().join("tokens.yaml"), &tokens).unwrap();
    let grpc_port = dir.path().join("grpc");
    let served = served(
        dir,
        &format!("{TLS}, clientCa: ca.pem, clientCertificate: optional"),
        "auth: {tokensFile: tokens.yaml}",
        &["--grpc-listen", "127.0.0.1:0", "--grpc-port-file", grpc_port.to_str().unwrap()],
    );
    let addr = served.addr;
    // It may be there and not be written yet.
    let written = || std::fs::read_to_string(&grpc_port).ok()?.parse::<SocketAddr>().ok();
    served.until("the gRPC port", async || written().is_some()).await;
    let grpc = written().unwrap();
    let nobody = Client::new(&ca, None);
    let envoy = Client::new(&ca, Some(issue(&ca, Some("spiffe://weir.test/envoy"), "e.test")));
    let other = Client::new(&ca, Some(issue(&ca, Some("spiffe://weir.test/other"), "o.test")));
    for (client, token, method, path, want) in [
        (&nobody, None, "GET", "/healthz", 200),
        (&nobody, None, "GET", "/v1/pools", 401),
        (&nobody, Some(&*reader), "GET", "/v1/pools", 200),
        (&nobody, Some(&*reader), "DELETE", "/v1/admissions/default-1", 403),
        (&other, None, "GET", "/v1/pools", 401),
        (&other, Some(&*reader), "GET", "/v1/pools", 200),
        (&envoy, None, "DELETE", "/v1/admissions/default-1", 404),
        (&envoy, None, "GET", "/v1/pools", 403),
        (&envoy, Some(&*reader), "GET", "/v1/pools", 200),
        (&envoy, Some(&*reader), "DELETE", "/v1/admissions/default-1", 403),
    ] {
        let (status, body) = client.call(addr, method, path, token).await;
        assert_eq!(status, want, "{method} {path} {token:?}: {body}");
    }
    let grpc_client = |client: Client| Client { alpn: "h2", ..client };
    let (nobody, envoy) = (grpc_client(nobody), grpc_client(envoy));
    assert_eq!(nobody.check(grpc, None).await, Some(16));
    assert_eq!(nobody.check(grpc, Some("weir_none")).await, Some(16));
    assert_eq!(nobody.check(grpc, Some(&reader)).await, Some(7));
    // The pool has not been seen: what passes is held, until it has.
    let passing =
        tokio::spawn(async move { (envoy.check(grpc, None).await, nobody.check(grpc, Some(&writer)).await) });
    served.until("an arrival", async || served_queue(&served, &ca, &reader).await == 1).await;
    drop(passing);
    // Taken from the file, a token is nothing.
    replace(&served.dir.path().join("tokens.yaml"), certificates);
    let plain = Client::new(&ca, None);
    served
        .until("the token to be refused", async || {
            plain.call(addr, "GET", "/v1/pools", Some(&reader)).await.0 == 401
        })
        .await;
    // A file that is not valid changes nothing, and shows nothing of what is in it.
    replace(&served.dir.path().join("tokens.yaml"), &format!("tokens: [{{name: a, sha256: {reader}}}]"));
    served.signal("HUP");
    let said = served.said("changed");
    assert!(!said.contains(&reader), "{said}");
}

async fn served_queue(served: &Served, ca: &Authority, reader: &str) -> u64 {
    let client = Client::new(ca, None);
    let (_, body) = client.call(served.addr, "GET", "/v1/pools/default", Some(reader)).await;
    serde_json::from_str::<Value>(&body).unwrap()["queue"]["requests"].as_u64().unwrap()
}

/// Beyond loopback somebody is asked who it is, or it is meant and said.
#[test]
fn beyond_loopback_nobody_is_let_in_unasked() {
    let dir = crate::kept::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--listen", "0.0.0.0:0", "--data", "data"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success(), "{error}");
    for words in ["0.0.0.0:0", "weir.auth.tokensFile", "--insecure"] {
        assert!(error.contains(words), "{words} in {error}");
    }
    assert!(!dir.path().join("data").exists(), "nothing was opened");
    for _start in 0..2 {
        let mut served = Served::start_in(
            crate::kept::tempdir().unwrap(),
            &settings("{}", ""),
            &["--listen", "0.0.0.0:0", "--insecure"],
        );
        // One is said on the standard output, the other on the error output: in no order.
        served.said_all(&["--insecure: whoever reaches", "callers: anybody, everything"]);
        served.signal("TERM");
        assert_eq!(served.ended(), Some(0));
    }
}

/// Nobody is left alone with the door open: a reload that would do so is refused.
#[test]
fn a_reload_does_not_open_the_door() {
    let dir = crate::kept::tempdir().unwrap();
    std::fs::write(dir.path().join("tokens.yaml"), "tokens: []").unwrap();
    let with = settings("{auth: {tokensFile: tokens.yaml}}", "");
    let served = Served::start_in(dir, &with, &["--listen", "0.0.0.0:0"]);
    served.write(&settings("{}", ""));
    let said = served.said("not all settings could be changed");
    assert!(said.contains("beyond loopback"), "{said}");
}

/// The log of a running server that knows its callers is for those who say who they are.
#[test]
fn the_log_of_a_running_server_takes_a_token() {
    let (secret, entry) = token(&["--name", "reader", "--scope", "read"]);
    let dir = crate::kept::tempdir().unwrap();
    std::fs::write(dir.path().join("tokens.yaml"), format!("tokens:\n{entry}")).unwrap();
    let served = Served::start_in(dir, &settings("{auth: {tokensFile: tokens.yaml}}", ""), &[]);
    let cat = |scheme: &str, token: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(["log", "cat", "--server", &format!("{scheme}://{}", served.addr)])
            .env_remove("WEIR_TOKEN");
        if let Some(token) = token {
            command.env("WEIR_TOKEN", token);
        }
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (ok, said) = cat("http", None);
    assert!(!ok && said.contains("401"), "{said}");
    let began = Instant::now();
    let said = loop {
        let (ok, said) = cat("http", Some(&secret));
        assert!(ok && !said.contains(&secret), "{said}");
        // It serves from its start on, and its first steps are durable soon after.
        if said.contains("PolicyAdopted") || began.elapsed() > PATIENCE {
            break said;
        }
    };
    assert!(said.contains("PolicyAdopted"), "{said}");
    let (ok, said) = cat("https", Some(&secret));
    assert!(!ok && said.contains("allowed: http://HOST:PORT"), "{said}");
}

#[test]
fn token_files_are_checked_and_tokens_are_never_shown_again() {
    let dir = crate::kept::tempdir().unwrap();
    let file = dir.path().join("tokens.yaml");
    let (secret, entry) = token(&["--name", "n", "--scope", "admit", "--max-priority", "-2", "--pool", "p"]);
    assert!(
        secret.starts_with("weir_") && !entry.contains(&secret) && entry.contains("maxPriority: -2"),
        "{entry}"
    );
    let check = |text: String| {
        std::fs::write(&file, text).unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(["token", "check"]).arg(&file).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let (ok, said) = check(format!("tokens:\n{entry}"));
    assert!(ok && said.contains("tokens: 1"), "{said}");
    let (ok, said) = check(format!("tokens:\n{}", entry.replace("admit", "write")));
    assert!(!ok && said.contains("tokens.yaml, line") && said.contains("admit, pool, read, admin"), "{said}");
    let (ok, said) = check(format!("tokens: [{{name: n, sha256: {secret}, scopes: [admit]}}]"));
    assert!(!ok && !said.contains(&secret), "{said}");
    let wrong = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["token", "new", "--name", "n", "--scope", "all"])
        .output();
    assert!(String::from_utf8(wrong.unwrap().stderr).unwrap().contains("admit, pool, read, admin"));
}
