//! One request at a time: the token only to the hub itself, redirects by hand, and patience.
//!
//! Redirects are followed here and not by the HTTP library because the first answer's headers say
//! what a large file is, and because the token must stay behind.

use std::ops::Range;
use std::thread::sleep;
use std::time::Duration;

use ureq::http::{Method, Request, Response};
use ureq::{Agent, Body, Proxy};

use crate::address::{Origin, follow};
use crate::error::PullError;

/// Where the hub is and how it is asked.
#[derive(Clone, Debug)]
pub struct Options {
    /// The hub's address, such as `https://huggingface.co`.
    pub url: String,
    /// Who asks; sent to that address alone.
    pub token: Option<String>,
    /// The address of a proxy that everything goes through.
    pub proxy: Option<String>,
    /// What happens when something goes wrong.
    pub patience: Patience,
    /// Connections that a large file comes over.
    pub connections: usize,
    /// Bytes of a piece: what a connection fetches at once, and what a killed run may lose of it.
    pub piece: u64,
}

impl Options {
    /// The address where models are published.
    pub const HUGGING_FACE: &str = "https://huggingface.co";

    /// A hub without token or proxy, asked in the usual way.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            proxy: None,
            patience: Patience::default(),
            connections: 4,
            piece: 16 << 20,
        }
    }
}

/// How often and how long.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Tries in a row that bring nothing.
    pub attempts: u32,
    /// Before the second try; then twice as long each time.
    pub first: Duration,
    /// The longest wait of our own choosing.
    pub longest: Duration,
    /// The longest wait that the hub may ask for.
    pub asked: Duration,
    /// The longest silence in the middle of an answer.
    pub silence: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 6,
            first: Duration::from_millis(500),
            longest: Duration::from_secs(20),
            asked: Duration::from_secs(300),
            silence: Duration::from_secs(60),
        }
    }
}

/// What stands between a request and its answer.
pub(crate) enum Fault {
    /// It may work the next time.
    Passing {
        /// The wait that was asked for.
        after: Option<Duration>,
        /// What happened.
        what: String,
    },
    /// It will not.
    Lasting(PullError),
}

impl Fault {
    pub(crate) fn passing(what: impl ToString) -> Self {
        Self::Passing { after: None, what: what.to_string() }
    }
}

/// Counts the tries at one thing.
pub(crate) struct Tries {
    patience: Patience,
    failed: u32,
}

impl Tries {
    pub(crate) fn new(patience: Patience) -> Self {
        Self { patience, failed: 0 }
    }

    /// Something arrived: the count begins again.
    pub(crate) fn progress(&mut self) {
        self.failed = 0;
    }

    /// Waits before the next try, or says why there is none.
    pub(crate) fn wait(&mut self, url: &str, fault: Fault) -> Result<(), PullError> {
        let (after, what) = match fault {
            Fault::Lasting(error) => return Err(error),
            Fault::Passing { after, what } => (after, what),
        };
        self.failed += 1;
        if let Some(after) = after.filter(|after| *after > self.patience.asked) {
            return Err(PullError::Busy { after });
        }
        if self.failed >= self.patience.attempts {
            return Err(match after {
                Some(after) => PullError::Busy { after },
                None => PullError::Cut { url: url.to_owned(), fault: what },
            });
        }
        let doubled = self.patience.first.saturating_mul(1 << (self.failed - 1).min(20));
        sleep(after.unwrap_or_else(|| doubled.min(self.patience.longest)));
        Ok(())
    }
}

/// Redirects that are followed before one is taken for a circle.
const HOPS: usize = 8;

/// A connection to one hub.
pub(crate) struct Client {
    agent: Agent,
    origin: Origin,
    /// Without a slash at its end.
    pub(crate) url: String,
    token: Option<String>,
    pub(crate) patience: Patience,
}

impl Client {
    pub(crate) fn new(options: &Options) -> Result<Self, PullError> {
        let url = options.url.trim_end_matches('/').to_owned();
        let origin = Origin::of(&url).ok_or_else(|| PullError::Address(options.url.clone()))?;
        let wrong = |proxy: &String| PullError::Address(proxy.clone());
        let proxy = options.proxy.as_ref();
        let proxy = proxy.map(|proxy| Proxy::new(proxy).map_err(|_| wrong(proxy))).transpose()?;
        let silence = Some(options.patience.silence);
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy)
            .timeout_connect(silence)
            .timeout_recv_response(silence)
            .timeout_per_read(silence)
            .accept_encoding("identity")
            .user_agent(concat!("lapidary/", env!("CARGO_PKG_VERSION")));
        let agent = config.build().new_agent();
        let token = options.token.clone();
        Ok(Self { agent, origin, url, token, patience: options.patience })
    }

    /// Asks about a file and takes the first answer that describes it.
    pub(crate) fn head(&self, url: &str, what: &What<'_>) -> Result<Response<Body>, Fault> {
        let described = |answer: &Response<Body>, to: &str| {
            header(answer, "x-linked-etag").is_some()
                || Origin::of(to).as_ref() != Some(&self.origin)
        };
        self.ask(&Method::HEAD, url, None, what, described)
    }

    /// Asks for bytes, wherever they lie.
    pub(crate) fn get(
        &self,
        url: &str,
        range: Option<Range<u64>>,
        what: &What<'_>,
    ) -> Result<Response<Body>, Fault> {
        self.ask(&Method::GET, url, range, what, |_, _| false)
    }

    /// Asks once, following redirects until one `is_enough`.
    fn ask(
        &self,
        method: &Method,
        url: &str,
        range: Option<Range<u64>>,
        what: &What<'_>,
        is_enough: impl Fn(&Response<Body>, &str) -> bool,
    ) -> Result<Response<Body>, Fault> {
        let mut at = url.to_owned();
        for _ in 0..HOPS {
            let answer = self.send(method, &at, range.clone())?;
            if !answer.status().is_redirection() {
                return self.judge(answer, &at, what);
            }
            let location = header(&answer, "location").and_then(|location| follow(&at, location));
            let strange =
                || PullError::Strange { url: at.clone(), what: "a redirect to nowhere".into() };
            let to = location.ok_or_else(|| Fault::Lasting(strange()))?;
            if is_enough(&answer, &to) {
                return Ok(answer);
            }
            let safe = |address: &str| Origin::of(address).is_some_and(|origin| origin.is_safe());
            if safe(&at) && !safe(&to) {
                return Err(Fault::Lasting(PullError::Unsafe { url: at, to }));
            }
            at = to;
        }
        let what = "redirects in a circle".into();
        Err(Fault::Lasting(PullError::Strange { url: url.to_owned(), what }))
    }

    fn send(
        &self,
        method: &Method,
        url: &str,
        range: Option<Range<u64>>,
    ) -> Result<Response<Body>, Fault> {
        let mut request = Request::builder().method(method.clone()).uri(url);
        if let Some(range) = range {
            request = request.header("range", format!("bytes={}-{}", range.start, range.end - 1));
        }
        let ours = Origin::of(url).as_ref() == Some(&self.origin);
        if let Some(token) = self.token.as_ref().filter(|_| ours) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(()).map_err(|e| {
            Fault::Lasting(PullError::Strange { url: url.to_owned(), what: e.to_string() })
        })?;
        self.agent.run(request).map_err(Fault::passing)
    }

    /// Which answers are ones. A storage behind the hub refuses when an address has grown old, and
    /// the hub gives a fresh one when asked again.
    fn judge(
        &self,
        answer: Response<Body>,
        url: &str,
        what: &What<'_>,
    ) -> Result<Response<Body>, Fault> {
        let status = answer.status().as_u16();
        let ours = Origin::of(url).as_ref() == Some(&self.origin);
        let passing =
            || Fault::Passing { after: retry_after(&answer), what: format!("status {status}") };
        match status {
            200..300 => Ok(answer),
            408 | 429 | 500.. => Err(passing()),
            401 | 403 | 404 | 410 if !ours => Err(passing()),
            401 | 403 | 404 => Err(Fault::Lasting(self.refusal(&answer, what))),
            _ => {
                let what = format!("status {status}");
                Err(Fault::Lasting(PullError::Strange { url: url.to_owned(), what }))
            }
        }
    }

    /// The hub's no, in words. Its own code is more exact than the status: a repository that does
    /// not exist answers 401 to strangers.
    fn refusal(&self, answer: &Response<Body>, what: &What<'_>) -> PullError {
        let repo = what.repo.to_owned();
        let page = format!("{}/{repo}", self.url);
        let missing = || PullError::Missing { what: what.to_string(), hub: self.url.clone() };
        match (header(answer, "x-error-code"), answer.status().as_u16()) {
            (Some("GatedRepo"), _) => PullError::Gated { repo, page },
            (Some("RevisionNotFound" | "EntryNotFound"), _) | (_, 404) => missing(),
            (_, 403) => PullError::Gated { repo, page },
            (Some("RepoNotFound"), _) if self.token.is_some() => missing(),
            _ if self.token.is_some() => PullError::BadToken,
            _ => PullError::NoToken { repo },
        }
    }
}

/// What a request is about, for the sentence that says it failed.
pub(crate) struct What<'a> {
    pub(crate) repo: &'a str,
    /// A revision or a file.
    pub(crate) part: &'a str,
}

impl std::fmt::Display for What<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.repo, self.part)
    }
}

/// A header's text.
pub(crate) fn header<'a>(answer: &'a Response<Body>, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

/// The wait that an answer asks for, in seconds. A date is not read, since there is no clock here;
/// the usual waits apply then.
fn retry_after(answer: &Response<Body>) -> Option<Duration> {
    header(answer, "retry-after")?.trim().parse().ok().map(Duration::from_secs)
}
