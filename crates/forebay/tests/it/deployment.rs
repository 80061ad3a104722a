//! The files of `packaging/deploy` describe processes that start, answer their probes, keep files and stop in time: the same
//! arguments and variables are given to the program here.

use std::collections::BTreeMap;
use std::path::PathBuf;

use forebay_testing::Versity;
use serde::Deserialize;
use tempfile::TempDir;

use crate::support::{Server, agent, forebay, run, stderr};

/// What the unit of systemd waits for at a stop, in seconds.
const STOP_S: u64 = 150;
/// Where the image keeps data.
const DATA: &str = "/var/lib/forebay";

/// A container, however its orchestrator writes it.
#[derive(Debug)]
struct Container {
    args: Vec<String>,
    environment: BTreeMap<String, String>,
    /// Where volumes are mounted.
    mounts: Vec<String>,
    /// Paths that the orchestrator asks for.
    probes: Vec<String>,
    /// Names of secrets whose values are variables.
    secrets: Vec<String>,
    grace_s: u64,
}

#[derive(Deserialize)]
struct Compose {
    services: BTreeMap<String, Service>,
}

#[derive(Deserialize)]
struct Service {
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    volumes: Vec<String>,
    stop_grace_period: String,
    read_only: bool,
}

#[derive(Deserialize)]
struct Manifests {
    items: Vec<Manifest>,
}

#[derive(Deserialize)]
struct Manifest {
    kind: String,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize, Default)]
struct Spec {
    template: Option<Template>,
    replicas: Option<u32>,
}

#[derive(Deserialize)]
struct Template {
    spec: Pod,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    termination_grace_period_seconds: Option<u64>,
    security_context: SecurityContext,
    containers: Vec<PodContainer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecurityContext {
    run_as_non_root: bool,
    run_as_user: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodContainer {
    args: Vec<String>,
    #[serde(default)]
    env: Vec<Variable>,
    #[serde(default)]
    env_from: Vec<From>,
    volume_mounts: Vec<Mount>,
    startup_probe: Option<Probe>,
    readiness_probe: Option<Probe>,
    liveness_probe: Option<Probe>,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct From {
    secret_ref: Named,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    mount_path: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Probe {
    http_get: Asked,
}

#[derive(Deserialize)]
struct Asked {
    path: String,
}

fn packaged(name: &str) -> String {
    let packaging = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging"));
    std::fs::read_to_string(packaging.join(name)).unwrap()
}

fn compose(name: &str) -> Container {
    let file: Compose = serde_saphyr::from_str(&packaged(&format!("deploy/{name}"))).unwrap();
    let service = &file.services["forebay"];
    assert!(service.read_only);
    let mounts = service.volumes.iter().map(|volume| volume.split(':').nth(1).unwrap().into());
    Container {
        args: service.command.clone(),
        environment: service.environment.clone(),
        mounts: mounts.collect(),
        probes: Vec::new(),
        secrets: Vec::new(),
        grace_s: service.stop_grace_period.strip_suffix('s').unwrap().parse().unwrap(),
    }
}

/// The job that makes the first key, and the server.
fn kubernetes(name: &str) -> (Container, Container) {
    let text = packaged(&format!("deploy/{name}"));
    let mut file: Manifests = serde_saphyr::from_str(&text).unwrap();
    let mut of = |kind: &str| {
        let at = file.items.iter().position(|item| item.kind == kind).unwrap();
        let spec = file.items.swap_remove(at).spec;
        assert!(spec.replicas.is_none_or(|replicas| replicas == 1), "the data has one process");
        let mut pod = spec.template.unwrap().spec;
        let user = &pod.security_context;
        assert!(user.run_as_non_root && user.run_as_user == 10001, "as in the image");
        let container = pod.containers.remove(0);
        let probes = [container.startup_probe, container.readiness_probe, container.liveness_probe];
        Container {
            args: container.args,
            environment: container.env.into_iter().map(|of| (of.name, of.value)).collect(),
            mounts: container.volume_mounts.into_iter().map(|mount| mount.mount_path).collect(),
            probes: probes.into_iter().flatten().map(|probe| probe.http_get.path).collect(),
            secrets: container.env_from.into_iter().map(|from| from.secret_ref.name).collect(),
            grace_s: pod.termination_grace_period_seconds.unwrap_or(30),
        }
    };
    (of("Job"), of("StatefulSet"))
}

/// A value as a person sets the variables that it names: `${NAME}`, with a default after `:-`.
fn interpolated(value: &str, set: &BTreeMap<&str, String>) -> String {
    let Some(inner) = value.strip_prefix("${").and_then(|value| value.strip_suffix('}')) else {
        assert!(!value.contains("${"), "{value}");
        return value.to_owned();
    };
    let name = inner.split(':').next().unwrap();
    let default = inner.split_once(":-").map(|(_, default)| default.to_owned());
    set.get(name).cloned().or(default).unwrap_or_else(|| panic!("{name} is not set"))
}

/// Makes a key, starts the server as a container does, stores and reads a file, and stops it.
///
/// * `key`: the arguments that make a key.
/// * `set`: what a person sets.
fn runs(container: &Container, key: &[String], set: &BTreeMap<&str, String>) {
    let dir = TempDir::new().unwrap();
    assert!(container.mounts.iter().any(|mount| mount == DATA), "{container:?}");
    assert!(container.grace_s >= STOP_S, "{container:?}");
    let mut environment = container.environment.clone();
    for value in environment.values_mut() {
        *value = interpolated(value, set);
    }
    let data = dir.path().join("data").display().to_string();
    environment.insert("FOREBAY_DATA".into(), data);
    // What is not in a file, but in a secret.
    environment.extend(set.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    let shown = forebay(&dir).args(["config", "show"]).envs(&environment).output().unwrap();
    assert!(shown.status.success() && stderr(&shown).is_empty(), "{}", stderr(&shown));
    let made = forebay(&dir).args(key).envs(&environment).output().unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let key = String::from_utf8(made.stdout).unwrap();
    let key = key.split_whitespace().find(|word| word.starts_with("fbk_")).unwrap().to_owned();

    assert_eq!(container.args, ["serve"]);
    let server = Server::start_with(&dir, &[], |command| {
        command.envs(&environment);
    });
    for probe in &container.probes {
        assert_eq!(server.get(probe).status, 200, "{probe}");
    }
    let url = format!("{}/v1/files/photos/a.bin", server.url);
    let bytes: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    let agent = agent();
    assert_eq!(agent.get(&url).call().unwrap().status(), 401, "without a key");
    let bearer = format!("Bearer {key}");
    let put = agent.put(&url).header("authorization", &bearer).send(&bytes).unwrap();
    assert_eq!(put.status(), 201);
    let mut got = agent.get(&url).header("authorization", &bearer).call().unwrap();
    assert_eq!(got.body_mut().read_to_vec().unwrap(), bytes);
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}

/// The command that the head of a file shows for the first key.
fn first_key(name: &str) -> Vec<String> {
    let text = packaged(&format!("deploy/{name}"));
    let line = text.lines().find_map(|line| line.split_once("run --rm forebay ")).unwrap().1;
    line.split_whitespace().take_while(|word| *word != "#").map(str::to_owned).collect()
}

#[test]
fn one_node_runs_as_compose_and_kubernetes_run_it() {
    let set = BTreeMap::new();
    let container = compose("compose.yaml");
    runs(&container, &first_key("compose.yaml"), &set);
    let (key, container) = kubernetes("kubernetes.yaml");
    assert_eq!(key.mounts, [DATA]);
    assert_eq!(container.probes, ["/readyz", "/readyz", "/healthz"]);
    runs(&container, &key.args, &set);
}

#[test]
fn one_node_with_its_files_in_a_bucket_runs_as_compose_and_kubernetes_run_it() {
    let Some(bucket) = Versity::start("files") else { return };
    let set = |names: [&'static str; 4]| {
        let values = [
            "s3://files/forebay".to_owned(),
            bucket.endpoint(),
            Versity::KEY.to_owned(),
            Versity::SECRET.to_owned(),
        ];
        let mut set: BTreeMap<&str, String> = names.into_iter().zip(values).collect();
        // The server of the test has no TLS, and a region of its own.
        set.insert("FOREBAY_INTAKE_BLOBS_ALLOW_HTTP", "true".into());
        set.insert("FOREBAY_INTAKE_BLOBS_REGION", "us-east-1".into());
        set
    };
    let stored = || std::fs::read_dir(bucket.bucket("files").join("forebay")).unwrap().count();
    let container = compose("compose-s3.yaml");
    let key = first_key("compose-s3.yaml");
    runs(
        &container,
        &key,
        &set(["BLOBS", "BLOBS_ENDPOINT", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]),
    );
    assert!(stored() > 0, "the bucket has the file");
    std::fs::remove_dir_all(bucket.bucket("files").join("forebay")).unwrap();
    let (key, container) = kubernetes("kubernetes-s3.yaml");
    assert_eq!(container.secrets, ["forebay-bucket"]);
    let names = [
        "FOREBAY_INTAKE_BLOBS",
        "FOREBAY_INTAKE_BLOBS_ENDPOINT",
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ];
    runs(&container, &key.args, &set(names));
    assert!(stored() > 0, "the bucket has the file");
}

#[test]
fn a_server_without_a_key_does_not_listen_beyond_its_machine() {
    let dir = TempDir::new().unwrap();
    let refused = run(&dir, &["serve", "--listen", "0.0.0.0:0", "--set", "cache.enabled=false"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("forebay key new"), "{}", stderr(&refused));
}
