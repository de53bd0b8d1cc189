//! Names and help texts of the gateway's own figures: what no log holds.

use super::GatewayCounters;
use super::encode::Series;
use prometheus_client::encoding::DescriptorEncoder;
use std::fmt::Error;
use std::sync::atomic::Ordering;

/// Writes them.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, counters: &GatewayCounters) -> Result<(), Error> {
    let plain = [
        ("gateway_invalid", "Requests refused as malformed.", &counters.invalid),
        (
            "gateway_priority_ignored",
            "Raw priorities that the pool does not trust.",
            &counters.priority_ignored,
        ),
        (
            "gateway_priority_capped",
            "Priorities lowered to what their caller's token allows.",
            &counters.priority_capped,
        ),
        ("gateway_unauthenticated", "Requests of callers that are not known.", &counters.unauthenticated),
        ("gateway_forbidden", "Requests of known callers that may not do that.", &counters.forbidden),
        ("gateway_log_unavailable", "Requests refused since the log took none.", &counters.log_unavailable),
        ("gateway_undelivered", "Admissions that nobody was there to take.", &counters.undelivered),
        (
            "gateway_connections_refused",
            "Connections refused beyond the limit, or their admissions.",
            &counters.connections_refused,
        ),
        (
            "gateway_proxy_unreachable",
            "Connections to endpoints that did not come about.",
            &counters.proxy_unreachable,
        ),
        (
            "gateway_proxy_broken",
            "Proxied requests that an endpoint left without an answer, or with half of one.",
            &counters.proxy_broken,
        ),
        ("gateway_gaps", "Gaps in these figures, which then count less than the log.", &counters.gaps),
    ];
    for (name, help, value) in plain {
        let mut series = Series::counter(encoder, name, help)?;
        series.count(Vec::new(), value.load(Ordering::Relaxed))?;
    }
    let mut series =
        Series::gauge(encoder, "gateway_proxied", "Requests at an endpoint by way of the proxy.")?;
    series.value(Vec::new(), counters.proxied.load(Ordering::Relaxed) as f64)?;
    let mut series = Series::gauge(encoder, "gateway_connections", "Open connections.")?;
    series.value(Vec::new(), counters.connections.load(Ordering::Relaxed) as f64)
}
