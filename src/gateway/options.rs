//! What the gateway needs to know beyond its pools.

use std::time::Duration;

/// Limits and times of the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of a body of `/v1/…` and `/ext-proc`, in bytes (default 1 MiB).
    pub body_bytes_max: u64,
    /// Time for a body to come (default 30 s).
    pub body_time_max: Duration,
    /// Size of a request line with its headers, in bytes (default 64 KiB).
    pub head_bytes_max: usize,
    /// Headers of a request (default 100).
    pub headers_max: usize,
    /// Time for the headers of a request to come (default 10 s).
    pub head_time_max: Duration,
    /// Open connections, each of which may hold one request (default 16,384).
    pub connections_max: usize,
    /// How long a caller may take nothing of its answer before its connection ends (default 30 s).
    pub write_stall_max: Duration,
    /// How long a stream may be silent before it shows that it lives (default 15 s).
    pub heartbeat: Duration,
    /// Readers of a log at once, followers included (default 16).
    pub log_readers_max: usize,
    /// How long queued requests are served once a stop has begun (default 30 s).
    pub drain_timeout: Duration,
    /// How long answers may take to leave once all is decided (default 5 s).
    pub close_timeout: Duration,
    /// Models that keep a metric label of their own whatever else comes.
    pub models: Vec<String>,
    /// Expose the figures of flow control under llm-d's own names as well.
    pub metrics_compat_llm_d: bool,
    /// Envoy's gRPC faces.
    pub envoy: EnvoyOptions,
    /// The reverse proxy, if it is on.
    pub proxy: Option<ProxyOptions>,
}

/// What the reverse proxy needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyOptions {
    /// Set the field `priority` of each admitted request as vLLM reads it (default: no).
    pub engine_priority_vllm: bool,
    /// Size of a request's body, in bytes (default 32 MiB).
    pub body_bytes_max: u64,
    /// Bytes of bodies that are held while their requests wait, all together (default 1 GiB).
    pub held_bytes_max: u64,
    /// Time for a connection to an endpoint to come about (default 5 s).
    pub connect_time_max: Duration,
    /// How long an idle connection to an endpoint is kept (default 4 s: below the 5 s of uvicorn).
    pub idle_time_max: Duration,
    /// More paths whose POST is admitted; `/*` at the end stands for whatever follows.
    pub admit_paths: Vec<String>,
    /// More paths that pass without admission, likewise.
    pub pass_paths: Vec<String>,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        ProxyOptions {
            engine_priority_vllm: false,
            body_bytes_max: 32 << 20,
            held_bytes_max: 1 << 30,
            connect_time_max: Duration::from_secs(5),
            idle_time_max: Duration::from_secs(4),
            admit_paths: Vec::new(),
            pass_paths: Vec::new(),
        }
    }
}

/// What Envoy's gRPC faces need to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnvoyOptions {
    /// Envoy lets requests through while we are gone (`failure_mode_allow`), so that running ones outlive us.
    pub failure_mode_allow: bool,
    /// Streams of one connection, each of which is a request, queued or running (default 65,536).
    pub streams_max: u32,
    /// Bytes of bodies that are held while their requests wait, all together (default 1 GiB).
    pub held_bytes_max: u64,
}

impl Default for EnvoyOptions {
    fn default() -> Self {
        EnvoyOptions { failure_mode_allow: false, streams_max: 65_536, held_bytes_max: 1 << 30 }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            body_bytes_max: 1 << 20,
            body_time_max: Duration::from_secs(30),
            head_bytes_max: 64 << 10,
            headers_max: 100,
            head_time_max: Duration::from_secs(10),
            connections_max: 16_384,
            write_stall_max: Duration::from_secs(30),
            heartbeat: Duration::from_secs(15),
            log_readers_max: 16,
            drain_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(5),
            models: Vec::new(),
            metrics_compat_llm_d: false,
            envoy: EnvoyOptions::default(),
            proxy: None,
        }
    }
}
