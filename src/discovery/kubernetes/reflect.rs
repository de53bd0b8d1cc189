//! A kind of object, kept as the API server has it: listed in pages, then watched from the version of the list on.
//!
//! A list is taken as a whole or not at all. A watch that ends in order goes on from the last version that was seen (bookmarks
//! keep that young); one whose version is gone, or that fails in any other way, is followed by a new list.

use super::client::{ApiFault, Client, query};
use super::objects::Read;
use crate::discovery::{heard, teller::Teller};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// Objects of one page.
const PAGE: usize = 500;
/// Objects of one kind at most.
const OBJECTS_MAX: usize = 20_000;
/// A watch that lasted so long was a good one.
const LASTED: Duration = Duration::from_secs(1);

/// A kind of object in a place.
pub struct Resource<T> {
    /// Its path.
    pub path: String,
    /// `labelSelector=…` or `fieldSelector=…`, or nothing.
    pub selector: String,
    /// Takes what matters from an object.
    pub read: Read<T>,
    /// It need not be served.
    pub custom: bool,
    /// In words.
    pub place: String,
}

/// What is known of a kind.
#[derive(Debug, Default)]
pub enum View<T> {
    /// Nothing yet.
    #[default]
    Unknown,
    /// The API server does not serve it.
    NotServed,
    /// All objects, by name.
    Known(BTreeMap<String, T>),
}

/// Where the view of a kind is kept.
pub type Shelf<T> = Arc<Mutex<View<T>>>;

/// The view as it is.
pub fn look<T>(shelf: &Shelf<T>) -> MutexGuard<'_, View<T>> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps `shelf` as the server has it, until it is dropped; `changed` is told.
pub async fn reflect<T: Clone + PartialEq>(
    client: Arc<Client>,
    resource: Resource<T>,
    shelf: Shelf<T>,
    changed: Arc<Notify>,
    tell: Teller,
) {
    let times = client.times;
    let mut pause = times.retry_min;
    let mut mirror = Mirror { client: &client, resource: &resource, shelf, changed, tell };
    loop {
        let begun = Instant::now();
        let ended = mirror.once().await;
        let lasted = begun.elapsed() >= LASTED;
        match ended {
            // To be listed again at once, but not over and over.
            Ended::Relist if lasted => pause = times.retry_min,
            Ended::Relist => {}
            Ended::NotServed => {
                sleep(times.retry_max).await;
                continue;
            }
            Ended::Failed(fault, worked) => {
                mirror.tell.fault(&resource.place, fault.to_string());
                if worked {
                    pause = times.retry_min;
                }
            }
        }
        sleep(pause).await;
        pause = (pause * 2).min(times.retry_max);
    }
}

/// Why a list has to be made again.
enum Ended {
    /// Its version is gone.
    Relist,
    /// The kind is not there.
    NotServed,
    /// Something failed; did it work before that?
    Failed(ApiFault, bool),
}

struct Mirror<'r, T> {
    client: &'r Client,
    resource: &'r Resource<T>,
    shelf: Shelf<T>,
    changed: Arc<Notify>,
    tell: Teller,
}

impl<T: Clone + PartialEq> Mirror<'_, T> {
    /// A list, and the watch that follows it.
    async fn once(&mut self) -> Ended {
        let mut version = match self.list().await {
            Ok(version) => version,
            Err(ApiFault::Status { status: 404, .. }) if self.resource.custom => {
                self.tell.well(&self.resource.place);
                self.publish(View::NotServed);
                return Ended::NotServed;
            }
            Err(ApiFault::Gone) => return Ended::Relist,
            Err(fault) => return Ended::Failed(fault, false),
        };
        self.tell.well(&self.resource.place);
        let mut worked = false;
        loop {
            let begun = Instant::now();
            match self.watch(&mut version, &mut worked).await {
                Ok(()) => worked |= begun.elapsed() >= LASTED,
                Err(ApiFault::Gone) => return Ended::Relist,
                Err(fault) => return Ended::Failed(fault, worked),
            }
            if begun.elapsed() < LASTED {
                // A server that ends every watch at once is not asked without a pause.
                sleep(self.client.times.retry_min).await;
            }
        }
    }

    /// All pages; what they say is in force once the last one is there. Gives the version.
    async fn list(&self) -> Result<String, ApiFault> {
        let mut objects = BTreeMap::new();
        let mut next = String::new();
        loop {
            let mut path = format!("{}?limit={PAGE}", self.resource.path);
            if !self.resource.selector.is_empty() {
                path = format!("{path}&{}", self.resource.selector);
            }
            if !next.is_empty() {
                path = format!("{path}&{}", query("continue", &next));
            }
            let page = self.heard(self.client.get(&path)).await?;
            let items = match &page["items"] {
                Value::Array(items) => items.as_slice(),
                // So an empty list is written now and then.
                Value::Null if page["metadata"].is_object() => &[],
                _ => return Err(ApiFault::Garbage("a list without items".to_owned())),
            };
            for item in items {
                let name = name(item)?;
                if let Some(object) = self.read(&name, item) {
                    objects.insert(name, object);
                }
            }
            if objects.len() > OBJECTS_MAX {
                return Err(ApiFault::Garbage(format!("more than {OBJECTS_MAX} objects")));
            }
            match page["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) {
                Some(token) if *token != next => next = token.to_owned(),
                Some(_) => return Err(ApiFault::Garbage("a page that leads to itself".to_owned())),
                None => {
                    let version = page["metadata"]["resourceVersion"].as_str().unwrap_or_default();
                    if version.is_empty() {
                        return Err(ApiFault::Garbage("a list without a resourceVersion".to_owned()));
                    }
                    self.publish(View::Known(objects));
                    return Ok(version.to_owned());
                }
            }
        }
    }

    /// One watch, until the server ends it in order.
    async fn watch(&self, version: &mut String, worked: &mut bool) -> Result<(), ApiFault> {
        let seconds = self.client.times.watch.as_secs().max(1);
        let mut path = format!(
            "{}?watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&{}",
            self.resource.path,
            query("resourceVersion", version)
        );
        if !self.resource.selector.is_empty() {
            path = format!("{path}&{}", self.resource.selector);
        }
        let mut lines = self.heard(self.client.watch(&path)).await?;
        self.tell.well(&self.resource.place);
        while let Some(event) = lines.next().await? {
            self.take(&event, version)?;
            *worked = true;
        }
        Ok(())
    }

    /// A server that hangs is said long before it is given up.
    async fn heard<A>(&self, answer: impl Future<Output = A>) -> A {
        heard(&self.tell, &self.resource.place, self.client.times.slow, answer).await
    }

    fn take(&self, event: &Value, version: &mut String) -> Result<(), ApiFault> {
        let (kind, object) = (event["type"].as_str().unwrap_or_default(), &event["object"]);
        if kind == "ERROR" {
            let (code, words) =
                (object["code"].as_u64().unwrap_or(0), object["message"].as_str().unwrap_or_default());
            return Err(match code {
                410 => ApiFault::Gone,
                code => ApiFault::Status {
                    status: u16::try_from(code).unwrap_or(0),
                    words: words.chars().filter(|c| !c.is_control()).take(200).collect(),
                },
            });
        }
        let Some(at) = object["metadata"]["resourceVersion"].as_str().filter(|at| !at.is_empty()) else {
            return Err(ApiFault::Garbage(format!("an event {kind:?} without a resourceVersion")));
        };
        match kind {
            "BOOKMARK" => {}
            "ADDED" | "MODIFIED" => {
                let name = name(object)?;
                if let Some(new) = self.read(&name, object) {
                    self.change(|objects| objects.insert(name, new.clone()).as_ref() != Some(&new));
                }
            }
            "DELETED" => {
                let name = name(object)?;
                self.tell.well(&self.object(&name));
                self.change(|objects| objects.remove(&name).is_some());
            }
            other => return Err(ApiFault::Garbage(format!("an event of the unknown type {other:?}"))),
        }
        at.clone_into(version);
        Ok(())
    }

    /// What matters of an object. One that cannot be read stays as it was, and it is said.
    fn read(&self, name: &str, object: &Value) -> Option<T> {
        let place = self.object(name);
        match (self.resource.read)(object) {
            Ok(read) => {
                self.tell.well(&place);
                Some(read)
            }
            Err(error) => {
                self.tell.fault(&place, error);
                match &*look(&self.shelf) {
                    View::Known(objects) => objects.get(name).cloned(),
                    _ => None,
                }
            }
        }
    }

    fn object(&self, name: &str) -> String {
        format!("{name} of {}", self.resource.place)
    }

    fn publish(&self, view: View<T>) {
        *look(&self.shelf) = view;
        self.changed.notify_one();
    }

    fn change(&self, apply: impl FnOnce(&mut BTreeMap<String, T>) -> bool) {
        let changed = match &mut *look(&self.shelf) {
            View::Known(objects) => apply(objects),
            _ => false,
        };
        if changed {
            self.changed.notify_one();
        }
    }
}

fn name(object: &Value) -> Result<String, ApiFault> {
    let name = object["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    name.map(str::to_owned).ok_or_else(|| ApiFault::Garbage("an object without a name".to_owned()))
}
