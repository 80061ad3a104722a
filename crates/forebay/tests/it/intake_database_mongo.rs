//! Documents reach a server of MongoDB's protocol without transactions: through kills of either
//! side each of them is stored once and in order.

use forebay_base::fs::sim::Rng;

use crate::ferret_support::{Ferret, ferret};
use crate::intake_database::{Sent, start, status, until};
use crate::support::Server;

fn check(sent: &Sent, server: &Server, ferret: &Ferret) {
    // None of the documents that are sent is in the form that is stored as BSON.
    sent.check_with(server, |namespace| ferret.rows(namespace));
}

#[test]
fn without_transactions_too_every_acknowledged_document_is_there_once_in_order() {
    let Some(ferret) = ferret() else { return };
    let dir = tempfile::tempdir().unwrap();
    let settings = ["intake.durability=os", "intake.database.connect_timeout=2s"];
    let mut server = start(&dir, &ferret.url(), &settings);
    let (mut sent, mut rng) = (Sent::default(), Rng::new(11));
    // A FerretDB killed while it creates a collection can never create it, so all are created
    // first.
    while !sent.has_every_namespace() {
        assert!(sent.send(&server, &mut rng));
    }
    assert!(sent.change(&server, &mut rng));
    check(&sent, &server, &ferret);
    for round in 0..3 {
        for _ in 0..10 + rng.below(10) {
            assert!(sent.send(&server, &mut rng), "round {round}");
            assert!(sent.change(&server, &mut rng), "round {round}");
        }
        ferret.kill();
        for _ in 0..10 {
            assert!(sent.send(&server, &mut rng), "the intake continues without it");
        }
        assert!(sent.change(&server, &mut rng), "the intake continues without it");
        if round == 1 {
            until("it is known to be away", || status(&server)["state"] == "away");
        }
        server.signal("KILL");
        assert_eq!(server.wait(), None, "ended by the signal");
        ferret.start_again();
        server = start(&dir, &ferret.url(), &settings);
        assert!(sent.send(&server, &mut rng));
        check(&sent, &server, &ferret);
    }
    server.signal("TERM");
    assert_eq!(server.wait(), Some(0));
}
