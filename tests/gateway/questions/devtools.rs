//! Headless Chromium by its DevTools protocol over a pipe: pages are opened, looked at and clicked, and what goes wrong in them
//! is heard. Where there is no Chromium, that is said loudly and the test is skipped.

use crate::harness::PATIENCE;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A cold start of a browser on a busy machine.
const START: Duration = Duration::from_secs(60);

/// The browser, if there is one.
pub fn chromium() -> Option<PathBuf> {
    let named = std::env::var_os("WEIR_CHROMIUM").map(PathBuf::from);
    let runs = |program: &PathBuf| {
        let tried =
            Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    };
    let found = named
        .into_iter()
        .chain(["chromium", "chromium-browser", "google-chrome"].map(PathBuf::from))
        .find(runs);
    if found.is_none() {
        eprintln!("SKIPPED: no Chromium. Set WEIR_CHROMIUM, or install Debian's package chromium");
    }
    found
}

pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    events: Vec<Value>,
    session: Option<String>,
    next: u64,
    _profile: TempDir,
}

impl Browser {
    /// With one empty page.
    pub fn start(program: &Path) -> Browser {
        let profile = tempfile::tempdir().unwrap();
        // The pipes are its descriptors 3 and 4; names of hosts lead nowhere, so that nothing outside is ever reached.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1"])
            .arg(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--no-first-run",
            ])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=1500,950"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(["--remote-debugging-pipe", "about:blank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (to, out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (heard, from) = channel();
        std::thread::spawn(move || {
            let mut out = BufReader::new(out);
            loop {
                let mut message = Vec::new();
                if out.read_until(0, &mut message).unwrap_or(0) == 0 {
                    return;
                }
                message.pop();
                if heard.send(serde_json::from_slice(&message).unwrap()).is_err() {
                    return;
                }
            }
        });
        let mut browser =
            Browser { child, to, from, events: vec![], session: None, next: 0, _profile: profile };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }), START);
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach, START);
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}), START);
        }
        browser
    }

    fn call(&mut self, method: &str, params: Value, patience: Duration) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(&[0]).unwrap();
        let until = Instant::now() + patience;
        loop {
            let message = match self.from.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout) => panic!("{method}: no answer within {patience:?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("{method}: the browser has ended"),
            };
            if message["id"] == json!(id) {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", json!({ "url": url }), START);
        self.until("document.readyState === 'complete'");
    }

    /// What an expression of the page gives; a promise is waited for.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let said = self.call("Runtime.evaluate", params, PATIENCE);
        assert!(said.get("exceptionDetails").is_none(), "{expression}: {said}");
        said["result"]["value"].clone()
    }

    /// Waits until an expression of the page is true.
    pub fn until(&mut self, expression: &str) {
        let until = Instant::now() + PATIENCE;
        while self.eval(expression) != json!(true) {
            if Instant::now() >= until {
                let shown = self.eval("document.body.innerText");
                panic!("waited in vain for {expression}: {shown}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A picture of the page, for people.
    pub fn picture(&mut self, path: &Path) {
        use base64::Engine as _;
        let said = self.call("Page.captureScreenshot", json!({ "format": "png" }), START);
        let bytes = base64::engine::general_purpose::STANDARD.decode(said["data"].as_str().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Errors of scripts, and what the browser complained about.
    pub fn problems(&mut self) -> Vec<String> {
        self.eval("true");
        let bad = |event: &&Value| match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => true,
            "Runtime.consoleAPICalled" => event["params"]["type"] == "error",
            "Log.entryAdded" => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.events.iter().filter(bad).map(ToString::to_string).collect()
    }

    /// What the page has asked for so far.
    pub fn asked_for(&self) -> Vec<String> {
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
