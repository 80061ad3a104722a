//! `forebay bench intake`, `cache`, `events`, `inventory` and `pipeline`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use forebay_base::bytes::ByteSize;
use forebay_base::duration::HumanDuration;

use super::settings::ServerArgs;
use crate::bench::{self, IntakePart, Plan};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Measure the intake of files and documents, and compare it with the limits of this machine.
    ///
    /// Starts servers on free loopback ports, loads them over real sockets, reads everything back
    /// and compares it. Does not touch a running server.
    #[command(after_help = "Example: forebay bench intake --json --rounds 3")]
    Intake(IntakeArgs),
    /// Measure the cache.
    ///
    /// Starts a server again for every round on a free loopback port, loads it, and reads back what
    /// was written. `cargo xtask bench cache` also compares the cache with Redis, and with
    /// Valkey if it is installed.
    #[command(after_help = "Example: forebay bench cache --json --rounds 3")]
    Cache(CacheArgs),
    /// Measure the event store.
    ///
    /// Writes, reads and verifies events in temporary stores. Does not touch a running server.
    /// `cargo xtask bench events` also compares the store with RocksDB and fjall.
    #[command(after_help = "Example: forebay bench events --json --rounds 3")]
    Events(EventsArgs),
    /// Measure the inventory index.
    ///
    /// Generates inventories, builds indexes of them and compares every result with a plain
    /// aggregation. `cargo xtask bench inventory` also compares the index with DuckDB.
    #[command(after_help = "Example: forebay bench inventory --json --rounds 3")]
    Inventory(InventoryArgs),
    /// Measure the pipeline on a temporary PostgreSQL, and compare it with psql and other tools.
    ///
    /// Starts a server on a free loopback port, which requires PostgreSQL. The server itself
    /// compares every copy with its source. `cargo xtask bench pipeline` fetches the other tools.
    #[cfg(feature = "peers")]
    #[command(after_help = "Example: forebay bench pipeline --json --rounds 3")]
    Pipeline(PipelineArgs),
    /// Name the command that measures the pipeline beside psql and other tools.
    ///
    /// This build starts no other tools, and cannot measure the pipeline.
    #[cfg(not(feature = "peers"))]
    Pipeline,
    /// Measure connectors in a sandbox, and compare them with the built-in ones and with psql.
    ///
    /// Starts a PostgreSQL on a free loopback port. `cargo xtask bench connectors` builds the components.
    #[cfg(feature = "peers")]
    #[command(
        after_help = "Example: forebay bench connectors --components target/connectors --json"
    )]
    Connectors(ConnectorsArgs),
    /// Run a process that writes events, for `forebay bench events`.
    #[command(hide = true)]
    EventsWriter(EventsWriterArgs),
    /// Run the HTTP server with a route that stores nothing, for comparison.
    #[command(hide = true)]
    Floor(ServerArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct IntakeArgs {
    /// Print one flat JSON object.
    #[arg(long)]
    json: bool,
    /// Number of rounds of each comparison. The medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Number of connections of the load.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// Duration of one round of a throughput measurement.
    #[arg(long, default_value = "2s", value_name = "DURATION")]
    lasting: HumanDuration,
    /// Size of the large file.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    large_size: ByteSize,
    /// Number of documents in a round.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1..=10_000_000))]
    documents: i64,
    /// Measure only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<IntakePart>,
    /// Program versitygw, for the same load over S3.
    #[cfg(feature = "peers")]
    #[arg(long, value_name = "FILE")]
    versitygw: Option<PathBuf>,
    /// Scratch directory, on the disk to measure; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(super) struct CacheArgs {
    /// Print one flat JSON object.
    #[arg(long)]
    json: bool,
    /// Number of rounds of each comparison. The medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Number of connections of the load.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Number of requests in a round, before multiplication by the pipeline depth.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    requests: u64,
    /// Number of keys for the memory figures.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    keys: u64,
    /// Measure only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<bench::cache::Part>,
    /// Scratch directory; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(super) struct EventsArgs {
    /// Print one flat JSON object.
    #[arg(long)]
    json: bool,
    /// Number of rounds of each comparison. The medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Number of events in a throughput measurement.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    events: u64,
    /// Number of events stored before single ones are read.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    stored: u64,
    /// Number of threads that write.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1024))]
    writers: u64,
    /// Number of events in a batch.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=65_000))]
    batch: u64,
    /// Program that puts the same load on RocksDB and fjall.
    #[cfg(feature = "peers")]
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Scratch directory, on the disk to measure; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(super) struct InventoryArgs {
    /// Print one flat JSON object.
    #[arg(long)]
    json: bool,
    /// Number of rounds of each comparison. The medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Number of objects in an inventory.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    objects: u64,
    /// Factor between the number of objects in the large inventory and in the small one.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    times: u64,
    /// Number of objects in the small inventory of each shape; the large one has that many times as many.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    shape_objects: u64,
    /// Measure only these parts.
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<bench::inventory::Part>,
    /// Scratch directory, on the disk to measure; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Directory in which generated inventories are kept for later runs.
    #[arg(long, value_name = "DIR")]
    inventories: Option<PathBuf>,
    /// Python interpreter that has DuckDB.
    #[cfg(feature = "peers")]
    #[arg(long, value_name = "FILE")]
    peer_python: Option<PathBuf>,
}

#[cfg(feature = "peers")]
#[derive(clap::Args, Debug)]
pub(super) struct ConnectorsArgs {
    /// Print one flat JSON object.
    #[arg(long)]
    json: bool,
    /// Number of rounds of each comparison. The medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Number of rows in the table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    rows: u64,
    /// Factor between the number of rows in the large table and in the small one.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    times: u64,
    /// Directory of the components.
    #[arg(long, value_name = "DIR")]
    components: PathBuf,
    /// Scratch directory, on the disk to measure; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[cfg(feature = "peers")]
#[derive(clap::Args, Debug)]
pub(super) struct PipelineArgs {
    /// Print one flat JSON object.
    #[arg(long)]
    json: bool,
    /// Number of rounds of each comparison. The medians are reported.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Number of rows in the table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    rows: u64,
    /// Factor between the number of rows in the large table and in the small one.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    times: u64,
    /// File with TPC-H's lineitem as `|`-separated values.
    #[arg(long, value_name = "FILE")]
    lineitem: Option<PathBuf>,
    /// Python interpreter that has dlt and Sling.
    #[arg(long, value_name = "FILE")]
    peer_python: Option<PathBuf>,
    /// Another build of this program. Compare only this one and that one, in turns.
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["lineitem", "peer_python"])]
    against: Option<PathBuf>,
    /// Directory for the server and scratch data, on the disk to measure; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(super) struct EventsWriterArgs {
    #[command(flatten)]
    load: bench::events::writer::Load,
    /// Directory of the store.
    dir: PathBuf,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Intake(args) => intake(args),
        Command::Cache(args) => cache(args),
        Command::Events(args) => events(args),
        Command::Inventory(args) => inventory(args),
        #[cfg(feature = "peers")]
        Command::Pipeline(args) => pipeline(args),
        #[cfg(not(feature = "peers"))]
        Command::Pipeline => anyhow::bail!(
            "this build starts no other tools, and cannot measure the pipeline; run \
             `cargo xtask bench pipeline` in a checkout of the source"
        ),
        #[cfg(feature = "peers")]
        Command::Connectors(args) => connectors(args),
        Command::EventsWriter(args) => {
            bench::events::writer::run(&args.load, &args.dir)?;
            Ok(Exit::Ok)
        }
        Command::Floor(settings) => {
            super::serve::run_with(settings, None, crate::wiring::floor::open)
        }
    }
}

fn intake(args: &IntakeArgs) -> anyhow::Result<Exit> {
    let plan = Plan {
        dir: args.dir.clone(),
        rounds: args.rounds,
        connections: usize::from(args.connections),
        lasting: args.lasting.get().max(Duration::from_millis(100)),
        large_size: args.large_size.0 >> 20 << 20,
        documents: args.documents,
        only: args.only.clone(),
        #[cfg(feature = "peers")]
        versitygw: args.versitygw.clone(),
    };
    let figures = bench::intake(&plan, &|text| out::note(format_args!("measuring: {text}")))
        .context("the benchmark could not be completed")?;
    report(figures, args.json)
}

fn cache(args: &CacheArgs) -> anyhow::Result<Exit> {
    let plan = bench::cache::Plan {
        dir: args.dir.clone(),
        rounds: args.rounds,
        connections: args.connections,
        requests: args.requests,
        keys: args.keys,
        only: args.only.clone(),
    };
    let figures = bench::cache::run(&plan, &|text| out::note(format_args!("measuring: {text}")))
        .context("the benchmark could not be completed")?;
    report(figures, args.json)
}

pub(super) fn events(args: &EventsArgs) -> anyhow::Result<Exit> {
    let plan = bench::events::Plan {
        dir: args.dir.clone(),
        rounds: args.rounds,
        events: args.events,
        stored: args.stored,
        writers: args.writers,
        batch: args.batch,
        #[cfg(feature = "peers")]
        peers: args.peers.clone(),
    };
    let figures = bench::events::run(&plan, &|text| out::note(format_args!("measuring: {text}")))
        .context("the benchmark could not be completed")?;
    report(figures, args.json)
}

pub(super) fn inventory(args: &InventoryArgs) -> anyhow::Result<Exit> {
    let plan = bench::inventory::Plan {
        dir: args.dir.clone(),
        inventories: args.inventories.clone(),
        rounds: args.rounds,
        objects: args.objects,
        times: args.times,
        shape_objects: args.shape_objects,
        only: args.only.clone(),
        #[cfg(feature = "peers")]
        peer_python: args.peer_python.clone(),
    };
    let figures =
        bench::inventory::run(&plan, &|text| out::note(format_args!("measuring: {text}")))
            .context("the benchmark could not be completed")?;
    report(figures, args.json)
}

#[cfg(feature = "peers")]
fn connectors(args: &ConnectorsArgs) -> anyhow::Result<Exit> {
    let plan = bench::pipeline::Plan {
        dir: args.dir.clone(),
        rounds: args.rounds,
        rows: args.rows,
        times: args.times,
        lineitem: None,
        peer_python: None,
        against: None,
    };
    let note = |text: &str| out::note(format_args!("measuring: {text}"));
    let figures = bench::pipeline::sandbox::run(&plan, &args.components, &note)
        .context("the benchmark could not be completed")?;
    report(figures, args.json)
}

#[cfg(feature = "peers")]
fn pipeline(args: &PipelineArgs) -> anyhow::Result<Exit> {
    let plan = bench::pipeline::Plan {
        dir: args.dir.clone(),
        rounds: args.rounds,
        rows: args.rows,
        times: args.times,
        lineitem: args.lineitem.clone(),
        peer_python: args.peer_python.clone(),
        against: args.against.clone(),
    };
    let figures = bench::pipeline::run(&plan, &|text| out::note(format_args!("measuring: {text}")))
        .context("the benchmark could not be completed")?;
    report(figures, args.json)
}

fn report(figures: serde_json::Value, json: bool) -> anyhow::Result<Exit> {
    if json {
        out::line(figures)?;
        return Ok(Exit::Ok);
    }
    for (name, value) in figures.as_object().into_iter().flatten() {
        out::line(format_args!("{name:<40} {value:>16}"))?;
    }
    Ok(Exit::Ok)
}
