//! A connector that this build leaves out: every call returns an error with the command that adds it.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_pgcopy::Column;

use crate::connector::{
    Claim, Destination, Discovered, Form, LedgerEntry, Load, Opening, Result, Source, SourceStream,
    Target,
};
use crate::error::ConnectorError;
use crate::run::Context;
use crate::settings::{StreamSettings, TargetSettings};

/// The connector of this name.
pub struct Absent(pub &'static str);

impl Absent {
    fn error(&self) -> ConnectorError {
        ConnectorError::not_built(&format!("connector `{}`", self.0))
    }
}

#[async_trait]
impl Source for Absent {
    async fn check(&self) -> Result<String> {
        Err(self.error())
    }

    async fn discover(&self) -> Result<Vec<Discovered>> {
        Err(self.error())
    }

    async fn open(
        &self,
        _: &StreamSettings,
        _: &Opening,
        _: &Context,
    ) -> Result<Arc<dyn SourceStream>> {
        Err(self.error())
    }
}

#[async_trait]
impl Destination for Absent {
    async fn check(&self) -> Result<String> {
        Err(self.error())
    }

    fn form(&self) -> Form {
        Form::PlainRecords
    }

    async fn last_load(&self, _: &TargetSettings) -> Result<Option<(Load, Vec<LedgerEntry>)>> {
        Err(self.error())
    }

    async fn claim(&self, _: &TargetSettings) -> Result<Box<dyn Claim>> {
        Err(self.error())
    }

    async fn open(&self, _: &TargetSettings, _: &[Column], _: &Context) -> Result<Arc<dyn Target>> {
        Err(self.error())
    }
}
