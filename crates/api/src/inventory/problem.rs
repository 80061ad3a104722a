//! Errors of the inventory routes as clients see them.

use forebay_base::error_chain::chain;
use forebay_inventory::cost::CostError;
use forebay_inventory::index::IndexError;
use forebay_inventory::small::SmallError;
use http::StatusCode;

use crate::problem::Problem;

/// A fault of the server: the details are logged.
pub(super) fn internal(error: &anyhow::Error) -> Problem {
    tracing::error!(error = %chain(error.as_ref()), "cannot read an index");
    let text = "cannot read the index; the server's log has the details";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "damaged", text)
}

/// There is no index of this name.
pub(super) fn no_index(name: &str) -> Problem {
    Problem::not_found(format!("there is no inventory {name}"))
}

impl From<IndexError> for Problem {
    fn from(error: IndexError) -> Self {
        match error {
            // Not a fault, and there is no client to answer.
            IndexError::Gone => Self::closed(error.to_string()),
            error => internal(&error.into()),
        }
    }
}

fn no_histograms(error: &dyn std::error::Error) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "no_histograms", error.to_string())
}

impl From<CostError> for Problem {
    fn from(error: CostError) -> Self {
        match error {
            CostError::NoHistograms => no_histograms(&error),
            CostError::Index(error) => error.into(),
            error => internal(&error.into()),
        }
    }
}

impl From<SmallError> for Problem {
    fn from(error: SmallError) -> Self {
        match error {
            SmallError::NoHistograms => no_histograms(&error),
            SmallError::Index(error) => error.into(),
            SmallError::Between(_) => Self::bad("query", error.to_string()),
            error => internal(&error.into()),
        }
    }
}
