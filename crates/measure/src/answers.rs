//! Stored answers, given again: equal texts and equal tokens, per category.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lapidary_core::{Backend, KvCache, TokenId};
use lapidary_engine::{
    Drafter, Drafting, Event, Finish, FirstCome, Guesses, Limits, NoDrafts, Request, RequestId,
    Scheduler, Target, turn,
};
use lapidary_model::{Model, StepError};
use serde_json::Value;
use thiserror::Error;

/// Most tokens of an answer where the file does not store one.
const LONGEST: u32 = 64;

/// A question with what should come of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Kind of question.
    pub category: String,
    /// The rendered prompt's tokens.
    pub prompt: Vec<TokenId>,
    /// The text that is right.
    pub expected: String,
    /// Tokens of a reference's greedy answer, its end token included.
    pub greedy: Vec<TokenId>,
}

/// A line of an answer file means nothing.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[error("line {line}: {reason}")]
pub struct AnswerError {
    /// Counted from one.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

/// Right answers out of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Right ones and all, per category.
    pub categories: BTreeMap<String, (usize, usize)>,
    /// Answers whose text is the expected one.
    pub right: usize,
    /// Answers whose tokens are the reference's, end token included.
    pub equal_tokens: usize,
    /// All answers.
    pub total: usize,
    /// What it took.
    pub effort: Effort,
}

/// What answering took.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Effort {
    /// Tokens of the answers, end tokens included.
    pub tokens: usize,
    /// What became of guesses.
    pub guesses: Guesses,
    /// From the first step to the last, prompts and guessing included.
    pub time: Duration,
}

impl Effort {
    /// Tokens that each of a text's steps yielded on average: one, and the guesses that came true.
    pub fn tokens_per_step(&self) -> f64 {
        let steps = self.tokens.saturating_sub(self.guesses.accepted as usize);
        if steps == 0 { 0.0 } else { self.tokens as f64 / steps as f64 }
    }
}

/// Reads answers, one JSON object per line: `category`, `prompt_ids`, `expected`, `greedy_ids`.
///
/// # Errors
/// The first line that is none.
pub fn read_answers(text: &str) -> Result<Vec<Answer>, AnswerError> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(i, line)| answer(line).map_err(|reason| AnswerError { line: i + 1, reason }))
        .collect()
}

fn answer(line: &str) -> Result<Answer, String> {
    let value: Value = serde_json::from_str(line).map_err(|e| e.to_string())?;
    let text = |key: &str| match value[key].as_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(format!("`{key}` must be a text")),
    };
    let ids = |key: &str| {
        let wrong = || format!("`{key}` must be a list of token ids");
        let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok()).map(TokenId);
        let list = value[key].as_array().ok_or_else(wrong)?;
        list.iter().map(id).collect::<Option<Vec<_>>>().ok_or_else(wrong)
    };
    let prompt = ids("prompt_ids")?;
    if prompt.is_empty() {
        return Err("`prompt_ids` must not be empty".into());
    }
    Ok(Answer {
        category: text("category")?,
        prompt,
        expected: text("expected")?,
        greedy: ids("greedy_ids")?,
    })
}

/// Questions to be answered greedily, many at once.
pub struct Exam<'a> {
    /// The questions.
    pub answers: &'a [Answer],
    /// Tokens that end an answer.
    pub end: &'a [TokenId],
    /// Turns tokens into text.
    pub decode: &'a dyn Fn(&[TokenId]) -> String,
    /// How much runs at once; must fit the cache.
    pub limits: Limits,
}

impl Exam<'_> {
    /// Answers every question and compares. `progress` is called with the number of finished
    /// answers. A question that does not fit the limits counts as a wrong answer.
    ///
    /// # Errors
    /// The device failed.
    ///
    /// # Panics
    /// If the limits let nothing run.
    pub fn take<B: Backend>(
        &self,
        ops: &B,
        model: &dyn Model<B>,
        cache: &mut dyn KvCache<B>,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Score, StepError> {
        let drafting = Drafting { most: 0, width: 1, adaptive: false };
        let target = Target { ops, model, cache };
        self.take_ahead(target, &mut NoDrafts, drafting, progress)
    }

    /// The same with somebody who guesses. The answers are the same.
    ///
    /// # Errors
    /// The device failed.
    ///
    /// # Panics
    /// If the limits let nothing run.
    pub fn take_ahead<B: Backend>(
        &self,
        target: Target<'_, B>,
        drafter: &mut dyn Drafter<B>,
        drafting: Drafting,
        progress: &mut dyn FnMut(usize),
    ) -> Result<Score, StepError> {
        let Target { ops, model, cache } = target;
        let mut scheduler = self.scheduler().drafting(drafting, drafter.wants_hidden());
        let mut texts: Vec<Vec<TokenId>> = vec![Vec::new(); self.answers.len()];
        let mut finished = 0;
        let mut effort = Effort::default();
        let began = Instant::now();
        loop {
            let before = Instant::now();
            if !turn(&mut scheduler, ops, model, cache, drafter)? {
                break;
            }
            scheduler.handle_step_time(before.elapsed());
            while let Some(event) = scheduler.poll_event() {
                let text = &mut texts[event.id().0 as usize];
                match event {
                    Event::Warm { .. } | Event::Prompt { .. } | Event::Embedding { .. } => {}
                    Event::Token { token, .. } => text.push(token),
                    Event::Finished { finish, guesses, .. } => {
                        effort.guesses.accepted += guesses.accepted;
                        effort.guesses.rejected += guesses.rejected;
                        if let Finish::Stop { token } = finish {
                            text.push(token);
                        }
                        finished += 1;
                        progress(finished);
                    }
                }
            }
        }
        effort.time = began.elapsed();
        effort.tokens = texts.iter().map(Vec::len).sum();
        let mut score = Score { total: self.answers.len(), effort, ..Score::default() };
        let given = self.answers.iter().zip(&texts);
        given.for_each(|(answer, tokens)| score.add(answer, tokens, self));
        Ok(score)
    }

    /// A scheduler with every question waiting.
    fn scheduler(&self) -> Scheduler {
        let limits = Limits { waiting: self.answers.len(), ..self.limits };
        let scheduler = Scheduler::new(limits, Box::new(FirstCome));
        let mut scheduler = scheduler.expect("the caller's limits let requests run");
        for (i, answer) in self.answers.iter().enumerate() {
            let request = Request {
                max_tokens: Some(LONGEST.max(answer.greedy.len() as u32)),
                stop: self.end.to_vec(),
                ..Request::new(RequestId(i as u64), answer.prompt.clone())
            };
            // What is refused stays without an answer.
            let _ = scheduler.submit(request);
        }
        scheduler
    }
}

impl Score {
    fn add(&mut self, answer: &Answer, tokens: &[TokenId], exam: &Exam<'_>) {
        let ended = tokens.split_last().filter(|(last, _)| exam.end.contains(last));
        let right = ended.is_some_and(|(_, text)| (exam.decode)(text) == answer.expected);
        let category = self.categories.entry(answer.category.clone()).or_default();
        *category = (category.0 + usize::from(right), category.1 + 1);
        self.right += usize::from(right);
        self.equal_tokens += usize::from(tokens == answer.greedy);
    }
}
