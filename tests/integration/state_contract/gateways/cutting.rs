//! A network that breaks connections at random places, in the midst of a question or of an answer, and that delivers
//! some questions long after who asked has seen the connection break.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::Random;

/// A proxy that carries so many bytes of each connection, and no byte more.
pub(super) struct Cutting {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Shared {
    calm: AtomicBool,
    cuts: AtomicU64,
}

impl Cutting {
    pub(super) async fn to(server: SocketAddr, seed: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, shared) = (listener.local_addr().unwrap(), Arc::<Shared>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, server, Arc::clone(&shared), Random::new(seed)));
        Self { address, shared, _tasks: tasks }
    }

    /// Breaks no connection any more.
    pub(super) fn calm_down(&self) {
        self.shared.calm.store(true, Ordering::SeqCst);
    }

    pub(super) fn cuts(&self) -> u64 {
        self.shared.cuts.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, shared: Arc<Shared>, mut random: Random) {
    let mut carried = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let server = TcpStream::connect(server).await.unwrap();
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        // What a server says of itself, at the beginning, has some thousand bytes.
        let (questions, answers) = (2000 + random.below(100_000), 10_000 + random.below(40_000));
        let late = Duration::from_micros(random.below(400_000));
        let shared = Arc::clone(&shared);
        carried.spawn(async move {
            let ((from_client, mut to_client), (from_server, mut to_server)) =
                (client.into_split(), server.into_split());
            let left = tokio::select! {
                left = carry(from_client, &mut to_server, questions, &shared) => left,
                _ = carry(from_server, &mut to_client, answers, &shared) => Vec::new(),
            };
            shared.cuts.fetch_add(1, Ordering::SeqCst);
            drop(to_client);
            tokio::time::sleep(late).await;
            // Nobody reads the answers.
            to_server.write_all(&left).await.ok();
            tokio::time::sleep(Duration::from_millis(20)).await;
        });
    }
}

/// Carries so many bytes; gives those that it had already when it ended.
async fn carry(mut from: OwnedReadHalf, to: &mut OwnedWriteHalf, mut left: u64, shared: &Shared) -> Vec<u8> {
    let mut buffer = vec![0; 4096];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let passed = match shared.calm.load(Ordering::SeqCst) {
            true => length,
            false => length.min(usize::try_from(left).unwrap()),
        };
        left = left.saturating_sub(length as u64);
        if to.write_all(&buffer[..passed]).await.is_err() || passed < length {
            return buffer[passed..length].to_vec();
        }
    }
    Vec::new()
}
