//! The promises of every destination.

use forebay_sdk::acceptance::{self, Capabilities, Lacks};
use serde_json::json;

use crate::server::Database;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_keeps_the_promises_of_every_destination() {
    for compression in ["zstd", "none"] {
        let Some(database) = Database::create() else { return };
        let destination = database.destination(json!({ "compression": compression }));
        let capabilities = Capabilities { replace: true, upsert: true };
        // The years 1900 to 2299, and no infinite ones; an Array is never NULL.
        let lacks = Lacks { far_times: true, null_arrays: true, ..Lacks::default() };
        acceptance::destination_lacking(&destination, capabilities, lacks).await.unwrap();
        let left = database.query(
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND match(name, '_forebay_(next|swap|stage)')",
        );
        assert_eq!(left, "");
    }
}
