//! Work of a request that reads or writes files: on a thread where others do not wait for it.

use crate::problem::Problem;

/// Runs `work`, and returns its result. It ends even if the caller does not wait for it.
///
/// # Errors
/// Those of `work`; [`Problem::INTERNAL`] if it panicked.
pub(crate) async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    forebay_base::blocking::spawn(work).await.unwrap_or_else(|error| {
        tracing::error!(%error, "the work of a request panicked");
        Err(Problem::INTERNAL)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_internal_error_of_that_request() {
        let panicking = on_thread::<()>(|| panic!("as the test wants it")).await;
        assert_eq!(panicking.unwrap_err().status(), http::StatusCode::INTERNAL_SERVER_ERROR);
        assert_eq!(on_thread(|| Ok(7)).await.unwrap(), 7);
    }
}
