//! Which API server, and where in it: by the settings, else by what a pod finds around itself.

use std::fs;
use weir_config::KubernetesSettings;

/// Where a pod finds its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// An API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// TLS is spoken, and a token sent.
    pub tls: bool,
    /// Its host, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// The namespace of the objects.
    pub namespace: String,
}

impl Cluster {
    /// As the settings say; what they leave out from the environment.
    ///
    /// # Errors
    /// There is no API server to be found.
    pub fn of(settings: &KubernetesSettings) -> Result<Cluster, String> {
        let namespace = settings.namespace.clone().unwrap_or_else(|| {
            let own = fs::read_to_string(NAMESPACE_FILE).unwrap_or_default();
            if own.trim().is_empty() { "default".to_owned() } else { own.trim().to_owned() }
        });
        let Some(base) = &settings.api_server else {
            let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
            let (host, port) = (variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
            let Some(host) = host else {
                return Err("KUBERNETES_SERVICE_HOST is not set: this is no pod of a cluster, and `apiServer` is not given".to_owned());
            };
            let port = port.as_deref().unwrap_or("443");
            let port = port.parse().map_err(|_| format!("KUBERNETES_SERVICE_PORT: {port:?} is no port"))?;
            return Ok(Cluster { tls: true, host, port, namespace });
        };
        Self::at(base, namespace).ok_or_else(|| format!("{base:?} is no base URL of an API server"))
    }

    fn at(base: &str, namespace: String) -> Option<Cluster> {
        let uri: http::Uri = base.parse().ok()?;
        let tls = uri.scheme_str() == Some("https");
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Some(Cluster { tls, host, port, namespace })
    }

    /// `host:port`, as it stands in the header.
    pub fn authority(&self) -> String {
        let Cluster { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_taken_apart() {
        for (base, tls, host, port) in [
            ("https://10.96.0.1:443", true, "10.96.0.1", 443),
            ("https://kubernetes.default.svc", true, "kubernetes.default.svc", 443),
            ("http://127.0.0.1:8001", false, "127.0.0.1", 8001),
            ("https://[fd00::1]:6443", true, "fd00::1", 6443),
        ] {
            let cluster = Cluster::at(base, "n".to_owned()).unwrap();
            assert_eq!((cluster.tls, cluster.host.as_str(), cluster.port), (tls, host, port), "{base}");
        }
        let v6 = Cluster::at("https://[fd00::1]:6443", "n".to_owned()).unwrap();
        assert_eq!(v6.authority(), "[fd00::1]:6443");
    }
}
