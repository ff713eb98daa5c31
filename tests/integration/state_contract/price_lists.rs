//! The price lists of docs/plans.md: the configuration of the page decides on each request of its table, a month of one
//! customer.

use std::fs;
use std::path::Path;
use std::time::Duration;

use domain::budget::Cost;
use domain::clock::Micros;
use domain::identity::AuthMethod;
use domain::key::policy::Field;
use keygate::config::Config;
use state::{Change, DecideRequest, Decision, Embedded, OrgPatch, Settings, State, embedded};

use super::fixture::{HeldKey, fixture_with_key};
use super::runtime::block_on;
use crate::docs::complete;
use crate::support::decide::decide_request;
use crate::support::page::block;

/// Requests of a row.
struct Batch {
    count: u32,
    cost: Cost,
    /// Units that each costs in the end; none where its cost is known beforehand.
    actual: Option<u64>,
    begin: Micros,
    each: Duration,
}

/// The last cells of a row: requests that are admitted and refused, and what is spent in the end.
async fn perform(state: &State, key: &HeldKey, batch: &Batch) -> [String; 3] {
    let (mut admitted, mut refused, mut open) = (0, 0, Vec::new());
    let (mut code, mut now) = ("", batch.begin);
    for n in 0..batch.count {
        now = batch.begin.after(batch.each * n);
        let request = DecideRequest { cost: batch.cost, ..decide_request(&key.digest, now) };
        match state.decide(request).await.unwrap() {
            Decision::Admitted(request) => {
                admitted += 1;
                open.extend(request.permit.into_reservation().zip(batch.actual));
            }
            Decision::Denied { refusal, .. } => {
                refused += 1;
                code = refusal.answer(AuthMethod::ApiKey).code;
            }
        }
        // Those of one moment are open together.
        if !batch.each.is_zero() || n + 1 == batch.count {
            open.drain(..).for_each(|(reservation, actual)| _ = reservation.settle(actual));
        }
    }
    let budget = state.rate_limit_status(key.id, now).await.unwrap().unwrap().budget;
    let refused = if refused == 0 { "none".to_owned() } else { format!("{refused} {code}") };
    [admitted.to_string(), refused, budget.map_or_else(|| "none".to_owned(), |budget| budget.used.to_string())]
}

#[test]
fn month_of_a_customer_is_what_the_page_says() {
    let dir = tempfile::tempdir().unwrap();
    let config = Config::parse(Path::new("keygate.yaml"), &complete(&block("# Three price lists."))).unwrap();
    let Settings::Embedded(settings) = config.state else { panic!("not embedded") };
    let settings = embedded::Settings { path: dir.path().join("state.db"), ..settings };
    let state = State::Embedded(Embedded::open(&settings).unwrap());
    let page = fs::read_to_string("docs/plans.md").unwrap().replace([',', '`'], "");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| 20"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert_eq!(rows.len(), 7);
    block_on(async {
        let (fixture, key) = fixture_with_key(&state).await;
        for row in rows {
            let [begin, plan, requests, each, told @ ..] = &row[..] else { panic!("{row:?}") };
            let words: Vec<&str> = requests.split(' ').collect();
            let batch = Batch {
                count: words[0].parse().unwrap(),
                cost: config.routes.iter().find(|route| route.name == words[1]).unwrap().cost,
                actual: words.get(3).map(|units| units.parse().unwrap()),
                begin: format!("{}:00Z", begin.replace(' ', "T")).parse().unwrap(),
                each: Duration::from_secs(each.trim_end_matches(" s").parse().unwrap()),
            };
            let patch = OrgPatch { plan: Field::Set(plan.parse().unwrap()), ..OrgPatch::default() };
            state.change(Change::UpdateOrg { org: fixture.org, patch }).await.unwrap();
            assert_eq!(perform(&state, &key, &batch).await, told, "{row:?}");
        }
    });
}
