//! Redis' own test suites, written in Tcl, against a server they did not start.

use std::path::Path;
use std::process::Command;

use super::server::{Server, limited};
use super::{Outcome, Stage, fetch, skip};

/// The source package of Debian 12, whose suites these are.
const ADDRESS: &str = "http://deb.debian.org/debian/pool/main/r/redis/redis_7.0.15.orig.tar.gz";
const SHA256: &str = "4b1dc4ee6d622a09fff9c6777191209750fb5e5a725ef78ea012d6eef4c22982";

/// Suites about what this server has.
const UNITS: &[&str] = &[
    "unit/type/string",
    "unit/type/incr",
    "unit/type/list",
    "unit/type/list-2",
    "unit/type/list-3",
    "unit/type/hash",
    "unit/type/set",
    "unit/type/zset",
    "unit/keyspace",
    "unit/scan",
    "unit/expire",
    "unit/sort",
    "unit/multi",
    "unit/pubsub",
    "unit/protocol",
    "unit/quit",
    "unit/bitops",
    "unit/slowlog",
    "unit/introspection",
    "unit/introspection-2",
    "unit/other",
];

/// What cannot be asked of a server the suites did not start.
const TAGS: &str = "-needs:debug -needs:repl -needs:save -external:skip";

/// The suites count on commands of several connections running in the order they were sent, as one
/// thread runs them.
const OPTIONS: &[&str] = &["--threads", "1"];

/// Of one unit.
const LIMIT_S: u32 = 120;

pub(super) fn run(stage: &Stage) -> anyhow::Result<Outcome> {
    fetch::need("tclsh")?;
    let suites = fetch::once(&stage.dir.join("redis-7.0.15"), |into| {
        let file = into.join("redis.tar.gz");
        fetch::file(ADDRESS, SHA256, &file)?;
        fetch::unpack(&file, into)
    })?;
    let suites = suites.join("redis-7.0.15");
    let skipped = stage.output.join("redis-tcl.skipped");
    std::fs::write(&skipped, skip::names("redis-tcl.skip")?.join("\n"))?;
    let mut all = Outcome::default();
    for unit in UNITS {
        // A server each: some leave settings changed.
        let name = format!("redis-tcl-{}", unit.replace('/', "-"));
        let outcome = stage.serve(&name, OPTIONS, |server| {
            let (ended_well, said) = limited(&suite(&suites, server, &skipped, unit), LIMIT_S)?;
            std::fs::write(stage.output.join(&name).join("suite.log"), &said)?;
            let mut outcome = read(&said);
            if !ended_well && outcome.failed.is_empty() {
                let last = last(&said);
                outcome.failed.push(format!("{unit} failed or exceeded {LIMIT_S} s: {last}"));
            }
            Ok(outcome)
        })?;
        all.passed += outcome.passed;
        all.skipped += outcome.skipped;
        all.failed.extend(outcome.failed);
    }
    Ok(all)
}

fn suite(suites: &Path, server: &Server, skipped: &Path, unit: &str) -> Command {
    let mut suite = Command::new("tclsh");
    suite.current_dir(suites);
    suite.args(["tests/test_helper.tcl", "--host", "127.0.0.1", "--port"]);
    suite.arg(server.resp.port().to_string());
    suite.args(["--singledb", "--ignore-encoding", "--ignore-digest", "--durable"]);
    suite.args(["--clients", "1", "--tags", TAGS, "--skipfile"]).arg(skipped);
    suite.args(["--single", unit]);
    suite
}

fn last(said: &str) -> String {
    plain(said.lines().next_back().unwrap_or_default())
}

/// Reads what the suites say: `[ok]: name`, each failure repeated at the end.
fn read(said: &str) -> Outcome {
    let mut outcome = Outcome::default();
    for line in said.lines().map(plain) {
        if line.starts_with("!!! WARNING") {
            break;
        }
        let Some((word, name)) = line.strip_prefix('[').and_then(|line| line.split_once("]: "))
        else {
            continue;
        };
        match word {
            "ok" => outcome.passed += 1,
            "skip" | "ignore" => outcome.skipped += 1,
            "err" | "exception" => outcome.failed.push(name.to_owned()),
            _ => {}
        }
    }
    outcome
}

/// A line without its colours.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        plain.push_str(before);
        rest = after.split_once('m').map_or("", |(_, after)| after);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_suites_say_is_counted_once() {
        let said = "[\u{1b}[0;32;49mok\u{1b}[0m]: one (3 ms)\n[ignore]: two: Tag\n[skip]: three\n\
                    [err]: four in x.tcl\ndetails\n!!! WARNING\n*** [err]: four in x.tcl\n";
        let outcome = read(said);
        assert_eq!((outcome.passed, outcome.skipped), (1, 2));
        assert_eq!(outcome.failed, ["four in x.tcl"]);
    }
}
