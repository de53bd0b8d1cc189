//! With `weir.log.pseudonymise` the data directory holds nobody's names, and whoever has the key finds everybody again.

use crate::rig::Weir;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use weir_kernel::Input;

/// Every byte of a folder.
fn bytes(folder: &Path) -> Vec<u8> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(bytes(&path));
        } else {
            all.extend(fs::read(path).unwrap());
        }
    }
    all
}

fn holds(all: &[u8], what: &str) -> bool {
    all.windows(what.len()).any(|window| window == what.as_bytes())
}

#[test]
fn the_log_holds_nobodys_names_and_the_key_leads_back() {
    let dir = crate::kept::tempdir().unwrap();
    let key = dir.path().join("key");
    fs::write(&key, "0123456789abcdef0123456789abcdef\n").unwrap();
    let settings = format!(
        "plugins: [{{name: d, type: pushed-saturation-detector}}]\n\
         flowControl: {{saturationDetector: {{pluginRef: d}}}}\nweir: {{log: {{pseudonymise: '{}'}}}}\n",
        key.display()
    );
    let weir = Weir::start(dir.path(), &settings, &[], &[]);
    weir.pool_is(1, 2.0);
    let ask = json!({"requestId": "alice-17", "fairnessId": "alice-corp"}).to_string();
    let held = weir.send("POST", "/v1/admissions", &[], &ask);
    weir.queued(1);
    // Operators say names as they are.
    let order = json!({"fairnessId": "alice-corp", "priority": 0, "why": "w"}).to_string();
    let (status, text) = weir.call("POST", "/admin/pools/default/purge", &[], &order);
    assert_eq!(status, 200, "{text}");
    let (status, text) = crate::rig::whole(held);
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &answer["requestId"]), (503, &json!("alice-17")), "its caller is told its own id");
    let (_, figures) = weir.call("GET", "/metrics", &[], "");
    assert!(!figures.contains("alice"));
    weir.stop();
    let all = bytes(&dir.path().join("data"));
    assert!(!holds(&all, "alice") && !holds(&all, "0123456789abcdef"));
    let logs = weir_log::reader::Logs::open(&dir.path().join("data")).unwrap();
    let open = weir_log::reader::Bound::Open;
    let steps = logs.reader("default", open, open).steps().map(Result::unwrap);
    let arrival =
        steps.filter_map(|step| if let Input::Arrived(arrival) = step.input { Some(arrival) } else { None });
    let arrival = arrival.last().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["log", "pseudonym", "--caller", "alice-17", "--flow", "alice-corp", "--key-file"])
        .arg(&key)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let want = format!("caller alice-17: {}\nflow alice-corp: {}\n", arrival.caller_id, arrival.fairness_id);
    assert_eq!(text, want);
    assert!(holds(&all, &arrival.fairness_id), "what is searched for is there to be found");
}
