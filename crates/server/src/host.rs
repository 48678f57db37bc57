//! A server as a program: a runtime, a socket, and the signals that stop it.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::app::App;
use crate::serve::serve;
use crate::tls::Tls;

/// How long the runtime waits for work that was cut when the server stopped.
const PARTING: Duration = Duration::from_secs(1);

/// Serves at `address` until the process is asked to end, then for at most `grace` finishes what is
/// under way. `ready` is told the address, which differs from the one given if its port is 0.
///
/// # Errors
/// The address cannot be listened at, or the system gives no threads or signals.
pub fn host(
    app: App,
    address: SocketAddr,
    tls: Option<Tls>,
    grace: Duration,
    ready: impl FnOnce(SocketAddr),
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let socket = TcpListener::bind(address).await?;
        let stop = ended()?;
        ready(socket.local_addr()?);
        serve(app, socket, tls, stop, grace).await
    });
    runtime.shutdown_timeout(PARTING);
    served
}

/// Is ready when somebody presses Ctrl-C or the system asks the process to end.
#[cfg(unix)]
fn ended() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Is ready when somebody presses Ctrl-C.
#[cfg(not(unix))]
fn ended() -> io::Result<impl Future<Output = ()> + Send + 'static> {
    Ok(async {
        // Without a signal to wait for, the server runs until it is killed.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}
