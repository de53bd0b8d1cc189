//! The demo's configuration and the shares of its classes.

/// Classes and their shares of the arrivals; what is left names no objective.
pub const SHARES: [(&str, f64); 2] = [("interactive", 0.3), ("batch", 0.4)];

/// Flows of each class.
pub const FLOWS: u32 = 5;

/// Budgets are short, since everything else runs faster as well; samples may be older than usual, since here servers
/// and service share a machine.
pub const YAML: &str = r#"
flowControl:
  defaultRequestTTL: 5s
  noEndpointRequestTTL: 20s
  priorityBands:
    - priority: 100
      defaultRequestTTL: 10s
      fairnessPolicyRef: turns
    - priority: 0
      fairnessPolicyRef: turns
    - priority: -10
      defaultRequestTTL: 2500ms
      maxRequests: 150
  saturationDetector:
    pluginRef: gauge
plugins:
  - name: turns
    type: round-robin-fairness-policy
  - name: gauge
    type: utilization-detector
    parameters:
      metricsStalenessThreshold: 1s
pools:
  default:
    regime:
      blindAfter: 2s
weir:
  listen: 127.0.0.1:0
  objectives:
    interactive: 100
    batch: -10
"#;
