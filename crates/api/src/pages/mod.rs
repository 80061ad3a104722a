//! Pages for people: the landing page and the API browser.
//!
//! All content comes from this binary: no script, style or font of another site, and the content
//! security policy forbids them. Pages carry no inline script or style.

mod api;
mod docs;
mod documents;
mod events;
mod inventory;
mod jobs;
mod landing;
mod layout;
mod login;
mod pipelines;
mod schema;
mod webhooks;

#[cfg(test)]
mod tests;

pub(crate) use api::{Health, State, shell_api};
pub(crate) use docs::docs_page;
pub(crate) use documents::{DocumentsRow, namespaces_page, schema_page};
pub(crate) use events::{Field, Row, events_page};
pub(crate) use inventory::{
    Browsed, Cell, Child, Figures, Link, Listed, inventories_page, inventory_page,
};
pub(crate) use jobs::{JobRow, jobs_page};
pub(crate) use landing::{Status, landing_page};
pub(crate) use login::login_page;
pub(crate) use pipelines::{PipelineRow, pipelines_page};
pub(crate) use webhooks::{deliveries_page, webhooks_page};

/// Script of the API browser.
pub(crate) const DOCS_JS: &str = include_str!("docs.js");
/// Style of all pages.
pub(crate) const STYLE_CSS: &str = include_str!("style.css");
