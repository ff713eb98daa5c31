//! A network that breaks connections at random places, in the middle of a command or of a reply, and that delivers some
//! commands long after the client has seen the connection break.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::Random;

/// A proxy that forwards a random number of bytes of each connection, then cuts it.
pub(super) struct CuttingProxy {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    cuts: AtomicU64,
}

impl CuttingProxy {
    pub(super) async fn to(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shared) = (listener.local_addr().unwrap(), Arc::<Shared>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, Arc::clone(&shared), Random::new(seed)));
        Self { address, shared, _tasks: tasks }
    }

    /// Cuts no connection from now on.
    pub(super) fn stop_cutting(&self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
    }

    pub(super) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>, mut random: Random) {
    let mut forwarding = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let server = TcpStream::connect(server).await.unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        // The reply to INFO, at the beginning, has some thousand bytes.
        let (command_bytes, reply_bytes) = (2000 + random.below(100_000), 10_000 + random.below(40_000));
        let delay = Duration::from_micros(random.below(400_000));
        let shared = Arc::clone(&shared);
        forwarding.spawn(async move {
            let ((from_client, mut to_client), (from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            let left = tokio::select! {
                left = forward(from_client, &mut to_server, command_bytes, &shared) => left,
                _ = forward(from_server, &mut to_client, reply_bytes, &shared) => Vec::new(),
            };
            shared.cuts.fetch_add(1, Ordering::SeqCst);
            drop(to_client);
            tokio::time::sleep(delay).await;
            // The replies are lost: the client has gone.
            to_server.write_all(&left).await.ok();
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
    }
}

/// Forwards `left` bytes. Returns the bytes that it had read and not forwarded when it ended.
async fn forward(mut from: OwnedReadHalf, to: &mut OwnedWriteHalf, mut left: u64, shared: &Shared) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let is_stopped = shared.stopped.load(Ordering::SeqCst);
        let passed = if is_stopped { length } else { length.min(usize::try_from(left).unwrap()) };
        left = left.saturating_sub(length as u64);
        if to.write_all(&buffer[..passed]).await.is_err() || passed < length {
            return buffer[passed..length].to_vec();
        }
    }
    Vec::new()
}
