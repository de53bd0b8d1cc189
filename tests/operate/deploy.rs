//! The files of `deploy/`, each checked by the tool that reads it, as far as that is on this machine.

use crate::{file, files, read, said, tool};
use serde_json::Value;
use std::process::Command;

fn weir(args: &[&str]) -> std::process::Output {
    let command =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(args).current_dir(env!("CARGO_MANIFEST_DIR")).output();
    command.unwrap()
}

#[test]
fn settings_are_valid() {
    for settings in [
        "deploy/weir.yaml",
        "deploy/kubernetes/base/weir.yaml",
        "deploy/kubernetes/overlays/proxy/weir.yaml",
        "deploy/kubernetes/overlays/envoy-gateway/weir.yaml",
    ] {
        let output = weir(&["config", "check", settings]);
        assert!(output.status.success(), "{settings}: {}", said(&output));
    }
}

#[test]
fn manifests_render_and_are_as_they_should_be() {
    for (folder, more) in [
        ("base", &[][..]),
        (
            "overlays/envoy-gateway",
            &[
                "EnvoyExtensionPolicy",
                "--grpc-listen",
                "kind: Role\n",
                "kind: RoleBinding\n",
                "- endpointslices",
                "- inferencepools",
                "- inferenceobjectives",
                "serviceAccountToken:",
                "kubernetes: {namespace: inference}",
            ],
        ),
        ("overlays/proxy", &["dns: {name: vllm.inference.svc.cluster.local", "enabled: true"]),
    ] {
        let path = format!("deploy/kubernetes/{folder}");
        let Some(output) = tool("kubectl", &["kustomize", &path], b"") else { return };
        let text = said(&output);
        assert!(output.status.success(), "{folder}: {text}");
        for kind in [
            "Namespace",
            "ServiceAccount",
            "StatefulSet",
            "Service",
            "PodDisruptionBudget",
            "NetworkPolicy",
            "ServiceMonitor",
            "ConfigMap",
        ] {
            assert!(text.contains(&format!("kind: {kind}\n")), "{folder}: no {kind}");
        }
        for line in [
            "runAsNonRoot: true",
            "readOnlyRootFilesystem: true",
            "allowPrivilegeEscalation: false",
            "automountServiceAccountToken: false",
            "path: /readyz",
            "path: /healthz",
            "mountPath: /var/lib/weir",
        ] {
            assert!(text.contains(line), "{folder}: no {line}");
        }
        for part in more {
            assert!(text.contains(part), "{folder}: no {part}");
        }
        // A selector that selects everything is a mistake.
        assert!(!text.contains("matchLabels: {}"), "{folder}: {text}");
        // The pod has the time that a stop may take: drain 30 s, answers 5 s, traces 4 s.
        assert!(text.contains("terminationGracePeriodSeconds: 60"));
    }
}

/// A program of the virtual environment that `.ci/run` makes.
fn of_venv(program: &str) -> String {
    let venv = std::env::var_os("WEIR_DEPLOY_VENV").map_or_else(|| file(".venv-deploy"), Into::into);
    let path = venv.join("bin").join(program);
    if path.is_file() { path.display().to_string() } else { program.to_owned() }
}

/// What is rendered has no field that Kubernetes does not know, and none of another type.
#[test]
fn manifests_hold_against_the_schemas_of_kubernetes() {
    for folder in ["base", "overlays/envoy-gateway", "overlays/proxy"] {
        let path = format!("deploy/kubernetes/{folder}");
        let Some(rendered) = tool("kubectl", &["kustomize", &path], b"") else { return };
        let place = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(place.path(), &rendered.stdout).unwrap();
        let args = ["--strict", &place.path().display().to_string()];
        let Some(checked) = tool(&of_venv("kubernetes-validate"), &args, b"") else { return };
        let text = said(&checked);
        assert!(checked.status.success(), "{folder}: {text}");
        let passed = text.lines().filter(|line| line.contains(" passed for resource ")).count();
        assert!(passed >= 7, "{folder}: {text}");
        // Kinds of others have no schema there, and are said not to have been checked.
        let unchecked = text.lines().filter(|line| line.contains("Couldn't find schema"));
        for line in unchecked {
            assert!(line.contains("ServiceMonitor") || line.contains("EnvoyExtensionPolicy"), "{line}");
        }
    }
}

#[test]
fn the_recipe_of_the_image_is_as_the_linter_likes_it() {
    if let Some(output) = tool(&of_venv("hadolint"), &["deploy/Dockerfile"], b"") {
        assert!(output.status.success(), "{}", said(&output));
    }
}

/// Where an Envoy is, if there is one (as tests/envoy finds it).
#[test]
fn envoy_takes_its_settings() {
    let venv = file(".venv-envoy/bin/envoy");
    let named = std::env::var("WEIR_ENVOY").ok();
    let program =
        named.unwrap_or_else(|| if venv.is_file() { venv.display().to_string() } else { "envoy".to_owned() });
    for settings in files("deploy/envoy", ".yaml") {
        let Some(output) = tool(&program, &["--mode", "validate", "-c", &settings, "-l", "error"], b"")
        else {
            return;
        };
        assert!(output.status.success(), "{settings}: {}", said(&output));
    }
}

/// The Rust files below a folder.
fn sources(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| match path.is_dir() {
            true => sources(&path),
            false => vec![path],
        })
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .collect()
}

#[test]
fn the_image_has_all_it_is_built_from_and_runs_as_nobody() {
    let (image, ignored) = (read("deploy/Dockerfile"), read("deploy/Dockerfile.dockerignore"));
    assert!(image.contains("USER 65532:65532") && image.contains("--locked"));
    let manifest = read("Cargo.toml");
    let members = manifest.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    for member in members.split('"').skip(1).step_by(2).filter(|member| *member != ".") {
        let top = member.split('/').next().unwrap();
        assert!(ignored.contains(&format!("!{top}\n")), "the image is built without {member}");
    }
    // What the sources take in of other files.
    let mut taken = 0;
    for source in ["src", "replay", "migrations"].iter().flat_map(|dir| sources(&file(dir))) {
        let text = std::fs::read_to_string(&source).unwrap();
        for part in ["include_str!(", "include_bytes!("].iter().flat_map(|taker| text.split(taker).skip(1)) {
            // The last part of a path that is put together does not matter: its folder is taken as a whole.
            let Some(path) = part.split('"').nth(1).filter(|_| part.starts_with(['"', 'c'])) else {
                continue;
            };
            let mut parts: Vec<&str> = Vec::new();
            let whole = source.parent().unwrap().strip_prefix(file("")).unwrap().join(path);
            for part in whole.to_str().unwrap().split('/').filter(|part| !part.is_empty()) {
                match part {
                    ".." => parts.truncate(parts.len() - 1),
                    _ => parts.push(part),
                }
            }
            let (one, top) = (format!("!{}\n", parts.join("/")), format!("!{}\n", parts[0]));
            assert!(ignored.contains(&one) || ignored.contains(&top), "the image is built without {parts:?}");
            taken += 1;
        }
    }
    assert!(taken >= 5, "{taken}");
    // A new volume is its user's own.
    assert!(image.contains("--chown=65532:65532 /src/weir-data /var/lib/weir"));
    let version = manifest.split("rust-version = \"").nth(1).unwrap().split('"').next().unwrap();
    assert!(
        image.contains(&format!("FROM rust:{version}-")),
        "the image is built with another Rust than {version}"
    );
}

#[test]
fn every_file_that_compose_mounts_is_there() {
    let text = read("deploy/compose.yaml");
    let mut mounts = 0;
    for line in text.lines() {
        for part in line.split(['"', ' ', '[']).filter(|part| part.starts_with("./")) {
            let path = part.split(':').next().unwrap();
            assert!(file("deploy").join(path).exists(), "compose.yaml mounts {path}");
            mounts += 1;
        }
    }
    assert!(mounts >= 5, "{mounts}");
    for service in ["weir:", "simpool:", "envoy:", "traces:", "prometheus:", "grafana:"] {
        assert!(text.contains(&format!("\n  {service}\n")), "{service}");
    }
    // What starts Weir there starts Weir here.
    for (command, flags) in [
        ("serve", &["--config", "--data", "--insecure"][..]),
        ("simpool", &["--endpoints", "--base-port", "--host"]),
    ] {
        let help = said(&weir(&[command, "--help"]));
        assert!(flags.iter().all(|flag| help.contains(flag)), "{command}");
    }
}

#[test]
fn the_unit_is_one_and_waits_for_a_stop() {
    let unit = read("deploy/systemd/weir.service");
    for section in ["[Unit]", "[Service]", "[Install]"] {
        assert!(unit.contains(section));
    }
    assert!(unit.contains("TimeoutStopSec=60s") && unit.contains("DynamicUser=yes"));
    let path = file("deploy/systemd/weir.service").display().to_string();
    if let Some(output) = tool("systemd-analyze", &["verify", &path], b"") {
        // The program is not installed on the machine that checks.
        let text = said(&output);
        let faults: Vec<&str> = text.lines().filter(|line| !line.contains("is not executable")).collect();
        assert!(faults.iter().all(|line| !line.contains("weir.service")), "{faults:#?}");
    }
}

#[test]
fn provisioning_of_grafana_points_where_compose_mounts() {
    let provider = read("deploy/grafana/provisioning/dashboards/weir.yaml");
    assert!(provider.contains("/var/lib/grafana/dashboards"));
    // The one source asks what compose runs, and its exemplars lead to the traces that compose shows.
    let (source, compose) =
        (read("deploy/grafana/provisioning/datasources/prometheus.yaml"), read("deploy/compose.yaml"));
    let url = source.lines().find_map(|line| line.trim().strip_prefix("url: http://")).unwrap();
    let (host, port) = url.split_once(':').unwrap();
    assert!(
        compose.contains(&format!("\n  {host}:\n")) && compose.contains(&format!(":{port}:{port}\"")),
        "{url}"
    );
    let traces = source.split("http://localhost:").nth(1).unwrap();
    let port: String = traces.chars().take_while(char::is_ascii_digit).collect();
    assert!(compose.contains(&format!(":{port}:{port}\"")), "{traces}");
    for place in files("deploy/grafana/dashboards", ".json") {
        let board: Value = serde_json::from_str(&read(&place)).unwrap();
        let first = &board["templating"]["list"][0];
        assert_eq!(first["type"], "datasource", "{place}");
    }
}
