//! Documents reach an external database: each once, in order, whatever fails meanwhile.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use forebay_base::clock::ManualClock;
use forebay_base::fs::RealFs;
use forebay_intake::fsck::fsck;
use forebay_intake::{Intake, IntakeError, IntakeOptions};
use tempfile::TempDir;

use crate::elsewhere::{Elsewhere, caught_up, until};
use crate::requests::{Reply, post, put};
use crate::support::{DOCUMENTS, directory, key, namespace, open_with};

/// An intake that forwards, and its database.
struct House {
    intake: Intake,
    elsewhere: Elsewhere,
    options: IntakeOptions,
    dir: TempDir,
}

impl House {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut IntakeOptions)) -> Self {
        let dir = directory();
        let elsewhere = Elsewhere::new(dir.path().join("elsewhere.sqlite"));
        let mut options = IntakeOptions::new(dir.path().join("intake"));
        options.segment_size = 256 << 10;
        options.decision.documents_min = 1;
        options.forward = Some(elsewhere.options());
        change(&mut options);
        let intake = open_with(options.clone()).unwrap();
        Self { intake, elsewhere, options, dir }
    }

    /// Closes and opens again with other options.
    fn reopen(self, change: impl FnOnce(&mut IntakeOptions)) -> Self {
        let Self { intake, elsewhere, mut options, dir } = self;
        intake.close().unwrap();
        drop(intake);
        change(&mut options);
        let intake = open_with(options.clone()).unwrap();
        Self { intake, elsewhere, options, dir }
    }

    async fn try_post(&self, name: &str, body: &str) -> Result<Reply, IntakeError> {
        post(&self.intake, &namespace(name), None, body).await
    }

    async fn post(&self, name: &str, body: &str) {
        let reply = self.try_post(name, body).await.unwrap();
        assert!(matches!(reply.status, 200..300), "{reply:?}");
    }

    /// Posts documents of about `size` bytes in all to the namespace, in one request.
    async fn fill(&self, namespace: &str, round: u64, size: usize) {
        self.post(namespace, &lines(round, size)).await;
    }

    async fn check_same(&self, at: &str) {
        caught_up(&self.intake).await;
        self.elsewhere.check_same(&self.options.dir, at);
    }

    fn spill_files(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.options.dir.join("spill")) else { return vec![] };
        let mut found: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        found.sort();
        found
    }

    fn spill_bytes(&self) -> u64 {
        self.spill_files().iter().map(|path| path.metadata().unwrap().len()).sum()
    }
}

/// Rows that fit a table, about `size` bytes of them.
fn lines(round: u64, size: usize) -> String {
    let mut body = String::new();
    while body.len() < size {
        let at = body.len();
        body.push_str(&format!(
            "{{\"round\":{round},\"at\":{at},\"text\":\"\\u00e4{at}\",\"deep\":{{\"x\":{round}.5}}}}\n"
        ));
    }
    body
}

#[tokio::test]
async fn what_is_taken_is_in_the_database_byte_for_byte_and_in_tables_alike() {
    let house = House::new();
    house.fill("rows", 1, 100).await;
    // Longer than what is handed over in memory, and in several entries of the log.
    house.fill("rows", 2, 3 << 20).await;
    house.fill("other", 3, 1 << 20).await;
    house.post("mixed", "[{\"a\": 1},\n {\"b\":\t[{}]}, {\"a\":\"x\"}]").await;
    house.post("rows", "{\"round\":4,\"new\":true}\n").await;
    house.post("rows", "{\"round\":\"no number\",\"new\":[1]}").await;
    house.check_same("live").await;
    let status = house.intake.database().unwrap();
    let written: u64 = ["rows", "other", "mixed"]
        .iter()
        .map(|name| house.elsewhere.documents(name).len() as u64)
        .sum();
    assert_eq!((status.documents_written, status.retries), (written, 0), "{status:?}");
    assert!(status.lag_seconds == 0.0 && status.column_conflicts > 0, "{status:?}");
    let house = house.reopen(|_| {});
    house.fill("rows", 5, 100).await;
    house.check_same("after a restart").await;
    assert_eq!(house.intake.database().unwrap().documents_written, 2, "nothing was sent again");
}

#[tokio::test]
async fn acknowledged_documents_wait_and_age_before_and_after_the_view_has_applied_them() {
    let dir = directory();
    let elsewhere = Elsewhere::new(dir.path().join("elsewhere.sqlite"));
    let mut options = IntakeOptions::new(dir.path().join("intake"));
    options.segment_size = 256 << 10;
    options.search = false;
    options.decision.documents_min = 1;
    options.forward = Some(elsewhere.options());
    let clock = Arc::new(ManualClock::new(1_767_323_045_000));
    let opened = Intake::open(options.clone(), Arc::new(RealFs), clock.clone());
    let (intake, _) = opened.unwrap();
    let rows = namespace("rows");
    let send = async |n: u64| {
        let body = format!("{{\"n\":{n}}}");
        assert_eq!(post(&intake, &rows, None, &body).await.unwrap().status, 201);
    };
    send(1).await;
    let before = caught_up(&intake).await;
    assert_eq!((before.documents_waiting, before.lag_seconds), (0, 0.0));

    // The view waits for this lock, and announces nothing to the database meanwhile.
    let lock = rusqlite::Connection::open(options.dir.join(DOCUMENTS)).unwrap();
    lock.busy_timeout(Duration::from_secs(60)).unwrap();
    lock.execute_batch("BEGIN IMMEDIATE").unwrap();
    for n in 2..=4 {
        send(n).await;
    }
    clock.advance(Duration::from_secs(7));
    send(5).await;
    clock.advance(Duration::from_secs(2));
    let status = intake.database().unwrap();
    lock.execute_batch("ROLLBACK").unwrap();
    assert_eq!((status.documents_waiting, status.lag_seconds), (4, 9.0), "{status:?}");
    assert_eq!((status.state.name(), status.documents_written), ("following", 1), "{status:?}");
    let after = caught_up(&intake).await;
    assert_eq!((after.lag_seconds, after.documents_written), (0.0, 5), "{after:?}");

    // The view has applied it, and the database is away.
    elsewhere.go_away(true);
    send(6).await;
    intake.namespaces().await.unwrap();
    until("it is away", || intake.database().unwrap().state.name() == "away");
    clock.advance(Duration::from_secs(3));
    let status = intake.database().unwrap();
    assert!(status.documents_waiting >= 1 && status.lag_seconds >= 3.0, "{status:?}");
    elsewhere.go_away(false);
    let after = caught_up(&intake).await;
    assert_eq!((after.documents_waiting, after.lag_seconds), (0, 0.0), "{after:?}");
    elsewhere.check_same(&options.dir, "after it came back");
    intake.close().unwrap();
}

#[tokio::test]
async fn while_the_database_is_away_documents_are_taken_spilled_and_leave_the_log() {
    let house = House::new();
    house.fill("rows", 0, 1_000).await;
    house.check_same("before").await;
    house.elsewhere.go_away(true);
    for round in 1..=20 {
        house.fill("rows", round, 100_000).await;
        house.post("mixed", &format!("{{\"round\": {round}}}\n\n[]")).await;
    }
    until("all of it is spilled", || {
        let status = house.intake.database().unwrap();
        status.state.name() == "away" && status.log_bytes_kept == 0 && status.spill_bytes > 2 << 20
    });
    let status = house.intake.database().unwrap();
    assert!(status.retries > 0 && status.reason.is_some() && status.documents_waiting > 1_000);
    assert_eq!(status.spill_bytes, house.spill_bytes());
    house.intake.reclaim().await.unwrap();
    let log = |house: &House| -> u64 {
        use std::os::unix::fs::MetadataExt as _;
        let files = std::fs::read_dir(house.options.dir.join("log")).unwrap();
        // One may be removed, or replaced, meanwhile.
        files.filter_map(|file| Some(file.ok()?.metadata().ok()?.blocks() * 512)).sum()
    };
    until("the log is given back", || {
        // The document database has to be on stable storage first, which comes every few seconds.
        futures_util::future::FutureExt::now_or_never(house.intake.reclaim());
        log(&house) < 1_200_000
    });
    // A restart finds the spill and continues with it.
    let house = house.reopen(|_| {});
    house.fill("rows", 21, 100_000).await;
    house.elsewhere.go_away(false);
    house.check_same("after it came back").await;
    until("the spill is gone", || house.spill_files().is_empty());
    let status = house.intake.database().unwrap();
    assert_eq!((status.spill_bytes, status.reason), (0, None));
}

#[tokio::test]
async fn spilled_documents_can_be_read_by_people_and_programs() {
    let house = House::new();
    house.fill("rows", 0, 100).await;
    house.check_same("before").await;
    house.elsewhere.go_away(true);
    house.post("rows", "{ \"round\": 1,\n  \"text\": \"a\\nb\" }{\"round\":2}").await;
    house.intake.namespaces().await.unwrap();
    until("it is spilled", || {
        let status = house.intake.database().unwrap();
        status.spill_bytes > 0 && status.log_bytes_kept == 0
    });
    let text = std::fs::read_to_string(&house.spill_files()[0]).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["format"], "forebay-spill");
    // The previous commit may be there too, if the database had it just before it failed.
    let [.., commit, first, second, end] = &lines[..] else { panic!("{text}") };
    assert_eq!((&commit["_namespace"], &commit["_count"]), (&"rows".into(), &2.into()));
    assert_eq!(first["_text"], "{ \"round\": 1,\n  \"text\": \"a\\nb\" }");
    assert_eq!(second["_document"]["round"], 2);
    assert_eq!((&second["_position"], &second["_position"]), (&commit["_commit"], &end["_end"]));
    house.elsewhere.go_away(false);
    house.check_same("after").await;
}

#[tokio::test]
async fn a_new_database_gets_what_has_left_the_log_long_ago() {
    let house = House::with(|options| options.forward = None);
    for round in 0..30 {
        house.fill(["a", "b", "c"][round % 3], round as u64, 60_000).await;
    }
    house.post("mixed", "[{\"a\":1},{\"b\":2}]").await;
    // Closing puts the document database onto stable storage: its documents may leave the log.
    let house = house.reopen(|_| {});
    house.intake.reclaim().await.unwrap();
    assert!(house.intake.database().is_none());
    let options = house.elsewhere.options();
    let house = house.reopen(|it| it.forward = Some(options.clone()));
    house.check_same("copied").await;
    house.fill("a", 40, 1_000).await;
    house.check_same("followed").await;
    // Forwarding is off for a while.
    let house = house.reopen(|options| options.forward = None);
    for round in 50..70 {
        house.fill(["b", "d"][round % 2], round as u64, 60_000).await;
    }
    let house = house.reopen(|_| {});
    house.intake.reclaim().await.unwrap();
    let house = house.reopen(|it| it.forward = Some(options.clone()));
    house.fill("d", 71, 1_000).await;
    house.check_same("copied again").await;
    // Another database.
    let other = Elsewhere::new(house.dir.path().join("other.sqlite"));
    let options = other.options();
    let house = house.reopen(|it| it.forward = Some(options));
    caught_up(&house.intake).await;
    other.check_same(&house.options.dir, "another");
}

#[tokio::test]
async fn an_interrupted_copy_continues_where_it_was() {
    for fail_at in 1..12 {
        for after in [false, true] {
            let house = House::with(|options| options.forward = None);
            for round in 0..6 {
                house.fill(["a", "b"][round % 2], round as u64, 300_000).await;
            }
            let options = house.elsewhere.options();
            house.elsewhere.fail_at(fail_at, after);
            let house = house.reopen(|it| it.forward = Some(options.clone()));
            house.check_same(&format!("call {fail_at} failed, after: {after}")).await;
            house.fill("a", 7, 1_000).await;
            house.check_same("and on").await;
        }
    }
}

#[tokio::test]
async fn a_call_that_fails_before_or_after_it_was_done_doubles_and_loses_nothing() {
    let house = House::new();
    house.fill("rows", 0, 100).await;
    house.check_same("before").await;
    for round in 1..30 {
        house.elsewhere.fail_at(round % 9 + 1, round % 2 == 0);
        let mut at = 0;
        while !house.elsewhere.has_failed() {
            house.fill("rows", round, 500).await;
            if at % 3 == 0 {
                house.post("mixed", &format!("{{\"at\":{at}}}")).await;
            }
            at += 1;
            caught_up(&house.intake).await;
        }
        house.check_same(&format!("round {round}")).await;
    }
    assert!(house.intake.database().unwrap().retries > 20);
}

#[tokio::test]
async fn a_full_spill_keeps_the_log_and_a_full_log_refuses_until_the_database_is_back() {
    let house = House::with(|options| {
        let forward = options.forward.as_mut().unwrap();
        forward.spill_max = 300_000;
        forward.log_max = 500_000;
    });
    house.fill("rows", 0, 100).await;
    house.check_same("before").await;
    house.elsewhere.go_away(true);
    let mut accepted = 0;
    let refused = loop {
        if let Err(error) = house.try_post("rows", &lines(accepted, 50_000)).await {
            break error;
        }
        accepted += 1;
        assert!(accepted < 1_000, "it never refuses");
        // The spill is to be full before the log is.
        until("it is spilled", || {
            let status = house.intake.database().unwrap();
            status.spill_is_full || status.log_bytes_kept < 200_000
        });
    };
    assert!(matches!(refused, IntakeError::DatabaseBehind { .. }), "{refused:?}");
    let status = house.intake.database().unwrap();
    assert!(status.spill_is_full && status.spill_bytes <= 300_000, "{status:?}");
    assert!(house.spill_bytes() <= 300_000 && status.log_bytes_kept > 500_000, "{status:?}");
    assert!(accepted >= 12, "{accepted}");
    // Files are not affected.
    assert!(put(&house.intake, &key("a", "b"), b"x").await.unwrap().created);
    house.elsewhere.go_away(false);
    house.check_same("after").await;
    until("the log is given up", || house.intake.database().unwrap().log_bytes_kept < 500_000);
    house.fill("rows", 99, 100).await;
    house.check_same("and on").await;
}

#[tokio::test]
async fn a_database_of_another_intake_is_left_alone_unless_it_is_adopted() {
    let house = House::new();
    house.fill("rows", 0, 1_000).await;
    house.check_same("ours").await;
    let (elsewhere, dir) = (house.elsewhere.clone(), directory());
    let House { intake, options: own, dir: _dir, .. } = house;
    intake.close().unwrap();
    drop(intake);
    let mut options = IntakeOptions::new(dir.path().join("intake"));
    options.forward = Some(elsewhere.options());
    let other = open_with(options).unwrap();
    let posted = post(&other, &namespace("rows"), None, "{\"a\":1}").await.unwrap();
    assert_eq!(posted.status, 201, "the intake continues");
    until("it is refused", || other.database().unwrap().state.name() == "refused");
    let reason = other.database().unwrap().reason.unwrap();
    assert!(reason.contains("has no record"), "{reason}");
    other.close().unwrap();
    elsewhere.check_same(&own.dir, "nothing was written");

    // The forwarding state is lost: the operator may confirm that the database is the right one.
    std::fs::remove_file(own.dir.join("forward.json")).unwrap();
    let mut options = own;
    let intake = open_with(options.clone()).unwrap();
    until("it is refused", || intake.database().unwrap().state.name() == "refused");
    intake.close().unwrap();
    drop(intake);
    options.forward.as_mut().unwrap().adopt = true;
    let intake = open_with(options.clone()).unwrap();
    caught_up(&intake).await;
    elsewhere.check_same(&options.dir, "adopted");
}

#[tokio::test]
async fn a_database_that_was_set_back_is_brought_up_again() {
    let house = House::new();
    house.fill("rows", 0, 1_000).await;
    house.check_same("before").await;
    let house = house.reopen(|options| options.forward = None);
    let copy = house.dir.path().join("copy.sqlite");
    std::fs::copy(&house.elsewhere.path, &copy).unwrap();
    let options = house.elsewhere.options();
    let house = house.reopen(|it| it.forward = Some(options.clone()));
    for round in 1..20 {
        house.fill(["rows", "late"][usize::try_from(round % 2).unwrap()], round, 60_000).await;
    }
    house.check_same("later").await;
    let house = house.reopen(|_| {});
    caught_up(&house.intake).await;
    house.intake.reclaim().await.unwrap();
    let (elsewhere, options, _dir) = (house.elsewhere.clone(), house.options.clone(), house.dir);
    house.intake.close().unwrap();
    drop(house.intake);
    for suffix in ["-wal", "-shm"] {
        let path = elsewhere.path.with_file_name(format!("elsewhere.sqlite{suffix}"));
        std::fs::remove_file(path).unwrap_or_default();
    }
    std::fs::copy(&copy, &elsewhere.path).unwrap();
    let intake = open_with(options.clone()).unwrap();
    caught_up(&intake).await;
    elsewhere.check_same(&options.dir, "brought up");
}

#[tokio::test]
async fn a_database_that_lost_rows_behind_its_position_is_reported_and_an_empty_one_gets_all() {
    let house = House::new();
    house.fill("idle", 0, 2_000).await;
    house.fill("busy", 0, 2_000).await;
    house.check_same("before").await;
    let (elsewhere, options, _dir) = (house.elsewhere.clone(), house.options.clone(), house.dir);
    house.intake.close().unwrap();
    drop(house.intake);
    let database = rusqlite::Connection::open(&elsewhere.path).unwrap();
    let kept = "select table_name from _forebay_namespaces where namespace = 'idle'";
    let table: String = database.query_row(kept, [], |row| row.get(0)).unwrap();
    // With the checksums of layout 2 an altered row would be found at once; layout 1 had none, and is
    // upgraded with what it holds.
    let tables: Vec<String> = database
        .prepare("select table_name from _forebay_namespaces")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    for table in tables {
        let drop_column = format!("alter table \"{table}\" drop column _checksum");
        database.execute_batch(&drop_column).unwrap();
    }
    database
        .execute_batch(&format!(
            "drop table _forebay_changes;
             drop table _forebay_column_changes;
             alter table _forebay_state drop column checksum;
             alter table _forebay_namespaces drop column checksum;
             pragma user_version = 1;
             delete from \"{table}\" where _id > 3;
             update _forebay_namespaces set row_count = 3, last_id = 3 where namespace = 'idle';"
        ))
        .unwrap();
    drop(database);
    drop(forebay_sqlite::SqliteSink::open(&elsewhere.path).unwrap());
    assert_eq!(elsewhere.documents("idle").len(), 3);
    let intake = open_with(options.clone()).unwrap();
    until("it is found out", || intake.database().unwrap().state.name() == "refused");
    let reason = intake.database().unwrap().reason.unwrap();
    assert!(reason.contains("no documents of idle after 3"), "{reason}");
    for suffix in ["", "-wal", "-shm"] {
        let path = elsewhere.path.with_file_name(format!("elsewhere.sqlite{suffix}"));
        std::fs::remove_file(path).unwrap_or_default();
    }
    caught_up(&intake).await;
    elsewhere.check_same(&options.dir, "given again");
}

#[tokio::test]
async fn a_damaged_spill_is_put_aside_and_nothing_is_lost() {
    let house = House::new();
    house.fill("rows", 0, 100).await;
    house.check_same("before").await;
    house.elsewhere.go_away(true);
    for round in 1..5 {
        house.fill("rows", round, 100_000).await;
    }
    until("it is spilled", || {
        let status = house.intake.database().unwrap();
        status.spill_bytes > 400_000 && status.log_bytes_kept == 0
    });
    house.intake.reclaim().await.unwrap();
    let path = house.spill_files()[0].clone();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20_000] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    house.elsewhere.go_away(false);
    house.check_same("after").await;
    let left = house.spill_files();
    assert!(left.iter().all(|path| path.extension().unwrap() == "damaged"), "{left:?}");
    assert_eq!(left.len(), 1, "{left:?}");
}

#[tokio::test]
async fn a_check_of_everything_reads_the_spill_and_names_what_is_damaged() {
    let house = House::new();
    house.fill("rows", 0, 100).await;
    house.check_same("before").await;
    house.elsewhere.go_away(true);
    house.fill("rows", 1, 10_000).await;
    until("it is spilled", || house.intake.database().unwrap().spill_bytes > 10_000);
    let path = house.spill_files()[0].clone();
    let House { intake, options, dir: _dir, .. } = house;
    intake.close().unwrap();
    drop(intake);
    let check = || fsck(&options.dir, Arc::new(RealFs), |_| {}).unwrap();
    let report = check();
    assert!(report.findings.is_empty() && report.spilled > 50, "{report:?}");
    let whole = std::fs::read(&path).unwrap();
    // A torn end is not damage: the log has it. With another segment after it, it is.
    std::fs::write(&path, &whole[..whole.len() - 7]).unwrap();
    assert!(check().findings.is_empty());
    std::fs::write(path.with_file_name("ffffffffffffffff.ndjson"), &whole).unwrap();
    let report = check();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    assert_eq!((report.findings[0].kind, report.findings[0].path.as_ref()), ("spill", Some(&path)));
}
