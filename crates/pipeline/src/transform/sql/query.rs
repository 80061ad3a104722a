//! Planning a query over streams.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::TableReference;
use datafusion::common::config::Dialect;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::error::DataFusionError;
use datafusion::execution::context::{SQLOptions, SessionContext};
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::FairSpillPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_plan::streaming::PartitionStream;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::Statement as SqlStatement;
use forebay_sdk::connector::{Result, Unit};
use forebay_sdk::error::ConnectorError;
use forebay_sdk::run::Context;

use super::result::QueryStream;
use super::scan::Table;
use super::settings::SqlSettings;
use super::spill::Spills;
use super::{columns, dialect, enums, exact, hints, joins, padded, uuids, words, zones};
use crate::transform::streams::{Named, listed};

/// Minimum memory of a query in bytes: less would not hold the buffers of a sort.
const MEMORY_MIN: usize = 8 << 20;
/// Number of rows of a query's batches.
const BATCH_ROWS: usize = 2048;
/// The schema of a query's tables, the same as PostgreSQL's default.
const SCHEMA: &str = "public";

/// Replaces the streams that a query names by its result.
pub(super) async fn apply(
    settings: &SqlSettings,
    mut streams: Vec<Named>,
    memory: usize,
    _: &Context,
) -> Result<Vec<Named>> {
    let memory = memory.max(MEMORY_MIN);
    let spills = Arc::new(Spills::default());
    let session = session(memory, Arc::clone(&spills)).map_err(|error| refused(&error))?;
    exact::register(&session);
    words::register(&session);
    zones::register(&session);
    for (name, stream) in &streams {
        let table: Arc<dyn PartitionStream> = Arc::new(Table::new(name, stream));
        let table = StreamingTable::try_new(Arc::clone(table.schema()), vec![table]);
        let table = table.map_err(|error| refused(&error))?;
        let reference = TableReference::bare(name.as_str());
        session.register_table(reference, Arc::new(table)).map_err(|error| refused(&error))?;
    }
    let (plan, named) = plan(&session, &settings.query, &streams).await?;
    let inputs: Vec<usize> =
        (0..streams.len()).filter(|&at| named.contains(&streams[at].0)).collect();
    let name = name(settings, &streams, &inputs)?;
    let columns = columns::of(&plan, &streams)?;
    let spooled = named_again(&plan);
    let state = session.state();
    // Errors that only the physical plan reveals are reported now, too.
    state.create_physical_plan(&plan).await.map_err(|error| refused(&error))?;
    let result = QueryStream {
        cursor: cursor(&streams, &inputs)?,
        notes: notes(&streams, &inputs, &name, settings),
        units: vec![Unit { name: "all".into(), from: None, to: None, rows: None, bytes: None }],
        name: name.clone(),
        state,
        plan,
        columns,
        memory,
        spooled: spooled.map_err(|error| refused(&error))?,
        spills,
    };
    let at = inputs.first().copied().unwrap_or(streams.len());
    streams.insert(at, (name, Arc::new(result)));
    let mut index = 0;
    streams.retain(|_| {
        let before = index;
        index += 1;
        // The indexes of later streams have moved by one.
        before == at || !inputs.contains(&(if before > at { before - 1 } else { before }))
    });
    Ok(streams)
}

/// The context in which a query is planned and run.
fn session(memory: usize, spills: Arc<Spills>) -> Result<SessionContext, DataFusionError> {
    let mut config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(BATCH_ROWS)
        .with_information_schema(false)
        .with_default_catalog_and_schema("forebay", SCHEMA)
        .with_sort_spill_reservation_bytes((memory / 8).min(10 << 20));
    let options = config.options_mut();
    options.sql_parser.dialect = Dialect::PostgreSQL;
    // 0.1 is a tenth, and products with it stay exact.
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = false;
    options.execution.time_zone = Some("UTC".into());
    options.execution.sort_in_place_threshold_bytes = (memory / 16).min(1 << 20);
    // Sorted by one thread, so that rows with equal keys keep their order.
    options.optimizer.repartition_sorts = false;
    let pool = Arc::new(FairSpillPool::new(memory));
    let spills = DiskManagerMode::Custom(spills);
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_pool(pool)
        .with_disk_manager_builder(DiskManagerBuilder::default().with_mode(spills))
        .build_arc()?;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(runtime)
        .with_default_features()
        .with_physical_optimizer_rules(joins::rules())
        .build();
    Ok(SessionContext::new_with_state(state))
}

/// The plan of a query, and the names of the streams it reads.
async fn plan(
    session: &SessionContext,
    query: &str,
    streams: &[Named],
) -> Result<(LogicalPlan, Vec<String>)> {
    let state = session.state();
    let statement = state.sql_to_statement(query, &Dialect::PostgreSQL);
    let mut statement = statement.map_err(|error| refused(&error))?;
    dialect::adapt(&mut statement).map_err(|error| refused(&error))?;
    let is_query = matches!(&statement, Statement::Statement(statement)
        if matches!(statement.as_ref(), SqlStatement::Query(_)));
    if !is_query {
        return Err(ConnectorError::unsupported(
            "a transform `sql` must be a single SELECT",
            "create and change tables at the destination",
        ));
    }
    let references = state.resolve_table_references(&statement).map_err(|error| refused(&error))?;
    let mut named = Vec::new();
    for reference in references {
        let is_here = reference.schema().is_none_or(|schema| schema == SCHEMA)
            && reference.catalog().is_none();
        let table = reference.table();
        if is_here && streams.iter().any(|(name, _)| name == table) {
            named.push(table.to_owned());
        } else if state.table_functions().get(table).is_none() {
            return Err(ConnectorError::unsupported(
                format!("the query refers to {reference}, which is not a stream"),
                format!(
                    "the streams are {}; put names that are not lower case in double quotes",
                    listed(streams.iter().map(|(name, _)| name.as_str()))
                ),
            ));
        }
    }
    let plan = state.statement_to_plan(statement).await.map_err(|error| refused(&error))?;
    let only_reads = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false);
    let only_reads = only_reads.with_allow_statements(false).verify_plan(&plan);
    only_reads.map_err(|error| refused(&error))?;
    let plan = enums::refuse_order(plan, streams).map_err(|error| refused(&error))?;
    let plan = exact::checked(plan).map_err(|error| refused(&error))?;
    let plan = uuids::compared(plan, streams).map_err(|error| refused(&error))?;
    let plan = padded::compared(plan, streams).map_err(|error| refused(&error))?;
    Ok((plan, named))
}

/// The streams that a plan reads more than once: named twice, or in a recursive query.
fn named_again(plan: &LogicalPlan) -> Result<BTreeSet<String>, DataFusionError> {
    let mut counts = BTreeMap::new();
    let mut goes_round = false;
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::TableScan(scan) => {
                *counts.entry(scan.table_name.table().to_owned()).or_insert(0) += 1;
            }
            LogicalPlan::RecursiveQuery(_) => goes_round = true,
            _ => {}
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    counts.retain(|_, count| goes_round || *count > 1);
    Ok(counts.into_keys().collect())
}

/// The name of the result.
fn name(settings: &SqlSettings, streams: &[Named], inputs: &[usize]) -> Result<String> {
    let name = match (&settings.into, inputs) {
        (Some(into), _) => into.clone(),
        (None, &[input]) => return Ok(streams[input].0.clone()),
        (None, _) => {
            return Err(ConnectorError::unsupported(
                format!("the query reads {} streams, so its result needs a name", inputs.len()),
                "add `into:`",
            ));
        }
    };
    let others = streams.iter().enumerate().filter(|(index, _)| !inputs.contains(index));
    if name.is_empty() || others.into_iter().any(|(_, (other, _))| *other == name) {
        return Err(ConnectorError::unsupported(
            format!("the result of the query cannot be named {name:?}"),
            "choose a name that no other stream has",
        ));
    }
    Ok(name)
}

/// The cursor of the result: that of its stream.
fn cursor(streams: &[Named], inputs: &[usize]) -> Result<Option<forebay_sdk::connector::Cursor>> {
    match inputs {
        &[input] => Ok(streams[input].1.cursor()),
        _ => match inputs.iter().find(|&&input| streams[input].1.cursor().is_some()) {
            Some(&input) => Err(ConnectorError::unsupported(
                format!("the query joins {:?}, which is read incrementally", streams[input].0),
                "read it with `sync_mode: full_refresh`, or query it alone",
            )),
            None => Ok(None),
        },
    }
}

/// Notes for the reader of the plan.
fn notes(streams: &[Named], inputs: &[usize], name: &str, settings: &SqlSettings) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for &input in inputs {
        notes.extend(streams[input].1.notes());
    }
    let from = listed(inputs.iter().map(|&input| streams[input].0.as_str()));
    let query = settings.query.split_whitespace().collect::<Vec<_>>().join(" ");
    notes.push(format!("{name} is the result of a query of {from}: {query}"));
    if inputs.iter().any(|&input| streams[input].1.cursor().is_some()) {
        notes.push(format!("the query for {name} sees only rows that are new since the last run"));
    }
    notes
}

fn refused(error: &DataFusionError) -> ConnectorError {
    if let Some((what, instead)) = hints::of(error) {
        return ConnectorError::unsupported(what, instead);
    }
    ConnectorError::Refused {
        act: "plan the query of a transform `sql`".into(),
        source: error.strip_backtrace().into(),
    }
}
