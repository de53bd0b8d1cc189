//! Runs one kernel per pool and makes each decision durable before anyone sees it.
