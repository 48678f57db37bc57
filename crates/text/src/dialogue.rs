//! A conversation that goes on: asked and answered in turns, taken back, saved, and shortened where
//! it no longer fits.

use lapidary_core::TokenId;
use serde_json::Value;

use crate::conversation::{Content, Conversation, Message, Role, ToolCall};
use crate::normalise::normalise;
use crate::reply::Reply;

/// What one person and one model have said to each other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dialogue {
    /// The operator's words before all turns.
    pub system: Option<String>,
    /// Declarations of functions the model may call, as in OpenAI's `tools`.
    pub tools: Vec<Value>,
    /// Whether the model is asked to think first.
    pub think: bool,
    /// Each begins with what the person said; the model's messages and results of tools follow.
    turns: Vec<Vec<Message>>,
}

/// What happens when a conversation and its answer need more tokens than there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Overflow {
    /// Nothing more is asked.
    Stop,
    /// The oldest turns are forgotten, the system text never.
    DropOldest,
}

/// A conversation that fits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fitted {
    /// Its tokens.
    pub prompt: Vec<TokenId>,
    /// Oldest turns that were forgotten for that.
    pub dropped: usize,
}

/// Why a conversation cannot be asked.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Unfit<E> {
    /// It is too long, and may not or cannot become shorter.
    #[error("the conversation has {tokens} tokens and there is room for {room}")]
    TooLong {
        /// Tokens of the shortest form that the policy allows.
        tokens: usize,
        /// The most it may have.
        room: usize,
    },
    /// It cannot be written down.
    #[error(transparent)]
    Unsayable(E),
}

impl Dialogue {
    /// Nothing said yet, but by the operator.
    pub fn new(system: Option<String>, tools: Vec<Value>) -> Self {
        Self { system, tools, ..Self::default() }
    }

    /// The person says something: a turn begins.
    pub fn ask(&mut self, text: impl Into<String>) {
        self.turns.push(vec![Message::new(Role::User, text)]);
    }

    /// The model has answered.
    pub fn answer(&mut self, reply: Reply) {
        let first = self.calls() + 1;
        let name =
            |(id, call): (usize, ToolCall)| ToolCall { id: Some(format!("call_{id}")), ..call };
        let message = Message {
            content: (!reply.content.is_empty()).then_some(Content::Text(reply.content)),
            reasoning: (!reply.reasoning.is_empty()).then_some(reply.reasoning),
            tool_calls: (first..).zip(reply.tool_calls).map(name).collect(),
            ..Message::empty(Role::Assistant)
        };
        self.push(message);
    }

    /// The call that the model waits for: the first of its latest message without a result.
    pub fn awaited(&self) -> Option<&ToolCall> {
        let turn = self.turns.last()?;
        let called = turn.iter().rposition(|message| message.role == Role::Assistant)?;
        turn[called].tool_calls.get(turn.len() - called - 1)
    }

    /// The call that the model waits for has this result. Without such a call nothing happens.
    pub fn result(&mut self, text: impl Into<String>) {
        let Some(ToolCall { id, name, .. }) = self.awaited().cloned() else { return };
        let message = Message::new(Role::Tool, text);
        self.push(Message { tool_call_id: id, name: Some(name), ..message });
    }

    /// Takes back the last turn, question and answer.
    pub fn undo(&mut self) -> bool {
        self.turns.pop().is_some()
    }

    /// Takes back the model's last message and what followed it, so that it can answer again. Does
    /// nothing, and says so, where it has not answered.
    pub fn reopen(&mut self) -> bool {
        let Some(turn) = self.turns.last_mut() else { return false };
        let answer = turn.iter().rposition(|message| message.role == Role::Assistant);
        // A loaded conversation may begin with the model.
        let Some(answer) = answer.filter(|at| *at > 0) else { return false };
        turn.truncate(answer);
        true
    }

    /// Forgets all turns; system text and tools stay.
    pub fn reset(&mut self) {
        self.turns.clear();
    }

    /// How often the person has asked.
    pub fn turns(&self) -> usize {
        self.turns.len()
    }

    /// Everything that was said, in order.
    pub fn messages(&self) -> impl Iterator<Item = &Message> {
        self.turns.iter().flatten()
    }

    /// Everything, ready to be continued by the model.
    pub fn conversation(&self) -> Conversation {
        self.without_oldest(0)
    }

    /// Writes the conversation down in at most `room` tokens, by `tokens`, forgetting oldest turns
    /// if `policy` allows. An error leaves everything as it is.
    ///
    /// # Errors
    /// [`Unfit`], with the count of the shortest form that was tried.
    pub fn fit<E>(
        &mut self,
        policy: Overflow,
        room: usize,
        tokens: impl Fn(&Conversation) -> Result<Vec<TokenId>, E>,
    ) -> Result<Fitted, Unfit<E>> {
        let most = match policy {
            Overflow::Stop => 0,
            Overflow::DropOldest => self.turns.len().saturating_sub(1),
        };
        let mut shortest = 0;
        for dropped in 0..=most {
            let prompt = tokens(&self.without_oldest(dropped)).map_err(Unfit::Unsayable)?;
            if prompt.len() <= room {
                self.turns.drain(..dropped);
                return Ok(Fitted { prompt, dropped });
            }
            shortest = prompt.len();
        }
        Err(Unfit::TooLong { tokens: shortest, room })
    }

    fn without_oldest(&self, turns: usize) -> Conversation {
        let system = self.system.iter().map(|text| Message::new(Role::System, text.clone()));
        let messages = system.chain(self.turns[turns..].iter().flatten().cloned());
        let mut chat = Conversation {
            tools: self.tools.clone(),
            enable_thinking: self.think,
            ..Conversation::new(messages.collect())
        };
        normalise(&mut chat);
        chat
    }

    fn calls(&self) -> usize {
        self.messages().map(|message| message.tool_calls.len()).sum()
    }

    /// Adds a message to the turn under way.
    pub(crate) fn push(&mut self, message: Message) {
        match self.turns.last_mut() {
            Some(turn) if message.role != Role::User => turn.push(message),
            _ => self.turns.push(vec![message]),
        }
    }
}
