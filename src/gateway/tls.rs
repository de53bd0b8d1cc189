//! TLS for the listeners: certificates that can be exchanged while it runs, and clients that show theirs.
//!
//! TLS 1.2 and 1.3 by rustls. A connection keeps what it was accepted with; the next one has what was read last.
//! Not here: what the names in a client's certificate are good for (`auth`).

use super::auth::Peer;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// Where the certificates are, and what is asked of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Our chain, our own certificate first (PEM).
    pub cert: PathBuf,
    /// Its key (PEM).
    pub key: PathBuf,
    /// The authorities of client certificates (PEM), if clients are asked for one.
    pub client_ca: Option<PathBuf>,
    /// Is a client without a certificate turned away in the handshake?
    pub client_required: bool,
    /// The longest that a handshake may take.
    pub handshake_max: Duration,
}

/// Why TLS cannot be spoken as it is set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read, or holds no such thing.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: String,
        /// What is wrong.
        error: String,
    },
    /// Certificate and key, or the authorities, cannot be used together.
    #[error("weir.gateway.tls: {0}")]
    Unusable(String),
}

/// Which protocols a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// HTTP/1.1.
    Http,
    /// HTTP/2 alone.
    Grpc,
}

#[derive(Debug)]
struct Configs {
    http: Arc<ServerConfig>,
    grpc: Arc<ServerConfig>,
    handshake_max: Duration,
}

/// TLS as it is spoken now.
#[derive(Debug)]
pub struct Tls {
    configs: RwLock<Configs>,
}

/// A connection after its handshake.
pub struct Accepted<S> {
    /// The stream of what was encrypted.
    pub stream: TlsStream<S>,
    /// Who the client is by its certificate, if it showed one.
    pub peer: Option<Arc<Peer>>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// One cannot be read or used.
    pub fn load(options: &TlsOptions) -> Result<Self, TlsError> {
        Ok(Tls { configs: RwLock::new(configs(options)?) })
    }

    /// Reads the files again, for the connections to come.
    ///
    /// # Errors
    /// One cannot be read or used; then nothing changes.
    pub fn reload(&self, options: &TlsOptions) -> Result<(), TlsError> {
        let new = configs(options)?;
        *self.configs.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// The handshake. `None`: it failed, or took too long; the other side knows why.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        protocols: Protocols,
    ) -> Option<Accepted<S>> {
        let (acceptor, handshake_max) = {
            let configs = self.configs.read().unwrap_or_else(PoisonError::into_inner);
            let config = match protocols {
                Protocols::Http => &configs.http,
                Protocols::Grpc => &configs.grpc,
            };
            (TlsAcceptor::from(Arc::clone(config)), configs.handshake_max)
        };
        match tokio::time::timeout(handshake_max, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let peer = peer(&stream).map(Arc::new);
                Some(Accepted { stream, peer })
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!("a TLS handshake took too long");
                None
            }
        }
    }
}

/// The names in the client's certificate.
fn peer<S>(stream: &TlsStream<S>) -> Option<Peer> {
    let certificate = stream.get_ref().1.peer_certificates()?.first()?;
    // It was verified in the handshake, so that it can be read.
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let names =
        certificate.valid_uri_names().chain(certificate.valid_dns_names()).map(str::to_owned).collect();
    Some(Peer { names })
}

fn configs(options: &TlsOptions) -> Result<Configs, TlsError> {
    let unusable = |error: &dyn std::fmt::Display| TlsError::Unusable(error.to_string());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?;
    let builder = match &options.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for authority in certificates(path)? {
                roots.add(authority).map_err(|error| file(path, &error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if options.client_required { verifier } else { verifier.allow_unauthenticated() };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| unusable(&error))?)
        }
    };
    let chain = certificates(&options.cert)?;
    let key = PrivateKeyDer::from_pem_file(&options.key).map_err(|error| file(&options.key, &error))?;
    let mut http = builder.with_single_cert(chain, key).map_err(|error| unusable(&error))?;
    let mut grpc = http.clone();
    http.alpn_protocols = vec![b"http/1.1".to_vec()];
    grpc.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Configs { http: Arc::new(http), grpc: Arc::new(grpc), handshake_max: options.handshake_max })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let read = read.map_err(|error| file(path, &error))?;
    if read.is_empty() {
        return Err(file(path, &"holds no certificate (PEM)"));
    }
    Ok(read)
}

fn file(path: &Path, error: &dyn std::fmt::Display) -> TlsError {
    TlsError::File { path: path.display().to_string(), error: error.to_string() }
}
