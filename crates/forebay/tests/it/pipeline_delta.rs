//! Pipelines into Delta tables, by the real program; the oracles are delta-rs, DuckDB and Polars.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{forebay, run, run_ok, stderr};

/// Number of files that are units of a load, and rows of each.
const FILES: i64 = 40;
const ROWS: i64 = 500;
/// Maximum number of runs that a test kills before one may end.
const KILLS_MAX: usize = 16;

/// Prints the number of rows, of different ids, and the sum of a column, as each reader finds them.
const READ: &str = r#"
import json, pathlib, sys
import deltalake, duckdb, duckdb_extension_delta, duckdb_extension_parquet, polars

query = "select count(*), count(distinct id), cast(sum(n) as bigint), max(v) from t"
table = deltalake.DeltaTable(sys.argv[1])
rows = deltalake.QueryBuilder().register("t", table).execute(query).read_all()
first = [rows.column(at)[0].as_py() for at in range(rows.num_columns)]
duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for module in (duckdb_extension_parquet, duckdb_extension_delta):
    root = pathlib.Path(module.__file__).parent
    duck.load_extension(str(next(root.rglob("*.duckdb_extension"))))
duck.sql(f"create view t as select * from delta_scan('{sys.argv[1]}')")
third = polars.SQLContext(t=polars.scan_delta(sys.argv[1])).execute(query).collect().row(0)
print(json.dumps([first, list(duck.sql(query).fetchone()), list(third)]))
"#;

/// Adds a row as another writer.
const WRITE: &str = r#"
import pathlib, sys
import duckdb, duckdb_extension_delta, duckdb_extension_parquet

duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for module in (duckdb_extension_parquet, duckdb_extension_delta):
    root = pathlib.Path(module.__file__).parent
    duck.load_extension(str(next(root.rglob("*.duckdb_extension"))))
duck.sql(f"attach '{sys.argv[1]}' as t (type delta)")
duck.sql("insert into t (id, v, n) values (-1, 'foreign', 7)")
print(1)
"#;

/// Prints the number of files of the newest version, and of rows of the first one that has any.
const FILES_OF: &str = r#"
import json, sys
import deltalake

def rows(version):
    table = deltalake.DeltaTable(sys.argv[1], version=version)
    query = deltalake.QueryBuilder().register("t", table).execute("select count(*) from t")
    return query.read_all().column(0)[0].as_py()

table = deltalake.DeltaTable(sys.argv[1])
first = next(count for count in map(rows, range(table.version())) if count)
print(json.dumps([len(table.file_uris()), first]))
"#;

/// A directory with a database of `rows` rows, and pipelines of it.
struct Trial {
    dir: TempDir,
    python: PathBuf,
}

impl Trial {
    /// `None` without the readers.
    fn new(rows: i64) -> Option<Self> {
        let python = forebay_testing::tool("delta", "python")?;
        let trial = Self { dir: TempDir::new().unwrap(), python };
        let source = trial.source();
        source.execute_batch("create table t (id integer primary key, v text, n integer)").unwrap();
        trial.add(1, rows);
        Some(trial)
    }

    fn source(&self) -> Connection {
        Connection::open(self.dir.path().join("src.sqlite")).unwrap()
    }

    /// Adds rows with these ids.
    fn add(&self, from: i64, to: i64) {
        let sql = "insert into t with recursive g(id) as (select ?1 union all select id + 1 from g where \
                   id < ?2) select id, 'row ' || id || hex(zeroblob(40)), id * 3 % 1001 from g";
        self.source().execute(sql, [from, to]).unwrap();
    }

    /// Writes the rows into files, each of which is a unit.
    fn export(&self) {
        let (source, directory) = (self.source(), self.dir.path().join("t"));
        std::fs::create_dir_all(&directory).unwrap();
        let sql = "select id || ',' || v || ',' || n from t where id / ?1 = ?2 order by id";
        let mut statement = source.prepare(sql).unwrap();
        for file in 0..=FILES {
            let lines = statement.query_map([ROWS, file], |row| row.get::<_, String>(0)).unwrap();
            let lines: Vec<String> = lines.map(Result::unwrap).collect();
            let text = format!("id,v,n\n{}\n", lines.join("\n"));
            std::fs::write(directory.join(format!("{file:03}.csv")), text).unwrap();
        }
    }

    /// Writes the pipeline: the source, settings of its stream, and of the destination.
    fn write(&self, source: &str, stream: &str, destination: &str) {
        self.write_with(source, stream, destination, "");
    }

    /// The same with settings of the tables.
    fn write_with(&self, source: &str, stream: &str, destination: &str, tables: &str) {
        let path = self.dir.path().display();
        let place = if source == "csv" { "" } else { "/src.sqlite" };
        let file = format!(
            "version: 1\npipeline: p\nsource:\n  use: {source}\n  config: {{ path: '{path}{place}' }}\n  \
             streams: [{{ name: t{stream} }}]\ndestination:\n  use: delta\n  \
             config: {{ path: '{path}/lake'{tables} }}\n{destination}\n\
             resources: {{ checkpoint_interval_bytes: 256KiB, parallelism: 2, max_batch_bytes: 64KiB }}\n"
        );
        std::fs::write(self.dir.path().join("p.yaml"), file).unwrap();
    }

    fn table(&self) -> PathBuf {
        self.dir.path().join("lake/t")
    }

    /// Number of versions of the table.
    fn versions(&self) -> usize {
        let Ok(log) = std::fs::read_dir(self.table().join("_delta_log")) else { return 0 };
        let is_version = |name: &str| name.ends_with(".json") && !name.starts_with('.');
        log.filter(|file| is_version(file.as_ref().unwrap().file_name().to_str().unwrap())).count()
    }

    fn python(&self, script: &str) -> Value {
        let mut command = Command::new(&self.python);
        let output = command.args(["-c", script]).arg(self.table()).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// What all readers find, which is the same.
    fn read(&self) -> Value {
        let read = self.python(READ);
        assert_eq!(read[0], read[1], "delta-rs and DuckDB");
        assert_eq!(read[0], read[2], "delta-rs and Polars");
        read[0].clone()
    }

    /// What the source has.
    fn expected(&self) -> Value {
        let sql = "select count(*), count(distinct id), sum(n), max(v) from t";
        let row = self.source().query_row(sql, [], |row| {
            let (a, b, c): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(json!([a, b, c, row.get::<_, String>(3)?]))
        });
        row.unwrap()
    }

    fn run(&self) -> u64 {
        let report = run_ok(&self.dir, &["pipeline", "run", "p.yaml", "--json"]);
        serde_json::from_str::<Value>(&report).unwrap()["rows"].as_u64().unwrap()
    }

    /// Runs until this many versions more are there, the first of which is of its beginning, waits for a
    /// number of turns of a loop, and kills. Returns whether the run ended by itself.
    fn killed_after(&self, versions: usize, turns: usize) -> bool {
        let seen = self.versions() + versions;
        let mut command = forebay(&self.dir);
        command.args(["pipeline", "run", "p.yaml"]);
        let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while self.versions() < seen && running.try_wait().unwrap().is_none() {}
        // Each turn lists a directory, so the kill comes at another point of the next commit.
        for _ in 0..turns {
            std::hint::black_box(self.versions());
        }
        let ended = running.try_wait().unwrap().is_some_and(|status| status.success());
        if !ended {
            running.kill().unwrap();
        }
        running.wait().unwrap();
        ended
    }
}

#[test]
fn rows_are_appended_once_beside_those_of_another_writer() {
    let Some(trial) = Trial::new(1000) else { return };
    trial.write("sqlite", ", sync_mode: incremental, cursor_field: id", "  write_mode: append");
    let plan = run_ok(&trial.dir, &["pipeline", "plan", "p.yaml"]);
    assert!(plan.contains("create the table"), "{plan}");
    assert_eq!((trial.run(), trial.run()), (1000, 0));
    assert_eq!(trial.read(), trial.expected());
    assert_eq!(trial.python(WRITE), 1);
    trial.add(1001, 1500);
    assert_eq!((trial.run(), trial.run()), (500, 0));
    let (found, expected) = (trial.read(), trial.expected());
    assert_eq!(found[0].as_i64(), expected[0].as_i64().map(|rows| rows + 1));
    assert_eq!(found[2].as_i64(), expected[2].as_i64().map(|sum| sum + 7));
}

#[test]
fn small_files_become_few_and_earlier_versions_stay_readable() {
    let Some(trial) = Trial::new(100) else { return };
    let (stream, append) = (", sync_mode: incremental, cursor_field: id", "  write_mode: append");
    let tables = |config: &str| trial.write_with("sqlite", stream, append, config);
    tables(", merge_files: 1");
    let refused = run(&trial.dir, &["pipeline", "run", "p.yaml"]);
    assert!(stderr(&refused).contains("use 2 to 1000, or 0 to merge none"), "{}", stderr(&refused));
    tables(", keep_removed: 5m");
    let refused = run(&trial.dir, &["pipeline", "run", "p.yaml"]);
    assert!(stderr(&refused).contains("use at least 1h"), "{}", stderr(&refused));
    tables(", merge_files: 3, keep_removed: 1h");
    for round in 1..=7 {
        trial.run();
        assert_eq!(trial.read(), trial.expected(), "round {round}");
        trial.add(round * 100 + 1, round * 100 + 100);
    }
    assert_eq!(trial.python(WRITE), 1);
    trial.run();
    let (found, expected) = (trial.read(), trial.expected());
    assert_eq!(found[0].as_i64(), expected[0].as_i64().map(|rows| rows + 1));
    let files = trial.python(FILES_OF);
    let [now, first]: [usize; 2] = serde_json::from_value(files).unwrap();
    assert!(now <= 4, "{now} files after 8 runs and another writer");
    assert_eq!(first, 100, "rows of the first version with any");
}

#[test]
fn runs_killed_around_a_merge_lose_and_double_nothing() {
    let Some(trial) = Trial::new(200) else { return };
    let (stream, append) = (", sync_mode: incremental, cursor_field: id", "  write_mode: append");
    trial.write_with("sqlite", stream, append, ", merge_files: 2, keep_removed: 1h");
    trial.run();
    let mut kills = 0;
    for round in 0..12 {
        let from = 201 + 50 * i64::try_from(round).unwrap();
        trial.add(from, from + 49);
        // After the beginning, a unit, the end, the merge: each is a version.
        kills += usize::from(!trial.killed_after(1 + round % 5, round * 13 % 40));
        let found = trial.read();
        assert_eq!(found[0], found[1], "after {kills} kills");
    }
    trial.run();
    assert!(kills > 0);
    assert_eq!(trial.read(), trial.expected(), "after {kills} kills");
}

#[test]
fn rows_are_replaced_in_one_commit_and_verified() {
    let Some(trial) = Trial::new(2000) else { return };
    trial.write("sqlite", "", "  write_mode: replace");
    trial.run();
    trial.source().execute("delete from t where id % 3 = 0", []).unwrap();
    trial.run();
    assert_eq!(trial.read(), trial.expected());
    let verified = run(&trial.dir, &["pipeline", "verify", "p.yaml"]);
    assert!(verified.status.success(), "{}", stderr(&verified));
    trial.write("sqlite", "", "  write_mode: upsert\n  primary_key: [id]");
    let refused = run(&trial.dir, &["pipeline", "run", "p.yaml"]);
    let text = stderr(&refused);
    assert!(
        !refused.status.success() && text.contains("cannot be replaced by their key"),
        "{text}"
    );
}

#[test]
fn a_run_killed_at_any_moment_loses_and_doubles_nothing() {
    let Some(trial) = Trial::new(FILES * ROWS) else { return };
    trial.export();
    trial.write("csv", "", "  write_mode: append");
    let (mut kills, mut turns, mut is_complete) = (0, 0, false);
    while !is_complete && kills < KILLS_MAX {
        // A different point each time, without a seed: the numbers go through a cycle.
        turns = (turns + 37) % 101;
        is_complete = trial.killed_after(2 + kills % 4, turns);
        kills += usize::from(!is_complete);
        if trial.versions() > 0 {
            let found = trial.read();
            assert_eq!(found[0], found[1], "after {kills} kills");
            // A kill after the last commit: another run would append all rows again.
            is_complete |= found == trial.expected();
        }
    }
    if !is_complete {
        trial.run();
    }
    assert!(kills > 0);
    assert_eq!(trial.read(), trial.expected(), "after {kills} kills");
}

#[test]
fn a_replacement_killed_at_any_moment_shows_all_old_rows_or_all_new_ones() {
    let Some(trial) = Trial::new(FILES * ROWS) else { return };
    trial.export();
    trial.write("csv", "", "  write_mode: replace");
    trial.run();
    let before = trial.expected();
    trial.source().execute("update t set n = n + 1", []).unwrap();
    let after = trial.expected();
    trial.export();
    let (mut kills, mut turns) = (0, 0);
    loop {
        if kills == KILLS_MAX {
            trial.run();
            assert_eq!(trial.read(), after);
            break;
        }
        turns = (turns + 37) % 101;
        let ended = trial.killed_after(2 + kills % 4, turns);
        let found = trial.read();
        assert!(found == before && !ended || found == after, "after {kills} kills: {found}");
        // A kill after the last commit leaves nothing to do, and a new run would copy again.
        if ended || found == after {
            break;
        }
        kills += 1;
    }
    assert!(kills > 0);
}
