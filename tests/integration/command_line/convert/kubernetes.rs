//! `keygate convert kubernetes` and `agentgateway`: keys that policies name.

use serde_json::json;

use super::*;

/// Texts of the files that no output may have.
const SECRETS: [&str; 14] = [
    "a-key-of-another-harry",
    "a-key-of-harry-in-kong",
    "a-second-key-of-harry",
    "a-password-of-harry",
    "a-key-that-no-object-names",
    "a-key-of-another-kind",
    "a-key-of-client-one",
    "a-key-of-client-two",
    "a-key-that-envoy-ignores",
    "a-key-of-an-agent",
    "another-key-of-an-agent",
    "a-key-in-a-config-map",
    "a-key-with-a-name",
    "a-key-without-a-name",
];

#[track_caller]
fn assert_no_secret(ended: &Ended) {
    for secret in SECRETS {
        let encoded = data_encoding::BASE64.encode(secret.as_bytes());
        for text in [secret, &encoded] {
            assert!(!ended.out.contains(text) && !ended.err.contains(text), "{text}: {ended:?}");
        }
    }
}

#[test]
fn secrets_that_consumers_and_policies_name_are_converted() {
    let ended = converted("kubernetes", "kubernetes.yaml", "--permissions-from groups --email-from custom_id");
    assert_eq!(ended.code, 4, "{ended:?}");
    assert_no_secret(&ended);
    let harry = "harry@example.com";
    let users = [
        (harry, Some("[\"gold\",\"readers\"]")),
        ("client1@consumer.invalid", Some("[]")),
        ("client2@consumer.invalid", Some("[]")),
        ("envoy/clients/harry@consumer.invalid", Some("[]")),
        ("agents/agents/client1@consumer.invalid", Some("[]")),
        ("agent2@consumer.invalid", Some("[]")),
        ("agent3@consumer.invalid", Some("[]")),
    ];
    let expires = format!(",\"expires\":\"{}\"", expiry_in(&ended));
    let keys = [
        (harry, "harry", "a-key-of-harry-in-kong", &*expires),
        (harry, "harry", "a-second-key-of-harry", ""),
        (users[1].0, "client1", "a-key-of-client-one", ""),
        (users[2].0, "client2", "a-key-of-client-two", ""),
        (users[3].0, "envoy/clients/harry", "a-key-of-another-harry", ""),
        (users[4].0, "agents/agents/client1", "a-key-of-an-agent", ",\"tags\":{\"group\":\"sales\"}"),
        (users[5].0, "agent2", "another-key-of-an-agent", ""),
        (users[6].0, "agent3", "a-third-key-of-an-agent", ",\"tags\":{\"group\":\"engineering\"}"),
    ];
    // The order of `stringData` and `data` says nothing.
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&ended.out), sorted(&document(&users, &keys)));
    let findings = [
        ("KongConsumer kong/harry.credentials[3]", "a credential other than a key"),
        ("KongConsumer kong/harry.metadata.annotations.konghq.com/plugins", "plugins of a consumer"),
        ("KongConsumer kong/idle", "has no key"),
        ("Secret kong/unnamed", "is named by no KongConsumer and no policy"),
        ("SecurityPolicy envoy/keys.spec.apiKeyAuth.extractFrom", "credentials: { headers:"),
        ("Secret envoy/more-clients.data", "only the first key of a client"),
        ("Secret envoy/clients.harry", "this one is envoy/clients/harry"),
        ("Secret agents/agents.client1", "this one is agents/agents/client1"),
        ("Secret agents/agents.client1.metadata.limits", "a tag is a text"),
        ("ConfigMap agents/digests.agent4", "only digests from a ConfigMap"),
    ];
    assert_findings(&ended, &findings);
    assert!(ended.err.contains("converted 7 users with 8 keys"), "{}", ended.err);
}

#[test]
fn list_as_json_is_converted_as_well() {
    let secret = json!({
        "kind": "Secret", "metadata": { "name": "a" }, "type": "Opaque", "data": { "x": "YS1rZXktb2Ytc29tZS1jbGllbnQ=" }
    });
    let policy = json!({ "apiKeyAuth": { "credentialRefs": [{ "name": "a" }] } });
    let policy = json!({ "kind": "SecurityPolicy", "metadata": { "name": "b" }, "spec": policy });
    let list = json!({ "kind": "List", "items": [secret, policy] });
    let ended = convert_text("kubernetes", &list.to_string(), "");
    assert_eq!(ended.code, 0, "{ended:?}");
    let email = "x@consumer.invalid";
    assert_eq!(ended.out, document(&[(email, None)], &[(email, "x", "a-key-of-some-client", "")]));
}

#[test]
fn keys_of_the_configuration_of_agentgateway_are_converted() {
    let ended = converted("agentgateway", "agentgateway.yaml", "");
    assert_eq!(ended.code, 4, "{ended:?}");
    assert_no_secret(&ended);
    let unnamed = format!("key-{}", &KeyDigest::of(b"a-key-without-a-name").to_hex()[..8]);
    let of = |name: &str| format!("{name}@consumer.invalid");
    let (example, second, digest) = (of("example%20key"), of(&unnamed), of("digest"));
    let keys = [
        (&*example, "Example key", "a-key-with-a-name", ",\"tags\":{\"name\":\"Example key\",\"owner\":\"platform\"}"),
        (&*second, &*unnamed, "a-key-without-a-name", ""),
        (&*digest, "digest", "a-key-by-its-digest", ",\"tags\":{\"name\":\"digest\"}"),
    ];
    assert_eq!(ended.out, document(&[(&example, None), (&second, None), (&digest, None)], &keys));
    let findings = [
        ("llm.policies.apiKey.keys[1].allowedModels", "the models that a key may use"),
        ("llm.policies.apiKey.location", "credentials: { headers:"),
    ];
    assert_findings(&ended, &findings);
}

#[test]
fn flaws_of_objects_are_errors_with_their_places() {
    let secret = |data: &str| {
        format!(
            "kind: Secret\nmetadata: {{ name: a, namespace: n }}\n{data}\n---\nkind: AgentgatewayPolicy\nmetadata: {{ \
             name: b, namespace: n }}\nspec: {{ traffic: {{ apiKeyAuthentication: {{ secretRef: {{ name: a }} }} }} \
             }}\n"
        )
    };
    let hash = |hash: &str| secret(&format!("stringData: {{ c: '{{\"keyHash\": \"{hash}\"}}' }}"));
    for (text, place, what) in [
        (secret("data: { c: '%%%' }"), "3:12: Secret n/a.data.c", "is no base64 of a text"),
        (secret("data: { c: '/w==' }"), "3:12: Secret n/a.data.c", "is no base64 of a text"),
        (secret("stringData: { c: '{\"key' }"), "3:18: Secret n/a.c", "is no JSON with `key` or `keyHash`"),
        (secret("stringData: { c: '{}' }"), "3:18: Secret n/a.c", "has neither `key` nor `keyHash`"),
        (secret("stringData: { c: \"KEY\\n\" }"), "3:18: Secret n/a.c.key", "no request can present it"),
        (secret("stringData: { c: '<KEY>' }"), "3:18: Secret n/a.c.key", "render the file first"),
        (hash("sha512:KEY"), "3:18: Secret n/a.c.keyHash", "is not `sha256:` and the 64 hexadecimal digits"),
        (hash(&"a".repeat(64)), "3:18: Secret n/a.c.keyHash", "is not `sha256:` and the 64 hexadecimal digits"),
        (secret("").replace("name: a,", "name: x,"), "7:63: AgentgatewayPolicy n/b", "names no object of the file"),
        ("a: 1\n".to_owned(), "1:1: [0]", "is no object of Kubernetes"),
        ("kind: Secret\nmetadata: { name: a }\n---\nkind: x\nkind: y\n".to_owned(), "5:1: syntax", "is given twice"),
    ] {
        let ended = convert_text("kubernetes", &text, "");
        assert_eq!((ended.code, &*ended.out), (2, ""), "{text}: {ended:?}");
        let is_there = |line: &str| line.contains(place) && line.contains(what);
        assert!(ended.err.lines().any(is_there) && !ended.err.contains("KEY"), "{place}: {what}: {}", ended.err);
    }
}
