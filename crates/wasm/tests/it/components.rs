//! The components that the tests run, and one engine for all of them.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_sdk::connector::{Division, Form, Opening, Result, Source, SourceStream};
use forebay_sdk::run::{Budget, Cancel, Context, Outlet};
use forebay_sdk::settings::StreamSettings;
use forebay_wasm::{Grants, Host, Loaded, WasmSource};

/// The directory of the components: beside what Cargo builds.
pub(crate) fn dir() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    // target/debug/deps/it-...
    program.ancestors().nth(3).unwrap().join("connectors")
}

/// The bytes of a component; `None`, and the test is skipped, if it was not built.
pub(crate) fn component(name: &str) -> Option<Vec<u8>> {
    let path = dir().join(format!("{name}.wasm"));
    match std::fs::read(&path) {
        Ok(bytes) => Some(bytes),
        Err(_) => {
            forebay_testing::left_out("connectors are not built: cargo xtask connectors");
            None
        }
    }
}

/// The engine of all tests; its cache is beside the components.
pub(crate) fn host() -> &'static Arc<Host> {
    static HOST: OnceLock<Arc<Host>> = OnceLock::new();
    HOST.get_or_init(|| Host::new(dir().join("cache")).unwrap())
}

/// Limits for a mode of a component: less than by default, so that a test of a limit is short. Only one that computes without
/// end has little time for it: any other may be on a machine with much to do.
pub(crate) fn limited(mode: &str) -> Grants {
    let limited = Grants { memory: 32 << 20, ..Grants::default() };
    if mode.starts_with("loop") {
        return Grants { busy: Duration::from_millis(300), ..limited };
    }
    limited
}

/// A component, loaded.
pub(crate) fn loaded(name: &str, grants: Grants) -> Option<Loaded> {
    Some(Loaded::new(host(), name, &component(name)?, grants).unwrap())
}

/// A source with these settings.
pub(crate) fn source(
    name: &str,
    config: &serde_json::Value,
    grants: Grants,
) -> Option<Arc<dyn Source>> {
    let config = config.to_string().into();
    Some(Arc::new(WasmSource::new(loaded(name, grants)?, config)))
}

/// A stream by its name.
pub(crate) fn stream(name: &str) -> StreamSettings {
    serde_json::from_value(serde_json::json!({ "name": name })).unwrap()
}

/// How the tests open streams.
pub(crate) fn opening() -> Opening {
    Opening {
        form: Form::Tuples,
        since: None,
        division: Division::Any,
        unit_size: 1 << 20,
        batch_size: 256 << 10,
        memory: 32 << 20,
        parallelism: 2,
        snapshot: None,
    }
}

/// Reads a unit; the number of its rows.
pub(crate) async fn read(stream: &Arc<dyn SourceStream>, unit: usize) -> Result<u64> {
    let (context, _cancel) = context();
    let (mut outlet, mut inlet) = Outlet::new(Budget::new(64 << 20), context).unwrap();
    let reading = async {
        let read = stream.read(unit, &mut outlet).await;
        drop(outlet);
        read
    };
    let counting = async {
        let mut rows = 0;
        while let Some(batch) = inlet.recv().await? {
            rows += batch.rows.count();
        }
        Ok(rows)
    };
    let (read, rows) = tokio::join!(reading, counting);
    read.and(rows)
}

/// A context and its canceller.
pub(crate) fn context() -> (Context, Cancel) {
    Context::new("test")
}

/// A runtime for one test.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}
