//! Which endpoints a pool has: the list of the settings, or where they are found while the service runs.

use crate::effective::{DiscoverySettings, DnsSettings, EndpointSettings, FileSettings, KubernetesSettings};
use crate::node::{Origin, Value};
use crate::report::{Mistake, MistakeKind, Mistakes};
use crate::scalar::{url, url_key};
use crate::section::{Reading, Section};
use crate::tables::ENDPOINTS_FILE;
use crate::yaml;
use std::collections::BTreeMap;
use weir_kernel::Role;

const KINDS: [&str; 3] = ["dns", "file", "kubernetes"];

/// The list of the settings, if there is one.
///
/// `each_url_once`: a server that stands there under two names would count twice, and is a mistake.
pub fn endpoints(
    reading: &mut Reading,
    own: &Section<'_>,
    each_url_once: bool,
) -> Option<Vec<EndpointSettings>> {
    own.node("endpoints")?;
    let mut endpoints: Vec<EndpointSettings> = Vec::new();
    let mut names: BTreeMap<String, Origin> = BTreeMap::new();
    let mut urls: BTreeMap<String, String> = BTreeMap::new();
    for entry in own.list(reading, "endpoints") {
        for key in ["name", "url"] {
            if entry.node(key).is_none() {
                entry.refuse(reading, key, "a value: it must be given");
            }
        }
        let (name, url) = (entry.text(reading, "name"), entry.text(reading, "url"));
        let role = Role::from_label(entry.text(reading, "role").as_deref().unwrap_or_default());
        let (Some(name), Some(url)) = (name, url) else { continue };
        let place = entry.origin_of("name");
        if let Some(first) = names.get(&name) {
            let (path, first) = (entry.at("name"), first.clone());
            reading.report.duplicate(&path, &format!("the endpoint \"{name}\""), &first, &place);
            continue;
        }
        names.insert(name.clone(), place);
        let other = urls.insert(url_key(&url), name.clone()).filter(|_| each_url_once);
        if let Some(other) = other {
            let allowed = format!(
                "each URL once: the endpoint \"{other}\" has it as well, and one server would count as two"
            );
            entry.refuse(reading, "url", allowed);
            continue;
        }
        endpoints.push(EndpointSettings { name, url, role });
    }
    Some(endpoints)
}

/// Where endpoints are found, if they are. With a mistake in it: nowhere.
pub fn read(reading: &mut Reading, own: &Section<'_>) -> Option<DiscoverySettings> {
    own.node("discovery")?;
    let section = own.section(reading, "discovery");
    if own.node("endpoints").is_some() {
        own.refuse(reading, "discovery", "endpoints or discovery, not both");
        return None;
    }
    let given: Vec<&str> = KINDS.into_iter().filter(|kind| section.node(kind).is_some()).collect();
    let [kind] = given[..] else {
        own.refuse(reading, "discovery", format!("exactly one of {}", KINDS.join(", ")));
        return None;
    };
    let below = section.section(reading, kind);
    match kind {
        "dns" => dns(reading, &below).map(DiscoverySettings::Dns),
        "file" => file(reading, &below).map(DiscoverySettings::File),
        _ => kubernetes(reading, &below).map(DiscoverySettings::Kubernetes),
    }
}

fn dns(reading: &mut Reading, section: &Section<'_>) -> Option<DnsSettings> {
    required(reading, section, &["name", "port"]);
    let name = section.text(reading, "name");
    let port = section.node("port").map_or(0, |_| section.whole(reading, "port"));
    let (interval, timeout) = (section.span(reading, "interval"), section.span(reading, "timeout"));
    let role = role(reading, section);
    let name = name.filter(|name| {
        let fits = name.len() <= 253 && !name.contains([':', '/', ' ', '@']);
        if !fits {
            section.refuse(reading, "name", "a name such as vllm.inference.svc, without scheme and port");
        }
        fits
    })?;
    Some(DnsSettings {
        name,
        port: u16::try_from(port).ok().filter(|port| *port > 0)?,
        interval,
        timeout,
        role,
    })
}

fn file(reading: &mut Reading, section: &Section<'_>) -> Option<FileSettings> {
    required(reading, section, &["path"]);
    let (path, interval) = (section.text(reading, "path"), section.span(reading, "interval"));
    Some(FileSettings { path: path?.into(), interval })
}

fn kubernetes(reading: &mut Reading, section: &Section<'_>) -> Option<KubernetesSettings> {
    let (service, port) = (section.text(reading, "service"), section.text(reading, "port"));
    let namespace = section.text(reading, "namespace");
    let objectives = section.flag(reading, "objectives");
    let role = role(reading, section);
    let api_server = section.text(reading, "apiServer");
    let (token_file, ca_file) = (section.text(reading, "tokenFile"), section.text(reading, "caFile"));
    for (key, value) in [("service", &service), ("namespace", &namespace)] {
        if value.as_ref().is_some_and(|value| !is_object_name(value)) {
            section.refuse(reading, key, "a name of Kubernetes: lower-case letters, digits, dashes and dots");
        }
    }
    let number = |port: &str| port.parse::<u16>().is_ok_and(|port| port > 0);
    match (&service, &port) {
        (None, Some(port)) if !number(port) => {
            section.refuse(
                reading,
                "port",
                "a number from 1 to 65535: without service there are no names of ports",
            );
        }
        (Some(_), Some(port)) if !number(port) && !is_port_name(port) => {
            section.refuse(reading, "port", "the name of a port, or a number from 1 to 65535");
        }
        _ => {}
    }
    let api_server = api_server.and_then(|given| {
        let base = base(&given);
        if base.is_none() {
            section.refuse(reading, "apiServer", "a base URL such as https://10.96.0.1:443");
        }
        base
    });
    let (token_file, ca_file) = (token_file?.into(), ca_file?.into());
    Some(KubernetesSettings { service, port, namespace, objectives, role, api_server, token_file, ca_file })
}

/// `https://` or `http://`, a host, perhaps a port, and nothing else; without a closing slash.
fn base(text: &str) -> Option<String> {
    match text.strip_prefix("https://") {
        Some(rest) => Some(url(&format!("http://{rest}"))?.replacen("http://", "https://", 1)),
        None => url(text),
    }
}

fn is_object_name(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.';
    text.len() <= 253
        && text.bytes().all(allowed)
        && !text.starts_with(['-', '.'])
        && !text.ends_with(['-', '.'])
}

/// As Kubernetes has it: at least one letter, so that it is no number.
fn is_port_name(text: &str) -> bool {
    is_object_name(text) && text.bytes().any(|b| b.is_ascii_lowercase())
}

fn required(reading: &mut Reading, section: &Section<'_>, keys: &[&str]) {
    for key in keys {
        if section.node(key).is_none() {
            section.refuse(reading, key, "a value: it must be given");
        }
    }
}

fn role(reading: &mut Reading, section: &Section<'_>) -> Role {
    Role::from_label(section.text(reading, "role").as_deref().unwrap_or_default())
}

/// The endpoints of a file of discovery.
///
/// # Errors
/// Every mistake at once. A text in which nothing stands, or no `endpoints`, is one: it says nothing of the pool.
pub fn read_endpoints(text: &str) -> Result<Vec<EndpointSettings>, Mistakes> {
    let whole = |found: &str, origin| {
        let (kind, path, subject) = (MistakeKind::Document, String::new(), None);
        let (found, allowed) = (found.to_owned(), "allowed: a document with a list `endpoints`".to_owned());
        Mistakes { file: None, list: vec![Mistake { kind, path, subject, found, allowed, origin }] }
    };
    let document = yaml::parse(text)
        .map_err(|error| whole(&error.message, error.line.map_or(Origin::Given, Origin::Line)))?;
    if document.value == Value::Null {
        return Err(whole("nothing stands in the file", Origin::Given));
    }
    let mut reading = Reading::default();
    let section = Section::open(&mut reading, Some(&document), "", &ENDPOINTS_FILE);
    required(&mut reading, &section, &["endpoints"]);
    // One server under two names is counted once there, and said: `discovery` does that for every kind.
    let endpoints = endpoints(&mut reading, &section, false);
    match endpoints {
        Some(endpoints) if reading.report.mistakes.is_empty() => Ok(endpoints),
        _ => Err(Mistakes { file: None, list: reading.report.mistakes }),
    }
}
