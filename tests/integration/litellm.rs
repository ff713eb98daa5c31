//! A real upstream that bills: LiteLLM, whose answers are made up, and whose costs are those of its price list.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::limits::budget_left;
use crate::support::page::block;
use crate::support::{Client, Gateway, Response, eventually, eventually_by, free_address};

/// Field with the cost of a response, in dollars.
const COST: &str = "x-litellm-response-cost";
/// Units of a dollar, by the page.
const UNITS: f64 = 1e8;
/// Models, each with its answer. Their prices differ.
const MODELS: &str = "litellm_settings: { include_cost_in_streaming_usage: true }
model_list:
- { model_name: small, litellm_params: { model: openai/gpt-4o-mini, api_key: none, mock_response: 'Forty-two.' } }
- { model_name: large, litellm_params: { model: openai/gpt-4o, api_key: none, mock_response: 'It is not yet known.' } }
";

/// A running LiteLLM. Its log is printed when the test fails.
struct LiteLlm {
    address: SocketAddr,
    child: Child,
    dir: TempDir,
}

impl LiteLlm {
    fn start() -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/litellm/bin/litellm");
        assert!(program.exists(), "{} is missing: run `make setup` (deploy/setup.sh)", program.display());
        let (dir, address) = (tempfile::tempdir().unwrap(), free_address());
        fs::write(dir.path().join("config.yaml"), MODELS).unwrap();
        let log = File::create(dir.path().join("log")).unwrap();
        let mut command = Command::new(program);
        command.args(["--config", "config.yaml", "--host", "127.0.0.1", "--port", &address.port().to_string()]);
        command.current_dir(dir.path()).env("HOME", dir.path());
        // Only the gateway reaches it; and it takes its price list from its package.
        command.env("LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY", "true");
        command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").env("LITELLM_TELEMETRY", "False");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let mut started = Self { address, child: command.spawn().unwrap(), dir };
        // It takes seconds of computing until it listens, which are longer on a busy machine.
        let computed = format!("/proc/{}/stat", started.child.id());
        eventually_by(
            "LiteLLM listens",
            || fs::read_to_string(&computed).unwrap_or_default(),
            || {
                assert!(started.child.try_wait().unwrap().is_none(), "LiteLLM has ended");
                TcpStream::connect(address).is_ok()
            },
        );
        started
    }
}

impl Drop for LiteLlm {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            println!("{}", fs::read_to_string(self.dir.path().join("log")).unwrap_or_default());
        }
    }
}

/// Kind of an answer; a streamed one comes with or without its usage.
#[derive(Clone, Copy, PartialEq)]
enum Streamed {
    No,
    WithUsage,
    WithoutUsage,
}

fn ask(client: &mut Client, key: &str, model: &str, streamed: Streamed) -> Response {
    let message = json!([{ "role": "user", "content": "What is the answer?" }]);
    let mut body = json!({ "model": model, "messages": message, "stream": streamed != Streamed::No });
    if streamed == Streamed::WithUsage {
        body["stream_options"] = json!({ "include_usage": true });
    }
    let headers = [("Content-Type", "application/json")];
    let response = client.request("POST", "/v1/chat/completions", key, &headers, body.to_string().as_bytes());
    assert_eq!(response.status, 200, "{response:?}");
    response
}

/// Units that an answer has cost, by the upstream; none of one that does not say it.
fn billed(response: &Response) -> Option<f64> {
    response.header(COST).map(|dollars| dollars.parse::<f64>().unwrap() * UNITS)
}

#[test]
fn bill_of_a_language_model_is_what_the_budget_has_spent() {
    let upstream = LiteLlm::start();
    let page = block("# Five dollars a month, and at most one");
    let (gateway, key) = Gateway::with(&[upstream.address], &page).and_secret();
    let mut client = Client::connect(gateway.address);
    let (mut bill, mut answers) = (0.0, 0);
    for _ in 0..10 {
        for model in ["small", "large"] {
            let response = ask(&mut client, &key, model, Streamed::No);
            let cost = billed(&response).expect("a cost");
            assert!(cost > 0.0 && response.header(COST) == response.header("x-litellm-response-cost-original"));
            bill += cost;
            answers += 1;
        }
    }
    let spent = |answers: usize| {
        eventually("the exchanges have ended", || gateway.records().len() == answers);
        gateway.records().iter().map(|record| record.cost.unwrap()).sum::<u64>()
    };
    assert!((bill - bill.round()).abs() < 1e-3, "prices are whole numbers of units: {bill}");
    assert_eq!(spent(answers), bill.round() as u64, "the bill, to the unit");

    // The head of a streamed answer is sent before its cost is known, which is in its last event.
    for model in ["small", "large"] {
        let response = ask(&mut client, &key, model, Streamed::WithUsage);
        assert_eq!(billed(&response), None);
        assert_eq!(response.header("x-litellm-response-cost-original"), Some("0.0"), "the trap that the page names");
        let body = String::from_utf8(response.body).unwrap();
        assert!(body.contains("data: [DONE]"), "{body}");
        let usage = body.lines().filter_map(|line| line.strip_prefix("data: ")).find(|data| data.contains("\"cost\""));
        let usage: Value = serde_json::from_str(usage.expect("an event with the cost")).unwrap();
        bill += usage["usage"]["cost"].as_f64().unwrap() * UNITS;
        answers += 1;
    }
    assert!((bill - bill.round()).abs() < 1e-3, "prices are whole numbers of units: {bill}");
    assert_eq!(spent(answers), bill.round() as u64, "the bill of the streams as well, to the unit");

    // The client of this one did not ask for its usage: the reservation is the cost.
    ask(&mut client, &key, "small", Streamed::WithoutUsage);
    let used = bill.round() as u64 + 1_000_000;
    assert_eq!(spent(answers + 1), used);
    let last = ask(&mut client, &key, "small", Streamed::No);
    assert_eq!(budget_left(&last).0, 500_000_000 - used - 1_000_000, "what the customer sees");
}
