//! Documents reach a real PostgreSQL while it is stopped and started, and while the server is
//! killed: each once and in order.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use forebay_base::fs::sim::Rng;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::{Answer, HANG, Server, forebay, run, run_ok, stderr};
use forebay_testing::Postgres;

pub(crate) const NAMESPACES: [&str; 3] = ["orders", "notes", "events"];

fn url(postgres: &Postgres) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres", postgres.port())
}

pub(crate) fn start(dir: &TempDir, url: &str, settings: &[&str]) -> Server {
    let url = format!("intake.database.url={url}");
    let mut args = vec!["--set", &url, "--set", "intake.database.retry_max=200ms"];
    args.extend(["--set", "intake.database.spill_after=0s"]);
    for setting in settings {
        args.extend(["--set", setting]);
    }
    Server::start(dir, &args)
}

/// Waits until a condition is true.
pub(crate) fn until(what: &str, is_so: impl FnMut() -> bool) {
    assert!(comes_true(is_so), "waited in vain until {what}");
}

/// Waits for a condition with a limit; returns whether it became true.
fn comes_true(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + HANG * 2;
    while !is_so() {
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    true
}

pub(crate) fn status(server: &Server) -> Value {
    let answer = server.get("/v1/database");
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()
}

/// Whether the database has every document that was stored and every change.
fn is_following(server: &Server) -> bool {
    // The intake returns a document before it forwards it.
    server.get("/v1/documents");
    let status = status(server);
    status["state"] == "following" && status["documents_waiting"] == 0
}

fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder();
    config.http_status_as_error(false).timeout_global(Some(HANG)).build().into()
}

fn post(server: &Server, namespace: &str, body: &str) -> u16 {
    let sent = agent()
        .post(format!("{}/v1/documents/{namespace}", server.url))
        .header("content-type", "application/x-ndjson")
        .send(body);
    sent.map_or(0, |answer| answer.status().as_u16())
}

/// Numbers reserved for a client.
const CLIENT: u64 = 1_000_000;

/// What was acknowledged, and what may exist besides: numbers by namespace.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    next: u64,
    acknowledged: Vec<(usize, std::ops::Range<u64>)>,
    /// Numbers of documents whose deletion was acknowledged.
    deleted: BTreeSet<u64>,
}

impl Sent {
    /// Sends a request of a few documents; returns whether it was acknowledged.
    pub(crate) fn send(&mut self, server: &Server, rng: &mut Rng) -> bool {
        let at = rng.below(NAMESPACES.len());
        let namespace = NAMESPACES[at];
        let count = if rng.one_in(10) { 300 } else { 1 + rng.below(5) as u64 };
        let numbers = self.next..self.next + count;
        self.next = numbers.end;
        let body: String = numbers
            .clone()
            .map(|number| match namespace {
                // One of them is a collection, whose documents have nothing in common.
                "notes" => format!("{{\"n\": {number}, \"k{number}\":[ {number} ]}}\n"),
                _ => format!(
                    "{{\"n\":{number},\"text\":\"\\u00fc {number}\",\"half\":{number}.5}}\n"
                ),
            })
            .collect();
        let is_acknowledged = post(server, namespace, &body) == 201;
        if is_acknowledged {
            self.acknowledged.push((at, numbers));
        }
        is_acknowledged
    }

    /// Replaces or deletes a document; returns whether that was acknowledged.
    pub(crate) fn change(&mut self, server: &Server, rng: &mut Rng) -> bool {
        let namespace = NAMESPACES[rng.below(NAMESPACES.len())];
        let page = server.get(&format!("/v1/documents/{namespace}?limit=200"));
        if page.status == 404 {
            return true;
        }
        let here = page_of(&page.body).documents;
        if here.is_empty() {
            return true;
        }
        let line = &here[rng.below(here.len())];
        let (id, number) = (line.split_once(' ').unwrap().0, number(line));
        let url = format!("{}/v1/documents/{namespace}/{id}", server.url);
        if rng.one_in(3) {
            let deleted = agent().delete(url).call().map_or(0, |answer| answer.status().as_u16());
            self.deleted.insert(number);
            return deleted == 204;
        }
        // Of another type than before, and not in the form that is stored as BSON.
        let body = format!("{{\"n\": {number}, \"half\": \"{}\"}}", rng.below(1_000));
        let put = agent().put(url).header("content-type", "application/json").send(body);
        put.map_or(0, |answer| answer.status().as_u16()) == 200
    }

    /// Whether each namespace has a document that was acknowledged.
    #[cfg(feature = "mongodb")]
    pub(crate) fn has_every_namespace(&self) -> bool {
        (0..NAMESPACES.len()).all(|at| self.acknowledged.iter().any(|(of, _)| *of == at))
    }

    /// Compares the intake with a PostgreSQL, document by document.
    fn check(&self, server: &Server, postgres: &Postgres) {
        self.check_with(server, |namespace| {
            let sql = format!(
                "select _id || ' ' || convert_from(_document, 'UTF8') \
                 from forebay.{namespace} order by _id"
            );
            let there = postgres.try_query("postgres", &sql).unwrap_or_default();
            there.lines().map(str::to_owned).collect()
        });
    }

    /// Compares the intake with a database: `there` reads a namespace of it, one document per line,
    /// the id and a space before it.
    pub(crate) fn check_with(&self, server: &Server, there: impl Fn(&str) -> Vec<String>) {
        if !comes_true(|| is_following(server)) {
            panic!("the database has not everything: {}", status(server));
        }
        for (at, namespace) in NAMESPACES.iter().enumerate() {
            let here = documents(server, namespace);
            assert_eq!(there(namespace), here, "{namespace}");
            // With several clients, each uses its own numbers.
            let client = self.next / CLIENT;
            let numbers = here.iter().map(|line| number(line));
            let numbers: Vec<u64> = numbers.filter(|number| number / CLIENT == client).collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "in order, each once: {numbers:?}");
            for (_, sent) in self.acknowledged.iter().filter(|(of, _)| *of == at) {
                let is_there = |number: &u64| numbers.binary_search(number).is_ok();
                let mut expected = sent.clone().filter(|number| !self.deleted.contains(number));
                let whole = expected.all(|number| is_there(&number));
                assert!(whole, "{namespace}: {sent:?} were acknowledged and are not all there");
            }
        }
    }
}

fn number(line: &str) -> u64 {
    let (_, document) = line.split_once(' ').unwrap();
    serde_json::from_str::<Value>(document).unwrap()["n"].as_u64().unwrap()
}

/// Every document of a namespace with its id, as the intake has it.
fn documents(server: &Server, namespace: &str) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/v1/documents/{namespace}?limit=1000{cursor}"));
        if page.status == 404 {
            return found;
        }
        let page = page_of(&page.body);
        found.extend(page.documents);
        let Some(next) = page.next_cursor else { return found };
        cursor = format!("&cursor={next}");
    }
}

/// A page of documents, each as a line of its id and the document.
struct Page {
    documents: Vec<String>,
    next_cursor: Option<String>,
}

fn page_of(body: &str) -> Page {
    let raw: RawPage<'_> = serde_json::from_str(body).unwrap();
    let line = |it: &RawDocument<'_>| format!("{} {}", it.id, it.document.get());
    Page { documents: raw.documents.iter().map(line).collect(), next_cursor: raw.next_cursor }
}

#[derive(serde::Deserialize)]
struct RawPage<'a> {
    #[serde(borrow)]
    documents: Vec<RawDocument<'a>>,
    next_cursor: Option<String>,
}

#[derive(serde::Deserialize)]
struct RawDocument<'a> {
    id: u64,
    #[serde(borrow)]
    document: &'a serde_json::value::RawValue,
}

#[test]
fn killed_and_disconnected_repeatedly_every_acknowledged_document_is_stored_once_in_order() {
    let Some(database) = Postgres::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let url = url(&database);
    let mut server = start(&dir, &url, &["intake.durability=os"]);
    let (mut sent, mut rng) = (Sent::default(), Rng::new(7));
    sent.send(&server, &mut rng);
    sent.check(&server, &database);
    for round in 0..4 {
        for _ in 0..10 + rng.below(20) {
            assert!(sent.send(&server, &mut rng), "round {round}");
            assert!(sent.change(&server, &mut rng), "round {round}");
        }
        // A change that waits ends the spill, which the even rounds look for.
        if round % 2 == 0 {
            until("it follows", || is_following(&server));
        }
        database.kill();
        for _ in 0..10 + rng.below(20) {
            assert!(sent.send(&server, &mut rng), "the intake continues without it");
        }
        if round % 2 == 1 {
            assert!(sent.change(&server, &mut rng), "the intake continues without it");
        }
        if round % 2 == 0 {
            let mut last = Value::Null;
            let spilled = || {
                last = status(&server);
                last["state"] == "away" && last["spill_bytes"].as_u64() > Some(0)
            };
            if !comes_true(spilled) {
                panic!("nothing is spilled: {last}");
            }
            let ready = server.get("/readyz");
            assert_eq!((ready.status, &ready.json()["status"]), (200, &"degraded".into()));
        }
        server.signal("KILL");
        assert_eq!(server.wait(), None, "ended by the signal");
        if round % 2 == 1 {
            database.start_again();
        }
        server = start(&dir, &url, &["intake.durability=os"]);
        for _ in 0..5 {
            assert!(sent.send(&server, &mut rng));
        }
        if round % 2 == 0 {
            database.start_again();
        }
        sent.check(&server, &database);
        assert_eq!(server.get("/readyz").json()["status"], "ready");
    }
    // The database is killed while it receives documents, and so is the server.
    for _ in 0..60 {
        sent.send(&server, &mut rng);
    }
    server.signal("KILL");
    database.kill();
    server.wait();
    database.start_again();
    let server = start(&dir, &url, &[]);
    sent.check(&server, &database);
    let columns = "select count(*) from information_schema.columns \
                   where table_schema = 'forebay' and table_name = 'orders'";
    assert!(database.query("postgres", columns).parse::<u64>().unwrap() >= 6, "typed columns");
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
    let spill = dir.path().join("forebay-data/intake/spill");
    assert_eq!(std::fs::read_dir(spill).unwrap().count(), 0, "no spilled document is left");
}

#[test]
fn several_clients_and_an_unreliable_database_lose_and_duplicate_nothing() {
    let Some(database) = Postgres::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, &url(&database), &["intake.durability=os"]);
    let mut clients: Vec<Sent> =
        (0..3).map(|client| Sent { next: client * CLIENT, ..Sent::default() }).collect();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (seed, sent) in (20..).zip(&mut clients) {
            let (server, is_over) = (&server, &is_over);
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                    assert!(sent.send(server, &mut rng), "the intake continues without it");
                }
            });
        }
        let written = |server: &Server| status(server)["documents_written"].as_u64().unwrap();
        for round in 0..4 {
            let before = written(&server);
            until("some more is written", || written(&server) > before + 200);
            database.kill();
            if round % 2 == 0 {
                until("it is known to be away", || status(&server)["state"] == "away");
            }
            database.start_again();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    for sent in &clients {
        sent.check(&server, &database);
    }
    assert!(status(&server)["retries"].as_u64() >= Some(2));
}

#[test]
fn a_database_unavailable_at_the_start_is_reported_and_documents_wait_for_it() {
    let Some(database) = Postgres::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    database.kill();
    let server = start(&dir, &url(&database), &[]);
    let (mut sent, mut rng) = (Sent::default(), Rng::new(3));
    for _ in 0..20 {
        assert!(sent.send(&server, &mut rng));
    }
    until("it is known to be away", || status(&server)["state"] == "away");
    let ready = server.get("/readyz").json();
    assert_eq!(ready["status"], "degraded");
    let reason = ready["reason"].as_str().unwrap();
    assert!(reason.contains("PostgreSQL postgres at 127.0.0.1"), "{reason}");
    let output = run(&dir, &["intake", "database", "--server", &server.url]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
    assert!(text.contains("state      away"), "{text}");
    let metrics = server.get("/metrics").body;
    for line in ["forebay_intake_database_up 0", "forebay_intake_database_retries_total"] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    database.start_again();
    sent.check(&server, &database);
    let text = run_ok(&dir, &["intake", "database", "--server", &server.url]);
    assert!(text.contains("state      following"), "{text}");
    assert!(server.get("/metrics").body.contains("forebay_intake_database_up 1"));
}

#[test]
fn wrong_settings_are_refused_at_the_start_with_the_remedy_and_no_password_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |settings: &[&str], says: &str| {
        let mut args = vec!["serve", "--listen", "127.0.0.1:0", "--set", "cache.enabled=false"];
        settings.iter().for_each(|setting| args.extend(["--set", setting]));
        let output = run(&dir, &args);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{settings:?}: {text}");
        assert!(text.contains(says), "{settings:?}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    };
    refused(&["intake.database.url=mysql://a:hunter2@h/d"], "mysql://***@h/d");
    refused(&["intake.database.url=postgres://a:hunter2@h:nan/d"], "special characters as %XX");
    refused(&["intake.database.password_file=x"], "requires intake.database.url");
    let url = "intake.database.url=postgres://a@127.0.0.1:1/d";
    refused(&[url, "intake.database.password_file=missing"], "missing");
    refused(&[url, "intake.database.spill_max=1KiB"], "at least 1MiB");
    let ca = "intake.database.tls_ca_file=nowhere.pem";
    refused(&[url, "intake.database.tls=verify", ca], "nowhere.pem");
    let mongo = "intake.database.url=mongodb://a:hunter2@127.0.0.1:1/d";
    refused(&[mongo, "intake.database.tls=always"], "intake.database.tls");
    let mut show = forebay(&dir);
    show.env("FOREBAY_INTAKE_DATABASE_URL", "postgres://a:hunter2@h/d");
    for args in [&["config", "show"][..], &["config", "show", "--json"]] {
        let output = show.args(args).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!text.contains("hunter2"), "{text}");
        show = forebay(&dir);
        show.env("FOREBAY_INTAKE_DATABASE_URL", "postgres://a:hunter2@h/d");
    }
    assert!(run_ok(&dir, &["config", "init"]).contains("database.url"));
}

#[test]
fn a_password_the_database_refuses_degrades_and_a_server_without_a_database_says_so() {
    let Some(database) = Postgres::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let server = start(&dir, &format!("{}missing", url(&database)), &[]);
    until("it is refused", || status(&server)["state"] == "refused");
    let reason = status(&server)["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("postgresmissing"), "{reason}");
    assert_eq!(post(&server, "orders", "{\"n\":1}\n"), 201, "the intake continues");
    drop(server);
    let server = Server::start(&dir, &[]);
    let answer: Answer = server.get("/v1/database");
    assert_eq!(answer.status, 404, "{answer:?}");
    assert!(answer.body.contains("intake.database.url"), "{answer:?}");
    assert_eq!(server.get("/readyz").json()["status"], "ready");
}

/// Why PostgreSQL refuses the rows of a table, how that is repaired, and what the reason contains.
const REFUSALS: [[&str; 3]; 3] = [
    [
        "alter table forebay.TABLE add constraint small check (n < 100)",
        "alter table forebay.TABLE drop constraint small",
        "violates check constraint",
    ],
    [
        "alter table forebay.TABLE drop column text",
        "alter table forebay.TABLE add column text text",
        "column \"text\" of relation",
    ],
    [
        "create function forebay.refuse() returns trigger language plpgsql
           as $$begin raise exception 'not today'; end$$;
         create trigger refuse before insert on forebay.TABLE
           for each row execute function forebay.refuse()",
        "drop function forebay.refuse() cascade",
        "not today",
    ],
];

/// Whether one namespace alone is quarantined, with three documents, and nothing else waits.
fn is_quarantined(status: &Value, namespace: &str, reason: &str) -> bool {
    let held = status["quarantined"].as_array().unwrap();
    status["state"] == "following"
        && status["documents_waiting"] == 3
        && held.len() == 1
        && held[0]["namespace"] == namespace
        && held[0]["documents_waiting"] == 3
        && held[0]["reason"].as_str().unwrap().contains(reason)
}

#[test]
fn a_table_that_postgresql_refuses_holds_up_no_other_and_a_replay_delivers_everything() {
    let Some(database) = Postgres::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    // No later attempt comes between the repair and the replay.
    let (url, later) = (url(&database), ["intake.database.retry_max=1h"]);
    let mut server = start(&dir, &url, &later);
    let send = |server: &Server, namespace: &str, n: u32| {
        let body = format!("{{\"n\":{n},\"text\":\"text {n}\"}}\n");
        assert_eq!(post(server, &format!("{namespace}?target=table"), &body), 201, "{namespace}");
    };
    let there = |namespace: &str| -> Vec<String> {
        let document = "_id || ' ' || convert_from(_document, 'UTF8')";
        let sql = format!("select {document} from forebay.{namespace} order by _id");
        database.query("postgres", &sql).lines().map(str::to_owned).collect()
    };
    let replay = |server: &Server, namespace: &str| {
        server.ask("POST", &format!("/v1/database/replay?namespace={namespace}"), "").status
    };
    for (at, [cause, repair, reason]) in REFUSALS.into_iter().enumerate() {
        let broken = format!("broken{at}");
        for namespace in [&*broken, "good"] {
            send(&server, namespace, 1);
        }
        until("both tables are there", || is_following(&server));
        database.query("postgres", &cause.replace("TABLE", &broken));
        for n in 100..103 {
            for namespace in [&*broken, "good", "other"] {
                send(&server, namespace, n);
            }
        }
        let is_held = |server: &Server| is_quarantined(&status(server), &broken, reason);
        until("one namespace is quarantined and the others are written", || is_held(&server));
        for namespace in ["good", "other"] {
            assert_eq!(there(namespace), documents(&server, namespace), "{namespace}");
        }
        assert_eq!(there(&broken).len(), 1, "{cause}");
        let ready = server.get("/readyz").json();
        assert_eq!(ready["status"], "degraded");
        assert!(ready["reason"].as_str().unwrap().contains(&broken), "{ready}");
        let output = run(&dir, &["intake", "database", "--server", &server.url]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text}{}", stderr(&output));
        assert!(text.contains(&format!("refused    {broken}: 3 documents")), "{text}");

        // It is remembered. The attempt of the start fails as well.
        server.signal("TERM");
        assert_eq!(server.wait(), Some(0));
        server = start(&dir, &url, &later);
        let is_tried = || status(&server)["quarantined"][0]["retries"].as_u64() >= Some(1);
        until("it was tried at the start", is_tried);
        until("it is still quarantined", || is_held(&server));
        assert_eq!(replay(&server, "good"), 404);

        database.query("postgres", &repair.replace("TABLE", &broken));
        assert_eq!(replay(&server, &broken), 202);
        // The namespace is released after its documents were written.
        let is_free = || status(&server)["quarantined"] == serde_json::json!([]);
        until("everything is written and nothing quarantined", || {
            is_following(&server) && is_free()
        });
        send(&server, &broken, 200);
        until("the next is written too", || is_following(&server));
        for namespace in [&*broken, "good", "other"] {
            let here = documents(&server, namespace);
            assert_eq!(there(namespace), here, "{namespace} after {repair}");
            assert!(here.len() >= 3, "{namespace}: {here:?}");
        }
        assert_eq!(server.get("/readyz").json()["status"], "ready");
    }
}
