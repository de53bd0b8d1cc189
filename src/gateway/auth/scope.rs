//! What a caller may be allowed, and what each call needs.

use http::Method;
use std::fmt;
use std::str::FromStr;

/// One kind of thing that a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Ask for admission, by whatever face; complete, renew, cancel and watch what was admitted.
    Admit,
    /// Push endpoints and saturation.
    Pool,
    /// Look: pools, endpoints, the log, metrics.
    Read,
    /// Steer: drain, pause, purge, revoke.
    Admin,
}

/// Every scope, in the order of the manual.
pub const SCOPES: [Scope; 4] = [Scope::Admit, Scope::Pool, Scope::Read, Scope::Admin];

impl Scope {
    /// Its word.
    pub const fn word(self) -> &'static str {
        match self {
            Scope::Admit => "admit",
            Scope::Pool => "pool",
            Scope::Read => "read",
            Scope::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || SCOPES.map(Scope::word).join(", ");
        SCOPES
            .into_iter()
            .find(|scope| scope.word() == text)
            .ok_or_else(|| format!("{text:?} is no scope; known: {}", known()))
    }
}

/// A set of scopes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes(u8);

impl Scopes {
    /// All of them.
    pub const ALL: Scopes = Scopes(0b1111);

    /// With one more.
    #[must_use]
    pub const fn with(self, scope: Scope) -> Self {
        Scopes(self.0 | 1 << scope as u8)
    }

    /// Is it among them?
    pub const fn has(self, scope: Scope) -> bool {
        self.0 & 1 << scope as u8 != 0
    }
}

/// What a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing: probes.
    Open,
    /// This scope.
    Scope(Scope),
}

/// What a call over HTTP needs, by the path as it was sent: the router takes no other spelling of a path either.
///
/// A path that is not named here is one that is passed on upstream, or none at all: it needs `admit`.
pub fn need(method: &Method, path: &str) -> Need {
    let below =
        |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let looks = method == Method::GET || method == Method::HEAD;
    Need::Scope(match path {
        "/healthz" | "/readyz" => return Need::Open,
        "/metrics" => Scope::Read,
        "/graphql" => Scope::Read,
        _ if below("/admin") => Scope::Admin,
        _ if below("/v1/pools") && looks => Scope::Read,
        _ if below("/v1/pools") => Scope::Pool,
        _ => Scope::Admit,
    })
}

/// Which pools a call concerns, as far as its path says.
#[derive(Debug, PartialEq, Eq)]
pub enum Concerns {
    /// Every pool.
    All,
    /// The pool of this name.
    Pool(String),
    /// That shows in the request alone, and is looked at once it has been read.
    Unsaid,
}

/// Which pools a call concerns. What cannot be read is nothing that a handler would find either.
pub fn concerns(path: &str) -> Concerns {
    let mut parts = path.split('/').skip(1);
    let part = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(decoded);
    match (parts.next(), parts.next()) {
        (Some("metrics"), None) => Concerns::All,
        (Some("v1" | "admin"), Some("pools")) => part(parts.next()).map_or(Concerns::All, Concerns::Pool),
        (Some("v1" | "admin"), Some("admissions" | "leases" | "requests")) => match part(parts.next()) {
            // `<pool>-<number>`
            Some(id) => Concerns::Pool(id.rsplit_once('-').map_or(id.clone(), |(pool, _)| pool.to_owned())),
            None => Concerns::Unsaid,
        },
        (Some("admin"), _) => Concerns::All,
        _ => Concerns::Unsaid,
    }
}

/// A segment of a path without its escapes; one whose escapes are none stays as it is.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let escape = match (first, after) {
            (b'%', [high, low, ..]) => char::from(*high).to_digit(16).zip(char::from(*low).to_digit(16)),
            _ => None,
        };
        rest = match escape {
            Some((high, low)) => {
                bytes.push((16 * high + low) as u8);
                &after[2..]
            }
            None => {
                bytes.push(*first);
                after
            }
        };
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_need_what_the_manual_says() {
        use Scope::{Admin, Admit, Pool, Read};
        for (method, path, scope) in [
            ("POST", "/v1/admissions", Some(Admit)),
            ("GET", "/v1/admissions/default-1", Some(Admit)),
            ("DELETE", "/v1/admissions/default-1", Some(Admit)),
            ("POST", "/v1/admissions/default-1/renew", Some(Admit)),
            ("POST", "/ext-proc", Some(Admit)),
            ("POST", "/v1/chat/completions", Some(Admit)),
            ("GET", "/v1/models", Some(Admit)),
            ("GET", "/v1/poolsider", Some(Admit)),
            ("GET", "/administration", Some(Admit)),
            ("GET", "/v1/pools", Some(Read)),
            ("HEAD", "/v1/pools/p", Some(Read)),
            ("GET", "/v1/pools/p/log", Some(Read)),
            ("PUT", "/v1/pools/p/endpoints", Some(Pool)),
            ("POST", "/v1/pools/p", Some(Pool)),
            ("GET", "/metrics", Some(Read)),
            ("POST", "/graphql", Some(Read)),
            ("GET", "/graphql", Some(Read)),
            ("GET", "/admin", Some(Admin)),
            ("POST", "/admin/drain", Some(Admin)),
            ("GET", "/healthz", None),
            ("GET", "/readyz", None),
            ("GET", "/healthz/x", Some(Admit)),
        ] {
            let want = scope.map_or(Need::Open, Need::Scope);
            assert_eq!(need(&method.parse().unwrap(), path), want, "{method} {path}");
        }
    }

    #[test]
    fn the_path_says_which_pools_a_call_concerns() {
        let pool = |name: &str| Concerns::Pool(name.to_owned());
        for (path, want) in [
            ("/v1/pools", Concerns::All),
            ("/v1/pools/", Concerns::All),
            ("/v1/pools/a", pool("a")),
            ("/v1/pools/%61%2Db/log", pool("a-b")),
            ("/v1/pools/%zz", pool("%zz")),
            ("/v1/admissions", Concerns::Unsaid),
            ("/v1/admissions/a-b-17/complete", pool("a-b")),
            ("/v1/admissions/a%2D17", pool("a")),
            ("/metrics", Concerns::All),
            ("/admin/drain", Concerns::All),
            ("/admin/pools/a/pause", pool("a")),
            ("/ext-proc", Concerns::Unsaid),
            ("/v1/chat/completions", Concerns::Unsaid),
        ] {
            assert_eq!(concerns(path), want, "{path}");
        }
    }

    #[test]
    fn scopes_are_a_set() {
        let some = Scopes::default().with(Scope::Read).with(Scope::Admit);
        for scope in SCOPES {
            assert!(Scopes::ALL.has(scope));
            assert_eq!(some.has(scope), matches!(scope, Scope::Read | Scope::Admit));
            assert_eq!(scope.word().parse(), Ok(scope));
        }
        assert!("write".parse::<Scope>().unwrap_err().contains("admit, pool, read, admin"));
    }
}
