//! What is written is read by programs that are not ours: delta-rs and DuckDB.

use std::path::Path;
use std::process::Command;

use forebay_sdk::acceptance;
use forebay_sdk::values::types;
use serde_json::{Value, json};

use super::tables;

/// Prints the number of rows, the sum of the ids, and what else the query names, for each reader.
const READ: &str = r#"
import json, sys
import deltalake, duckdb, duckdb_extension_delta, duckdb_extension_parquet, pathlib

path, columns, where = sys.argv[1:4]
query = f"select count(*) as n, cast(sum(id) as bigint) as s{columns} from t where {where}"
table = deltalake.DeltaTable(path)
rows = deltalake.QueryBuilder().register("t", table).execute(query).read_all()
first = [rows.column(at)[0].as_py() for at in range(rows.num_columns)]
duck = duckdb.connect(config={"allow_unsigned_extensions": "true"})
for module in (duckdb_extension_parquet, duckdb_extension_delta):
    root = pathlib.Path(module.__file__).parent
    duck.load_extension(str(next(root.rglob("*.duckdb_extension"))))
duck.sql(f"create view t as select * from delta_scan('{path}')")
second = list(duck.sql(query).fetchone())
actions = table.get_add_actions()
names = [field.name for field in actions.schema]
largest = max(range(actions.num_rows), key=lambda row: actions.column(names.index("num_records"))[row].as_py())
stats = {name: actions.column(at)[largest].as_py() for at, name in enumerate(names)}
print(json.dumps({"deltalake": first, "duckdb": second, "version": table.version(), "stats": stats}, default=str))
"#;

/// What both readers find.
fn read(path: &Path, columns: &str, condition: &str) -> Option<Value> {
    let python = forebay_testing::tool("delta", "python")?;
    let path = path.to_str().unwrap();
    let output =
        Command::new(python).args(["-c", READ, path, columns, condition]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_rs_and_duckdb_read_the_rows_and_prune_by_the_statistics() {
    let directory = tempfile::tempdir().unwrap();
    let columns = [
        ("id", "bigint"),
        ("name", "text"),
        ("price", "numeric(10,2)"),
        ("ratio", "double precision"),
        ("day", "date"),
        ("at", "timestamptz"),
        ("seen", "timestamp"),
        ("tags", "text[]"),
        ("key", "uuid"),
    ];
    let columns: Vec<_> =
        columns.iter().map(|(name, sql)| types::column(name, sql).unwrap()).collect();
    let (first, second) =
        (acceptance::rows(&columns, 0..200), acceptance::rows(&columns, 200..300));
    acceptance::fill(&tables(directory.path()), "t", &columns, &[&first, &second]).await.unwrap();
    let path = directory.path().join("t");
    let more = ", cast(count(name) as bigint) as a, cast(sum(price) as varchar) as b, count(tags) as c, \
                min(key) as d, cast(count(day) as bigint) as e";
    let Some(found) = read(&path, more, "true") else { return };
    let sum: i64 = (0..300).sum();
    assert_eq!(found["deltalake"], found["duckdb"], "{found}");
    assert_eq!(found["duckdb"][0], 300);
    assert_eq!(found["duckdb"][1], sum);
    assert_eq!(found["stats"]["num_records"], 200, "{found}");
    assert_eq!(found["stats"]["min"]["id"], 0, "{found}");
    assert_eq!(found["stats"]["max"]["id"], 199);
    assert_eq!(found["stats"]["null_count"]["id"], 0);
    let some = read(&path, "", "id >= 250").unwrap();
    assert_eq!(some["duckdb"], json!([50, (250..300).sum::<i64>()]));
    assert_eq!(some["deltalake"], some["duckdb"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_rs_and_duckdb_read_columns_of_any_name_and_type() {
    let directory = tempfile::tempdir().unwrap();
    let columns = acceptance::columns();
    let rows = acceptance::rows(&columns, 0..100);
    acceptance::fill(&tables(directory.path()), "t", &columns, &[&rows]).await.unwrap();
    let Some(found) = read(&directory.path().join("t"), "", "id >= 90") else { return };
    assert_eq!(found["duckdb"], json!([10, (90..100).sum::<i64>()]));
    assert_eq!(found["deltalake"], found["duckdb"]);
}
