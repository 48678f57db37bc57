//! Sockets: accepting, with or without TLS, and stopping gracefully.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::serve::Listener;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

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
    mut listener: L,
    stopped: watch::Receiver<bool>,
    grace: Duration,
) -> io::Result<()> {
    let seats = Arc::new(Semaphore::new(app.settings().connections));
    let (router, patience) = (app.router(), app.settings().head_timeout);
    let mut conversations = JoinSet::new();
    loop {
        tokio::select! {
            () = reached(stopped.clone()) => break,
            // Ended ones are let go at once.
            Some(_) = conversations.join_next() => {}
            (stream, seat) = next(&mut listener, &seats) => {
                let (router, stopped) = (router.clone(), stopped.clone());
                conversations.spawn(async move {
                    converse(stream, router, patience, stopped).await;
                    drop(seat);
                });
            }
        }
    }
    drop(listener);
    let ended = async { while conversations.join_next().await.is_some() {} };
    // Whoever has not ended by then is cut.
    let _ = tokio::time::timeout(grace, ended).await;
    Ok(())
}

/// The next connection, once there is a seat for it. Until then it waits where the system keeps it.
async fn next<L: Listener>(
    listener: &mut L,
    seats: &Arc<Semaphore>,
) -> (L::Io, OwnedSemaphorePermit) {
    let seat = seats.clone().acquire_owned().await.expect("seats are never closed");
    (listener.accept().await.0, seat)
}

/// Answers one connection's requests, until it ends, or the server stops and the request under way
/// is answered. The head of each request must come within `patience`, so that nobody holds a seat by
/// saying nothing.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    patience: Duration,
    stopped: watch::Receiver<bool>,
) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(patience);
    let service = TowerToHyperService::new(router);
    let mut conversation = pin!(http.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // A client that broke off, or took too long, is not there to be told.
        _ = conversation.as_mut() => return,
        () = reached(stopped) => conversation.as_mut().graceful_shutdown(),
    }
    let _ = conversation.await;
}

async fn reached(mut stopped: watch::Receiver<bool>) {
    // If the sender is gone, so is whoever could have stopped the server: it stops.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
