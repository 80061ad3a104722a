//! Reading a stream to its end.

use std::sync::Arc;

use forebay_http_json::Settings;
use forebay_sdk::Rows;
use forebay_sdk::connector::{Cursor, Division, Form, Opening, Result, Source, SourceStream};
use forebay_sdk::registry::{ConnectorSettings as _, SourceSettings as _};
use forebay_sdk::run::{Budget, Context, Outlet};
use forebay_sdk::settings::StreamSettings;
use forebay_sdk::values::write::json_rows;
use serde_json::{Value, json};

use crate::server::Server;

/// The source of a server with one stream `s`, with settings of the stream and of the source.
pub(crate) fn source(server: &Server, stream: Value, more: Value) -> Arc<dyn Source> {
    let mut all = json!({ "url": server.url(), "streams": [{ "name": "s" }] });
    let merge = |into: &mut Value, from: Value| {
        let Value::Object(from) = from else { panic!("not an object") };
        into.as_object_mut().unwrap().extend(from);
    };
    merge(&mut all["streams"][0], stream);
    merge(&mut all, more);
    let settings: Settings = serde_json::from_value(all).unwrap();
    settings.check().unwrap();
    settings.source()
}

/// The stream `s`.
pub(crate) fn stream(more: Value) -> StreamSettings {
    let mut stream = json!({ "name": "s" });
    stream.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    serde_json::from_value(stream).unwrap()
}

/// How the tests open streams.
pub(crate) fn opening(since: Option<Cursor>, division: Division) -> Opening {
    Opening {
        form: Form::Records,
        since,
        division,
        unit_size: 1 << 20,
        batch_size: 1 << 10,
        memory: 1 << 20,
        parallelism: 1,
        snapshot: None,
    }
}

/// The rows of the only unit, as JSON.
pub(crate) async fn rows(open: &Arc<dyn SourceStream>) -> Result<Vec<Value>> {
    let (context, _cancel) = Context::new("test");
    let (mut outlet, mut inlet) = Outlet::new(Budget::new(64 << 20), context).unwrap();
    let reading = async {
        let read = open.read(0, &mut outlet).await;
        drop(outlet);
        read
    };
    let taking = async {
        let mut rows = Vec::new();
        while let Some(batch) = inlet.recv().await? {
            let Rows::Records(records) = batch.rows else { panic!("tuples") };
            let texts = json_rows(&records, open.columns())?;
            rows.extend(texts.iter().map(|text| serde_json::from_str::<Value>(text).unwrap()));
        }
        Ok(rows)
    };
    let (read, rows) = tokio::join!(reading, taking);
    read.and(rows)
}

/// Opens and reads the whole stream.
pub(crate) async fn all(source: &Arc<dyn Source>) -> Result<Vec<Value>> {
    let (context, _cancel) = Context::new("test");
    let open = source.open(&stream(json!({})), &opening(None, Division::Any), &context).await?;
    rows(&open).await
}

/// The values of `id` in all rows.
pub(crate) async fn ids(source: &Arc<dyn Source>) -> Result<Vec<i64>> {
    let rows = all(source).await?;
    Ok(rows.iter().map(|row| row["id"].as_i64().unwrap()).collect())
}

/// The error of reading the whole stream, with its causes.
pub(crate) async fn failure(source: &Arc<dyn Source>) -> String {
    let error = all(source).await.unwrap_err();
    forebay_base::error_chain::chain(&error).to_string()
}
