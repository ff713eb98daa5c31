//! Sequences of pages, over HTTP.

use http::Method;
use serde_json::Value;

use super::support::{Engine, Fixture, runtime, with_every_engine};

with_every_engine!(
    each_query_is_listed_once_with_every_page_size,
    writes_between_pages_do_not_show,
    sequence_continues_after_a_restart,
    limits_follow_the_contract,
    empty_collection_is_one_empty_page,
);

fn each_query_is_listed_once_with_every_page_size(engine: Engine) {
    runtime().block_on(async {
        let fixture = Fixture::on(engine).seeded(250).await;
        let all = fixture.collection().await;
        assert_eq!(all.len(), 250);
        assert!(all.is_sorted_by(|newer, older| newer["created_at"].as_str() > older["created_at"].as_str()));
        for (limit, sizes) in [("1", [1; 250].to_vec()), ("7", [&[7; 35][..], &[5]].concat())] {
            assert_sizes(&fixture, limit, &sizes, &all).await;
        }
        assert_sizes(&fixture, "20", &[&[20; 12][..], &[10]].concat(), &all).await;
        assert_sizes(&fixture, "125", &[100, 100, 50], &all).await;
        assert_sizes(&fixture, "1000", &[100, 100, 50], &all).await;
        assert_sizes(&fixture, "50", &[50; 5], &all).await;
    });
}

async fn assert_sizes(fixture: &Fixture, limit: &str, sizes: &[usize], all: &[Value]) {
    let pages = fixture.pages(limit, async |_| ()).await;
    assert_eq!(pages.iter().map(Vec::len).collect::<Vec<_>>(), sizes, "limit {limit}");
    assert_eq!(pages.concat(), all, "limit {limit}");
}

fn writes_between_pages_do_not_show(engine: Engine) {
    runtime().block_on(async {
        for limit in ["1", "7", "20", "100"] {
            let fixture = Fixture::on(engine).seeded(250).await;
            let all = fixture.collection().await;
            let mut done = 0;
            let pages = fixture
                .pages(limit, async |_| {
                    while done < 50 {
                        disturb(&fixture, &all, done).await;
                        fixture.service.collect_garbage(super::support::NOW).await.unwrap();
                        done += 1;
                        if done % 5 == 0 {
                            break;
                        }
                    }
                })
                .await;
            assert_eq!(pages.concat(), all, "limit {limit}");
            if limit != "100" {
                assert_eq!(done, 50);
                assert_disturbed(&fixture.collection().await, &all);
            }
        }
    });
}

/// Makes one insertion, one deletion and one edit, spread over the collection.
async fn disturb(fixture: &Fixture, all: &[Value], number: usize) {
    let target = |at: usize| format!("/api/queries/{}", all[at % all.len()]["id"].as_str().unwrap());
    let body = format!(r#"{{"name":"new {number}","sql":"select {number}"}}"#);
    assert_eq!(fixture.write(Method::POST, "/api/queries", &body).await.status, 201);
    assert_eq!(fixture.write(Method::DELETE, &target(number * 5), "").await.status, 204);
    assert_eq!(fixture.write(Method::PUT, &target(number * 5 + 2), &body).await.status, 200);
}

fn assert_disturbed(now: &[Value], before: &[Value]) {
    assert_eq!(now.len(), 250);
    let names = |from: &[Value]| from.iter().map(|query| query["name"].to_string()).collect::<Vec<_>>();
    let (now, before) = (names(now), names(before));
    assert_eq!(now.iter().filter(|name| before.contains(name)).count(), 150);
    assert!(now[..50].iter().rev().map(String::as_str).eq((0..50).map(|n| format!("\"new {n}\"")).collect::<Vec<_>>()));
}

fn sequence_continues_after_a_restart(engine: Engine) {
    runtime().block_on(async {
        let fixture = Fixture::on(engine).seeded(30).await;
        let all = fixture.collection().await;
        let first = fixture.get("/api/queries").await;
        let target = format!("/api/queries/{}", all[25]["id"].as_str().unwrap());
        assert_eq!(fixture.write(Method::DELETE, &target, "").await.status, 204);
        let fixture = fixture.reopen();
        let second = fixture.get(&format!("/api/queries?cursor={}", first.cursor().unwrap())).await;
        assert_eq!([first.items(), second.items()].concat(), all);
        assert_eq!(fixture.collection().await.len(), 29);
    });
}

fn limits_follow_the_contract(engine: Engine) {
    runtime().block_on(async {
        let fixture = Fixture::on(engine).seeded(120).await;
        for (query, size) in [
            ("", 20),
            ("?", 20),
            ("?limit=1", 1),
            ("?limit=100", 100),
            ("?limit=101", 100),
            ("?limit=99999999999999999999", 100),
        ] {
            assert_eq!(fixture.get(&format!("/api/queries{query}")).await.items().len(), size, "{query}");
        }
        let refused = ["limit=0", "limit=-1", "limit=abc", "limit=", "limit=1.5", "limit=5&limit=5", "offset=5"];
        for query in refused.into_iter().chain(["page=2", "cursor=a&cursor=a", "Limit=5", "x"]) {
            let answer = fixture.get(&format!("/api/queries?{query}")).await;
            assert_eq!(answer.code(), (400, "invalid_parameter"), "{query}");
        }
    });
}

fn empty_collection_is_one_empty_page(engine: Engine) {
    runtime().block_on(async {
        let answer = Fixture::on(engine).get("/api/queries").await;
        assert_eq!(answer.body.to_string(), r#"{"items":[]}"#);
    });
}
