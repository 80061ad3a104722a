//! The conversions, as macros: the types they are for belong to the crates that call them.

/// Conversions between enumerations with the same values.
#[doc(hidden)]
#[macro_export]
macro_rules! component_enums {
    ($($wit:path, $own:path: $($value:ident)*;)*) => {$(
        impl From<$wit> for $own {
            fn from(value: $wit) -> Self {
                match value { $(<$wit>::$value => Self::$value),* }
            }
        }

        impl From<$own> for $wit {
            fn from(value: $own) -> Self {
                match value { $(<$own>::$value => Self::$value),* }
            }
        }
    )*};
}

/// Conversions between records with the same fields, each of which converts.
#[doc(hidden)]
#[macro_export]
macro_rules! component_records {
    ($($wit:path, $own:path: $($plain:ident)* $(; $($made:ident)*)?;;)*) => {$(
        impl From<$wit> for $own {
            fn from(value: $wit) -> Self {
                Self {
                    $($plain: value.$plain,)*
                    $($($made: $crate::component::Become::into_other(value.$made),)*)?
                }
            }
        }

        impl From<$own> for $wit {
            fn from(value: $own) -> Self {
                Self {
                    $($plain: value.$plain,)*
                    $($($made: $crate::component::Become::into_other(value.$made),)*)?
                }
            }
        }
    )*};
}

/// Implements the conversions for the bindings in `crate::wit`.
#[expect(clippy::crate_in_macro_def, reason = "the bindings are those of the crate that calls it")]
#[macro_export]
macro_rules! component_conversions {
    () => {
        $crate::component_enums! {
            crate::wit::types::Form, $crate::connector::Form: Tuples Records PlainRecords;
            crate::wit::types::WriteMode, $crate::settings::WriteMode: Append Replace Upsert;
            crate::wit::types::OnDataError, $crate::settings::OnDataError: Fail Skip Dlq;
            crate::wit::types::LoadMethod, $crate::settings::LoadMethod: Copy Insert;
            crate::wit::types::NewColumn, $crate::settings::NewColumn: Add Ignore Fail;
            crate::wit::types::RemovedColumn, $crate::settings::RemovedColumn: Ignore Fail;
            crate::wit::types::TypeChange, $crate::settings::TypeChange: Fail Alter;
            crate::wit::types::NullabilityChange, $crate::settings::NullabilityChange: Allow Fail;
            crate::wit::changes::FeedForm, $crate::settings::FeedForm: Apply Mark Log;
        }

        $crate::component_records! {
            crate::wit::types::Unit, $crate::connector::Unit: name from to rows bytes;;
            crate::wit::types::Cursor, $crate::connector::Cursor:
                value tie_breaker rows_at timeline field tie_breaker_field;;
            crate::wit::types::DeadRow, $crate::DeadRow: position reason row;;
            crate::wit::source::DiscoveredColumn, $crate::connector::DiscoveredColumn:
                name sql_type nullable note;;
            crate::wit::source::Discovered, $crate::connector::Discovered:
                name primary_key rows bytes; columns;;
            crate::wit::destination::Round, $crate::connector::Round: id name streams past;;
            crate::wit::destination::LedgerEntry, $crate::connector::LedgerEntry:
                pipeline stream load run unit rows dead hash;;
            crate::wit::changes::FeedOrigin, $crate::changes::feed::FeedOrigin:
                server database slot publication;;
            crate::wit::change_source::FeedHealth, $crate::changes::feed::FeedHealth:
                exists is_active is_complete confirmed lag_bytes kept_bytes status;;
            crate::wit::change_target::Applied, $crate::changes::feed::Applied:
                inserted updated deleted;;
        }

        impl From<crate::wit::types::StreamSettings> for $crate::settings::StreamSettings {
            fn from(value: crate::wit::types::StreamSettings) -> Self {
                Self {
                    name: value.name,
                    into: value.into,
                    sync_mode: match value.sync_mode {
                        crate::wit::types::SyncMode::FullRefresh => {
                            $crate::settings::SyncMode::FullRefresh
                        }
                        crate::wit::types::SyncMode::Incremental => {
                            $crate::settings::SyncMode::Incremental
                        }
                    },
                    cursor_field: value.cursor_field,
                    tie_breaker_field: value.tie_breaker_field,
                    partition_key: value.partition_key,
                    columns: value.columns,
                }
            }
        }

        impl From<&$crate::settings::StreamSettings> for crate::wit::types::StreamSettings {
            fn from(value: &$crate::settings::StreamSettings) -> Self {
                let value = value.clone();
                Self {
                    name: value.name,
                    into: value.into,
                    sync_mode: match value.sync_mode {
                        $crate::settings::SyncMode::Incremental => {
                            crate::wit::types::SyncMode::Incremental
                        }
                        // `change-source.read-at` says that changes are followed.
                        $crate::settings::SyncMode::FullRefresh
                        | $crate::settings::SyncMode::Cdc => {
                            crate::wit::types::SyncMode::FullRefresh
                        }
                    },
                    cursor_field: value.cursor_field,
                    tie_breaker_field: value.tie_breaker_field,
                    partition_key: value.partition_key,
                    columns: value.columns,
                }
            }
        }

        impl From<crate::wit::source::Division> for $crate::connector::Division {
            fn from(value: crate::wit::source::Division) -> Self {
                match value {
                    crate::wit::source::Division::Whole => Self::Whole,
                    crate::wit::source::Division::Stable => Self::Stable,
                    crate::wit::source::Division::Any => Self::Any,
                    crate::wit::source::Division::Recorded(units) => {
                        Self::As($crate::component::Become::into_other(units))
                    }
                }
            }
        }

        impl From<$crate::connector::Division> for crate::wit::source::Division {
            fn from(value: $crate::connector::Division) -> Self {
                match value {
                    $crate::connector::Division::Whole => Self::Whole,
                    $crate::connector::Division::Stable => Self::Stable,
                    $crate::connector::Division::Any => Self::Any,
                    $crate::connector::Division::As(units) => {
                        Self::Recorded($crate::component::Become::into_other(units))
                    }
                }
            }
        }

        impl From<crate::wit::source::Opening> for $crate::connector::Opening {
            fn from(value: crate::wit::source::Opening) -> Self {
                let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
                Self {
                    form: value.form.into(),
                    since: $crate::component::Become::into_other(value.since),
                    division: value.division.into(),
                    unit_size: value.unit_size,
                    batch_size: size(value.batch_size),
                    memory: size(value.memory),
                    parallelism: size(value.parallelism.into()),
                    snapshot: None,
                }
            }
        }

        impl From<&$crate::connector::Opening> for crate::wit::source::Opening {
            fn from(value: &$crate::connector::Opening) -> Self {
                Self {
                    form: value.form.into(),
                    since: $crate::component::Become::into_other(value.since.clone()),
                    division: value.division.clone().into(),
                    unit_size: value.unit_size,
                    batch_size: value.batch_size as u64,
                    memory: value.memory as u64,
                    parallelism: u32::try_from(value.parallelism).unwrap_or(u32::MAX),
                }
            }
        }

        impl From<crate::wit::destination::Load> for $crate::connector::Load {
            fn from(value: crate::wit::destination::Load) -> Self {
                Self {
                    id: value.id,
                    fingerprint: value.fingerprint,
                    units: $crate::component::Become::into_other(value.units),
                    since: $crate::component::Become::into_other(value.since),
                    is_stable: value.is_stable,
                    round: value.round.into(),
                    is_finished: value.is_finished,
                    cursor: $crate::component::Become::into_other(value.cursor),
                }
            }
        }

        impl From<$crate::connector::Load> for crate::wit::destination::Load {
            fn from(value: $crate::connector::Load) -> Self {
                Self {
                    id: value.id,
                    fingerprint: value.fingerprint,
                    units: $crate::component::Become::into_other(value.units),
                    since: $crate::component::Become::into_other(value.since),
                    is_stable: value.is_stable,
                    round: value.round.into(),
                    is_finished: value.is_finished,
                    cursor: $crate::component::Become::into_other(value.cursor),
                }
            }
        }

        impl From<crate::wit::types::TargetSettings> for $crate::settings::TargetSettings {
            fn from(value: crate::wit::types::TargetSettings) -> Self {
                let evolution = value.schema_evolution;
                Self {
                    pipeline: value.pipeline,
                    stream: value.stream,
                    into: value.into,
                    write_mode: value.write_mode.into(),
                    primary_key: value.primary_key,
                    on_data_error: value.on_data_error.into(),
                    schema_evolution: $crate::settings::SchemaEvolution {
                        new_column: evolution.new_column.into(),
                        removed_column: evolution.removed_column.into(),
                        type_change: evolution.type_change.into(),
                        nullability_change: evolution.nullability_change.into(),
                    },
                    load_method: value.load_method.into(),
                    feed: $crate::settings::FeedForm::default(),
                }
            }
        }

        impl From<&$crate::settings::TargetSettings> for crate::wit::types::TargetSettings {
            fn from(value: &$crate::settings::TargetSettings) -> Self {
                let value = value.clone();
                let evolution = value.schema_evolution;
                Self {
                    pipeline: value.pipeline,
                    stream: value.stream,
                    into: value.into,
                    write_mode: value.write_mode.into(),
                    primary_key: value.primary_key,
                    on_data_error: value.on_data_error.into(),
                    schema_evolution: crate::wit::types::SchemaEvolution {
                        new_column: evolution.new_column.into(),
                        removed_column: evolution.removed_column.into(),
                        type_change: evolution.type_change.into(),
                        nullability_change: evolution.nullability_change.into(),
                    },
                    load_method: value.load_method.into(),
                }
            }
        }

        impl From<&$crate::changes::feed::FeedColumn> for crate::wit::changes::FeedColumn {
            fn from(value: &$crate::changes::feed::FeedColumn) -> Self {
                Self {
                    name: value.name.clone(),
                    sql_type: value.sql_type.clone(),
                    is_key: value.is_key,
                    number: value.number,
                    wire: value.wire.as_ref().map($crate::component::Wire::name),
                }
            }
        }

        impl TryFrom<crate::wit::changes::FeedColumn> for $crate::changes::feed::FeedColumn {
            type Error = $crate::ConnectorError;

            fn try_from(
                value: crate::wit::changes::FeedColumn,
            ) -> Result<Self, $crate::ConnectorError> {
                $crate::component::feed_column(
                    value.name,
                    value.sql_type,
                    value.is_key,
                    value.number,
                    value.wire.as_deref(),
                )
            }
        }

        impl From<&$crate::changes::feed::FeedStream> for crate::wit::changes::FeedStream {
            fn from(value: &$crate::changes::feed::FeedStream) -> Self {
                Self {
                    stream: value.stream.clone(),
                    columns: value.columns.iter().map(Into::into).collect(),
                    from: value.from.clone(),
                    known_by: value.known_by.clone(),
                }
            }
        }

        impl TryFrom<crate::wit::changes::FeedStream> for $crate::changes::feed::FeedStream {
            type Error = $crate::ConnectorError;

            fn try_from(
                value: crate::wit::changes::FeedStream,
            ) -> Result<Self, $crate::ConnectorError> {
                let columns = value.columns.into_iter().map(TryInto::try_into);
                Ok(Self {
                    stream: value.stream,
                    columns: columns.collect::<Result<_, _>>()?,
                    from: value.from,
                    known_by: value.known_by,
                })
            }
        }

        impl From<&$crate::changes::feed::Feed> for crate::wit::changes::Feed {
            fn from(value: &$crate::changes::feed::Feed) -> Self {
                Self {
                    origin: value.origin.clone().into(),
                    position: value.position.clone(),
                    streams: value.streams.iter().map(Into::into).collect(),
                    form: value.form.into(),
                }
            }
        }

        impl TryFrom<crate::wit::changes::Feed> for $crate::changes::feed::Feed {
            type Error = $crate::ConnectorError;

            fn try_from(value: crate::wit::changes::Feed) -> Result<Self, $crate::ConnectorError> {
                let streams = value.streams.into_iter().map(TryInto::try_into);
                let feed = Self {
                    origin: value.origin.into(),
                    position: value.position,
                    streams: streams.collect::<Result<_, _>>()?,
                    form: value.form.into(),
                };
                $crate::component::check_feed_streams(&feed.streams)?;
                if let Some(position) = &feed.position {
                    $crate::changes::encoded::check_position(position)?;
                }
                Ok(feed)
            }
        }

        impl From<&$crate::component::Column> for crate::wit::types::Column {
            fn from(value: &$crate::component::Column) -> Self {
                Self {
                    name: value.name.clone(),
                    sql_type: value.sql_type.clone(),
                    wire: value.wire.name(),
                    nullable: value.nullable,
                }
            }
        }

        impl TryFrom<crate::wit::types::Column> for $crate::component::Column {
            type Error = $crate::ConnectorError;

            fn try_from(value: crate::wit::types::Column) -> Result<Self, $crate::ConnectorError> {
                $crate::component::column(value.name, value.sql_type, &value.wire, value.nullable)
            }
        }

        impl From<crate::wit::types::Failure> for $crate::ConnectorError {
            fn from(failure: crate::wit::types::Failure) -> Self {
                use crate::wit::types::Failure;
                match failure {
                    Failure::Unreachable(of) => {
                        Self::Unreachable { what: of.what, source: of.cause.into() }
                    }
                    Failure::Busy(of) => Self::Busy { act: of.what, source: of.cause.into() },
                    Failure::Refused(of) => Self::Refused { act: of.what, source: of.cause.into() },
                    // What was attempted is one of few words in a program.
                    Failure::File(of) => Self::Refused {
                        act: format!("{} {}", of.act, of.path),
                        source: of.cause.into(),
                    },
                    Failure::Data(of) => Self::Data { place: of.place, found: of.found },
                    Failure::Unsupported(of) => {
                        Self::Unsupported { what: of.what, way_out: of.way_out }
                    }
                    Failure::Stopped => Self::Stopped,
                }
            }
        }

        impl From<$crate::ConnectorError> for crate::wit::types::Failure {
            fn from(error: $crate::ConnectorError) -> Self {
                use crate::wit::types::{Attempt, FileAttempt, Misfit, Refusal};
                let attempt = |what: String, source: $crate::error::Cause| Attempt {
                    what,
                    cause: $crate::component::cause(&*source),
                };
                match error {
                    $crate::ConnectorError::Unreachable { what, source } => {
                        Self::Unreachable(attempt(what, source))
                    }
                    $crate::ConnectorError::Busy { act, source } => {
                        Self::Busy(attempt(act, source))
                    }
                    $crate::ConnectorError::Refused { act, source } => {
                        Self::Refused(attempt(act, source))
                    }
                    $crate::ConnectorError::File { act, path, source } => Self::File(FileAttempt {
                        act: act.to_owned(),
                        path: path.display().to_string(),
                        cause: $crate::component::cause(&*source),
                    }),
                    $crate::ConnectorError::Data { place, found } => {
                        Self::Data(Misfit { place, found })
                    }
                    $crate::ConnectorError::Unsupported { what, way_out } => {
                        Self::Unsupported(Refusal { what, way_out })
                    }
                    $crate::ConnectorError::Stopped => Self::Stopped,
                    // Kinds that are added later.
                    other => Self::Refused(Attempt {
                        what: "serve the pipeline".to_owned(),
                        cause: $crate::component::cause(&other),
                    }),
                }
            }
        }
    };
}
