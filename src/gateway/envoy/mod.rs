//! What Envoy's faces have in common, whether they speak JSON (`../ext_proc`) or protobuf (`../ext_proc_grpc`,
//! `../ext_authz`): the question, the refusal, and which headers do not go upstream.

mod denial;
pub mod onward;
mod pace;
mod question;

pub use denial::Denial;
pub use pace::{MOMENT, PATIENCE, Pace, UnderWay};
pub use question::{About, Question};

/// Prefixes of headers that are for us.
const CONTROL: [&str; 2] = ["x-llm-d-inference-", "x-weir-"];

/// Is this header (its name in lower case) for us, and not for the model server?
pub fn is_control(name: &str) -> bool {
    CONTROL.iter().any(|prefix| name.starts_with(prefix))
}

/// The headers among `names` (in lower case) that are taken off a request before it goes upstream, each once. Not those in
/// `set`, which are overwritten: Envoy's order of setting and removing is its own matter.
pub fn control_headers<'n>(names: impl Iterator<Item = &'n str>, set: &[&str]) -> Vec<&'n str> {
    let mut remove = Vec::new();
    for name in names {
        if is_control(name) && !set.contains(&name) && !remove.contains(&name) {
            remove.push(name);
        }
    }
    remove
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_headers_go_and_all_others_stay() {
        let names = [
            ":path",
            "x-request-id",
            "traceparent",
            "x-llm-d-inference-objective",
            "x-weir-pool",
            "x-weir-pool",
            "x-weir-admission",
            "x-gateway-inference-objective",
        ];
        let gone = control_headers(names.into_iter(), &["x-weir-admission"]);
        assert_eq!(gone, ["x-llm-d-inference-objective", "x-weir-pool"]);
    }
}
