//! Measures connectors in a sandbox: the same copies by the built-in connector and by its component, in turns, and what an
//! engine costs.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use forebay_sdk::batch::{Batch, Rows};
use forebay_sdk::component::{Column, tuples_hash};
use forebay_sdk::connector::{Destination as _, Form, Load, Round, Unit};
use forebay_sdk::run::Context;
use forebay_sdk::settings::TargetSettings;
use forebay_wasm::installed::Connectors;
use forebay_wasm::{Grants, Host, Loaded, WasmDestination, WasmSource};
use serde_json::Value;

use super::copies::{self, Ours, by_psql, by_us, same, this_program};
use super::server::Server;
use super::{Plan, Stage};
use crate::bench::Figures;

/// Samples of what takes microseconds.
const SAMPLES: usize = 300;
/// Bytes of a batch that crosses.
const BATCH_SIZE: usize = 1 << 20;
/// How long an installed component may be compared at each load.
const SETTLES_WITHIN: Duration = Duration::from_secs(30);
/// Time between two loads of one that is.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Bytes of a tuple of one `int4`.
const TUPLE: [u8; 10] = [0, 1, 0, 0, 0, 4, 0, 0, 0, 7];

/// Measures connectors in a sandbox.
///
/// * `components`: the directory that `cargo xtask connectors` fills.
///
/// # Errors
/// A process failed, or a copy differs from its source.
pub fn run(plan: &Plan, components: &Path, note: &dyn Fn(&str)) -> anyhow::Result<Value> {
    let scratch = tempfile::tempdir_in(&plan.dir).context("cannot create a scratch directory")?;
    let mut figures = Figures::default();
    note("loading, instances, crossings");
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    engine(components, scratch.path(), &runtime, &mut figures)?;
    note("starting and filling a temporary PostgreSQL");
    let server = Server::start(scratch.path())?;
    let stage = Stage { plan, server: &server, scratch: scratch.path(), note };
    copies::fill(&stage)?;
    install(&stage, components)?;
    against_native(&stage, &mut figures)?;
    phases(&stage, &mut figures)?;
    copies::memory_of(
        &stage,
        "sandbox_",
        Ours { sandbox: true, ..Ours::in_two("t") },
        &mut figures,
    )?;
    Ok(figures.into_json())
}

/// A component that was built.
fn component(components: &Path, name: &str) -> anyhow::Result<(PathBuf, Vec<u8>)> {
    let path = components.join(format!("{name}.wasm"));
    let bytes = std::fs::read(&path)
        .with_context(|| format!("cannot read {}: cargo xtask connectors", path.display()))?;
    Ok((path, bytes))
}

/// Installs the component for the runs.
fn install(stage: &Stage<'_>, components: &Path) -> anyhow::Result<()> {
    let (path, _) = component(components, "postgres")?;
    let installed = Command::new(this_program()?)
        .args(["connector", "install"])
        .arg(path)
        .arg("--data")
        .arg(stage.scratch.join("data"))
        .output()
        .context("cannot install a component")?;
    let complaint = String::from_utf8_lossy(&installed.stderr);
    ensure!(installed.status.success(), "a component was not installed: {complaint}");
    settle(&stage.scratch.join("data/connectors"))
}

fn cpu_seconds(report: &Value) -> anyhow::Result<f64> {
    report.get("cpu_seconds").and_then(Value::as_f64).context("no processor time reported")
}

/// The same table by psql, by the built-in connector and by its component, in turns.
fn against_native(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    (stage.note)("copies by psql, by the built-in connector and by its component");
    let rows: f64 = stage.server.query("src", "select count(*) from t")?.parse()?;
    let sandboxed = Ours { sandbox: true, ..Ours::of("t") };
    let (mut rate, mut of_psql, mut of_native) = (Vec::new(), Vec::new(), Vec::new());
    let (mut cpu, mut cpu_ratio) = (Vec::new(), Vec::new());
    by_psql(stage, "t")?;
    by_us(stage, sandboxed)?;
    for _ in 0..stage.plan.rounds {
        let psql = by_psql(stage, "t")?;
        same(stage, "t")?;
        let (native, native_report) = by_us(stage, Ours::of("t"))?;
        let (ours, report) = by_us(stage, sandboxed)?;
        rate.push(rows / ours);
        of_psql.push(psql / ours);
        of_native.push(native / ours);
        cpu.push(cpu_seconds(&report)?);
        cpu_ratio.push(cpu_seconds(&report)? / cpu_seconds(&native_report)?);
    }
    figures.median("sandbox_rows_per_s", rate);
    figures.median("sandbox_of_psql_ratio", of_psql);
    figures.median("sandbox_of_native_ratio", of_native);
    figures.median("sandbox_cpu_s", cpu);
    figures.median("sandbox_cpu_of_native_ratio", cpu_ratio);
    Ok(())
}

/// The tables of the source document: INSERT and COPY, 10,000 and 100,000 rows, native and sandboxed.
fn phases(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    (stage.note)("INSERT and COPY, native and sandboxed");
    for (table, name) in [("z", "10k"), ("h", "100k")] {
        for method in ["insert", "copy"] {
            for (kind, sandbox) in [("native", false), ("sandbox", true)] {
                let ours = Ours { load_method: method, sandbox, ..Ours::of(table) };
                let mut taken = Vec::new();
                for _ in 0..stage.plan.rounds {
                    let (_, report) = by_us(stage, ours)?;
                    let seconds = report.get("seconds").and_then(Value::as_f64);
                    taken.push(seconds.context("no seconds")? * 1e3);
                }
                figures.median(&format!("{kind}_{method}_{name}_ms"), taken);
            }
        }
    }
    Ok(())
}

/// What an engine costs: loading a kept component, a ready instance, a batch that crosses.
fn engine(
    components: &Path,
    scratch: &Path,
    runtime: &tokio::runtime::Runtime,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (path, postgres) = component(components, "postgres")?;
    let connectors = scratch.join("connectors");
    let begun = Instant::now();
    Connectors::new(connectors.clone()).install("postgres", &path, None)?;
    figures.add("component_install_ms", begun.elapsed().as_secs_f64() * 1e3);
    settle(&connectors)?;
    let mut loads = Vec::new();
    for _ in 0..20 {
        // A new engine has loaded nothing.
        let installed = Connectors::new(connectors.clone());
        installed.host()?;
        let begun = Instant::now();
        black_box(installed.load("postgres", Grants::default())?);
        loads.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    figures.median("component_load_ms", loads);
    let host = Host::new(scratch.join("cache"))?;
    let loaded = Loaded::new(&host, "postgres", &postgres, Grants::default())?;
    let source = WasmSource::new(loaded, "{}".into());
    let mut ready = Vec::new();
    runtime.block_on(async {
        for _ in 0..SAMPLES {
            let begun = Instant::now();
            source.instantiate().await?;
            ready.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        anyhow::Ok(())
    })?;
    figures.median("instance_ready_us", ready);
    crossing(components, &host, runtime, figures)
}

/// Waits until a load trusts the component that was installed: files that were only just written are compared at each load,
/// until one finds them old enough.
fn settle(connectors: &Path) -> anyhow::Result<()> {
    let seen = connectors.join("postgres/component.seen");
    let begun = Instant::now();
    while !seen.exists() {
        ensure!(begun.elapsed() < SETTLES_WITHIN, "a component is compared at each load");
        Connectors::new(connectors.to_owned()).load("postgres", Grants::default())?;
        std::thread::park_timeout(POLL_INTERVAL);
    }
    Ok(())
}

/// A batch of 1 MiB into a component, compared with a copy of its bytes.
fn crossing(
    components: &Path,
    host: &Arc<Host>,
    runtime: &tokio::runtime::Runtime,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let (_, trials) = component(components, "trials")?;
    let loaded = Loaded::new(host, "trials", &trials, Grants::default())?;
    let destination = WasmDestination::new(loaded, "{}".into(), Form::Tuples);
    let tuples: Vec<u8> = TUPLE.iter().copied().cycle().take(BATCH_SIZE / 10 * 10).collect();
    let hash = tuples_hash(&tuples, 1)?;
    let unit = Unit { name: "u".into(), from: None, to: None, rows: None, bytes: None };
    let load = Load {
        id: "l".into(),
        fingerprint: String::new(),
        units: vec![unit.clone()],
        since: None,
        is_stable: true,
        round: Round::default(),
        is_finished: false,
        cursor: None,
    };
    let settings: TargetSettings = target();
    let columns = [Column {
        name: "id".into(),
        sql_type: "integer".into(),
        wire: forebay_sdk::component::Wire::Int4,
        nullable: false,
    }];
    let (mut crossed, mut copied, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    runtime.block_on(async {
        let (context, _cancel) = Context::new("bench");
        let target = destination.open(&settings, &columns, &context).await?;
        let mut writer = target.writer(&load, &unit).await?;
        let mut into = vec![0_u8; tuples.len()];
        for sample in 0..SAMPLES {
            let begun = Instant::now();
            into.copy_from_slice(black_box(&tuples));
            black_box(&mut into);
            let memcpy = begun.elapsed().as_secs_f64() * 1e6;
            let batch = Batch::unbounded(Rows::Tuples(Bytes::from(tuples.clone()), hash));
            let begun = Instant::now();
            writer.write(batch).await?;
            let crossing = begun.elapsed().as_secs_f64() * 1e6;
            // The first ones grow the memory of the component.
            if sample >= 20 {
                crossed.push(crossing);
                copied.push(memcpy);
                ratio.push(crossing / memcpy);
            }
        }
        anyhow::Ok(())
    })?;
    figures.median("crossing_1mib_us", crossed);
    figures.median("memcpy_1mib_us", copied);
    figures.median("crossing_of_memcpy_ratio", ratio);
    Ok(())
}

fn target() -> TargetSettings {
    TargetSettings {
        pipeline: "bench".into(),
        stream: "t".into(),
        into: "t".into(),
        write_mode: forebay_sdk::settings::WriteMode::Append,
        primary_key: Vec::new(),
        on_data_error: forebay_sdk::settings::OnDataError::Fail,
        schema_evolution: forebay_sdk::settings::SchemaEvolution::default(),
        load_method: forebay_sdk::settings::LoadMethod::Copy,
        feed: forebay_sdk::settings::FeedForm::Apply,
    }
}
