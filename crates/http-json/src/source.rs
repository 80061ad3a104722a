//! An API as a source: its streams are those of the settings.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::{Discovered, DiscoveredColumn, Opening, Result, Source, SourceStream};
use forebay_sdk::run::{Context, Phase};
use forebay_sdk::settings::StreamSettings;

use crate::address::shown;
use crate::api::{Api, describe, first};
use crate::endpoint::Endpoint;
use crate::settings::Settings;
use crate::stream::HttpStream;

/// Maximum number of streams that a message lists.
const LISTED_MAX: usize = 20;

/// A JSON API as a source.
#[derive(Debug, Clone)]
pub struct HttpJson {
    settings: Settings,
}

impl HttpJson {
    /// Creates the source with these settings; sends nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { settings }
    }

    fn api(&self, endpoint: Endpoint) -> Result<Arc<Api>> {
        Api::new(&self.settings, endpoint).map(Arc::new)
    }
}

#[async_trait]
impl Source for HttpJson {
    async fn check(&self) -> Result<String> {
        let (context, _cancel) = Context::new("check");
        let mut endpoints = self.settings.endpoints()?;
        let api = self.api(endpoints.remove(0))?;
        let (_, page) = first(&api, &context).await?;
        let records = page.count();
        let (url, name) = (shown(&api.endpoint.url), &api.endpoint.name);
        Ok(format!("{url}: {records} records in the first page of {name}"))
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        let (context, _cancel) = Context::new("discover");
        let mut discovered = Vec::new();
        for endpoint in self.settings.endpoints()? {
            let api = self.api(endpoint)?;
            let described = describe(&api, &context).await?;
            let columns = described.columns.into_iter().map(|(column, _)| DiscoveredColumn {
                name: column.name,
                sql_type: column.sql_type,
                nullable: column.nullable,
                note: None,
            });
            discovered.push(Discovered {
                name: api.endpoint.name.clone(),
                columns: columns.collect(),
                primary_key: api.endpoint.primary_key.clone(),
                rows: None,
                bytes: None,
            });
        }
        Ok(discovered)
    }

    async fn open(
        &self,
        stream: &StreamSettings,
        opening: &Opening,
        context: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        let endpoints = self.settings.endpoints()?;
        let names: Vec<String> =
            endpoints.iter().map(|endpoint| endpoint.name.clone()).take(LISTED_MAX).collect();
        let endpoint = endpoints.into_iter().find(|endpoint| endpoint.name == stream.name);
        let endpoint = endpoint.ok_or_else(|| {
            ConnectorError::unsupported(
                format!("the settings have no stream {:?}", stream.name),
                format!("choose from {}", names.join(", ")),
            )
        })?;
        let begun = forebay_sdk::platform::Instant::now();
        let opened = HttpStream::open(self.api(endpoint)?, stream, opening, context).await?;
        context.phases.add(Phase::Query, begun);
        Ok(Arc::new(opened))
    }
}
