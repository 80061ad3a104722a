//! Bulk writers of tables and documents: SQLite, NDJSON and Parquet files.
