//! Writing a conversation down the way its model was trained to read it.

use std::error::Error as _;
use std::fmt;

use minijinja::value::Serde;
use minijinja::{Environment, Error, ErrorKind, Value};

use crate::context::context;
use crate::conversation::Conversation;
use crate::jinja::{self, Refusal};
use crate::prompt::Prompt;
use crate::shield::Shield;
use crate::specials::Specials;

/// The name of the one template in its environment.
const NAME: &str = "chat";

/// A compiled chat template.
///
/// Laws: what it renders is byte for byte what the reference implementation renders; text that a
/// client or a tool wrote never becomes a special token.
pub struct ChatTemplate {
    environment: Environment<'static>,
    specials: Specials,
    shield: Shield,
    fuel: u64,
}

impl ChatTemplate {
    /// Steps a render may take: a conversation of two thousand messages, or some seconds.
    pub const FUEL: u64 = 20_000_000;

    /// The longest source, in bytes: several times the longest published one.
    pub const MAX_SOURCE: usize = 1 << 16;

    /// The source of Gemma 3's format, for files of that family that bring no template.
    pub const GEMMA_3: &str = include_str!("gemma3.jinja");

    /// Compiles `source`, which writes the special tokens of `specials`.
    ///
    /// # Errors
    /// The source is not a Jinja template, or too long for one.
    pub fn new(source: &str, specials: &Specials) -> Result<Self, TemplateError> {
        Self::with_fuel(source, specials, Self::FUEL)
    }

    /// As [`new`](Self::new), with another limit on the steps of a render.
    ///
    /// # Errors
    /// The source is not a Jinja template, or too long for one.
    pub fn with_fuel(source: &str, specials: &Specials, fuel: u64) -> Result<Self, TemplateError> {
        if source.len() > Self::MAX_SOURCE {
            let (bytes, limit) = (source.len(), Self::MAX_SOURCE);
            return Err(TemplateError::TooLong { bytes, limit });
        }
        let environment = with_deep_stack(|| compile(source, fuel))??;
        Ok(Self { environment, specials: specials.clone(), shield: Shield::new(specials), fuel })
    }

    /// Writes down `chat` as it stands; [`normalise`](crate::normalise()) it first unless the raw
    /// rendering is wanted.
    ///
    /// # Errors
    /// The template refuses the conversation, fails on it, or takes too long.
    pub fn render(&self, chat: &Conversation) -> Result<Prompt, TemplateError> {
        let context = context(chat, &self.specials, &self.shield);
        let template = self.environment.get_template(NAME);
        let rendered = template.and_then(|t| t.render(Value::from(Serde(&context))));
        let rendered = rendered.map_err(|err| self.explain(&err))?;
        Ok(Prompt::from_marked(&rendered, &self.specials))
    }

    fn explain(&self, err: &Error) -> TemplateError {
        if let Some(Refusal(message)) = refusal(err) {
            return TemplateError::Refused { message: message.clone() };
        }
        match innermost(err).kind() {
            ErrorKind::OutOfFuel => TemplateError::OutOfFuel { fuel: self.fuel },
            _ => TemplateError::Render(Fault::of(err)),
        }
    }
}

fn compile(source: &str, fuel: u64) -> Result<Environment<'static>, TemplateError> {
    let build = || {
        let mut environment = jinja::environment(fuel)?;
        environment.add_template_owned(NAME, source.to_owned())?;
        Ok(environment)
    };
    build().map_err(|err: Error| TemplateError::Syntax(Fault::of(&err)))
}

/// Runs `work` where recursion as deep as the longest source is long has room. The compiler follows
/// chains such as `a.b.c` one level a link, which takes less than this many bytes of stack.
fn with_deep_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, TemplateError> {
    const LEVEL: usize = 1 << 10;
    std::thread::scope(|scope| {
        let builder = std::thread::Builder::new().stack_size(ChatTemplate::MAX_SOURCE * LEVEL);
        let thread = builder.spawn_scoped(scope, work);
        let thread = thread.map_err(|err| TemplateError::NoThread { reason: err.to_string() })?;
        thread.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}

/// Why a template cannot be used, or not for this conversation.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TemplateError {
    /// It is not a Jinja template.
    #[error("the chat template is not valid ({0}); give another template")]
    Syntax(Fault),
    /// It is too long to be compiled safely.
    #[error("the chat template has {bytes} bytes, and {limit} are allowed; give another template")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest length allowed.
        limit: usize,
    },
    /// The system gives no thread to compile it in.
    #[error("no thread to compile the chat template in ({reason}); free some memory")]
    NoThread {
        /// In the system's words.
        reason: String,
    },
    /// It called `raise_exception`.
    #[error("the chat template refuses this conversation: {message}")]
    Refused {
        /// The template's own words.
        message: String,
    },
    /// It took too many steps.
    #[error(
        "the chat template took more than {fuel} steps; shorten the conversation or give another template"
    )]
    OutOfFuel {
        /// The limit.
        fuel: u64,
    },
    /// It does something that this conversation does not allow.
    #[error(
        "the chat template fails on this conversation ({0}); change the messages or give another template"
    )]
    Render(Fault),
}

/// What went wrong inside a template, and where.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Line of the template, from 1, if known.
    pub line: Option<usize>,
    /// In the words of the template engine.
    pub detail: String,
}

impl Fault {
    fn of(err: &Error) -> Self {
        let err = innermost(err);
        let detail = match err.detail() {
            Some(detail) => format!("{}: {detail}", err.kind()),
            None => err.kind().to_string(),
        };
        Self { line: err.line(), detail }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.detail),
            None => f.write_str(&self.detail),
        }
    }
}

/// The engine wraps errors on their way out; the first of them says what happened.
fn innermost(err: &Error) -> &Error {
    let mut inner = err;
    while let Some(source) = inner.source().and_then(|source| source.downcast_ref()) {
        inner = source;
    }
    inner
}

fn refusal(err: &Error) -> Option<&Refusal> {
    innermost(err).source()?.downcast_ref()
}
