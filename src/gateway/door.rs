//! What stands at the door of a service, from its settings: who may do what, and TLS. Read at the start and again later.
//!
//! With neither tokens nor client certificates everybody may do everything, which is refused where more than this
//! machine can reach an address.

use super::auth::{self, Access, FileError};
use super::state::Gateway;
use super::tls::{Tls, TlsError, TlsOptions};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use weir_config::{Settings, TlsSettings};

/// Why nobody is let in.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The tokens file is not taken.
    #[error(transparent)]
    Tokens(#[from] FileError),
    /// Certificates, key or authorities are not taken.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Everybody could do everything.
    #[error(
        "listen {0}: beyond loopback, with neither weir.auth.tokensFile nor weir.gateway.tls.clientCa, whoever reaches it \
         may do everything; set one of them (weir token new makes tokens), or give --insecure if that is meant"
    )]
    Exposed(SocketAddr),
}

/// What is at the door.
#[derive(Debug)]
pub struct Door {
    access: Option<Access>,
    tls: Option<Tls>,
}

/// Reads what the settings name.
///
/// # Errors
/// Something cannot be read or used, or everybody could do everything.
pub fn open(settings: &Settings) -> Result<Door, DoorError> {
    let tls = settings.gateway.tls.as_ref().map(|tls| Tls::load(&options(tls))).transpose()?;
    let access = access(settings, tls.is_some())?;
    bound(settings, access.as_ref(), settings.beyond_loopback().into_iter())?;
    Ok(Door { access, tls })
}

impl Door {
    /// Puts it before a gateway that serves nothing yet.
    pub fn set(self, gateway: &Gateway) {
        admit(gateway, self.access);
        if let Some(tls) = self.tls {
            // Set once, by us.
            let _ = gateway.tls.set(tls);
        }
    }
}

/// Reads it all again, for the requests and connections to come. Whether there is TLS stays as it is.
///
/// # Errors
/// As [`open`]; then nothing changes.
pub fn reopen(gateway: &Gateway, settings: &Settings, listening: &[SocketAddr]) -> Result<(), DoorError> {
    let access = access(settings, gateway.tls.get().is_some())?;
    let beyond = listening.iter().copied().filter(|address| !address.ip().is_loopback());
    bound(settings, access.as_ref(), beyond)?;
    if let (Some(tls), Some(now)) = (gateway.tls.get(), &settings.gateway.tls) {
        tls.reload(&options(now))?;
    }
    admit(gateway, access);
    Ok(())
}

/// From here on these are let in. What is hardly meant is said.
fn admit(gateway: &Gateway, access: Option<Access>) {
    let is_there = |pool: &str| gateway.pool(Some(pool)).is_ok();
    for (caller, pool) in access.iter().flat_map(|access| access.bound_elsewhere(is_there)) {
        tracing::warn!("tokens file: {caller:?} is bound to the pool {pool:?}, which is not there");
    }
    gateway.guard.set(access);
}

/// The files that it is read from.
pub fn files(settings: &Settings) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = settings.tokens_file.iter().cloned().collect();
    if let Some(tls) = &settings.gateway.tls {
        files.extend([tls.cert.clone(), tls.key.clone()]);
        files.extend(tls.client_ca.clone());
    }
    files
}

/// `None`: nobody is asked who it is.
fn access(settings: &Settings, encrypted: bool) -> Result<Option<Access>, DoorError> {
    let certificates = settings.gateway.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    Ok(match &settings.tokens_file {
        Some(file) => Some(auth::load(file)?),
        None if encrypted && certificates => Some(Access::any_certificate()),
        None => None,
    })
}

fn bound(
    settings: &Settings,
    access: Option<&Access>,
    mut beyond: impl Iterator<Item = SocketAddr>,
) -> Result<(), DoorError> {
    match beyond.next() {
        Some(address) if access.is_none() && !settings.insecure => Err(DoorError::Exposed(address)),
        _ => Ok(()),
    }
}

fn options(settings: &TlsSettings) -> TlsOptions {
    TlsOptions {
        cert: settings.cert.clone(),
        key: settings.key.clone(),
        client_ca: settings.client_ca.clone(),
        client_required: settings.client_required,
        handshake_max: Duration::from_micros(settings.handshake_timeout.0),
    }
}
