//! Commands of an operator at one gateway with query-store behind it.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::procedures::{LastMonth, Office};
use crate::support::page::{block, blocks_named};
use crate::support::{KEYGATE, Shell, eventually};

/// A shell at a gateway with a user, a key and a request.
fn with_gateway(work: impl FnOnce(&Office, &Shell, &str)) {
    let office = Office::embedded();
    let key = office.key_in("acme");
    let gateway = office.setup.start();
    assert_eq!(office.status(&key), 200);
    work(&office, &office.shell(&key), &key);
    gateway.stop();
}

/// Runs the lines of a block one by one; each must end with one of these exit codes. Returns what each prints.
fn line_by_line(shell: &Shell, block: &str, codes: &[i32]) -> Vec<String> {
    let lines = block.lines().map(|line| {
        let (_, output) = shell.try_run(&format!("set +e\n{line}\necho \"exit $?\""));
        let (printed, code) = output.rsplit_once("exit ").unwrap();
        assert!(codes.contains(&code.trim().parse().unwrap()), "{line}\n{output}");
        printed.to_owned()
    });
    lines.collect()
}

#[test]
fn first_key_is_created_used_revoked_and_explained() {
    let office = Office::embedded();
    let gateway = office.setup.start();
    let script = block("keygate org create acme").replace("KEY_ID", "${KEY:8:9}");
    let output = Shell::of(&office.setup).run(&script);
    assert!(
        output.contains("{\"items\":[]") && output.contains("requests are refused (401): the key is revoked"),
        "{output}"
    );
    gateway.stop();
}

/// `docker` runs the command of a container on this machine. The services are those of the file.
#[test]
fn containers_get_an_organization_by_the_commands_of_the_page() {
    let office = Office::embedded();
    let gateway = office.setup.start();
    let root = env!("CARGO_MANIFEST_DIR");
    // `/etc/keygate` is the directory of the setup already.
    let dir = office.setup.path().display();
    let shell = Shell::of(&office.setup).replace(&format!("{dir}.yaml"), &format!("{dir}/keygate.yaml"));
    shell.program(
        "docker",
        &format!(
            "[ \"$1 $2\" = 'compose -f' ] && file='{root}'/$3 && shift 3\ncase $1 in\n\
             up) shift; [ \"$*\" = '--build --detach' ] && [ -f \"$file\" ] ;;\n\
             exec) grep -q \"^  $2:\" \"$file\" && shift 2 && exec \"$@\" ;;\n*) exit 1 ;;\nesac"
        ),
    );
    shell.run(&block("docker compose -f deploy/compose.yaml up"));
    assert!(shell.run("keygate org list").contains("acme"));
    gateway.stop();
}

/// `apt` installs nothing, and `systemctl` starts what is started already. The units are those of the package.
#[test]
fn package_is_set_up_by_the_commands_of_the_page() {
    let office = Office::embedded();
    let gateway = office.setup.start();
    let root = env!("CARGO_MANIFEST_DIR");
    let shell = Shell::of(&office.setup);
    shell.program("apt", "[ \"$1\" = install ] && [ -f \"$2\" ]");
    shell.program("systemctl", &format!("[ \"$1 $2\" = 'enable --now' ] && [ -f '{root}'/deploy/$3.service ]"));
    shell.run("echo package > keygate_VERSION_amd64.deb\nsha256sum keygate_VERSION_amd64.deb > SHA256SUMS");
    // As root, and with query-store on this machine, `keygate doctor` finds something to change.
    let output = line_by_line(&shell, &block("sha256sum --check --ignore-missing SHA25"), &[0, 1]);
    assert!(output[0].contains("keygate_VERSION_amd64.deb: OK"), "{output:?}");
    assert!([1, 2, 3, 4].iter().all(|line| output[*line].is_empty()), "{output:?}");
    assert!(output[5].contains("upstreams") && output[6].contains("acme"), "{output:?}");
    gateway.stop();
}

/// logrotate renames the file, creates it with the mode of `create`, and runs the script.
#[test]
fn access_log_is_rotated_by_the_command_of_the_page() {
    let office = Office::embedded();
    office.setup.write(&format!("{}telemetry: {{ access_log: {{ file: access.log }} }}\n", office.setup.text()));
    let key = office.key_in("acme");
    let gateway = office.setup.start();
    let page = block("/var/lib/keygate/access.log {");
    assert!(page.contains("    create 0640 keygate keygate\n"), "{page}");
    let script = page.split("postrotate\n").nth(1).unwrap().split("endscript").next().unwrap();
    let shell = office.shell(&key);
    shell.reloads(&[("keygate", gateway.id())]);
    assert_eq!(office.status(&key), 200);
    let (current, rotated) = (office.setup.path().join("access.log"), office.setup.path().join("access.log.1"));
    let has_line = |file: &Path| fs::read_to_string(file).is_ok_and(|text| text.ends_with('\n'));
    eventually("the line of the request is written", || has_line(&current));
    shell.run(&format!("mv access.log access.log.1\ninstall -m 0640 /dev/null access.log\n{script}"));
    eventually("a line is in the new file", || office.status(&key) == 200 && has_line(&current));
    assert!(has_line(&rotated));
    gateway.stop();
}

#[test]
fn gateway_is_checked_started_and_watched() {
    let office = Office::embedded();
    let serve = "keygate serve > /dev/null 2>&1 & GATEWAY=$!\ntrap 'kill $GATEWAY; wait $GATEWAY' EXIT\n\
                 for i in $(seq 300); do ! keygate health > /dev/null 2>&1 || break; sleep 0.1; done\n";
    let output = Shell::of(&office.setup).run(&block("keygate check").replace("keygate serve\n", serve));
    assert!(output.contains(": ok\n") && output.contains("keygate_build_info"), "{output}");
}

#[test]
fn sign_in_links_and_sessions_are_managed() {
    let office = Office::embedded();
    office.setup.ok(&["org", "create", "acme"]);
    let gateway = office.setup.start();
    let output = Shell::of(&office.setup).run(&block("keygate user create --org acme ada@examp"));
    assert!(output.contains("/settings/link/") && output.contains("there are no sessions"), "{output}");
    gateway.stop();
}

#[test]
fn services_are_created_and_reassigned_by_the_commands_of_the_page() {
    let office = Office::embedded();
    office.setup.ok(&["org", "create", "acme"]);
    for email in ["ada@example.com", "bob@example.com"] {
        office.setup.ok(&["user", "create", "--org", "acme", email]);
    }
    let output = Shell::of(&office.setup).run(&block("keygate user create --org acme --service"));
    let lines = |name| output.lines().filter(|line: &&str| line.starts_with(name)).collect::<Vec<_>>().join("\n");
    assert!(lines("name").contains("nightly report") && lines("kind").contains("service"), "{output}");
    assert!(lines("responsible").ends_with("bob@example.com"), "{output}");
}

#[test]
fn state_is_exported_imported_and_verified() {
    for script in blocks_named("keygate state export --out keygate.jsonl") {
        with_gateway(|office, shell, _| {
            let output = shell.run(&script);
            assert!(output.contains("the same: 3 records"), "{output}");
            // Into an empty state.
            let empty = Office::embedded();
            fs::copy(office.setup.path().join("keygate.jsonl"), empty.setup.path().join("keygate.jsonl")).unwrap();
            let (_, rest) = script.split_once('\n').unwrap();
            let output = Shell::of(&empty.setup).run(rest);
            assert!(output.contains("the same: 3 records"), "{output}");
        });
    }
}

#[test]
fn file_of_organizations_is_applied_with_the_plan_of_the_page() {
    let office = Office::embedded();
    let shell = Shell::of(&office.setup).set("API_KEY", "sk_live_of-another-system");
    let digest = shell.run(&block("printf %s \"$API_KEY\" | keygate key diges"));
    let example = "0".repeat(64);
    let file = block("organizations:");
    assert!(file.contains(&example), "{file}");
    fs::write(office.setup.path().join("acme.yaml"), file.replace(&example, digest.trim())).unwrap();
    // Without a terminal to ask at.
    let script = block("keygate apply --file acme.yaml --dry-run").replace("acme.yaml    ", "acme.yaml --yes");
    let output = line_by_line(&shell, &script, &[3, 0]);
    let plan = block("+ organization acme");
    assert!(output.len() == 2 && output.iter().all(|printed| printed.contains(plan.trim())), "{output:?}\n{plan}");
    assert!(shell.run("keygate key list").contains("laptop"));
}

#[test]
fn metrics_are_looked_at() {
    with_gateway(|_, shell, _| {
        let output = shell.run(&block("curl -s http://127.0.0.1:9464/metrics |"));
        assert!(output.contains("code=\"200\""), "{output}");
    });
}

#[test]
fn doctor_is_called_in_three_ways() {
    with_gateway(|_, shell, _| {
        // As root, and with query-store on this machine, it finds something to change.
        let output = line_by_line(shell, &block("runuser -u keygate -- keygate doctor --c"), &[0, 1]);
        assert!(output[0].contains("upstreams") && output[1].lines().count() < output[0].lines().count(), "{output:?}");
        assert!(output[2].contains("\"worst\":") && output[2].contains("\"items\":["), "{}", output[2]);
    });
}

#[test]
fn configuration_status_is_shown() {
    with_gateway(|_, shell, _| {
        let output = shell.run(&block("keygate config status"));
        assert!(output.contains("on disk  the same"), "{output}");
    });
}

#[test]
fn gateway_is_replaced_by_an_installed_program() {
    let office = Office::embedded();
    let key = office.key_in("acme");
    let mut gateway = office.setup.start();
    fs::copy(KEYGATE, office.setup.path().join("keygate-new")).unwrap();
    let shell = office.shell(&key).replace("/usr/local/bin/keygate", "$(command -v keygate)");
    let output = shell.run(&block("install keygate-new /usr/local/bin/keyga"));
    let process =
        output.split("(process ").nth(1).and_then(|rest| rest.split(')').next()).expect("a process").to_owned();
    assert_eq!(gateway.wait(), 0);
    assert_eq!(office.status(&key), 200);
    assert!(Command::new("kill").arg(&process).status().unwrap().success());
    let directory = format!("/proc/{process}");
    eventually("the new process ends", || !fs::exists(&directory).unwrap());
}

#[test]
fn records_are_listed_explained_verified_and_proven() {
    let month = LastMonth::new();
    let directory = month.office.setup.path();
    let key = month.office.setup.ok(&["key", "list", "--json"]);
    let key: serde_json::Value = serde_json::from_str(&key).unwrap();
    let id = key["items"][0]["id"].as_str().unwrap().to_owned();
    let records = month.office.setup.ok(&["audit", "export", "--key", &id]);
    let request = records.split("\"id\":\"").nth(2).unwrap().split('"').next().unwrap().to_owned();
    let script =
        block("keygate audit list --key KEY_ID --since").replace("KEY_ID", &id).replace("REQUEST_ID", &request);
    let script = script.replace("TOKEN_ID", "aB3dE6gH9k");
    let script = script.replace("FILE", directory.join("audit/checkpoint").to_str().unwrap());
    let output = month.shell.run(&script);
    for part in [&format!("{id}  completed  200"), "user.create", "requests are admitted", "0 problems", "tlog-proof"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    month.gateway.stop();
}

#[test]
fn usage_is_added_up_in_four_ways() {
    with_gateway(|office, shell, key| {
        shell.run(&block("keygate usage --by org --per month"));
        let output = shell.run("keygate usage --by key --per day");
        assert!(output.contains(&key[8..17]), "{output}");
        assert!(office.setup.path().join("events.jsonl").exists());
    });
}

#[test]
fn records_of_a_trace_are_found() {
    let office = Office::embedded();
    let more = "trusted_proxies: [127.0.0.1]\ntelemetry: { traces: { endpoint: 'http://127.0.0.1:9' } }\n";
    office.setup.write(&format!("{}{more}", office.setup.text()));
    let key = office.key_in("acme");
    let gateway = office.setup.start();
    let trace = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    assert_eq!(office.setup.client().request("GET", "/api/queries", &key, &[trace], b"").status, 200);
    let shell = office.shell(&key).replace("mZvzkepCv", &key[8..17]);
    let output = shell.run(&block("keygate audit export --key mZvzkepCv | j"));
    assert!(output.contains("4bf92f3577b34da6a3ce929d0e0e4736"), "{output}");
    gateway.stop();
}

#[test]
fn endpoints_of_upstreams_are_shown() {
    let office = Office::embedded();
    let address = office.store_address;
    let one = format!("upstream: {{ endpoints: ['http://{address}'] }}");
    let two = format!(
        "upstreams:\n  store: {{ endpoints: ['http://{address}'] }}\n  \
         reports: {{ endpoints: ['http://127.0.0.1:9'] }}\nroutes:\n  \
         - {{ name: q, path: '/api/**', upstream: store }}\n  - {{ name: r, path: '/r/**', upstream: reports }}"
    );
    office.setup.write(&office.setup.text().replace(&one, &two));
    let gateway = office.setup.start();
    let output = Shell::of(&office.setup).run(&block("keygate upstreams"));
    assert_eq!((output.matches("store").count(), output.matches("reports").count()), (1, 2), "{output}");
    gateway.stop();
}

/// An installation whose listener has the certificate and the ticket key of the page.
pub fn with_certificate() -> Office {
    let office = Office::embedded();
    let shell = Shell::of(&office.setup);
    shell.run(&block("mkdir -p config/tls"));
    let pair = "{ chain: config/tls/localhost.pem, key: config/tls/localhost-key.pem }";
    let tls = format!("tls: {{ certificates: [{pair}], ticket_key: {{ file: config/tls/ticket-key }} }}");
    office.setup.write(&office.setup.text().replace("http2: prior_knowledge", &tls));
    office
}

#[test]
fn certificate_and_ticket_key_of_the_page_are_accepted() {
    let office = with_certificate();
    let output = Shell::of(&office.setup).run("keygate check");
    assert!(output.contains(": ok"), "{output}");
}
