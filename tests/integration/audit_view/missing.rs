//! Ids of folded refusals over all gateways.

use journal::audit::{Filter, MissingReason, Record, ViewScope};

use super::fixture::Recorder;
use crate::journal::missing::{find_id, refuse};
use crate::journal::support::Caller;
use crate::support::{Postgresql, eventually};

/// Refuses requests, and waits until their counts are records.
fn refuse_all(recorder: &Recorder, caller: Caller) -> Vec<uuid::Uuid> {
    let ids = refuse(&recorder.journal, caller, 100);
    let filter = Filter { key: Some(caller.key), ..Filter::default() };
    let recorded = || recorder.export(&filter).iter().map(Record::uses).sum::<u64>();
    eventually("the counts are written", || recorded() == 100);
    ids
}

#[test]
fn id_of_a_folded_refusal_is_answered_at_every_gateway() {
    let server = Postgresql::start();
    let [first, second] = ["gateway-1", "gateway-2"].map(Recorder::new);
    let [ada, bob, carol, eve] = [(); 4].map(|()| Caller::random());
    let shipped = refuse_all(&second, ada);
    let own = refuse_all(&first, bob);
    second.ship(&server);
    let view = first.view(&server);
    for (ids, caller, gateway) in [(&shipped, ada, "gateway-2"), (&own, bob, "gateway-1")] {
        let missing = ids.iter().filter_map(|id| find_id(&view, *id).err()).collect::<Vec<_>>();
        assert!(missing.len() > 50, "{gateway}: {} of 100 are folded", missing.len());
        for missing in missing {
            assert_eq!((missing.reason, missing.key()), (MissingReason::Folded, Some(caller.key)), "{missing:?}");
            assert_eq!(missing.records[0].gateway, gateway);
        }
    }
    let filter = Filter { id: shipped.last().copied(), ..Filter::default() };
    assert_eq!(view.list(&filter, 1, None, u64::MAX).unwrap().status.unwrap().scope, ViewScope::Fleet);
    // Records that the other gateway has not shipped may cover the time as well: no key is asserted to be the only one.
    let doubtful = refuse_all(&first, carol);
    let missing = doubtful.iter().find_map(|id| find_id(&view, *id).err()).unwrap();
    assert_eq!((missing.reason, missing.key()), (MissingReason::Ambiguous, Some(carol.key)), "{missing:?}");
    assert!(missing.detail.contains("gateway-2 has shipped its records up to"), "{}", missing.detail);
    // Another gateway's records that are not shipped are in no view, which says up to when it has them.
    let later = refuse_all(&second, eve);
    let missing = later.iter().find_map(|id| find_id(&view, *id).err()).unwrap();
    assert_eq!(missing.reason, MissingReason::Unrecorded);
    assert!(missing.detail.contains("gateway-2 has shipped its records up to"), "{}", missing.detail);
    // The days before have been removed.
    server.sql("COMMENT ON TABLE keygate.records IS 'Records; removed before 2100-01-01'");
    server.sql("DELETE FROM keygate.records");
    assert_eq!(find_id(&view, shipped[99]).unwrap_err().reason, MissingReason::BeforeAudit);
}
