//! Two gateways on one Redis and one PostgreSQL: what one of them records is shown by the other.

use std::process::Command;
use std::time::Instant;

use control::management::{self, Series, UseFilter, UsePage};
use domain::page::{PageLimit, PageQuery};
use journal::audit::{Outcome, UsageRange, ViewScope};
use serde_json::Value;

use crate::support::gateway::OPERATOR;
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Key, Postgresql, Upstream, eventually, until};

const ORIGIN: &str = "http://127.0.0.1:8080";
const OWN: (&str, &str) = ("Sec-Fetch-Site", "same-origin");

fn gateway(name: &str, redis: &Redis, server: &Postgresql, upstream: &Upstream) -> Gateway {
    let blocks = format!(
        "\ngateway: {name}\nstate: {{ redis: {{ url: '{}', deadline: 2s }} }}\n\
         audit: {{ path: audit, ship: [{{ postgresql: {{ url: '{}' }} }}] }}\nsession: {{ origin: {ORIGIN} }}\n",
        redis.url(),
        server.url()
    );
    Gateway::with(&[upstream.address], &blocks)
}

/// Signs the key's user in at a gateway; returns the value of the `Cookie` field.
fn sign_in(gateway: &Gateway, key: &Key) -> String {
    let link = gateway.create_link(key.org, key.user);
    let path = link.as_str().strip_prefix(ORIGIN).unwrap();
    let taken = Client::connect(gateway.address).request("POST", path, "", &[OWN], b"");
    taken.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
}

/// A page, once the session's rate of requests admits it: the pages are asked for again and again here.
fn get(gateway: &Gateway, cookie: &str, path: &str) -> String {
    let page = until("the rate admits the request", || {
        let page = Client::connect(gateway.address).request("GET", path, "", &[("Cookie", cookie)], b"");
        (page.status != 429).then_some(page)
    });
    assert_eq!(page.status, 200, "{path}: {page:?}");
    String::from_utf8(page.body).unwrap()
}

/// The records that `keygate audit list` shows at a gateway.
fn audit_list(gateway: &Gateway, options: &str) -> Value {
    print(gateway, &format!("audit list {options}"))
}

/// The output of a command at a gateway.
fn print(gateway: &Gateway, line: &str) -> Value {
    try_print(gateway, line).unwrap()
}

/// The same, or what the command says in an error.
fn try_print(gateway: &Gateway, line: &str) -> Result<Value, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keygate"));
    command.args(line.split_whitespace()).arg("--json");
    let output = command.arg("--config").arg(gateway.dir.path().join("keygate.yaml")).output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn uses_at_one_gateway_are_shown_by_the_other_also_when_its_disk_is_lost() {
    let (redis, server, upstream) = (Redis::start(), Postgresql::start(), Upstream::start());
    let one = gateway("gateway-a", &redis, &server, &upstream);
    let other = gateway("gateway-b", &redis, &server, &upstream);
    let key = one.key();
    let cookie = sign_in(&other, &key);
    let page = format!("/settings/keys/{}", key.id);
    let requests = format!("/settings/api/v1/keys/{}/requests", key.id);
    let mut client = Client::connect(one.address);
    assert_eq!(client.get("/x", &key.text).status, 200);
    let used = Instant::now();
    eventually("the key's page at the other gateway shows the use", || {
        let page = get(&other, &cookie, &page);
        page.contains("recorded by all gateways") && page.contains("GET /x") && page.contains("Completed")
    });
    println!("shown by the other gateway's page after {:?}", used.elapsed());
    assert_eq!(client.get("/y", &key.text).status, 200);
    let used = Instant::now();
    let options = format!("--key {}", key.id);
    eventually("so does `keygate audit list`", || {
        audit_list(&other, &options)["records"].to_string().contains("GET /y")
    });
    println!("shown by the other gateway's `audit list` after {:?}", used.elapsed());
    let listed = audit_list(&other, &options);
    assert_eq!(listed["view"]["scope"], "fleet");
    let list = |gateway: &Gateway, cursor| {
        let page = PageQuery { cursor, limit: PageLimit::of(1) };
        gateway.perform(async |to, now| {
            management::list_uses(to, OPERATOR, key.id, UseFilter::default(), &page, now).await
        })
    };
    let UsePage { page: first, gateway, view, .. } = list(&other, None);
    assert_eq!((gateway.as_str(), view.unwrap().scope), ("gateway-b", ViewScope::Fleet));
    assert_eq!((first.items[0].path.as_str(), first.items[0].outcome), ("/y", Outcome::Completed));
    // The cursor of one gateway is valid at the other.
    let second = list(&one, first.next).page;
    assert_eq!(second.items[0].path, "/x");
    // A use at the other gateway is there at once, shipped or not.
    assert_eq!(Client::connect(other.address).get("/z", &key.text).status, 200);
    eventually("the own use has ended", || {
        let uses: Value = serde_json::from_str(&get(&other, &cookie, &requests)).unwrap();
        uses["items"][0]["path"] == "/z" && uses["items"][0]["outcome"] == "completed"
    });
    // The machine is gone, with its disk.
    drop(one);
    let uses: Value = serde_json::from_str(&get(&other, &cookie, &requests)).unwrap();
    let paths: Vec<&str> =
        uses["items"].as_array().unwrap().iter().map(|item| item["path"].as_str().unwrap()).collect();
    assert_eq!((paths, &uses["view"]["scope"]), (vec!["/z", "/y", "/x"], &Value::from("fleet")));
    let activity = get(&other, &cookie, &format!("/settings/api/v1/orgs/{}/activity?keys={}", key.org, key.id));
    let activity: Value = serde_json::from_str(&activity).unwrap();
    let activity = &activity["keys"][&key.id.to_string()];
    let hours = activity["hours"].as_array().unwrap();
    assert_eq!(hours.iter().map(|hour| hour["requests"].as_u64().unwrap()).sum::<u64>(), 3, "{activity}");
    assert_eq!(activity["last"]["action"], "GET /z");
    assert_eq!(audit_list(&other, &options)["records"].as_array().unwrap().len(), 3 + 1, "and its creation");
}

#[test]
fn usage_counts_the_uses_of_all_gateways_by_name() {
    let (redis, server, upstream) = (Redis::start(), Postgresql::start(), Upstream::start());
    let one = gateway("gateway-a", &redis, &server, &upstream);
    let other = gateway("gateway-b", &redis, &server, &upstream);
    let key = one.key();
    for gateway in [&one, &other] {
        assert_eq!(Client::connect(gateway.address).get("/x", &key.text).status, 200);
    }
    let usage = until("both uses are shipped", || {
        let usage = try_print(&one, "usage --by key");
        let usage = usage.map_err(|error| assert!(error.contains("no gateway has shipped records"), "{error}")).ok()?;
        let row = usage["items"].as_array().unwrap().iter().find(|item| item["key_id"] == key.id.to_string());
        row.is_some_and(|row| row["requests"] == 2 && row["open"] == 0).then(|| usage.clone())
    });
    let gateways: Vec<&Value> = usage["view"]["gateways"].as_array().unwrap().iter().map(|it| &it["gateway"]).collect();
    assert_eq!(gateways, ["gateway-a", "gateway-b"]);
    let item = usage["items"].as_array().unwrap().iter().find(|item| item["key_id"] == key.id.to_string()).unwrap();
    let shown = one.perform(async |to, now| management::show_key(to, OPERATOR, key.id, now).await);
    let org = one.perform(async |to, now| management::show_org(to, OPERATOR, &key.org.to_string(), now).await);
    assert_eq!(
        (&item["org"], &item["key"], &item["user"]),
        (&org.name.into(), &shown.name.into(), &shown.email.into())
    );
    let org = key.org.to_string();
    eventually("both uses are added up", || {
        let range = UsageRange::Day;
        let of_org = one.perform(async |to, now| management::show_overview(to, OPERATOR, &org, range, now).await);
        of_org.usage.total.outcomes.0 == [(Outcome::Completed, 2)]
    });
    for range in UsageRange::ALL {
        let of_org = one.perform(async |to, now| management::show_overview(to, OPERATOR, &org, range, now).await);
        let of_key = one.perform(async |to, now| management::show_key_usage(to, OPERATOR, key.id, range, now).await);
        for Series { total, periods, view, .. } in [&of_org.usage, &of_key.usage] {
            assert_eq!((total.requests, total.open, &total.outcomes.0), (2, 0, &vec![(Outcome::Completed, 2)]));
            assert_eq!(Value::from(total.response_bytes), item["response_bytes"]);
            assert_eq!((total.units, periods.iter().map(|period| period.sums.requests).sum::<u64>()), (2, 2));
            assert_eq!(view.as_ref().unwrap().scope, ViewScope::Fleet);
        }
        let keys: Vec<_> = of_org.keys.iter().map(|share| (share.key_id, share.requests)).collect();
        let routes: Vec<_> = of_org.routes.iter().map(|share| (share.route.as_deref(), share.sums.requests)).collect();
        assert_eq!((keys, routes), (vec![(Some(key.id), 2)], vec![(None, 2)]), "no route is listed");
        assert_eq!((of_key.used_by.requests, of_key.used_by.is_all), (2, true));
    }
    let own = print(&one, "usage --by key --own");
    assert_eq!(
        (&own["view"]["scope"], &own["view"]["gateways"][0]["gateway"]),
        (&"gateway".into(), &"gateway-a".into())
    );
    assert_eq!(own["items"].as_array().unwrap().iter().filter(|item| item["requests"] == 1).count(), 1, "{own}");
}

#[test]
fn pages_show_the_own_records_while_postgresql_is_away() {
    let (redis, mut server, upstream) = (Redis::start(), Postgresql::start(), Upstream::start());
    let (gateway, key) = gateway("gateway-a", &redis, &server, &upstream).and_key();
    let cookie = sign_in(&gateway, &key);
    let page = format!("/settings/keys/{}", key.id);
    eventually("the view reads PostgreSQL", || get(&gateway, &cookie, &page).contains("recorded by all gateways"));
    server.crash();
    assert_eq!(Client::connect(gateway.address).get("/x", &key.text).status, 200);
    eventually("the use is on the page, which says that it is this gateway's", || {
        let page = get(&gateway, &cookie, &page);
        page.contains("GET /x")
            && page.contains("recorded by the gateway <span class=\"mono\">gateway-a</span>")
            && page.contains("The records of the other gateways cannot be read right now.")
    });
    let listed = audit_list(&gateway, &format!("--key {}", key.id));
    assert_eq!(listed["view"], serde_json::json!({ "scope": "gateway", "reason": "unavailable" }));
    server.restart();
    eventually("all records are shown again", || get(&gateway, &cookie, &page).contains("recorded by all gateways"));
}
