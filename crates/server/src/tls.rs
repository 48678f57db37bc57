//! TLS over the sockets of a server.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// How long a client may take to agree on keys.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that may wait to be served.
const WAITING: usize = 64;
/// How long to wait when the system has no sockets left.
const PAUSE: Duration = Duration::from_millis(100);

/// A certificate with its key.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadTls {
    /// The certificate file is none.
    #[error("the TLS certificate cannot be read ({0}); give a PEM file with the whole chain")]
    Certificate(rustls::pki_types::pem::Error),
    /// The key file is none.
    #[error("the TLS key cannot be read ({0}); give a PEM file with one private key")]
    Key(rustls::pki_types::pem::Error),
    /// They do not belong together, or are of a kind that is not supported.
    #[error("the TLS certificate and key cannot be used ({0}); give a pair that belongs together")]
    Pair(rustls::Error),
}

impl Tls {
    /// From the contents of two PEM files: a certificate chain and its private key.
    ///
    /// # Errors
    /// [`BadTls`].
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, BadTls> {
        let chain = CertificateDer::pem_slice_iter(certificate).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(BadTls::Certificate)?;
        let key = PrivateKeyDer::from_pem_slice(key).map_err(BadTls::Key)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(BadTls::Pair)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(BadTls::Pair)?;
        Ok(Self(Arc::new(config)))
    }
}

/// Accepts connections whose clients have agreed on keys. A client that takes its time holds up
/// nobody: each handshake has a task of its own.
pub(crate) struct TlsListener {
    ready: mpsc::Receiver<(TlsStream<TcpStream>, SocketAddr)>,
    address: SocketAddr,
}

impl TlsListener {
    pub(crate) fn new(socket: TcpListener, tls: Tls) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let (sender, ready) = mpsc::channel(WAITING);
        tokio::spawn(accept(socket, TlsAcceptor::from(tls.0), sender));
        Ok(Self { ready, address })
    }
}

async fn accept(
    socket: TcpListener,
    acceptor: TlsAcceptor,
    sender: mpsc::Sender<(TlsStream<TcpStream>, SocketAddr)>,
) {
    while !sender.is_closed() {
        let Ok((stream, address)) = socket.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let handshake = acceptor.accept(stream);
        let sender = sender.clone();
        tokio::spawn(async move {
            if let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, handshake).await {
                // Nobody listens once the server has stopped.
                let _ = sender.send((stream, address)).await;
            }
        });
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(connection) => connection,
            // The task that accepts ends only with this listener.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.address)
    }
}
