//! Sockets: accepting, with or without TLS, and stopping gracefully.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::serve::Listener;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::app::App;
use crate::tls::{Tls, TlsListener};

/// Answers requests until `stop` is ready, then finishes what is under way, for at most `grace`.
/// Streams that take longer are cut, and their requests cancelled.
///
/// # Errors
/// The socket cannot be used.
pub async fn serve(
    app: App,
    socket: TcpListener,
    tls: Option<Tls>,
    stop: impl Future<Output = ()> + Send + 'static,
    grace: Duration,
) -> io::Result<()> {
    let (stopping, stopped) = watch::channel(false);
    let draining = app.clone();
    let watch_stop = async move {
        stop.await;
        draining.drain();
        // Whoever waits for this is gone only if the server is.
        let _ = stopping.send(true);
    };
    tokio::spawn(watch_stop);
    match tls {
        None => run(app, socket, stopped, grace).await,
        Some(tls) => run(app, TlsListener::new(socket, tls)?, stopped, grace).await,
    }
}

async fn run<L: Listener<Addr = SocketAddr>>(
    app: App,
    listener: L,
    stopped: watch::Receiver<bool>,
    grace: Duration,
) -> io::Result<()> {
    let served =
        axum::serve(listener, app.router()).with_graceful_shutdown(reached(stopped.clone()));
    let patience = async move {
        reached(stopped).await;
        tokio::time::sleep(grace).await;
    };
    tokio::select! {
        done = served => done,
        () = patience => Ok(()),
    }
}

async fn reached(mut stopped: watch::Receiver<bool>) {
    // If the sender is gone, so is whoever could have stopped the server: it stops.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
