//! A table: its log, read and written with the kernel of Delta.
//!
//! Everything here may block on disk or network, and is called by threads that may block. A commit is a
//! put of the next version's file, which fails if there is one. So every attempt knows the state that it
//! changes: a commit that meets another's is made again from the newest state, if that permits it.

use std::num::NonZero;
use std::sync::{Arc, LazyLock};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use delta_kernel::committer::FileSystemCommitter;
use delta_kernel::engine::arrow_conversion::TryFromKernel as _;
use delta_kernel::engine::arrow_data::ArrowEngineData;
use delta_kernel::expressions::ColumnName;
use delta_kernel::schema::{SchemaRef, StructField, StructType};
use delta_kernel::table_features::{ColumnMappingMode, TableFeature};
use delta_kernel::transaction::UpdateTableOperation;
use delta_kernel::transaction::create_table::create_table;
use delta_kernel::{Engine, KernelError, Snapshot, SnapshotRef};
use delta_kernel_default_engine::executor::tokio::TokioMultiThreadExecutor;
use delta_kernel_default_engine::{DefaultEngine, DefaultEngineBuilder};
use forebay_sdk::connector::Result;
use forebay_sdk::error::ConnectorError;
use forebay_sdk::settings::TargetSettings;

use crate::{Class, Failure};

use super::super::disk::create_directory;
use super::super::location::Location;
use super::ledger::{self, Ledger};
use super::store;

/// What commits name as their program.
pub(super) const ENGINE: &str = concat!("forebay/", env!("CARGO_PKG_VERSION"));
/// The root of a table for the kernel: names are relative to it, and the store knows where it is.
pub(super) const ROOT: &str = "delta:///";
/// Number of files that are read at once.
const READAHEAD: NonZero<usize> = NonZero::new(4).expect("not zero");
/// Number of rows of a batch that is read.
const BATCH_ROWS: NonZero<usize> = NonZero::new(4096).expect("not zero");
/// Number of threads that wait for requests of the kernel.
const THREADS: usize = 2;
/// A property that would delete the versions of transactions, which the ledger relies on.
const FORGETS: &str = "delta.setTransactionRetentionDuration";
/// Characters that a name may have only where columns are mapped to other names in the files.
const MAPPED: [char; 10] = [' ', ',', ';', '{', '}', '(', ')', '\n', '\t', '='];

/// The threads of the kernel's requests. They are shared: clients keep connections from run to run.
static EXECUTOR: LazyLock<std::result::Result<Arc<TokioMultiThreadExecutor>, String>> =
    LazyLock::new(|| {
        let made = TokioMultiThreadExecutor::new_owned_runtime(Some(THREADS), None);
        made.map(Arc::new).map_err(|error| error.to_string())
    });

/// A table that may not exist yet.
#[derive(Debug, Clone)]
pub(super) struct Table {
    place: Location,
    display: String,
    engine: Option<Arc<DefaultEngine<TokioMultiThreadExecutor>>>,
}

/// A version of a table.
#[derive(Debug, Clone)]
pub(super) struct State {
    pub(super) snapshot: SnapshotRef,
    /// The version of the stream's last transaction; 0 if there is none.
    pub(super) version: i64,
    pub(super) ledger: Ledger,
}

/// How files of a table are written.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// Names of the columns in the table, and their fields in its files.
    pub(super) fields: Vec<(String, arrow::datatypes::FieldRef)>,
    pub(super) physical: SchemaRef,
    pub(super) stats_columns: Vec<ColumnName>,
}

impl Table {
    /// The table in a directory, which may not exist.
    pub(super) fn open(place: Location) -> Result<Self> {
        let display = place.display("").display().to_string();
        let mut table = Self { place, display, engine: None };
        table.attach()?;
        Ok(table)
    }

    /// Its directory, for messages.
    pub(super) fn display(&self) -> &str {
        &self.display
    }

    /// Opens the directory if there is one now.
    pub(super) fn attach(&mut self) -> Result<()> {
        if self.engine.is_some() {
            return Ok(());
        }
        if let Location::Disk(directory, within) = &self.place {
            for path in [directory.clone(), directory.join("_delta_log")] {
                match within.check(&path) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                    checked => {
                        checked.map_err(|error| ConnectorError::file("open", path, error))?
                    }
                }
            }
        }
        let opened = store::open(&self.place);
        let opened = opened.map_err(|error| self.failed("open", error.into()))?;
        let Some(store) = opened else { return Ok(()) };
        let executor = EXECUTOR.as_ref().map_err(|error| self.refused("open", error.clone()))?;
        let engine = DefaultEngineBuilder::new(store)
            .with_buffer_size(READAHEAD)
            .with_batch_size(BATCH_ROWS)
            .with_task_executor(Arc::clone(executor))
            .build();
        self.engine = Some(Arc::new(engine));
        Ok(())
    }

    /// Creates its directory, where there are directories, and opens it.
    pub(super) fn create_directory(&mut self) -> Result<()> {
        if let Location::Disk(directory, _) = &self.place {
            create_directory(&directory.join("_delta_log"))?;
        }
        self.attach()
    }

    pub(super) fn engine(&self) -> Result<Arc<dyn Engine>> {
        match &self.engine {
            Some(engine) => Ok(Arc::clone(engine) as Arc<dyn Engine>),
            None => Err(self.refused("use", "its directory does not exist".into())),
        }
    }

    /// The newest version; `None` if there is no table.
    pub(super) fn snapshot(&self) -> Result<Option<SnapshotRef>> {
        let Some(engine) = &self.engine else { return Ok(None) };
        match Snapshot::builder_for(ROOT).build(&**engine) {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(_) if !self.has_log(&**engine)? => Ok(None),
            Err(error) => Err(self.failed("read the log of", error)),
        }
    }

    /// Whether there is a file of a log.
    fn has_log(&self, engine: &dyn Engine) -> Result<bool> {
        let failed = |error| self.failed("list the log of", error);
        let log = delta_kernel::try_parse_uri(format!("{ROOT}_delta_log/")).map_err(failed)?;
        let files = match engine.storage_handler().list_from(&log) {
            Err(KernelError::FileNotFound(_)) => return Ok(false),
            files => files.map_err(failed)?,
        };
        for file in files {
            match file {
                Err(KernelError::FileNotFound(_)) => return Ok(false),
                Err(error) => return Err(failed(error)),
                Ok(file) if file.location.path().ends_with(".json") => return Ok(true),
                Ok(file) if file.location.path().ends_with(".parquet") => return Ok(true),
                Ok(_) => {}
            }
        }
        Ok(false)
    }

    /// The newest version with the records of a stream.
    pub(super) fn state(&self, settings: &TargetSettings) -> Result<Option<State>> {
        self.snapshot()?.map(|snapshot| self.state_of(snapshot, settings)).transpose()
    }

    pub(super) fn state_of(
        &self,
        snapshot: SnapshotRef,
        settings: &TargetSettings,
    ) -> Result<State> {
        let engine = self.engine()?;
        let failed = |error| self.failed("read the log of", error);
        let version = self.version_of(&snapshot, settings)?;
        let domains = snapshot.get_all_domain_metadata(&*engine).map_err(failed)?;
        let domains = domains.iter().map(|domain| (domain.domain(), domain.configuration()));
        let ledger = Ledger::decode(domains, settings, &self.display)?;
        if ledger.head.is_some() && version == 0 {
            return Err(ConnectorError::data(
                format!("the log of {}", self.display),
                "it has a record of a load, but not its transaction; restore the table from a backup, or \
                 run `forebay pipeline reset` to start again",
            ));
        }
        Ok(State { snapshot, version, ledger })
    }

    /// The version of the stream's last transaction.
    pub(super) fn version_of(
        &self,
        snapshot: &SnapshotRef,
        settings: &TargetSettings,
    ) -> Result<i64> {
        let version = snapshot.get_app_id_version(&ledger::app_id(settings), &*self.engine()?);
        let version = version.map_err(|error| self.failed("read the log of", error))?;
        Ok(version.unwrap_or(0))
    }

    /// A record of the stream, as it is in the log.
    pub(super) fn record(&self, snapshot: &SnapshotRef, domain: &str) -> Result<Option<String>> {
        let found = snapshot.get_domain_metadata(domain, &*self.engine()?);
        found.map_err(|error| self.failed("read the log of", error))
    }

    /// Checks that this connector can write a table that others may have made.
    pub(super) fn check(&self, snapshot: &SnapshotRef, is_replace: bool) -> Result<()> {
        let (table, display) = (snapshot.table_configuration(), &self.display);
        let refuse = |what: String, way_out: &str| Err(ConnectorError::unsupported(what, way_out));
        if !table.is_feature_supported(&TableFeature::DomainMetadata) {
            return refuse(
                format!(
                    "the table {display} does not have the feature domainMetadata, which keeps the record of loads"
                ),
                "add it with ALTER TABLE .. SET TBLPROPERTIES ('delta.feature.domainMetadata' = 'supported'), \
                 or write to another table with `into`",
            );
        }
        if !table.logical_partition_columns().is_empty() {
            return refuse(
                format!("the table {display} is partitioned"),
                "write to another table with `into`",
            );
        }
        if snapshot.metadata_configuration().contains_key(FORGETS) {
            return refuse(
                format!(
                    "the table {display} has the property {FORGETS}, which deletes the record of transactions"
                ),
                "unset the property, or write to another table with `into`",
            );
        }
        let is_fixed = [TableFeature::AppendOnly, TableFeature::ChangeDataFeed];
        if let Some(feature) = is_fixed.iter().find(|it| is_replace && table.is_feature_enabled(it))
        {
            return refuse(
                format!(
                    "the table {display} has the feature {feature}: its rows cannot be replaced"
                ),
                "use `write_mode: append`, or write to another table with `into`",
            );
        }
        self.shape(snapshot).map(drop)
    }

    /// How its files are written. Fails if the kernel cannot write the table.
    pub(super) fn shape(&self, snapshot: &SnapshotRef) -> Result<Shape> {
        let failed = |error| self.failed("write to", error);
        let update = Arc::clone(snapshot).update_table(UpdateTableOperation::Write, ENGINE, true);
        let built = update.build(&*self.engine()?, Box::new(FileSystemCommitter::new()));
        let stats_columns = built.map_err(failed)?.stats_columns();
        let table = snapshot.table_configuration();
        let physical = table.physical_schema();
        let arrow = Schema::try_from_kernel(&*physical).map_err(|error| failed(error.into()))?;
        let names = table.logical_schema();
        let names = names.fields().map(|field| field.name().clone());
        let fields = names.zip(arrow.fields().iter().cloned()).collect();
        Ok(Shape { fields, physical, stats_columns })
    }

    /// Creates the table with these records. `false`: there is one now.
    pub(super) fn create(
        &self,
        fields: Vec<StructField>,
        settings: &TargetSettings,
        record: (String, String),
    ) -> Result<bool> {
        let failed = |error| self.failed("create the table", error);
        let engine = self.engine()?;
        let is_mapped = fields.iter().any(|field| field.name().contains(MAPPED));
        let mut properties = vec![("delta.feature.domainMetadata", "supported")];
        if is_mapped {
            properties.push(("delta.columnMapping.mode", "name"));
        }
        let schema = StructType::try_new(fields).map_err(failed)?;
        let built = create_table(ROOT, Arc::new(schema), ENGINE, true)
            .with_table_properties(properties)
            .build(&*engine, Box::new(FileSystemCommitter::new()));
        let transaction = match built {
            Ok(transaction) => transaction,
            Err(KernelError::TableAlreadyExistsAtPath(_)) => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        let transaction = transaction
            .with_transaction_id(ledger::app_id(settings), 1)
            .with_domain_metadata(record.0, record.1);
        let committed = transaction.commit(&*engine).map_err(failed)?;
        Ok(committed.is_committed())
    }

    /// An error of the kernel.
    pub(super) fn failed(&self, act: &'static str, error: KernelError) -> ConnectorError {
        let error = match error {
            KernelError::Backtraced { source, .. } => return self.failed(act, *source),
            KernelError::ObjectStore(error) => Failure::from(error),
            KernelError::IOError(error) => {
                return ConnectorError::Busy {
                    act: format!("{act} {}", self.display),
                    source: error.into(),
                };
            }
            error => {
                return ConnectorError::Refused {
                    act: format!("{act} {}", self.display),
                    source: error.into(),
                };
            }
        };
        match error.class() {
            Class::Unreachable => {
                ConnectorError::Unreachable { what: self.display.clone(), source: error.into() }
            }
            Class::Transient => ConnectorError::Busy {
                act: format!("{act} {}", self.display),
                source: error.into(),
            },
            Class::Unsupported => ConnectorError::unsupported(
                format!("{} does not support conditional writes", self.display),
                "use a server that supports If-None-Match, so that two writers cannot overwrite each \
                 other's commits",
            ),
            _ => ConnectorError::file(act, &self.display, error),
        }
    }

    pub(super) fn refused(&self, act: &str, reason: String) -> ConnectorError {
        ConnectorError::Refused { act: format!("{act} {}", self.display), source: reason.into() }
    }
}

/// Whether columns have other names in the files of a table.
pub(super) fn is_mapped(snapshot: &SnapshotRef) -> bool {
    snapshot.table_configuration().column_mapping_mode() != ColumnMappingMode::None
}

/// Whether a name can only be that of a column of a table with mapped columns.
pub(super) fn needs_mapping(name: &str) -> bool {
    name.contains(MAPPED)
}

/// The Arrow batch of what the kernel returned.
pub(super) fn batch_of(
    data: Box<dyn delta_kernel::EngineData>,
) -> std::result::Result<RecordBatch, KernelError> {
    ArrowEngineData::try_from_engine_data(data).map(|data| data.record_batch().clone())
}
