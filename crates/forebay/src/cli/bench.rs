//! `forebay bench intake`, `cache`, `events`, `inventory` and `pipeline`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use forebay_base::bytes::ByteSize;
use forebay_base::duration::HumanDuration;

use super::settings::ServerArgs;
use crate::bench::{self, Plan};
use crate::exit::Exit;
use crate::out;

#[derive(clap::Subcommand, Debug)]
pub(super) enum Command {
    /// Measure taking files and documents in, beside the machine's own limits.
    ///
    /// Starts servers of its own on free loopback ports, loads them over real sockets, reads
    /// everything back and compares it. Nothing of a running server is touched.
    #[command(after_help = "Example: forebay bench intake --json --rounds 3")]
    Intake(IntakeArgs),
    /// Measure the cache beside Redis on the same machine.
    ///
    /// Starts both servers anew for every round on free loopback ports, loads them with
    /// redis-benchmark, and reads back what it wrote. Needs redis-server and redis-tools.
    #[command(after_help = "Example: forebay bench cache --json --rounds 3")]
    Cache(CacheArgs),
    /// Measure the event store, beside RocksDB and fjall if they are there.
    ///
    /// Writes, reads back and verifies events in stores of its own; nothing of a running server is
    /// touched. `cargo xtask bench events` builds the peers.
    #[command(after_help = "Example: forebay bench events --json --rounds 3")]
    Events(EventsArgs),
    /// Measure the inventory index, beside DuckDB if it is there.
    ///
    /// Makes inventories up, builds indexes of them and compares every answer with a plain
    /// aggregation. `cargo xtask bench inventory` fetches DuckDB.
    #[command(after_help = "Example: forebay bench inventory --json --rounds 3")]
    Inventory(InventoryArgs),
    /// Measure the pipeline on a PostgreSQL of its own, beside psql and other tools.
    ///
    /// Starts a server on a free loopback port, which needs PostgreSQL installed; every copy is compared
    /// with its source by the server itself. `cargo xtask bench pipeline` fetches the other tools.
    #[command(after_help = "Example: forebay bench pipeline --json --rounds 3")]
    Pipeline(PipelineArgs),
    /// One process that writes events, for `forebay bench events`.
    #[command(hide = true)]
    EventsWriter(EventsWriterArgs),
    /// The HTTP server with a route that stores nothing, for comparison.
    #[command(hide = true)]
    Floor(ServerArgs),
}

#[derive(clap::Args, Debug)]
pub(super) struct IntakeArgs {
    /// Print one flat JSON object of figures.
    #[arg(long)]
    json: bool,
    /// Rounds of each comparison; medians are told.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Connections of the load.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1024))]
    connections: u16,
    /// How long one round of a rate lasts.
    #[arg(long, default_value = "2s", value_name = "DURATION")]
    lasting: HumanDuration,
    /// Size of the large file.
    #[arg(long, default_value = "1GiB", value_name = "SIZE")]
    large_size: ByteSize,
    /// Documents in a round.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1..=10_000_000))]
    documents: i64,
    /// Directory for scratch data, on the disk to measure; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(super) struct CacheArgs {
    /// Print one flat JSON object of figures.
    #[arg(long)]
    json: bool,
    /// Rounds of each comparison; medians are told.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Connections of the load.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,
    /// Requests of a round; pipelined, as many times more.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    requests: u64,
    /// Keys of the memory figures.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    keys: u64,
    /// Directory for scratch data; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(super) struct EventsArgs {
    /// Print one flat JSON object of figures.
    #[arg(long)]
    json: bool,
    /// Rounds of each comparison; medians are told.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Events of a rate.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    events: u64,
    /// Events that are stored when single ones are read.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1_000..))]
    stored: u64,
    /// Threads that write.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1024))]
    writers: u64,
    /// Events of a batch.
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=65_000))]
    batch: u64,
    /// The program that puts the same load on RocksDB and fjall.
    #[arg(long, value_name = "FILE")]
    peers: Option<PathBuf>,
    /// Directory for scratch data, on the disk to measure; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
}

#[derive(clap::Args, Debug)]
pub(super) struct InventoryArgs {
    /// Print one flat JSON object of figures.
    #[arg(long)]
    json: bool,
    /// Rounds of each comparison; medians are told.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Objects of an inventory.
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    objects: u64,
    /// Times as many objects in the large one.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    times: u64,
    /// Directory for scratch data, on the disk to measure; emptied afterwards.
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Directory where the made-up inventories stay, to be used again.
    #[arg(long, value_name = "DIR")]
    inventories: Option<PathBuf>,
    /// A Python that has DuckDB.
    #[arg(long, value_name = "FILE")]
    peer_python: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(super) struct PipelineArgs {
    /// Print one flat JSON object of figures.
    #[arg(long)]
    json: bool,
    /// Rounds of each comparison; medians are told.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Rows of the table.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    rows: u64,
    /// Times as many rows in the large one.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    times: u64,
    /// TPC-H's lineitem as `|`-separated values.
    #[arg(long, value_name = "FILE")]
    lineitem: Option<PathBuf>,
    /// A Python that has dlt and Sling.
    #[arg(long, value_name = "FILE")]
    peer_python: Option<PathBuf>,
    /// Another build of this program: compare only it and this one, in turns.
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
    /// Where the store is made.
    dir: PathBuf,
}

pub(super) fn run(command: &Command) -> anyhow::Result<Exit> {
    match command {
        Command::Intake(args) => intake(args),
        Command::Cache(args) => cache(args),
        Command::Events(args) => events(args),
        Command::Inventory(args) => inventory(args),
        Command::Pipeline(args) => pipeline(args),
        Command::EventsWriter(args) => {
            bench::events::writer::run(&args.load, &args.dir)?;
            Ok(Exit::Ok)
        }
        Command::Floor(settings) => super::serve::run_with(settings, None, bench::floor::open),
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
    };
    let figures = bench::intake(&plan, &|text| out::note(format_args!("measuring: {text}")))
        .context("the benchmark could not be completed")?;
    tell(figures, args.json)
}

fn cache(args: &CacheArgs) -> anyhow::Result<Exit> {
    let plan = bench::cache::Plan {
        dir: args.dir.clone(),
        rounds: args.rounds,
        connections: args.connections,
        requests: args.requests,
        keys: args.keys,
    };
    let figures = bench::cache::run(&plan, &|text| out::note(format_args!("measuring: {text}")))
        .context("the benchmark could not be completed")?;
    tell(figures, args.json)
}

pub(super) fn events(args: &EventsArgs) -> anyhow::Result<Exit> {
    let plan = bench::events::Plan {
        dir: args.dir.clone(),
        rounds: args.rounds,
        events: args.events,
        stored: args.stored,
        writers: args.writers,
        batch: args.batch,
        peers: args.peers.clone(),
    };
    let figures = bench::events::run(&plan, &|text| out::note(format_args!("measuring: {text}")))
        .context("the benchmark could not be completed")?;
    tell(figures, args.json)
}

pub(super) fn inventory(args: &InventoryArgs) -> anyhow::Result<Exit> {
    let plan = bench::inventory::Plan {
        dir: args.dir.clone(),
        inventories: args.inventories.clone(),
        rounds: args.rounds,
        objects: args.objects,
        times: args.times,
        peer_python: args.peer_python.clone(),
    };
    let figures =
        bench::inventory::run(&plan, &|text| out::note(format_args!("measuring: {text}")))
            .context("the benchmark could not be completed")?;
    tell(figures, args.json)
}

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
    tell(figures, args.json)
}

fn tell(figures: serde_json::Value, json: bool) -> anyhow::Result<Exit> {
    if json {
        out::line(figures)?;
        return Ok(Exit::Ok);
    }
    for (name, value) in figures.as_object().into_iter().flatten() {
        out::line(format_args!("{name:<40} {value:>16}"))?;
    }
    Ok(Exit::Ok)
}
