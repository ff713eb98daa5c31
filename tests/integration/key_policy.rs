//! Policies of keys over the wire: what a caller, the upstream and the audit see of them.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::gateway::{Key, OPERATOR};
use crate::support::redis::Redis;
use crate::support::{Client, Gateway, Random, Upstream, head};
use control::management;
use domain::clock;
use domain::key::policy::Network;

/// Requests come through a proxy, which names the client.
const BLOCKS: &str = "
trusted_proxies: [127.0.0.0/8]
limits: { key: { requests: 1000000, per: 1s }, bad_keys: { requests: 1000000, per: 1s } }
routes: [{ name: write, path: /write, permission: 'queries:write' }, { name: rest, path: '/**' }]
";

fn set(gateway: &Gateway, key: &Key, policy: &str) {
    gateway.set_policy(key.id, serde_json::from_str(policy).unwrap());
}

/// Status of a request from a client, without what differs between any two responses.
fn response(gateway: &Gateway, key: &str, client: &str) -> (u16, BTreeMap<String, String>, String) {
    let response = Client::connect(gateway.address).request("GET", "/", key, &[("X-Forwarded-For", client)], b"");
    let fields = response.headers.iter().filter(|(name, _)| !["date", "x-request-id"].contains(&&**name)).cloned();
    let body = String::from_utf8(response.body.clone()).unwrap();
    let id = response.header("x-request-id").unwrap_or_default();
    (response.status, fields.collect(), body.replace(id, "ID"))
}

#[test]
fn refusal_by_a_policy_tells_a_thief_no_more_than_an_unknown_key() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], BLOCKS);
    let [expired, disabled, elsewhere, suspended] = [(); 4].map(|()| gateway.key());
    let other = gateway.key();
    let past = clock::now().before(Duration::from_secs(1));
    set(&gateway, &expired, &format!(r#"{{"expires":"{past}"}}"#));
    gateway.disable(&disabled);
    set(&gateway, &elsewhere, r#"{"networks":["10.0.0.0/8"]}"#);
    gateway.suspend_user(&suspended);
    // Of keyboards' own format, and of no record.
    let unknown = gateway.rotate(&other, None).text;
    gateway.revoke(&other);
    let expected = response(&gateway, &unknown, "192.0.2.1");
    assert_eq!(expected.0, 401);
    for key in [&expired, &disabled, &elsewhere, &suspended] {
        assert_eq!(response(&gateway, &key.text, "192.0.2.1"), expected);
    }
    assert_eq!(response(&gateway, &elsewhere.text, "10.1.2.3").0, 200);
    assert_eq!(response(&gateway, &elsewhere.text, "::ffff:10.1.2.3").0, 200);
    assert_eq!(upstream.received().len(), 2);
    let records = gateway.records();
    let outcome = |key: &Key| {
        let of_key = records.iter().filter(|record| record.key_id == Some(key.id));
        of_key.map(|record| record.outcome.name()).collect::<Vec<_>>()
    };
    assert_eq!(outcome(&expired), ["key_expired"]);
    assert_eq!(outcome(&disabled), ["key_disabled"]);
    assert_eq!(outcome(&elsewhere), ["completed", "completed", "address_refused"]);
    assert_eq!(outcome(&suspended), ["user_suspended"]);
    gateway.perform(async |to, now| management::enable_key(to, OPERATOR, disabled.id, now).await);
    assert_eq!(response(&gateway, &disabled.text, "192.0.2.1").0, 200);
}

#[test]
fn upstream_sees_the_permissions_of_the_key_and_its_user() {
    let upstream = Upstream::start();
    let gateway = Gateway::with(&[upstream.address], BLOCKS);
    let key = gateway.key_with(&["queries:read", "queries:write"]);
    let mut client = Client::connect(gateway.address);
    assert_eq!(client.get("/write", &key.text).status, 200);
    set(&gateway, &key, r#"{"permissions":["queries:read"]}"#);
    assert_eq!(client.get("/write", &key.text).code(), "insufficient_scope");
    assert_eq!(client.get("/", &key.text).status, 200);
    gateway.permit(&key, &[]);
    assert_eq!(client.get("/", &key.text).status, 200);
    let permissions: Vec<String> = upstream
        .received()
        .iter()
        .map(|request| request.header("x-permissions").unwrap_or_default().to_owned())
        .collect();
    assert_eq!(permissions, ["queries:read,queries:write", "queries:read", ""]);
}

/// One client in a loop at a wrong address, over a Redis where a key that is refused in a loop is refused locally.
#[test]
fn client_at_a_wrong_address_does_not_lock_out_the_right_one() {
    let (redis, upstream) = (Redis::start(), Upstream::start());
    let state = format!("state: {{ redis: {{ url: '{}', deadline: 2s }} }}\n{BLOCKS}", redis.url());
    let (gateway, key) = Gateway::with(&[upstream.address], &state).and_key();
    set(&gateway, &key, r#"{"networks":["10.0.0.0/8"]}"#);
    for _ in 0..20 {
        for _ in 0..10 {
            assert_eq!(response(&gateway, &key.text, "192.0.2.1").0, 401);
        }
        assert_eq!(response(&gateway, &key.text, "10.1.2.3").0, 200);
    }
    // A narrowed list holds for the next decision, also of the client that was in it.
    set(&gateway, &key, r#"{"networks":["10.2.0.0/16"]}"#);
    assert_eq!(response(&gateway, &key.text, "10.1.2.3").0, 401);
    assert_eq!(response(&gateway, &key.text, "10.2.0.1").0, 200);
}

/// A client without a proxy is its own address, whatever its fields say.
#[test]
fn address_is_the_peers_where_no_proxy_is_trusted() {
    let (_upstream, gateway, key) = Gateway::with_key("");
    set(&gateway, &key, r#"{"networks":["10.0.0.0/8"]}"#);
    assert_eq!(response(&gateway, &key.text, "10.1.2.3").0, 401);
    set(&gateway, &key, r#"{"networks":["127.0.0.1"]}"#);
    assert_eq!(response(&gateway, &key.text, "10.1.2.3").0, 200);
    assert!(TcpStream::connect(gateway.address).is_ok() && !head("GET", "/", "", &[], 0).is_empty());
}

/// Random networks and addresses, most of them near each other, with prefixes of all lengths and IPv4-mapped addresses.
fn pairs(count: usize) -> Vec<(String, String)> {
    let mut random = Random::new(33);
    let mut pair = || {
        let is_v4 = random.below(2) == 0;
        let bits = if is_v4 { 32 } else { 128 };
        let prefix = [0, bits, random.below(bits + 1), random.below(bits + 1), random.below(bits + 1)];
        let prefix = prefix[random.index(5)];
        let wide = |random: &mut Random| u128::from(random.number()) << 64 | u128::from(random.number());
        let mask = |prefix: u64| u128::MAX.checked_shl(u32::try_from(bits - prefix).unwrap()).unwrap_or(0);
        let base = if random.below(8) == 0 { 0xffff << 32 | wide(&mut random) >> 96 } else { wide(&mut random) };
        let network = base & mask(prefix);
        // The address shares some bits with the network: one less than the prefix, as many, or any number.
        let shared = [prefix.saturating_sub(1), prefix, random.below(bits + 1)][random.index(3)];
        let address = network & mask(shared) | wide(&mut random) & !mask(shared);
        let v4 = |number: u128| std::net::Ipv4Addr::from_bits(number as u32).to_string();
        let v6 = |number: u128| std::net::Ipv6Addr::from_bits(number).to_string();
        let mapped = random.below(4) == 0;
        if is_v4 {
            let network = format!("{}/{prefix}", v4(network));
            let address = v4(address);
            (network, if mapped { format!("::ffff:{address}") } else { address })
        } else {
            (format!("{}/{prefix}", v6(network)), if mapped { v4(address) } else { v6(address) })
        }
    };
    (0..count).map(|_| pair()).collect()
}

/// The rule by Python's `ipaddress`: an IPv4-mapped address or network is the IPv4 one.
const PYTHON: &str = "
import ipaddress, sys
def canonical(net):
    mapped = net.version == 6 and net.prefixlen >= 96 and net.network_address.ipv4_mapped
    return ipaddress.ip_network(f'{mapped}/{net.prefixlen - 96}') if mapped else net
for line in sys.stdin:
    net, address = line.split()
    net, address = canonical(ipaddress.ip_network(net)), ipaddress.ip_address(address)
    if address.version == 6 and address.ipv4_mapped: address = address.ipv4_mapped
    print(int(address in net))
";

#[test]
fn verdicts_of_addresses_are_those_of_python() {
    let pairs = pairs(100_000);
    let mut child = Command::new("python3").args(["-c", PYTHON]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let child = child.as_mut().expect("python3 is there");
    let text: String = pairs.iter().map(|(network, address)| format!("{network} {address}\n")).collect();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || std::io::Write::write_all(&mut input, text.as_bytes()));
    let mut said = String::new();
    std::io::Read::read_to_string(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    writer.join().unwrap().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(said.lines().count(), pairs.len());
    let mut inside = 0;
    for ((network, address), verdict) in pairs.iter().zip(said.lines()) {
        let ours = network.parse::<Network>().unwrap().contains(address.parse().unwrap());
        assert_eq!(ours, verdict == "1", "{address} in {network}");
        inside += usize::from(ours);
    }
    assert!((20_000..80_000).contains(&inside), "{inside} of the addresses are inside");
}
