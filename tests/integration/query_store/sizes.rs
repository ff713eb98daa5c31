//! The cost of a page by the size of the collection: the plans and the blocks of the store's own statements, as the
//! server logs them (`auto_explain`); and that of a first page by the history. `KEYGATE_STORE_QUERIES=10000000` goes up
//! to ten million queries, and prints times.

use std::time::Instant;

use domain::identity::{OrgId, UserId};
use query_store::store::{Bookmark, PostgresqlStore, Store, Version};
use serde_json::Value;

use super::contract::expiry;
use super::support::{NOW, postgresql_settings, runtime};
use crate::support::Postgresql;

/// Blocks that a page of 100 may touch: its rows, and some levels of three indexes.
const BLOCKS: u64 = 64;
/// Pages for each time that is printed.
const SAMPLES: usize = 200;

#[test]
fn page_touches_as_few_blocks_in_every_collection() {
    let largest = std::env::var("KEYGATE_STORE_QUERIES").map_or(20_000, |count| count.parse::<i64>().unwrap());
    let server = Postgresql::start_on_disk();
    for size in (3..).map(|power| 10_i64.pow(power)).take_while(|size| *size < largest).chain([largest]) {
        runtime().block_on(measure(&server, size));
    }
}

/// A first page beside a long history: 100,000 queries, 3,000 snapshots and a million ended row versions with
/// `KEYGATE_STORE_QUERIES=100000`, a twentieth of that without.
#[test]
fn first_page_passes_no_ended_row_versions() {
    let size = std::env::var("KEYGATE_STORE_QUERIES").map_or(5_000, |count| count.parse::<i64>().unwrap());
    let server = Postgresql::start_on_disk();
    runtime().block_on(async {
        let database = server.create_database();
        let settings = postgresql_settings(&server.url_of(&database));
        let store = Store::Postgresql(PostgresqlStore::open(&settings).unwrap());
        store.prepare().await.unwrap();
        let org = OrgId::generate();
        fill(&server, &database, org, size);
        let without = first_page_blocks(&server, &database, org).await;
        // The newest queries have most of the history, where a first page looks.
        server.sql_in(
            &database,
            &format!(
                "INSERT INTO query_store.queries
                     (org, position, version_created, version_ended, id, name, sql, created_at, updated_at, created_by)
                 SELECT 1, {size} - n % 200, {size} + n, {size} + n + 1,
                        gen_random_uuid(), 'old', 'select 1', 1, 1, 'user'
                 FROM generate_series(1, 10 * {size}) AS n;
                 UPDATE query_store.orgs SET version = 11 * {size} + 1;
                 INSERT INTO query_store.snapshots (org, version, expires_at)
                 SELECT 1, {size} + n, 9000000000000000 FROM generate_series(1, 3 * {size} / 100) AS n"
            ),
        );
        let with = first_page_blocks(&server, &database, org).await;
        println!("blocks of a first page: {without} without history, {with} beside {} ended row versions", 10 * size);
        assert!(with <= 2 * without, "{without} blocks became {with}");
    });
}

/// Blocks that the statement of a first page touches.
async fn first_page_blocks(server: &Postgresql, database: &str, org: OrgId) -> u64 {
    server.sql(&explain(database));
    let begun = server.log().len();
    let store = Store::Postgresql(PostgresqlStore::open(&postgresql_settings(&server.url_of(database))).unwrap());
    let page = store.page(org, None, 100, expiry(NOW)).await.unwrap().unwrap();
    assert_eq!((page.items.len(), page.items[0].name.starts_with("query")), (100, true));
    let plans = page_plans(&server.log()[begun..]);
    check_plan(plans.first().expect("the statement of the page is logged"))
}

/// Has the server log the plans of a database.
fn explain(database: &str) -> String {
    format!(
        "ALTER DATABASE {database} SET session_preload_libraries = 'auto_explain';
         ALTER DATABASE {database} SET auto_explain.log_min_duration = 0;
         ALTER DATABASE {database} SET auto_explain.log_analyze = on;
         ALTER DATABASE {database} SET auto_explain.log_buffers = on;
         ALTER DATABASE {database} SET auto_explain.log_format = 'json';
         ALTER DATABASE {database} SET auto_explain.log_nested_statements = on"
    )
}

async fn measure(server: &Postgresql, size: i64) {
    let database = server.create_database();
    let store = Store::Postgresql(PostgresqlStore::open(&postgresql_settings(&server.url_of(&database))).unwrap());
    store.prepare().await.unwrap();
    let org = OrgId::generate();
    fill(server, &database, org, size);
    let first = store.page(org, None, 100, expiry(NOW)).await.unwrap().unwrap();
    assert_eq!(first.items.len(), 100);
    let snapshot = first.next.unwrap().snapshot;
    let places = [size + 1, size / 2, 120].map(|after| Bookmark { snapshot, after: Version(after) });
    // Measured before the plans are logged, which takes time.
    let mut medians = Vec::new();
    for place in places {
        medians.push(median(&store, org, place).await);
    }
    server.sql(&explain(&database));
    let begun = server.log().len();
    let explained = Store::Postgresql(PostgresqlStore::open(&postgresql_settings(&server.url_of(&database))).unwrap());
    for place in places {
        let page = explained.page(org, Some(place), 100, expiry(NOW)).await.unwrap().unwrap();
        assert_eq!((page.items.len(), page.next.is_some()), (100, true));
    }
    let plans = page_plans(&server.log()[begun..]);
    assert_eq!(plans.len(), places.len());
    let blocks: Vec<u64> = plans.iter().map(check_plan).collect();
    println!("{size:>9} queries: blocks of a page at the begin, middle, end {blocks:?}; median times {medians:?}");
    assert!(blocks.iter().all(|blocks| *blocks <= BLOCKS), "{size}: {blocks:?}");
}

/// Fills an organization with queries by statements of the server, which is faster than the store.
fn fill(server: &Postgresql, database: &str, org: OrgId, size: i64) {
    let user = UserId::generate();
    server.sql_in(
        database,
        &format!(
            "INSERT INTO query_store.orgs (number, org, version) VALUES (1, '{org}', {size});
             INSERT INTO query_store.queries
                 (org, position, version_created, id, name, sql, created_at, updated_at, created_by)
             SELECT 1, n, n, gen_random_uuid(), 'query ' || n, repeat('select ' || n || '; ', 10), n, n, '{user}'
             FROM generate_series(1, {size}) AS n"
        ),
    );
}

async fn median(store: &Store, org: OrgId, place: Bookmark) -> std::time::Duration {
    let mut times = Vec::new();
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        store.page(org, Some(place), 100, expiry(NOW)).await.unwrap().unwrap();
        times.push(begun.elapsed());
    }
    times.sort();
    times[SAMPLES / 2]
}

/// Plans of the statements that read pages, from the server's log.
fn page_plans(log: &str) -> Vec<Value> {
    let plans = log.split(" plan:\n").skip(1).map(|rest| {
        let lines: String = rest.lines().take_while(|line| line.starts_with('\t')).collect();
        serde_json::from_str::<Value>(&lines).unwrap_or_else(|error| panic!("{error}: {lines}"))
    });
    plans.filter(|plan| plan["Query Text"].as_str().unwrap().contains("LEFT JOIN LATERAL")).collect()
}

/// Checks that a plan finds all rows by index and in order, and returns the number of blocks that it touched.
fn check_plan(plan: &Value) -> u64 {
    let mut nodes = vec![&plan["Plan"]];
    while let Some(node) = nodes.pop() {
        let kind = node["Node Type"].as_str().unwrap();
        assert!(["Nested Loop", "Limit", "Index Scan", "Index Only Scan"].contains(&kind), "{kind}: {plan:#}");
        nodes.extend(node["Plans"].as_array().into_iter().flatten());
    }
    plan["Plan"]["Shared Hit Blocks"].as_u64().unwrap() + plan["Plan"]["Shared Read Blocks"].as_u64().unwrap()
}
