//! Names that are hostile.

use serde_json::json;

use crate::server::{database, open, stream, table, text};

#[tokio::test]
async fn names_with_quotes_and_placeholders_are_read_and_enter_no_statement_unquoted() {
    let Some(database) = database() else { return };
    let name = "a`b\"c' ?:x é; DROP TABLE t -- %\\";
    let quoted = format!("`{}`", name.replace('`', "``"));
    database.run("CREATE TABLE t (id INT PRIMARY KEY)");
    let mut client = database.client().await;
    for sql in [
        format!("CREATE TABLE {quoted} ({quoted} INT PRIMARY KEY, `:named ?` INT)"),
        format!("INSERT INTO {quoted} VALUES (1, 2), (3, 4)"),
    ] {
        mysql_async::prelude::Queryable::query_drop(&mut client, sql).await.unwrap();
    }
    let source = database.source(json!({}));
    let expected = [json!({ name: 1, ":named ?": 2 }), json!({ name: 3, ":named ?": 4 })];
    assert_eq!(table(&source, name).await.unwrap(), expected);
    let incremental =
        json!({ "sync_mode": "incremental", "cursor_field": name, "columns": [":named ?"] });
    let opening = crate::server::opening(None, forebay_sdk::connector::Division::Stable);
    let (open, _) =
        crate::server::open_as(&source, &stream(name, incremental), opening).await.unwrap();
    assert_eq!(open.cursor().unwrap().value, "3");
    assert_eq!(crate::server::rows(&open).await.unwrap().len(), 2);
    assert_eq!(database.run("SELECT COUNT(*) FROM t"), "0");
}

#[tokio::test]
async fn tables_whose_names_differ_by_case_are_different_and_a_missing_one_is_named() {
    let Some(database) = database() else { return };
    database.run(
        "CREATE TABLE Orders (id INT PRIMARY KEY, a INT); CREATE TABLE orders (b INT PRIMARY KEY); \
         INSERT INTO Orders VALUES (1, 2); INSERT INTO orders VALUES (3)",
    );
    let source = database.source(json!({}));
    assert_eq!(table(&source, "Orders").await.unwrap(), [json!({ "id": 1, "a": 2 })]);
    assert_eq!(table(&source, "orders").await.unwrap(), [json!({ "b": 3 })]);
    let found = source.discover().await.unwrap();
    let names: Vec<_> =
        found.iter().map(|it| (&*it.name, it.columns.len(), &*it.primary_key)).collect();
    assert_eq!(
        names,
        [("Orders", 2, &["id".to_owned()][..]), ("orders", 1, &["b".to_owned()][..])]
    );
    let error = text(open(&source, "ORDERS").await);
    assert!(
        error.contains("there is no table \"ORDERS\"") && error.contains("Orders, orders"),
        "{error}"
    );
}
