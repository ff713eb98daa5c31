//! Requests for single queries, and every refusal.

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::json;

use super::support::{Answer, Fixture, NOW, caller, request, runtime};

#[test]
fn query_is_created_read_replaced_and_deleted() {
    runtime().block_on(async {
        let fixture = Fixture::new();
        let body = r#"{"name":"Orders","sql":"select * from orders"}"#;
        let created = fixture.write(Method::POST, "/api/queries", body).await;
        let location = created.headers["location"].to_str().unwrap();
        let id = created.body["id"].as_str().unwrap();
        assert_eq!((created.status.as_u16(), location), (201, &*format!("/api/queries/{id}")));
        let expected = json!({
            "id": id, "name": "Orders", "sql": "select * from orders",
            "created_at": NOW.to_string(), "updated_at": NOW.to_string(), "created_by": fixture.caller.user,
        });
        assert_eq!(created.body, expected);
        assert_eq!(fixture.get(location).await.body, expected);

        let body = r#"{"sql":"select 2","name":"Two"}"#;
        let replaced = fixture.write(Method::PUT, location, body).await;
        assert_eq!((replaced.status.as_u16(), &replaced.body["name"]), (200, &json!("Two")));
        assert_eq!(fixture.get(location).await.body, replaced.body);
        assert_eq!(fixture.get("/api/queries").await.items(), [replaced.body]);

        assert_eq!(fixture.write(Method::DELETE, location, "").await.status, 204);
        assert_eq!(fixture.get(location).await.code(), (404, "not_found"));
        assert_eq!(fixture.write(Method::PUT, location, body).await.code(), (404, "not_found"));
        assert_eq!(fixture.write(Method::DELETE, location, "").await.code(), (404, "not_found"));
    });
}

#[test]
fn query_of_another_organization_does_not_exist() {
    runtime().block_on(async {
        let fixture = Fixture::new().seeded(1).await;
        let id = fixture.get("/api/queries").await.items()[0]["id"].as_str().unwrap().to_owned();
        let target = format!("/api/queries/{id}");
        assert_eq!(fixture.get_at(caller(), &target, NOW).await.code(), (404, "not_found"));
        let fixture = Fixture { caller: caller(), ..fixture };
        assert_eq!(fixture.write(Method::DELETE, &target, "").await.code(), (404, "not_found"));
        let body = r#"{"name":"mine","sql":"select 1"}"#;
        assert_eq!(fixture.write(Method::PUT, &target, body).await.code(), (404, "not_found"));
    });
}

#[test]
fn request_without_a_complete_identity_is_refused() {
    runtime().block_on(async {
        let fixture = Fixture::new().seeded(1).await;
        let (org, user) = (fixture.caller.org.to_string(), fixture.caller.user.to_string());
        let cases: [&[(&str, &str)]; 9] = [
            &[],
            &[("x-org-id", &org)],
            &[("x-user-id", &user)],
            &[("x-org-id", &user), ("x-user-id", &org)],
            &[("x-org-id", ""), ("x-user-id", &user)],
            &[("x-org-id", &org), ("x-user-id", "usr_1")],
            &[("x-org-id", &org), ("x-org-id", &org), ("x-user-id", &user)],
            &[("x-org-id", &org), ("x-user-id", &user), ("x-user-id", &user)],
            &[("x-org-id", &org), ("x_user_id", &user)],
        ];
        for headers in cases {
            for method in [Method::GET, Method::POST, Method::DELETE, Method::PATCH] {
                let mut request = Request::builder().method(method).uri("/api/queries");
                for (name, value) in headers {
                    request = request.header(*name, *value);
                }
                let answer = fixture.send(request.body(Full::default()).unwrap(), NOW).await;
                assert_eq!(answer.code(), (403, "no_identity"), "{headers:?}");
                assert!(answer.body["detail"].as_str().unwrap().contains("gateway"));
            }
        }
    });
}

#[test]
fn problem_has_its_code_and_request_id() {
    runtime().block_on(async {
        let fixture = Fixture::new();
        let nowhere = request(fixture.caller, Method::GET, "/api/nothing").header("x-request-id", "abc-1");
        let answer = fixture.send(nowhere.body(Full::default()).unwrap(), NOW).await;
        assert_eq!(answer.headers["content-type"], "application/problem+json");
        let expected = json!({
            "type": "about:blank", "title": "Not Found", "status": 404, "code": "not_found",
            "detail": "there is no such resource", "request_id": "abc-1",
        });
        assert_eq!(answer.body, expected);
        let made_up = fixture.get("/api/nothing").await;
        assert_eq!(made_up.body["request_id"].as_str().unwrap().len(), 36);
    });
}

#[test]
fn unsupported_method_is_answered_with_allow() {
    runtime().block_on(async {
        let fixture = Fixture::new().seeded(1).await;
        let id = fixture.get("/api/queries").await.items()[0]["id"].as_str().unwrap().to_owned();
        let item = format!("/api/queries/{id}");
        for (method, target, allow) in [
            (Method::PUT, "/api/queries", "GET, HEAD, POST"),
            (Method::DELETE, "/api/queries", "GET, HEAD, POST"),
            (Method::POST, &item, "GET, HEAD, PUT, DELETE"),
            (Method::PATCH, &item, "GET, HEAD, PUT, DELETE"),
            (Method::POST, "/ready", "GET, HEAD"),
        ] {
            let answer = fixture.write(method, target, "{}").await;
            assert_eq!(answer.code(), (405, "method_not_allowed"), "{target}");
            assert_eq!(answer.headers["allow"], allow);
        }
    });
}

#[test]
fn body_that_is_no_valid_query_is_refused() {
    runtime().block_on(async {
        let fixture = Fixture::new();
        let long = format!(r#"{{"name":"{}","sql":"select 1"}}"#, "x".repeat(201));
        let large = format!(r#"{{"name":"x","sql":"{}"}}"#, "x".repeat(64 * 1024 + 1));
        for body in [
            "",
            "{",
            "[]",
            r#"["select 1","mine"]"#,
            "null",
            r#"{"name":"x"}"#,
            r#"{"sql":"select 1"}"#,
            r#"{"name":"x","sql":1}"#,
            r#"{"name":null,"sql":"select 1"}"#,
            r#"{"name":"x","sql":"select 1","id":"1"}"#,
            r#"{"name":"x","name":"y","sql":"select 1"}"#,
            r#"{"name":"x","sql":"select 1"} {}"#,
            r#"{"name":" ","sql":"select 1"}"#,
            r#"{"name":"x","sql":"\n"}"#,
            r#"{"name":"x\u0000","sql":"select 1"}"#,
            &long,
            &large,
        ] {
            let answer = fixture.write(Method::POST, "/api/queries", body).await;
            assert_eq!(answer.code(), (400, "invalid_body"), "{body:.80}");
            let detail = answer.body["detail"].as_str().unwrap();
            assert!(!detail.is_empty() && !detail.contains("struct"), "a detail without names of the code: {detail}");
        }
        assert_eq!(fixture.get("/api/queries").await.items().len(), 0);
    });
}

#[test]
fn body_of_another_type_or_size_is_refused() {
    let send = async |fixture: &Fixture, headers: &[(&str, &str)], body: &str| -> Answer {
        let mut request = request(fixture.caller, Method::POST, "/api/queries");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        fixture.send(request.body(Full::from(Bytes::from(body.to_owned()))).unwrap(), NOW).await
    };
    runtime().block_on(async {
        let fixture = Fixture::new();
        let good = r#"{"name":"x","sql":"select 1"}"#;
        let json = ("content-type", "application/json");
        for headers in [
            &[][..],
            &[("content-type", "text/plain")],
            &[("content-type", "application/jsonp")],
            &[json, json],
            &[json, ("content-encoding", "gzip")],
        ] {
            let answer = send(&fixture, headers, good).await;
            assert_eq!(answer.code(), (415, "unsupported_media_type"), "{headers:?}");
        }
        let parameters = [("content-type", "Application/JSON; charset=utf-8")];
        assert_eq!(send(&fixture, &parameters, good).await.status, 201);
        let limit = 1 << 20;
        let padded = |size: usize| format!("{good}{}", " ".repeat(size - good.len()));
        assert_eq!(send(&fixture, &[json], &padded(limit)).await.status, 201);
        assert_eq!(send(&fixture, &[json], &padded(limit + 1)).await.code(), (413, "body_too_large"));
    });
}

#[test]
fn health_checks_need_no_identity() {
    runtime().block_on(async {
        let fixture = Fixture::new();
        for target in ["/live", "/ready"] {
            let answer = fixture.send(Request::get(target).body(Full::default()).unwrap(), NOW).await;
            assert_eq!(answer.status, 200, "{target}");
        }
    });
}
