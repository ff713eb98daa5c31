//! Keys whose changes take effect only at a restart.

use super::{AdminSettings, Config, Listener};
use journal::audit;
use platform::telemetry;
use state::redis::Settings as Redis;
use state::{Settings as State, embedded};

impl Config {
    /// The keys whose values differ from `new` and that take effect only at a restart, in the order of the file. All
    /// other keys can change while a gateway runs.
    ///
    /// The pattern below names every field, so that a new one does not compile before it is sorted into either group.
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
            federation,
            leaks,
            problem_types,
            otel_metrics,
            // Can change while the gateway runs.
            source: _,
            trusted_proxies: _,
            max_connections: _,
            max_connections_per_address: _,
            transport: _,
            upstreams: _,
            routes: _,
            cors: _,
            bad_keys: _,
            sign_ins: _,
            public: _,
            management: _,
            bounds: _,
            shipping: _,
            lame_duck: _,
            drain: _,
            traces: _,
            tunnel_idle: _,
            secrets: _,
            access_log: _,
        } = self;
        let mut changed = Changes::default();
        changed.compare("gateway", gateway == &new.gateway);
        changed.compare("workers", workers == &new.workers);
        changed.listeners(listen, &new.listen);
        changed.admin(admin, &new.admin);
        changed.state(state, &new.state);
        changed.audit(audit, &new.audit);
        changed.telemetry(telemetry, &new.telemetry);
        changed.compare("telemetry.otel_metrics", otel_metrics == &new.otel_metrics);
        changed.compare("session", session == &new.session);
        changed.compare("federation", federation == &new.federation);
        changed.compare("leaks", leaks == &new.leaks);
        changed.compare("problems", problem_types == &new.problem_types);
        changed.0
    }
}

/// Names of the keys that differ.
#[derive(Default)]
struct Changes(Vec<&'static str>);

impl Changes {
    fn compare(&mut self, key: &'static str, is_same: bool) {
        if !is_same {
            self.0.push(key);
        }
    }

    fn listeners(&mut self, old: &[Listener], new: &[Listener]) {
        let addresses = |listeners: &[Listener]| listeners.iter().map(|listener| listener.address).collect::<Vec<_>>();
        self.compare("listen", addresses(old) == addresses(new));
        let is_tls =
            |listeners: &[Listener]| listeners.iter().map(|listener| listener.tls.is_some()).collect::<Vec<_>>();
        self.compare("listen.tls (to have it or not)", old.len() != new.len() || is_tls(old) == is_tls(new));
    }

    fn admin(&mut self, old: &AdminSettings, new: &AdminSettings) {
        let AdminSettings { socket, address } = old;
        self.compare("admin.socket", socket == &new.socket);
        self.compare("admin.address", address == &new.address);
    }

    fn state(&mut self, old: &State, new: &State) {
        match (old, new) {
            (State::Embedded(old), State::Embedded(new)) => {
                let embedded::Settings { path, quota: _, concurrent: _, plans: _ } = old;
                self.compare("state.embedded.path", path == &new.path);
            }
            (State::Redis(old), State::Redis(new)) => self.redis(old, new),
            _ => self.0.push("state"),
        }
    }

    fn redis(&mut self, old: &Redis, new: &Redis) {
        let Redis { servers, login: _, sentinel_login: _, database, tls, prefix, .. } = old;
        let Redis { deadline, lease, on_unavailable, durability, clock, quota: _, concurrent: _, plans: _, .. } = old;
        self.compare("state.redis.url", (servers, database) == (&new.servers, &new.database));
        self.compare("state.redis.tls", tls == &new.tls);
        self.compare("state.redis.prefix", prefix == &new.prefix);
        self.compare("state.redis.deadline", deadline == &new.deadline);
        self.compare("state.redis.lease", lease == &new.lease);
        self.compare("state.redis.on_unavailable", on_unavailable == &new.on_unavailable);
        self.compare("state.redis.durability", durability == &new.durability);
        self.compare("state.redis", clock == &new.clock);
    }

    fn audit(&mut self, old: &audit::Settings, new: &audit::Settings) {
        let audit::Settings { path, durability, on_unavailable, segment_size, segment_age, .. } = old;
        let audit::Settings {
            retention_age, retention_size, retention_by_volume, retention_unshipped, low_water, ..
        } = old;
        let audit::Settings { unknown_per_second, refusals, addresses, checkpoints, gateway: _, .. } = old;
        self.compare("audit.path", path == &new.path);
        self.compare("audit.durability", durability == &new.durability);
        self.compare("audit.on_unavailable", on_unavailable == &new.on_unavailable);
        self.compare("audit.segment_size", segment_size == &new.segment_size);
        self.compare("audit.segment_age", segment_age == &new.segment_age);
        let size = (retention_size, retention_by_volume) == (&new.retention_size, &new.retention_by_volume);
        self.compare("audit.retention", size && retention_age == &new.retention_age);
        self.compare("audit.retention.unshipped", retention_unshipped == &new.retention_unshipped);
        self.compare("audit.low_water", low_water == &new.low_water);
        self.compare("audit.unknown_per_second", unknown_per_second == &new.unknown_per_second);
        self.compare("audit.addresses", addresses == &new.addresses);
        self.compare("audit.refusals", refusals == &new.refusals);
        self.compare("audit.checkpoints", checkpoints == &new.checkpoints);
    }

    fn telemetry(&mut self, old: &telemetry::Settings, new: &telemetry::Settings) {
        let telemetry::Settings { format, level: _ } = old;
        self.compare("telemetry.log", format == &new.format);
    }
}
