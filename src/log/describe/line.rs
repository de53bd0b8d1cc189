//! Events about the line of a band as text: its order, its bounds, its predictions.

use super::time::show_span;
use weir_kernel::{BoundReached, Event, Hopeless, OrderTurned};

/// What such an event says; nothing of others.
pub fn details(event: &Event) -> String {
    match event {
        Event::BandBounded { priority, bounds } => {
            let starvation = show_span(bounds.starvation);
            format!(
                "priority={priority} starvation_bound={starvation} reject_hopeless={}",
                bounds.reject_hopeless
            )
        }
        Event::OrderTurned(OrderTurned { priority, newest_first, oldest, waited, standing }) => {
            let order = if *newest_first { "newest first" } else { "by arrival" };
            let (waited, standing) = (show_span(*waited), show_span(*standing));
            format!("priority={priority} {order} oldest={oldest} waited={waited} standing={standing}")
        }
        Event::BoundReached(BoundReached { request, priority, waited, bound }) => {
            let (waited, bound) = (show_span(*waited), show_span(*bound));
            format!("request={request} priority={priority} waited={waited} bound={bound}")
        }
        Event::FoundHopeless(Hopeless { priority, predicted, left, ahead, drained, window }) => {
            let (predicted, left, window) = (show_span(*predicted), show_span(*left), show_span(*window));
            format!(
                "priority={priority} predicted={predicted} left={left} ahead={ahead} drained={drained} window={window}"
            )
        }
        _ => String::new(),
    }
}
