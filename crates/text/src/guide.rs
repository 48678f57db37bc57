//! A text on its way through a grammar, a thought before it included.

use std::fmt;
use std::sync::Arc;

use lapidary_core::{Constraint, Next, Stuck, TokenId, TokenSet};
use llguidance::Matcher;

use crate::Thinking;

/// Where a text has got to, under rules that [`Grammars`](crate::Grammars) made ready.
#[derive(Clone)]
pub struct Guide {
    matcher: Matcher,
    marks: Option<Marks>,
    place: Place,
}

/// The tokens around a thought, and those that may be in it.
#[derive(Clone)]
pub(crate) struct Marks {
    pub(crate) open: TokenId,
    pub(crate) close: TokenId,
    pub(crate) plain: Arc<TokenSet>,
}

/// Where in a reply a text is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// At its beginning, where a thought may open.
    Beginning,
    /// In a thought.
    Thought,
    /// Under the grammar.
    Text,
}

impl Guide {
    pub(crate) fn new(matcher: Matcher, marks: Option<Marks>, thinking: Thinking) -> Self {
        let place = match (&marks, thinking) {
            (Some(_), Thinking::First) => Place::Beginning,
            (Some(_), Thinking::Open) => Place::Thought,
            _ => Place::Text,
        };
        Self { matcher, marks, place }
    }

    /// Takes in text that the prompt already holds: what an assistant's message begins with.
    ///
    /// # Errors
    /// The text does not conform.
    pub fn follow(&mut self, tokens: &[TokenId]) -> Result<(), Stuck> {
        tokens.iter().try_for_each(|token| self.advance(*token))
    }
}

impl Constraint for Guide {
    fn fork(&self) -> Box<dyn Constraint> {
        // Caches that are filled as a text goes on are not shared: forks may run anywhere.
        Box::new(Self { matcher: self.matcher.deep_clone(), ..self.clone() })
    }

    fn next(&mut self) -> Result<Next, Stuck> {
        match (&self.marks, self.place) {
            (Some(marks), Place::Thought) => {
                let mut tokens = TokenSet::clone(&marks.plain);
                tokens.insert(marks.close);
                Ok(Next { tokens, end: false })
            }
            (Some(marks), Place::Beginning) => {
                let mut next = text(&mut self.matcher)?;
                next.tokens.insert(marks.open);
                Ok(next)
            }
            _ => text(&mut self.matcher),
        }
    }

    fn advance(&mut self, token: TokenId) -> Result<(), Stuck> {
        match (&self.marks, self.place) {
            (Some(marks), Place::Beginning) if token == marks.open => self.place = Place::Thought,
            (Some(marks), Place::Thought) if token == marks.close => self.place = Place::Text,
            (Some(marks), Place::Thought) if marks.plain.contains(token) => {}
            (Some(_), Place::Thought) => {
                return Err(Stuck(format!("token {} is no thought", token.0)));
            }
            _ => {
                let taken = self.matcher.try_consume_tokens(&[token.0]).map_err(stuck)?;
                if taken == 0 {
                    return Err(Stuck(format!("token {} does not conform", token.0)));
                }
                self.place = Place::Text;
            }
        }
        Ok(())
    }
}

/// What the grammar allows.
fn text(matcher: &mut Matcher) -> Result<Next, Stuck> {
    if matcher.is_stopped() && !matcher.is_error() {
        return Ok(Next { tokens: TokenSet::default(), end: true });
    }
    let end = matcher.is_accepting().map_err(stuck)?;
    let mask = matcher.compute_mask().map_err(stuck)?;
    let mut tokens = TokenSet::from_words(mask.as_slice().to_vec());
    // The library's way of saying that the text may end here.
    if let Ok(env) = matcher.tok_env() {
        env.tok_trie().eos_tokens().iter().for_each(|end| tokens.remove(TokenId(*end)));
    }
    Ok(Next { tokens, end })
}

fn stuck(error: impl ToString) -> Stuck {
    let text = error.to_string();
    Stuck(text.lines().next().unwrap_or(&text).to_owned())
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guide").field("place", &self.place).finish_non_exhaustive()
    }
}
