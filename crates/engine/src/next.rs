//! Choosing a sequence's next token: the sampler, under what the grammar and the stops allow.

use std::borrow::Cow;

use lapidary_core::{Constraint, Next, Stuck, TokenId, TokenSet, Want};

use crate::returned::Choice;
use crate::sampling::{Logprobs, Sampling, logprobs};
use crate::{Finish, Request};

/// How a sequence's next tokens are chosen, and where they end.
pub(crate) struct NextToken {
    sampling: Sampling,
    /// Tokens that end the text.
    stop: Vec<TokenId>,
    /// How many more tokens there must be before one of them.
    needed: u32,
    /// Alternatives to report with each token.
    logprobs: Option<usize>,
    grammar: Option<Guide>,
}

/// A grammar and what it allows next.
struct Guide {
    state: Box<dyn Constraint>,
    next: Result<Next, Stuck>,
}

impl NextToken {
    pub(crate) fn of(request: &Request, sample: u32) -> Self {
        let guide = |grammar: &dyn Constraint| Guide::new(grammar.fork());
        Self {
            sampling: request.sampling.of_sample(sample),
            stop: request.stop.clone(),
            needed: request.min_tokens,
            logprobs: request.logprobs,
            grammar: request.grammar.as_deref().map(guide),
        }
    }

    /// What a row must bring back for a choice. What may be chosen from only ever grows as a text
    /// goes on, so a row also serves the choices after the next.
    pub(crate) fn want(&self) -> Want {
        let whole = self.logprobs.is_some() || self.grammar.is_some() || self.needed > 0;
        match self.sampling.reach() {
            Some(reach) if !whole => Want::top(reach),
            _ => Want::LOGITS,
        }
    }

    /// The token that follows `tokens`, how likely it was, if that is asked for, or why there is
    /// none.
    pub(crate) fn choose(
        &mut self,
        tokens: &[TokenId],
        choice: Choice<'_>,
    ) -> Result<(TokenId, Option<Box<Logprobs>>), Finish> {
        let token = match choice {
            Choice::Row(logits) => {
                self.sampling.pick(tokens, &self.allowed(logits).map_err(failed)?)
            }
            Choice::Likeliest(likeliest) => self.sampling.pick_among(tokens, likeliest),
        };
        let token = token.map_err(failed)?;
        if self.stop.contains(&token) {
            return Err(Finish::Stop { token });
        }
        self.needed = self.needed.saturating_sub(1);
        if let Some(guide) = &mut self.grammar {
            guide.advance(token);
        }
        // Of the model's own distribution, not of what the grammar and the settings left of it.
        let report = match (choice, self.logprobs) {
            (Choice::Row(logits), Some(top)) => Some(Box::new(logprobs(logits, token, top))),
            _ => None,
        };
        Ok((token, report))
    }

    /// Whether the text is over, whatever the model would say.
    pub(crate) fn end(&self) -> Option<Finish> {
        let next = self.grammar.as_ref()?.next.as_ref().ok()?;
        (next.end && next.tokens.is_empty()).then_some(Finish::Complete)
    }

    /// The logits with what may not come next at minus infinity.
    fn allowed<'a>(&self, row: &'a [f32]) -> Result<Cow<'a, [f32]>, Stuck> {
        let next = self.grammar.as_ref().map(|guide| guide.next.as_ref());
        let next = next.transpose().map_err(Stuck::clone)?;
        let may_stop = self.needed == 0 && next.is_none_or(|next| next.end);
        if next.is_none() && may_stop {
            return Ok(Cow::Borrowed(row));
        }
        let mut logits = next.map_or_else(|| row.to_vec(), |next| masked(row, &next.tokens));
        for stop in &self.stop {
            if let (Some(logit), Some(own)) = (logits.get_mut(stop.index()), row.get(stop.index()))
            {
                *logit = if may_stop { *own } else { f32::NEG_INFINITY };
            }
        }
        Ok(Cow::Owned(logits))
    }
}

fn masked(row: &[f32], allowed: &TokenSet) -> Vec<f32> {
    let mask = |(token, &logit)| if allowed.contains(token) { logit } else { f32::NEG_INFINITY };
    (0..).map(TokenId).zip(row).map(mask).collect()
}

fn failed(why: impl ToString) -> Finish {
    Finish::Failed(why.to_string())
}

impl Guide {
    fn new(mut state: Box<dyn Constraint>) -> Self {
        let next = state.next();
        Self { state, next }
    }

    fn advance(&mut self, token: TokenId) {
        self.next = self.state.advance(token).and_then(|()| self.state.next());
    }
}
