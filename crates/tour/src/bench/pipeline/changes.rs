//! Applying changes: ours, and the server's own subscription, in turns.
//!
//! Both follow the same table from the same moment, each with its own slot, and get the same values in their
//! binary form. Rows are written while neither runs; then one after the other applies them alone. Ours is timed as a
//! whole process. The subscription is timed from the moment its worker has the slot, which the server may need a while
//! for, until it has confirmed the last commit. Its worker does not flush its commits; ours does.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::{Stage, copies, lag};
use crate::bench::Figures;

/// How long a subscription may take for one round.
const LIMIT: Duration = Duration::from_secs(600);

/// The rows of each kind of transaction, as a part of the plan's.
const KINDS: [Kind; 4] = [
    Kind { name: "single", part: 20, write: Write::Inserts(1) },
    Kind { name: "hundred", part: 2, write: Write::Inserts(100) },
    Kind { name: "large", part: 1, write: Write::Inserts(u64::MAX) },
    Kind { name: "update", part: 4, write: Write::Updates(100) },
];

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    part: u64,
    write: Write,
}

/// Rows of each transaction.
#[derive(Clone, Copy)]
enum Write {
    Inserts(u64),
    Updates(u64),
}

/// Measures every kind.
pub(super) fn measure(stage: &Stage<'_>, figures: &mut Figures) -> anyhow::Result<()> {
    let follow = Follow::begin(stage)?;
    let mut last = 0;
    for kind in KINDS {
        (stage.note)(&format!("applying changes: {}", kind.name));
        let rows = (stage.plan.rows / kind.part).max(100);
        let (mut ratios, mut ours, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..stage.plan.rounds {
            let end = follow.write(kind.write, &mut last, rows)?;
            let (own, other) = if round % 2 == 0 {
                let own = follow.by_us()?;
                (own, follow.by_subscription(&end)?)
            } else {
                let other = follow.by_subscription(&end)?;
                (follow.by_us()?, other)
            };
            follow.same()?;
            #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
            let count = rows as f64;
            ratios.push(other / own);
            ours.push(count / own);
            theirs.push(count / other);
        }
        figures.median(&format!("changes_{}_of_subscription_ratio", kind.name), ratios);
        figures.median(&format!("changes_{}_rows_per_s", kind.name), ours);
        figures.median(&format!("changes_{}_subscription_rows_per_s", kind.name), theirs);
    }
    lag::measure(&follow, &mut last, figures)?;
    follow.end()
}

/// A table that both follow.
pub(super) struct Follow<'a> {
    pub(super) stage: &'a Stage<'a>,
    pub(super) file: String,
}

impl<'a> Follow<'a> {
    fn begin(stage: &'a Stage<'a>) -> anyhow::Result<Self> {
        let (server, port) = (stage.server, stage.server.port);
        server.query("postgres", "create database theirs")?;
        let table = "create table c (id bigint primary key, customer int, status text, \
                     placed timestamptz, amount numeric(12,2))";
        for database in ["src", "theirs"] {
            server.query(database, table)?;
        }
        server.query("src", "create publication theirs for table c")?;
        server.query("src", "select pg_create_logical_replication_slot('theirs', 'pgoutput')")?;
        server.query(
            "theirs",
            &format!(
                "create subscription theirs connection 'host=127.0.0.1 port={port} user=postgres dbname=src' \
                 publication theirs with (create_slot = false, slot_name = 'theirs', copy_data = false, \
                 enabled = false, binary = true)"
            ),
        )?;
        let file = format!(
            "{}  streams: [{{name: c, sync_mode: cdc}}]\n{}  write_mode: upsert\n",
            copies::file_head(stage),
            copies::file_destination(stage)
        );
        let follow = Self { stage, file };
        follow.by_us()?;
        Ok(follow)
    }

    /// Writes rows; returns the end of the log.
    fn write(&self, write: Write, last: &mut u64, rows: u64) -> anyhow::Result<String> {
        let server = self.stage.server;
        let (first, statement, step) = match write {
            Write::Inserts(step) => {
                let values = "g, (g * 7919) % 100000, (array['new', 'paid', 'sent', 'closed'])[1 + g % 4], \
                              timestamptz '2026-01-01' + g * interval '1 second', (g % 100000) / 7.0";
                let insert = format!(
                    "insert into c select {values} from generate_series(i, least(i + step, till) - 1) g"
                );
                let first = *last + 1;
                *last += rows;
                (first, insert, step.min(rows))
            }
            Write::Updates(step) => {
                let update = "update c set amount = amount + 1, status = 'sent' where id >= i and id < least(i + step, till)";
                (1, update.to_owned(), step)
            }
        };
        let till = first + rows;
        server.query(
            "src",
            &format!(
                "do $$ declare i bigint := {first}; step bigint := {step}; till bigint := {till}; begin \
                 while i < till loop {statement}; commit; i := i + step; end loop; end $$"
            ),
        )?;
        server.query("src", "checkpoint")?;
        self.end_of_log()
    }

    pub(super) fn end_of_log(&self) -> anyhow::Result<String> {
        self.stage.server.query("src", "select pg_current_wal_flush_lsn()")
    }

    pub(super) fn by_us(&self) -> anyhow::Result<f64> {
        Ok(copies::run_on(self.stage, &self.file)?.0)
    }

    /// Lets the subscription apply everything up to a position; returns the seconds.
    pub(super) fn by_subscription(&self, end: &str) -> anyhow::Result<f64> {
        let server = self.stage.server;
        server.query("theirs", "alter subscription theirs enable")?;
        let waiting = Instant::now();
        while !self.slot("active")? {
            ensure!(waiting.elapsed() < LIMIT, "the subscription has not started");
        }
        let begun = Instant::now();
        while !self.slot(&format!("confirmed_flush_lsn >= '{end}'"))? {
            ensure!(begun.elapsed() < LIMIT, "the subscription has not applied everything");
        }
        let seconds = begun.elapsed().as_secs_f64();
        self.disable()?;
        Ok(seconds)
    }

    /// Stops the subscription.
    pub(super) fn disable(&self) -> anyhow::Result<()> {
        self.stage.server.query("theirs", "alter subscription theirs disable")?;
        let waiting = Instant::now();
        while self.slot("active")? {
            ensure!(waiting.elapsed() < LIMIT, "the subscription has not stopped");
        }
        Ok(())
    }

    /// What is true of the slot of the subscription.
    fn slot(&self, what: &str) -> anyhow::Result<bool> {
        let query = format!("select {what} from pg_replication_slots where slot_name = 'theirs'");
        Ok(self.stage.server.query("src", &query)? == "t")
    }

    /// Checks that both have the rows of the source.
    pub(super) fn same(&self) -> anyhow::Result<()> {
        let content = |database| copies::content(self.stage, database, "c");
        let expected = content("src")?;
        for database in ["dst", "theirs"] {
            let found = content(database)?;
            ensure!(found == expected, "{database} has {found}, the source {expected}");
        }
        Ok(())
    }

    /// Ends both, so that the server can forget its log.
    fn end(self) -> anyhow::Result<()> {
        let server = self.stage.server;
        server.query("theirs", "alter subscription theirs set (slot_name = none)")?;
        server.query("theirs", "drop subscription theirs")?;
        let drop = "select pg_drop_replication_slot(slot_name) from pg_replication_slots";
        server.query("src", drop)?;
        Ok(())
    }
}
