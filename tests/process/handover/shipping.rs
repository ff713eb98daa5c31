//! Shipping of the audit over hand-overs: one process ships at a time, and the database has each record once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::impostor::Impostor;
use super::{BLOCKS, Backend, Lineage, is_running};
use crate::shipping::ship_to;
use crate::support::{Client, Postgresql, SetOnDrop, Setup, eventually, head, until};

/// Upgrades of the gateway.
const UPGRADES: usize = 3;
/// Notes the connection of each delivery (in `public`: the user has the name of the other schema), in their order: the
/// row is locked from before until the commit.
const NOTES: &str = "
    CREATE TABLE public.deliveries (number bigserial, connection integer);
    CREATE FUNCTION public.note_delivery() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN INSERT INTO public.deliveries (connection) VALUES (pg_backend_pid()); RETURN NEW; END $$;
    CREATE TRIGGER note_delivery AFTER INSERT OR UPDATE ON keygate.journals
        FOR EACH ROW EXECUTE FUNCTION public.note_delivery()";

/// A gateway that ships, and the key of its client.
fn start(backend: &Backend, server: &Postgresql) -> (Lineage, String) {
    let setup = ship_to(Setup::new(backend.upstream.address, BLOCKS), server);
    let key = setup.key();
    let lineage = Lineage::start(setup);
    until("the schema is there", || server.try_sql(NOTES).ok());
    (lineage, key)
}

/// The connections of the deliveries, each as often as it came after another one.
fn connections(server: &Postgresql) -> Vec<String> {
    let mut connections = server.sql("SELECT connection FROM public.deliveries ORDER BY number");
    connections.dedup();
    connections
}

/// Checks that no connection delivered after another one had: no process shipped after the next one.
fn assert_one_after_the_other(server: &Postgresql, least: usize) {
    let connections = connections(server);
    let mut distinct = connections.clone();
    distinct.sort();
    distinct.dedup();
    assert!(distinct.len() == connections.len() && distinct.len() >= least, "{connections:?}");
}

fn shipped(server: &Postgresql) -> usize {
    server.sql("SELECT count(*) FROM keygate.records WHERE auth_method = 'api-key'")[0].parse().unwrap()
}

/// Sends requests, none of which fails, until it is told to stop.
fn load(lineage: &Lineage, key: &str, answered: &AtomicUsize, stop: &AtomicBool) {
    while !stop.load(Ordering::SeqCst) {
        let mut client = Client::connect(lineage.setup.address);
        loop {
            let response = client.get("/", key);
            assert_eq!(response.status, 200);
            answered.fetch_add(1, Ordering::SeqCst);
            if response.header("connection").is_some() || stop.load(Ordering::SeqCst) {
                break;
            }
        }
    }
}

#[test]
fn one_process_ships_at_a_time_and_each_record_is_there_once() {
    let (backend, server) = (Backend::start(), Postgresql::start());
    let (mut lineage, key) = start(&backend, &server);
    let (answered, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    for number in 1..=UPGRADES {
        // It keeps the process that is replaced alive.
        let mut held = lineage.setup.client();
        held.send(head("GET", "/slow", &key, &[], 0));
        eventually("the request is at the upstream", || backend.slow() == number);
        stop.store(false, Ordering::SeqCst);
        let replaced = std::thread::scope(|scope| {
            let _over = SetOnDrop(&stop);
            let clients = [(); 2].map(|()| scope.spawn(|| load(&lineage, &key, &answered, &stop)));
            let goes_on = || {
                let before = answered.load(Ordering::SeqCst);
                eventually("requests are answered", || {
                    answered.load(Ordering::SeqCst) >= before + 20 || clients.iter().any(|client| client.is_finished())
                });
            };
            goes_on();
            let replaced = lineage.upgrade();
            goes_on();
            stop.store(true, Ordering::SeqCst);
            replaced
        });
        let all = answered.load(Ordering::SeqCst);
        eventually("the new process ships", || shipped(&server) >= all);
        assert!(is_running(replaced), "a request is in flight there");
        let connected = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'keygate-audit'";
        eventually("the old process has left the database", || server.sql(connected) == ["1"]);
        backend.release(1);
        assert_eq!(held.response().status, 200);
        lineage.wait_for_end(replaced);
    }
    lineage.stop();
    // The first process may have been replaced before it had delivered.
    assert_one_after_the_other(&server, UPGRADES);
    assert!(!lineage.log().contains("from another process"), "{}", lineage.log());
    let all = answered.load(Ordering::SeqCst) + UPGRADES;
    let rows = "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE outcome = 'completed') \
        FROM keygate.records WHERE auth_method = 'api-key'";
    assert_eq!(server.sql(rows), [format!("{all}|{all}|{all}")]);
    assert_eq!(lineage.outcomes().get("completed"), Some(&all));
}

#[test]
fn shipping_goes_on_when_nothing_comes_of_a_hand_over() {
    let (backend, server) = (Backend::start(), Postgresql::start());
    let (mut lineage, key) = start(&backend, &server);
    let get = |lineage: &Lineage| assert_eq!(lineage.setup.client().get("/", &key).status, 200);
    get(&lineage);
    eventually("it is shipped", || shipped(&server) == 1);
    let before = connections(&server).len();
    let mut impostor = Impostor::offered(&lineage);
    impostor.send(&"Ready".into());
    impostor.receive_to("Locks");
    drop(impostor);
    get(&lineage);
    eventually("it is shipped", || shipped(&server) == 2);
    lineage.stop();
    // Over another connection: the one of before had ended.
    assert_one_after_the_other(&server, before + 1);
}
