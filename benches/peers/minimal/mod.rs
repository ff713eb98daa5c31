//! The smallest proxies with the job, to see what the job costs without a product around it: a thread for each core, no
//! time-outs, no limits of sizes, no strict parsing. A benchmark starts itself again as one of them.

mod admission;
mod direct;
mod hyper;
mod log;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, LocalOptions};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::configuration::wrapped;
use super::job::Job;
use super::{Frontend, Setup};
use admission::{Admission, Directory};

/// First argument of a benchmark that is to run as such a proxy.
const ARGUMENT: &str = "minimal-proxy";

/// Reads and writes HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Codec {
    Hyper,
    /// `httparse` on plain sockets, HTTP/1.1 without TLS only.
    Direct,
}

#[derive(Serialize, Deserialize)]
struct Settings {
    codec: Codec,
    address: SocketAddr,
    upstream: SocketAddr,
    workers: usize,
    /// With HTTP/2 by ALPN.
    tls: bool,
    /// HTTP/2 with prior knowledge.
    http2: bool,
    redis: Option<u16>,
    limit: u32,
    /// Has the keys and the certificate.
    job: PathBuf,
    log: PathBuf,
}

/// Command that starts one of them, and its log.
pub(crate) fn command(
    job: &Job,
    setup: &Setup<'_>,
    dir: &Path,
    address: SocketAddr,
    codec: Codec,
) -> (Command, Option<PathBuf>) {
    let (settings, log) = write_settings(job, setup, dir, address, codec);
    let own = std::env::current_exe().unwrap();
    let mut command = wrapped(setup.wrapper, own.to_str().expect("a path in UTF-8"));
    command.arg(ARGUMENT).arg(settings);
    (command, Some(log))
}

/// Writes the file of settings. Returns its path and that of the log.
pub(crate) fn write_settings(
    job: &Job,
    setup: &Setup<'_>,
    dir: &Path,
    address: SocketAddr,
    codec: Codec,
) -> (PathBuf, PathBuf) {
    let (settings, log) = (dir.join("minimal.json"), dir.join("minimal.log"));
    let content = Settings {
        codec,
        address,
        upstream: job.upstream,
        workers: setup.workers,
        tls: setup.frontend == Frontend::Tls,
        http2: setup.frontend == Frontend::Http2,
        redis: setup.redis,
        limit: setup.limit,
        job: job.dir.path().to_owned(),
        log: log.clone(),
    };
    fs::write(&settings, serde_json::to_vec(&content).unwrap()).unwrap();
    (settings, log)
}

/// Runs as a proxy, and does not return, when the benchmark was started as one.
pub(crate) fn run_if_asked() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return;
    }
    let settings = fs::read(arguments.next().expect("a file of settings")).unwrap();
    let settings: Arc<Settings> = Arc::new(serde_json::from_slice(&settings).unwrap());
    let directory = Arc::new(Directory::read(&settings.job.join("keys.txt")));
    let workers: Vec<_> = (0..settings.workers)
        .map(|_| {
            let (settings, directory) = (Arc::clone(&settings), Arc::clone(&directory));
            std::thread::Builder::new().name("worker".into()).spawn(move || work(&settings, directory)).unwrap()
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    std::process::exit(1);
}

fn work(settings: &Settings, directory: Arc<Directory>) {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let listener = listen(settings.address);
        let admission = Rc::new(Admission::new(directory, settings).await);
        log::flush_each_second(&settings.log);
        let acceptor = settings.tls.then(|| acceptor(&settings.job));
        let pool = Rc::new(hyper::Pool::new(settings.upstream));
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (admission, pool, acceptor) = (Rc::clone(&admission), Rc::clone(&pool), acceptor.clone());
            let (codec, http2, upstream) = (settings.codec, settings.http2, settings.upstream);
            tokio::task::spawn_local(async move {
                match acceptor {
                    _ if codec == Codec::Direct => direct::serve(stream, upstream, &admission).await,
                    None => hyper::serve(stream, http2, admission, pool).await,
                    Some(acceptor) => serve_tls(stream, &acceptor, admission, pool).await,
                }
            });
        }
    });
}

async fn serve_tls(stream: TcpStream, acceptor: &TlsAcceptor, admission: Rc<Admission>, pool: Rc<hyper::Pool>) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    hyper::serve(stream, http2, admission, pool).await;
}

fn listen(address: SocketAddr) -> TcpListener {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_reuse_address(true).unwrap();
    socket.set_reuse_port(true).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.bind(&address.into()).unwrap();
    socket.listen(1024).unwrap();
    TcpListener::from_std(socket.into()).unwrap()
}

fn acceptor(job: &Path) -> TlsAcceptor {
    let chain = CertificateDer::from_pem_file(job.join("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(job.join("certificate.key")).unwrap();
    let mut config = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![chain], key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A connection of a client.
trait Stream: AsyncRead + AsyncWrite + Unpin + 'static {}
impl<S: AsyncRead + AsyncWrite + Unpin + 'static> Stream for S {}
