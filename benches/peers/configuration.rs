//! Configuration of each peer for the job, and the command that starts it with that.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::job::{CONCURRENT, Job, NO_LIMIT};
use super::{Frontend, Peer, Questions, Setup, minimal};

/// Files of the modules that nginx needs for Lua and for Redis, as Debian installs them.
pub(crate) const LUA_MODULES: [&str; 3] = [
    "/usr/lib/nginx/modules/ngx_http_lua_module.so",
    "/usr/share/lua/5.1/resty/core.lua",
    "/usr/share/lua/5.1/nginx/redis.lua",
];

/// The proxy on Pingora, which `make pingora` builds.
pub(crate) const PINGORA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/peers/release/keygate-pingora-peer");

/// The command, and the directory of the journal or the log.
pub(crate) fn command(
    peer: Peer,
    job: &Job,
    setup: &Setup<'_>,
    dir: &Path,
    address: SocketAddr,
) -> (Command, Option<PathBuf>) {
    match peer {
        Peer::Keygate => keygate(job, setup, dir, address, "written"),
        Peer::KeygateSynced => keygate(job, setup, dir, address, "synced"),
        Peer::Haproxy => haproxy(job, setup, dir, address),
        Peer::NginxLua => nginx(job, setup, dir, address, true),
        Peer::NginxPure => nginx(job, setup, dir, address, false),
        Peer::Hyper => minimal::command(job, setup, dir, address, minimal::Codec::Hyper),
        Peer::Direct => minimal::command(job, setup, dir, address, minimal::Codec::Direct),
        Peer::Pingora => {
            let (settings, log) = minimal::write_settings(job, setup, dir, address, minimal::Codec::Hyper);
            let mut command = wrapped(setup.wrapper, PINGORA);
            command.arg(settings);
            (command, Some(log))
        }
    }
}

fn keygate(
    job: &Job,
    setup: &Setup<'_>,
    dir: &Path,
    address: SocketAddr,
    durability: &str,
) -> (Command, Option<PathBuf>) {
    let of_job = job.dir.path().display();
    let listen = match setup.frontend {
        Frontend::Plain => String::new(),
        Frontend::Tls => format!(
            ", tls: {{ minimum: '1.3', certificates: [{{ chain: '{of_job}/certificate.pem', key: \
             '{of_job}/certificate.key' }}] }}"
        ),
        Frontend::Http2 => ", http2: prior_knowledge".to_owned(),
        Frontend::Decisions(Questions { protocol, slots }) => {
            format!(", serves: decisions, decisions: {{ protocol: {protocol}, slots: {slots} }}")
        }
    };
    let state = match setup.redis {
        Some(port) => format!("redis: {{ url: 'redis://127.0.0.1:{port}', deadline: 2s }}"),
        None => {
            fs::copy(job.dir.path().join("state.db"), dir.join("state.db")).unwrap();
            "embedded: { path: state.db }".to_owned()
        }
    };
    let Setup { workers, segment, .. } = setup;
    // As many an hour as the peers would be exact no longer.
    let (limit, per) = if setup.limit == NO_LIMIT { (1_000_000, "1s") } else { (setup.limit, "1h") };
    let quota = format!("requests: {limit}, per: {per}, burst: {limit}");
    let (plans, limits) = if setup.has_budget {
        let budget = "quota: { units: 1000000000000, per: month, of: org }";
        (format!("plans: {{ sold: {{ {quota}, {budget} }} }}\n"), "plan: sold".to_owned())
    } else {
        (String::new(), format!("key: {{ {quota} }}"))
    };
    let (admin, upstream) = (crate::ports::free_address(), job.upstream);
    let text = format!(
        "listen: [{{ address: '{address}'{listen} }}]\nworkers: {workers}\n\
         admin: {{ socket: admin.sock, address: '{admin}' }}\n\
         upstream: {{ endpoints: ['http://{upstream}'] }}\n\
         state: {{ {state} }}\n\
         {plans}limits: {{ {limits}, org: {{ concurrent: {CONCURRENT} }} }}\n\
         http: {{ max_connections_per_address: 20000 }}\n\
         timeouts: {{ lame_duck: 0s, drain: 1s }}\n\
         audit: {{ path: audit, durability: {durability}, segment_size: {segment} }}\n\
         routes:\n\
         - {{ name: queries.list, methods: [GET], path: /api/queries, permission: 'queries:read' }}\n\
         - {{ name: queries.read, methods: [GET], path: '/api/queries/{{id}}', permission: 'queries:read' }}\n\
         - {{ name: queries.create, methods: [POST], path: /api/queries, permission: 'queries:write' }}\n"
    );
    fs::write(dir.join("keygate.yaml"), text).unwrap();
    // Another build, to compare it with this one by the same load.
    let binary = std::env::var("KEYGATE_BINARY").unwrap_or_else(|_| env!("CARGO_BIN_EXE_keygate").to_owned());
    let mut command = wrapped(setup.wrapper, &binary);
    command.args(["serve", "--config"]).arg(dir.join("keygate.yaml"));
    (command, Some(dir.join("audit")))
}

fn haproxy(job: &Job, setup: &Setup<'_>, dir: &Path, address: SocketAddr) -> (Command, Option<PathBuf>) {
    let bind = match setup.frontend {
        Frontend::Plain => String::new(),
        Frontend::Tls => {
            format!("ssl crt {}/haproxy.pem alpn h2,http/1.1 ssl-min-ver TLSv1.3", job.dir.path().display())
        }
        Frontend::Http2 => "proto h2".to_owned(),
        Frontend::Decisions(_) => unreachable!("only the gateway decides for others"),
    };
    let text = include_str!("haproxy.cfg")
        .replace("@DIR@", job.dir.path().to_str().unwrap())
        .replace("@WORKERS@", &setup.workers.to_string())
        .replace("@ADDRESS@", &address.to_string())
        .replace("@BIND@", &bind)
        .replace("@LIMIT@", &setup.limit.to_string())
        .replace("@UPSTREAM@", &job.upstream.to_string());
    let (config, log) = (dir.join("haproxy.cfg"), dir.join("haproxy.log"));
    fs::write(&config, text).unwrap();
    let mut command = wrapped(setup.wrapper, "haproxy");
    command.arg("-db").arg("-f").arg(config).stdout(fs::File::create(&log).unwrap());
    (command, Some(log))
}

fn nginx(job: &Job, setup: &Setup<'_>, dir: &Path, address: SocketAddr, lua: bool) -> (Command, Option<PathBuf>) {
    for file in ["certificate.pem", "certificate.key", "keys.txt", "bucket.lua"] {
        fs::copy(job.dir.path().join(file), dir.join(file)).unwrap();
    }
    let modules = "load_module /usr/lib/nginx/modules/ndk_http_module.so;\n\
                   load_module /usr/lib/nginx/modules/ngx_http_lua_module.so;";
    let gate = "access_by_lua_block { gate() } log_by_lua_block { release() }\n\
                proxy_set_header X-User-Id $user; proxy_set_header X-Org-Id $org; proxy_set_header Authorization \"\";";
    let listen = match setup.frontend {
        Frontend::Plain => "",
        Frontend::Tls => "ssl http2",
        Frontend::Http2 => "http2",
        Frontend::Decisions(_) => unreachable!("only the gateway decides for others"),
    };
    let only_with_lua = |text: &'static str| if lua { text } else { "" };
    let text = include_str!("nginx.conf")
        .replace("@MODULES@", only_with_lua(modules))
        .replace("@LUA@", only_with_lua(include_str!("nginx_http.lua")))
        .replace("@GATE@", only_with_lua(gate))
        .replace("@DIR@", dir.to_str().unwrap())
        .replace("@WORKERS@", &setup.workers.to_string())
        .replace("@MASTER@", if setup.workers == 1 { "off" } else { "on" })
        .replace("@ADDRESS@", &address.to_string())
        .replace("@LISTEN@", listen)
        .replace("@LIMIT@", &setup.limit.to_string())
        .replace("@REDIS@", &setup.redis.map_or("nil".to_owned(), |port| port.to_string()))
        .replace("@UPSTREAM@", &job.upstream.to_string());
    let config = dir.join("nginx.conf");
    fs::write(&config, text).unwrap();
    let mut command = wrapped(setup.wrapper, "nginx");
    command.arg("-e").arg(dir.join("nginx.err")).arg("-p").arg(dir).arg("-c").arg(config);
    (command, Some(dir.join("nginx.log")))
}

/// Command that runs `program` by the command `wrapper`, or itself when that is empty.
pub(crate) fn wrapped(wrapper: &[String], program: &str) -> Command {
    let Some((first, rest)) = wrapper.split_first() else { return Command::new(program) };
    let mut command = Command::new(first);
    command.args(rest).arg(program);
    command
}
