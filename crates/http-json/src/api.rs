//! A stream of an API with the client that reads it, and its columns.

use std::sync::Arc;

use forebay_pgcopy::Column;
use forebay_sdk::ConnectorError;
use forebay_sdk::connector::Result;
use forebay_sdk::run::Context;

use crate::client::Client;
use crate::endpoint::Endpoint;
use crate::infer;
use crate::pages::{Page, Pages};
use crate::pointer::Pointer;
use crate::settings::Settings;

/// A stream, and the client that reads it.
pub(crate) struct Api {
    pub(crate) client: Client,
    pub(crate) endpoint: Endpoint,
    /// Maximum number of pages of a reading.
    pub(crate) pages_max: u32,
}

/// All columns of a stream, and where their values are.
pub(crate) struct Described {
    pub(crate) columns: Vec<(Column, Pointer)>,
    pub(crate) is_inferred: bool,
    /// The page that was read for it, if one was, and those after it.
    pub(crate) begun: Option<(Pages, Page)>,
}

impl Api {
    /// # Errors
    /// Settings that cannot be used.
    pub(crate) fn new(settings: &Settings, endpoint: Endpoint) -> Result<Self> {
        let client = Client::new(settings)?;
        Ok(Self { client, endpoint, pages_max: settings.max_pages.get() })
    }
}

/// The first page of a stream, and those after it.
///
/// # Errors
/// The page cannot be read.
pub(crate) async fn first(api: &Arc<Api>, context: &Context) -> Result<(Pages, Page)> {
    let mut pages = Pages::new(api, None);
    match pages.next(context).await? {
        Some(page) => Ok((pages, page)),
        None => Err(ConnectorError::data(&*api.endpoint.name, "there is no first page")),
    }
}

/// The columns of a stream: those of the settings, or those of the first page.
///
/// # Errors
/// The page cannot be read, or has no records.
pub(crate) async fn describe(api: &Arc<Api>, context: &Context) -> Result<Described> {
    if !api.endpoint.columns.is_empty() {
        let columns = api.endpoint.columns.clone();
        return Ok(Described { columns, is_inferred: false, begun: None });
    }
    let (pages, page) = first(api, context).await?;
    let name = &api.endpoint.name;
    let columns = infer::columns(&page).map_err(|(record, found)| {
        ConnectorError::data(format!("{name} page {} record {record}", page.number), found)
    })?;
    if columns.is_empty() {
        return Err(ConnectorError::unsupported(
            format!("the first page of {name} has no records to infer columns from"),
            "list `columns` in the settings of the API",
        ));
    }
    Ok(Described { columns, is_inferred: true, begun: Some((pages, page)) })
}
