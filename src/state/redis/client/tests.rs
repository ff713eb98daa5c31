//! The client against a fake server on a socket.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use redis::{Value, cmd};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::*;

const INFO: &str = "redis_version:7.0.0\r\nmaxmemory_policy:noeviction\r\nrole:master\r\nrun_id:a";

/// Replies to a command, by its words; `None` closes the connection.
type Reply = fn(&[String]) -> Option<String>;

/// A fake server: its address, and the commands that it got.
struct FakeServer {
    address: SocketAddr,
    commands: Arc<Mutex<Vec<String>>>,
}

impl FakeServer {
    /// A server that has a primary's `INFO`, and replies to other commands by the function.
    async fn start(reply: Reply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, commands) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let log = Arc::clone(&commands);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, reply, Arc::clone(&log)));
            }
        });
        Self { address, commands }
    }

    fn client(&self) -> RedisClient {
        RedisClient::start(&self.shared())
    }

    fn shared(&self) -> Arc<ClientShared> {
        let address = Address { host: self.address.ip().to_string(), port: self.address.port() };
        let settings = ConnectionSettings {
            servers: Servers::Single(address),
            login: Login::default(),
            sentinel_login: Login::default(),
            database: 0,
            tls: None,
            deadline: Duration::from_secs(5),
            late_reply_timeout: Duration::from_secs(5),
            waits_for_replicas: false,
            probe_key: "probe".into(),
        };
        Arc::new(ClientShared::new(settings).unwrap())
    }

    fn commands(&self) -> Vec<String> {
        self.commands.lock().unwrap().clone()
    }
}

async fn serve(stream: TcpStream, reply: Reply, log: Arc<Mutex<Vec<String>>>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    while let Some(words) = read_command(&mut reader).await {
        log.lock().unwrap().push(words.join(" "));
        let reply = match words[0].as_str() {
            "INFO" => Some(format!("${}\r\n{INFO}\r\n", INFO.len())),
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
    client.send(0, &cmd("BREAK")).await.unwrap_err();
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
    let error = client.send(0, &cmd("BREAK")).await.unwrap_err();
    assert!(matches!(error, CommandError::Lost(_)) && !error.did_not_run(), "{error}");
}

#[tokio::test]
async fn error_reply_means_that_the_command_did_not_run() {
    let server =
        FakeServer::start(|words| Some(if words[0] == "BAD" { "-ERR no\r\n" } else { "+OK\r\n" }.into())).await;
    let client = server.client();
    client.wait_connected().await.unwrap();
    let error = client.send(0, &cmd("BAD")).await.unwrap_err();
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
