//! What a component may call: time, randomness, the log, files, values that it keeps, metrics, and the outlet of a source.

use std::sync::{Arc, LazyLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use forebay_sdk::ConnectorError;
use forebay_sdk::run::Context;
use forebay_sdk::run::kept::Kept;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::state::{Sent, State, error};
use crate::wit::{changes, host, metrics, outlet, state, types};

/// Bytes of a file that a component may read.
const FILE_SIZE_MAX: u64 = 16 << 20;
/// Random bytes of one call.
const RANDOM_MAX: u32 = 4_096;
/// The point from which the monotonic clock counts.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl types::Host for State {}

impl changes::Host for State {}

impl host::Host for State {
    fn log(&mut self, level: host::Level, text: String) -> wasmtime::Result<()> {
        let Some(line) = self.line(&text) else { return Ok(()) };
        let connector = &*self.name;
        match level {
            host::Level::Error => tracing::error!(connector, "{line}"),
            host::Level::Warn => tracing::warn!(connector, "{line}"),
            host::Level::Info => tracing::info!(connector, "{line}"),
            host::Level::Debug => tracing::debug!(connector, "{line}"),
        }
        Ok(())
    }

    fn warn(&mut self, text: String) -> wasmtime::Result<()> {
        let line = self.line(&text);
        if let (Some(context), Some(line)) = (&self.context, line) {
            context.warn(&line);
        }
        Ok(())
    }

    fn now_us(&mut self) -> wasmtime::Result<u64> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    }

    fn monotonic_ns(&mut self) -> wasmtime::Result<u64> {
        Ok(u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn random(&mut self, count: u32) -> wasmtime::Result<Vec<u8>> {
        let mut bytes = vec![0; count.min(RANDOM_MAX) as usize];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| wasmtime::Error::msg("the system has no random numbers"))?;
        Ok(bytes)
    }

    fn is_cancelled(&mut self) -> wasmtime::Result<bool> {
        Ok(self.context.as_ref().is_some_and(forebay_sdk::run::Context::is_cancelled))
    }

    fn is_wanted(&mut self) -> wasmtime::Result<bool> {
        Ok(self.wanted.is_set())
    }

    fn read_file(&mut self, path: String) -> wasmtime::Result<Result<Vec<u8>, types::Error>> {
        Ok(self.grants.read_file(&path, FILE_SIZE_MAX).map_err(error))
    }
}

impl State {
    /// Where the connector keeps values of its stream: its name with its role, and the stream.
    fn kept(&self) -> Result<(Kept, String, Arc<str>), ConnectorError> {
        let kept = self.context.as_ref().and_then(Context::kept);
        match (kept, &self.stream) {
            (Some(kept), Some((role, stream))) => {
                Ok((kept.clone(), format!("{role} {}", self.name), Arc::clone(stream)))
            }
            (None, Some(_)) => Err(ConnectorError::unsupported(
                "this command keeps no values of connectors",
                "run the pipeline, without `--forget`",
            )),
            (_, None) => {
                Err(ConnectorError::data("the calls of the component", "no stream is open"))
            }
        }
    }
}

/// Waits for something that blocks.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ConnectorError> + Send + 'static,
) -> Result<T, ConnectorError> {
    let done = forebay_base::blocking::spawn(work).await;
    done.unwrap_or_else(|error| {
        let act = "keep a value of a connector".to_owned();
        Err(ConnectorError::Refused { act, source: error.into() })
    })
}

impl state::Host for State {
    async fn get(
        &mut self,
        key: String,
    ) -> wasmtime::Result<Result<Option<Vec<u8>>, types::Error>> {
        let got = match self.kept() {
            Ok((kept, connector, stream)) => {
                blocking(move || kept.get(&connector, &stream, &key)).await
            }
            Err(refused) => Err(refused),
        };
        self.is_active();
        Ok(got.map_err(error))
    }

    async fn put(
        &mut self,
        key: String,
        value: Option<Vec<u8>>,
    ) -> wasmtime::Result<Result<(), types::Error>> {
        let put = match self.kept() {
            Ok((kept, connector, stream)) => {
                blocking(move || kept.put(&connector, &stream, &key, value.as_deref())).await
            }
            Err(refused) => Err(refused),
        };
        self.is_active();
        Ok(put.map_err(error))
    }
}

impl metrics::Host for State {
    fn add(&mut self, name: String, by: u64) -> wasmtime::Result<Result<(), types::Error>> {
        let Some(context) = &self.context else { return Ok(Ok(())) };
        Ok(context.measures.add(&self.name, &name, by).map_err(error))
    }

    fn set(&mut self, name: String, to: f64) -> wasmtime::Result<Result<(), types::Error>> {
        let Some(context) = &self.context else { return Ok(Ok(())) };
        Ok(context.measures.set(&self.name, &name, to).map_err(error))
    }
}

impl outlet::Host for State {
    async fn send(
        &mut self,
        rows: types::Rows,
        dead: Vec<types::DeadRow>,
    ) -> wasmtime::Result<Result<(), types::Error>> {
        let Some(batches) = &self.batches else {
            let refused = ConnectorError::data("the calls of the component", "no unit is read");
            return Ok(Err(error(refused)));
        };
        let dead = dead.into_iter().map(Into::into).collect();
        let sent = batches.send(Sent { rows, dead }).await;
        self.is_active();
        Ok(sent.map_err(|_| error(ConnectorError::Stopped)))
    }
}
