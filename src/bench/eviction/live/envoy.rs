//! The real Envoy on the settings of `deploy/envoy`, on ports of its own.

use super::Failure;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SETTINGS: &str = include_str!("../../../../deploy/envoy/envoy.yaml");
const PATIENCE: Duration = Duration::from_secs(30);

/// Where Envoy is, if it is anywhere.
pub fn binary() -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_ENVOY").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("envoy"));
    let here = PathBuf::from(".venv-envoy/bin/envoy");
    named.into_iter().chain(on_path).chain([here]).find(|file| file.is_file())
}

/// A running Envoy; it ends when dropped.
pub struct Envoy {
    child: Child,
    /// Its listener whose endpoint Weir picks.
    pub addr: SocketAddr,
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Envoy {
    pub async fn start(dir: &Path, weir: SocketAddr) -> Result<Envoy, Failure> {
        let binary = std::fs::canonicalize(binary().ok_or("no Envoy")?)?;
        std::fs::write(dir.join("envoy.yaml"), settings(weir))?;
        let log = std::fs::File::create(dir.join("envoy.log"))?;
        let child = Command::new(binary)
            .args(["-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "-l", "warning"])
            .args(["--admin-address-path", "admin.addr"])
            .current_dir(dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut envoy = Envoy { child, addr: weir };
        let found = tokio::time::timeout(PATIENCE, listener(&dir.join("admin.addr"))).await;
        envoy.addr = found.map_err(|_| "Envoy is not ready in time; see envoy.log")?;
        Ok(envoy)
    }
}

fn settings(weir: SocketAddr) -> String {
    let mut text = SETTINGS.to_owned();
    for port in ["10000", "10001", "10002", "10003", "9901"] {
        text = text.replace(&format!("port_value: {port} "), "port_value: 0 ");
    }
    text = text.replace("port_value: 9002 ", &format!("port_value: {} ", weir.port()));
    // A machine that is busy is not what is measured.
    text.replace("connect_timeout: 1s", "connect_timeout: 30s")
}

/// The address of the listener `duplex`, once it is there.
async fn listener(admin: &Path) -> SocketAddr {
    loop {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let Ok(addr) = std::fs::read_to_string(admin).unwrap_or_default().trim().parse() else { continue };
        if !get(addr, "/ready").await.is_ok_and(|text| text.contains("LIVE")) {
            continue;
        }
        let listeners = get(addr, "/listeners").await.unwrap_or_default();
        let duplex = listeners.lines().find_map(|line| line.trim().strip_prefix("duplex::"));
        if let Some(addr) = duplex.and_then(|addr| addr.parse().ok()) {
            return addr;
        }
    }
}

async fn get(addr: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
