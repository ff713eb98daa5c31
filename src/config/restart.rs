//! What of the configuration cannot change while a gateway runs.

use super::{AdminSettings, Config, Listener};
use crate::state::redis::Settings as Redis;
use crate::state::{Settings as State, embedded};
use crate::{audit, telemetry};

impl Config {
    /// The keys whose values differ and take effect at a restart only, in the order of the file. Everything else can be
    /// changed while a gateway runs. A key that is new here must be sorted into one of the two.
    pub fn restart_only_changes(&self, new: &Self) -> Vec<&'static str> {
        let Self {
            gateway,
            workers,
            listen,
            admin,
            state,
            audit,
            telemetry,
            session,
            // What can change while it runs.
            source: _,
            trusted_proxies: _,
            max_connections: _,
            max_connections_per_address: _,
            transport: _,
            upstream: _,
            copy_from: _,
            routes: _,
            bad_keys: _,
            lame_duck: _,
            drain: _,
            tunnel_idle: _,
        } = self;
        let mut changed = Changes::default();
        changed.note("gateway", gateway == &new.gateway);
        changed.note("workers", workers == &new.workers);
        changed.listeners(listen, &new.listen);
        changed.admin(admin, &new.admin);
        changed.state(state, &new.state);
        changed.audit(audit, &new.audit);
        changed.telemetry(telemetry, &new.telemetry);
        changed.note("session", session == &new.session);
        changed.0
    }
}

/// The names of what differs.
#[derive(Default)]
struct Changes(Vec<&'static str>);

impl Changes {
    fn note(&mut self, key: &'static str, is_same: bool) {
        if !is_same {
            self.0.push(key);
        }
    }

    fn listeners(&mut self, old: &[Listener], new: &[Listener]) {
        let addresses = |listeners: &[Listener]| listeners.iter().map(|listener| listener.address).collect::<Vec<_>>();
        self.note("listen", addresses(old) == addresses(new));
        let is_tls =
            |listeners: &[Listener]| listeners.iter().map(|listener| listener.tls.is_some()).collect::<Vec<_>>();
        self.note("listen.tls (to have it or not)", old.len() != new.len() || is_tls(old) == is_tls(new));
    }

    fn admin(&mut self, old: &AdminSettings, new: &AdminSettings) {
        let AdminSettings { socket, address } = old;
        self.note("admin.socket", socket == &new.socket);
        self.note("admin.address", address == &new.address);
    }

    fn state(&mut self, old: &State, new: &State) {
        match (old, new) {
            (State::Embedded(old), State::Embedded(new)) => {
                let embedded::Settings { path, quota: _, concurrent: _ } = old;
                self.note("state.embedded.path", path == &new.path);
            }
            (State::Redis(old), State::Redis(new)) => self.redis(old, new),
            _ => self.0.push("state"),
        }
    }

    fn redis(&mut self, old: &Redis, new: &Redis) {
        let Redis { servers, login, sentinel_login, database, tls, prefix, .. } = old;
        let Redis { deadline, lease, on_unavailable, durability, clock, quota: _, concurrent: _, .. } = old;
        self.note("state.redis.url", (servers, database) == (&new.servers, &new.database));
        self.note("state.redis.user or password", login == &new.login);
        self.note("state.redis.sentinel", sentinel_login == &new.sentinel_login);
        self.note("state.redis.tls", tls == &new.tls);
        self.note("state.redis.prefix", prefix == &new.prefix);
        self.note("state.redis.deadline", deadline == &new.deadline);
        self.note("state.redis.lease", lease == &new.lease);
        self.note("state.redis.on_unavailable", on_unavailable == &new.on_unavailable);
        self.note("state.redis.durability", durability == &new.durability);
        self.note("state.redis", clock == &new.clock);
    }

    fn audit(&mut self, old: &audit::Settings, new: &audit::Settings) {
        let audit::Settings { path, durability, on_unavailable, segment_size, segment_age, .. } = old;
        let audit::Settings { retention_age, retention_size, unknown_per_second, gateway: _, .. } = old;
        self.note("audit.path", path == &new.path);
        self.note("audit.durability", durability == &new.durability);
        self.note("audit.on_unavailable", on_unavailable == &new.on_unavailable);
        self.note("audit.segment_size", segment_size == &new.segment_size);
        self.note("audit.segment_age", segment_age == &new.segment_age);
        let retention = (retention_age, retention_size) == (&new.retention_age, &new.retention_size);
        self.note("audit.retention", retention);
        self.note("audit.unknown_per_second", unknown_per_second == &new.unknown_per_second);
    }

    fn telemetry(&mut self, old: &telemetry::Settings, new: &telemetry::Settings) {
        let telemetry::Settings { format, level: _ } = old;
        self.note("telemetry.log", format == &new.format);
    }
}
