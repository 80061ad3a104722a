//! Transforms in whole pipelines, between directories of files: what comes out, and what is refused
//! before anything is written.
#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use forebay_pipeline::config;
use forebay_pipeline::error::RunError;
use forebay_pipeline::run::{Options, Pipeline, Report};
use forebay_sdk::run::Context;

const ORDERS: &str = "id,customer,amount,note
1,1,10.50,a
2,1,4.50,b
3,2,100.00,c
4,9,1.00,d
5,,7.00,e
6,2,-3.00,f
";

const CUSTOMERS: &str = "id,name,email
1,Ann,ann@example.org
2,Bob,bob@example.org
3,Cy,
";

/// A directory with orders and customers.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let input = directory.path().join("in");
    std::fs::create_dir(&input).unwrap();
    std::fs::write(input.join("orders.csv"), ORDERS).unwrap();
    std::fs::write(input.join("customers.csv"), CUSTOMERS).unwrap();
    directory
}

/// A pipeline file from those to NDJSON, with these transforms.
fn pipeline(directory: &Path, transforms: &str) -> PathBuf {
    let path = directory.join("pipeline.yaml");
    let text = format!(
        "version: 1
pipeline: shop
source:
  use: csv
  config:
    path: {0}/in
    columns: {{ amount: 'numeric(10,2)' }}
  streams:
    - {{ name: orders.csv, into: orders }}
destination:
  use: ndjson
  config: {{ path: {0}/out }}
  write_mode: replace
transforms:
{transforms}",
        directory.display()
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// The same with customers, who have no amount.
fn with_customers(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let orders = "    - { name: orders.csv, into: orders }\n";
    let both = format!("{orders}    - {{ name: customers.csv, into: customers }}\n");
    let text =
        text.replace(orders, &both).replace("    columns: { amount: 'numeric(10,2)' }\n", "");
    std::fs::write(path, text).unwrap();
}

async fn run(path: &Path) -> Result<Report, RunError> {
    let resolve = |name: &str| match name {
        "SALT" => Ok("a long enough salt".to_owned()),
        other => Err(format!("{other} is not set")),
    };
    let file =
        config::load(path, &forebay_connectors::registry(), Box::leak(Box::new(resolve))).unwrap();
    let (context, _cancel) = Context::new("test");
    Pipeline::new(&file).run(Options::default(), &context).await
}

/// The lines of all files of a stream, in order.
fn lines(directory: &Path, stream: &str) -> BTreeSet<String> {
    let files = std::fs::read_dir(directory.join("out").join(stream)).unwrap();
    let texts = files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap());
    texts.flat_map(|text| text.lines().map(ToOwned::to_owned).collect::<Vec<_>>()).collect()
}

fn set(lines: &[&str]) -> BTreeSet<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_checked_masked_joined_and_added_up_on_the_way() {
    let directory = directory();
    let path = pipeline(
        directory.path(),
        "  - validate:
      stream: orders
      on_failure: dlq
      rules: [{ not_null: customer }, { range: { column: amount, min: 0 } }]
  - mask:
      stream: customers
      salt: ${SALT}
      columns: { email: hash, name: { partial: { first: 1 } } }
  - sql:
      into: revenue
      query: |
        select c.name, c.email is null as silent, count(o.id) as orders, sum(o.amount) as amount
        from customers c left join orders o on o.customer = c.id group by c.name, c.email
",
    );
    with_customers(&path);
    for _ in 0..2 {
        let report = run(&path).await.unwrap();
        assert_eq!((report.rows, report.dead), (3, 2));
        assert_eq!(
            lines(directory.path(), "revenue"),
            set(&[
                r#"{"name":"A**","silent":false,"orders":2,"amount":15}"#,
                r#"{"name":"B**","silent":false,"orders":1,"amount":100}"#,
                r#"{"name":"C*","silent":true,"orders":0,"amount":null}"#,
            ])
        );
    }
    assert!(!directory.path().join("out/orders").exists(), "what a query names is consumed");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_breaks_a_rule_ends_the_run_and_nothing_is_there() {
    let directory = directory();
    let path = pipeline(
        directory.path(),
        "  - validate: { rules: [{ range: { column: amount, min: 0 } }] }",
    );
    let error = run(&path).await.unwrap_err();
    let said = forebay_base::error_chain::chain(&error).to_string();
    assert!(said.contains("row 6") && said.contains("-3.00"), "{said}");
    let orders = directory.path().join("out/orders");
    assert!(!orders.exists() || lines(directory.path(), "orders").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_skipped_are_not_there_and_the_others_are() {
    let directory = directory();
    let path = pipeline(
        directory.path(),
        "  - validate: { on_failure: skip, rules: [{ unique: { columns: customer } }, { not_null: customer }] }
  - mask: { columns: { note: nullify, amount: redact } }",
    );
    let report = run(&path).await.unwrap();
    assert_eq!(report.rows, 3);
    assert_eq!(
        lines(directory.path(), "orders"),
        set(&[
            r#"{"id":1,"customer":1,"amount":0.00,"note":null}"#,
            r#"{"id":3,"customer":2,"amount":0.00,"note":null}"#,
            r#"{"id":4,"customer":9,"amount":0.00,"note":null}"#,
        ])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_cannot_be_is_refused_and_nothing_is_written() {
    let directory = directory();
    for (transforms, expected) in [
        ("  - sql: { query: select amont from orders }", "amount"),
        ("  - mask: { stream: customers, columns: { id: redact } }", "customers"),
        ("  - validate: { rules: [{ not_null: idd }] }", "idd"),
    ] {
        let path = pipeline(directory.path(), transforms);
        let error = run(&path).await.unwrap_err();
        let said = forebay_base::error_chain::chain(&error).to_string();
        assert!(said.contains(expected), "{transforms}: {said}");
        assert!(!directory.path().join("out/orders").exists(), "{transforms}");
    }
}
