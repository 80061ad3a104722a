//! The floor table: which crate may depend on which.
//!
//! Imports point strictly down, dev-dependencies included, and a few external crates may be used
//! only by certain crates of the workspace, so that every subsystem stays an independent library.

use std::path::Path;

use anyhow::Context as _;
use cargo_metadata::{Metadata, MetadataCommand};

/// A crate of the workspace: its floor, and the workspace crates it may depend on.
struct Room {
    name: &'static str,
    floor: u8,
    below: &'static [&'static str],
}

/// The table, which ARCHITECTURE.md repeats ([`rows`]).
const ROOMS: [Room; 29] = [
    Room { name: "forebay-base", floor: 0, below: &[] },
    // Dependencies of tests only.
    Room { name: "forebay-testing", floor: 0, below: &[] },
    Room { name: "forebay-log", floor: 1, below: &["forebay-base"] },
    Room { name: "forebay-pgcopy", floor: 1, below: &["forebay-testing"] },
    Room { name: "forebay-parquet", floor: 1, below: &[] },
    Room { name: "forebay-sink", floor: 1, below: &["forebay-base"] },
    Room { name: "forebay-console", floor: 1, below: &["forebay-base"] },
    Room { name: "forebay-sdk", floor: 2, below: &["forebay-base", "forebay-pgcopy"] },
    Room {
        name: "forebay-postgres",
        floor: 3,
        below: &[
            "forebay-base",
            "forebay-testing",
            "forebay-pgcopy",
            "forebay-sink",
            "forebay-sdk",
        ],
    },
    Room {
        name: "forebay-mongodb",
        floor: 3,
        below: &[
            "forebay-base",
            "forebay-testing",
            "forebay-pgcopy",
            "forebay-sink",
            "forebay-sdk",
        ],
    },
    Room {
        name: "forebay-sqlite",
        floor: 3,
        below: &["forebay-base", "forebay-pgcopy", "forebay-sink", "forebay-sdk"],
    },
    Room {
        name: "forebay-objects",
        floor: 3,
        below: &[
            "forebay-base",
            "forebay-testing",
            "forebay-pgcopy",
            "forebay-parquet",
            "forebay-sdk",
        ],
    },
    Room {
        name: "forebay-http-json",
        floor: 3,
        below: &["forebay-base", "forebay-pgcopy", "forebay-sdk"],
    },
    Room {
        name: "forebay-mysql",
        floor: 3,
        below: &[
            "forebay-base",
            "forebay-testing",
            "forebay-pgcopy",
            "forebay-sink",
            "forebay-sdk",
        ],
    },
    Room {
        name: "forebay-clickhouse",
        floor: 3,
        below: &["forebay-base", "forebay-testing", "forebay-pgcopy", "forebay-sdk"],
    },
    Room {
        name: "forebay-connectors",
        floor: 4,
        below: &[
            "forebay-base",
            "forebay-testing",
            "forebay-pgcopy",
            "forebay-sdk",
            "forebay-postgres",
            "forebay-mongodb",
            "forebay-mysql",
            "forebay-sqlite",
            "forebay-objects",
            "forebay-http-json",
            "forebay-clickhouse",
        ],
    },
    Room { name: "forebay-guest", floor: 3, below: &["forebay-pgcopy", "forebay-sdk"] },
    Room {
        name: "forebay-wasm",
        floor: 4,
        below: &["forebay-base", "forebay-testing", "forebay-pgcopy", "forebay-sdk"],
    },
    Room { name: "forebay-cache", floor: 5, below: &["forebay-base", "forebay-log"] },
    Room { name: "forebay-events", floor: 5, below: &["forebay-base", "forebay-log"] },
    Room { name: "forebay-jobs", floor: 5, below: &["forebay-base", "forebay-log"] },
    Room { name: "forebay-webhooks", floor: 5, below: &["forebay-base"] },
    Room {
        name: "forebay-inventory",
        floor: 5,
        below: &["forebay-base", "forebay-testing", "forebay-parquet", "forebay-objects"],
    },
    Room {
        name: "forebay-intake",
        floor: 5,
        below: &[
            "forebay-base",
            "forebay-testing",
            "forebay-log",
            "forebay-sink",
            "forebay-sqlite",
        ],
    },
    Room {
        name: "forebay-pipeline",
        floor: 5,
        below: &[
            "forebay-base",
            "forebay-testing",
            "forebay-pgcopy",
            "forebay-sdk",
            "forebay-postgres",
            "forebay-connectors",
        ],
    },
    Room {
        name: "forebay-api",
        floor: 6,
        below: &[
            "forebay-base",
            "forebay-testing",
            "forebay-sink",
            "forebay-sdk",
            "forebay-objects",
            "forebay-events",
            "forebay-inventory",
            "forebay-jobs",
            "forebay-intake",
            "forebay-pipeline",
            "forebay-webhooks",
        ],
    },
    Room {
        name: "forebay-s3",
        floor: 7,
        below: &["forebay-base", "forebay-intake", "forebay-api"],
    },
    Room {
        name: "forebay-tour",
        floor: 7,
        below: &[
            "forebay-base",
            "forebay-sink",
            "forebay-console",
            "forebay-sdk",
            "forebay-postgres",
            "forebay-cache",
            "forebay-events",
            "forebay-inventory",
            "forebay-jobs",
            "forebay-intake",
            "forebay-wasm",
        ],
    },
    Room {
        name: "forebay",
        floor: 8,
        below: &[
            "forebay-base",
            "forebay-testing",
            "forebay-sink",
            "forebay-console",
            "forebay-sdk",
            "forebay-postgres",
            "forebay-mongodb",
            "forebay-sqlite",
            "forebay-objects",
            "forebay-connectors",
            "forebay-cache",
            "forebay-events",
            "forebay-inventory",
            "forebay-jobs",
            "forebay-intake",
            "forebay-pipeline",
            "forebay-webhooks",
            "forebay-api",
            "forebay-s3",
            "forebay-tour",
            "forebay-wasm",
        ],
    },
];

/// Outside crates and the only ones of ours that may use them: reading the command line, errors
/// without a type, installing a logger or a recorder, and HTTP. Configuration is TOML and read by
/// the binary alone; the inventory's table of prices and the file of API keys are TOML too, but
/// data.
const RESERVED: [(&str, &[&str]); 10] = [
    ("anyhow", &["forebay", "forebay-api", "forebay-console", "forebay-tour", "xtask"]),
    ("clap", &["forebay", "forebay-tour", "xtask"]),
    ("tracing-subscriber", &["forebay"]),
    ("metrics-exporter-prometheus", &["forebay", "forebay-api"]),
    ("axum", &["forebay", "forebay-api", "forebay-s3"]),
    ("multer", &["forebay-api"]),
    ("hyper-util", &["forebay", "forebay-api"]),
    ("toml", &["forebay", "forebay-api", "forebay-inventory"]),
    ("wasmtime", &["forebay-wasm"]),
    ("wit-bindgen", &["forebay-guest"]),
];

/// Reads the workspace below `root` and checks it against the table.
///
/// # Errors
/// `cargo metadata` failed.
pub(super) fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = MetadataCommand::new()
        .current_dir(root)
        .no_deps()
        .exec()
        .context("cargo metadata failed")?;
    let page = root.join(PAGE);
    let page = std::fs::read_to_string(&page).with_context(|| format!("cannot read {PAGE}"))?;
    Ok(edges(&metadata)
        .iter()
        .filter_map(|(from, to)| wrong(from, to))
        .chain(unknown(&metadata))
        .chain(differences(&page))
        .collect())
}

/// The page for people that has the table too.
const PAGE: &str = "ARCHITECTURE.md";

/// The rows of the table as the page writes them: floor, crate, and what it may import.
fn rows() -> impl Iterator<Item = String> {
    let short = |name: &'static str| name.strip_prefix("forebay-").unwrap_or(name);
    ROOMS.iter().map(move |room| {
        let below: Vec<_> = room.below.iter().map(|name| short(name)).collect();
        let below = if below.is_empty() { "nothing of ours".to_owned() } else { below.join(", ") };
        format!("| {} | `{}` | {below} |", room.floor, room.name)
    })
}

/// Rows that `page` lacks, and rows of the page for which there is no room.
fn differences(page: &str) -> Vec<String> {
    let expected: Vec<String> = rows().collect();
    let is_row = |line: &&str| {
        let floor = line.strip_prefix("| ").and_then(|line| line.chars().next());
        floor.is_some_and(|floor| floor.is_ascii_digit())
    };
    let found: Vec<&str> = page.lines().filter(is_row).collect();
    let missing = expected.iter().filter(|row| !found.contains(&row.as_str()));
    let other = found.iter().filter(|row| !expected.iter().any(|expected| expected == *row));
    missing
        .map(|row| format!("{PAGE}: the floor table lacks this row: {row}"))
        .chain(other.map(|row| format!("{PAGE}: not a row of xtask/src/tidy/floors.rs: {row}")))
        .collect()
}

/// Every dependency of a workspace member, of whichever kind.
fn edges(metadata: &Metadata) -> Vec<(String, String)> {
    metadata
        .workspace_packages()
        .iter()
        .flat_map(|package| {
            let from = package.name.to_string();
            package.dependencies.iter().map(move |to| (from.clone(), to.name.clone()))
        })
        // A crate that opens one of its own features for its tests depends on itself.
        .filter(|(from, to)| from != to)
        .collect()
}

fn unknown(metadata: &Metadata) -> Vec<String> {
    metadata
        .workspace_packages()
        .iter()
        .filter(|package| package.name.as_str() != "xtask" && room(&package.name).is_none())
        .map(|package| {
            format!("{}: not in the floor table of xtask/src/tidy/floors.rs", package.name)
        })
        .collect()
}

fn room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// Returns what is wrong with `from` depending on `to`, if anything.
fn wrong(from: &str, to: &str) -> Option<String> {
    let reserved = RESERVED.iter().find(|(name, _)| *name == to);
    if let Some((_, owners)) = reserved.filter(|(_, owners)| !owners.contains(&from)) {
        return Some(format!("{from}: may not use {to}; only {} may", owners.join(" and ")));
    }
    let target = room(to)?;
    if from == "xtask" {
        return Some(format!("xtask: may not depend on {to}: it must build without the workspace"));
    }
    let room = room(from)?;
    (!room.below.contains(&to)).then(|| {
        format!("{from} (floor {}): may not depend on {to} (floor {})", room.floor, target.floor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_point_down_and_neighbours_stay_apart() {
        assert_eq!(wrong("forebay-intake", "forebay-log"), None);
        assert_eq!(wrong("forebay-intake", "tokio"), None);
        let text = wrong("forebay-log", "forebay-intake").unwrap();
        assert_eq!(text, "forebay-log (floor 1): may not depend on forebay-intake (floor 5)");
        assert!(wrong("forebay-cache", "forebay-intake").is_some(), "crates of floor 5 stay apart");
        assert!(wrong("xtask", "forebay-base").is_some());
    }

    #[test]
    fn the_page_has_the_rows_of_the_table_and_no_others() {
        let page: String = rows().map(|row| row + "\n").collect();
        assert_eq!(differences(&page), Vec::<String>::new());
        assert!(page.contains("| 1 | `forebay-log` | base |\n"), "{page}");
        let changed = page.replace("| 1 | `forebay-log` | base |", "| 1 | `forebay-log` | cache |");
        assert_eq!(differences(&changed).len(), 2, "one is missing, the other has no room");
    }

    #[test]
    fn the_table_itself_points_down() {
        for room in &ROOMS {
            for below in room.below {
                let floor = super::room(below).unwrap().floor;
                assert!(floor < room.floor, "{} -> {below}", room.name);
            }
        }
    }

    #[test]
    fn reserved_crates_stay_with_their_owners() {
        assert!(wrong("forebay-intake", "anyhow").unwrap().contains("only forebay and"));
        assert_eq!(wrong("forebay", "anyhow"), None);
    }
}
