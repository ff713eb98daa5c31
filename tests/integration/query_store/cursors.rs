//! Cursors that clients send: late ones, damaged ones, those of another organization, and after a rotation of keys.

use std::time::Duration;

use domain::clock::Micros;
use domain::secret::Secret;
use http::Method;
use query_store::store::StoreStats;

use super::support::{Answer, DAY, Engine, Fixture, NOW, caller, cursor_key, runtime, with_every_engine};

with_every_engine!(
    each_cursor_is_valid_for_a_day_from_its_creation,
    cursor_can_be_used_again,
    cursor_of_another_organization_is_refused,
    cursor_lifetime_can_be_configured,
);

async fn list_at(fixture: &Fixture, cursor: &str, now: Micros) -> Answer {
    fixture.get_at(fixture.caller, &format!("/api/queries?limit=2&cursor={cursor}"), now).await
}

async fn first_cursor(fixture: &Fixture) -> String {
    fixture.get("/api/queries?limit=2").await.cursor().unwrap()
}

fn each_cursor_is_valid_for_a_day_from_its_creation(engine: Engine) {
    runtime().block_on(async {
        let fixture = Fixture::on(engine).seeded(100).await;
        let all = fixture.collection().await;
        let (mut cursor, mut now) = (first_cursor(&fixture).await, NOW);
        for page in 1..40 {
            let last_moment = Micros(now.after(DAY).0 - 1);
            assert_eq!(list_at(&fixture, &cursor, now.after(DAY)).await.code(), (410, "expired_cursor"), "page {page}");
            fixture.service.collect_garbage(last_moment).await.unwrap();
            let answer = list_at(&fixture, &cursor, last_moment).await;
            assert_eq!(answer.items(), all[page * 2..page * 2 + 2], "page {page}");
            (cursor, now) = (answer.cursor().unwrap(), last_moment);
            let target = format!("/api/queries/{}", all[99 - page]["id"].as_str().unwrap());
            assert_eq!(fixture.write(Method::DELETE, &target, "").await.status, 204);
        }
        let forgotten = now.after(DAY + DAY / 24);
        assert_eq!(fixture.service.collect_garbage(forgotten).await.unwrap().removed, 39);
        let stats = fixture.service.store().stats().await.unwrap();
        assert_eq!(stats, StoreStats { current: 61, ended: 0, snapshots: 0 });
    });
}

fn cursor_can_be_used_again(engine: Engine) {
    runtime().block_on(async {
        let fixture = Fixture::on(engine).seeded(5).await;
        let cursor = first_cursor(&fixture).await;
        let once = list_at(&fixture, &cursor, NOW).await;
        let last = list_at(&fixture, &once.cursor().unwrap(), NOW).await;
        assert_eq!(last.cursor(), None);
        fixture.service.collect_garbage(Micros(NOW.after(DAY).0 - 1)).await.unwrap();
        let again = list_at(&fixture, &cursor, Micros(NOW.after(DAY).0 - 1)).await;
        assert_eq!(again.items(), once.items());
    });
}

#[test]
fn text_other_than_the_cursor_is_refused() {
    runtime().block_on(async {
        let fixture = Fixture::new().seeded(5).await;
        let cursor = first_cursor(&fixture).await;
        let refused = async |text: &str| {
            let answer = list_at(&fixture, text, NOW).await;
            assert_eq!(answer.code(), (400, "invalid_cursor"), "{text}");
        };
        for position in 0..cursor.len() {
            for bit in 0..7 {
                let mut flipped = cursor.clone().into_bytes();
                flipped[position] ^= 1 << bit;
                let flipped = String::from_utf8(flipped).unwrap();
                refused(&form_urlencoded::byte_serialize(flipped.as_bytes()).collect::<String>()).await;
            }
        }
        for garbage in ["", "x", "null", "%00", "%FF", "....", &"A".repeat(cursor.len()), &"A".repeat(10_000)] {
            refused(garbage).await;
        }
        for trailing in ["A", "AAAA", "=", "%3D", "%0A", "%20", "+", "%00"] {
            refused(&format!("{cursor}{trailing}")).await;
        }
        let expired_and_forged = list_at(&fixture, &format!("{cursor}A"), NOW.after(DAY * 2)).await;
        assert_eq!(expired_and_forged.code(), (400, "invalid_cursor"));
    });
}

fn cursor_of_another_organization_is_refused(engine: Engine) {
    runtime().block_on(async {
        let fixture = Fixture::on(engine).seeded(5).await;
        let cursor = first_cursor(&fixture).await;
        let other = caller();
        query_store::seed(&fixture.service, other, 5, NOW).await.unwrap();
        let target = format!("/api/queries?cursor={cursor}");
        assert_eq!(fixture.get_at(other, &target, NOW).await.code(), (400, "invalid_cursor"));
        let colleague = query_store::service::Caller { user: other.user, ..fixture.caller };
        assert_eq!(fixture.get_at(colleague, &target, NOW).await.status, 200);
    });
}

#[test]
fn keys_rotate_without_breaking_sequences() {
    runtime().block_on(async {
        let generated = Fixture::new().seeded(9).await;
        let oldest = first_cursor(&generated).await;
        let file = generated.home.path("data/queries.cursor-key");
        let kept = Secret::new(std::fs::read_to_string(file).unwrap().trim_end().to_owned());

        let fixture = reopen_with(generated, vec![cursor_key(7), (0, kept)]);
        assert_eq!(
            list_at(&fixture, &oldest, NOW).await.status,
            200,
            "sealed with the generated key, which is now configured"
        );
        let old = first_cursor(&fixture).await;

        let fixture = reopen_with(fixture, vec![cursor_key(8), cursor_key(7)]);
        let new = list_at(&fixture, &old, NOW).await.cursor().unwrap();
        assert_eq!(list_at(&fixture, &oldest, NOW).await.code(), (400, "invalid_cursor"));

        let fixture = reopen_with(fixture, vec![cursor_key(8)]);
        assert_eq!(list_at(&fixture, &new, NOW).await.status, 200);
        assert_eq!(list_at(&fixture, &old, NOW).await.code(), (400, "invalid_cursor"));
    });
}

fn reopen_with(mut fixture: Fixture, keys: Vec<(u8, Secret)>) -> Fixture {
    fixture.settings.cursor.keys = keys;
    fixture.reopen()
}

fn cursor_lifetime_can_be_configured(engine: Engine) {
    runtime().block_on(async {
        let fixture =
            Fixture::with(engine, |settings| settings.cursor.lifetime = Duration::from_secs(24)).seeded(5).await;
        let cursor = first_cursor(&fixture).await;
        assert_eq!(list_at(&fixture, &cursor, NOW.after(Duration::from_secs(23))).await.status, 200);
        assert_eq!(
            list_at(&fixture, &cursor, NOW.after(Duration::from_secs(24))).await.code(),
            (410, "expired_cursor")
        );
    });
}
