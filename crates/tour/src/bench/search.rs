//! Measures searches over 100,000 files, each answer compared with what was stored.
//!
//! A file has 60 words: one that is in every second file, one that is in every hundredth, one that is in
//! ten, and others from a vocabulary of 20,000. Searches of several kinds follow each other on one
//! connection; the percentiles are over all of them, and over each kind.

use std::cell::RefCell;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::client::{Load, Until, drive};
use super::{Figures, Plan};
use crate::child::Server;

/// Number of files.
const FILES: u64 = 100_000;
/// Searches of each kind.
const SEARCHES: u64 = 300;
/// Number of other words.
const VOCABULARY: u64 = 20_000;
/// Files with the same rare word.
const SHARING: u64 = 10;
/// Time limit for the index to catch up.
const CATCH_UP: Duration = Duration::from_secs(600);

/// A kind of search: its figure, its query for a number, and what the answer must have.
struct Kind {
    figure: &'static str,
    query: fn(u64) -> String,
    matches: Option<u64>,
    ranked: bool,
}

const KINDS: [Kind; 9] = [
    Kind {
        figure: "rare",
        query: |n| format!("q=rare{}", n % (FILES / SHARING)),
        matches: Some(SHARING),
        ranked: true,
    },
    Kind {
        figure: "medium",
        query: |n| format!("q=medium{}", n % 100),
        matches: Some(FILES / 100),
        ranked: true,
    },
    Kind { figure: "common", query: |_| "q=common".to_owned(), matches: None, ranked: false },
    Kind {
        figure: "two_words",
        query: |n| format!("q=common+medium{}", n % 50 * 2),
        matches: Some(FILES / 100),
        ranked: true,
    },
    Kind {
        figure: "name_part",
        query: |n| format!("q=port-{:06}.t", n % FILES),
        matches: Some(1),
        ranked: true,
    },
    Kind {
        figure: "common_in_namespace",
        query: |n| format!("q=common&namespace=space-{}", n % 10 * 2 % 20),
        matches: Some(FILES / 20),
        ranked: true,
    },
    Kind {
        figure: "rare_with_filters",
        query: |n| {
            format!(
                "q=rare{}&prefix=report&mime=text/*&size_min=10&sort=name",
                n % (FILES / SHARING)
            )
        },
        matches: Some(SHARING),
        ranked: false,
    },
    Kind {
        figure: "common_with_size",
        query: |_| "q=common&size_min=100&size_max=10000".to_owned(),
        matches: None,
        ranked: false,
    },
    Kind {
        figure: "properties",
        query: |n| format!("namespace=space-{}&sort=largest", n % 20),
        matches: Some(FILES / 20),
        ranked: false,
    },
];

/// Stores the files, waits for the index, and measures.
pub(super) fn measure(plan: &Plan, scratch: &Path, figures: &mut Figures) -> anyhow::Result<()> {
    let data = scratch.join("search");
    let command = ["serve", "--log", "warn", "--durability", "os"];
    let server = Server::start(&command, &data, &data.with_extension("log"))?;
    let begun = Instant::now();
    store(&server, plan)?;
    let behind = caught_up(&server)?;
    #[expect(clippy::cast_precision_loss, reason = "a count of files")]
    let files = FILES as f64;
    figures.add("search_indexed_files_per_s", files / begun.elapsed().as_secs_f64());
    figures.add("search_catch_up_ms", behind.as_secs_f64() * 1e3);
    let index = forebay_console::layout::intake(&data).join("search.sqlite");
    let size = std::fs::metadata(&index).context("cannot look at the search index")?.len();
    #[expect(clippy::cast_precision_loss, reason = "a size")]
    figures.add("search_index_mib", size as f64 / f64::from(1 << 20));
    // Once, so that the pages are in memory as on a server that is used.
    for kind in &KINDS {
        search(&server, kind, 20)?;
    }
    let mut all = Load::default();
    for kind in &KINDS {
        let load = search(&server, kind, SEARCHES)?;
        figures.add(&format!("search_100k_{}_p99_us", kind.figure), load.percentile_us(0.99));
        all.done += load.done;
        all.latencies_us.extend(load.latencies_us);
    }
    all.latencies_us.sort_unstable();
    figures.add("search_100k_p50_us", all.percentile_us(0.5));
    figures.add("search_100k_p99_us", all.percentile_us(0.99));
    figures.count("search_answers_compared", all.done);
    server.stop()
}

/// The text of a file.
fn fill(number: u64, out: &mut Vec<u8>) {
    let mut words =
        vec![format!("rare{}", number % (FILES / SHARING)), format!("medium{}", number % 100)];
    if number.is_multiple_of(2) {
        words.push("common".to_owned());
    }
    let mut word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    while words.len() < 60 {
        word = word.rotate_left(23).wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number);
        words.push(format!("word{}", word % VOCABULARY));
    }
    out.extend_from_slice(words.join(" ").as_bytes());
}

fn store(server: &Server, plan: &Plan) -> anyhow::Result<()> {
    let body = RefCell::new(Vec::new());
    let request = move |number: u64, out: &mut Vec<u8>| {
        let mut body = body.borrow_mut();
        body.clear();
        fill(number, &mut body);
        let head = format!(
            "PUT /v1/files/space-{}/report-{number:06}.txt HTTP/1.1\r\nhost: localhost\r\n\
             content-length: {}\r\n\r\n",
            number % 20,
            body.len()
        );
        out.extend_from_slice(head.as_bytes());
        out.extend_from_slice(&body);
    };
    let check = |number, status, body: &[u8]| {
        let text = String::from_utf8_lossy(body);
        ensure!(status == 201, "file {number} was answered {status}: {text}");
        Ok(())
    };
    drive(server.address(), plan.connections, Until::Requests(FILES), 0, request, check).map(drop)
}

/// Waits until the index has every file; returns how long that took.
fn caught_up(server: &Server) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let url = format!("http://{}/v1/files/search?limit=1", server.address());
    loop {
        let mut response = ureq::get(&url).call().with_context(|| format!("cannot get {url}"))?;
        let body = response.body_mut().read_to_string().context("cannot read a response")?;
        let found: serde_json::Value =
            serde_json::from_str(&body).context("a response is not JSON")?;
        if found["index"]["lag_bytes"] == 0 && found["index"]["files"] == FILES {
            return Ok(begun.elapsed());
        }
        ensure!(begun.elapsed() < CATCH_UP, "the index does not catch up: {}", found["index"]);
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// Runs searches of one kind, and compares each answer with what was stored.
fn search(server: &Server, kind: &'static Kind, count: u64) -> anyhow::Result<Load> {
    let request = move |number: u64, out: &mut Vec<u8>| {
        // Not in the order of the files.
        let query = (kind.query)(number.wrapping_mul(7_919));
        let head = format!("GET /v1/files/search?{query} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        out.extend_from_slice(head.as_bytes());
    };
    let check = move |number: u64, status, body: &[u8]| {
        let text = String::from_utf8_lossy(body);
        ensure!(status == 200, "search {number} was answered {status}: {text}");
        let found: serde_json::Value = serde_json::from_slice(body)?;
        let files = found["files"].as_array().map_or(0, Vec::len) as u64;
        let wanted = kind.matches.map_or(20, |matches| matches.min(20));
        ensure!(
            files == wanted
                && found["matches"].as_u64() == kind.matches
                && found["ranked"] == kind.ranked,
            "search {number} of the kind {} was answered {text}",
            kind.figure
        );
        Ok(())
    };
    drive(server.address(), 1, Until::Requests(count), 0, request, check)
}
