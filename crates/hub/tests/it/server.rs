//! A hub on two ports of this machine: one that knows repositories and asks for tokens, and a
//! storage that large files are redirected to. Faults happen to the storage's answers, in the
//! order in which they are given.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use lapidary_hub::{Cache, Event, Hub, HubName, Options, Patience, PullError, Pulled};
use sha2::{Digest, Sha256};

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What happens to one answer of the storage.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// None.
    None,
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// Nothing but a status.
    Status(u16),
    /// The whole file, whatever was asked for.
    NoRange,
    /// One bit is wrong.
    Flip,
    /// Another length of the whole file is claimed, by so many bytes.
    Longer(u64),
}

/// A file of the repository.
pub(crate) struct Stock {
    pub(crate) path: String,
    pub(crate) bytes: Vec<u8>,
    /// Whether it lies in the storage.
    pub(crate) large: bool,
}

/// How the hub behaves.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) files: Vec<Stock>,
    pub(crate) faults: VecDeque<Fault>,
    /// Statuses and further header lines that the hub answers first.
    pub(crate) first: VecDeque<(u16, &'static str)>,
    /// The token without which nothing is told.
    pub(crate) token: Option<&'static str>,
    /// Requests, as `PORT METHOD PATH RANGE AUTHORIZATION`.
    pub(crate) log: Vec<String>,
}

/// The servers, as long as the process lives.
pub(crate) struct Imitation {
    pub(crate) url: String,
    pub(crate) world: Arc<Mutex<World>>,
}

/// Bytes that no two offsets of a file share for long.
pub(crate) fn content(length: usize, seed: u32) -> Vec<u8> {
    let byte = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8;
    (0..u32::try_from(length).expect("a small file")).map(byte).collect()
}

pub(crate) fn large(path: &str, length: usize) -> Stock {
    Stock { path: path.to_owned(), bytes: content(length, 7), large: true }
}

pub(crate) fn small(path: &str, text: &str) -> Stock {
    Stock { path: path.to_owned(), bytes: text.as_bytes().to_vec(), large: false }
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Imitation {
    pub(crate) fn of(files: Vec<Stock>) -> Self {
        let world = Arc::new(Mutex::new(World { files, ..World::default() }));
        let listen = || TcpListener::bind("127.0.0.1:0").expect("a free port");
        let (hub, storage) = (listen(), listen());
        let address = |listener: &TcpListener| listener.local_addr().expect("it listens");
        let url = format!("http://{}", address(&hub));
        let behind = format!("http://{}", address(&storage));
        serve(hub, world.clone(), move |asked, world| asked.hub(world, &behind));
        serve(storage, world.clone(), |asked, world| asked.storage(world));
        Self { url, world }
    }

    pub(crate) fn options(&self) -> Options {
        let moment = Duration::from_millis(1);
        let patience =
            Patience { attempts: 3, first: moment, longest: moment, ..Patience::default() };
        Options { patience, connections: 3, piece: 512, ..Options::new(&self.url) }
    }

    pub(crate) fn pull(&self, cache: &Cache, name: &str) -> Result<Pulled, PullError> {
        self.pull_with(&self.options(), cache, name, &|_| {})
    }

    pub(crate) fn pull_with(
        &self,
        options: &Options,
        cache: &Cache,
        name: &str,
        watch: &(dyn Fn(Event<'_>) + Sync),
    ) -> Result<Pulled, PullError> {
        let name: HubName = name.parse().expect("a name");
        Hub::new(options, cache.clone())?.pull(&name, watch)
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.world.lock().expect("no panic").log.clone()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world.lock().expect("no panic"));
    }
}

struct Asked {
    method: String,
    path: String,
    range: Option<(usize, usize)>,
    authorization: String,
}

struct Answer {
    status: u16,
    headers: Vec<String>,
    body: Vec<u8>,
    /// Bytes of the body that are sent before the connection ends.
    sent: usize,
}

impl Answer {
    fn of(status: u16, headers: Vec<String>, body: Vec<u8>) -> Self {
        Self { status, headers, sent: body.len(), body }
    }
}

impl Asked {
    fn read(stream: &TcpStream) -> Option<Self> {
        let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
        let first = lines.next()?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next()?, words.next()?);
        let mut asked = Self { method, path, range: None, authorization: "-".into() };
        for line in lines.take_while(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':')?;
            match &*name.to_ascii_lowercase() {
                "range" => {
                    let (from, to) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
                    asked.range = Some((from.parse().ok()?, to.parse().ok()?));
                }
                "authorization" => value.trim().clone_into(&mut asked.authorization),
                _ => {}
            }
        }
        Some(asked)
    }

    fn hub(&self, world: &mut World, storage: &str) -> Answer {
        if let Some((status, line)) = world.first.pop_front() {
            return Answer::of(status, vec![line.to_owned()], Vec::new());
        }
        if world.token.is_some_and(|token| self.authorization != format!("Bearer {token}")) {
            return Answer::of(401, vec!["X-Error-Code: RepoNotFound".into()], Vec::new());
        }
        if self.path.starts_with("/api/models/a/b/revision/") {
            let file = |file: &Stock| format!("{{\"rfilename\":{:?}}}", file.path);
            let files: Vec<_> = world.files.iter().map(file).collect();
            let body = format!("{{\"sha\":\"{COMMIT}\",\"siblings\":[{}]}}", files.join(","));
            return Answer::of(200, Vec::new(), body.into_bytes());
        }
        let path = self.path.strip_prefix(&format!("/a/b/resolve/{COMMIT}/"));
        match path.and_then(|path| world.files.iter().find(|file| file.path == path)) {
            None => Answer::of(404, vec!["X-Error-Code: EntryNotFound".into()], Vec::new()),
            Some(file) if !file.large => {
                let etag = format!("ETag: \"{}\"", &sha256(&file.bytes)[..40]);
                Answer::of(200, vec![etag], file.bytes.clone())
            }
            Some(file) => {
                let headers = vec![
                    format!("X-Repo-Commit: {COMMIT}"),
                    format!("X-Linked-ETag: \"{}\"", sha256(&file.bytes)),
                    format!("X-Linked-Size: {}", file.bytes.len()),
                    format!("Location: {storage}/{}", file.path),
                ];
                Answer::of(302, headers, Vec::new())
            }
        }
    }

    fn storage(&self, world: &mut World) -> Answer {
        let file = world.files.iter().find(|file| Some(&*file.path) == self.path.strip_prefix('/'));
        let Some(file) = file else { return Answer::of(404, Vec::new(), Vec::new()) };
        let fault = world.faults.pop_front().unwrap_or(Fault::None);
        let (mut bytes, mut total) = (file.bytes.clone(), file.bytes.len() as u64);
        match fault {
            Fault::Status(status) => return Answer::of(status, Vec::new(), Vec::new()),
            Fault::Flip => bytes.iter_mut().for_each(|byte| *byte ^= 4),
            Fault::Longer(by) => total += by,
            _ => {}
        }
        let range = self.range.filter(|_| !matches!(fault, Fault::NoRange));
        let mut answer = match range {
            None => Answer::of(200, Vec::new(), bytes),
            Some((from, to)) => {
                let header = format!("Content-Range: bytes {from}-{to}/{total}");
                Answer::of(206, vec![header], bytes[from..=to].to_vec())
            }
        };
        if let Fault::Cut(after) = fault {
            answer.sent = after.min(answer.body.len());
        }
        answer
    }
}

/// Answers one request per connection.
fn serve(
    listener: TcpListener,
    world: Arc<Mutex<World>>,
    answer: impl Fn(&Asked, &mut World) -> Answer + Send + Sync + 'static,
) {
    let port = listener.local_addr().expect("it listens").port();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (world, answer) = (world.clone(), answer.clone());
            thread::spawn(move || one(stream, port, &world, &*answer));
        }
    });
}

fn one(
    mut stream: TcpStream,
    port: u16,
    world: &Mutex<World>,
    answer: &dyn Fn(&Asked, &mut World) -> Answer,
) {
    let Some(asked) = Asked::read(&stream) else { return };
    let Asked { method, path, range, authorization } = &asked;
    let answer = {
        let mut world = world.lock().expect("no panic");
        world.log.push(format!("{port} {method} {path} {range:?} {authorization}"));
        answer(&asked, &mut world)
    };
    let Answer { status, headers, body, sent } = answer;
    let mut head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n");
    head += &format!("Content-Length: {}\r\n", body.len());
    headers.iter().filter(|line| !line.is_empty()).for_each(|line| head += &format!("{line}\r\n"));
    let body = if method == "HEAD" { &[][..] } else { &body[..sent] };
    // The other side may have left already; that is its business.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(b"\r\n"));
    let _ = stream.write_all(body);
}
