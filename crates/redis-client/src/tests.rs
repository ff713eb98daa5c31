//! The client against a fake server on a socket.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Value, cmd};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;

const INFO: &str = "redis_version:7.0.0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\nrun_id:a";
const NODE_INFO: &str =
    "redis_version:7.0.0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\nrun_id:a\r\ncluster_enabled:1";

/// Replies to a command, by its words; `None` closes the connection, and nothing is sent of an empty reply.
type Reply = fn(&[String]) -> Option<String>;

/// A fake server: its address, and the commands that it got.
struct FakeServer {
    address: SocketAddr,
    commands: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    /// A server that has a primary's `INFO`, and replies to other commands by the function.
    async fn start(reply: Reply) -> Self {
        Self::start_with(INFO, reply).await
    }

    /// A node of a Cluster.
    async fn start_node(reply: Reply) -> Self {
        Self::start_with(NODE_INFO, reply).await
    }

    async fn start_with(info: &'static str, reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let commands = Arc::<Mutex<Vec<String>>>::default();
        let log = Arc::clone(&commands);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, info, reply, Arc::clone(&log)));
            }
        });
        Self { address, commands }
    }

    fn client(&self) -> RedisClient {
        RedisClient::start(&self.shared())
    }

    fn shared(&self) -> Arc<ClientShared> {
        Arc::new(ClientShared::new(settings(Servers::Single(self.at()))).unwrap())
    }

    fn at(&self) -> Address {
        Address { host: self.address.ip().to_string(), port: self.address.port() }
    }

    fn commands(&self) -> Vec<String> {
        self.commands.lock().unwrap().clone()
    }
}

fn settings(servers: Servers) -> ConnectionSettings {
    ConnectionSettings {
        servers,
        login: CurrentLogin::default(),
        sentinel_login: CurrentLogin::default(),
        database: 0,
        tls: None,
        deadline: Duration::from_secs(5),
        late_reply_timeout: Duration::from_secs(5),
        waits_for_replicas: false,
        probe_key: "probe".into(),
    }
}

async fn serve(stream: TcpStream, info: &str, reply: Reply, log: Arc<Mutex<Vec<String>>>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    while let Some(words) = read_command(&mut reader).await {
        log.lock().unwrap().push(words.join(" "));
        let reply = match words[0].as_str() {
            "INFO" => Some(format!("${}\r\n{info}\r\n", info.len())),
            "SET" | "CLIENT" => Some("+OK\r\n".to_owned()),
            _ => reply(&words),
        };
        let Some(reply) = reply else { return };
        if writer.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Reads an array of bulk strings.
async fn read_command(reader: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Option<Vec<String>> {
    let count = read_length(reader).await?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let mut word = vec![0; read_length(reader).await? + 2];
        reader.read_exact(&mut word).await.ok()?;
        word.truncate(word.len() - 2);
        words.push(String::from_utf8(word).unwrap());
    }
    Some(words)
}

async fn read_length(reader: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).await.ok()?;
    line.get(1..)?.trim_end().parse().ok()
}

#[tokio::test]
async fn connected_link_is_listed_until_its_connection_ends() {
    let server = FakeServer::start(|words| (words[0] != "BREAK").then(|| "+OK\r\n".into())).await;
    let shared = server.shared();
    let mut changes = shared.live_links().subscribe();
    let client = RedisClient::start(&shared);
    client.wait_connected().await.unwrap();
    assert!(shared.live_links().servers().contains("a"));
    changes.mark_unchanged();
    client.query::<Value>(cmd("BREAK").arg("key")).await.unwrap_err();
    assert!(changes.has_changed().unwrap(), "the link is not listed any more");
}

#[tokio::test]
async fn server_replies_by_command_within_one_history() {
    let server = FakeServer::start(|words| Some(if words[0] == "BAD" { "-OOM no\r\n" } else { ":7\r\n" }.into())).await;
    let shared = server.shared();
    let client = RedisClient::start(&shared);
    client.wait_connected().await.unwrap();
    let server = Server::new("a".into(), Arc::clone(&shared));
    assert!(server.status().await.unwrap().serves(1));
    let (replies, replication) = server.run_all([cmd("GOOD"), cmd("BAD"), cmd("GOOD")]).await.unwrap();
    assert_eq!(&*replication.history, "a ");
    assert_eq!(replies.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
    let gone = Server::new("b".into(), shared).status().await;
    assert!(matches!(gone, Err(CommandError::Unreachable)));
}

#[tokio::test]
async fn unknown_script_is_sent_once_more_by_its_text() {
    let reply: Reply = |words| match words[0].as_str() {
        "EVALSHA" => Some("-NOSCRIPT No matching script\r\n".into()),
        _ => Some(":7\r\n".into()),
    };
    let server = FakeServer::start(reply).await;
    let client = server.client();
    client.wait_connected().await.unwrap();
    let script = Script::new(&["return ", "7"]);
    assert_eq!(client.run(0, &script, &[b"key"], &[b"argument"]).await.unwrap(), Value::Int(7));
    assert_eq!(server.commands().last().unwrap(), "EVAL #!lua\nreturn 7 1 key argument");
}

#[tokio::test]
async fn broken_connection_loses_the_reply_and_takes_the_link_down() {
    let server = FakeServer::start(|words| (words[0] != "BREAK").then(|| "+OK\r\n".into())).await;
    let client = server.client();
    client.wait_connected().await.unwrap();
    let error = client.query::<Value>(cmd("BREAK").arg("key")).await.unwrap_err();
    assert!(matches!(error, CommandError::Lost(_)) && !error.did_not_run(), "{error}");
}

#[tokio::test]
async fn error_reply_means_that_the_command_did_not_run() {
    let server =
        FakeServer::start(|words| Some(if words[0] == "BAD" { "-ERR no\r\n" } else { "+OK\r\n" }.into())).await;
    let client = server.client();
    client.wait_connected().await.unwrap();
    let error = client.query::<Value>(cmd("BAD").arg("key")).await.unwrap_err();
    assert!(matches!(error, CommandError::Refused(_)) && error.did_not_run(), "{error}");
    assert!(client.is_up());
}

#[tokio::test]
async fn durable_command_is_followed_by_wait_and_returns_its_replicas() {
    let server = FakeServer::start(|words| Some(if words[0] == "WAIT" { ":2\r\n" } else { ":7\r\n" }.into())).await;
    let client = server.client();
    client.wait_connected().await.unwrap();
    let durability = Durability { replicas: 3, timeout: Duration::from_millis(20) };
    let reply = client.run_durably(0, &Script::new(&["return 7"]), &[], &[], durability).await.unwrap();
    assert_eq!(reply, (Value::Int(7), 2));
    assert_eq!(server.commands().last().unwrap(), "WAIT 3 20");
}

/// A Cluster of two nodes, of which one sends no reply to `CLUSTER SLOTS`; the other one's first replies lack slots.
#[tokio::test]
async fn slot_map_comes_from_another_node_while_one_does_not_answer() {
    static PORTS: [AtomicU16; 2] = [AtomicU16::new(0), AtomicU16::new(0)];
    static REPLIES: AtomicU16 = AtomicU16::new(0);
    let silent = FakeServer::start_node(|words| Some(if words[0] == "CLUSTER" { "" } else { "+OK\r\n" }.into())).await;
    let reply: Reply = |words| {
        let slots = || {
            let last = if REPLIES.fetch_add(1, Ordering::Relaxed) < 3 { 100 } else { 16383 };
            let [silent, node] = PORTS.each_ref().map(|port| port.load(Ordering::Relaxed));
            let range = |from, to, port| format!("*3\r\n:{from}\r\n:{to}\r\n*2\r\n$0\r\n\r\n:{port}\r\n");
            format!("*2\r\n{}{}", range(0, 50, silent), range(51, last, node))
        };
        Some(if words[0] == "CLUSTER" { slots() } else { "+OK\r\n".into() })
    };
    let node = FakeServer::start_node(reply).await;
    PORTS[0].store(silent.address.port(), Ordering::Relaxed);
    PORTS[1].store(node.address.port(), Ordering::Relaxed);
    let settings = ConnectionSettings {
        deadline: Duration::from_millis(50),
        late_reply_timeout: Duration::from_secs(3600),
        ..settings(Servers::Cluster(vec![silent.at(), node.at()]))
    };
    let client = RedisClient::start(&Arc::new(ClientShared::new(settings).unwrap()));
    timeout(Duration::from_secs(60), client.wait_connected()).await.expect("the map is complete").unwrap();
    assert!(silent.commands().iter().any(|command| command.starts_with("CLUSTER")), "{:?}", silent.commands());
}
