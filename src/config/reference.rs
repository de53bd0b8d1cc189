//! The manual of the configuration, written from the tables: `docs/configuration.md`.

use crate::table::{Kind, Table};
use crate::tables::{PLUGIN_TYPES, ROOT};
use std::fmt::Write;

const HEAD: &str = "# Configuration

<!-- Written from the tables in src/config/tables by `weir config reference`; a test holds it in step. -->

A YAML file, found by `--config FILE`, else `./weir.yaml`, else built-in defaults. `weir config check FILE` tells every
mistake at once; `weir config explain FILE` prints each effective value and where it came from.

Every setting can be set from the environment: `WEIR__` and its path, `__` between the parts, in any case, such as
`WEIR__WEIR__LISTEN` or `WEIR__POOLS__DEFAULT__SCRAPE__INTERVAL`; items of lists by index
(`WEIR__FLOWCONTROL__PRIORITYBANDS__0__MAXREQUESTS`). The value is YAML; an empty one takes away what the file says.

Durations are Go's (`300ms`, `1m30s`); sizes and counts are Kubernetes quantities (`500M`, `1Gi`, `1k`). Ratios are kept in
millionths.
";

/// The whole manual, in Markdown.
pub fn reference() -> String {
    let mut text = HEAD.to_owned();
    section(&mut text, "The document", "", &ROOT);
    text.push_str("\n## Plugin types\n");
    for plugin in PLUGIN_TYPES {
        let _ = write!(
            text,
            "\n### `{}`\n\n{} {}.\n",
            plugin.name,
            plugin.parameters.doc,
            capital(plugin.family.words())
        );
        rows(&mut text, "", plugin.parameters);
    }
    text
}

fn capital(words: &str) -> String {
    let mut chars = words.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn section(text: &mut String, title: &str, path: &str, table: &'static Table) {
    let _ = write!(text, "\n## {title}\n\n{}\n", table.doc);
    rows(text, path, table);
    for setting in table.settings {
        let at = if path.is_empty() { setting.key.to_owned() } else { format!("{path}.{}", setting.key) };
        let (at, below) = match &setting.kind {
            Kind::Section(below) => (at, below),
            Kind::List(below) => (format!("{at}[]"), below),
            Kind::Map(below) => (format!("{at}.<name>"), below),
            _ => continue,
        };
        let template = setting.key.starts_with("default") && setting.key.ends_with("PriorityBand");
        if !is_repeated(path, setting.key) && !template && at != "saturationDetector" {
            section(text, &format!("`{at}`"), &at, below);
        }
    }
}

fn rows(text: &mut String, path: &str, table: &Table) {
    if table.settings.is_empty() {
        text.push_str("\nNo parameters.\n");
        return;
    }
    text.push_str("\n| key | allowed | default | |\n| --- | --- | --- | --- |\n");
    for setting in table.settings {
        let default = match setting.default {
            Some(default) => format!("`{default}`"),
            None => setting.unset.to_owned(),
        };
        let allowed = match &setting.kind {
            Kind::Section(_) | Kind::List(_) | Kind::Map(_) if !path.starts_with("pools.") => {
                below(&setting.kind)
            }
            kind => kind.words(),
        };
        let _ = writeln!(text, "| `{}` | {allowed} | {default} | {} |", setting.key, setting.doc);
    }
}

/// A pool's own sections have the form of those at the top.
fn is_repeated(path: &str, key: &str) -> bool {
    path.starts_with("pools.") && matches!(key, "flowControl" | "plugins")
}

fn below(kind: &Kind) -> String {
    format!("{}, below", kind.words())
}
