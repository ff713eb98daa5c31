//! Blocks of `docs/verification.md`: a service asks whether a key is good.

use std::fs;

use crate::procedures::Office;
use crate::support::free_address;
use crate::support::page::block;

/// Asks with a good key and a bad one, each with two methods, and without a key.
const PYTHON: &str = r"import os
for key in (os.environ['KEY'], os.environ['BAD']):
    for method in ('GET', 'PUT'):
        fields = {'Authorization': 'Bearer ' + key}
        answer = verify(method, '/api/queries?a=b', 'api.example.com', '192.0.2.7', fields)
        print(answer.status, answer.headers['X-User-Id'])
print(verify('GET', '/api/queries', 'h', '192.0.2.7', {}).status)
";

/// The same by a server that asks for each of its own requests.
const NODE: &str = r"import { createServer } from 'node:http';
const server = createServer(async (request, response) => {
  const answer = await verify(request);
  response.end(`${answer.status} ${answer.headers.get('x-user-id')}\n`);
}).listen(0, '127.0.0.1', async () => {
  const url = `http://127.0.0.1:${server.address().port}/api/queries?a=b`;
  for (const key of [process.env.KEY, process.env.BAD]) {
    for (const method of ['GET', 'PUT']) {
      const answer = await fetch(url, { method, headers: { Authorization: `Bearer ${key}` } });
      process.stdout.write(await answer.text());
    }
  }
  process.stdout.write(await (await fetch(url)).text());
  server.close();
  server.closeAllConnections();
});
";

#[test]
fn service_asks_whether_a_key_is_good_as_the_page_says() {
    let office = Office::embedded();
    let decisions = free_address();
    let page = "serves: decisions, decisions: { protocol: forward_auth, slots: none }";
    let listeners = format!("listen: [{{ address: '{decisions}', {page} }}, ");
    let routes = "routes: [{ name: queries, path: /api/queries, methods: [GET], permission: 'queries:read' }]\n";
    office.setup.write(&(office.setup.text().replace("listen: [", &listeners) + routes));
    let gateway = office.setup.start();
    let key = office.key_in("acme");
    let shell = office.shell(&key).replace("127.0.0.1:8090", &decisions.to_string()).set("BAD", "sk_live_bad");

    let question = block("curl -si http://127.0.0.1:8090/v1/forwar");
    let answer = shell.run(&question);
    for field in ["HTTP/1.1 200 OK", "x-user-id: usr_", "x-permissions: queries:read", "x-auth-method: api-key"] {
        assert!(answer.contains(field), "{field}: {answer}");
    }
    let refused = shell.run(&question.replace("$KEY", "$BAD"));
    assert!(refused.contains("HTTP/1.1 401 ") && refused.contains("\"code\":\"invalid_token\""), "{refused}");
    let refused = shell.run(&question.replace("X-Forwarded-For: 192.0.2.7", "X-Other: 1"));
    assert!(refused.contains("HTTP/1.1 400 ") && refused.contains("\"code\":\"malformed_decision\""), "{refused}");

    for (program, verify, then) in [
        ("python3 verify.py", block("import urllib.error, urllib.request"), PYTHON),
        ("node verify.mjs", block("// `request` is one of node:http."), NODE),
    ] {
        let file = program.rsplit(' ').next().unwrap();
        let text = format!("{verify}\n{then}").replace("127.0.0.1:8090", &decisions.to_string());
        fs::write(office.setup.path().join(file), text).unwrap();
        let output = shell.run(program);
        let statuses: Vec<&str> = output.lines().map(|line| &line[..3]).collect();
        assert_eq!(statuses, ["200", "404", "401", "401", "401"], "{program}: {output}");
        assert!(output.starts_with("200 usr_"), "{program}: {output}");
    }
    gateway.stop();
}
