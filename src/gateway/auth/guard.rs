//! The one place that every request passes before it is read.

use super::access::{Access, Actor};
use super::scope::{Need, Scope, need};
use super::token::PREFIX;
use crate::gateway::graphql::wants_page;
use crate::gateway::problem::Fault;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, Request};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

/// Our own header for a token, for callers whose `authorization` is for the model servers.
const OWN: HeaderName = HeaderName::from_static("x-weir-authorization");

/// The names in a client's certificate: its URIs, then its DNS names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// In that order.
    pub names: Vec<String>,
}

/// Who may do what, at this moment.
#[derive(Debug, Default)]
pub struct Guard {
    access: RwLock<Arc<Access>>,
    /// Unless it is on, everybody may do everything.
    on: AtomicBool,
}

impl Guard {
    /// From here on this holds; `None`: everybody may do everything.
    pub fn set(&self, access: Option<Access>) {
        let on = access.is_some();
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access.unwrap_or_default());
        self.on.store(on, Ordering::Release);
    }

    /// Is anybody asked who it is?
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Acquire)
    }

    /// Lets a request of HTTP pass, with its [`Actor`] among its extensions and without its token.
    ///
    /// # Errors
    /// 401 or 403.
    pub fn http<B>(&self, request: &mut Request<B>, peer: Option<&Peer>) -> Result<(), Fault> {
        if !self.is_on() {
            return Ok(());
        }
        // Taken off whatever is needed: no handler has a use for it.
        let token = take(request.headers_mut());
        // The page alone: what it then asks, it asks with a token.
        if wants_page(request) {
            return Ok(());
        }
        let Need::Scope(scope) = need(request.method(), request.uri().path()) else { return Ok(()) };
        let actor = self.who(token?.as_deref(), peer)?;
        actor.must(scope)?;
        actor.must_path(request.uri().path())?;
        request.extensions_mut().insert(actor);
        Ok(())
    }

    /// Lets a call of gRPC pass, by its metadata.
    ///
    /// # Errors
    /// 401 or 403.
    pub fn rpc(&self, metadata: &mut HeaderMap, peer: Option<&Peer>) -> Result<Option<Actor>, Fault> {
        if !self.is_on() {
            return Ok(None);
        }
        let actor = self.who(take(metadata)?.as_deref(), peer)?;
        actor.must(Scope::Admit)?;
        Ok(Some(actor))
    }

    fn who(&self, token: Option<&[u8]>, peer: Option<&Peer>) -> Result<Actor, Fault> {
        let access = Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner));
        match (token, peer) {
            // A token that is shown counts alone: it may allow less than the certificate beside it.
            (Some(token), _) => {
                let unknown = Fault::Unauthenticated { invalid: true, why: "this token is not known" };
                access.token(token).cloned().ok_or(unknown)
            }
            (None, Some(peer)) => {
                let why = "the client certificate has no entry in the tokens file, and there is no token";
                access.certificate(&peer.names).ok_or(Fault::Unauthenticated { invalid: false, why })
            }
            (None, None) => {
                let why = "a token is needed: authorization: Bearer weir_…";
                Err(Fault::Unauthenticated { invalid: false, why })
            }
        }
    }
}

/// Takes every token of ours off, and our own header whatever it holds. One counts: that of our own header if there is
/// one, else the one that stands in `authorization`. Other values of `authorization` stay, in their order.
fn take(headers: &mut HeaderMap) -> Result<Option<Vec<u8>>, Fault> {
    let own = take_values(headers, &OWN, |_| true);
    let shared = take_values(headers, &AUTHORIZATION, holds_ours);
    let (name, shown) =
        if own.is_empty() { ("authorization", shared) } else { ("x-weir-authorization", own) };
    let invalid = |why| Fault::Unauthenticated { invalid: true, why };
    match &shown[..] {
        [] => Ok(None),
        [value] => match bearer(value.as_bytes()) {
            Some(token) => Ok(Some(token.to_vec())),
            None if name == OWN => Err(invalid("x-weir-authorization is: Bearer weir_…")),
            None => Err(invalid("authorization with a token of Weir is: Bearer weir_…")),
        },
        _ => Err(invalid("there is more than one token")),
    }
}

/// Takes off the values of this header that are `ours`.
fn take_values(headers: &mut HeaderMap, name: &HeaderName, ours: impl Fn(&[u8]) -> bool) -> Vec<HeaderValue> {
    let (taken, kept): (Vec<_>, Vec<_>) =
        headers.get_all(name).iter().cloned().partition(|value| ours(value.as_bytes()));
    if !taken.is_empty() {
        headers.remove(name);
        for value in kept {
            headers.append(name.clone(), value);
        }
    }
    taken
}

/// Is one of our tokens in this value, under whatever scheme or none, alone or in a list?
fn holds_ours(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').any(|part| {
        let mut words = part.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        words.any(|word| word.starts_with(PREFIX.as_bytes()))
    })
}

/// The token of `Bearer weir_…` (the scheme in any case, RFC 9110 section 11.1).
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && token.starts_with(PREFIX.as_bytes())).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::super::access::Entry;
    use super::super::scope::Scopes;
    use super::super::token::Digest;
    use super::*;
    use std::collections::BTreeSet;

    fn access() -> Access {
        let mut access = Access::default();
        let entry = |name: &str, scopes, pools: Option<&str>| {
            let pools = pools.map(|pool| BTreeSet::from([pool.to_owned()]));
            Actor::new(Entry { name: name.to_owned(), scopes, max_priority: None, pools })
        };
        assert!(
            access.add_token(Digest::of(b"weir_a"), &entry("a", Scopes::default().with(Scope::Admit), None))
        );
        assert!(access.add_token(Digest::of(b"weir_p"), &entry("p", Scopes::ALL, Some("p"))));
        assert!(access.add_certificate("envoy.svc".to_owned(), &entry("envoy", Scopes::ALL, None)));
        access
    }

    fn ask(
        guard: &Guard,
        path: &str,
        headers: &[(&str, &str)],
        peer: Option<&Peer>,
    ) -> (Result<(), Fault>, Request<()>) {
        let mut request = Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        (guard.http(&mut request, peer), request)
    }

    #[test]
    fn without_tokens_nothing_is_asked() {
        let guard = Guard::default();
        let (passed, request) = ask(&guard, "/admin/drain", &[("authorization", "Bearer weir_x")], None);
        assert_eq!(passed, Ok(()));
        assert!(request.extensions().get::<Actor>().is_none());
        assert!(request.headers().contains_key("authorization"));
    }

    #[test]
    fn a_token_is_known_and_goes_no_further() {
        let guard = Guard::default();
        guard.set(Some(access()));
        for headers in [
            &[("authorization", "Bearer weir_a")][..],
            &[("authorization", "bEARER   weir_a ")],
            &[("x-weir-authorization", "Bearer weir_a")],
            &[("x-weir-authorization", "Bearer weir_a"), ("authorization", "Bearer weir_unknown")],
        ] {
            let (passed, request) = ask(&guard, "/v1/admissions", headers, None);
            assert_eq!(passed, Ok(()), "{headers:?}");
            assert_eq!(request.extensions().get::<Actor>().unwrap().name(), "a");
            assert!(!request.headers().contains_key("x-weir-authorization"));
            assert!(!request.headers().contains_key("authorization"), "{headers:?}");
        }
    }

    #[test]
    fn no_token_of_ours_stays_and_nothing_else_goes() {
        let guard = Guard::default();
        guard.set(Some(access()));
        let (own, shared) = ("x-weir-authorization", "authorization");
        for (headers, passes, kept) in [
            (&[(own, "Bearer weir_a"), (shared, "Bearer weir_a")][..], true, &[][..]),
            (&[(shared, "bearer  weir_b"), (own, "Bearer weir_a")], true, &[]),
            (&[(own, "Bearer weir_a"), (shared, "Bearer sk-1")], true, &["Bearer sk-1"]),
            (
                &[(own, "Bearer weir_a"), (shared, "Basic eA=="), (shared, "Bearer weir_b")],
                true,
                &["Basic eA=="],
            ),
            (&[(own, "Bearer weir_a"), (shared, "weir_b"), (shared, "Token weir_b")], true, &[]),
            (&[(own, "Bearer weir_a"), (shared, "Bearer\tweir_b")], true, &[]),
            (&[(own, "Bearer weir_a"), (shared, "Bearer sk-1, Bearer weir_b")], true, &[]),
            (&[(own, "Bearer weir_a"), (own, "Bearer weir_b"), (shared, "Bearer weir_a")], false, &[]),
            (&[(own, "Bearer sk-1"), (shared, "Bearer weir_a")], false, &[]),
            (&[(shared, "Bearer sk-1"), (shared, "Bearer weir_a")], true, &["Bearer sk-1"]),
            (&[(shared, "Bearer weir_a"), (shared, "a"), (shared, "b")], true, &["a", "b"]),
            (&[(shared, "Bearer weir_a"), (shared, "Bearer weir_b")], false, &[]),
            (&[(shared, "Token weir_a")], false, &[]),
            (&[(shared, "Bearer sk-weir_a"), (own, "Bearer weir_a")], true, &["Bearer sk-weir_a"]),
        ] {
            let (passed, request) = ask(&guard, "/v1/chat/completions", headers, None);
            let mut metadata = HeaderMap::new();
            for (name, value) in headers {
                metadata.append(*name, value.parse().unwrap());
            }
            let called = guard.rpc(&mut metadata, None);
            assert_eq!((passed.is_ok(), called.is_ok()), (passes, passes), "{headers:?}: {passed:?}");
            for left in [request.headers(), &metadata] {
                assert!(!left.contains_key(own), "{headers:?}");
                let left: Vec<&str> =
                    left.get_all(shared).iter().map(|value| value.to_str().unwrap()).collect();
                assert_eq!(left, kept, "{headers:?}");
            }
        }
    }

    #[test]
    fn strangers_are_told_to_show_a_token_and_others_what_they_lack() {
        let guard = Guard::default();
        guard.set(Some(access()));
        for (headers, invalid) in [
            (&[][..], false),
            (&[("authorization", "Bearer sk-upstream")], false),
            (&[("authorization", "Basic d2Vpcl9h")], false),
            (&[("authorization", "Bearer weir_b")], true),
            (&[("authorization", "Bearer weir_a"), ("authorization", "Bearer weir_a")], true),
            (&[("x-weir-authorization", "weir_a")], true),
            (&[("x-weir-authorization", "")], true),
        ] {
            match ask(&guard, "/v1/admissions", headers, None).0 {
                Err(Fault::Unauthenticated { invalid: got, .. }) => assert_eq!(got, invalid, "{headers:?}"),
                other => panic!("{headers:?}: {other:?}"),
            }
        }
        let token = [("authorization", "Bearer weir_a")];
        assert_eq!(ask(&guard, "/admin/drain", &token, None).0, Err(Fault::Forbidden { scope: "admin" }));
        assert_eq!(ask(&guard, "/healthz", &[], None).0, Ok(()));
    }

    #[test]
    fn a_token_of_one_pool_reaches_no_other() {
        let guard = Guard::default();
        guard.set(Some(access()));
        let token = [("authorization", "Bearer weir_p")];
        for (path, ok) in [
            ("/v1/pools/p/endpoints", true),
            ("/v1/pools/q/endpoints", false),
            ("/v1/admissions", true),
            ("/v1/admissions/p-1/complete", true),
            ("/v1/admissions/q-1/complete", false),
            ("/v1/admissions/%71-1/complete", false),
            ("/admin/drain", false),
            ("/admin/pools/p/pause", true),
            ("/metrics", false),
        ] {
            assert_eq!(ask(&guard, path, &token, None).0.is_ok(), ok, "{path}");
        }
        let (_, request) = ask(&guard, "/v1/admissions", &token, None);
        let actor = request.extensions().get::<Actor>().unwrap();
        assert_eq!(actor.must_pool("p"), Ok(()));
        assert!(matches!(actor.must_pool("q"), Err(Fault::PoolForbidden { .. })));
    }

    #[test]
    fn a_certificate_counts_where_no_token_is_shown() {
        let guard = Guard::default();
        guard.set(Some(access()));
        let named = |name: &str| Peer { names: vec!["spiffe://x/y".to_owned(), name.to_owned()] };
        let (passed, request) = ask(&guard, "/admin/drain", &[], Some(&named("envoy.svc")));
        assert_eq!(passed, Ok(()));
        assert_eq!(request.extensions().get::<Actor>().unwrap().name(), "envoy");
        let other = ask(&guard, "/v1/admissions", &[], Some(&named("other.svc"))).0;
        assert!(matches!(other, Err(Fault::Unauthenticated { invalid: false, .. })));
        let token = [("authorization", "Bearer weir_a")];
        let less = ask(&guard, "/admin/drain", &token, Some(&named("envoy.svc"))).0;
        assert_eq!(less, Err(Fault::Forbidden { scope: "admin" }));
        let unknown = [("authorization", "Bearer weir_b")];
        assert!(ask(&guard, "/admin/drain", &unknown, Some(&named("envoy.svc"))).0.is_err());
        guard.set(Some(Access::any_certificate()));
        let (passed, request) = ask(&guard, "/admin/drain", &[], Some(&named("other.svc")));
        assert_eq!(passed, Ok(()));
        assert_eq!(request.extensions().get::<Actor>().unwrap().name(), "spiffe://x/y");
        assert!(ask(&guard, "/admin/drain", &[], None).0.is_err());
    }

    #[test]
    fn what_is_set_holds_at_once() {
        let guard = Guard::default();
        guard.set(Some(access()));
        let mut metadata = HeaderMap::new();
        metadata.insert("authorization", "Bearer weir_a".parse().unwrap());
        assert_eq!(guard.rpc(&mut metadata.clone(), None).unwrap().unwrap().name(), "a");
        guard.set(Some(Access::default()));
        assert!(guard.rpc(&mut metadata.clone(), None).is_err());
        guard.set(None);
        assert!(guard.rpc(&mut metadata, None).unwrap().is_none());
    }
}
