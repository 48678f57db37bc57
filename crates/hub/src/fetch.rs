//! A file's bytes over several connections, whatever happens to each of them.
//!
//! Every piece is asked for by its range, and from where it was cut off. A server that sends the
//! whole file instead is taken at its word: what comes before the range is skipped.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ureq::Body;
use ureq::http::Response;

use crate::client::{Client, Fault, Tries, What, header};
use crate::error::PullError;
use crate::part::Part;
use crate::repository::Remote;

/// Bytes that are read and written at once.
const BUFFER: usize = 256 << 10;

/// Fetches one file.
pub(crate) struct Fetch<'a> {
    pub(crate) client: &'a Client,
    pub(crate) repo: &'a str,
    pub(crate) remote: &'a Remote,
    /// Told of bytes that have arrived, from any thread.
    pub(crate) arrived: &'a (dyn Fn(u64) + Sync),
}

impl Fetch<'_> {
    /// Whether the server sends parts of the file when asked to.
    pub(crate) fn has_ranges(&self) -> Result<bool, PullError> {
        let mut tries = Tries::new(self.client.patience);
        loop {
            match self.client.get(&self.remote.url, Some(0..1), &self.what()) {
                Ok(answer) => return Ok(answer.status().as_u16() == 206),
                Err(fault) => tries.wait(&self.remote.url, fault)?,
            }
        }
    }

    /// Fetches all pieces that are missing. The first failure stops every connection.
    pub(crate) fn all(&self, part: &Part, connections: usize) -> Result<(), PullError> {
        let stopped = AtomicBool::new(false);
        let work = || {
            let done = self.some(part, &stopped);
            stopped.fetch_or(done.is_err(), Ordering::Relaxed);
            done
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..connections.max(1)).map(|_| scope.spawn(work)).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, _>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().map(join).fold(Ok(()), Result::and)
        })
    }

    /// One connection's work: piece after piece.
    fn some(&self, part: &Part, stopped: &AtomicBool) -> Result<(), PullError> {
        while !stopped.load(Ordering::Relaxed) {
            let Some(piece) = part.take() else { break };
            let range = part.range(piece);
            let written = part.writer(range.start).and_then(|file| Ok((file.try_clone()?, file)));
            let (mut file, kept) = written.map_err(PullError::at(&self.remote.path))?;
            self.stretch(range, &mut file, stopped)?;
            if stopped.load(Ordering::Relaxed) {
                break;
            }
            part.finish(piece, &kept).map_err(PullError::at(&self.remote.path))?;
        }
        Ok(())
    }

    /// The bytes of a range, in as many requests as it takes.
    fn stretch(
        &self,
        range: Range<u64>,
        file: &mut File,
        stopped: &AtomicBool,
    ) -> Result<(), PullError> {
        let mut at = range.start;
        let mut tries = Tries::new(self.client.patience);
        while at < range.end && !stopped.load(Ordering::Relaxed) {
            let before = at;
            let sent = self.request(&mut at, range.end, file);
            if at > before {
                tries.progress();
            }
            if let Err(fault) = sent {
                tries.wait(&self.remote.url, fault)?;
            }
        }
        Ok(())
    }

    /// One request for what is missing from `at` on. Moves `at` past what has been written.
    fn request(&self, at: &mut u64, end: u64, file: &mut File) -> Result<(), Fault> {
        let whole = *at == 0 && end == self.remote.bytes;
        let range = (!whole).then_some(*at..end);
        let answer = self.client.get(&self.remote.url, range, &self.what())?;
        let from = self.first_byte(&answer, *at)?;
        let sends_rest = answer.status().as_u16() == 200 || end == self.remote.bytes;
        let mut body = answer.into_body().into_reader();
        let skipped = io::copy(&mut (&mut body).take(*at - from), &mut io::sink());
        if skipped.map_err(Fault::passing)? < *at - from {
            return Err(Fault::passing("the connection was cut"));
        }
        let mut buffer = vec![0; BUFFER];
        while *at < end {
            let most = usize::try_from(end - *at).map_or(BUFFER, |left| left.min(BUFFER));
            let read = body.read(&mut buffer[..most]).map_err(Fault::passing)?;
            if read == 0 {
                return Err(Fault::passing("the connection was cut"));
            }
            let kept = file.write_all(&buffer[..read]);
            kept.map_err(|e| Fault::Lasting(PullError::at(&self.remote.path)(e)))?;
            *at += read as u64;
            (self.arrived)(read as u64);
        }
        let reached_end = sends_rest && end == self.remote.bytes;
        if reached_end && matches!(body.read(&mut buffer[..1]), Ok(1)) {
            return Err(self.wrong_length(end + 1));
        }
        Ok(())
    }

    /// The file's byte that an answer begins with, which is at most `at`.
    fn first_byte(&self, answer: &Response<Body>, at: u64) -> Result<u64, Fault> {
        if answer.status().as_u16() == 200 {
            let length = header(answer, "content-length").and_then(|length| length.parse().ok());
            return match length {
                Some(length) if length != self.remote.bytes => Err(self.wrong_length(length)),
                _ => Ok(0),
            };
        }
        let range = header(answer, "content-range").and_then(content_range);
        match range {
            Some((_, Some(total))) if total != self.remote.bytes => Err(self.wrong_length(total)),
            Some((from, _)) if from == at => Ok(from),
            _ => Err(Fault::passing("another range than the one asked for")),
        }
    }

    fn wrong_length(&self, found: u64) -> Fault {
        let (file, expected) = (self.remote.path.clone(), self.remote.bytes);
        Fault::Lasting(PullError::Length { file, expected, found })
    }

    fn what(&self) -> What<'_> {
        What { repo: self.repo, part: &self.remote.path }
    }
}

/// First byte and length of the whole, from `bytes 5-9/10`.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    let (from, _) = range.split_once('-')?;
    Some((from.parse().ok()?, total.parse().ok()))
}
