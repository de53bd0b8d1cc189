//! Objects of a Kubernetes API server: EndpointSlices of a Service, or the pods that an InferencePool selects, and the
//! InferenceObjectives of that pool. Each kind is listed once and then watched.
//!
//! On the HTTP client and TLS that are in the tree anyway: what is asked for is two verbs over four kinds, of which a few
//! fields are read, where `kube` brings the types of the whole API and a stack of its own. Not here: client certificates,
//! `exec` credentials, writing anything.

mod client;
mod objects;
mod place;
mod reflect;

use super::{Guarded, at, teller::Teller};
use client::Client;
pub use client::Times;
use objects::{Objective, Pod, Selection, Slice};
use place::Cluster;
use reflect::{Resource, Shelf, View, reflect};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::Notify;
use weir_config::KubernetesSettings;
use weir_kernel::Role;

/// Where InferencePool objects are served: as they are now, and as they were before.
const POOLS: [&str; 2] = ["inference.networking.k8s.io/v1", "inference.networking.x-k8s.io/v1alpha2"];
/// Where InferenceObjective objects are served.
const OBJECTIVES: [&str; 2] = ["inference.networking.x-k8s.io/v1alpha2", "llm-d.ai/v1alpha2"];

/// Follows the objects until it is dropped.
pub async fn run(settings: KubernetesSettings, inference_pool: String, times: Times, tell: Teller) {
    let cluster = loop {
        // What is asked of the process's surroundings may be mounted late.
        match Cluster::of(&settings) {
            Ok(cluster) => break cluster,
            Err(error) => tell.fault("kubernetes", error),
        }
        tokio::time::sleep(times.retry_max).await;
    };
    tell.well("kubernetes");
    let namespace = cluster.namespace.clone();
    let client = Arc::new(Client::new(cluster, settings.token_file.clone(), settings.ca_file.clone(), times));
    let changed = Arc::new(Notify::new());
    let context = Context { client, changed, tell, namespace, settings, inference_pool };
    let objectives = if context.settings.objectives { context.objectives() } else { Vec::new() };
    let mut source = Source::of(&context);
    let mut known = None;
    loop {
        context.changed.notified().await;
        if let Some(found) = merged(&objectives) {
            context.tell.objectives(context.priorities(found));
        }
        source.follow(&context);
        let now = source.endpoints(&context);
        if now.is_some() && now != known {
            known.clone_from(&now);
            let role = context.settings.role;
            let specs = now.unwrap_or_default().into_iter();
            context.tell.endpoints(specs.map(|(address, of)| at(address, of.unwrap_or(role))).collect());
        }
    }
}

/// What every part of a search knows.
struct Context {
    client: Arc<Client>,
    changed: Arc<Notify>,
    tell: Teller,
    namespace: String,
    settings: KubernetesSettings,
    inference_pool: String,
}

/// A kind of object that is being followed.
struct Followed<T> {
    shelf: Shelf<T>,
    _task: Guarded,
}

impl Context {
    fn follow<T>(&self, resource: Resource<T>) -> Followed<T>
    where
        T: Clone + PartialEq + Send + Sync + 'static,
    {
        let shelf = Shelf::default();
        let (client, tell, changed) =
            (Arc::clone(&self.client), self.tell.clone(), Arc::clone(&self.changed));
        let task = Guarded::spawn(reflect(client, resource, Arc::clone(&shelf), changed, tell));
        Followed { shelf, _task: task }
    }

    fn resource<T>(&self, api: &str, kind: &str, selector: String, read: objects::Read<T>) -> Resource<T> {
        let root = if api.contains('/') { "apis" } else { "api" };
        let path = format!("/{root}/{api}/namespaces/{}/{kind}", self.namespace);
        // What comes by a custom resource may be there in one version, or not yet.
        let custom = kind.starts_with("inference");
        Resource { path, selector, read, custom, place: format!("{kind} of {api} in {}", self.namespace) }
    }

    fn objectives(&self) -> Vec<Followed<Objective>> {
        let one = |api: &&str| {
            self.follow(self.resource(api, "inferenceobjectives", String::new(), objects::objective))
        };
        OBJECTIVES.iter().map(one).collect()
    }

    /// Of the objectives of all pools those of ours.
    fn priorities(&self, found: BTreeMap<String, Objective>) -> BTreeMap<String, i32> {
        let ours = found.into_iter().filter(|(_, objective)| objective.pool == self.inference_pool);
        ours.map(|(name, objective)| (name, objective.priority)).collect()
    }
}

/// The objects of several places, those of the first going first; nothing before each of them has answered.
fn merged<T: Clone>(places: &[Followed<T>]) -> Option<BTreeMap<String, T>> {
    let mut all = BTreeMap::new();
    let mut served = false;
    for place in places {
        match &*reflect::look(&place.shelf) {
            View::Unknown => return None,
            View::NotServed => {}
            View::Known(objects) => {
                served = true;
                for (name, object) in objects {
                    all.entry(name.clone()).or_insert_with(|| object.clone());
                }
            }
        }
    }
    served.then_some(all)
}

/// Where endpoints come from.
enum Source {
    Slices(Followed<Slice>),
    Pods { pools: Vec<Followed<Selection>>, selected: Option<(Selection, Followed<Pod>)> },
}

/// Addresses with what they say of their stages.
type Addresses = BTreeMap<SocketAddr, Option<Role>>;

impl Source {
    fn of(context: &Context) -> Source {
        match &context.settings.service {
            Some(service) => {
                let selector =
                    client::query("labelSelector", &format!("kubernetes.io/service-name={service}"));
                let slices =
                    context.resource("discovery.k8s.io/v1", "endpointslices", selector, objects::slice);
                Source::Slices(context.follow(slices))
            }
            None => {
                let named = format!("metadata.name={}", context.inference_pool);
                let one = |api: &&str| {
                    let selector = client::query("fieldSelector", &named);
                    context.follow(context.resource(api, "inferencepools", selector, objects::inference_pool))
                };
                Source::Pods { pools: POOLS.iter().map(one).collect(), selected: None }
            }
        }
    }

    /// An InferencePool may select other pods now. One that is gone leaves its last selection in force: its pods say
    /// themselves when they go.
    fn follow(&mut self, context: &Context) {
        let Source::Pods { pools, selected } = self else { return };
        let place = "the InferencePool";
        let not_served = pools.iter().all(|pool| matches!(&*reflect::look(&pool.shelf), View::NotServed));
        let found = match merged(pools) {
            None if !not_served => return,
            None => None,
            Some(mut found) => found.remove(&context.inference_pool),
        };
        let Some(selection) = found else {
            let (name, namespace) = (&context.inference_pool, &context.namespace);
            let why = if not_served { ": the API server serves no InferencePool at all" } else { "" };
            let text = format!("there is no InferencePool {name} in the namespace {namespace}{why}");
            context.tell.standing(place, text);
            return;
        };
        context.tell.well(place);
        match selected {
            Some((before, _)) if before.labels == selection.labels => before.ports = selection.ports,
            _ => {
                let selector = client::query("labelSelector", &selection.labels);
                let pods = context.follow(context.resource("v1", "pods", selector, objects::pod));
                *selected = Some((selection, pods));
            }
        }
    }

    /// All that are ready; nothing before they are known.
    fn endpoints(&self, context: &Context) -> Option<Addresses> {
        match self {
            Source::Slices(slices) => {
                let View::Known(slices) = &*reflect::look(&slices.shelf) else { return None };
                let place = "ports of the EndpointSlices";
                match objects::addresses_of_slices(slices.values(), context.settings.port.as_deref()) {
                    Ok(addresses) => {
                        context.tell.well(place);
                        Some(addresses.into_iter().map(|address| (address, None)).collect())
                    }
                    Err(error) => {
                        context.tell.standing(place, error);
                        None
                    }
                }
            }
            Source::Pods { selected, .. } => {
                let (selection, pods) = selected.as_ref()?;
                let View::Known(pods) = &*reflect::look(&pods.shelf) else { return None };
                let given = context.settings.port.as_deref().and_then(|port| port.parse::<u16>().ok());
                let ports = given.map_or_else(|| selection.ports.clone(), |port| vec![port]);
                let ready = pods.values().filter(|pod| pod.ready);
                let mut addresses = Addresses::new();
                for (ip, role) in ready.filter_map(|pod| Some((pod.ip?, pod.role))) {
                    addresses.extend(ports.iter().map(|port| (SocketAddr::new(ip, *port), role)));
                }
                Some(addresses)
            }
        }
    }
}
