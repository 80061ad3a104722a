//! Merge joins give what DataFusion's give, whatever is in memory and what in a file.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Int64Array, StringArray};
use arrow::datatypes::{DataType, Field, Schema};
use arrow::util::display::array_value_to_string;
use datafusion::datasource::MemTable;
use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool};
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use proptest::prelude::*;

use super::super::joins;
use super::*;

/// A row: its key, and another value.
type Row = (Option<i64>, i64);

fn schema() -> SchemaRef {
    let fields = [("k", DataType::Int64), ("v", DataType::Int64), ("s", DataType::Utf8)];
    let fields = fields.map(|(name, of)| Field::new(name, of, true));
    Arc::new(Schema::new(fields.to_vec()))
}

fn batches(rows: &[Row], size: usize) -> Vec<RecordBatch> {
    let batch = |rows: &[Row]| {
        let k: Int64Array = rows.iter().map(|row| row.0).collect();
        let v: Int64Array = rows.iter().map(|row| Some(row.1)).collect();
        let s: StringArray = rows.iter().map(|row| Some(format!("{}{:99}", row.1, ""))).collect();
        RecordBatch::try_new(schema(), vec![Arc::new(k), Arc::new(v), Arc::new(s)]).unwrap()
    };
    rows.chunks(size).map(batch).collect()
}

/// The plan of a query of `l` and `r`, and how it is run.
async fn plan(
    query: &str,
    sides: [&[Row]; 2],
    batch_size: usize,
    pool: Arc<dyn MemoryPool>,
) -> (Arc<dyn ExecutionPlan>, Arc<TaskContext>) {
    let config = SessionConfig::new().with_target_partitions(1).with_batch_size(batch_size);
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().unwrap();
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_physical_optimizer_rules(joins::rules())
        .build();
    let session = SessionContext::new_with_state(state);
    for (name, rows) in ["l", "r"].into_iter().zip(sides) {
        let table = MemTable::try_new(schema(), vec![batches(rows, batch_size)]).unwrap();
        session.register_table(name, Arc::new(table)).unwrap();
    }
    let frame = session.sql(query).await.unwrap();
    let task = Arc::new(frame.task_ctx());
    (frame.create_physical_plan().await.unwrap(), task)
}

async fn lines(plan: Arc<dyn ExecutionPlan>, task: Arc<TaskContext>) -> Vec<String> {
    let mut lines = Vec::new();
    for batch in collect(plan, task).await.unwrap() {
        for row in 0..batch.num_rows() {
            let cell = |column: &ArrayRef| array_value_to_string(column, row).unwrap();
            let cells: Vec<String> = batch.columns().iter().map(cell).collect();
            lines.push(cells.join(","));
        }
    }
    lines
}

const TYPES: [&str; 4] = ["inner", "left", "right", "full"];
const CONDITIONS: [&str; 4] = [
    "l.k = r.k",
    "l.k = r.k and l.v < r.v",
    "l.k is not distinct from r.k",
    "l.k = r.k and l.v % 3 = r.v % 3 and l.s > '1'",
];

async fn compare(of: &str, on: &str, sides: [&[Row]; 2], batch_size: usize, limit: usize) {
    let query = format!("select l.k, l.v, r.k as rk, r.v as rv from l {of} join r on {on}");
    let pool = || Arc::new(FairSpillPool::new(64 << 20)) as Arc<dyn MemoryPool>;
    let (theirs, task) = plan(&query, sides, batch_size, pool()).await;
    let ours = spilling(Arc::clone(&theirs), &Arc::default(), Some(limit)).unwrap();
    let shown = |plan: &Arc<dyn ExecutionPlan>| {
        datafusion::physical_plan::displayable(plan.as_ref()).indent(false).to_string()
    };
    assert!(shown(&theirs).contains("SortMergeJoin"), "{}", shown(&theirs));
    assert!(!shown(&ours).contains("SortMergeJoin"), "{}", shown(&ours));
    let mut expected = lines(theirs, Arc::clone(&task)).await;
    let mut found = lines(ours, task).await;
    if of != "inner" {
        expected.sort();
        found.sort();
    }
    assert_eq!(found, expected, "{query} {sides:?} {batch_size} {limit}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn joins_give_what_those_of_the_library_give(
        left in proptest::collection::vec((proptest::option::weighted(0.9, 0_i64..5), 0_i64..20), 0..40),
        right in proptest::collection::vec((proptest::option::weighted(0.9, 0_i64..5), 0_i64..20), 0..40),
        batch_size in 1_usize..9,
        limit in prop_oneof![Just(0), Just(1_500), Just(usize::MAX)],
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for of in TYPES {
            for on in CONDITIONS {
                runtime.block_on(compare(of, on, [&left, &right], batch_size, limit));
            }
        }
    }
}

/// Measures how much of a pool is reserved at once.
#[derive(Debug)]
struct Peak(FairSpillPool, AtomicUsize);

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl MemoryPool for Peak {
    fn name(&self) -> &str {
        "peak"
    }

    fn register(&self, consumer: &MemoryConsumer) {
        self.0.register(consumer);
    }

    fn unregister(&self, consumer: &MemoryConsumer) {
        self.0.unregister(consumer);
    }

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        self.0.grow(reservation, additional);
        self.1.fetch_max(self.0.reserved(), Ordering::SeqCst);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        self.0.shrink(reservation, shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.0.try_grow(reservation, additional)?;
        self.1.fetch_max(self.0.reserved(), Ordering::SeqCst);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.0.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        self.0.memory_limit()
    }
}

#[tokio::test]
async fn many_rows_with_one_key_stay_within_the_memory_on_either_side() {
    const LIMIT: usize = 32 << 20;
    let few: Vec<Row> = (0..3).map(|v| (Some(7), v)).collect();
    let many: Vec<Row> = (0..300_000).map(|v| (Some(7), v)).collect();
    for (of, sides, count) in [
        ("inner", [&few, &many], 900_000),
        ("left", [&few, &many], 900_000),
        ("right", [&many, &few], 900_000),
        ("full", [&few, &many], 900_000),
        ("inner", [&many, &few], 900_000),
    ] {
        let pool = Arc::new(Peak(FairSpillPool::new(LIMIT), AtomicUsize::new(0)));
        let query = format!(
            "select count(*) as n, sum(l.v) as a, sum(r.v) as b, max(l.s) as c, max(r.s) as d \
             from l {of} join r on l.k = r.k"
        );
        let shared = Arc::clone(&pool) as Arc<dyn MemoryPool>;
        let (plan, task) = plan(&query, [sides[0], sides[1]], 2048, shared).await;
        let plan = spilling(plan, &Arc::default(), None).unwrap();
        let lines = lines(plan, task).await;
        let v = 300_000 * 299_999 / 2 * 3_i64;
        assert!(lines[0].starts_with(&format!("{count},")), "{of}: {lines:?}");
        assert!(lines[0].contains(&v.to_string()), "{of}: {lines:?}");
        let peak = pool.1.load(Ordering::SeqCst);
        assert!(peak <= LIMIT, "{of}: {peak} bytes");
    }
}
