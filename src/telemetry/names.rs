//! Every attribute, span and event name that Weir writes, in one place.
//!
//! `gen_ai.*`, `http.*`, `rpc.*`, `server.*` and `error.type` are those of OpenTelemetry's semantic conventions; `weir.*`
//! are ours. Spans of time are seconds, gauges are such that 1.0 is the set point.

/// The instrumentation scope.
pub const SCOPE: &str = "weir";

/// Span of a whole request, from its receipt to its end.
pub const ADMISSION: &str = "weir.admission";
/// Span of its wait in the queue.
pub const QUEUE: &str = "weir.queue";
/// Span of its lease.
pub const LEASE: &str = "weir.lease";
/// Span of a reclamation decision, until every victim has ended.
pub const RECLAMATION: &str = "weir.reclamation";
/// Span of refusals that were decided together.
pub const REFUSALS: &str = "weir.refusals";

/// The model asked for.
pub const MODEL: &str = "gen_ai.request.model";
/// Prompt tokens.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Completion tokens.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// What the caller heard.
pub const STATUS_CODE: &str = "http.response.status_code";
/// `Retry-After`, where one was given.
pub const RETRY_AFTER: &str = "http.response.header.retry-after";
/// The caller's own id.
pub const REQUEST_ID: &str = "http.request.header.x-request-id";
/// Method, where the face has but one.
pub const METHOD: &str = "http.request.method";
/// Route, where the face has but one.
pub const ROUTE: &str = "http.route";
/// Envoy's protocol.
pub const RPC_SYSTEM: &str = "rpc.system";
/// Its service.
pub const RPC_SERVICE: &str = "rpc.service";
/// The chosen endpoint.
pub const SERVER_ADDRESS: &str = "server.address";
/// Why it was not served: the reason's word, or how its lease ended.
pub const ERROR_TYPE: &str = "error.type";

/// The pool.
pub const POOL: &str = "weir.pool";
/// The request's number in the pool's log.
pub const REQUEST: &str = "weir.request";
/// How it came in.
pub const FACE: &str = "weir.face";
/// Its fairness id.
pub const FLOW: &str = "weir.fairness_id";
/// Its objective.
pub const OBJECTIVE: &str = "weir.objective";
/// Its priority.
pub const PRIORITY: &str = "weir.priority";
/// Its size in bytes.
pub const BYTES: &str = "weir.bytes";
/// Its prompt in tokens, as it was announced.
pub const PROMPT_TOKENS: &str = "weir.prompt_tokens";
/// How it left the queue.
pub const OUTCOME: &str = "weir.outcome";
/// Why it was refused, in one word.
pub const REASON: &str = "weir.reason";
/// `contended` (429), `unavailable` (503) or `fault` (ours).
pub const AVAILABILITY: &str = "weir.availability";
/// What ended it beyond that.
pub const CAUSE: &str = "weir.cause";
/// The regime that decided.
pub const REGIME: &str = "weir.regime";
/// The regime before.
pub const REGIME_FROM: &str = "weir.regime.from";
/// The step of the log that ended it.
pub const SEQUENCE: &str = "weir.sequence";
/// The request that an idempotency key made it the same as.
pub const REPEATED: &str = "weir.repeated.of";
/// The limit that refused it.
pub const LIMIT: &str = "weir.limit";
/// What was held then.
pub const LIMIT_HELD: &str = "weir.limit.held";
/// How much may be.
pub const LIMIT_MAX: &str = "weir.limit.max";
/// Requests in its band with it, or that wait in the demand band.
pub const DEPTH: &str = "weir.depth";
/// Its budget while the pool can serve; 0 = none.
pub const BUDGET_SATURATION: &str = "weir.budget.saturation";
/// Its budget while nothing can serve; 0 = none.
pub const BUDGET_NO_ENDPOINT: &str = "weir.budget.no_endpoint";
/// The budget that ended it.
pub const BUDGET_SPENT: &str = "weir.budget.spent";
/// Its size.
pub const BUDGET: &str = "weir.budget";
/// How long it was queued.
pub const WAITED: &str = "weir.waited";
/// What held it back.
pub const HELD_BY: &str = "weir.held_by";
/// The band that was at its ceiling.
pub const HELD_PRIORITY: &str = "weir.held_by.priority";
/// The gauge as sampled.
pub const SATURATION_RAW: &str = "weir.saturation.raw";
/// The gauge with in-flight credit.
pub const SATURATION: &str = "weir.saturation";
/// The gauge over the endpoints that are fresh.
pub const SATURATION_FRESH: &str = "weir.saturation.fresh";
/// The ceiling of the band.
pub const CEILING: &str = "weir.ceiling";
/// The step of the observation that the gauge rests on.
pub const OBSERVED: &str = "weir.observed.sequence";
/// Endpoints of the pool.
pub const ENDPOINTS: &str = "weir.endpoints";
/// Endpoints with fresh metrics.
pub const ENDPOINTS_FRESH: &str = "weir.endpoints.fresh";
/// Endpoints with stale metrics.
pub const ENDPOINTS_STALE: &str = "weir.endpoints.stale";
/// How the lease ended.
pub const LEASE_END: &str = "weir.lease.end";
/// How the stream ended, as the transport saw it.
pub const TERMINATION: &str = "weir.termination";
/// Only what would have been decided: nobody was held or refused.
pub const OBSERVE: &str = "weir.observe";
/// How many requests.
pub const COUNT: &str = "weir.count";

/// The number of a decision.
pub const DECISION: &str = "weir.reclamation.decision";
/// The priority of the demand band.
pub const DEMAND: &str = "weir.reclamation.demand";
/// By how much the gauge is to fall.
pub const TARGET: &str = "weir.reclamation.target";
/// By how much it is expected to fall because of earlier revocations.
pub const PENDING: &str = "weir.reclamation.pending";
/// Leases in flight.
pub const IN_FLIGHT: &str = "weir.reclamation.in_flight";
/// What each victim is expected to take off.
pub const CREDIT: &str = "weir.reclamation.credit";
/// Victims wanted.
pub const WANTED: &str = "weir.reclamation.wanted";
/// The most of one decision.
pub const CAP: &str = "weir.reclamation.cap";
/// Leases that could be told.
pub const EVICTABLE: &str = "weir.reclamation.evictable";
/// Victims taken.
pub const VICTIMS: &str = "weir.reclamation.victims";
/// The number of a revocation.
pub const REVOCATION: &str = "weir.revocation";
/// Who ordered it.
pub const REVOCATION_ORDER: &str = "weir.revocation.order";
/// How it ended.
pub const REVOCATION_END: &str = "weir.revocation.end";
/// From its order to that.
pub const REVOCATION_TOOK: &str = "weir.revocation.took";
/// From its confirmation to the sample that shows it.
pub const REVOCATION_AFTER: &str = "weir.revocation.reclaimed_after";
/// When it times out, from its order on.
pub const REVOCATION_DUE: &str = "weir.revocation.due";
/// How long the lease had run.
pub const AGE: &str = "weir.lease.age";
/// What a link leads to: `demand`, `victim` or `decision`.
pub const LINK: &str = "weir.link";

/// Event: it is queued.
pub const ENQUEUED: &str = "weir.enqueued";
/// Event: the regime changed while it waited.
pub const REGIME_CHANGED: &str = "weir.regime_changed";
/// Event: its budget runs afresh.
pub const BUDGET_RECHARGED: &str = "weir.budget_recharged";
/// Event: other settings give it other budgets.
pub const BUDGET_CHANGED: &str = "weir.budget_changed";
/// Event: queued work is held, and by what.
pub const HELD: &str = "weir.held";
/// Event: nothing is held any more.
pub const HOLD_LIFTED: &str = "weir.hold_lifted";
/// Event: it left the queue without having been admitted.
pub const REFUSED: &str = "weir.refused";
/// Event: it is admitted.
pub const DISPATCHED: &str = "weir.dispatched";
/// Event: the first byte of its response was seen.
pub const FIRST_BYTE: &str = "weir.first_byte";
/// Event: its tokens are known.
pub const USAGE: &str = "weir.usage";
/// Event: a lease is ordered to end early.
pub const REVOKED: &str = "weir.revoked";
/// Event: a revocation ended.
pub const REVOCATION_ENDED: &str = "weir.revocation_ended";
/// Event: the endpoint's own metrics show that the lease is gone.
pub const RECLAIMED: &str = "weir.reclaimed";
/// Event: it ended.
pub const ENDED: &str = "weir.ended";
