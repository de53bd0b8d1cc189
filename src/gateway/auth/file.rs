//! The tokens file: who there is, by digest or by certificate, and what each may do.
//!
//! ```yaml
//! tokens:
//!   - name: gateway
//!     sha256: 0f3b…            # or a list, while one token takes the place of another
//!     scopes: [admit, read]
//!     maxPriority: 0           # optional
//!     pools: [default]         # optional
//! certificates:
//!   - name: envoy
//!     san: spiffe://cluster.local/ns/gw/sa/envoy    # or a list; a URI or a DNS name, exactly
//!     scopes: [admit]
//! ```
//!
//! Read whole or not at all; a mistake names its line and never shows what stood where a digest belongs.

use super::access::{Access, Actor, Entry};
use super::scope::{Scope, Scopes};
use super::token::Digest;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use weir_config::{Node, Origin, Value, parse_yaml};

/// Most names that one entry takes of each kind.
const MANY: usize = 64;

/// Largest file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a tokens file is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {what}: {found}, allowed: {allowed}")]
pub struct FileError {
    /// File or line.
    pub place: String,
    /// Where in the document.
    pub what: String,
    /// What was found, in words; never a digest or a token.
    pub found: String,
    /// What is allowed.
    pub allowed: String,
}

fn refuse(
    origin: &Origin,
    what: impl Into<String>,
    found: impl Into<String>,
    allowed: impl Into<String>,
) -> FileError {
    FileError { place: origin.to_string(), what: what.into(), found: found.into(), allowed: allowed.into() }
}

/// Reads the file at `path`.
///
/// # Errors
/// It cannot be read, or something in it is not allowed.
pub fn load(path: &Path) -> Result<Access, FileError> {
    let file = |found: String| FileError {
        place: path.display().to_string(),
        what: "the tokens file".to_owned(),
        found,
        allowed: "a readable file of UTF-8 text, at most 1 MiB".to_owned(),
    };
    let size = std::fs::metadata(path).map_err(|error| file(error.to_string()))?.len();
    if size > FILE_BYTES_MAX {
        return Err(file(format!("{size} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| file(error.to_string()))?;
    read(&text).map_err(|error| FileError { place: format!("{}, {}", path.display(), error.place), ..error })
}

/// Reads the text of a tokens file.
///
/// # Errors
/// The first thing in it that is not allowed.
pub fn read(text: &str) -> Result<Access, FileError> {
    let document = parse_yaml(text).map_err(|error| {
        let origin = error.line.map_or(Origin::Given, Origin::Line);
        // Not the parser's words: they may repeat what stands there.
        refuse(&origin, "the tokens file", "text that is not YAML", "tokens and certificates")
    })?;
    if document.value == Value::Null {
        // Perhaps being written; nobody is meant only where that is said.
        let allowed = "tokens and certificates; `tokens: []` for nobody";
        return Err(refuse(&Origin::Given, "the tokens file", "an empty document", allowed));
    }
    known(&document, "the tokens file", &["tokens", "certificates"])?;
    let mut access = Access::default();
    let mut names = BTreeSet::new();
    for (at, node) in section(&document, "tokens")?.iter().enumerate() {
        let what = format!("tokens[{at}]");
        known(node, &what, &["name", "sha256", "scopes", "maxPriority", "pools"])?;
        let actor = Actor::new(caller(node, &what, &mut names)?);
        for (digest, origin) in list(node, &what, "sha256")? {
            let path = format!("{what}.sha256");
            let found = || format!("text of {} bytes", digest.len());
            let digest =
                digest.parse::<Digest>().map_err(|allowed| refuse(origin, &path, found(), allowed))?;
            if !access.add_token(digest, &actor) {
                return Err(refuse(origin, &path, "a digest that is there already", "each digest once"));
            }
        }
    }
    for (at, node) in section(&document, "certificates")?.iter().enumerate() {
        let what = format!("certificates[{at}]");
        known(node, &what, &["name", "san", "scopes", "maxPriority", "pools"])?;
        let actor = Actor::new(caller(node, &what, &mut names)?);
        for (san, origin) in list(node, &what, "san")? {
            if !access.add_certificate(san.to_owned(), &actor) {
                let path = format!("{what}.san");
                return Err(refuse(origin, path, "a name that is there already", "each name once"));
            }
        }
    }
    Ok(access)
}

/// What every entry has.
fn caller(node: &Node, what: &str, names: &mut BTreeSet<String>) -> Result<Entry, FileError> {
    let at = |key: &str| format!("{what}.{key}");
    let name = match list(node, what, "name")?[..] {
        [(name, _)] => name.to_owned(),
        _ => return Err(refuse(&node.origin, at("name"), "a list", "one name")),
    };
    if !names.insert(name.clone()) {
        return Err(refuse(&node.origin, at("name"), format!("{name:?} again"), "each name once"));
    }
    let mut scopes = Scopes::default();
    for (word, origin) in list(node, what, "scopes")? {
        let scope = word.parse::<Scope>().map_err(|_| {
            refuse(
                origin,
                at("scopes"),
                crate::gateway::json::shown(word.as_bytes()),
                "admit, pool, read, admin",
            )
        })?;
        scopes = scopes.with(scope);
    }
    let max_priority = match node.get("maxPriority") {
        None => None,
        Some(node) => {
            let text = match &node.value {
                Value::Number(text) | Value::Text(text) => text.as_str(),
                _ => "",
            };
            let allowed = crate::gateway::ask::PRIORITY_ALLOWED;
            let number = crate::gateway::ask::priority("maxPriority", text.as_bytes());
            Some(number.map_err(|_| refuse(&node.origin, at("maxPriority"), node.shown(), allowed))?)
        }
    };
    let pools = match node.get("pools") {
        None => None,
        Some(_) => Some(list(node, what, "pools")?.into_iter().map(|(pool, _)| pool.to_owned()).collect()),
    };
    Ok(Entry { name, scopes, max_priority, pools })
}

fn known(node: &Node, what: &str, keys: &[&str]) -> Result<(), FileError> {
    let allowed = || format!("a section with {}", keys.join(", "));
    if !matches!(node.value, Value::Map(_)) {
        return Err(refuse(&node.origin, what, "no section", allowed()));
    }
    for (at, entry) in node.entries().iter().enumerate() {
        if !keys.contains(&entry.key.as_str()) {
            let key = crate::gateway::json::shown(entry.key.as_bytes());
            return Err(refuse(&entry.origin, what, format!("the key {key:?}"), allowed()));
        }
        if node.entries()[..at].iter().any(|before| before.key == entry.key) {
            return Err(refuse(&entry.origin, what, format!("{} again", entry.key), "each key once"));
        }
    }
    Ok(())
}

fn section<'n>(document: &'n Node, key: &str) -> Result<&'n [Node], FileError> {
    match document.get(key) {
        None => Ok(&[]),
        Some(node) if matches!(node.value, Value::List(_)) => Ok(node.items()),
        Some(node) => Err(refuse(&node.origin, key, "no list", "a list of sections")),
    }
}

/// One text, or a list of them: never none, each of 1 to 256 bytes without control characters.
fn list<'n>(node: &'n Node, what: &str, key: &str) -> Result<Vec<(&'n str, &'n Origin)>, FileError> {
    let path = || format!("{what}.{key}");
    let allowed = "1 to 64 texts of 1 to 256 bytes without control characters";
    let Some(found) = node.get(key) else { return Err(refuse(&node.origin, path(), "nothing", allowed)) };
    let nodes = match &found.value {
        Value::List(items) if items.is_empty() || items.len() > MANY => {
            return Err(refuse(&found.origin, path(), format!("{} texts", items.len()), allowed));
        }
        Value::List(items) => items.as_slice(),
        _ => std::slice::from_ref(found),
    };
    let text = |node: &'n Node| match &node.value {
        Value::Text(text) | Value::Number(text)
            if !text.is_empty() && text.len() <= 256 && !text.chars().any(char::is_control) =>
        {
            Ok((text.as_str(), &node.origin))
        }
        _ => Err(refuse(&node.origin, path(), "something else", allowed)),
    };
    nodes.iter().map(text).collect()
}

/// A new entry for the file, as YAML.
pub fn entry(
    name: &str,
    digest: &Digest,
    scopes: &[Scope],
    max_priority: Option<i32>,
    pools: &[String],
) -> String {
    let scopes = scopes.iter().map(|scope| scope.word()).collect::<Vec<_>>().join(", ");
    let mut text = format!("  - name: {}\n    sha256: \"{digest}\"\n    scopes: [{scopes}]\n", quoted(name));
    // Writing to a string does not fail.
    if let Some(priority) = max_priority {
        let _ = writeln!(text, "    maxPriority: {priority}");
    }
    if !pools.is_empty() {
        let pools = pools.iter().map(|pool| quoted(pool)).collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "    pools: [{pools}]");
    }
    text
}

/// A double-quoted scalar of YAML: JSON's escapes are among its own.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::token::token;
    use super::*;

    const A: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn a_new_entry_reads_back() {
        let secret = token(&[9; 32]);
        let digest = Digest::of(secret.as_bytes());
        let pools = ["p\"1".to_owned(), "q".to_owned()];
        let lines = entry("a: b", &digest, &[Scope::Admit, Scope::Read], Some(-3), &pools);
        let access = read(&format!("tokens:\n{lines}")).unwrap();
        let actor = access.token(secret.as_bytes()).unwrap();
        assert_eq!((actor.name(), actor.max_priority()), ("a: b", Some(-3)));
        assert!(actor.must(Scope::Read).is_ok() && actor.must(Scope::Pool).is_err());
        assert!(actor.must_pool("p\"1").is_ok() && actor.must_pool("p").is_err());
        assert!(access.token(b"weir_other").is_none());
        let plain = entry("n", &digest, &[Scope::Admin], None, &[]);
        let access = read(&format!("tokens:\n{plain}")).unwrap();
        let actor = access.token(secret.as_bytes()).unwrap();
        assert!(actor.max_priority().is_none() && actor.must_pool("any").is_ok());
    }

    #[test]
    fn an_entry_may_have_two_digests_and_certificates_have_names() {
        let other = Digest::of(b"weir_x");
        let text = format!(
            "tokens:\n- {{name: a, sha256: [{A}, \"{other}\"], scopes: [admit]}}\ncertificates:\n\
             - {{name: envoy, san: [spiffe://c/envoy, envoy.svc], scopes: [admit], maxPriority: 5}}\n"
        );
        let access = read(&text).unwrap();
        assert_eq!(access.len(), (2, 2));
        assert_eq!(access.token(b"weir_x").unwrap().name(), "a");
        assert_eq!(access.token(b"").unwrap().name(), "a");
        let envoy = access.certificate(&["x".to_owned(), "envoy.svc".to_owned()]).unwrap();
        assert_eq!((envoy.name(), envoy.max_priority()), ("envoy", Some(5)));
        assert!(access.certificate(&["x".to_owned()]).is_none());
        assert!(read("tokens: []").unwrap().is_empty());
    }

    #[test]
    fn what_is_not_allowed_is_named_and_secrets_are_not_shown() {
        let tokens = |entry: &str| format!("tokens:\n- {{{entry}}}\n");
        for (text, what, words) in [
            (tokens(&format!("name: a, sha256: {A}")), "tokens[0].scopes", "nothing"),
            (tokens(&format!("name: a, sha256: {A}, scopes: [write]")), "tokens[0].scopes", "admit, pool"),
            (tokens(&format!("name: a, sha256: {A}, scopes: []")), "tokens[0].scopes", "0 texts"),
            (tokens(&format!("sha256: {A}, scopes: [read]")), "tokens[0].name", "nothing"),
            (tokens("name: a, scopes: [read]"), "tokens[0].sha256", "nothing"),
            (tokens("name: a, sha256: weir_SECRET, scopes: [read]"), "tokens[0].sha256", "text of 11 bytes"),
            (tokens("name: a, token: weir_SECRET, scopes: [read]"), "tokens[0]", "the key"),
            (tokens(&format!("name: a, sha256: [{A}, {A}], scopes: [read]")), "tokens[0].sha256", "already"),
            (
                tokens(&format!("name: a, sha256: {A}, scopes: [read], maxPriority: high")),
                "maxPriority",
                "-2147483648",
            ),
            (
                tokens(&format!("name: a, sha256: {A}, scopes: [read], pools: []")),
                "tokens[0].pools",
                "0 texts",
            ),
            (String::new(), "the tokens file", "an empty document, allowed: tokens and certificates"),
            ("# weir_SECRET\n---\n".to_owned(), "the tokens file", "an empty document"),
            ("weir_SECRET".to_owned(), "the tokens file", "no section"),
            ("tokens: {a: weir_SECRET".to_owned(), "the tokens file", "not YAML"),
            ("tokens: 7".to_owned(), "tokens", "no list"),
            ("tokens: [7]".to_owned(), "tokens[0]", "no section"),
            ("users: []".to_owned(), "the tokens file", "users"),
            (
                format!(
                    "tokens: [{{name: a, sha256: {A}, scopes: [read]}}]\ncertificates: [{{name: a, san: x, scopes: [read]}}]"
                ),
                "certificates[0].name",
                "again",
            ),
            (
                "certificates: [{name: a, san: x, scopes: [read]}, {name: b, san: x, scopes: [read]}]"
                    .to_owned(),
                "certificates[1].san",
                "already",
            ),
        ] {
            let error = read(&text).map(|access| access.len()).unwrap_err();
            let shown = error.to_string();
            assert!(error.what.contains(what), "{text}: {shown}");
            assert!(shown.contains(words), "{text}: {shown}");
            assert!(!shown.contains("SECRET"), "{shown}");
        }
    }
}
