//! Goal: the explorer works in a browser, with no outside network and no script error: the playbook, an editor, results as table
//! and as JSON, the schema. Method: headless Chromium on the binary's own page, clicked and typed into.

use super::devtools::{Browser, chromium};
use crate::binary::{Served, settings};
use crate::harness::call;
use serde_json::{Value, json};

/// Text of the answer as it is shown.
const SHOWN: &str = "document.querySelector('#answer').innerText";

fn click(browser: &mut Browser, question: &str) {
    let find = format!(
        "[...document.querySelectorAll('.question')].find(b => b.textContent.startsWith({question:?}))"
    );
    browser.eval(&format!("{find}.click(); true"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_explorer_works_in_a_browser() {
    let Some(program) = chromium() else { return };
    let served = Served::start(&settings("{drainTimeout: 0s}", "maxRequests: 3"));
    served.pool_is(0.2).await;
    served.admit().await.admitted();
    served.pool_is(1.5).await;
    let held = served.admitting(3);
    served.queued(3).await;
    for _ in 0..12 {
        served.admit().await.refused(429, "rejected-saturated");
    }
    let question =
        json!({ "query": "{ requests(filter: { outcome: [REJECTED_CAPACITY] }) { totalCount { count } } }" })
            .to_string();
    served
        .until("the refusals to be known", async || {
            let reply = call(served.addr, "POST", "/graphql", &[], question.as_bytes()).await.json();
            reply["data"]["requests"]["totalCount"]["count"] == json!(12)
        })
        .await;
    let url = format!("http://{}/graphql", served.addr);
    tokio::task::spawn_blocking(move || {
        let mut browser = Browser::start(&program);
        browser.open(&url);
        look_around(&mut browser);
        by_its_link(&mut browser, &url);
        assert_eq!(browser.problems(), Vec::<String>::new());
        let asked = browser.asked_for();
        assert!(asked.len() > 5, "{asked:?}");
        for address in asked.into_iter().filter(|address| address != "about:blank") {
            assert!(address.starts_with(&url), "{address} is not ours");
        }
        if let Some(path) = std::env::var_os("WEIR_PICTURE") {
            browser.picture(path.as_ref());
        }
    })
    .await
    .unwrap();
    held.into_iter().for_each(|one| one.abort());
}

fn look_around(browser: &mut Browser) {
    let questions = browser.eval("document.querySelectorAll('.question').length");
    assert_eq!(questions, json!(weir_graphql::QUESTIONS.len()));
    // A question of the playbook, as a table...
    click(browser, "who was shed and why");
    browser.until("document.querySelectorAll('#answer table').length > 0");
    let text = browser.eval(SHOWN);
    let text = text.as_str().unwrap();
    assert!(text.contains("byReason") && text.contains("SATURATED") && text.contains("12"), "{text}");
    // ... and as JSON, which is the answer itself.
    browser.eval("document.querySelector('#as-json').click(); true");
    browser.until("document.querySelectorAll('#answer pre').length === 1");
    let said: Value = serde_json::from_str(browser.eval(SHOWN).as_str().unwrap()).unwrap();
    assert_eq!(said["data"]["byReason"]["series"][0]["count"], json!(12), "{said}");
    // A question of one's own, by the keyboard.
    let typed = "document.querySelector('#query').value = '{ pools { name queued } }'; \
        document.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', ctrlKey: true })); true";
    browser.eval(typed);
    browser.until(&format!("{SHOWN}.includes('\"queued\": 3')"));
    // A mistake is shown with its code.
    browser.eval("document.querySelector('#query').value = '{ nothing }'; document.querySelector('#run').click(); true");
    browser.until("document.querySelectorAll('#answer .bad').length === 1");
    assert!(browser.eval(SHOWN).as_str().unwrap().contains("GRAPHQL_VALIDATION_FAILED"));
    // The schema, with its descriptions.
    browser.until("document.querySelectorAll('#schema .field').length > 10");
    let searched = "document.querySelector('#search').value = 'explanation'; document.querySelector('#search').oninput(); \
        document.querySelector('#schema').innerText.includes('Request')";
    assert_eq!(browser.eval(searched), json!(true));
}

/// A runbook can link to a question.
fn by_its_link(browser: &mut Browser, url: &str) {
    browser.open("about:blank");
    browser.open(&format!("{url}#what-stood-in-the-queue"));
    browser.until("document.querySelectorAll('#answer table').length > 0");
    let text = browser.eval(SHOWN);
    assert!(text.as_str().unwrap().contains("maxRequests"), "{text}");
}
