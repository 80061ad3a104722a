//! How long a row takes from its insertion at the source to its commit at the destination, while rows are inserted at
//! a steady rate: ours, and the server's own subscription, in turns.
//!
//! A row has the moment at which it was to be inserted, so a late writer counts. When it was committed at the
//! destination is in the server's log, by the number of its transaction (`pg_waldump`): both ends have one clock, and
//! a subscription's commits have the time of the source elsewhere.

use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::changes::Follow;
use super::copies::this_program;
use crate::bench::Figures;

/// Rows inserted a second.
const RATE: u64 = 5_000;
/// Rows of each transaction.
const BATCH: u64 = 10;
/// How long rows are inserted for each, in seconds.
const SECONDS: u64 = 10;
/// How long rows may take to arrive.
const LIMIT: Duration = Duration::from_secs(120);

/// The lag of one round, in milliseconds.
struct Lag {
    p50: f64,
    p99: f64,
}

/// Measures both.
pub(super) fn measure(
    follow: &Follow<'_>,
    last: &mut u64,
    figures: &mut Figures,
) -> anyhow::Result<()> {
    let rounds = follow.stage.plan.rounds;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        (follow.stage.note)("following changes at 5,000 rows a second");
        for is_ours in [round % 2 == 0, round % 2 != 0] {
            if is_ours {
                ours.push(by_us(follow, last)?);
                // The other one applies these rows without being timed, before its own turn.
                follow.by_subscription(&follow.end_of_log()?)?;
            } else {
                theirs.push(by_subscription(follow, last)?);
                follow.by_us()?;
            }
        }
        follow.same()?;
    }
    let both = ours.iter().zip(&theirs);
    figures.median(
        "changes_lag_p99_of_subscription_ratio",
        both.map(|(a, b)| a.p99 / b.p99).collect(),
    );
    for (name, lags) in [("changes_lag", &ours), ("changes_subscription_lag", &theirs)] {
        figures.median(&format!("{name}_p50_ms"), lags.iter().map(|lag| lag.p50).collect());
        figures.median(&format!("{name}_p99_ms"), lags.iter().map(|lag| lag.p99).collect());
    }
    Ok(())
}

fn by_us(follow: &Follow<'_>, last: &mut u64) -> anyhow::Result<Lag> {
    let path = follow.stage.scratch.join("follow.yaml");
    std::fs::write(&path, &follow.file).context("cannot write a pipeline file")?;
    let mut command = Command::new(this_program()?);
    command.args(["pipeline", "run", "--follow", "--json", "--data"]);
    command.arg(follow.stage.scratch.join("data")).arg(&path);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let running = Running(command.spawn().context("cannot start a run")?);
    let lag = lag(follow, "dst", last)?;
    running.stop()?;
    Ok(lag)
}

fn by_subscription(follow: &Follow<'_>, last: &mut u64) -> anyhow::Result<Lag> {
    follow.stage.server.query("theirs", "alter subscription theirs enable")?;
    let lag = lag(follow, "theirs", last)?;
    follow.disable()?;
    Ok(lag)
}

/// Inserts rows, and waits until they are at the destination.
fn lag(follow: &Follow<'_>, database: &str, last: &mut u64) -> anyhow::Result<Lag> {
    let server = follow.stage.server;
    // The first row shows that changes are followed.
    *last += 1;
    server.query("src", &format!("insert into c values ({last}, 0, 'new', now(), 0)"))?;
    arrived(follow, database, *last)?;
    let (first, steps) = (*last + 1, RATE * SECONDS / BATCH);
    *last += steps * BATCH;
    let from = server.query("src", "select pg_current_wal_flush_lsn()")?;
    server.query(
        "src",
        &format!(
            "do $$ declare begun timestamptz := clock_timestamp(); due timestamptz; i bigint := {first}; begin
               for step in 0..{steps} - 1 loop
                 due := begun + step * interval '1 second' * {BATCH} / {RATE};
                 perform pg_sleep(greatest(0, extract(epoch from due - clock_timestamp())));
                 insert into c select g, g % 1000, 'new', due, g / 7.0 from generate_series(i, i + {BATCH} - 1) g;
                 commit;
                 i := i + {BATCH};
               end loop; end $$"
        ),
    )?;
    arrived(follow, database, *last)?;
    // Its commit is flushed, and with it those of the subscription, which are not.
    server.query(
        database,
        "drop table if exists commits; create table commits (xid text primary key, at timestamptz)",
    )?;
    let till = server.query("src", "select pg_current_wal_flush_lsn()")?;
    let commits = server.commits(&from, &till)?;
    let mut copy = server.psql_command(database);
    copy.args(["-c", "copy commits from stdin"]).stdin(Stdio::piped());
    let mut copy = copy.spawn().context("cannot start psql")?;
    copy.stdin.take().context("psql has no input")?.write_all(commits.as_bytes())?;
    ensure!(copy.wait()?.success(), "psql did not take the commits");
    let found = server.query(
        database,
        &format!(
            "select count(*), percentile_disc(0.5) within group (order by lag), percentile_disc(0.99) within group (order by lag)
             from (select (extract(epoch from l.at - c.placed) * 1000)::float8 lag
                   from c join commits l on l.xid = c.xmin::text where c.id >= {first}) lags"
        ),
    )?;
    let values: Vec<f64> = found.split('|').map(str::parse).collect::<Result<_, _>>()?;
    let [count, p50, p99] = *values else { anyhow::bail!("psql answered {found:?}") };
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    let wanted = (steps * BATCH) as f64;
    ensure!((count - wanted).abs() < 0.5, "the commits of {count} rows of {wanted} are known");
    Ok(Lag { p50, p99 })
}

fn arrived(follow: &Follow<'_>, database: &str, id: u64) -> anyhow::Result<()> {
    let waiting = Instant::now();
    let query = format!("select count(*) from c where id = {id}");
    while follow.stage.server.query(database, &query)? != "1" {
        ensure!(waiting.elapsed() < LIMIT, "row {id} did not arrive");
    }
    Ok(())
}

/// A run that follows until it is stopped.
struct Running(Child);

impl Running {
    fn stop(mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let ended = self.0.wait()?;
        ensure!(ended.code() == Some(130), "the run that follows ended with {ended}");
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended unless the measurement failed.
        if matches!(self.0.try_wait(), Ok(None)) && self.0.kill().is_ok() {
            self.0.wait().ok();
        }
    }
}
